//! Figures by hand, and the prober against the closed form over a grid of rules.

use super::*;
use crate::plan::{self, Compat, ProbeKind};

const MS: Nanos = 1_000_000;

const fn window(window: u8, threshold: u8) -> Rule {
    Rule::Window { window, threshold }
}

const fn spec(interval_ms: Nanos, timeout_ms: Nanos) -> ProbeSpec {
    ProbeSpec {
        interval_ns: interval_ms * MS,
        timeout_ns: timeout_ms * MS,
        kind: ProbeKind::http(200),
        pace: plan::Pace::STEADY,
        compat: Compat::Off,
    }
}

/// Worst, typical and best, in ms.
fn ms(times: Times) -> [Nanos; 3] {
    [times.worst_ns, times.typical_ns, times.best_ns].map(|time_ns| {
        assert_eq!(time_ns % MS, 0);
        time_ns / MS
    })
}

fn both(courses: &[Course; 2]) -> [[Nanos; 3]; 2] {
    [ms(courses[0].times), ms(courses[1].times)]
}

fn answer(rule: Rule, initial: u8, spec: &ProbeSpec) -> Answer {
    Answer::to(Question { spec, rule, initial })
}

/// When each probe of the worst case starts and ends, in ms.
fn steps(course: &Course) -> Vec<(Nanos, Nanos)> {
    course.steps.iter().map(|step| (step.started_ns / MS, step.ended_ns / MS)).collect()
}

#[test]
fn three_of_eight_at_five_seconds_is_answered_by_hand() {
    let answer = answer(window(8, 3), 2, &spec(5000, 2000));
    assert!(answer.is_rehearsed);
    let sick = answer.to_sick.expect("it is sick");
    // Six failures: 6 * 5 s, or 5 * 5 s when it dies just before a probe; + 2 s when they time out.
    assert_eq!(both(&sick.far), [[30_000, 27_500, 25_000], [32_000, 29_500, 27_000]]);
    assert_eq!(both(&sick.boundary), [[5000, 2500, 0], [7000, 4500, 2000]]);
    let starts = [5000, 10_000, 15_000, 20_000, 25_000, 30_000];
    assert_eq!(steps(&sick.far[1]), starts.map(|start| (start, start + 2000)));
    assert_eq!(sick.far[1].before, [true; 8]);
    // One good result stands at the far end of the window, two at its near end.
    let boundary = [true, false, false, false, false, false, true, true];
    assert_eq!(sick.boundary[0].before, boundary);
    let healthy = answer.to_healthy;
    assert_eq!(both(&healthy.far), [[15_000, 12_500, 10_000], [17_000, 14_500, 12_000]]);
    assert_eq!(both(&healthy.boundary), [[5000, 2500, 0], [7000, 4500, 2000]]);
    // One good probe is missing; it comes within 2 s.
    assert_eq!(both(&answer.first_traffic), [[2000, 1000, 0], [4000, 3000, 2000]]);
    assert_eq!(answer.goods_after_fall, 3);
}

#[test]
fn one_of_one_at_thirty_seconds_is_blind_for_an_interval_and_a_timeout() {
    let answer = answer(window(1, 1), 0, &spec(30_000, 2000));
    let sick = answer.to_sick.expect("it is sick");
    assert_eq!(both(&sick.far), [[30_000, 15_000, 0], [32_000, 17_000, 2000]]);
    assert_eq!(sick.boundary, sick.far);
    let healthy = answer.to_healthy;
    assert_eq!(both(&healthy.far), [[30_000, 15_000, 0], [32_000, 17_000, 2000]]);
    assert_eq!(both(&answer.first_traffic), [[2000, 1000, 0], [4000, 3000, 2000]]);
    assert_eq!(answer.goods_after_fall, 1);
}

#[test]
fn two_of_three_at_one_second_is_answered_by_hand() {
    let answer = answer(window(3, 2), 1, &spec(1000, 500));
    let sick = answer.to_sick.expect("it is sick");
    assert_eq!(both(&sick.far), [[2000, 1500, 1000], [2500, 2000, 1500]]);
    assert_eq!(both(&sick.boundary), [[1000, 500, 0], [1500, 1000, 500]]);
    assert_eq!(both(&answer.to_healthy.far), [[2000, 1500, 1000], [2500, 2000, 1500]]);
    assert_eq!(both(&answer.to_healthy.boundary), [[1000, 500, 0], [1500, 1000, 500]]);
    assert_eq!(both(&answer.first_traffic), [[1000, 500, 0], [1500, 1000, 500]]);
    assert_eq!(answer.goods_after_fall, 2);
}

#[test]
fn fall_three_rise_two_at_two_seconds_is_answered_by_hand() {
    let rule = Rule::Consecutive { fall: 3, rise: 2 };
    let answer = answer(rule, 0, &spec(2000, 1000));
    let sick = answer.to_sick.expect("it is sick");
    assert_eq!(both(&sick.far), [[6000, 5000, 4000], [7000, 6000, 5000]]);
    assert_eq!(both(&sick.boundary), [[2000, 1000, 0], [3000, 2000, 1000]]);
    assert_eq!(sick.boundary[0].before, [true, true, false, false]);
    assert_eq!(both(&answer.to_healthy.far), [[4000, 3000, 2000], [5000, 4000, 3000]]);
    assert_eq!(both(&answer.to_healthy.boundary), [[2000, 1000, 0], [3000, 2000, 1000]]);
    // Within 2 s the first, a grid slot later the second.
    assert_eq!(both(&answer.first_traffic), [[4000, 3000, 2000], [5000, 4000, 3000]]);
    assert_eq!(answer.goods_after_fall, 2);
}

#[test]
fn timeout_at_and_above_the_interval_stretches_every_failure() {
    // Interval and timeout 1 s: each timeout swallows the slot that comes with it.
    let equal = answer(window(3, 2), 1, &spec(1000, 1000));
    let sick = equal.to_sick.expect("it is sick");
    // Starts at 1 and 3 s, sick at 4 s.
    assert_eq!(both(&sick.far), [[2000, 1500, 1000], [4000, 3500, 3000]]);
    assert_eq!(steps(&sick.far[1]), [(1000, 2000), (3000, 4000)]);
    // An answer at the deadline leaves its slot to the next: 2 s into the void at most, then 0-1, 1-2.
    assert_eq!(both(&equal.to_healthy.far), [[2000, 1500, 1000], [4000, 3000, 2000]]);
    // Timeout 1.5 s: starts 2 s apart, whether they fail or not.
    let above = answer(Rule::Consecutive { fall: 3, rise: 2 }, 0, &spec(1000, 1500));
    let sick = above.to_sick.expect("it is sick");
    assert_eq!(both(&sick.far), [[3000, 2500, 2000], [6500, 6000, 5500]]);
    assert_eq!(both(&above.to_healthy.far), [[2000, 1500, 1000], [5500, 4500, 3500]]);
}

#[test]
fn varnishs_period_runs_from_the_end_of_a_probe() {
    let spec = ProbeSpec { compat: Compat::VARNISH, ..spec(5000, 2000) };
    let answer = answer(window(8, 3), 0, &spec);
    let sick = answer.to_sick.expect("it is sick");
    // Refused they are 5 s apart; timed out 7 s: 5 * 7 s and the last one's 2 s, 5 s before all.
    assert_eq!(both(&sick.far), [[30_000, 27_500, 25_000], [42_000, 39_500, 37_000]]);
    // Into the void at its recovery: 7 s at most; then 2 * 7 s and 2 s.
    assert_eq!(both(&answer.to_healthy.far), [[15_000, 12_500, 10_000], [23_000, 19_500, 16_000]]);
    // The first within 2 s, and no grid for the others to wait for.
    assert_eq!(both(&answer.first_traffic), [[12_000, 11_000, 10_000], [18_000, 17_000, 16_000]]);
}

#[test]
fn start_far_from_healthy_waits_for_the_grid() {
    // Nothing assumed, 3 good ones at 5 s: the first within 2 s, the second up to 5 s later, the
    // third 5 s after it.
    let slow = answer(window(8, 3), 0, &spec(5000, 2000));
    // At its timeout the first may lie across a slot: up to 7 s to the second, then 5 and 2.
    assert_eq!(both(&slow.first_traffic), [[12_000, 8500, 5000], [16_000, 12_500, 9000]]);
    // All of them assumed: traffic at once.
    let assumed = answer(window(8, 3), 3, &spec(5000, 2000));
    assert_eq!(both(&assumed.first_traffic), [[0; 3]; 2]);
}

#[test]
fn starts_at_any_moment_stay_within_the_figures() {
    for (interval_ms, timeout_ms) in [(5000, 2000), (5000, 7000), (1000, 400), (2500, 2500)] {
        let spec = spec(interval_ms, timeout_ms);
        for pace in PACES {
            let question = Question { spec: &spec, rule: window(8, 3), initial: 0 };
            let (first_ns, _) = Rehearsal::first_and_slot_ns(&spec);
            let figures = question.starts(pace).times;
            let mut waits = vec![];
            for step in 0..500 {
                let now = 10 * spec.interval_ns + step * spec.interval_ns / 500;
                let mut rehearsal = Rehearsal::new(&spec, question.rule, 0, now);
                rehearsal.revive(pace);
                let mut rows = vec![];
                run_to(&mut rehearsal, Verdict::Healthy, &mut rows);
                waits.push(rows[rows.len() - 1].ended_ns - now);
            }
            // With an interval above 2 s this target's wait for the first probe is always the same.
            let fixed = FIRST_PROBE_NS_MAX < spec.interval_ns;
            let (low, high) =
                if fixed { (first_ns, FIRST_PROBE_NS_MAX - first_ns) } else { (0, 0) };
            let least = *waits.iter().min().expect("some");
            let most = *waits.iter().max().expect("some");
            let cell = spec.interval_ns / 500 + TICK_NS;
            let near = |a: Nanos, b: Nanos| assert!(a.abs_diff(b) <= cell, "{a} {b} {spec:?}");
            near(least - low, figures.best_ns);
            near(most + high, figures.worst_ns);
        }
    }
}

#[test]
fn three_failures_make_three_of_eight_sick_from_these_registers_alone() {
    // The third-newest good result must be the sixth-newest result.
    let rule = window(8, 3);
    assert_eq!(bound::registers_needing(rule, 3), 40);
    assert_eq!(bound::registers_healthy(rule), 219);
    let spec = spec(5000, 2000);
    let question = Question { spec: &spec, rule, initial: 2 };
    let mut three = 0;
    for register in 0..256_u32 {
        let results: Vec<bool> = (0..8).rev().map(|bit| register >> bit & 1 == 1).collect();
        if results.iter().filter(|good| **good).count() < 3 {
            continue;
        }
        let sixth_is_third_good =
            results[2] && results[3..].iter().filter(|good| **good).count() == 2;
        let course = question.dies_from(results, Pace::AtOnce);
        assert_eq!(course.steps.len() == 3, sixth_is_third_good, "{register:08b}");
        if course.steps.len() == 3 {
            three += 1;
            // That is when 15 s are true.
            assert_eq!(ms(course.times), [15_000, 12_500, 10_000]);
        }
    }
    assert_eq!(three, 40);
}

#[test]
fn three_failures_after_a_start_are_not_enough() {
    // Two assumed and one good, or three assumed: what is older is empty, the newest three hold it.
    let spec = spec(5000, 2000);
    for initial in [2, 3] {
        let mut rehearsal = Rehearsal::new(&spec, window(8, 3), initial, 0);
        rehearsal.revive(Pace::AtOnce);
        let mut rows = vec![];
        run_to(&mut rehearsal, Verdict::Healthy, &mut rows);
        rehearsal.kill(Pace::AtOnce);
        rows.clear();
        run_to(&mut rehearsal, Verdict::Sick, &mut rows);
        assert_eq!(rows.len(), 6, "initial {initial}");
    }
    // But two assumed and a first failure are no start at all: sick at once, by one.
    let mut rehearsal = Rehearsal::new(&spec, window(8, 3), 2, 0);
    rehearsal.kill(Pace::AtOnce);
    assert_eq!(rehearsal.next_result().verdict, Verdict::Sick);
}

#[test]
fn every_register_needing_some_failures_needs_that_many() {
    let spec = spec(1000, 500);
    for rule in [window(8, 3), window(5, 5), window(64, 3), Rule::Consecutive { fall: 4, rise: 3 }]
    {
        let question = Question { spec: &spec, rule, initial: 0 };
        for failures in 1..=bound::failures_to_sick(rule).expect("it is sick") {
            let course = question.dies_from(register_needing(rule, failures), Pace::WholeTimeout);
            assert_eq!(course.steps.len(), failures as usize, "{rule:?}");
        }
    }
}

#[test]
fn prober_and_closed_form_agree_over_a_grid_of_rules() {
    let mut rules = vec![window(64, 1), window(64, 64), window(64, 33), window(8, 0)];
    for size in 1..=8 {
        rules.extend((1..=size).map(|threshold| window(size, threshold)));
    }
    for fall in [1, 2, 3, 7, 64] {
        rules.extend([1, 2, 3, 7, 64].map(|rise| Rule::Consecutive { fall, rise }));
    }
    let rhythms = [(10, 1), (1000, 400), (1000, 1000), (1000, 1001), (1000, 3500), (30_000, 2000)];
    let mut compared = 0;
    for rule in rules {
        for (interval_ms, timeout_ms) in rhythms {
            for initial in [0, 1, 3] {
                let mut spec = spec(interval_ms, timeout_ms);
                match initial {
                    1 => spec.pace.jitter_percent = 30,
                    3 => spec.compat = Compat::VARNISH,
                    _ => {}
                }
                let question = Question { spec: &spec, rule, initial };
                let answer = Answer::to(question);
                assert!(answer.is_rehearsed);
                let closed = Answer::closed(question);
                assert_eq!(answer.times(), closed.times(), "{question:?}");
                assert_eq!(answer.goods_after_fall, closed.goods_after_fall, "{question:?}");
                compared += answer.times().len();
            }
        }
    }
    assert!(10_000 < compared, "{compared}");
}

#[test]
fn any_moment_of_death_leads_to_the_same_verdict() {
    use crate::sim::{Behaviour, Peer, Sim};
    use crate::{command::Change, plan::TargetIndex, rehearsal::plan, sim::Occurrence};

    let spec = spec(5000, 2000);
    let question = Question { spec: &spec, rule: window(8, 3), initial: 2 };
    let course = question.dies_from(vec![true; 8], Pace::WholeTimeout);
    let (first_ns, slot_ns) = Rehearsal::first_and_slot_ns(&spec);
    let last_good_ns = slot_ns + 20 * spec.interval_ns;
    assert!(first_ns < last_good_ns);
    let mut total_ns = 0;
    for cell in 0..10 {
        let dies_ns = last_good_ns + (2 * cell + 1) * spec.interval_ns / 20;
        let mut sim = Sim::new(&plan(&spec, question.rule, question.initial), 0, 0);
        sim.run_until(dies_ns, &mut |_| ());
        sim.set_peer(TargetIndex(0), Peer::new(Behaviour::BlackHole));
        let mut sick_ns = 0;
        sim.run_until(dies_ns + 60_000 * MS, &mut |traced| {
            if let Occurrence::Change(Change { verdict: Verdict::Sick, .. }) = traced.what {
                sick_ns = traced.at_ns;
            }
        });
        total_ns += sick_ns - dies_ns;
    }
    assert_eq!(total_ns / 10, course.times.typical_ns);
}

/// From just after a good probe to sick, for many targets: each has jitter of its own. The least and
/// the most that was seen of moments of death just after a probe.
fn deaths_seen(question: Question<'_>, pace: Pace) -> (Nanos, Nanos) {
    use crate::sim::{Behaviour, Occurrence, Peer, Sim};
    use crate::{command::Change, plan::TargetIndex, rehearsal::plan};

    let behaviour = match pace {
        Pace::AtOnce => Behaviour::Refuses,
        Pace::WholeTimeout => Behaviour::BlackHole,
    };
    let spans = (0..4000_u32).map(|seed| {
        let mut plan = plan(question.spec, question.rule, 64);
        plan.phase_seed = u64::from(seed);
        let mut sim = Sim::new(&plan, 0, 0);
        sim.run_until(10 * question.spec.interval_ns, &mut |_| ());
        let (mut dies_ns, mut sick_ns) = (0, 0);
        while dies_ns == 0 {
            let until_ns = sim.next_ns();
            sim.run_until(until_ns, &mut |traced| {
                if let Occurrence::Report(report) = traced.what {
                    dies_ns = report.started_ns;
                }
            });
        }
        sim.set_peer(TargetIndex(0), Peer::new(behaviour.clone()));
        sim.run_until(dies_ns + 60_000 * MS, &mut |traced| {
            if let Occurrence::Change(Change { verdict: Verdict::Sick, .. }) = traced.what {
                sick_ns = traced.at_ns;
            }
        });
        sick_ns - dies_ns
    });
    spans.fold((Nanos::MAX, 0), |(least, most), span| (least.min(span), most.max(span)))
}

#[test]
fn jitter_widens_the_worst_case_by_what_the_prober_does_at_most() {
    let rule = window(3, 2);
    for (interval_ms, timeout_ms, pace) in
        [(1000, 300, Pace::AtOnce), (1000, 300, Pace::WholeTimeout), (1000, 900, Pace::AtOnce)]
    {
        let mut spec = spec(interval_ms, timeout_ms);
        spec.pace.jitter_percent = 20;
        let question = Question { spec: &spec, rule, initial: 0 };
        let worst_ns = question.dies_from(vec![true; 3], pace).times.worst_ns;
        // Two failures, 20 % less a tick late; when they time out, their time too.
        let own_ms = if pace == Pace::WholeTimeout { timeout_ms } else { 0 };
        assert_eq!(worst_ns, (2000 + 199 + own_ms) * MS);
        let (_, most_ns) = deaths_seen(question, pace);
        assert!(most_ns <= worst_ns, "{most_ns} > {worst_ns}");
        // Of 4,000 draws of two shares some come near it.
        assert!(worst_ns - 20 * MS <= most_ns, "{most_ns} is far from {worst_ns}");
    }
}

#[test]
fn jitter_that_pushes_a_timeout_past_a_slot_costs_that_interval() {
    let mut spec = spec(1000, 900);
    spec.pace.jitter_percent = 20;
    let question = Question { spec: &spec, rule: window(3, 2), initial: 0 };
    let worst_ns = question.dies_from(vec![true; 3], Pace::WholeTimeout).times.worst_ns;
    // Started 199 ms late and timed out 900 ms later it lies across the next slot: 1, 3 and 0.9 s,
    // and the last one late as well.
    assert_eq!(worst_ns, (3000 + 199 + 900) * MS);
    let (_, most_ns) = deaths_seen(question, Pace::WholeTimeout);
    assert!(most_ns <= worst_ns && worst_ns - 50 * MS <= most_ns, "{most_ns} of {worst_ns}");
}

#[test]
fn jitter_of_a_fast_pace_adds_to_that_of_the_interval_before_it() {
    let mut spec = spec(2000, 300);
    spec.pace = plan::Pace { fast_ns: Some(500 * MS), sick_ns: None, jitter_percent: 20 };
    let question = Question { spec: &spec, rule: window(3, 2), initial: 0 };
    let course = question.dies_from(vec![true; 3], Pace::AtOnce);
    // 2 s and 399 ms to the first failure, 0.5 s and 99 ms to the second; 0.5 s before the 2 s when
    // the last good one was at the fast pace, and those seen here have been healthy for longer.
    let worst_ns = course.times.worst_ns;
    assert_eq!(worst_ns, (500 + 2000 + 399 + 500 + 99) * MS);
    let (_, most_ns) = deaths_seen(question, Pace::AtOnce);
    let settled_ns = worst_ns - 500 * MS;
    assert!(most_ns <= settled_ns && settled_ns - 50 * MS <= most_ns, "{most_ns} of {settled_ns}");
}

#[test]
fn extreme_timeouts_are_answered_by_the_closed_form_alone() {
    let spec = spec(10, 3_600_000);
    let answer = answer(window(64, 1), 0, &spec);
    assert!(!answer.is_rehearsed);
    // 63 times 3,600.01 s, and the last one's timeout; an interval before the first.
    let sick = answer.to_sick.expect("it is sick");
    assert_eq!(ms(sick.far[1].times)[0], 10 + 63 * 3_600_010 + 3_600_000);
}

#[test]
fn story_dies_and_comes_back() {
    let spec = spec(1000, 500);
    let question = Question { spec: &spec, rule: window(3, 2), initial: 1 };
    let story = question.story().expect("short enough");
    let shown: Vec<(Nanos, u64, Verdict)> =
        story.rows.iter().map(|row| (row.ended_ns / MS, row.happy & 7, row.verdict)).collect();
    use Verdict::{Healthy, Sick};
    assert_eq!(
        shown,
        [
            (0, 0b111, Healthy),
            (1500, 0b110, Healthy),
            (2500, 0b100, Sick),
            (3500, 0, Sick),
            (4500, 0, Sick),
            (5000, 0b001, Sick),
            (6000, 0b011, Healthy),
            (7000, 0b111, Healthy),
            (8000, 0b111, Healthy),
        ]
    );
    assert_eq!(story.revived_ns, 4000 * MS);
}
