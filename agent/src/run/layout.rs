//! From the fleet to the kernel's maps: what stands on the board before the first probe.
//!
//! Written once, before anything is attached: pools, services, tables, backend records and the
//! bits that no probe decides: those of backends without one.

use sickbay_core::maglev::Member;
use sickbay_shared::abi;
use sickbay_shared::abi::Header;
use sickbay_shared::limits::WORD_BACKENDS;

use crate::address::Address;
use crate::board::{Board, PanicCounts};
use crate::estate::{self, Estate};
use crate::fleet::{AllSick, Backend, Fleet, HashBy, Mode, OnSick, Pool, Protocol, Service, Stale};
use crate::kernel::{Datapath, KernelError, Sizes};
use crate::membership::{Membership, Table};
use crate::service_keys::address_bytes;

use super::heritage::{Heritage, Seating};
use super::slots::PoolSlots;

/// A heartbeat older than this is stale: ten ticks of the engine, rounded up.
pub(super) const HEARTBEAT_LIMIT_NS: u64 = 500_000_000;
/// The shard by which backends without a probe go: while the first one lives, so does the agent.
pub(super) const UNPROBED_SHARD: usize = 0;

/// Where a fleet is put.
#[derive(Debug)]
pub(super) struct Place<'a> {
    /// Probing threads.
    pub(super) shards: u32,
    /// The members of each pool.
    pub(super) members: &'a mut [Membership],
    /// The shard of each backend, by fleet backend.
    pub(super) shard_of: &'a [usize],
    /// What an agent before this one left; the fleet is arranged as it asks for.
    pub(super) heritage: Option<&'a Heritage>,
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
    mut place: Place<'_>,
) -> Result<(), LayoutError> {
    lay_out_backends(fleet, board, &place);
    lay_out_histories(fleet, board, &place);
    for (index, pool) in (0..).zip(&fleet.pools) {
        let record = abi::Pool {
            first_word: pool.first_word,
            word_count: pool.word_count,
            identity: estate::name_identity(&pool.name),
            ..abi::Pool::default()
        };
        datapath.insert_pool(index, &record)?;
    }
    lay_out_tables(fleet, board, &mut place);
    for (index, service) in (0..).zip(&fleet.services) {
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
    // Shards beat once they have begun. Until then an agent that begins is not to be taken for one that
    // is away, whose verdicts against backends are stale.
    (0..place.shards).for_each(|shard| board.beat(shard));
    let sizes = Sizes::of(fleet, place.shards);
    let header = Header {
        shard_count: place.shards,
        generation: place.heritage.map_or(1, |heritage| heritage.estate.generation() + 1),
        backend_count: sizes.backends,
        target_count: sizes.targets,
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

/// Says from when on each pool panics, of its members' number; how many of it take new flows is
/// looked at now.
pub(super) fn lay_out_panics(fleet: &Fleet, board: &Board, members: &[u32]) {
    for ((index, pool), members) in (0..).zip(&fleet.pools).zip(members) {
        if let Some(panic) = pool.panic {
            board.set_panic(index, PanicCounts::of(panic, *members));
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

fn lay_out_backends(fleet: &Fleet, board: &Board, place: &Place<'_>) {
    let estate = place.heritage.map(|heritage| &heritage.estate);
    if let Some(estate) = estate {
        let room = Sizes::of(fleet, place.shards).backends;
        for index in 0..estate.index_count().min(room) {
            board.write_backend(index, &vacant_record(estate.last_generation(index)));
        }
    }
    let seats = place.members.iter().flat_map(Membership::seats);
    for ((backend, &shard), seat) in fleet.backends.iter().zip(place.shard_of).zip(seats) {
        assert_eq!(backend.index, seat.backend.index(), "seats stand as the fleet's backends do");
        let was_there = |estate: &&Estate| estate.knows(seat.backend);
        let left = estate.filter(was_there);
        let mut record = backend_record(backend, shard, seat.backend.generation());
        if let Some(known) = left.and_then(|estate| estate.backend(backend.index)) {
            // Its next hop is asked for anew; until that is answered packets go where they went.
            let abi::Backend { next_hop, source_mac, interface_index, .. } = known;
            record = abi::Backend { next_hop, source_mac, interface_index, ..record };
        }
        board.write_backend(backend.index, &record);
        let stays = seat.gone_ns.is_none();
        board.set_allowed(backend.index, stays);
        // Of those who were there as it stood, until their shards have said what they say now: a probe
        // that asks something else says nothing before its first verdict.
        // Without a probe there is nothing to wait for: what operators say of it is said before the
        // links are turned.
        let unprobed = backend.judged.is_empty();
        let serves = unprobed || left.is_none_or(|estate| estate.served_old(backend.index));
        board.set_serves_old(backend.index, serves);
        let took_new = left.is_some_and(|estate| estate.took_new(backend.index));
        let takes = stays && (unprobed || took_new);
        board.set_takes_new(backend.index, record.pool, takes);
    }
}

/// Histories that were left, bit for bit: their owners write on in them.
fn lay_out_histories(fleet: &Fleet, board: &Board, place: &Place<'_>) {
    let Some(Heritage { estate, now, .. }) = place.heritage else {
        return;
    };
    for (index, target) in (0..).zip(0..fleet.targets.len()) {
        if let Some(record) = estate.record(fleet, target, *now) {
            board.write_target(index, record);
        }
    }
}

/// Every table: as it stood and then as its members want it, or new.
fn lay_out_tables(fleet: &Fleet, board: &Board, place: &mut Place<'_>) {
    for (pool, members) in place.members.iter_mut().enumerate() {
        let slots = PoolSlots::of(board, fleet, pool);
        let heritage = place.heritage.filter(|heritage| heritage.found[pool]);
        for (index, table) in tables_of(fleet, pool).enumerate() {
            let (name, seed) = (&fleet.pools[pool].name, table.service.seed);
            let left = heritage.and_then(|heritage| {
                Some((heritage, heritage.estate.slots(name, seed, table.slot_count)?))
            });
            let Some((heritage, stood)) = left else {
                slots.write(index, &members.settled(index));
                continue;
            };
            slots.write(index, &stood);
            let drains = heritage.drains(name, seed, table.slot_count);
            slots.store_in(index, &members.take_up(index, &stood, drains, heritage.now));
        }
        if let Some(heritage) = heritage.filter(|_| serves(fleet, pool)) {
            let slot = |table, index| slots.slot(table, index);
            slots.store(&members.retable(&slot, heritage.now));
        }
    }
}

/// The record of an index that nobody uses, which was used last by this generation.
pub(super) fn vacant_record(last_generation: u32) -> abi::Backend {
    abi::Backend { last_generation, ..abi::Backend::default() }
}

/// A backend's record, its next hop not known.
pub(super) fn backend_record(backend: &Backend, shard: usize, generation: u32) -> abi::Backend {
    // A unix socket is nowhere a packet could go, and no service is over its pool.
    let inet = backend.address.inet();
    let (address, family) = inet.map_or(([0; 16], 0), |inet| address_bytes(inet.ip()));
    abi::Backend {
        generation,
        address,
        port: inet.map_or(0, |inet| inet.port()).to_be_bytes(),
        family,
        shard: u8::try_from(shard).expect("at most 256 shards"),
        pool: u32::try_from(backend.pool).expect("pools are counted in u32"),
        identity: backend.address.identity(),
        last_generation: generation,
        ..abi::Backend::default()
    }
}

/// The members of each pool, with the tables of its services in their order; with the seats and
/// indices that they were arranged to have, by pool, if they were.
pub(super) fn memberships(fleet: &Fleet, arranged: Option<Seating>) -> Vec<Membership> {
    let tables = |index: usize, pool: &Pool| {
        tables_of(fleet, index).map(|table| table.membership(pool)).collect()
    };
    if let Some((seats, indices)) = arranged {
        let pools = fleet.pools.iter().enumerate().zip(seats.into_iter().zip(indices));
        return pools
            .map(|((index, pool), (seats, indices))| {
                Membership::resume(indices, seats, tables(index, pool), pool.drain_ns)
            })
            .collect();
    }
    let membership = |(index, pool): (usize, &Pool)| {
        let tables = tables(index, pool);
        let backends = fleet.backends[pool.backends.clone()].iter();
        let members = backends.map(|backend| member(&backend.address, backend.weight));
        let indices = (pool.first_word * WORD_BACKENDS, pool.word_count * WORD_BACKENDS);
        Membership::new(indices, members, tables, pool.drain_ns)
    };
    fleet.pools.iter().enumerate().map(membership).collect()
}

/// The tables that a pool's members stand in: of the services whose pool it is, and of those whose
/// backup it is.
pub(super) fn tables_of(fleet: &Fleet, pool: usize) -> impl Iterator<Item = TableOf<'_>> + '_ {
    let own = move |service: &&Service| service.pool == pool;
    let own = fleet.services.iter().filter(own).map(|service| {
        let Service { slot_first, slot_count, .. } = *service;
        TableOf { service, slot_first, slot_count }
    });
    let backups = fleet.services.iter().filter_map(move |service| {
        let backup = service.backup.filter(|backup| backup.pool == pool)?;
        let (slot_first, slot_count) = (backup.slot_first, backup.slot_count);
        Some(TableOf { service, slot_first, slot_count })
    });
    own.chain(backups)
}

/// Whether flows may be steered to a pool.
pub(super) fn serves(fleet: &Fleet, pool: usize) -> bool {
    tables_of(fleet, pool).next().is_some()
}

/// A table that a pool's members stand in.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableOf<'a> {
    /// Whose flows it spreads.
    pub(super) service: &'a Service,
    pub(super) slot_first: u32,
    pub(super) slot_count: u32,
}

impl TableOf<'_> {
    fn membership(&self, pool: &Pool) -> Table {
        let (seed, slot_count) = (self.service.seed, self.slot_count);
        match self.service.traffic.protocol {
            Protocol::Tcp => Table::new(seed, slot_count, pool.drain_ns, false),
            // Flows of every kind, of which those of TCP may be idle for long.
            Protocol::Any => Table::new(seed, slot_count, pool.drain_ns, true),
            // A flow that has been idle for longer is no flow any more.
            _ => {
                let drain_ns = pool.drain_ns.min(self.service.udp_idle_ns);
                Table::new(seed, slot_count, drain_ns, true)
            }
        }
    }
}

/// A backend as the tables know it.
pub(super) fn member(address: &Address, weight: u32) -> Member {
    Member { identity: address.identity(), weight }
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
        identity: estate::name_identity(&service.name),
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
