//! Histories that are taken up: what was said holds, nothing warms, nothing shifts.

use super::*;
use crate::past::Past;

const REGISTERS: [u64; 8] = [0b1101, 0, 0, 0b10, 0b1101, 0, 0b1101, 0b1101];

fn past(verdict: Verdict) -> Past {
    Past {
        target: TargetIndex(0),
        registers: REGISTERS,
        verdict,
        average_s: 0.25,
        last_ns: 7 * MS,
        last_result_ns: START - SECOND,
        outcome: Some(Outcome::Answered { status: 200, good: true }),
        indeterminate: 2,
    }
}

fn resumed(rule: Rule, verdict: Verdict) -> Bench {
    let mut plan = Plan { past: vec![past(verdict)], ..plan(2, 2, HTTP) };
    plan.judges[0].rule = rule;
    Bench::new(&plan)
}

fn told(before: Verdict, verdict: Verdict, cause: ChangeCause) -> Vec<Change> {
    vec![Change { judge: JudgeIndex(0), verdict, before, unknown: false, cause }]
}

#[test]
fn registers_stand_bit_for_bit_and_the_next_result_is_shifted_in() {
    let rule = Rule::Window { window: 3, threshold: 2 };
    let mut bench = resumed(rule, Verdict::Healthy);
    let history = *bench.history();
    assert_eq!((history.registers, history.average_s, history.last_ns), (REGISTERS, 0.25, 7 * MS));
    assert_eq!((history.last_result_ns, history.indeterminate), (START - SECOND, 2));
    assert!(!history.unknown);
    // The other target has no past, and warms.
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Healthy, 1));
    assert_eq!(bench.changes(), told(Verdict::Healthy, Verdict::Healthy, ChangeCause::TakenUp));
    bench.prober.remove_judge(JudgeIndex(1), bench.now);
    bench.prober.remove_target(TargetIndex(1), bench.now);
    bench.probe(Event::Received(b""));
    assert_eq!(bench.history().registers[HAPPY], 0b1_1010);
    assert_eq!(bench.verdict(), Verdict::Sick, "one of three");
}

#[test]
fn another_rule_judges_what_is_there() {
    let stricter = Rule::Window { window: 4, threshold: 4 };
    let mut bench = resumed(stricter, Verdict::Healthy);
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Sick, 1));
    assert_eq!(bench.changes(), told(Verdict::Healthy, Verdict::Sick, ChangeCause::Rule));
    let laxer = Rule::Window { window: 8, threshold: 3 };
    let mut bench = resumed(laxer, Verdict::Sick);
    assert_eq!(bench.changes(), told(Verdict::Sick, Verdict::Healthy, ChangeCause::Rule));
}

#[test]
fn rule_that_finds_neither_leaves_what_was_said() {
    // One good result in a row, and one bad one before: neither two nor three in a row.
    let rule = Rule::Consecutive { fall: 3, rise: 2 };
    for said in [Verdict::Healthy, Verdict::Sick] {
        let mut bench = resumed(rule, said);
        assert_eq!(bench.verdict(), said);
        assert_eq!(bench.changes(), told(said, said, ChangeCause::TakenUp));
    }
}

#[test]
fn one_that_was_warming_begins_with_the_results_it_has() {
    let enough = Rule::Window { window: 8, threshold: 3 };
    assert_eq!(resumed(enough, Verdict::Warming).verdict(), Verdict::Healthy);
    let more = Rule::Window { window: 8, threshold: 4 };
    assert_eq!(resumed(more, Verdict::Warming).verdict(), Verdict::Warming);
}

#[test]
fn silence_counts_from_the_start_and_not_from_a_result_before_it() {
    let mut plan = Plan { past: vec![past(Verdict::Healthy)], ..plan(1, 2, HTTP) };
    plan.past[0].last_result_ns = START - 29 * SECOND;
    let mut bench = Bench::new(&plan);
    for _ in 0..29 {
        let slot = bench.start();
        bench.failed(slot, Phase::Connect, 99);
        bench.report();
        bench.close(slot);
    }
    assert!(!bench.history().unknown);
}
