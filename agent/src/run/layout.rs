//! From the fleet to the kernel's maps: what stands on the board before the first probe.
//!
//! Written once, before anything is attached: pools, services, tables, backend records and the
//! bits that no probe decides.

use std::net::{IpAddr, SocketAddr};

use sickbay_core::hash;
use sickbay_core::maglev::{self, Member};
use sickbay_shared::abi;
use sickbay_shared::abi::{BackendRef, Header, ServiceKey, Slot};
use sickbay_shared::limits::WORD_BACKENDS;

use crate::board::Board;
use crate::fleet::{AllSick, Fleet, Mode, Pool, Service};
use crate::kernel::{Datapath, KernelError, Sizes};

/// A heartbeat older than this is stale: ten ticks of the engine, rounded up.
const HEARTBEAT_LIMIT_NS: u64 = 500_000_000;
/// The first use of every index.
const GENERATION: u32 = 1;

/// The room that the maps need for `fleet`, probed by `shards` threads.
#[must_use]
pub(super) fn sizes(fleet: &Fleet, shards: u32) -> Sizes {
    let count = |length: usize| u32::try_from(length).expect("counts are below 2^32");
    let words = fleet.pools.iter().map(|pool| pool.first_word + pool.word_count).max();
    let slots = fleet.services.iter().map(|service| service.slot_first + service.slot_count).max();
    Sizes {
        shards,
        backends: words.unwrap_or(0) * WORD_BACKENDS,
        targets: count(fleet.targets.len()),
        services: count(fleet.services.len()),
        slots: slots.unwrap_or(0),
        pools: count(fleet.pools.len()),
        ..Sizes::default()
    }
}

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
        let pool = &fleet.pools[service.pool];
        board.write_slots(service.slot_first, &table(fleet, service, pool));
        datapath.insert_service(&key(service), &record(service, index))?;
    }
    let header = Header {
        shard_count: place.shards,
        generation: place.generation,
        backend_count: sizes(fleet, place.shards).backends,
        target_count: u32::try_from(fleet.targets.len()).expect("targets are counted in u32"),
        heartbeat_limit_ns: HEARTBEAT_LIMIT_NS,
        ..Header::default()
    };
    board.write_header(&header).map_err(|source| LayoutError::BootId { source })
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
        let (address, family) = address(backend.address.ip());
        let record = abi::Backend {
            generation: GENERATION,
            address,
            port: backend.address.port().to_be_bytes(),
            family,
            shard: u8::try_from(shard).expect("at most 256 shards"),
            pool: u32::try_from(backend.pool).expect("pools are counted in u32"),
            ..abi::Backend::default()
        };
        board.write_backend(backend.index, &record);
        board.set_allowed(backend.index, true);
        board.set_serves_old(backend.index, true);
    }
}

/// A service's Maglev table: all slots settled.
fn table(fleet: &Fleet, service: &Service, pool: &Pool) -> Vec<Slot> {
    let backends = &fleet.backends[pool.backends.clone()];
    let members: Vec<Member> = backends
        .iter()
        .map(|backend| Member {
            identity: member_identity(backend.address),
            weight: backend.weight,
        })
        .collect();
    maglev::fill(&members, service.seed, service.slot_count)
        .into_iter()
        .map(|member| {
            let index = backends[member as usize].index;
            Slot::settled(BackendRef::new(index, GENERATION))
        })
        .collect()
}

/// What a backend is called in the tables: its address and port, so that every host with this
/// configuration agrees.
fn member_identity(address: SocketAddr) -> u64 {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let identity = hash::identity(&ip.octets(), address.port(), b"");
    hash::seeded(identity, 0)
}

fn key(service: &Service) -> ServiceKey {
    let (address, family) = address(service.traffic.network.addr());
    let crate::fleet::Ports::Of(ranges) = &service.traffic.ports else { todo!() };
    let port = ranges[0].first.to_be_bytes();
    ServiceKey { address, port, protocol: service.traffic.protocol.number().unwrap_or(6), family }
}

fn record(service: &Service, index: u32) -> abi::Service {
    abi::Service {
        hash_seed: service.seed,
        index,
        pool: u32::try_from(service.pool).expect("pools are counted in u32"),
        slot_first: service.slot_first,
        slot_count: service.slot_count,
        mode: match service.mode {
            Mode::Observe => abi::MODE_OBSERVE,
            Mode::Dsr => abi::MODE_DSR,
        },
        all_sick: match service.all_sick {
            AllSick::Open => abi::ALL_SICK_OPEN,
            AllSick::Drop | AllSick::Reset => abi::ALL_SICK_DROP,
        },
        on_sick: abi::ON_SICK_KEEP,
        udp_idle_ns: service.udp_idle_ns,
        ..abi::Service::default()
    }
}

/// Sixteen bytes and the family, as the maps want them.
fn address(ip: IpAddr) -> ([u8; 16], u8) {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            (bytes, 4)
        }
        IpAddr::V6(ip) => (ip.octets(), 6),
    }
}
