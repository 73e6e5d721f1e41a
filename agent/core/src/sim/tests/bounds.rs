//! The closed forms of `bound` against the prober.

use super::*;
use crate::bound::{self, Distance, Pace, Rhythm};

/// The least and the most time from the moment `flip` is applied to the change to `verdict`, over
/// every millisecond of an interval.
fn spans(
    plan: &Plan,
    first: &Peer,
    flip: &Peer,
    verdict: Verdict,
    settle_ns: Nanos,
) -> (Nanos, Nanos) {
    let interval_ns = plan.probes[0].interval_ns;
    let offsets = (0..=interval_ns / MS).map(|ms| ms * MS);
    let spans = offsets.map(|offset_ns| {
        let mut sim = Sim::new(plan, 1, START);
        sim.set_peer(TargetIndex(0), first.clone());
        Log::run(&mut sim, START + settle_ns + offset_ns);
        let flipped_ns = sim.now();
        sim.set_peer(TargetIndex(0), flip.clone());
        let log = Log::run(&mut sim, flipped_ns + settle_ns);
        let changed = log.changes.iter().find(|(_, change)| change.verdict == verdict);
        changed.expect("the verdict changes").0 - flipped_ns
    });
    spans.fold((Nanos::MAX, 0), |(least, most), span| (least.min(span), most.max(span)))
}

#[test]
fn closed_forms_equal_what_the_prober_does() {
    let rules = [window(1, 1), window(4, 3), window(8, 3), Rule::Consecutive { fall: 3, rise: 2 }];
    for rule in rules {
        for timeout_ns in [20 * MS, 49 * MS, 50 * MS, 75 * MS, 100 * MS] {
            let interval_ns = 50 * MS;
            let plan = plan(1, rule, 0, http(interval_ns, timeout_ns), 2);
            let slow = Peer::HEALTHY.with_delay_ns(timeout_ns);
            let black_hole = Peer::new(Behaviour::BlackHole);
            // Enough for eight probes at three intervals each.
            let settle_ns = 3 * SECOND;

            let rhythm = Rhythm { interval_ns, timeout_ns, from_end: false };
            let sick = |pace| bound::to_sick(rule, rhythm, Distance::Far, pace).unwrap();
            let (_, most) = spans(&plan, &Peer::HEALTHY, &black_hole, Verdict::Sick, settle_ns);
            let worst_ns = sick(Pace::WholeTimeout).worst_ns;
            assert_eq!(most, worst_ns, "{rule:?}, timeout {timeout_ns}, to sick");

            let healthy = |pace| bound::to_healthy(rule, rhythm, Distance::Far, pace);
            let (_, most) = spans(&plan, &black_hole, &slow, Verdict::Healthy, settle_ns);
            let worst_ns = healthy(Pace::WholeTimeout).worst_ns;
            assert_eq!(most, worst_ns, "{rule:?}, timeout {timeout_ns}, to healthy");

            // Just before a probe is 1 ms before it, at this grain.
            let refuses = Peer::new(Behaviour::Refuses);
            let (least, _) = spans(&plan, &Peer::HEALTHY, &refuses, Verdict::Sick, settle_ns);
            assert_eq!(least, sick(Pace::AtOnce).best_ns + MS, "{rule:?}, at best to sick");
            let (least, _) = spans(&plan, &refuses, &Peer::HEALTHY, Verdict::Healthy, settle_ns);
            assert_eq!(least, healthy(Pace::AtOnce).best_ns + MS, "{rule:?}, at best to healthy");
        }
    }
}
