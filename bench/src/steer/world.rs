//! A pool of some size, so many of it sick, and flows to it of the kind that a case asks for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Context as _, Result};
use libbpf_rs::{MapCore as _, MapFlags};
use sickbay_core::maglev::{self, Member};
use sickbay_shared::abi::{
    self, ALL_SICK_DROP, Backend, BackendRef, FlowMarks, Header, MODE_DSR, NEXT_HOP_VALID,
    ON_SICK_KEEP, ON_SICK_REHASH, POOL_NONE, Pool, Service, ServiceCounters, ServiceKey, Slot,
};
use sickbay_shared::hash::{below, remix};
use sickbay_shared::limits::{FLOW_MARKS_LINES, POOL_BACKENDS_MAX, WORD_BACKENDS};
use sickbay_shared::model::frame::{ACK, Frame, SYN};
use sickbay_shared::packet::{Flow, PROTOCOL_TCP, PROTOCOL_UDP};
use sickbay_shared::pod::Pod as _;
use sickbay_shared::steer::hash;

use super::kernel::{Kernel, put_array};

/// IP family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    /// 4 or 6.
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::V4 => 4,
            Self::V6 => 6,
        }
    }
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packet {
    Syn,
    Ack,
    Datagram,
    /// A SYN to an address that is no service's.
    NotService,
}

/// Whose slots a case's flows have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slots {
    /// Those of backends that are well.
    Well,
    /// Those of sick ones.
    Sick,
    /// As they come.
    Any,
    /// Those about half way down the table.
    HalfWay,
}

const PORT: u16 = 80;
const SEED: u64 = 7;
const GENERATION: u32 = 1;
/// The loopback, by which a test-run's packets come in: steered packets leave by where they came.
const INTERFACE: u32 = 1;
const FIRST_PORT: u32 = 1_024;
const PORTS: u32 = 60_000;
/// Flows that are looked through for those of a kind, at most.
const LOOKED_AT_MAX: u32 = 60_000_000;

/// The tables that are in force.
pub(crate) struct World<'kernel> {
    kernel: &'kernel Kernel,
    backends: u32,
    slots: Vec<Slot>,
    sick: Vec<bool>,
}

impl<'kernel> World<'kernel> {
    /// Puts a pool of `backends` into force, all of them well.
    pub(crate) fn new(kernel: &'kernel Kernel, backends: u32) -> Result<Self> {
        let slot_count = maglev::table_size(&members(backends)).slot_count;
        Self::of_slots(kernel, backends, slot_count)
    }

    /// The same with a table of so many slots, a prime.
    pub(crate) fn of_slots(
        kernel: &'kernel Kernel,
        backends: u32,
        slot_count: u32,
    ) -> Result<Self> {
        let members = members(backends);
        let table = maglev::fill(&members, SEED, slot_count);
        let settled = |&index: &u32| Slot::settled(BackendRef::new(index, GENERATION));
        let world = Self {
            kernel,
            backends,
            slots: table.iter().map(settled).collect(),
            sick: vec![false; backends as usize],
        };
        world.put_tables(slot_count)?;
        for index in 0..backends {
            world.tell(index, true);
        }
        Ok(world)
    }

    fn slot_count(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("the largest table has 2^23 slots")
    }

    fn put_tables(&self, slot_count: u32) -> Result<()> {
        let board = self.kernel.board();
        // Nobody of a world before this one takes flows any more.
        for index in self.backends..POOL_BACKENDS_MAX {
            board.set_takes_new(index, 0, false);
        }
        let words = self.backends.div_ceil(WORD_BACKENDS).next_power_of_two();
        let unmarked = vec![FlowMarks::default(); FLOW_MARKS_LINES as usize];
        put_array(&self.kernel.map(abi::FLOW_MARKS), &unmarked)?;
        let pool = Pool { first_word: 0, word_count: words, ..Pool::default() };
        put_array(&self.kernel.map(abi::POOLS), &[pool])?;
        for index in 0..self.backends {
            board.write_backend(index, &record(index));
        }
        board.write_slots(0, &self.slots);
        for (index, (family, protocol)) in (0_u32..).zip(SERVICES) {
            self.put_service(index, family, protocol, slot_count)?;
        }
        self.limit_inserts(u32::MAX)
    }

    fn put_service(&self, index: u32, family: Family, protocol: u8, slots: u32) -> Result<()> {
        let service = service(index, slots);
        let (services, keys) = (self.kernel.map(abi::SERVICES), self.kernel.map(abi::SERVICE_KEYS));
        services.update(&index.to_ne_bytes(), service.as_bytes(), MapFlags::ANY)?;
        let mut key = ServiceKey { port: PORT.to_be_bytes(), protocol, ..ServiceKey::default() };
        key.family = family.number();
        match vip(family) {
            IpAddr::V4(address) => key.address[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => key.address = address.octets(),
        }
        keys.update(key.as_bytes(), &index.to_ne_bytes(), MapFlags::ANY)?;
        Ok(())
    }

    /// Says how many entries of new flows a CPU may write in a second.
    pub(crate) fn limit_inserts(&self, embryonic_per_second: u32) -> Result<()> {
        let header = Header {
            embryonic_inserts_per_second: embryonic_per_second,
            flow_inserts_per_second: u32::MAX,
            ..Header::default()
        };
        Ok(self.kernel.board().write_header(&header)?)
    }

    /// Makes so many of a hundred backends sick, scattered over the pool, and the others well.
    pub(crate) fn make_sick(&mut self, percent: u32) {
        let mut order: Vec<u32> = (0..self.backends).collect();
        order.sort_by_key(|&index| remix(u64::from(index), 2));
        let count = (self.backends * percent).div_ceil(100) as usize;
        for (place, &index) in order.iter().enumerate() {
            self.sick[index as usize] = place < count;
            self.tell(index, count <= place);
        }
    }

    fn tell(&self, index: u32, well: bool) {
        let board = self.kernel.board();
        board.set_allowed(index, true);
        board.set_serves_old(index, well);
        board.set_takes_new(index, 0, well);
    }

    /// Whether SYNs have left entries a moment ago, as they do all the time while somebody is sick.
    pub(crate) fn pretend_embryonic(&self, some: bool) -> Result<()> {
        let seen_ns = if some { sickbay_lab::clock::monotonic_ns() } else { 0 };
        let seen = self.kernel.map(abi::EMBRYONIC_SEEN);
        seen.update(&0_u32.to_ne_bytes(), seen_ns.as_bytes(), MapFlags::ANY)?;
        Ok(())
    }

    /// So many different flows, as the replaying program takes them. `from` keeps the flows of one
    /// case apart from those of another.
    pub(crate) fn flows(
        &self,
        family: Family,
        packet: Packet,
        slots: Slots,
        count: u32,
        from: u32,
    ) -> Result<Vec<u64>> {
        let service = service(0, self.slot_count());
        let slot_of = |number| {
            let hash = hash(&service, &flow(family, packet, replayed(from, number)));
            below(hash, self.slot_count()) as usize
        };
        let wanted = |&number: &u32| match slots {
            Slots::Any => true,
            Slots::Well => !self.is_sick(slot_of(number)),
            Slots::Sick => self.is_sick(slot_of(number)),
            Slots::HalfWay => {
                let middle = self.slot_count() as usize / 2;
                slot_of(number).abs_diff(middle) < middle / 50
            }
        };
        let numbers = (0..LOOKED_AT_MAX).filter(wanted).take(count as usize);
        let flows: Vec<u64> = numbers.map(|number| replayed(from, number)).collect();
        (flows.len() == count as usize).then_some(flows).context("too few such flows")
    }

    fn is_sick(&self, slot: usize) -> bool {
        self.sick[self.slots[slot].current().index() as usize]
    }

    /// Whom a new flow goes to while all are well.
    pub(crate) fn current_of(&self, family: Family, packet: Packet, replayed: u64) -> u32 {
        let hash = hash(&service(0, self.slot_count()), &flow(family, packet, replayed));
        self.slots[below(hash, self.slot_count()) as usize].current().index()
    }

    /// The counters of all services, added up.
    pub(crate) fn counters(&self) -> Result<ServiceCounters> {
        let map = self.kernel.map(abi::SERVICE_COUNTERS);
        let mut sum = [0_u64; size_of::<ServiceCounters>() / 8];
        for index in 0..SERVICES.len() {
            let key = u32::try_from(index)?.to_ne_bytes();
            let values = map.lookup_percpu(&key, MapFlags::ANY)?.context("a service's counters")?;
            for value in &values {
                for (word, bytes) in sum.iter_mut().zip(value.chunks_exact(8)) {
                    *word += u64::from_bytes(bytes).expect("eight bytes");
                }
            }
        }
        let bytes: Vec<u8> = sum.iter().flat_map(|word| word.to_ne_bytes()).collect();
        ServiceCounters::from_bytes(&bytes).context("as many bytes")
    }
}

/// Services, by their indices.
const SERVICES: [(Family, u8); 4] = [
    (Family::V4, PROTOCOL_TCP),
    (Family::V6, PROTOCOL_TCP),
    (Family::V4, PROTOCOL_UDP),
    (Family::V6, PROTOCOL_UDP),
];

fn members(backends: u32) -> Vec<Member> {
    (0..u64::from(backends)).map(|n| Member { identity: remix(n, 1), weight: 1 }).collect()
}

fn service(index: u32, slot_count: u32) -> Service {
    Service {
        hash_seed: SEED,
        index,
        pool: 0,
        slot_count,
        backup_pool: POOL_NONE,
        mode: MODE_DSR,
        all_sick: ALL_SICK_DROP,
        on_sick_tcp: ON_SICK_KEEP,
        on_sick_udp: ON_SICK_REHASH,
        udp_idle_ns: 30_000_000_000,
        stale_after_ns: 60_000_000_000,
        ..Service::default()
    }
}

/// A backend whose MAC ends in its index.
fn record(index: u32) -> Backend {
    let [low, middle, high, _] = index.to_le_bytes();
    Backend {
        next_hop: u64::from_le_bytes([2, 0, 1, high, middle, low, 0, 0]) | NEXT_HOP_VALID,
        source_mac: u64::from_le_bytes([2, 0, 0, 0, 0, 0xfe, 0, 0]),
        interface_index: INTERFACE,
        generation: GENERATION,
        ..Backend::default()
    }
}

/// The last four bytes of the MAC of a backend, as the witness sees them.
pub(crate) const fn mac_end(index: u32) -> u64 {
    let [low, middle, high, _] = index.to_le_bytes();
    u32::from_ne_bytes([1, high, middle, low]) as u64
}

const fn vip(family: Family) -> IpAddr {
    match family {
        Family::V4 => IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1)),
        Family::V6 => IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
    }
}

/// So many different flows, whatever their slots.
pub(crate) fn any_flows(count: u32) -> Vec<u64> {
    (0..count).map(|number| replayed(0, number)).collect()
}

/// The n-th flow, as the replaying program takes it: the end of its address, its port.
fn replayed(from: u32, number: u32) -> u64 {
    let client = 0x0a00_0001 + (from << 16) + number / PORTS;
    let port = u16::try_from(FIRST_PORT + number % PORTS).expect("FIRST_PORT + PORTS < 2^16");
    u64::from(client.to_be()) | u64::from(port.to_be()) << 32
}

fn client(family: Family, replayed: u64) -> (IpAddr, u16) {
    let octets = (replayed as u32).to_ne_bytes();
    let port = u16::from_be((replayed >> 32) as u16);
    let [a, b, c, d] = octets;
    let address = match family {
        Family::V4 => IpAddr::V4(octets.into()),
        Family::V6 => {
            let mut whole = Ipv6Addr::new(0x2001, 0xdb8, 0, 9, 0, 0, 0, 0).octets();
            whole[12..].copy_from_slice(&[a, b, c, d]);
            IpAddr::V6(whole.into())
        }
    };
    (address, port)
}

/// A frame of the flow.
pub(crate) fn frame(family: Family, packet: Packet, replayed: u64) -> Vec<u8> {
    let source = client(family, replayed);
    let to = |port| (vip(family), port);
    let frame = match packet {
        Packet::Syn => Frame::tcp(source, to(PORT), SYN),
        Packet::Ack => Frame::tcp(source, to(PORT), ACK),
        Packet::Datagram => Frame::udp(source, to(PORT)),
        Packet::NotService => Frame::tcp(source, to(PORT + 1), SYN),
    };
    Frame { payload_bytes: 20, ..frame }.bytes()
}

fn flow(family: Family, packet: Packet, replayed: u64) -> Flow {
    let (source, port) = client(family, replayed);
    let ports = (u32::from(port) << 16 | u32::from(PORT)).to_be();
    let protocol = if packet == Packet::Datagram { PROTOCOL_UDP } else { PROTOCOL_TCP };
    match (source, vip(family)) {
        (IpAddr::V4(source), IpAddr::V4(vip)) => {
            let word = |address: Ipv4Addr| u32::from_ne_bytes(address.octets());
            Flow::v4(word(source), word(vip), ports, protocol)
        }
        (IpAddr::V6(source), IpAddr::V6(vip)) => {
            Flow::v6(words(source), words(vip), ports, protocol)
        }
        _ => unreachable!("both are of one family"),
    }
}

fn words(address: Ipv6Addr) -> [u32; 4] {
    let octets = address.octets();
    let word = |at: usize| {
        u32::from_ne_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
    };
    [word(0), word(4), word(8), word(12)]
}
