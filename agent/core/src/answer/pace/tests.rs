//! Figures by hand, and many targets of many pasts that must keep to them.

use super::*;
use crate::answer::{Answer, Course, PACES, Question, by_pace, register_needing};
use crate::bound::failures_to_sick;
use crate::command::Verdict;
use crate::past::Past;
use crate::plan::{self, Compat, JudgeIndex, JudgeSpec, OnUnknown, Plan, ProbeKind, TargetIndex};
use crate::register::HAPPY;
use crate::rehearsal::plan;
use crate::sim::{Behaviour, Occurrence, Peer, Random, Sim};
use crate::wheel::TICK_NS;

const MS: Nanos = TICK_NS;
const THREE_OF_EIGHT: Rule = Rule::Window { window: 8, threshold: 3 };

/// Every 5 s with a timeout of 2 s, and these paces in ms; 0 = none.
fn spec(fast_ms: Nanos, sick_ms: Nanos) -> ProbeSpec {
    let given = |ms: Nanos| (0 < ms).then_some(ms * MS);
    ProbeSpec {
        interval_ns: 5000 * MS,
        timeout_ns: 2000 * MS,
        kind: ProbeKind::Tcp,
        pace: plan::Pace { fast_ns: given(fast_ms), sick_ns: given(sick_ms), jitter_percent: 0 },
        compat: Compat::Off,
    }
}

/// Worst, typical and best, in ms, of both paces.
fn ms(courses: &[Course; 2]) -> [[Nanos; 3]; 2] {
    let each = |course: &Course| {
        let Times { worst_ns, typical_ns, best_ns } = course.times;
        [worst_ns, typical_ns, best_ns].map(|time_ns| time_ns / MS)
    };
    [each(&courses[0]), each(&courses[1])]
}

fn answer(rule: Rule, spec: &ProbeSpec) -> Answer {
    Answer::to(Question { spec, rule, initial: rule.goods_to_healthy().saturating_sub(1) })
}

#[test]
fn sick_pace_is_answered_by_hand() {
    let answer = answer(THREE_OF_EIGHT, &spec(0, 30_000));
    let healthy = &answer.to_healthy;
    // Bad on the grid of 5 s: the next no sooner than 5 s, and up to 30 s to the other grid. That
    // one is good: 5 s and up to 5 s more back to the grid of 5 s, then 5 s. From a bad one on the
    // grid of 30 s it is 15 s on average, 7.5 s to the second and 5 s to the third; at best no wait,
    // 5 s and 5 s. A timeout of 2 s is over before the next may come.
    assert_eq!(ms(&healthy.far), [[50_000, 27_500, 10_000], [52_000, 29_500, 12_000]]);
    assert_eq!(ms(&healthy.boundary), [[35_000, 15_000, 0], [37_000, 17_000, 2000]]);
    let sick = answer.to_sick.expect("it is sick");
    // Six failures after a good one at 5 s. Five after one good result that ended sickness are no
    // more: 5 s and up to 5 s more back to the grid, then 20 s.
    assert_eq!(ms(&sick.far), [[30_000, 27_500, 25_000], [32_000, 29_500, 27_000]]);
    assert_eq!(ms(&sick.boundary), [[10_000, 2500, 0], [12_000, 4500, 2000]]);
    assert_eq!(ms(&answer.first_traffic), [[2000, 1000, 0], [4000, 3000, 2000]]);
}

#[test]
fn fast_pace_is_answered_by_hand() {
    let answer = answer(THREE_OF_EIGHT, &spec(1000, 0));
    let healthy = &answer.to_healthy;
    // Bad at the fast pace and sick by it: 1 s and up to 5 s to the grid, then 1 s and 1 s. With
    // answers at 2 s: 2 s and up to 5 s; the next at the third second, the first moment of the fast
    // pace that is past the answer; then the answer's own moment is free; and 2 s.
    assert_eq!(ms(&healthy.far), [[8000, 4500, 2000], [14_000, 9500, 7000]]);
    assert_eq!(ms(&healthy.boundary), [[6000, 2500, 0], [9000, 4500, 2000]]);
    let sick = answer.to_sick.expect("it is sick");
    // Good at the fast pace and healthy by it: 1 s and up to 5 s, five times 1 s. By timeouts of 2 s
    // the next starts 3 s after each.
    assert_eq!(ms(&sick.far), [[11_000, 7500, 5000], [23_000, 19_500, 17_000]]);
    assert_eq!(ms(&sick.boundary), [[6000, 2500, 0], [8000, 4500, 2000]]);
}

#[test]
fn fast_pace_hurries_the_first_traffic() {
    let spec = spec(1000, 30_000);
    let answer = Answer::to(Question { spec: &spec, rule: THREE_OF_EIGHT, initial: 0 });
    // Within 2 s, then 1 s and 1 s; or at the third second, at the fifth, and 2 s.
    assert_eq!(ms(&answer.first_traffic), [[4000, 3000, 2000], [9000, 8000, 7000]]);
}

#[test]
fn fast_and_sick_pace_are_answered_by_hand() {
    let answer = answer(THREE_OF_EIGHT, &spec(1000, 30_000));
    let healthy = &answer.to_healthy;
    // One bad result at 5 s made it sick: 5 s and up to 30 s, then 1 s and 1 s.
    assert_eq!(ms(&healthy.far), [[37_000, 17_000, 2000], [42_000, 22_000, 7000]]);
    assert_eq!(ms(&healthy.boundary), [[35_000, 15_000, 0], [37_000, 17_000, 2000]]);
    let sick = answer.to_sick.expect("it is sick");
    // One good result ended sickness, so five failures do: 5 s and up to 5 s, four times 1 s. (Six
    // after several good ones are 11 s.) By timeouts 3 s each, and the last one's 2 s.
    assert_eq!(ms(&sick.far), [[14_000, 7500, 5000], [24_000, 19_500, 17_000]]);
    assert_eq!(ms(&sick.boundary), [[10_000, 2500, 0], [12_000, 4500, 2000]]);
}

#[test]
fn one_of_one_waits_for_its_grid_after_the_sick_pace() {
    let rule = Rule::Window { window: 1, threshold: 1 };
    let answer = answer(rule, &spec(0, 30_000));
    // It came back on the grid of 30 s, and dies just then: 5 s and up to 5 s.
    let sick = answer.to_sick.expect("it is sick");
    assert_eq!(ms(&sick.far), [[10_000, 2500, 0], [12_000, 4500, 2000]]);
    assert_eq!(ms(&answer.to_healthy.far), [[35_000, 15_000, 0], [37_000, 17_000, 2000]]);
}

#[test]
fn varnishs_period_has_no_grid_to_wait_for() {
    let varnish = ProbeSpec { compat: Compat::VARNISH, ..spec(1000, 30_000) };
    let answer = answer(THREE_OF_EIGHT, &varnish);
    // 30 s from the end of a failure; 1 s from each good one's.
    assert_eq!(
        ms(&answer.to_healthy.far),
        [[32_000, 17_000, 2000], [32_000 + 8000, 16_000 + 8000, 8000]]
    );
    let sick = answer.to_sick.expect("it is sick");
    assert_eq!(ms(&sick.far), [[10_000, 7500, 5000], [22_000, 19_500, 17_000]]);
}

#[test]
fn timeouts_of_many_fast_intervals_are_not_rehearsed() {
    let slow = ProbeSpec { timeout_ns: 3_600_000 * MS, ..spec(10, 0) };
    let answer = answer(THREE_OF_EIGHT, &slow);
    assert!(!answer.is_rehearsed);
    // An hour and up to 5 s, the next 10 ms after its end, the third with it, and an hour.
    let hour = 3_600_000;
    assert_eq!(ms(&answer.to_healthy.far)[1][0], hour + 5000 + hour + 10 + hour + hour);
}

/// What a target was put through, and what came of it.
#[derive(Debug)]
struct Seen {
    verdict: Verdict,
    /// Results that it took.
    count: u32,
    /// From the event: the start of the last probe before a recovery, the end of that before a death.
    span_ns: Nanos,
    /// From the start of the first one after it.
    rest_ns: Nanos,
    /// Whether no other rule had a part in its pace, and each answer came when the row says.
    plain: bool,
}

/// Lets a target have any past, then one event, and waits for what it leads to. `None` when it had
/// no probe or no verdict by then.
fn seen(question: Question<'_>, pace: Pace, random: &mut Random) -> Option<Seen> {
    let plan = any_plan(question, random);
    let mut sim = Sim::new(&plan, 0, random.below(1_000_000) * MS);
    let target = TargetIndex(0);
    let dead = Peer::new(match pace {
        Pace::AtOnce => Behaviour::Refuses,
        Pace::WholeTimeout => Behaviour::BlackHole,
    });
    let results = any_results(random);
    let mut last = None;
    for (left, good) in (0..results.len()).rev().zip(results) {
        let bad = if left == 0 || random.below(4) < 3 {
            dead.clone()
        } else {
            Peer::new(Behaviour::BlackHole)
        };
        sim.set_peer(target, if good { Peer::HEALTHY } else { bad });
        last = Some(next_report(&mut sim));
    }
    let (started_ns, ended_ns) = last?;
    let (verdict, event_ns) = match sim.prober().verdict(JudgeIndex(0)) {
        Verdict::Healthy => (Verdict::Sick, ended_ns),
        Verdict::Sick => (Verdict::Healthy, started_ns),
        Verdict::Warming => return None,
    };
    let timeout_ns = question.spec.timeout_ns;
    let delay_ns = match pace {
        Pace::AtOnce => 0,
        Pace::WholeTimeout if random.below(4) == 0 => random.below(timeout_ns),
        Pace::WholeTimeout => timeout_ns,
    };
    let alive = Peer::HEALTHY.with_delay_ns(delay_ns);
    sim.set_peer(target, if verdict == Verdict::Healthy { alive } else { dead });
    let (mut count, mut first_ns, mut ended_ns) = (0, None, 0);
    while sim.prober().verdict(JudgeIndex(0)) != verdict {
        let (started_ns, report_ns) = next_report(&mut sim);
        first_ns.get_or_insert(started_ns);
        (count, ended_ns) = (count + 1, report_ns);
    }
    let plain = plan.judges.len() == 1 && (pace == Pace::AtOnce || delay_ns == timeout_ns);
    let (span_ns, rest_ns) = (ended_ns - event_ns, ended_ns - first_ns?);
    Some(Seen { verdict, count, span_ns, rest_ns, plain })
}

/// One target of any identity, with any results assumed or left behind, at times judged by another
/// rule as well.
fn any_plan(question: Question<'_>, random: &mut Random) -> Plan {
    let initial = random.below(u64::from(question.rule.goods_to_healthy()) + 1) as u8;
    let mut plan = plan(question.spec, question.rule, initial);
    plan.phase_seed = random.number();
    if random.below(4) == 0 {
        let target = TargetIndex(0);
        let (rule, on_unknown) = (any_rule(random), OnUnknown::Keep);
        plan.judges.push(JudgeSpec { target, rule, on_unknown });
    }
    if random.below(4) == 0 {
        let good = random.below(2) == 0;
        let mut registers = [0; 8];
        registers[HAPPY] = if good { u64::MAX } else { 0 };
        plan.past.push(Past {
            target: TargetIndex(0),
            registers,
            verdict: if good { Verdict::Healthy } else { Verdict::Sick },
            average_s: 0.0,
            last_ns: 0,
            last_result_ns: 0,
            outcome: None,
            indeterminate: 0,
        });
    }
    plan
}

/// A run of one result, and some that differ.
fn any_results(random: &mut Random) -> Vec<bool> {
    let good = random.below(2) == 0;
    let mut results = vec![good; random.below(14) as usize];
    let count = random.below(8);
    let odds = 1 + random.below(3);
    results.extend((0..count).map(|_| random.below(4) < odds));
    results
}

fn any_rule(random: &mut Random) -> Rule {
    let mut size = || 1 + random.below(6) as u8;
    match [size(), size(), size()] {
        [window, threshold, kind] if kind <= 4 => {
            Rule::Window { window: window.max(threshold), threshold: window.min(threshold) }
        }
        [fall, rise, _] => Rule::Consecutive { fall, rise },
    }
}

/// Runs to the end of the next probe: when it was started, and when it ended.
fn next_report(sim: &mut Sim) -> (Nanos, Nanos) {
    let mut ended = None;
    while ended.is_none() {
        let until_ns = sim.next_ns();
        sim.run_until(until_ns, &mut |traced| {
            if let Occurrence::Report(report) = traced.what {
                ended = Some((report.started_ns, traced.at_ns));
            }
        });
    }
    ended.expect("it ended")
}

/// Holds what `targets` targets do against the answer. By how much the longest recovery and the
/// longest death fall short of it, where all was as it says.
fn short_ns(question: Question<'_>, pace: Pace, targets: u32, random: &mut Random) -> [Nanos; 2] {
    let answer = Answer::to(question);
    let to_sick = answer.to_sick.as_ref().expect("it is sick");
    let worst_ns = |courses: &[Course; 2]| courses[by_pace(pace)].times.worst_ns;
    let mut short = [worst_ns(&answer.to_healthy.far), worst_ns(&to_sick.far)];
    let most = failures_to_sick(question.rule).expect("it is sick");
    let by_failures: Vec<Times> = (1..=most)
        .map(|count| question.dies_from(register_needing(question.rule, count), pace).times)
        .collect();
    for _ in 0..targets {
        let Some(seen) = seen(question, pace, random) else {
            continue;
        };
        let told = || format!("{question:?}, {pace:?}: {seen:?}");
        let (passage, index) = match seen.verdict {
            Verdict::Healthy => (&answer.to_healthy, 0),
            _ => (to_sick, 1),
        };
        let [far, boundary] =
            [&passage.far, &passage.boundary].map(|courses| courses[by_pace(pace)].times);
        assert!(seen.span_ns <= far.worst_ns, "{} > {far:?}", told());
        let mut rows = vec![far];
        if seen.count == 1 {
            rows.push(boundary);
        }
        if seen.verdict == Verdict::Sick {
            rows.push(by_failures[seen.count as usize - 1]);
        }
        if seen.plain {
            short[index] = short[index].min(far.worst_ns.saturating_sub(seen.span_ns));
        }
        let goods = u32::from(question.rule.goods_to_healthy());
        let farthest = if seen.verdict == Verdict::Sick { most } else { goods };
        for row in rows {
            assert!(seen.span_ns <= row.worst_ns, "{} > {row:?}", told());
            let is_of_row = seen.count == farthest || row != far;
            assert!(!seen.plain || !is_of_row || row.best_ns <= seen.rest_ns, "{} {row:?}", told());
        }
    }
    short
}

#[test]
fn nothing_takes_longer_than_explained_whatever_the_target_and_its_past() {
    let mut random = Random::new(1);
    for case in 0..400_u32 {
        let mut below = |end| random.below(end);
        let interval_ms = [100, 1000, 3000, 5000][below(4) as usize] + below(2) * below(50);
        let fast_ns = (below(3) < 2).then(|| (10 + below(interval_ms - 10)) * MS);
        let sick_ms_max = [2, 10][below(2) as usize] * interval_ms;
        let sick_ns = (fast_ns.is_none() || below(3) < 2).then(|| (10 + below(sick_ms_max)) * MS);
        let compat = if case % 8 == 0 { Compat::VARNISH } else { Compat::Off };
        let jitter_percent = if case % 8 == 0 { 0 } else { [0, 0, 20, 50][below(4) as usize] };
        let spec = ProbeSpec {
            interval_ns: interval_ms * MS,
            timeout_ns: (1 + below(3 * interval_ms)) * MS,
            pace: plan::Pace { fast_ns, sick_ns, jitter_percent },
            compat,
            ..spec(0, 0)
        };
        let question = Question { spec: &spec, rule: any_rule(&mut random), initial: 0 };
        for pace in PACES {
            short_ns(question, pace, 100, &mut random);
        }
    }
}

#[test]
fn what_is_explained_is_reached_within_an_interval() {
    let consecutive = Rule::Consecutive { fall: 3, rise: 2 };
    let one = Rule::Window { window: 1, threshold: 1 };
    let all = Rule::Window { window: 3, threshold: 3 };
    for rule in [THREE_OF_EIGHT, consecutive, one, all] {
        for (fast_ms, sick_ms) in [(1000, 0), (0, 30_000), (1000, 30_000), (1300, 12_000)] {
            for pace in PACES {
                let spec = spec(fast_ms, sick_ms);
                let question = Question { spec: &spec, rule, initial: 0 };
                let mut random = Random::new(2);
                let short = short_ns(question, pace, 4000, &mut random);
                let is_near = |short_ns: &Nanos| *short_ns <= spec.interval_ns;
                assert!(short.iter().all(is_near), "{question:?}, {pace:?}: {short:?}");
            }
        }
    }
}

#[test]
fn best_is_never_more_than_typical_nor_that_more_than_worst() {
    let mut random = Random::new(3);
    for (fast_ms, sick_ms) in [(100, 0), (0, 100), (0, 30_000), (5000, 5000), (1300, 12_000)] {
        for _ in 0..50 {
            let mut spec = spec(fast_ms, sick_ms);
            spec.timeout_ns = (1 + random.below(15_000)) * MS;
            spec.pace.jitter_percent = random.below(51) as u8;
            let rule = any_rule(&mut random);
            for Times { best_ns, typical_ns, worst_ns } in answer(rule, &spec).times() {
                assert!(best_ns <= typical_ns && typical_ns <= worst_ns, "{rule:?} {spec:?}");
            }
        }
    }
}
