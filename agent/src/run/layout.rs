//! From the fleet to the kernel's maps: what stands on the board before the first probe.
//!
//! Written once, before anything is attached: pools, services, tables, backend records and the
//! bits that no probe decides: those of backends without one.

use std::net::IpAddr;

use sickbay_core::hash;
use sickbay_core::maglev::{self, Member};
use sickbay_shared::abi;
use sickbay_shared::abi::{BackendRef, Header, Slot};

use crate::address::Address;
use crate::board::{Board, PanicCounts};
use crate::fleet::{AllSick, Fleet, HashBy, Mode, OnSick, Service, Stale};
use crate::kernel::{Datapath, KernelError, Sizes};
use crate::service_keys::address_bytes;

/// A heartbeat older than this is stale: ten ticks of the engine, rounded up.
pub(super) const HEARTBEAT_LIMIT_NS: u64 = 500_000_000;
/// The first use of every index.
const GENERATION: u32 = 1;

/// Where a fleet is put.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Probing threads.
    pub(super) shards: u32,
    /// The shard of each backend, by fleet backend.
    pub(super) shard_of: &'a [u32],
    /// Generation of the configuration put into force.
    pub(super) generation: u64,
}

/// Puts the fleet on the board and into the kernel's maps.
///
/// # Errors
///
/// A map refuses an entry, or the boot id cannot be read.
pub(super) fn lay_out(
    fleet: &Fleet,
    datapath: &mut Datapath,
    board: &Board,
    place: &Place<'_>,
) -> Result<(), LayoutError> {
    lay_out_backends(fleet, board, place.shard_of);
    for (index, pool) in (0..).zip(&fleet.pools) {
        let record = abi::Pool {
            first_word: pool.first_word,
            word_count: pool.word_count,
            ..abi::Pool::default()
        };
        datapath.insert_pool(index, &record)?;
    }
    for (index, service) in (0..).zip(&fleet.services) {
        let own = (service.pool, service.slot_count);
        board.write_slots(service.slot_first, &table(fleet, service.seed, own));
        if let Some(backup) = &service.backup {
            let own = (backup.pool, backup.slot_count);
            board.write_slots(backup.slot_first, &table(fleet, service.seed, own));
        }
        datapath.set_service(&record(service, index))?;
    }
    // A key last: whatever it leads to is there.
    let keys = &fleet.service_keys;
    for (key, service) in &keys.ports {
        datapath.insert_port_prefix(key, *service)?;
    }
    for (key, number) in keys.address_prefixes() {
        datapath.insert_address_prefix(&key, number)?;
    }
    for (key, service) in keys.service_keys() {
        datapath.insert_service_key(&key, service)?;
    }
    let header = Header {
        shard_count: place.shards,
        generation: place.generation,
        backend_count: Sizes::of(fleet, place.shards).backends,
        target_count: u32::try_from(fleet.targets.len()).expect("targets are counted in u32"),
        heartbeat_limit_ns: HEARTBEAT_LIMIT_NS,
        embryonic_inserts_per_second: fleet.steering.syn_entries_per_second,
        flow_inserts_per_second: fleet.steering.flow_entries_per_second,
        replies_per_second: fleet.steering.answers_per_second,
        drop_records_per_second: fleet.steering.drop_samples_per_second,
        flags: if keys.has_prefixes() { abi::HEADER_HAS_PREFIXES } else { 0 },
        ..Header::default()
    };
    board.write_header(&header).map_err(|source| LayoutError::BootId { source })
}

/// Says from when on each pool panics; how many of it take new flows is looked at now.
pub(super) fn lay_out_panics(fleet: &Fleet, board: &Board) {
    for (index, pool) in (0..).zip(&fleet.pools) {
        if let Some(panic) = pool.panic {
            let members = u32::try_from(pool.backends.len()).expect("backends are counted in u32");
            board.set_panic(index, PanicCounts::of(panic, members));
        }
    }
}

/// Why the fleet could not be laid out.
#[derive(Debug, thiserror::Error)]
pub(super) enum LayoutError {
    /// A map refused an entry.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// /proc is not there.
    #[error("cannot read the boot id from /proc/sys/kernel/random/boot_id: {source}")]
    BootId {
        /// Why.
        source: std::io::Error,
    },
}

fn lay_out_backends(fleet: &Fleet, board: &Board, shard_of: &[u32]) {
    for (backend, &shard) in fleet.backends.iter().zip(shard_of) {
        // A unix socket is nowhere a packet could go, and no service is over its pool.
        let inet = backend.address.inet();
        let (address, family) = inet.map_or(([0; 16], 0), |inet| address_bytes(inet.ip()));
        let record = abi::Backend {
            generation: GENERATION,
            address,
            port: inet.map_or(0, |inet| inet.port()).to_be_bytes(),
            family,
            shard: u8::try_from(shard).expect("at most 256 shards"),
            pool: u32::try_from(backend.pool).expect("pools are counted in u32"),
            ..abi::Backend::default()
        };
        board.write_backend(backend.index, &record);
        board.set_allowed(backend.index, true);
        board.set_serves_old(backend.index, true);
        if backend.judged.is_empty() {
            board.set_takes_new(backend.index, record.pool, true);
        }
    }
}

/// The Maglev table of a pool: all slots settled.
fn table(fleet: &Fleet, seed: u64, (pool, slot_count): (usize, u32)) -> Vec<Slot> {
    let backends = &fleet.backends[fleet.pools[pool].backends.clone()];
    let members: Vec<Member> = backends
        .iter()
        .map(|backend| Member {
            identity: member_identity(&backend.address),
            weight: backend.weight,
        })
        .collect();
    maglev::fill(&members, seed, slot_count)
        .into_iter()
        .map(|member| {
            let index = backends[member as usize].index;
            Slot::settled(BackendRef::new(index, GENERATION))
        })
        .collect()
}

/// What a backend is called in the tables: its address and port, so that every host with this
/// configuration agrees.
fn member_identity(address: &Address) -> u64 {
    let address = address.inet().expect("a service's pool has no unix socket");
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let identity = hash::identity(&ip.octets(), address.port(), b"");
    hash::seeded(identity, 0)
}

fn record(service: &Service, index: u32) -> abi::Service {
    let pool = |pool: usize| u32::try_from(pool).expect("pools are counted in u32");
    let backup = service.backup;
    abi::Service {
        hash_seed: service.seed,
        index,
        pool: pool(service.pool),
        slot_first: service.slot_first,
        slot_count: service.slot_count,
        backup_pool: backup.map_or(abi::POOL_NONE, |backup| pool(backup.pool)),
        backup_slot_first: backup.map_or(0, |backup| backup.slot_first),
        backup_slot_count: backup.map_or(0, |backup| backup.slot_count),
        mode: match service.mode {
            Mode::Observe => abi::MODE_OBSERVE,
            Mode::Dsr => abi::MODE_DSR,
        },
        all_sick: match service.all_sick {
            AllSick::Open => abi::ALL_SICK_OPEN,
            AllSick::Drop => abi::ALL_SICK_DROP,
            AllSick::Reset => abi::ALL_SICK_RESET,
        },
        on_sick_tcp: on_sick(service.on_sick_tcp),
        on_sick_udp: on_sick(service.on_sick_udp),
        stale: match service.stale {
            Stale::Last => abi::STALE_LAST,
            Stale::Open => abi::STALE_OPEN,
        },
        hash_by: match service.hash {
            HashBy::Flow => abi::HASH_BY_FLOW,
            HashBy::Source => abi::HASH_BY_SOURCE,
        },
        udp_idle_ns: service.udp_idle_ns,
        stale_after_ns: service.stale_after_ns,
        ..abi::Service::default()
    }
}

const fn on_sick(policy: OnSick) -> u8 {
    match policy {
        OnSick::Keep => abi::ON_SICK_KEEP,
        OnSick::Rehash => abi::ON_SICK_REHASH,
        OnSick::Reset => abi::ON_SICK_RESET,
    }
}
