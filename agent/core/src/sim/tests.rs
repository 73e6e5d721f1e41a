use std::borrow::Cow;

use super::*;
use crate::bound;
use crate::command::{Change, LocalFault, Outcome, Phase, Verdict};
use crate::hash::{identity, mix};
use crate::plan::{Family, JudgeSpec, OnUnknown, ProbeIndex, ProbeSpec, Rule, TargetSpec};
use crate::text::Bits;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MS;
const START: Nanos = 1_000_000 * SECOND;
const HTTP: ProbeKind = ProbeKind::Http {
    expected_status: 200,
    head: false,
};

/// Targets with one judge each.
fn plan(target_count: u32, rule: Rule, initial: u8, probe: ProbeSpec, slot_count: u32) -> Plan {
    let target = |index: u32| TargetSpec {
        identity: identity(&index.to_be_bytes(), 80, b""),
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        initial,
    };
    let judge = |index| JudgeSpec {
        target: TargetIndex(index),
        rule,
        on_unknown: OnUnknown::Keep,
    };
    Plan {
        probes: vec![probe],
        targets: (0..target_count).map(target).collect(),
        judges: (0..target_count).map(judge).collect(),
        slot_count,
        phase_seed: 7,
    }
}

const fn window(window: u8, threshold: u8) -> Rule {
    Rule::Window { window, threshold }
}

const fn http(interval_ns: Nanos, timeout_ns: Nanos) -> ProbeSpec {
    ProbeSpec {
        interval_ns,
        timeout_ns,
        kind: HTTP,
    }
}

const fn answers(bytes: &'static [u8]) -> Peer {
    Peer::new(Behaviour::Answers(Cow::Borrowed(bytes)))
}

/// Starts by target, reports and changes of a run.
#[derive(Default)]
struct Log {
    starts: Vec<(Nanos, TargetIndex)>,
    reports: Vec<Report>,
    changes: Vec<(Nanos, Change)>,
}

impl Log {
    fn run(sim: &mut Sim, until_ns: Nanos) -> Self {
        let mut log = Self::default();
        sim.run_until(until_ns, &mut |traced| match traced.what {
            Occurrence::Command(Command::Start { target, .. }) => {
                log.starts.push((traced.at_ns, target));
            }
            Occurrence::Command(_) => {}
            Occurrence::Report(report) => log.reports.push(report),
            Occurrence::Change(change) => log.changes.push((traced.at_ns, change)),
        });
        log
    }

    fn run_for(sim: &mut Sim, span_ns: Nanos) -> Self {
        let until_ns = sim.now() + span_ns;
        Self::run(sim, until_ns)
    }

    fn starts_of(&self, target: u32) -> Vec<Nanos> {
        let of = self
            .starts
            .iter()
            .filter(|(_, started)| started.0 == target);
        of.map(|&(at_ns, _)| at_ns).collect()
    }
}

/// One target, and the peers that its probes meet, one after the other.
fn histories(rule: Rule, initial: u8, probe: ProbeSpec, peers: &[Peer]) -> Vec<(String, Verdict)> {
    let mut sim = Sim::new(&plan(1, rule, initial, probe, 2), 1, START);
    let mut seen = vec![];
    for peer in peers {
        sim.set_peer(TargetIndex(0), peer.clone());
        while Log::run_for(&mut sim, MS).reports.is_empty() {}
        let registers = sim.prober().history(TargetIndex(0)).registers;
        seen.push((
            Bits(&registers).to_string(),
            sim.prober().verdict(JudgeIndex(0)),
        ));
    }
    seen
}

#[test]
fn same_seed_same_trace() {
    let trace = |seed| {
        let mut sim = Sim::new(
            &plan(200, window(4, 3), 2, http(SECOND, 300 * MS), 16),
            seed,
            START,
        );
        let drip = Behaviour::Drips {
            response: Cow::Borrowed(OK),
            gap_ns: 3 * MS,
        };
        let flap = Behaviour::Flaps {
            period_ns: 7 * SECOND,
            up_ns: 3 * SECOND,
        };
        for (index, behaviour) in (0..).zip([
            drip,
            flap,
            Behaviour::BlackHole,
            Behaviour::Refuses,
            Behaviour::Resets(Cow::Borrowed(b"HTTP/1.1 200 OK\r\n")),
            Behaviour::NoSocket { errno: 24 },
            Behaviour::Hangs,
        ]) {
            sim.set_peer(TargetIndex(index), Peer::new(behaviour));
        }
        for index in 7..200 {
            let peer = Peer {
                jitter_ns: 50 * MS,
                loss_permille: 20,
                ..Peer::HEALTHY
            };
            sim.set_peer(TargetIndex(index), peer.with_delay_ns(5 * MS));
        }
        sim.set_lateness_ns_max(2 * MS);
        let mut trace = vec![];
        sim.run_until(START + 5 * SECOND, &mut |traced| trace.push(traced));
        sim.stall_until(START + 6 * SECOND);
        sim.set_override(JudgeIndex(3), Override::Healthy, &mut |traced| {
            trace.push(traced);
        });
        sim.run_until(START + 12 * SECOND, &mut |traced| trace.push(traced));
        trace
    };
    let first = trace(11);
    assert!(5000 < first.len());
    assert!(first == trace(11));
    assert!(first != trace(12));
}

#[test]
fn golden_lines_of_varnishlog() {
    // Window 4, threshold 3, initial 2, as run on varnish 7.1.1.
    let rule = window(4, 3);
    let seen = |peer: Peer| histories(rule, 2, http(SECOND, 500 * MS), &[peer]).remove(0);
    let sick = |bits: &str| (bits.to_owned(), Verdict::Sick);
    assert_eq!(
        seen(Peer::HEALTHY),
        ("4---X-RH".to_owned(), Verdict::Healthy)
    );
    assert_eq!(
        seen(answers(b"HTTP/1.1 404 Not Found\r\n\r\n")),
        sick("4---X-R-")
    );
    assert_eq!(seen(answers(b"FROBOZ 200 OK\r\n\r\n")), sick("4---X-R-"));
    assert_eq!(seen(answers(b"")), sick("4---X---"));
    assert_eq!(
        seen(Peer::new(Behaviour::Resets(Cow::Borrowed(b"")))),
        sick("4---Xr--")
    );
    assert_eq!(seen(Peer::new(Behaviour::Hangs)), sick("4---Xr--"));
    assert_eq!(seen(Peer::new(Behaviour::Refuses)), sick("--------"));
    assert_eq!(seen(Peer::new(Behaviour::BlackHole)), sick("--------"));
}

#[test]
fn c00017_register_counts_goods_refusals_and_protocol_errors() {
    let good = answers(b"HTTP/1.1 200 OK\r\n\r\n");
    let peers = [
        vec![good; 8],
        vec![answers(b"HTTP/1.1 404 Not Found\r\n\r\n"); 3],
        vec![answers(b"FROBOZ 200 OK\r\n\r\n"); 2],
        vec![answers(b"HTTP/1.1 200 \r\n\r\n"); 2],
    ]
    .concat();
    let mut sim = Sim::new(
        &plan(1, window(8, 3), 2, http(SECOND, 500 * MS), 2),
        1,
        START,
    );
    for peer in peers {
        sim.set_peer(TargetIndex(0), peer);
        while Log::run_for(&mut sim, MS).reports.is_empty() {}
    }
    let registers = sim.prober().history(TargetIndex(0)).registers;
    // HHHHHHHHHH-----HH: two assumed and eight good, five bad, two good.
    assert_eq!(registers[7], 0b1_1111_1111_1000_0011);
    assert_eq!(registers[0], 0b111_1111_1111_1111);
}

#[test]
fn v00014_is_sick_until_the_second_good_probe() {
    let seen = histories(
        window(3, 2),
        0,
        http(SECOND, 500 * MS),
        &[answers(b""), Peer::HEALTHY],
    );
    assert_eq!(seen[1].1, Verdict::Sick);
    let peers = [Peer::HEALTHY, Peer::HEALTHY];
    let seen = histories(window(3, 2), 0, http(SECOND, 500 * MS), &peers);
    assert_eq!([seen[0].1, seen[1].1], [Verdict::Warming, Verdict::Healthy]);
}

#[test]
fn r03402_drip_past_the_timeout_is_sick() {
    // 38 bytes, 50 ms from one to the next: 1.9 s in all, never silent for long.
    let drip = Behaviour::Drips {
        response: Cow::Borrowed(OK),
        gap_ns: 50 * MS,
    };
    let peers = [Peer::new(drip)];
    let seen = histories(window(1, 1), 0, http(5 * SECOND, SECOND), &peers);
    assert_eq!(seen, [("4---Xr--".to_owned(), Verdict::Sick)]);
    let seen = histories(window(1, 1), 0, http(5 * SECOND, 2 * SECOND), &peers);
    assert_eq!(seen, [("4---X-RH".to_owned(), Verdict::Healthy)]);
}

#[test]
fn c00113_server_that_never_closes_is_judged_by_its_framing() {
    let keeps = |bytes| [Peer::new(Behaviour::KeepsOpen(Cow::Borrowed(bytes)))];
    let probe = http(SECOND, 500 * MS);
    let seen = histories(window(3, 1), 0, probe.clone(), &keeps(OK));
    assert_eq!(seen[0].1, Verdict::Healthy);
    // Without framing only the close would end it.
    let seen = histories(
        window(3, 1),
        0,
        probe,
        &keeps(b"HTTP/1.1 200 OK\r\n\r\nhello"),
    );
    assert_eq!(seen, [("4---Xr--".to_owned(), Verdict::Sick)]);
}

#[test]
fn r02976_short_interval_is_not_starved_by_a_long_one() {
    let mut plan = plan(2, window(1, 1), 0, http(SECOND, 500 * MS), 2);
    plan.probes.push(http(24 * 3600 * SECOND, SECOND));
    plan.targets[1].probe = ProbeIndex(1);
    let mut sim = Sim::new(&plan, 1, START);
    sim.set_peer(TargetIndex(1), Peer::new(Behaviour::BlackHole));
    let log = Log::run(&mut sim, START + 3600 * SECOND);
    assert_eq!(log.starts_of(0).len(), 3600);
    // Its first probe, and its grid's slot if that falls within this hour.
    assert!((1..=2).contains(&log.starts_of(1).len()));
}

#[test]
fn ten_thousand_targets_start_and_stay_spread() {
    for interval_ns in [SECOND, 2 * SECOND, 30 * SECOND] {
        let plan = plan(10_000, window(1, 1), 0, http(interval_ns, 500 * MS), 1024);
        let mut sim = Sim::new(&plan, 1, START);
        let log = Log::run(&mut sim, START + 2 * interval_ns.max(SECOND));
        let spread_ns = interval_ns.min(2 * SECOND);
        let mut first = vec![Nanos::MAX; 10_000];
        let mut buckets = vec![0; 1 + (2 * interval_ns / (10 * MS)) as usize];
        for &(at_ns, target) in &log.starts {
            let place = &mut first[target.0 as usize];
            *place = at_ns.min(*place);
            buckets[((at_ns - START) / (10 * MS)) as usize] += 1;
        }
        let last = first.into_iter().max().unwrap();
        assert!(
            last <= START + spread_ns,
            "the last first probe came at {}",
            last - START
        );
        // Even: 10,000 over 100 or 200 buckets; a hash strays by four standard deviations.
        let even = f64::from(10_000) / (spread_ns / (10 * MS)) as f64;
        let most = even + 4.0 * even.sqrt() + 10.0;
        let fullest = buckets.into_iter().max().unwrap();
        assert!(
            f64::from(fullest) < most,
            "{fullest} starts in 10 ms, even is {even}"
        );
    }
}

#[test]
fn every_target_is_probed_once_an_interval_on_its_grid() {
    let plan = plan(1000, window(1, 1), 0, http(SECOND, 500 * MS), 64);
    let mut sim = Sim::new(&plan, 1, START);
    for index in 0..1000 {
        sim.set_peer(
            TargetIndex(index),
            Peer::HEALTHY.with_delay_ns(mix(index.into()) % (30 * MS)),
        );
    }
    let log = Log::run(&mut sim, START + 30 * SECOND);
    for index in 0..1000 {
        let starts = log.starts_of(index);
        assert_eq!(starts.len(), 30, "target {index}");
        assert!(
            starts.windows(2).all(|pair| pair[1] - pair[0] == SECOND),
            "target {index}"
        );
    }
}

#[test]
fn probe_longer_than_the_interval_skips_slots_and_never_overlaps() {
    let plan = plan(1, window(1, 1), 0, http(100 * MS, 250 * MS), 4);
    let mut sim = Sim::new(&plan, 1, START);
    sim.set_peer(TargetIndex(0), Peer::new(Behaviour::BlackHole));
    let log = Log::run(&mut sim, START + 30 * SECOND);
    let starts = log.starts_of(0);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 300 * MS));
    assert_eq!(starts.len(), 100);
    assert_eq!(sim.prober().counters().overlapped, 200);
}

#[test]
fn stalled_loop_probes_each_target_once_when_it_wakes() {
    let plan = plan(1000, window(1, 1), 0, http(SECOND, 500 * MS), 2000);
    let mut sim = Sim::new(&plan, 1, START);
    Log::run(&mut sim, START + 2 * SECOND);
    sim.stall_until(START + 12 * SECOND + 500 * MS);
    let log = Log::run(&mut sim, START + 12 * SECOND + 500 * MS);
    assert_eq!(log.starts.len(), 1000);
    let log = Log::run(&mut sim, START + 13 * SECOND + 500 * MS);
    assert_eq!(log.starts.len(), 1000);
    // Back on the grid: spread over the second again.
    let early = log
        .starts
        .iter()
        .filter(|(at_ns, _)| *at_ns < START + 13 * SECOND)
        .count();
    assert!((400..600).contains(&early), "{early} in the first half");
    assert!(
        log.reports
            .iter()
            .all(|report| report.outcome.good() == Some(true))
    );
}

#[test]
fn black_hole_seen_through_a_stalled_loop_is_not_held_against_the_target() {
    let plan = plan(1, window(1, 1), 1, http(SECOND, 500 * MS), 2);
    let mut sim = Sim::new(&plan, 1, START);
    sim.set_peer(TargetIndex(0), Peer::new(Behaviour::BlackHole));
    while sim.prober().in_flight_count() == 0 {
        Log::run_for(&mut sim, MS);
    }
    sim.stall_until(sim.now() + SECOND);
    let log = Log::run_for(&mut sim, SECOND);
    assert_eq!(
        log.reports[0].outcome,
        Outcome::Indeterminate(LocalFault::LoopLate)
    );
    assert_eq!(sim.prober().verdict(JudgeIndex(0)), Verdict::Healthy);
    assert_eq!(sim.prober().history(TargetIndex(0)).registers[7], 1);
}

#[test]
fn dead_rack_does_not_starve_the_living() {
    // 16 slots; 200 dead targets would want 200 * 0.5 s / 1 s = 100 of them.
    let plan = plan(300, window(2, 1), 0, http(SECOND, 500 * MS), 16);
    let mut sim = Sim::new(&plan, 1, START);
    for index in 0..300 {
        let living = Peer::HEALTHY.with_delay_ns(10 * MS);
        let dead = Peer::new(Behaviour::BlackHole);
        sim.set_peer(TargetIndex(index), if index < 100 { living } else { dead });
    }
    // Until each dead one has its verdict the rack may hold everything.
    let mut now = START;
    while 0 < sim.prober().warming_count() {
        now += SECOND;
        assert!(now < START + 60 * SECOND);
        Log::run(&mut sim, now);
    }
    let log = Log::run(&mut sim, now + 20 * SECOND);
    for index in 0..100 {
        assert_eq!(log.starts_of(index).len(), 20, "living target {index}");
    }
    // The dead share their eight slots: each is probed, and what had no room is told.
    for index in 100..300 {
        assert!(!log.starts_of(index).is_empty(), "dead target {index}");
    }
    let no_room = Outcome::Indeterminate(LocalFault::NoSlot);
    let mut without = log
        .reports
        .iter()
        .filter(|report| report.outcome == no_room);
    assert!(without.clone().count() > 1000);
    assert!(without.all(|report| 100 <= report.target.0));
}

#[test]
fn hundred_thousand_timeouts_leave_nothing_in_flight() {
    let plan = plan(1000, window(3, 2), 0, http(SECOND, 200 * MS), 512);
    let mut sim = Sim::new(&plan, 1, START);
    for index in 0..1000 {
        let behaviour = if index % 2 == 0 {
            Behaviour::BlackHole
        } else {
            Behaviour::Hangs
        };
        sim.set_peer(TargetIndex(index), Peer::new(behaviour));
    }
    let mut timed_out = 0;
    sim.run_until(START + 101 * SECOND, &mut |traced| {
        if let Occurrence::Report(report) = traced.what {
            let phase = if report.target.0 % 2 == 0 {
                Phase::Connect
            } else {
                Phase::Receive
            };
            assert_eq!(report.outcome, Outcome::TimedOut { phase });
            assert_eq!(report.duration_ns, 200 * MS);
            timed_out += 1;
        }
    });
    assert!(100_000 <= timed_out, "{timed_out}");
    for index in 0..1000 {
        sim.set_peer(TargetIndex(index), Peer::HEALTHY);
    }
    Log::run(&mut sim, START + 110 * SECOND);
    assert_eq!(sim.prober().in_flight_count(), 0);
    assert!((0..1000).all(|judge| sim.prober().verdict(JudgeIndex(judge)) == Verdict::Healthy));
}

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
        let changed = log
            .changes
            .iter()
            .find(|(_, change)| change.verdict == verdict);
        changed.expect("the verdict changes").0 - flipped_ns
    });
    spans.fold((Nanos::MAX, 0), |(least, most), span| {
        (least.min(span), most.max(span))
    })
}

#[test]
fn closed_forms_equal_what_the_prober_does() {
    let rules = [
        window(1, 1),
        window(4, 3),
        window(8, 3),
        Rule::Consecutive { fall: 3, rise: 2 },
    ];
    for rule in rules {
        for timeout_ns in [20 * MS, 49 * MS, 50 * MS, 75 * MS, 100 * MS] {
            let interval_ns = 50 * MS;
            let plan = plan(1, rule, 0, http(interval_ns, timeout_ns), 2);
            let slow = Peer::HEALTHY.with_delay_ns(timeout_ns);
            let black_hole = Peer::new(Behaviour::BlackHole);
            // Enough for eight probes at three intervals each.
            let settle_ns = 3 * SECOND;

            let sick = bound::to_sick(rule, interval_ns, timeout_ns).unwrap();
            let (_, most) = spans(&plan, &Peer::HEALTHY, &black_hole, Verdict::Sick, settle_ns);
            assert_eq!(
                most, sick.worst_ns,
                "{rule:?}, timeout {timeout_ns}, to sick"
            );

            let healthy = bound::to_healthy(rule, interval_ns, timeout_ns);
            let (_, most) = spans(&plan, &black_hole, &slow, Verdict::Healthy, settle_ns);
            assert_eq!(
                most, healthy.worst_ns,
                "{rule:?}, timeout {timeout_ns}, to healthy"
            );

            // Just before a probe is 1 ms before it, at this grain.
            let refuses = Peer::new(Behaviour::Refuses);
            let (least, _) = spans(&plan, &Peer::HEALTHY, &refuses, Verdict::Sick, settle_ns);
            assert_eq!(least, sick.best_ns + MS, "{rule:?}, at best to sick");
            let (least, _) = spans(&plan, &refuses, &Peer::HEALTHY, Verdict::Healthy, settle_ns);
            assert_eq!(least, healthy.best_ns + MS, "{rule:?}, at best to healthy");
        }
    }
}
