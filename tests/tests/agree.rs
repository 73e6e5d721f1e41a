//! Host and kernel decide alike: the same packets over the same tables, by [`decide`] here and by
//! the programs in this kernel; action, packet, entries and all counters are compared.
//!
//! Needs root and the object of `cargo xtask build-ebpf`; without either it fails.

use std::collections::{BTreeMap, HashMap};
use std::env;

use nix::time::{ClockId, clock_gettime};
use sickbay_shared::abi::{
    self, DropRecord, EXPLANATION_OFFSET, Explanation, FlowEntry, FragmentEntry, FragmentKey,
};
use sickbay_shared::counters::count;
use sickbay_shared::embryonic::tag;
use sickbay_shared::explain::{facts, verdict};
use sickbay_shared::model::fixtures::{self, Fate};
use sickbay_shared::model::{Buffer, Bytes, ModelCounters};
use sickbay_shared::packet::{Flow, Headers, parse};
use sickbay_shared::reply;
use sickbay_shared::steer::{Action, Outcome, decide};
use sickbay_shared::tables::Store;
use sickbay_tests::chance::{Chance, World};
use sickbay_tests::figures;
use sickbay_tests::steering::{Entrance, Ran, Steering, seed_of};

/// More than any run of a batch takes; less than any two ages of entries differ by.
const SLACK_NS: u64 = 1_000_000_000;
const BATCH_PACKETS: u32 = 400;

// The actions of include/uapi/linux/bpf.h and pkt_cls.h.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;
const TC_OK: u32 = 0;
const TC_SHOT: u32 = 2;
const TC_REDIRECT: u32 = 7;
/// The loopback, by which a test-run's packets come in.
const INGRESS: u32 = 1;

#[test]
fn xdp_program_agrees_with_the_host_on_800_000_random_packets() {
    agree(Entrance::Xdp, 2_000, 0x5eed_0001);
}

#[test]
fn tc_program_agrees_with_the_host_on_200_000_random_packets() {
    agree(Entrance::Tc, 500, 0x5eed_0002);
}

#[test]
fn explanation_agrees_with_the_host_and_changes_nothing() {
    let mut steering = Steering::load();
    let mut verdicts = BTreeMap::<u8, u32>::new();
    for batch in 0..100 {
        let mut chance = Chance::new(0x5eed_0003 + (batch << 32));
        let world = World::new(&mut chance, now_ns());
        let before = world.tables.entries.borrow().clone();
        steering.put(&world.tables);
        let before_in_kernel = steering.entries();
        assert_eq!(before_in_kernel.len(), before.len(), "batch {batch}");
        for packet in 0..200 {
            let mut frame = world.frame(&mut chance);
            frame.resize(EXPLANATION_OFFSET + size_of::<Explanation>(), 0);
            world.tables.clock_ns.set(now_ns());
            let host = Bytes::new(&frame);
            let (facts, verdict) = (facts(&host, &world.tables), verdict(&host, &world.tables));
            let mut ran = steering.explain(&frame);
            assert!(ran.facts.at_ns.abs_diff(facts.at_ns) < SLACK_NS);
            ran.facts.at_ns = facts.at_ns;
            assert_eq!(ran, Explanation { facts, verdict }, "batch {batch}, packet {packet}");
            *verdicts.entry(verdict.outcome).or_default() += 1;
        }
        assert_eq!(steering.counters(), ModelCounters::default(), "batch {batch}");
        assert_eq!(steering.entries(), before_in_kernel, "batch {batch}");
        assert_eq!(*world.tables.entries.borrow(), before, "batch {batch}");
        assert_eq!(steering.drops(), [], "batch {batch}");
    }
    println!("explained: {verdicts:?}");
    assert_eq!(verdicts.len(), 5, "{verdicts:?}");
}

#[test]
fn fixtures_meet_their_fate_in_the_kernel() {
    let mut steering = Steering::load();
    let mut ran = 0;
    for fixture in fixtures::all() {
        for entrance in [Entrance::Xdp, Entrance::Tc] {
            // A map that refuses an entry cannot be had on demand, nor a ring without room.
            let full = fixture.tables.full || fixture.tables.drops_full;
            if !full && entrance.can_run(&fixture.frame) {
                run_fixture(&mut steering, entrance, &fixture);
                ran += 1;
            }
        }
    }
    figures::show(&format!("{ran} fixtures ran in the kernel"));
    assert!(220 <= ran, "only {ran}");
}

#[test]
fn every_map_of_the_abi_is_in_the_object() {
    let steering = Steering::load();
    let missing: Vec<&str> = abi::MAPS.into_iter().filter(|name| !steering.has_map(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

fn agree(entrance: Entrance, batches: u32, default_seed: u64) {
    let seed = env::var("SICKBAY_SEED")
        .map_or(default_seed, |seed| seed.parse().expect("SICKBAY_SEED is a number"));
    println!("{entrance:?}: seed {seed} (set SICKBAY_SEED to repeat another)");
    let mut steering = Steering::load();
    let mut seen = Seen::default();
    for batch in 0..batches {
        let mut chance = Chance::new(seed.wrapping_add(u64::from(batch) << 32));
        let mut world = World::new(&mut chance, now_ns());
        // One world, twice: as it was made, and after some health has changed.
        for half in 0..2 {
            let place = format!("{entrance:?}, seed {seed}, batch {batch}.{half}");
            run_batch(&mut steering, entrance, &world, &mut chance, &place, &mut seen);
            world.disturb_health(&mut chance);
        }
    }
    let Seen { actions, outcomes } = seen;
    let total: u32 = actions.values().sum();
    figures::show(&format!("{total} packets, seed {seed}, by action: {actions:?}; {outcomes:?}"));
    assert_eq!(actions.values().sum::<u32>(), batches * BATCH_PACKETS);
    let kinds = if entrance == Entrance::Xdp { 4 } else { 3 };
    assert_eq!(actions.len(), kinds, "an action was never taken");
    for outcome in OUTCOMES {
        assert!(outcomes.contains_key(outcome), "{outcome} never came");
    }
}

/// Each outcome that there is; of a steered packet, each path.
const OUTCOMES: [&str; 33] = [
    "NotIp",
    "NotTcpUdp",
    "NotRead",
    "Truncated",
    "IcmpUnrelated",
    "FragmentUnknown",
    "EchoAnswered",
    "NotService",
    "BrokenTable",
    "NoneTakesNew",
    "NoneTakesNewRefused",
    "BackendSick",
    "ReplyOverBudget",
    "Current",
    "Rehashed",
    "Searched",
    "Backup",
    "PanicOpen",
    "Open",
    "StaleOpen",
    "SynAgain",
    "Entry",
    "Slot",
    "Moved",
    "Fragment",
    "IcmpError",
    "entry Untouched",
    "entry Written",
    "entry Refused",
    "entry Promoted",
    "entry Deleted",
    "fragment Written",
    "fragment Refused",
];

/// How often each action was taken and each outcome came.
#[derive(Default)]
struct Seen {
    actions: HashMap<u32, u32>,
    outcomes: BTreeMap<String, u32>,
}

impl Seen {
    fn note(&mut self, action: u32, outcome: &Outcome) {
        let name = match outcome {
            Outcome::Unread(reason) => format!("{reason:?}"),
            Outcome::NotService => "NotService".into(),
            Outcome::EchoAnswered => "EchoAnswered".into(),
            Outcome::Dropped(dropped) => format!("{:?}", dropped.reason),
            Outcome::Steered(steered) => {
                *self.outcomes.entry(format!("entry {:?}", steered.entry)).or_default() += 1;
                let fragment = format!("fragment {:?}", steered.fragment);
                *self.outcomes.entry(fragment).or_default() += 1;
                format!("{:?}", steered.path)
            }
        };
        *self.actions.entry(action).or_default() += 1;
        *self.outcomes.entry(name).or_default() += 1;
    }
}

fn run_batch(
    steering: &mut Steering,
    entrance: Entrance,
    world: &World,
    chance: &mut Chance,
    place: &str,
    seen: &mut Seen,
) {
    let counters = ModelCounters::default();
    world.tables.clock_ns.set(now_ns());
    steering.put(&world.tables);
    for packet in 0..BATCH_PACKETS / 2 {
        let frame = runnable_frame(entrance, world, chance);
        world.tables.clock_ns.set(now_ns());
        let outcome = decide(&Bytes::new(&frame), &world.tables, &world.tables);
        count(&outcome, &counters);
        let expected = carried_out(entrance, outcome.action(), &frame);
        let ran = steering.run(entrance, &frame);
        assert_eq!(ran, expected, "{place}, packet {packet}: {outcome:?}\n{frame:02x?}");
        let (kernel, host) = (steering.drops(), world.tables.drops.take());
        assert_same_drops(&kernel, &host, || format!("{place}, packet {packet}: {outcome:?}"));
        seen.note(ran.action, &outcome);
    }
    assert_eq!(steering.counters(), counters, "{place}");
    let seed = seed_of(&world.tables.header);
    assert_same_entries(&steering.entries(), &world.tables.entries.borrow(), seed, place);
    assert_same_fragments(&steering.fragments(), &world.tables.fragments.borrow(), place);
    if let Some(marks) = world.tables.marks.borrow().as_ref() {
        assert_eq!(steering.marks(), *marks, "{place}");
    }
    let (kernel, host) = (steering.embryonic_seen_ns(), world.tables.embryonic_seen_ns.get());
    assert!(kernel.abs_diff(host) < SLACK_NS, "{place}: embryonic entries seen {kernel}, {host}");
}

fn runnable_frame(entrance: Entrance, world: &World, chance: &mut Chance) -> Vec<u8> {
    for _ in 0..1_000 {
        let frame = world.frame(chance);
        if entrance.can_run(&frame) {
            return frame;
        }
    }
    panic!("no frame that the kernel's test-run takes");
}

/// What the kernel shows of an action: its number, and the packet with the new addresses.
fn carried_out(entrance: Entrance, action: Action, frame: &[u8]) -> Ran {
    let mut frame = frame.to_vec();
    let (pass, drop) = match entrance {
        Entrance::Xdp => (XDP_PASS, XDP_DROP),
        Entrance::Tc => (TC_OK, TC_SHOT),
    };
    let action = match action {
        Action::Pass => pass,
        Action::Drop => drop,
        Action::Forward(next_hop) => {
            frame[..6].copy_from_slice(&next_hop.next_hop.to_le_bytes()[..6]);
            frame[6..12].copy_from_slice(&next_hop.source_mac.to_le_bytes()[..6]);
            match entrance {
                Entrance::Xdp if next_hop.interface_index == INGRESS => XDP_TX,
                Entrance::Xdp => XDP_REDIRECT,
                Entrance::Tc => TC_REDIRECT,
            }
        }
        Action::Refuse => return answered(entrance, frame, reply::refuse),
        Action::AnswerEcho => return answered(entrance, frame, reply::answer_echo),
    };
    Ran { action, frame }
}

/// What the kernel shows of an answer: the frame that the host makes of this one.
fn answered(entrance: Entrance, frame: Vec<u8>, answer: fn(&mut Buffer, &Headers) -> bool) -> Ran {
    let mut buffer = Buffer { frame };
    let headers = parse(&buffer).expect("what is answered was read");
    assert!(answer(&mut buffer, &headers), "decided to answer what cannot be");
    let action = if entrance == Entrance::Xdp { XDP_TX } else { TC_REDIRECT };
    Ran { action, frame: buffer.frame }
}

fn assert_same_entries(
    kernel: &HashMap<(Store, u64), FlowEntry>,
    host: &HashMap<(Store, Flow), FlowEntry>,
    seed: u64,
    place: &str,
) {
    let host: HashMap<_, _> =
        host.iter().map(|((store, flow), entry)| ((*store, tag(flow, seed)), *entry)).collect();
    for flow in kernel.keys().chain(host.keys()) {
        let (kernel, host) = (kernel.get(flow), host.get(flow));
        let backends = (kernel.map(|entry| entry.backend), host.map(|entry| entry.backend));
        assert_eq!(backends.0, backends.1, "{place}: entry of {flow:?}");
        let apart = kernel.zip(host).map(|(a, b)| a.seen_ns.abs_diff(b.seen_ns));
        assert!(apart < Some(SLACK_NS), "{place}: stamps of {flow:?} are {apart:?} ns apart");
    }
}

fn assert_same_fragments(
    kernel: &HashMap<FragmentKey, FragmentEntry>,
    host: &HashMap<FragmentKey, FragmentEntry>,
    place: &str,
) {
    let without_time = |entries: &HashMap<FragmentKey, FragmentEntry>| -> HashMap<_, _> {
        entries.iter().map(|(key, entry)| (*key, (entry.backend, entry.service))).collect()
    };
    assert_eq!(without_time(kernel), without_time(host), "{place}");
    for (key, entry) in kernel {
        assert!(entry.seen_ns.abs_diff(host[key].seen_ns) < SLACK_NS, "{place}: stamp of {key:?}");
    }
}

fn assert_same_drops(kernel: &[DropRecord], host: &[DropRecord], place: impl Fn() -> String) {
    let without_time = |records: &[DropRecord]| -> Vec<DropRecord> {
        records.iter().map(|record| DropRecord { at_ns: 0, ..*record }).collect()
    };
    assert_eq!(without_time(kernel), without_time(host), "{}", place());
    for (kernel, host) in kernel.iter().zip(host) {
        assert!(kernel.at_ns.abs_diff(host.at_ns) < SLACK_NS, "{}: the time", place());
    }
}

fn run_fixture(steering: &mut Steering, entrance: Entrance, fixture: &fixtures::Fixture) {
    let place = format!("{entrance:?}: {}", fixture.description);
    // Entries and heartbeats keep their age by this kernel's clock.
    let now_ns = now_ns();
    let shifted = |at_ns: u64| (now_ns + at_ns).saturating_sub(fixtures::NOW_NS);
    let mut tables = fixture.tables.clone();
    tables.heartbeats_ns.iter_mut().for_each(|beat_ns| *beat_ns = shifted(*beat_ns));
    tables.embryonic_seen_ns.set(shifted(tables.embryonic_seen_ns.get()));
    for entry in tables.entries.borrow_mut().values_mut() {
        entry.seen_ns = shifted(entry.seen_ns);
    }
    for entry in tables.fragments.borrow_mut().values_mut() {
        entry.seen_ns = shifted(entry.seen_ns);
    }
    steering.put(&tables);
    let ran = steering.run(entrance, &fixture.frame);
    let mut frame = fixture.frame.clone();
    let action = match (fixture.fate, entrance) {
        (Fate::Pass, Entrance::Xdp) => XDP_PASS,
        (Fate::Pass, Entrance::Tc) => TC_OK,
        (Fate::Drop, Entrance::Xdp) => XDP_DROP,
        (Fate::Drop, Entrance::Tc) => TC_SHOT,
        (Fate::Answer, entrance) => {
            frame.clone_from(&fixture.answer);
            if entrance == Entrance::Xdp { XDP_TX } else { TC_REDIRECT }
        }
        (Fate::To(index), entrance) => {
            let last = index as u8;
            frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, last, 6, 0, 0, 0, 0, last]);
            if entrance == Entrance::Xdp { XDP_REDIRECT } else { TC_REDIRECT }
        }
    };
    assert_eq!(ran, Ran { action, frame }, "{place}");
    let expected = ModelCounters {
        global: fixture.global.into(),
        services: fixture.services.iter().copied().collect::<HashMap<_, _>>().into(),
        backends: fixture.backends.iter().copied().collect::<HashMap<_, _>>().into(),
    };
    assert_eq!(steering.counters(), expected, "{place}");
    let mut entries: Vec<_> =
        steering.entries().iter().map(|((store, _), entry)| (*store, entry.backend)).collect();
    entries.sort_by_key(|(store, _)| *store == Store::Flows);
    assert_eq!(entries, fixture.entries, "{place}");
    let fragments = steering.fragments();
    let fragments: Vec<_> =
        fragments.values().map(|entry| (entry.backend.index(), entry.service)).collect();
    assert_eq!(fragments, fixture.fragments, "{place}");
    let records: Vec<u8> = steering.drops().iter().map(|record| record.reason).collect();
    assert_eq!(records, fixture.records, "{place}");
}

fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).expect("the coarse clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}
