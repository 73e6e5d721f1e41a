//! Random histories of members, health and flows, decided by the program's own rules.
//!
//! The model beside knows only the promise: a flow that sent a packet within each drain stays where
//! it is while its backend lives; a new flow goes to nobody who is sick, drained or leaving while
//! somebody else would take it. It knows nothing of slots, entries or generations.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};
use sickbay_shared::abi::{MODE_DSR, ON_SICK_REHASH, Service, ServiceKey};
use sickbay_shared::model::frame::{ACK, Frame, SYN};
use sickbay_shared::model::{Bytes, ModelTables};
use sickbay_shared::packet::{PROTOCOL_TCP, PROTOCOL_UDP};
use sickbay_shared::steer::{Dropped, Outcome, Reason, decide};
use sickbay_shared::tables::Bitmap;

use super::*;

const CLIENTS: u16 = 24;
/// Who may be a member.
const PEOPLE: u64 = 9;
/// Fewer than people, so that indices are used again.
const INDICES: u32 = 7;
const SLOTS: u32 = 31;
const UDP_IDLE: Nanos = 6 * SECOND;

#[derive(Clone, Debug)]
enum Step {
    Enter(u64),
    Leave(u64),
    Weigh(u64, u32),
    Drain(u64, bool),
    Health(u64, bool),
    Syn(u16),
    Data(u16),
    Datagram(u16),
    /// Every client sends.
    All,
    Wait(Nanos),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (1..=PEOPLE).prop_map(Step::Enter),
        3 => (1..=PEOPLE).prop_map(Step::Leave),
        1 => (1..=PEOPLE, 1..9_u32).prop_map(|(who, weight)| Step::Weigh(who, weight)),
        2 => (1..=PEOPLE, any::<bool>()).prop_map(|(who, on)| Step::Drain(who, on)),
        3 => (1..=PEOPLE, any::<bool>()).prop_map(|(who, on)| Step::Health(who, on)),
        4 => (0..CLIENTS).prop_map(Step::Syn),
        4 => (0..CLIENTS).prop_map(Step::Data),
        4 => (0..CLIENTS).prop_map(Step::Datagram),
        4 => Just(Step::All),
        6 => (1..5 * SECOND).prop_map(Step::Wait),
    ]
}

/// A rule taken out: what the histories must then find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    /// A changed slot is settled at once.
    NoDrain,
    /// A change of a draining slot makes its present owner the previous one.
    PreviousOfTheLastChange,
    /// One that leaves is gone at once.
    NoWaitForTheEnd,
}

/// A person as a member.
#[derive(Clone, Copy, Debug)]
struct Life {
    backend: BackendRef,
    healthy: bool,
    drained: bool,
    leaving: bool,
}

/// Whom a flow belongs to, and when it last sent.
type Flows = HashMap<u16, (u64, Nanos)>;

struct World {
    rig: Rig,
    tables: ModelTables,
    lives: BTreeMap<u64, Life>,
    connections: Flows,
    datagrams: Flows,
    /// Every reference that was ever given out.
    owners: HashMap<BackendRef, u64>,
    mutant: Option<Mutant>,
    /// What was wrong.
    fault: Option<String>,
}

impl World {
    fn new(mutant: Option<Mutant>) -> Self {
        let udp = Table::new(3, SLOTS, UDP_IDLE, true);
        let rig = Rig::new(4, INDICES, vec![Table::new(3, SLOTS, DRAIN, false), udp]);
        let mut tables = ModelTables::new(2);
        tables.clock_ns.set(START);
        let pool = tables.add_pool(1, 1);
        for (protocol, table) in [(PROTOCOL_TCP, 0), (PROTOCOL_UDP, 1)] {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&[192, 0, 2, 1]);
            let key = ServiceKey { address, port: [0, 80], protocol, family: 4 };
            let service = Service {
                index: table,
                pool,
                slot_first: table * SLOTS,
                slot_count: SLOTS,
                mode: MODE_DSR,
                on_sick_udp: ON_SICK_REHASH,
                udp_idle_ns: UDP_IDLE,
                ..Service::default()
            };
            tables.put_service(key, service);
        }
        let seats: Vec<Seat> = rig.membership.seats().to_vec();
        let mut world = Self {
            rig,
            tables,
            lives: BTreeMap::new(),
            connections: Flows::new(),
            datagrams: Flows::new(),
            owners: HashMap::new(),
            mutant,
            fault: None,
        };
        (1..).zip(seats).for_each(|(who, seat)| world.begin(who, seat.backend));
        world.publish();
        world
    }

    /// As the agent does: the record and the bits, before any slot names it.
    fn begin(&mut self, who: u64, backend: BackendRef) {
        self.tables.add_backend(backend.index(), 0, backend.generation());
        let before = self.owners.insert(backend, who);
        self.check(before.is_none_or(|before| before == who), || {
            format!("{backend:?} was {before:?}'s and is {who}'s")
        });
        self.lives.insert(who, Life { backend, healthy: true, drained: false, leaving: false });
    }

    fn check(&mut self, right: bool, what: impl FnOnce() -> String) {
        if !right {
            self.fault.get_or_insert_with(what);
        }
    }

    /// The slots as the membership has them, unless a mutant knows better.
    fn publish(&mut self) {
        let before = std::mem::take(&mut self.tables.slots);
        let wanted = self.rig.tables.concat();
        let word = |(index, &slot): (usize, &Slot)| match (self.mutant, before.get(index)) {
            (Some(Mutant::NoDrain), _) => Slot::settled(slot.current()),
            (Some(Mutant::PreviousOfTheLastChange), Some(old)) if slot.drains() => {
                if old.current() == slot.current() {
                    *old
                } else {
                    Slot::new(slot.current(), old.current())
                }
            }
            _ => slot,
        };
        self.tables.slots = wanted.iter().enumerate().map(word).collect();
    }

    fn put_bits(&mut self, life: Life) {
        let Life { backend, healthy, drained, leaving } = life;
        let takes = healthy && !drained && !leaving;
        self.tables.put_bit(Bitmap::TakesNew, backend.index(), takes);
        self.tables.put_bit(Bitmap::ServesOld, backend.index(), healthy);
        self.tables.put_bit(Bitmap::Allowed, backend.index(), !drained && !leaving);
    }

    fn retable(&mut self) {
        self.rig.retable();
        self.publish();
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Enter(who) => self.enter(who),
            Step::Leave(who) => self.leave(who),
            Step::Weigh(who, weight) => {
                if let Some(life) = self.lives.get(&who) {
                    self.rig.membership.weigh(life.backend.index(), weight);
                    self.retable();
                }
            }
            Step::Drain(who, on) => {
                if let Some(life) = self.lives.get_mut(&who).filter(|life| !life.leaving) {
                    life.drained = on;
                    let life = *life;
                    self.put_bits(life);
                    self.rig.membership.set_drained(life.backend.index(), on);
                    self.retable();
                }
            }
            Step::Health(who, on) => {
                if let Some(life) = self.lives.get_mut(&who) {
                    life.healthy = on;
                    let life = *life;
                    self.put_bits(life);
                }
            }
            Step::Syn(client) => self.syn(client),
            Step::Data(client) => self.data(client),
            Step::Datagram(client) => self.datagram(client),
            Step::All => {
                (0..CLIENTS).for_each(|client| self.data(client));
                (0..CLIENTS).for_each(|client| self.datagram(client));
            }
            Step::Wait(span) => self.wait(span),
        }
    }

    fn enter(&mut self, who: u64) {
        if self.lives.get(&who).is_some_and(|life| !life.leaving) {
            return;
        }
        match self.rig.enter(who) {
            Err(NoRoom { count }) => assert_eq!(count, INDICES),
            Ok(Entered::Again(backend)) => {
                let life = self.lives.get_mut(&who).expect("it is leaving");
                assert_eq!(life.backend, backend);
                (life.leaving, life.drained) = (false, false);
                let life = *life;
                self.put_bits(life);
                self.retable();
            }
            Ok(Entered::New(backend)) => {
                self.begin(who, backend);
                self.retable();
            }
        }
    }

    fn leave(&mut self, who: u64) {
        let members = self.lives.values().filter(|life| !life.leaving).count();
        let Some(life) = self.lives.get_mut(&who).filter(|life| !life.leaving) else {
            return;
        };
        if members == 1 {
            return;
        }
        life.leaving = true;
        let life = *life;
        self.put_bits(life);
        self.rig.leave(life.backend);
        self.retable();
        if self.mutant == Some(Mutant::NoWaitForTheEnd) {
            // Its flows are not told that it is no more.
            self.tables.backends[life.backend.index() as usize].generation = 0;
        }
    }

    fn wait(&mut self, span: Nanos) {
        self.tables.advance_ns(span);
        let gone = self.rig.pass(span);
        self.publish();
        gone.into_iter().for_each(|backend| self.gone(backend));
    }

    fn gone(&mut self, backend: BackendRef) {
        let found = self.lives.iter().find(|(_, life)| life.backend == backend);
        let who = *found.expect("it was leaving").0;
        self.lives.remove(&who);
        for bitmap in [Bitmap::TakesNew, Bitmap::ServesOld, Bitmap::Allowed] {
            self.tables.put_bit(bitmap, backend.index(), false);
        }
        self.tables.backends[backend.index() as usize].generation = 0;
        self.rig.membership.release(backend, self.rig.now);
        self.connections.retain(|_, (owner, _)| *owner != who);
        self.datagrams.retain(|_, (owner, _)| *owner != who);
    }

    fn syn(&mut self, client: u16) {
        let who = self.send(client, PROTOCOL_TCP, SYN);
        self.check_new(who);
        if who == 0 {
            self.connections.remove(&client);
        } else {
            self.connections.insert(client, (who, self.rig.now));
        }
    }

    fn data(&mut self, client: u16) {
        let Some((before, sent)) = self.connections.get(&client).copied() else {
            return;
        };
        let who = self.send(client, PROTOCOL_TCP, ACK);
        let idle = DRAIN <= self.rig.now - sent;
        self.check(idle || who == before, || {
            format!("the connection of {client} went from {before} to {who}")
        });
        self.connections.insert(client, (who, self.rig.now));
    }

    fn datagram(&mut self, client: u16) {
        let who = self.send(client, PROTOCOL_UDP, 0);
        let Some((before, sent)) = self.datagrams.insert(client, (who, self.rig.now)) else {
            return;
        };
        let idle = UDP_IDLE <= self.rig.now - sent;
        let serves = self.lives.get(&before).is_some_and(|life| life.healthy);
        self.check(idle || !serves || who == before, || {
            format!("the datagrams of {client} went from {before} to {who}")
        });
    }

    fn check_new(&mut self, who: u64) {
        let takes = |life: &Life| life.healthy && !life.drained && !life.leaving;
        let any = self.lives.values().any(takes);
        let fit = self.lives.get(&who).is_some_and(takes);
        self.check(!any || fit, || format!("a connection was given to {who}, who takes none"));
    }

    /// Sends a packet; who gets it, or 0.
    fn send(&mut self, client: u16, protocol: u8, flags: u8) -> u64 {
        let source = (IpAddr::from([198, 51, 100, 1]), client);
        let destination = (IpAddr::from([192, 0, 2, 1]), 80);
        let frame = Frame { protocol, ..Frame::tcp(source, destination, flags) }.bytes();
        let outcome = decide(&Bytes::new(&frame), &self.tables, &self.tables);
        let Outcome::Steered(steered) = outcome else {
            // None is allowed: all are drained or leaving.
            let none =
                matches!(outcome, Outcome::Dropped(Dropped { reason: Reason::NoneTakesNew, .. }));
            self.check(none, || format!("not steered: {outcome:?}"));
            return 0;
        };
        let to = steered.backend;
        let who = self.lives.iter().find(|(_, life)| life.backend == to).map(|(who, _)| *who);
        self.check(who.is_some(), || format!("a packet went to {to:?}, which nobody is"));
        who.unwrap_or(0)
    }
}

fn histories(mutant: Option<Mutant>, cases: u32) -> Result<(), TestError<Vec<Step>>> {
    // The same histories every time; a failing one is printed at its shortest.
    let config = ProptestConfig { cases, failure_persistence: None, ..Default::default() };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let run = |steps: Vec<Step>| {
        let mut world = World::new(mutant);
        for step in &steps {
            world.take(step);
            if let Some(fault) = &world.fault {
                return Err(TestCaseError::fail(fault.clone()));
            }
        }
        Ok(())
    };
    TestRunner::new_with_rng(config, random).run(&vec(step(), 1..160), run)
}

#[test]
fn no_change_of_members_moves_a_flow_that_must_stay() {
    histories(None, 4_000).unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn histories_find_each_rule_that_is_taken_out() {
    for mutant in [Mutant::NoDrain, Mutant::PreviousOfTheLastChange, Mutant::NoWaitForTheEnd] {
        assert!(histories(Some(mutant), 500).is_err(), "{mutant:?} was not found");
    }
}
