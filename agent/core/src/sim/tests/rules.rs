//! What must hold of schedule, slots and reports, in worlds small and large.

use super::*;

#[test]
fn same_seed_same_trace() {
    let trace = |seed| {
        let mut sim =
            Sim::new(&plan(200, window(4, 3), 2, http(SECOND, 300 * MS), 16), seed, START);
        let drip = Behaviour::Drips { response: Cow::Borrowed(OK), gap_ns: 3 * MS };
        let flap = Behaviour::Flaps { period_ns: 7 * SECOND, up_ns: 3 * SECOND };
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
            let peer = Peer { jitter_ns: 50 * MS, loss_permille: 20, ..Peer::HEALTHY };
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
        assert!(last <= START + spread_ns, "the last first probe came at {}", last - START);
        // Even: 10,000 over 100 or 200 buckets; a hash strays by four standard deviations.
        let even = f64::from(10_000) / (spread_ns / (10 * MS)) as f64;
        let most = even + 4.0 * even.sqrt() + 10.0;
        let fullest = buckets.into_iter().max().unwrap();
        assert!(f64::from(fullest) < most, "{fullest} starts in 10 ms, even is {even}");
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
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == SECOND), "target {index}");
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
    let early = log.starts.iter().filter(|(at_ns, _)| *at_ns < START + 13 * SECOND).count();
    assert!((400..600).contains(&early), "{early} in the first half");
    assert!(log.reports.iter().all(|report| report.outcome.good() == Some(true)));
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
    assert_eq!(log.reports[0].outcome, Outcome::Indeterminate(LocalFault::LoopLate));
    assert_eq!(sim.prober().verdict(JudgeIndex(0)), Verdict::Healthy);
    assert_eq!(sim.prober().history(TargetIndex(0)).registers[7], 1);
}

#[test]
fn answer_that_had_arrived_whole_counts_although_the_loop_read_half_of_it_too_late() {
    // More than one receive takes.
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 6000\r\n\r\n";
    let response = [&head[..], &[b'x'; 6000]].concat();
    let plan = plan(1, window(1, 1), 0, http(SECOND, 500 * MS), 2);
    let mut sim = Sim::new(&plan, 1, START);
    let peer = Peer::new(Behaviour::Answers(Cow::Owned(response)));
    sim.set_peer(TargetIndex(0), peer.with_delay_ns(10 * MS));
    while sim.prober().in_flight_count() == 0 {
        Log::run_for(&mut sim, MS);
    }
    sim.stall_until(sim.now() + 600 * MS);
    let log = Log::run_for(&mut sim, 600 * MS);
    assert_eq!(log.reports[0].outcome, Outcome::Answered { status: 200, good: true });
}

/// 100 living targets, and 200 dead ones that would want 200 * 0.5 s / 1 s = 100 of the 16 slots.
fn dead_rack(rule: Rule, initial: u8) -> Sim {
    let mut sim = Sim::new(&plan(300, rule, initial, http(SECOND, 500 * MS), 16), 1, START);
    for index in 0..300 {
        let living = Peer::HEALTHY.with_delay_ns(10 * MS);
        let dead = Peer::new(Behaviour::BlackHole);
        sim.set_peer(TargetIndex(index), if index < 100 { living } else { dead });
    }
    sim
}

const NO_ROOM: Outcome = Outcome::Indeterminate(LocalFault::NoSlot);

#[test]
fn dead_rack_does_not_starve_the_living() {
    let mut sim = dead_rack(window(2, 1), 0);
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
    let mut without = log.reports.iter().filter(|report| report.outcome == NO_ROOM);
    assert!(without.clone().count() > 1000);
    assert!(without.all(|report| 100 <= report.target.0));
}

#[test]
fn rack_that_no_verdict_condemns_yet_starves_nobody_that_answered_once() {
    // One wants 64 results for its first verdict; to the other one good result of 64 is enough, and
    // that one is assumed.
    let warming = (Rule::Consecutive { fall: 64, rise: 64 }, 0, Verdict::Warming);
    let healthy = (window(64, 1), 1, Verdict::Healthy);
    for (rule, initial, verdict) in [warming, healthy] {
        let mut sim = dead_rack(rule, initial);
        let mut answered = [false; 300];
        let (mut first_answer_ns, mut without) = (START, 0);
        sim.run_until(START + 40 * SECOND, &mut |traced| {
            let Occurrence::Report(report) = traced.what else { return };
            let index = report.target.0 as usize;
            if report.outcome == NO_ROOM {
                without += 1;
                assert!(!answered[index], "target {index} answered before and had no room");
            } else if report.outcome.good() == Some(true) && !answered[index] {
                answered[index] = true;
                first_answer_ns = traced.at_ns;
            }
        });
        assert_eq!(answered.iter().filter(|&&it| it).count(), 100, "{rule:?}");
        // Each of the dead is met once before it is known: 200 * 0.5 s / 16 slots.
        assert!(first_answer_ns <= START + 7 * SECOND, "{}", first_answer_ns - START);
        assert!(1000 < without, "{without} probes without room");
        let log = Log::run(&mut sim, START + 60 * SECOND);
        for index in 0..100 {
            assert_eq!(log.starts_of(index).len(), 20, "living target {index}");
        }
        assert!((100..300).all(|index| !log.starts_of(index).is_empty()), "each dead one too");
        assert_eq!(sim.prober().verdict(JudgeIndex(299)), verdict);
    }
}

#[test]
fn hundred_thousand_timeouts_leave_nothing_in_flight() {
    let plan = plan(1000, window(3, 2), 0, http(SECOND, 200 * MS), 512);
    let mut sim = Sim::new(&plan, 1, START);
    for index in 0..1000 {
        let behaviour = if index % 2 == 0 { Behaviour::BlackHole } else { Behaviour::Hangs };
        sim.set_peer(TargetIndex(index), Peer::new(behaviour));
    }
    let mut timed_out = 0;
    sim.run_until(START + 101 * SECOND, &mut |traced| {
        if let Occurrence::Report(report) = traced.what {
            let phase = if report.target.0 % 2 == 0 { Phase::Connect } else { Phase::Receive };
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

/// Watches a run: what must hold whatever happens.
struct Watch {
    /// The target of each slot in flight, and whether it was suspect when it started.
    slots: Vec<Option<(TargetIndex, bool)>>,
    in_flight: Vec<bool>,
    /// Whose last result was a timeout.
    timed_out: Vec<bool>,
    verdicts: Vec<Verdict>,
    starts: u32,
    reports: u32,
}

impl Watch {
    fn new(plan: &Plan) -> Self {
        Self {
            slots: vec![None; plan.slot_count as usize],
            in_flight: vec![false; plan.targets.len()],
            timed_out: vec![false; plan.targets.len()],
            verdicts: vec![Verdict::Warming; plan.targets.len()],
            starts: 0,
            reports: 0,
        }
    }

    fn see(&mut self, what: Occurrence) {
        match what {
            Occurrence::Command(Command::Start { slot, target }) => {
                let suspect = self.verdicts[target.0 as usize] == Verdict::Sick
                    || self.timed_out[target.0 as usize];
                assert_eq!(self.slots[slot.0 as usize].replace((target, suspect)), None);
                let overlaps = std::mem::replace(&mut self.in_flight[target.0 as usize], true);
                assert!(!overlaps, "{target:?} is probed twice at once");
                let held = self.slots.iter().flatten().filter(|(_, suspect)| *suspect).count();
                assert!(held <= self.slots.len() / 2, "suspect targets hold {held} slots");
                self.starts += 1;
            }
            Occurrence::Command(Command::StartSecond { target, .. }) => {
                panic!("{target:?} has one address");
            }
            Occurrence::Command(
                Command::Receive { slot } | Command::Discard { slot } | Command::Cancel { slot },
            ) => {
                let (target, _) = self.slots[slot.0 as usize].expect("a slot in flight");
                assert!(self.in_flight[target.0 as usize], "its probe is over");
            }
            Occurrence::Command(Command::Close { slot }) => {
                let (target, _) = self.slots[slot.0 as usize].take().expect("a slot in flight");
                assert!(!self.in_flight[target.0 as usize], "its probe is not over");
            }
            Occurrence::Report(Report { target, outcome, .. }) => {
                if outcome == Outcome::Indeterminate(LocalFault::NoSlot) {
                    // Of a slot before this one: its own start may be told already.
                    return;
                }
                assert!(std::mem::take(&mut self.in_flight[target.0 as usize]));
                self.reports += 1;
                if outcome.good().is_some() {
                    let timed_out = matches!(outcome, Outcome::TimedOut { .. });
                    self.timed_out[target.0 as usize] = timed_out;
                }
                // The socket was never made: nothing closes it.
                if outcome == Outcome::Indeterminate(LocalFault::Errno { errno: 24 }) {
                    let of = |slot: &&mut Option<(TargetIndex, bool)>| {
                        slot.is_some_and(|(of, _)| of == target)
                    };
                    *self.slots.iter_mut().find(of).expect("its slot") = None;
                }
            }
            Occurrence::Change(change) => {
                let known = &mut self.verdicts[change.judge.0 as usize];
                assert_eq!(*known, change.before);
                *known = change.verdict;
            }
        }
    }
}

fn any_peer(random: &mut Random, timeout_ns: Nanos) -> Peer {
    let ok = || Cow::Borrowed(OK);
    let behaviour = match random.below(11) {
        0 => Behaviour::BlackHole,
        1 => Behaviour::Hangs,
        2 => Behaviour::Refuses,
        3 => Behaviour::Resets(Cow::Borrowed(&OK[..20])),
        4 => Behaviour::Drips { response: ok(), gap_ns: random.below(timeout_ns / 20) },
        5 => Behaviour::Flaps { period_ns: SECOND, up_ns: random.below(SECOND) },
        6 => Behaviour::NoSocket { errno: 24 },
        7 => Behaviour::NoConnect { errno: 99 },
        8 => Behaviour::KeepsOpen(ok()),
        9 => Behaviour::Answers(Cow::Borrowed(b"HTTP/1.1 500 x\r\n\r\n")),
        _ => Behaviour::Answers(ok()),
    };
    let delay_ns = random.below(timeout_ns * 5 / 4);
    let loss_permille = random.below(100) as u32;
    Peer { behaviour, delay_ns, jitter_ns: delay_ns / 2, loss_permille }
}

#[test]
fn rules_hold_in_any_world() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let interval_ns = 20 * MS + random.below(200 * MS);
        let timeout_ns = 5 * MS + random.below(2 * interval_ns);
        let slot_count = 2 + random.below(20) as u32;
        let count = 40;
        let plan = plan(count, window(3, 2), 0, http(interval_ns, timeout_ns), slot_count);
        let mut sim = Sim::new(&plan, seed, START);
        let mut watch = Watch::new(&plan);
        for _ in 0..20 {
            for index in 0..count {
                if random.below(4) == 0 {
                    sim.set_peer(TargetIndex(index), any_peer(&mut random, timeout_ns));
                }
            }
            sim.set_lateness_ns_max(random.below(2) * random.below(timeout_ns));
            if random.below(5) == 0 {
                sim.stall_until(sim.now() + random.below(3 * timeout_ns));
            }
            let until_ns = sim.now() + 5 * interval_ns;
            sim.run_until(until_ns, &mut |traced| watch.see(traced.what));
        }
        assert!(100 < watch.starts, "seed {seed}");
        // Everything ends once nothing new starts: what is in flight is what has no report.
        let open = watch.in_flight.iter().filter(|&&open| open).count() as u32;
        assert_eq!(watch.starts, watch.reports + open, "seed {seed}");
        for (index, &verdict) in (0..).zip(&watch.verdicts) {
            assert_eq!(sim.prober().verdict(JudgeIndex(index)), verdict, "seed {seed}");
        }
    }
}
