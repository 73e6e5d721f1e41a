//! From the fleet to the kernel's maps: what stands on the board before the first probe.
//!
//! Written once, before anything is attached: pools, services, tables, backend records and the
//! bits that no probe decides: those of backends without one.

use std::net::IpAddr;

use sickbay_core::hash;
use sickbay_core::maglev::Member;
use sickbay_shared::abi;
use sickbay_shared::abi::{Header, ServiceKey};
use sickbay_shared::limits::{
    DROP_RECORDS_PER_SECOND, EMBRYONIC_INSERTS_PER_SECOND, FLOW_INSERTS_PER_SECOND,
    REPLIES_PER_SECOND, WORD_BACKENDS,
};

use crate::address::Address;
use crate::board::Board;
use crate::fleet::{AllSick, Backend, Fleet, Mode, OnSick, Pool, Protocol, Service};
use crate::kernel::{Datapath, KernelError, Sizes};
use crate::membership::{Membership, Table};

/// A heartbeat older than this is stale: ten ticks of the engine, rounded up.
const HEARTBEAT_LIMIT_NS: u64 = 500_000_000;
/// The shard by which backends without a probe go: while the first one lives, so does the agent.
pub(super) const UNPROBED_SHARD: usize = 0;

/// The room that the maps need for `fleet`, probed by `shards` threads.
#[must_use]
pub(super) fn sizes(fleet: &Fleet, shards: u32) -> Sizes {
    let count = |length: usize| u32::try_from(length).expect("counts are below 2^32");
    let words = fleet.pools.iter().map(|pool| pool.first_word + pool.word_count).max();
    let slots = fleet.services.iter().map(|service| service.slot_first + service.slot_count).max();
    Sizes {
        shards,
        backends: words.unwrap_or(0) * WORD_BACKENDS,
        targets: count(fleet.targets.len() + fleet.target_room()),
        services: count(fleet.services.len()),
        service_keys: count(fleet.services.len()),
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
    /// The members of each pool.
    pub(super) members: &'a [Membership],
    /// The shard of each backend, by fleet backend.
    pub(super) shard_of: &'a [usize],
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
    lay_out_backends(fleet, board, place);
    for (index, pool) in (0..).zip(&fleet.pools) {
        let record = abi::Pool {
            first_word: pool.first_word,
            word_count: pool.word_count,
            ..abi::Pool::default()
        };
        datapath.insert_pool(index, &record)?;
    }
    for (pool, members) in place.members.iter().enumerate() {
        for (table, (index, service)) in services_of(fleet, pool).enumerate() {
            board.write_slots(service.slot_first, &members.settled(table));
            datapath.set_service(&record(service, index))?;
            datapath.insert_service_key(&key(service), index)?;
        }
    }
    let sizes = sizes(fleet, place.shards);
    let header = Header {
        shard_count: place.shards,
        generation: place.generation,
        backend_count: sizes.backends,
        target_count: sizes.targets,
        heartbeat_limit_ns: HEARTBEAT_LIMIT_NS,
        embryonic_inserts_per_second: EMBRYONIC_INSERTS_PER_SECOND,
        flow_inserts_per_second: FLOW_INSERTS_PER_SECOND,
        replies_per_second: REPLIES_PER_SECOND,
        drop_records_per_second: DROP_RECORDS_PER_SECOND,
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

fn lay_out_backends(fleet: &Fleet, board: &Board, place: &Place<'_>) {
    let seats = place.members.iter().flat_map(Membership::seats);
    for ((backend, &shard), seat) in fleet.backends.iter().zip(place.shard_of).zip(seats) {
        assert_eq!(
            backend.index,
            seat.backend.index(),
            "a fleet's backends have the first indices"
        );
        let record = backend_record(backend, shard, seat.backend.generation());
        board.write_backend(backend.index, &record);
        board.set_allowed(backend.index, true);
        board.set_serves_old(backend.index, true);
        if backend.judged.is_empty() {
            board.set_takes_new(backend.index, record.pool, true);
        }
    }
}

/// A backend's record, its next hop not known.
pub(super) fn backend_record(backend: &Backend, shard: usize, generation: u32) -> abi::Backend {
    // A unix socket is nowhere a packet could go, and no service is over its pool.
    let inet = backend.address.inet();
    let (address, family) = inet.map_or(([0; 16], 0), |inet| address(inet.ip()));
    abi::Backend {
        generation,
        address,
        port: inet.map_or(0, |inet| inet.port()).to_be_bytes(),
        family,
        shard: u8::try_from(shard).expect("at most 256 shards"),
        pool: u32::try_from(backend.pool).expect("pools are counted in u32"),
        ..abi::Backend::default()
    }
}

/// The members of each pool, with the tables of its services in their order.
pub(super) fn memberships(fleet: &Fleet) -> Vec<Membership> {
    let membership = |(index, pool): (usize, &Pool)| {
        let table = |(_, service): (u32, &Service)| match service.protocol {
            Protocol::Tcp => Table::new(service.seed, service.slot_count, pool.drain_ns, false),
            // A flow that has been idle for longer is no flow any more.
            Protocol::Udp => {
                let drain_ns = pool.drain_ns.min(service.udp_idle_ns);
                Table::new(service.seed, service.slot_count, drain_ns, true)
            }
        };
        let tables = services_of(fleet, index).map(table).collect();
        let backends = fleet.backends[pool.backends.clone()].iter();
        let members = backends.map(|backend| member(&backend.address, backend.weight));
        let indices = (pool.first_word * WORD_BACKENDS, pool.word_count * WORD_BACKENDS);
        Membership::new(indices, members, tables, pool.drain_ns)
    };
    fleet.pools.iter().enumerate().map(membership).collect()
}

/// The services of a pool, each with its index.
pub(super) fn services_of(
    fleet: &Fleet,
    pool: usize,
) -> impl Iterator<Item = (u32, &Service)> + '_ {
    (0..).zip(&fleet.services).filter(move |(_, service)| service.pool == pool)
}

/// A backend as the tables know it.
pub(super) fn member(address: &Address, weight: u32) -> Member {
    Member { identity: member_identity(address), weight }
}

/// What a backend is called in the tables: its address and port, so that every host with this
/// configuration agrees. A unix socket is in no table, and called by its path.
fn member_identity(address: &Address) -> u64 {
    let identity = match address {
        Address::Inet(inet) => {
            let ip = match inet.ip() {
                IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                IpAddr::V6(ip) => ip,
            };
            hash::identity(&ip.octets(), inet.port(), b"")
        }
        Address::Unix(path) => hash::identity(path.as_str().as_bytes(), 0, b""),
    };
    hash::seeded(identity, 0)
}

fn key(service: &Service) -> ServiceKey {
    let (address, family) = address(service.address);
    let protocol = match service.protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    };
    ServiceKey { address, port: service.port.to_be_bytes(), protocol, family }
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
            AllSick::Drop => abi::ALL_SICK_DROP,
        },
        on_sick_tcp: match service.on_sick {
            OnSick::Keep => abi::ON_SICK_KEEP,
        },
        // UDP has no end by which a flow would leave a sick backend.
        on_sick_udp: abi::ON_SICK_REHASH,
        backup_pool: abi::POOL_NONE,
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
