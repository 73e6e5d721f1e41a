//! Packets whose expected fate is written out: description, packet, state of the tables, then
//! action, counters and entry left. Run on the host and in the kernel.
//!
//! The world: one pool of four healthy backends (indices 0 to 3), a backup pool of two that no
//! service uses unless its fixture says so, and services on 192.0.2.1 and
//! 2001:db8::1 whose tables have a single slot, of backend 0. So a flow's place is known without
//! knowing its hash: backend 0, or whichever of the others is left.

/// New TCP flows when no backend takes any.
mod all_sick;
/// Refusals and echo replies.
mod answers;
/// Entries of SYNs, and how they come to last.
mod embryonic;
/// Established TCP flows: they stay.
mod established;
/// Fragments: the first decides, the others follow.
mod fragments;
/// ICMP errors: they follow the flow they tell of.
mod icmp_errors;
/// New TCP flows: whom they go to while some backend takes new flows.
mod new_flows;
/// Services that only observe, and tables that contradict each other.
mod observed_and_broken;
/// Established flows of sick backends: kept, moved or ended.
mod on_sick;
/// New TCP flows under the policies of backup, panic, stale verdicts and refusal.
mod policies;
/// Services of address and port prefixes.
mod prefixes;
/// Packets that are read through to their flow, however they are wrapped.
mod read_through;
/// Datagrams, which have no beginning and no end.
mod udp;
/// Packets that no service is concerned with: not read through, or to none.
mod unread;

use std::net::IpAddr;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::ModelTables;
use super::answer::{echo_reply, rst, unreachable};
use super::frame::{ACK, Extension, FIN, Frame, RST, SYN};
use crate::abi::{
    ALL_SICK_DROP, ALL_SICK_OPEN, ALL_SICK_RESET, AddressPrefixKey, BackendCounters, BackendRef,
    DROP_BACKEND_SICK_RESET, DROP_BROKEN_TABLE, DROP_NONE_TAKES_NEW, DROP_NONE_TAKES_NEW_REFUSED,
    DROP_REPLY_OVER_BUDGET, DROP_UNRESOLVED, FlowEntry, GlobalCounters, HEADER_HAS_PREFIXES,
    MODE_DSR, MODE_OBSERVE, NEXT_HOP_VALID, ON_SICK_KEEP, ON_SICK_REHASH, ON_SICK_RESET, POOL_NONE,
    PortPrefixKey, SERVICE_ECHO, STALE_LAST, STALE_OPEN, Service, ServiceCounters, ServiceKey,
    Slot,
};
use crate::packet::{Flow, PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};
use crate::tables::{Bitmap, Store};

/// A packet and what must become of it.
#[derive(Clone, Debug)]
pub struct Fixture {
    /// What is shown.
    pub description: String,
    /// The frame.
    pub frame: Vec<u8>,
    /// The tables it meets.
    pub tables: ModelTables,
    /// What is done with it.
    pub fate: Fate,
    /// The global counters afterwards.
    pub global: GlobalCounters,
    /// The counters of the services that moved.
    pub services: Vec<(u32, ServiceCounters)>,
    /// The counters of the backends that moved.
    pub backends: Vec<(u32, BackendCounters)>,
    /// The entries that are left: where, and of which backends.
    pub entries: Vec<(Store, BackendRef)>,
    /// The reasons of the records that are put.
    pub records: Vec<u8>,
    /// The answer that is made of the packet.
    pub answer: Vec<u8>,
    /// The entries of first fragments that are left: backend and service.
    pub fragments: Vec<(u32, u32)>,
}

/// What is done with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Passed as it is.
    Pass,
    /// Dropped.
    Drop,
    /// Turned into its answer.
    Answer,
    /// Sent to the backend of this index.
    To(u32),
}

/// The clock of every fixture: 100 s.
pub const NOW_NS: u64 = 100_000_000_000;

const SECOND_NS: u64 = 1_000_000_000;
const GENERATION: u32 = 5;
const CLIENT: ([u8; 4], u16) = ([198, 51, 100, 7], 40_000);
const VIP: [u8; 4] = [192, 0, 2, 1];
/// Bytes of a TCP SYN of IPv4 with its Ethernet header.
const TCP_V4: u64 = 14 + 20 + 20;

/// The services' ports; every service has one slot, at its index.
const WEB: u16 = 80;
const DNS: u16 = 53;
const WATCHED: u16 = 81;
const CLOSING: u16 = 82;
const BROKEN: u16 = 83;

/// All fixtures.
#[must_use]
pub fn all() -> Vec<Fixture> {
    let mut all = unread::all();
    all.extend(read_through::all());
    all.extend(answers::all());
    all.extend(fragments::all());
    all.extend(icmp_errors::all());
    all.extend(new_flows::all());
    all.extend(all_sick::all());
    all.extend(policies::all());
    all.extend(embryonic::all());
    all.extend(established::all());
    all.extend(on_sick::tcp());
    all.extend(on_sick::udp());
    all.extend(prefixes::all());
    all.extend(udp::all());
    all.extend(observed_and_broken::all());
    all
}

impl Fixture {
    fn counts(self, web: ServiceCounters, backends: &[(u32, BackendCounters)]) -> Self {
        self.counts_of(0, web, backends)
    }

    fn counts_of(
        mut self,
        service: u32,
        counters: ServiceCounters,
        backends: &[(u32, BackendCounters)],
    ) -> Self {
        self.services = vec![(service, counters)];
        self.backends = backends.to_vec();
        self
    }

    fn leaves(self, backends: &[u32]) -> Self {
        self.leaves_in(Store::Flows, backends)
    }

    fn leaves_embryonic(self, backends: &[u32]) -> Self {
        self.leaves_in(Store::Embryonic, backends)
    }

    fn leaves_in(mut self, store: Store, backends: &[u32]) -> Self {
        let entry = |index: &u32| (store, BackendRef::new(*index, GENERATION));
        self.entries = backends.iter().map(entry).collect();
        self
    }

    fn leaves_both(mut self, entries: &[(Store, u32)]) -> Self {
        let entry = |(store, index): &(Store, u32)| (*store, BackendRef::new(*index, GENERATION));
        self.entries = entries.iter().map(entry).collect();
        self
    }

    fn answers(mut self, answer: Vec<u8>) -> Self {
        self.answer = answer;
        self
    }

    fn follows(mut self, backend: u32, service: u32) -> Self {
        self.fragments = vec![(backend, service)];
        self
    }

    fn global(mut self, global: GlobalCounters) -> Self {
        self.global = global;
        self
    }

    fn puts(mut self, records: &[u8]) -> Self {
        self.records = records.to_vec();
        self
    }
}

fn fixture(
    description: &str,
    frame: Vec<u8>,
    state: impl FnOnce(&mut ModelTables),
    fate: Fate,
) -> Fixture {
    let mut tables = world();
    state(&mut tables);
    Fixture {
        description: description.into(),
        frame,
        tables,
        fate,
        global: GlobalCounters::default(),
        services: Vec::new(),
        backends: Vec::new(),
        entries: Vec::new(),
        records: Vec::new(),
        answer: Vec::new(),
        fragments: Vec::new(),
    }
}

fn world() -> ModelTables {
    let mut tables = ModelTables::new(2);
    tables.clock_ns.set(NOW_NS);
    tables.heartbeats_ns = vec![NOW_NS];
    let (pool, spare) = (tables.add_pool(0, 1), tables.add_pool(1, 1));
    for index in 0..4 {
        tables.add_backend(index, pool, GENERATION);
    }
    for index in SPARE {
        tables.add_backend(index, spare, GENERATION);
    }
    let own = Slot::settled(BackendRef::new(0, GENERATION));
    let mut vip = [0; 16];
    vip[..4].copy_from_slice(&VIP);
    let services = [
        (vip, 4, WEB, PROTOCOL_TCP, MODE_DSR, ALL_SICK_OPEN),
        (VIP_V6, 6, WEB, PROTOCOL_TCP, MODE_DSR, ALL_SICK_OPEN),
        (vip, 4, DNS, PROTOCOL_UDP, MODE_DSR, ALL_SICK_OPEN),
        (vip, 4, WATCHED, PROTOCOL_TCP, MODE_OBSERVE, ALL_SICK_OPEN),
        (vip, 4, CLOSING, PROTOCOL_TCP, MODE_DSR, ALL_SICK_DROP),
        (vip, 4, BROKEN, PROTOCOL_TCP, MODE_DSR, ALL_SICK_OPEN),
    ];
    for (index, (address, family, port, protocol, mode, all_sick)) in
        services.into_iter().enumerate()
    {
        let service = Service {
            index: index as u32,
            slot_first: tables.slots.len() as u32,
            slot_count: u32::from(port != BROKEN),
            mode,
            all_sick,
            on_sick_udp: ON_SICK_REHASH,
            udp_idle_ns: 30 * SECOND_NS,
            stale_after_ns: 60 * SECOND_NS,
            pool,
            backup_pool: POOL_NONE,
            ..Service::default()
        };
        tables.slots.push(own);
        let key = ServiceKey { address, port: port.to_be_bytes(), protocol, family };
        tables.put_service(key, service);
    }
    tables.slots.push(Slot::settled(BackendRef::new(SPARE[0], GENERATION)));
    for (address, family, protocol) in [(vip, 4, PROTOCOL_ICMP), (VIP_V6, 6, PROTOCOL_ICMPV6)] {
        let key = ServiceKey { address, port: [0; 2], protocol, family };
        tables.service_keys.insert(key, SERVICE_ECHO);
    }
    tables
}

/// The backup pool.
const SPARE: [u32; 2] = [64, 65];

/// The service of this index has the backup pool, with a table of one slot, of its first backend.
fn back_up(tables: &mut ModelTables, service: usize) {
    let backup_slot_first = tables.slots.len() as u32 - 1;
    let service = &mut tables.services[service];
    (service.backup_pool, service.backup_slot_count) = (1, 1);
    service.backup_slot_first = backup_slot_first;
}

/// Backends 0 to 2 are sick.
fn only_3(tables: &mut ModelTables) {
    (0..3).for_each(|index| tables.put_health(index, false));
}

/// The whole pool is sick.
fn none(tables: &mut ModelTables) {
    (0..4).for_each(|index| tables.put_health(index, false));
}

const VIP_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

fn client() -> (IpAddr, u16) {
    (IpAddr::from(CLIENT.0), CLIENT.1)
}

fn tcp(port: u16, flags: u8) -> Frame {
    Frame::tcp(client(), (IpAddr::from(VIP), port), flags)
}

fn syn(port: u16) -> Frame {
    tcp(port, SYN)
}

fn syn_v6(port: u16) -> Frame {
    Frame::tcp(client_v6(), (IpAddr::from(VIP_V6), port), SYN)
}

/// An entry of the client's flow, of this age.
fn enter(tables: &mut ModelTables, port: u16, backend: u32, age_s: u64) {
    enter_in(tables, Store::Flows, port, backend, age_s);
}

/// An embryonic entry of the client's flow, of this age.
fn conceive(tables: &mut ModelTables, backend: u32, age_s: u64) {
    enter_in(tables, Store::Embryonic, WEB, backend, age_s);
    tables.embryonic_seen_ns.set(NOW_NS - SECOND_NS);
}

fn enter_in(tables: &mut ModelTables, store: Store, port: u16, backend: u32, age_s: u64) {
    let protocol = if port == DNS { PROTOCOL_UDP } else { PROTOCOL_TCP };
    let [a, b] = CLIENT.1.to_be_bytes();
    let [c, d] = port.to_be_bytes();
    let ports = u32::from_ne_bytes([a, b, c, d]);
    let (source, destination) = (u32::from_ne_bytes(CLIENT.0), u32::from_ne_bytes(VIP));
    let flow = Flow::v4(source, destination, ports, protocol);
    let entry = FlowEntry {
        seen_ns: NOW_NS.saturating_sub(age_s * SECOND_NS),
        backend: BackendRef::new(backend, GENERATION),
        reserved: 0,
    };
    tables.entries.borrow_mut().insert((store, flow), entry);
    // Every flow may have one: the others fare as well as when none is marked.
    tables.marks.replace(None);
}

/// The slot of the service of this index drains, in favour of another backend.
fn drain(tables: &mut ModelTables, service: usize, backend: u32) {
    let previous = BackendRef::new(0, GENERATION);
    tables.slots[service] = Slot::new(BackendRef::new(backend, GENERATION), previous);
}

fn client_v6() -> (IpAddr, u16) {
    let mut source = VIP_V6;
    source[15] = 7;
    (IpAddr::from(source), CLIENT.1)
}

/// A datagram of the client's.
fn query() -> Frame {
    Frame::udp(client(), (IpAddr::from(VIP), DNS))
}

fn query_v6() -> Frame {
    Frame::udp(client_v6(), (IpAddr::from(VIP_V6), DNS))
}

/// The service over UDP has a key of IPv6 too.
fn serve_v6(tables: &mut ModelTables) {
    let port = DNS.to_be_bytes();
    let key = ServiceKey { address: VIP_V6, port, protocol: PROTOCOL_UDP, family: 6 };
    tables.service_keys.insert(key, 2);
}

fn sent(bytes: u64) -> ServiceCounters {
    ServiceCounters { steered_packets: 1, steered_bytes: bytes, ..ServiceCounters::default() }
}

fn slot_followed(bytes: u64) -> ServiceCounters {
    ServiceCounters { affinity_miss: 1, ..sent(bytes) }
}

fn kept(counters: ServiceCounters) -> ServiceCounters {
    ServiceCounters { kept_on_sick: 1, ..counters }
}

fn received(bytes: u64) -> BackendCounters {
    BackendCounters { steered_packets: 1, steered_bytes: bytes, ..BackendCounters::default() }
}
