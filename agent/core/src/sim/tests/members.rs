//! Targets that come and go, in simulated worlds.

use std::collections::HashMap;

use super::*;

const RULE: Rule = window(4, 3);

fn spec(number: u32) -> TargetSpec {
    TargetSpec {
        identity: identity(&number.to_be_bytes(), 80, b""),
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        initial: 2,
        second: None,
    }
}

/// Peers of every kind, by number: good, slow, drip, hang, refuse, black hole.
fn peer(number: u32) -> Peer {
    let drip = Behaviour::Drips { response: Cow::Borrowed(OK), gap_ns: 20 * MS };
    match number % 6 {
        0 => Peer::HEALTHY,
        1 => Peer::HEALTHY.with_delay_ns(150 * MS),
        2 => Peer::new(drip),
        3 => Peer::new(Behaviour::Hangs),
        4 => Peer::new(Behaviour::Refuses),
        _ => Peer::new(Behaviour::BlackHole),
    }
}

fn crowded(target_count: u32, slot_count: u32) -> Plan {
    let plan = plan(target_count, RULE, 2, http(SECOND, 300 * MS), slot_count);
    Plan { room: Room { targets: 40, judges: 40 }, ..plan }
}

#[test]
fn schedule_of_those_who_stay_is_untouched_by_those_who_come_and_go() {
    let starts = |others: bool| {
        let mut sim = Sim::new(&crowded(50, 256), 1, START);
        (0..50).for_each(|index| sim.set_peer(TargetIndex(index), peer(index)));
        let mut log = Log::default();
        let mut living = vec![];
        for turn in 0..400_u32 {
            if others && turn % 3 == 0 && living.len() < 40 {
                let on = &mut |_| {};
                let (target, _) = sim.add(&spec(1000 + turn), RULE, OnUnknown::Keep, on).unwrap();
                sim.set_peer(target, peer(turn / 3));
                living.push(target);
            }
            if others && turn % 7 == 0 {
                sim.remove(living.remove(0), &mut |_| {});
            }
            let more = Log::run_for(&mut sim, 97 * MS);
            log.starts.extend(more.starts);
        }
        (0..50).map(|index| log.starts_of(index)).collect::<Vec<_>>()
    };
    let alone = starts(false);
    assert!((38..=39).contains(&alone[0].len()), "an interval of 1 s over 38.8 s");
    assert_eq!(starts(true), alone);
}

/// What a random life of targets must keep to; `serial` tells the uses of an index apart.
#[derive(Default)]
struct Ledger {
    /// By index: the number of its present target, and when it was added.
    living: HashMap<u32, (u32, Nanos)>,
    /// Probes in flight that were started for a living target, by slot.
    flying: HashMap<u32, u32>,
    reported: HashMap<u32, u32>,
    removed_in_flight: u32,
    reused: u32,
}

impl Ledger {
    fn take(&mut self, traced: Traced) {
        match traced.what {
            Occurrence::Command(Command::Start { slot, target }) => {
                assert!(
                    self.living.contains_key(&target.0),
                    "{target:?} was removed and is probed"
                );
                let twice = self.flying.values().any(|flying| *flying == target.0);
                assert!(!twice, "{target:?} is probed twice at once");
                self.flying.insert(slot.0, target.0);
            }
            Occurrence::Command(_) => {}
            Occurrence::Report(report) => {
                let Some((number, _)) = self.living.get(&report.target.0) else {
                    panic!("{:?} was removed and is reported", report.target)
                };
                self.flying.retain(|_, flying| *flying != report.target.0);
                *self.reported.entry(*number).or_default() += 1;
            }
            Occurrence::Change(change) => {
                assert!(change.judge.0 < 60, "{change:?}");
            }
        }
    }

    fn add(&mut self, sim: &mut Sim, number: u32) {
        let mut told = vec![];
        let on = &mut |traced| told.push(traced);
        let Some((target, judge)) = sim.add(&spec(number), RULE, OnUnknown::Keep, on) else {
            // Only those whose removal is not over can be in the way.
            assert!(self.living.len() <= 60);
            return;
        };
        assert!(told.is_empty(), "2 of 3 are assumed: it is warming, and nothing is told");
        assert_eq!(sim.prober().verdict(judge), Verdict::Warming);
        assert_eq!(sim.prober().history(target).registers[0], 0, "nothing of the one before it");
        sim.set_peer(target, peer(number));
        self.reused += u32::from(target.0 < 60 && 60 < number);
        let before = self.living.insert(target.0, (number, sim.now()));
        assert_eq!(before, None, "{target:?} is given out twice");
    }

    fn remove(&mut self, sim: &mut Sim, pick: u64) {
        let mut indices: Vec<u32> = self.living.keys().copied().collect();
        indices.sort_unstable();
        let index = indices[(pick % indices.len() as u64) as usize];
        self.living.remove(&index);
        let flew = self.flying.len();
        self.flying.retain(|_, flying| *flying != index);
        self.removed_in_flight += u32::from(self.flying.len() < flew);
        sim.remove(TargetIndex(index), &mut |traced| panic!("{traced:?} after the removal"));
    }
}

#[test]
fn random_lives_never_overlap_and_are_told_of_no_more_once_they_are_over() {
    let (mut removed_in_flight, mut reused) = (0, 0);
    for seed in 0..60 {
        // Twenty at the start, room for forty more; with few slots the queues fill as well.
        let slots = if seed % 2 == 0 { 64 } else { 6 };
        let mut sim = Sim::new(&crowded(20, slots), seed, START);
        let mut random = Random::new(seed ^ 0x5eed);
        let mut ledger = Ledger::default();
        for index in 0..20 {
            sim.set_peer(TargetIndex(index), peer(index));
            ledger.living.insert(index, (index, START));
        }
        for number in 100..400 {
            match random.below(5) {
                0 | 1 if 10 < ledger.living.len() => ledger.remove(&mut sim, random.below(1 << 32)),
                2..=4 => ledger.add(&mut sim, number),
                _ => {}
            }
            let until_ns = sim.now() + random.below(400 * MS);
            sim.run_until(until_ns, &mut |traced| ledger.take(traced));
            assert_eq!(sim.prober().target_count() as usize, ledger.living.len());
        }
        let now = sim.now();
        // With room in flight everyone that lived three seconds was probed.
        let old = ledger.living.values().filter(|(_, since)| since + 3 * SECOND < now);
        let silent = old.filter(|(number, _)| slots == 64 && !ledger.reported.contains_key(number));
        assert_eq!(silent.count(), 0, "seed {seed}");
        assert_eq!(sim.prober().counters().unexpected_events, 0);
        removed_in_flight += ledger.removed_in_flight;
        reused += ledger.reused;
    }
    assert!(500 < removed_in_flight, "{removed_in_flight} were removed in flight");
    assert!(500 < reused, "{reused} indices were used again");
}

#[test]
fn added_target_that_never_answers_is_unknown_no_sooner_than_one_of_the_start() {
    let mut sim = Sim::new(&crowded(1, 8), 1, START);
    Log::run_for(&mut sim, 100 * SECOND);
    let (target, _) = sim.add(&spec(7), RULE, OnUnknown::Sick, &mut |_| {}).unwrap();
    sim.set_peer(target, Peer::new(Behaviour::NoSocket { errno: 24 }));
    // max(10 intervals, 30 s) from its own start, not from the prober's.
    assert!(Log::run_for(&mut sim, 29 * SECOND).changes.is_empty());
    let changes = Log::run_for(&mut sim, 3 * SECOND).changes;
    assert_eq!(changes.len(), 1);
    assert!(changes[0].1.unknown);
}
