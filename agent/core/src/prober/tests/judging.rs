//! What results, overrides and silence make of the verdicts.

use super::*;

#[test]
fn first_verdict_comes_when_a_faultless_backend_would_have_it() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Warming, 1));
    bench.probe(Event::Received(OK));
    assert_eq!(bench.verdict(), Verdict::Warming);
    assert_eq!(bench.changes(), []);
    bench.probe(Event::Received(b""));
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Sick, 0));
    let change = Change {
        judge: JudgeIndex(0),
        verdict: Verdict::Sick,
        before: Verdict::Warming,
        unknown: false,
        cause: ChangeCause::Probe,
    };
    assert_eq!(bench.changes(), [change]);
    bench.probe(Event::Received(OK));
    assert_eq!(bench.verdict(), Verdict::Healthy);
}

#[test]
fn indeterminate_probes_do_not_count_towards_the_first_verdict() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    for _ in 0..5 {
        bench.probe(Event::Failed { phase: Phase::Connect, errno: 99 });
    }
    assert_eq!(bench.verdict(), Verdict::Warming);
}

#[test]
fn override_wins_at_once_and_the_register_when_it_ends() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let change = |verdict, before, cause| Change {
        judge: JudgeIndex(0),
        verdict,
        before,
        unknown: false,
        cause,
    };
    bench.prober.on_override(JudgeIndex(0), Override::Healthy, bench.now);
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Healthy, 0));
    let told = change(Verdict::Healthy, Verdict::Warming, ChangeCause::Override);
    assert_eq!(bench.changes(), [told]);
    // Probing goes on underneath, and says nothing.
    bench.probe(Event::Received(b""));
    bench.probe(Event::Received(b""));
    assert_eq!((bench.verdict(), bench.changes()), (Verdict::Healthy, vec![]));
    bench.prober.on_override(JudgeIndex(0), Override::Auto, bench.now);
    let told = change(Verdict::Sick, Verdict::Healthy, ChangeCause::Override);
    assert_eq!(bench.changes(), [told]);
    // To the same verdict: no change.
    bench.prober.on_override(JudgeIndex(0), Override::Sick, bench.now);
    assert_eq!(bench.changes(), []);
    assert_eq!(bench.prober.override_of(JudgeIndex(0)), Override::Sick);
    bench.prober.on_override(JudgeIndex(0), Override::Auto, bench.now);
    bench.probe(Event::Received(OK));
    bench.probe(Event::Received(OK));
    let told = change(Verdict::Healthy, Verdict::Sick, ChangeCause::Probe);
    assert_eq!(bench.changes(), [told]);
}

#[test]
fn override_taken_back_while_warming_is_warming_again() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    bench.prober.on_override(JudgeIndex(0), Override::Sick, bench.now);
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Sick, 0));
    bench.prober.on_override(JudgeIndex(0), Override::Auto, bench.now);
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Warming, 1));
    // Nobody took the change in between: one is told, from the first state to the last.
    let [change] = bench.changes()[..] else { panic!("one change") };
    assert_eq!((change.before, change.verdict), (Verdict::Warming, Verdict::Warming));
}

#[test]
fn silence_makes_unknown_and_the_policy_decides() {
    for (policy, silent) in [(OnUnknown::Keep, Verdict::Healthy), (OnUnknown::Sick, Verdict::Sick)]
    {
        let mut plan = plan(1, 2, HTTP);
        plan.judges[0].on_unknown = policy;
        let mut bench = Bench::new(&plan);
        bench.probe(Event::Received(OK));
        bench.probe(Event::Received(OK));
        bench.changes();
        let heard = bench.now;
        while !bench.history().unknown {
            assert_eq!(bench.verdict(), Verdict::Healthy);
            let slot = bench.start();
            bench.failed(slot, Phase::Connect, 99);
            bench.report();
            bench.close(slot);
        }
        // 30 s is more than ten intervals, and is seen at the target's next slot.
        assert_eq!(bench.now - heard, 30 * SECOND);
        assert!(bench.history().unknown);
        assert_eq!(bench.verdict(), silent);
    }
}

#[test]
fn silence_and_its_end_are_told_even_where_the_verdict_holds() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    bench.probe(Event::Received(OK));
    bench.probe(Event::Received(OK));
    bench.changes();
    let mut silences = vec![];
    for _ in 0..40 {
        bench.probe(Event::Failed { phase: Phase::Connect, errno: 99 });
        silences.extend(bench.changes());
    }
    let change = |unknown, cause| Change {
        judge: JudgeIndex(0),
        verdict: Verdict::Healthy,
        before: Verdict::Healthy,
        unknown,
        cause,
    };
    assert_eq!(silences, [change(true, ChangeCause::Silence)]);
    bench.probe(Event::Received(OK));
    assert_eq!(bench.changes(), [change(false, ChangeCause::Probe)]);
    assert!(!bench.history().unknown);
}

#[test]
fn silence_from_the_very_start_is_noticed() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    while !bench.history().unknown {
        bench.probe(Event::Failed { phase: Phase::Connect, errno: 99 });
        assert!(bench.now - START <= 32 * SECOND);
    }
    assert!(30 * SECOND <= bench.now - START);
    assert_eq!(bench.verdict(), Verdict::Warming);
}

#[test]
fn one_register_serves_judges_with_different_rules() {
    let mut plan = plan(1, 2, HTTP);
    let judge = |rule| JudgeSpec { target: TargetIndex(0), rule, on_unknown: OnUnknown::Keep };
    plan.judges = vec![
        judge(Rule::Window { window: 1, threshold: 1 }),
        judge(Rule::Consecutive { fall: 2, rise: 2 }),
    ];
    let mut bench = Bench::new(&plan);
    let mut seen = vec![];
    for event in [OK, OK, b"", OK, b"", b""] {
        bench.probe(Event::Received(event));
        seen.push([JudgeIndex(0), JudgeIndex(1)].map(|judge| bench.prober.verdict(judge)));
    }
    let (healthy, sick, warming) = (Verdict::Healthy, Verdict::Sick, Verdict::Warming);
    let expected = [
        [healthy, warming],
        [healthy, healthy],
        [sick, healthy],
        [healthy, healthy],
        [sick, healthy],
        [sick, sick],
    ];
    assert_eq!(seen, expected);
}

#[test]
fn initial_is_assumed_and_does_not_bias_the_average() {
    let mut plan = plan(1, 2, HTTP);
    plan.judges[0].rule = Rule::Window { window: 4, threshold: 3 };
    plan.targets[0].initial = 2;
    let mut bench = Bench::new(&plan);
    assert_eq!(bench.history().registers, [0, 0, 0, 0, 0, 0, 0, 0b11]);
    let slot = bench.start();
    bench.now += 4 * MS;
    bench.event(slot, Event::Received(OK));
    // Varnish would say 4 ms / 3.
    assert_eq!(bench.history().average_s, 0.004);
    assert_eq!(bench.verdict(), Verdict::Healthy);
    assert_eq!(bench.history().registers, [1, 0, 0, 0, 1, 0, 1, 0b111]);
}

#[test]
fn initial_at_the_threshold_is_usable_before_any_probe() {
    let mut plan = plan(1, 2, HTTP);
    plan.targets[0].initial = 9;
    let bench = Bench::new(&plan);
    assert_eq!((bench.verdict(), bench.prober.warming_count()), (Verdict::Healthy, 0));
    assert_eq!(bench.history().registers[HAPPY], 0b11);
}

#[test]
fn silence_is_ten_intervals_where_they_are_long() {
    let mut plan = plan(1, 2, HTTP);
    plan.probes[0].interval_ns = 7 * SECOND;
    let mut bench = Bench::new(&plan);
    bench.probe(Event::Received(OK));
    bench.probe(Event::Received(OK));
    let heard = bench.now;
    while !bench.history().unknown {
        bench.probe(Event::Failed { phase: Phase::Connect, errno: 99 });
    }
    assert_eq!(bench.now - heard, 70 * SECOND);
}
