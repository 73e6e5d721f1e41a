//! What happens: health, membership, clients and time.

use std::collections::HashMap;
use std::format;
use std::net::IpAddr;
use std::string::String;
use std::vec::Vec;

use crate::abi::{
    BackendRef, MODE_DSR, ON_SICK_REHASH, POOL_NONE, POOL_PANICS, Service, ServiceKey, Slot,
};
use crate::limits::EMBRYONIC_LIFE_NS;
use crate::model::frame::{ACK, FIN, Frame, SYN};
use crate::model::{Bytes, Lie, ModelTables};
use crate::packet::{PROTOCOL_TCP, PROTOCOL_UDP, parse};
use crate::service;
use crate::steer::{AsItIs, Outcome, Path, decide, decide_rest, hash};
use crate::tables::{Bitmap, Store};

/// Backends of the pool, indices 0 and up.
const OWN: u32 = 6;
/// Backends of the backup pool, indices 64 and up.
const SPARE: u32 = 2;
/// Backends of both.
pub(super) const BACKENDS: u32 = OWN + SPARE;
pub(super) const CLIENTS: u16 = 16;
/// Slots of the pool's table; the backup pool's has three.
pub(super) const SLOTS: u32 = 7;
pub(super) const SECOND_NS: u64 = 1_000_000_000;
const UDP_IDLE_S: u64 = 30;
pub(super) const STALE_AFTER_S: u64 = 60;

/// The rules of a history.
#[derive(Clone, Debug)]
pub(super) struct Policies {
    pub(super) all_sick: u8,
    pub(super) on_sick_tcp: u8,
    pub(super) on_sick_udp: u8,
    pub(super) stale: u8,
    pub(super) has_backup: bool,
    /// The pool panics below this many that take new flows, until there is one more.
    pub(super) panic_below: u64,
}

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// A backend turns healthy or sick.
    Health(u32, bool),
    /// A backend is drained, or no longer.
    Drain(u32, bool),
    /// A client opens a connection, perhaps from a port that has one, perhaps once more.
    Syn(u16),
    /// A client sends on its connection.
    Data(u16),
    /// A client closes its connection.
    Close(u16),
    /// A client sends a datagram.
    Datagram(u16),
    /// A client's entries give way to others.
    Evict(u16),
    /// A slot goes to another backend of the pool.
    Rewrite(u32, u32),
    /// A backend of the pool leaves; its index is used anew after the drain.
    Retire(u32),
    /// Every client sends, and a drain ends.
    Settle,
    /// The shards live, or are dead.
    Beat(bool),
    /// Time passes, in seconds.
    Wait(u64),
}

/// A flow, and whom it was given to.
#[derive(Clone, Copy)]
struct Promise {
    backend: BackendRef,
    /// Of TCP the SYN, of UDP the last packet.
    at_ns: u64,
    /// The client has answered the SYN's answer.
    established: bool,
}

pub(super) struct World {
    pub(super) tables: ModelTables,
    pub(super) policies: Policies,
    drained: [bool; BACKENDS as usize],
    healthy: [bool; BACKENDS as usize],
    retired: [bool; BACKENDS as usize],
    beats: bool,
    connections: HashMap<u16, Promise>,
    datagrams: HashMap<u16, Promise>,
    /// Connections of an index's former use.
    orphans: HashMap<u16, BackendRef>,
}

fn index(which: u32) -> u32 {
    if which < OWN { which } else { 64 + which - OWN }
}

impl World {
    pub(super) fn new(policies: &Policies, lie: Option<Lie>) -> Self {
        let mut tables = ModelTables::new(2);
        tables.lie = lie;
        tables.clock_ns.set(1_000 * SECOND_NS);
        tables.heartbeats_ns = [1_000 * SECOND_NS].to_vec();
        let (own, spare) = (tables.add_pool(0, 1), tables.add_pool(1, 1));
        for which in 0..BACKENDS {
            tables.add_backend(index(which), if which < OWN { own } else { spare }, 3);
        }
        let own_slots = (0..SLOTS).map(|slot| slot % OWN);
        let spare_slots = [0, 1, 0].map(|slot| 64 + slot);
        let settled = |index| Slot::settled(BackendRef::new(index, 3));
        tables.slots = own_slots.chain(spare_slots).map(settled).collect();
        for (index, protocol) in [(0, PROTOCOL_TCP), (1, PROTOCOL_UDP)] {
            let mut address = [0; 16];
            address[..4].copy_from_slice(&[192, 0, 2, 1]);
            let key = ServiceKey { address, port: [0, 80], protocol, family: 4 };
            let service = Service {
                index,
                pool: own,
                slot_count: SLOTS,
                backup_pool: if policies.has_backup { spare } else { POOL_NONE },
                backup_slot_first: SLOTS,
                backup_slot_count: if policies.has_backup { 3 } else { 0 },
                mode: MODE_DSR,
                all_sick: policies.all_sick,
                on_sick_tcp: policies.on_sick_tcp,
                on_sick_udp: policies.on_sick_udp,
                stale: policies.stale,
                stale_after_ns: STALE_AFTER_S * SECOND_NS,
                udp_idle_ns: UDP_IDLE_S * SECOND_NS,
                ..Service::default()
            };
            tables.put_service(key, service);
        }
        Self {
            tables,
            policies: policies.clone(),
            drained: [false; BACKENDS as usize],
            healthy: [true; BACKENDS as usize],
            retired: [false; BACKENDS as usize],
            beats: true,
            connections: HashMap::new(),
            datagrams: HashMap::new(),
            orphans: HashMap::new(),
        }
    }

    /// Lets it happen; what was promised otherwise is the error.
    pub(super) fn take(&mut self, step: &Step) -> Result<(), String> {
        match *step {
            Step::Health(which, healthy) => {
                self.healthy[which as usize] = healthy;
                self.put_bits(which);
            }
            Step::Drain(which, drained) => {
                self.drained[which as usize] = drained;
                self.put_bits(which);
            }
            Step::Syn(client) => self.syn(client)?,
            Step::Data(client) => self.data(client, ACK)?,
            Step::Close(client) => {
                self.data(client, FIN | ACK)?;
                self.connections.remove(&client);
            }
            Step::Datagram(client) => self.datagram(client)?,
            Step::Evict(client) => self.evict(client),
            Step::Rewrite(slot, which) => {
                if which < OWN && !self.retired[which as usize] {
                    self.rewrite(slot as usize, which);
                }
            }
            Step::Retire(which) => self.retire(which),
            Step::Settle => self.settle()?,
            Step::Beat(beats) => {
                self.beats = beats;
                self.wait(0);
            }
            Step::Wait(seconds) => self.wait(seconds),
        }
        Ok(())
    }

    fn wait(&mut self, seconds: u64) {
        self.tables.advance_ns(seconds * SECOND_NS);
        if self.beats {
            self.tables.heartbeats_ns[0] = self.now_ns();
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.tables.clock_ns.get()
    }

    /// The bits as the agent sets them, and its panic.
    fn put_bits(&mut self, which: u32) {
        let at = which as usize;
        let (index, healthy) = (index(which), self.healthy[at]);
        let member = !self.drained[at] && !self.retired[at];
        self.tables.put_bit(Bitmap::ServesOld, index, healthy);
        self.tables.put_bit(Bitmap::Allowed, index, member);
        self.tables.put_bit(Bitmap::TakesNew, index, healthy && member);
        for pool in 0..2 {
            let word = self.tables.pool_counts[pool as usize];
            let (count, panics) = (word & u64::from(u32::MAX), word & POOL_PANICS != 0);
            let below = self.policies.panic_below;
            let panics = if panics { count <= below } else { count < below };
            self.tables.put_panic(pool, panics && below != 0);
        }
    }

    fn rewrite(&mut self, slot: usize, which: u32) {
        let generation = self.tables.backends[which as usize].generation;
        let slot = &mut self.tables.slots[slot];
        *slot = Slot::new(BackendRef::new(which, generation), slot.previous());
    }

    fn retire(&mut self, which: u32) {
        let staying = (0..OWN).find(|other| *other != which && !self.retired[*other as usize]);
        let (Some(staying), true) = (staying, which < OWN) else {
            return;
        };
        self.retired[which as usize] = true;
        self.put_bits(which);
        for slot in 0..SLOTS as usize {
            if self.tables.slots[slot].current().index() == which {
                self.rewrite(slot, staying);
            }
        }
    }

    fn evict(&mut self, client: u16) {
        for protocol in [PROTOCOL_TCP, PROTOCOL_UDP] {
            let frame = frame(client, protocol, ACK);
            let flow = parse(&Bytes::new(&frame)).expect("a frame without fault").flow;
            for store in [Store::Flows, Store::Embryonic] {
                self.tables.entries.borrow_mut().remove(&(store, flow));
            }
        }
        self.connections.remove(&client);
        self.datagrams.remove(&client);
        self.orphans.remove(&client);
    }

    /// Flows that send within the drain window outlive its end; then whoever has left is gone, and
    /// his index is used anew.
    fn settle(&mut self) -> Result<(), String> {
        let clients = |flows: &HashMap<u16, Promise>| flows.keys().copied().collect::<Vec<u16>>();
        for client in clients(&self.connections) {
            self.data(client, ACK)?;
        }
        for client in clients(&self.datagrams) {
            self.datagram(client)?;
        }
        for slot in &mut self.tables.slots {
            *slot = Slot::settled(slot.current());
        }
        for which in (0..OWN).filter(|which| self.retired[*which as usize]).collect::<Vec<_>>() {
            let gone = |promise: &Promise| promise.backend.index() == which;
            for (client, promise) in self.connections.extract_if(|_, promise| gone(promise)) {
                self.orphans.insert(client, promise.backend);
            }
            self.datagrams.retain(|_, promise| !gone(promise));
            let generation = self.tables.backends[which as usize].generation + 1;
            self.tables.backends[which as usize].generation = generation;
            self.retired[which as usize] = false;
            self.put_bits(which);
        }
        Ok(())
    }

    fn syn(&mut self, client: u16) -> Result<(), String> {
        self.orphans.remove(&client);
        self.connections.remove(&client);
        let outcome = self.send(client, PROTOCOL_TCP, SYN);
        if let Some(backend) = self.judge_open(client, PROTOCOL_TCP, outcome)? {
            let promise = Promise { backend, at_ns: self.now_ns(), established: false };
            self.connections.insert(client, promise);
        }
        Ok(())
    }

    fn data(&mut self, client: u16, flags: u8) -> Result<(), String> {
        if let Some(former) = self.orphans.remove(&client) {
            let outcome = self.send(client, PROTOCOL_TCP, flags);
            let strays = matches!(outcome, Outcome::Steered(steered)
                if steered.path == Path::Entry && steered.backend.index() == former.index());
            return if strays { Err(format!("{client} strays to {former:?}")) } else { Ok(()) };
        }
        let Some(mut promise) = self.connections.get(&client).copied() else {
            return Ok(());
        };
        if !promise.established && promise.at_ns + EMBRYONIC_LIFE_NS <= self.now_ns() {
            // No handshake takes so long.
            self.connections.remove(&client);
            return Ok(());
        }
        promise.established = true;
        let outcome = self.send(client, PROTOCOL_TCP, flags);
        match self.judge_follow(client, PROTOCOL_TCP, outcome, promise.backend)? {
            Some(backend) => {
                self.connections.insert(client, Promise { backend, ..promise });
            }
            None => {
                self.connections.remove(&client);
            }
        }
        Ok(())
    }

    fn datagram(&mut self, client: u16) -> Result<(), String> {
        let known = self
            .datagrams
            .remove(&client)
            .filter(|promise| self.now_ns() < promise.at_ns + UDP_IDLE_S * SECOND_NS);
        let outcome = self.send(client, PROTOCOL_UDP, 0);
        let backend = match known {
            // Who is not entered, and does not follow a slot that serves, cannot be told from a
            // new flow.
            Some(Promise { backend, .. }) if self.may_seem_new(backend) => self
                .judge_follow(client, PROTOCOL_UDP, outcome, backend)
                .or_else(|_| self.judge_open(client, PROTOCOL_UDP, outcome))?,
            Some(promise) => self.judge_follow(client, PROTOCOL_UDP, outcome, promise.backend)?,
            None => self.judge_open(client, PROTOCOL_UDP, outcome)?,
        };
        if let Some(backend) = backend {
            let promise = Promise { backend, at_ns: self.now_ns(), established: true };
            self.datagrams.insert(client, promise);
        }
        Ok(())
    }

    fn may_seem_new(&self, backend: BackendRef) -> bool {
        self.policies.on_sick_udp == ON_SICK_REHASH && !self.serves(backend)
    }

    fn send(&self, client: u16, protocol: u8, flags: u8) -> Outcome {
        let frame = frame(client, protocol, flags);
        let packet = Bytes::new(&frame);
        // Lies are told to whoever asks first, and the short cut asks before the rules.
        let by_the_rules = self.tables.lie.is_none().then(|| self.decide_by_the_rules(&packet));
        let outcome = decide(&packet, &self.tables, &self.tables);
        if let Some((expected, tables)) = by_the_rules {
            assert_eq!(outcome, expected, "the short cut leads elsewhere");
            assert_eq!(*self.tables.entries.borrow(), *tables.entries.borrow());
        }
        outcome
    }

    /// What becomes of the packet without the short cut, and of a copy of the tables.
    fn decide_by_the_rules(&self, packet: &Bytes<'_>) -> (Outcome, ModelTables) {
        let tables = self.tables.clone();
        let headers = parse(packet).expect("a frame without fault");
        let index = service::find(&tables, &headers.flow);
        let hash = hash(&tables.services[index as usize], &headers.flow);
        let outcome = decide_rest(&headers, index, hash, &tables, &tables, &AsItIs);
        (outcome, tables)
    }
}

fn frame(client: u16, protocol: u8, flags: u8) -> Vec<u8> {
    let source = (IpAddr::from([198, 51, 100, 1]), client);
    let destination = (IpAddr::from([192, 0, 2, 1]), 80);
    Frame { protocol, ..Frame::tcp(source, destination, flags) }.bytes()
}
