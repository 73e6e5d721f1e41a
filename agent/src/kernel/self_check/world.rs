//! The tables of the self-check: two pools, three services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sickbay_shared::abi::{
    self, ALL_SICK_DROP, Backend, BackendRef, Header, Heartbeat, MODE_DSR, NEXT_HOP_VALID,
    ON_SICK_KEEP, POOL_NONE, Pool, Service, ServiceKey, Slot,
};
use sickbay_shared::limits::WORD_BACKENDS;
use sickbay_shared::pod::Pod;

use crate::board::coarse_now_ns;
use crate::kernel::aya::Loaded;
use crate::kernel::error::KernelError;
use crate::kernel::sizes::Sizes;
use crate::service_keys::address_bytes;

/// TEST-NET-2 (RFC 5737).
pub(super) const VIP_V4: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
/// RFC 3849.
pub(super) const VIP_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 2, 0, 0, 0, 0, 1);
/// The port of service 0; the next one has the next.
pub(super) const SERVICE_PORT_FIRST: u16 = 80;
/// The service whose slots are the healthy backend's.
pub(super) const WELL: u32 = 0;
/// The service whose slots are a sick backend's, of the same pool.
pub(super) const DIVERTING: u32 = 1;
/// The service whose only backend is sick: its flows are dropped.
pub(super) const FORLORN: u32 = 2;
/// Of the healthy backend.
pub(super) const NEXT_HOP_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
/// By which its packets leave.
pub(super) const SOURCE_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0x0b];

/// Loopback, by which the kernel has a trial's packets come.
const INTERFACE: u32 = 1;
/// A prime, as a table's size is.
const TABLE_SLOTS: u32 = 7;
/// Of both pools, one word each: the first of the first pool is healthy.
const HEALTHY: u32 = 0;
const SICK: u32 = 1;
const ALONE: u32 = WORD_BACKENDS;
const GENERATION: u32 = 1;
const TCP: u8 = 6;
const SECOND_NS: u64 = 1_000_000_000;

pub(super) fn sizes() -> Sizes {
    Sizes {
        backends: 2 * WORD_BACKENDS,
        services: 3,
        slots: 3 * TABLE_SLOTS,
        pools: 2,
        flows: 64,
        fragments: 64,
        service_keys: 6,
        ..Sizes::default()
    }
}

pub(super) fn lay_out(loaded: &Loaded) -> Result<(), KernelError> {
    let put = |name, index: u32, value: &[u8]| loaded.write(name, &index.to_ne_bytes(), value);
    for index in [HEALTHY, SICK, ALONE] {
        put(abi::BACKENDS, index, backend(index).as_bytes())?;
    }
    for (name, word, bits) in [
        (abi::TAKES_NEW, 0, 0b01_u64),
        (abi::SERVES_OLD, 0, 0b01),
        (abi::ALLOWED, 0, 0b11),
        (abi::ALLOWED, 1, 0b01),
    ] {
        put(name, word, &bits.to_ne_bytes())?;
    }
    put(abi::GROUP_COUNTS, 0, &1_u32.to_ne_bytes())?;
    put(abi::POOL_COUNTS, 0, &1_u64.to_ne_bytes())?;
    for index in [0, 1] {
        let pool = Pool { first_word: index, word_count: 1, ..Pool::default() };
        put(abi::POOLS, index, pool.as_bytes())?;
    }
    put(
        abi::HEARTBEATS,
        0,
        Heartbeat { beat_ns: coarse_now_ns(), ..Heartbeat::default() }.as_bytes(),
    )?;
    put(abi::HEADER, 0, header().as_bytes())?;
    for (service, backend) in [(WELL, HEALTHY), (DIVERTING, SICK), (FORLORN, ALONE)] {
        let slot = Slot::settled(BackendRef::new(backend, GENERATION));
        for index in 0..TABLE_SLOTS {
            put(abi::SLOTS, service * TABLE_SLOTS + index, &slot.0.to_ne_bytes())?;
        }
        let pool = backend / WORD_BACKENDS;
        put(abi::SERVICES, service, rules(service, pool).as_bytes())?;
        for vip in [IpAddr::from(VIP_V4), IpAddr::from(VIP_V6)] {
            loaded.write(
                abi::SERVICE_KEYS,
                key(vip, service).as_bytes(),
                &service.to_ne_bytes(),
            )?;
        }
    }
    Ok(())
}

fn header() -> Header {
    Header {
        magic: abi::MAGIC,
        abi_version: abi::ABI_VERSION,
        shard_count: 1,
        heartbeat_limit_ns: SECOND_NS,
        embryonic_inserts_per_second: u32::MAX,
        flow_inserts_per_second: u32::MAX,
        ..Header::default()
    }
}

fn backend(index: u32) -> Backend {
    let word = |[a, b, c, d, e, f]: [u8; 6]| u64::from_le_bytes([a, b, c, d, e, f, 0, 0]);
    let mut next_hop = NEXT_HOP_MAC;
    // Each has its own; the healthy one's is NEXT_HOP_MAC.
    next_hop[4] = index as u8;
    Backend {
        next_hop: word(next_hop) | NEXT_HOP_VALID,
        source_mac: word(SOURCE_MAC),
        interface_index: INTERFACE,
        generation: GENERATION,
        pool: index / WORD_BACKENDS,
        ..Backend::default()
    }
}

fn rules(index: u32, pool: u32) -> Service {
    Service {
        hash_seed: 1,
        index,
        pool,
        slot_first: index * TABLE_SLOTS,
        slot_count: TABLE_SLOTS,
        backup_pool: POOL_NONE,
        mode: MODE_DSR,
        all_sick: ALL_SICK_DROP,
        on_sick_tcp: ON_SICK_KEEP,
        udp_idle_ns: SECOND_NS,
        stale_after_ns: 60 * SECOND_NS,
        ..Service::default()
    }
}

fn key(vip: IpAddr, service: u32) -> ServiceKey {
    let (address, family) = address_bytes(vip);
    let port = (SERVICE_PORT_FIRST + service as u16).to_be_bytes();
    ServiceKey { address, port, protocol: TCP, family }
}
