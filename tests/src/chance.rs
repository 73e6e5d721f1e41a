//! Random tables and packets from a seed: right, wrong and in between.

/// Fragments, extension headers, ICMP, protocols without ports.
mod rare;
/// Services by exact keys and by prefixes, of all policies.
mod services;

use std::net::IpAddr;

use sickbay_shared::abi::{BackendRef, FlowEntry, NEXT_HOP_VALID, POOL_PANICS};
use sickbay_shared::hash::{flow_mark, remix};
use sickbay_shared::model::frame::Frame;
use sickbay_shared::model::{Bytes, ModelTables};
use sickbay_shared::packet::{PROTOCOL_TCP, parse};
use sickbay_shared::service;
use sickbay_shared::steer::hash;
use sickbay_shared::tables::{Bitmap, Memory as _, Store, Tables as _};

const SECOND_NS: u64 = 1_000_000_000;
/// Ages of entries, in seconds; none is close to a limit, so that a slow run decides alike.
const AGES_S: [u64; 6] = [0, 3, 12, 20, 40, 200];
const CLIENTS: u32 = 12;

/// Numbers from a seed.
#[derive(Clone, Copy, Debug)]
pub struct Chance {
    seed: u64,
    turn: u32,
}

impl Chance {
    /// The numbers of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, turn: 0 }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.turn += 1;
        remix(self.seed, self.turn)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u32) -> u32 {
        (self.number() % u64::from(bound)) as u32
    }

    /// True `percent` times in a hundred.
    pub fn happens(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }
}

/// Tables, and the addresses and ports of their services.
#[derive(Clone, Debug)]
pub struct World {
    /// The tables.
    pub tables: ModelTables,
    services: Vec<(IpAddr, u16, u8)>,
}

impl World {
    /// Random tables whose entries have ages before `now_ns`.
    #[must_use]
    pub fn new(chance: &mut Chance, now_ns: u64) -> Self {
        let words = if chance.happens(5) { 64 } else { chance.one_of(&[1, 2, 4]) };
        let mut tables = ModelTables::new(words);
        tables.clock_ns.set(now_ns);
        let pools = if words == 64 { 1 } else { words };
        let pool_words = words / pools;
        let mut members = Vec::new();
        for pool in 0..pools {
            tables.add_pool(pool * pool_words, pool_words);
            members.push(add_backends(&mut tables, chance, pool, pool_words * 64));
        }
        tables.heartbeats_ns =
            [0, 200, 0].map(|age_s| now_ns.saturating_sub(age_s * SECOND_NS)).to_vec();
        for pool in 0..pools {
            tables.put_panic(pool, chance.happens(15));
        }
        // Not zero, so that a program that knows no seed finds no SYN's entry.
        tables.header.boot_id = *b"0123456789abcdef";
        let mut world = Self { tables, services: Vec::new() };
        services::add(&mut world, chance, &members);
        world.limit_budgets(chance);
        if chance.happens(10) {
            world.disturb_counts(chance);
        }
        world.add_entries(chance, &members);
        world.mark_entries();
        if chance.happens(10) {
            world.tables.marks.replace(None);
        }
        world
    }

    /// A random packet, most often to one of the services.
    #[must_use]
    pub fn frame(&self, chance: &mut Chance) -> Vec<u8> {
        let (address, port, protocol) = chance.one_of(&self.services);
        let mut frame = self.client_frame(chance.below(CLIENTS), address, port, protocol);
        frame.flags = chance.one_of(&[0x02, 0x02, 0x02, 0x10, 0x10, 0x18, 0x12, 0x04, 0xc2, 0x00]);
        frame.payload_bytes = chance.below(80) as usize;
        if chance.happens(30) {
            rare::make(&mut frame, chance);
        }
        if chance.happens(20) {
            frame.tags = vec![chance.one_of(&[0x8100, 0x88a8])];
        }
        if chance.happens(5) {
            frame.tags.push(0x8100);
        }
        if chance.happens(20) {
            frame.option_words = chance.below(11) as u8;
        }
        match chance.below(40) {
            0 => frame.protocol = chance.number() as u8,
            1 => frame.fragment = chance.number() as u16,
            2 => frame.tags.push(0x8100),
            3 => frame.destination.1 = chance.number() as u16,
            4 => frame.mac[0] ^= 1,
            5 => frame.protocol = chance.one_of(&[0, 43, 44, 50, 51, 58, 60, 1, 132]),
            _ => {}
        }
        let mut bytes = frame.bytes();
        if chance.happens(5) {
            let at = chance.below(bytes.len().min(80) as u32) as usize;
            bytes[at] = chance.number() as u8;
        }
        if chance.happens(5) {
            bytes.truncate(14 + chance.below(bytes.len() as u32 - 14) as usize);
        }
        bytes
    }

    /// Changes health here and there, as probes do.
    pub fn disturb_health(&mut self, chance: &mut Chance) {
        for _ in 0..chance.below(8) {
            let index = chance.below(self.tables.backends.len() as u32);
            if self.tables.backends[index as usize].generation != 0 {
                self.tables.put_health(index, chance.happens(50));
            }
        }
    }

    fn client_frame(&self, client: u32, address: IpAddr, port: u16, protocol: u8) -> Frame {
        let [_, _, _, low] = client.to_be_bytes();
        let source = match address {
            IpAddr::V4(_) => IpAddr::from([198, 51, 100, low % 4]),
            IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 1, 2, 3, u16::from(low % 4)]),
        };
        let source = (source, 40_000 + u16::from(low));
        Frame { protocol, ..Frame::tcp(source, (address, port), 0) }
    }

    /// Purses that are empty, or never are: how fast one empties is no matter of chance.
    fn limit_budgets(&mut self, chance: &mut Chance) {
        let mut limit = |percent| if chance.happens(percent) { 0 } else { u32::MAX };
        let header = &mut self.tables.header;
        header.embryonic_inserts_per_second = limit(10);
        header.flow_inserts_per_second = limit(10);
        header.replies_per_second = limit(30);
        header.drop_records_per_second = limit(50);
    }

    /// Counts that are ahead of the bits or behind them, as between two stores of the agent.
    fn disturb_counts(&mut self, chance: &mut Chance) {
        for count in &mut self.tables.group_counts {
            *count = (*count + chance.below(3)).saturating_sub(chance.below(3));
        }
        for count in &mut self.tables.pool_counts {
            let (flags, number) = (*count & POOL_PANICS, *count & u64::from(u32::MAX));
            let more = number + u64::from(chance.below(5));
            *count = flags | more.saturating_sub(u64::from(chance.below(5)));
        }
    }

    /// Marks the flows that have entries.
    fn mark_entries(&mut self) {
        for (_, flow) in self.tables.entries.borrow().keys() {
            let index = service::find(&self.tables, flow);
            if let Some(service) = self.tables.service(index) {
                self.tables.mark(flow_mark(hash(service, flow)));
            }
        }
    }

    fn add_entries(&mut self, chance: &mut Chance, members: &[Vec<BackendRef>]) {
        let now_ns = self.tables.clock_ns.get();
        for (address, port, protocol) in self.services.clone() {
            for client in 0..CLIENTS {
                if chance.happens(60) {
                    continue;
                }
                let frame = self.client_frame(client, address, port, protocol).bytes();
                let headers = parse(&Bytes::new(&frame)).expect("a frame without fault");
                let backend = {
                    let pool = chance.below(members.len() as u32);
                    chance.one_of(&members[pool as usize])
                };
                let stale = chance.happens(10);
                let generation = backend.generation() + u32::from(stale);
                let age_ns = chance.one_of(&AGES_S) * SECOND_NS;
                let entry = FlowEntry {
                    seen_ns: now_ns.saturating_sub(age_ns),
                    backend: BackendRef::new(backend.index(), generation),
                    reserved: 0,
                };
                let embryonic = protocol == PROTOCOL_TCP && chance.happens(40);
                let store = if embryonic { Store::Embryonic } else { Store::Flows };
                self.tables.entries.borrow_mut().insert((store, headers.flow), entry);
                if embryonic {
                    let seen_ns = self.tables.embryonic_seen_ns.get().max(entry.seen_ns);
                    self.tables.embryonic_seen_ns.set(seen_ns);
                }
            }
        }
    }
}

/// Backends of a pool, as many as fit or fewer, in a state of health that differs from pool to
/// pool: all, some, few or none.
fn add_backends(
    tables: &mut ModelTables,
    chance: &mut Chance,
    pool: u32,
    room: u32,
) -> Vec<BackendRef> {
    let count = 1 + chance.below(room);
    let healthy_percent = chance.one_of(&[100, 90, 50, 10, 1, 0]);
    let allowed_percent = chance.one_of(&[100, 50, 5, 0]);
    let mut members = Vec::new();
    for offset in 0..count {
        let index = pool * room + offset;
        let generation = 1 + chance.below(4094);
        members.push(tables.add_backend(index, pool, generation));
        tables.put_health(index, chance.happens(healthy_percent));
        tables.put_bit(Bitmap::Allowed, index, chance.happens(allowed_percent));
        if chance.happens(5) {
            tables.put_bit(Bitmap::TakesNew, index, false);
        }
        let backend = &mut tables.backends[index as usize];
        backend.next_hop = (chance.number() >> 16) | NEXT_HOP_VALID;
        if chance.happens(10) {
            backend.next_hop &= !NEXT_HOP_VALID;
        }
        backend.shard = chance.one_of(&[0, 1, 2, 9]);
        backend.source_mac = chance.number() >> 16;
        // A test-run's packets come in by interface 1.
        backend.interface_index = chance.one_of(&[1, 2, 9]);
    }
    members
}
