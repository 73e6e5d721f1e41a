//! Random services, by exact keys and by prefixes, of all policies.

use std::net::IpAddr;

use sickbay_shared::abi::{
    ALL_SICK_DROP, ALL_SICK_OPEN, ALL_SICK_RESET, AddressPrefixKey, BackendRef, HASH_BY_FLOW,
    HASH_BY_SOURCE, HEADER_HAS_PREFIXES, MODE_DSR, MODE_OBSERVE, ON_SICK_KEEP, ON_SICK_REHASH,
    ON_SICK_RESET, POOL_NONE, PortPrefixKey, SERVICE_ECHO, STALE_LAST, STALE_OPEN, Service,
    ServiceKey, Slot,
};
use sickbay_shared::packet::{PROTOCOL_TCP, PROTOCOL_UDP};

use super::{Chance, SECOND_NS, World, rare};
use crate::steering::SERVICES;

/// Idle limit of UDP entries in these tables.
const UDP_IDLE_S: u64 = 30;
/// Heartbeats are fresh, or 200 s old.
const STALE_AFTER_S: u64 = 60;
/// Services by an exact key, and by prefixes.
const EXACT: u32 = 6;
const BY_PREFIX: u32 = 4;

/// Adds services to a world whose pools have these members.
pub(super) fn add(world: &mut World, chance: &mut Chance, members: &[Vec<BackendRef>]) {
    for index in 0..EXACT {
        let (address, protocol) = (vip(chance), chance.one_of(&[PROTOCOL_TCP, PROTOCOL_UDP]));
        let port = 80 + index as u16;
        let (address_bytes, family) = bytes(address);
        let key = ServiceKey { address: address_bytes, port: port.to_be_bytes(), protocol, family };
        let service = service(world, chance, index, members);
        world.tables.put_service(key, service);
        if chance.happens(2) {
            // A key of no service's index.
            world.tables.service_keys.insert(key, chance.one_of(&[SERVICE_ECHO, SERVICES]));
        }
        if chance.happens(50) {
            let protocol = rare::echo_protocol(address);
            let key = ServiceKey { port: [0; 2], protocol, ..key };
            world.tables.service_keys.insert(key, SERVICE_ECHO);
        }
        world.services.push((address, port, protocol));
    }
    world.tables.services.resize((EXACT + BY_PREFIX) as usize, Service::default());
    for index in EXACT..EXACT + BY_PREFIX {
        world.tables.services[index as usize] = service(world, chance, index, members);
    }
    if chance.happens(90) {
        world.tables.header.flags |= HEADER_HAS_PREFIXES;
    }
    add_prefixes(world, chance);
}

/// Address prefixes, some within others, with ports of either protocol or any.
fn add_prefixes(world: &mut World, chance: &mut Chance) {
    for (number, (address, bits)) in [
        (IpAddr::from([192, 0, 2, 0]), 24),
        (IpAddr::from([192, 0, 0, 0]), 12),
        (IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32),
        (IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 113),
    ]
    .into_iter()
    .enumerate()
    {
        let (address_bytes, family) = bytes(address);
        let bits = AddressPrefixKey::BITS_BEFORE + bits;
        let key = AddressPrefixKey { bits, family, reserved: [0; 3], address: address_bytes };
        world.tables.address_prefixes.push((key, number as u32));
        let mut ports = Vec::new();
        for _ in 0..1 + chance.below(8) {
            let length = chance.one_of(&[0, 8, 9, 11, 11, 15, 16]);
            let port = (80 + chance.below(40)) as u16 & (0xffff_u32 << (16 - length)) as u16;
            let key = PortPrefixKey {
                bits: PortPrefixKey::BITS_BEFORE + length,
                address_prefix: (number as u32).to_be_bytes(),
                protocol: chance.one_of(&[0, PROTOCOL_TCP, PROTOCOL_UDP]),
                reserved: 0,
                port: port.to_be_bytes(),
            };
            if ports.iter().all(|(other, _)| *other != key) {
                let index = EXACT + chance.below(BY_PREFIX);
                ports.push((key, if chance.happens(5) { SERVICE_ECHO } else { index }));
            }
        }
        world.tables.port_prefixes.extend(ports);
        for _ in 0..2 {
            let protocol = chance.one_of(&[PROTOCOL_TCP, PROTOCOL_UDP]);
            let port = (80 + chance.below(40)) as u16;
            world.services.push((within(chance, address), port, protocol));
        }
    }
}

/// An address that some of the prefixes cover.
fn within(chance: &mut Chance, prefix: IpAddr) -> IpAddr {
    let low = chance.one_of(&[2, 9]);
    match prefix {
        IpAddr::V4(address) => {
            let [a, b, c, _] = address.octets();
            IpAddr::from([a, b, c, low])
        }
        IpAddr::V6(address) => {
            let mut segments = address.segments();
            segments[7] = chance.one_of(&[u16::from(low), 0x8002]);
            IpAddr::from(segments)
        }
    }
}

fn service(
    world: &mut World,
    chance: &mut Chance,
    index: u32,
    members: &[Vec<BackendRef>],
) -> Service {
    let (pool, backup) = (chance.below(members.len() as u32), chance.below(members.len() as u32));
    let slot_count = if chance.happens(3) { 0 } else { 1 + chance.below(40) };
    let slot_first = add_table(world, chance, slot_count, &members[pool as usize]);
    let backup_slot_count = if chance.happens(40) { 1 + chance.below(20) } else { 0 };
    let backup_slot_first = add_table(world, chance, backup_slot_count, &members[backup as usize]);
    let has_backup = backup_slot_count != 0;
    Service {
        hash_seed: chance.number(),
        index,
        pool: if chance.happens(2) { 1000 } else { pool },
        slot_first,
        slot_count,
        backup_pool: if has_backup { backup } else { POOL_NONE },
        backup_slot_first,
        backup_slot_count,
        mode: if chance.happens(20) { MODE_OBSERVE } else { MODE_DSR },
        all_sick: chance.one_of(&[ALL_SICK_OPEN, ALL_SICK_OPEN, ALL_SICK_DROP, ALL_SICK_RESET]),
        on_sick_tcp: chance.one_of(&[ON_SICK_KEEP, ON_SICK_REHASH, ON_SICK_RESET]),
        on_sick_udp: chance.one_of(&[ON_SICK_KEEP, ON_SICK_REHASH, ON_SICK_RESET]),
        stale: chance.one_of(&[STALE_LAST, STALE_LAST, STALE_OPEN]),
        hash_by: chance.one_of(&[HASH_BY_FLOW, HASH_BY_FLOW, HASH_BY_SOURCE]),
        udp_idle_ns: UDP_IDLE_S * SECOND_NS,
        stale_after_ns: STALE_AFTER_S * SECOND_NS,
        ..Service::default()
    }
}

/// Adds a table of slots, few of them broken, and returns its first.
fn add_table(world: &mut World, chance: &mut Chance, count: u32, members: &[BackendRef]) -> u32 {
    let first = world.tables.slots.len() as u32;
    for _ in 0..count {
        let current = chance.one_of(members);
        let previous = if chance.happens(20) { chance.one_of(members) } else { current };
        let broken = chance.happens(1);
        let current = if broken { BackendRef::new(current.index(), 77) } else { current };
        let empty = chance.happens(1);
        world.tables.slots.push(if empty { Slot(0) } else { Slot::new(current, previous) });
    }
    first
}

fn vip(chance: &mut Chance) -> IpAddr {
    if chance.happens(50) {
        IpAddr::from([192, 0, 2, 1])
    } else {
        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1])
    }
}

fn bytes(address: IpAddr) -> ([u8; 16], u8) {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            (octets, 4)
        }
        IpAddr::V6(address) => (address.octets(), 6),
    }
}
