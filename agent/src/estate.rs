//! What an agent leaves to the next one, and what that one takes up of it.
//!
//! Pools are found by name, backends within them by address and port, targets by what is asked of
//! whom. Who is found keeps its index and generation, so that slots and flow entries go on naming
//! it; who is not wanted any more leaves as if it had been removed while the agent ran; who is new
//! enters the same way. Histories go on bit for bit; one that was being written when its agent died
//! is not believed, and neither is one so old that its target would be unknown by now.
//!
//! Pure besides reading the board that was left: what comes of it is for [`crate::run`] to lay out.

use std::collections::HashMap;

use sickbay_core::command::{Outcome, Verdict};
use sickbay_core::hash;
use sickbay_core::limits::unknown_after_ns;
use sickbay_core::past::Past;
use sickbay_core::plan::{Nanos, ProbeSpec, TargetIndex};
use sickbay_shared::abi::{self, BackendRef, Slot, TargetRecord};

use crate::fleet::{Fleet, Service};
use crate::kernel::{FLOW_MAPS, Left};
use crate::membership::Drain;

pub use arrange::Arrangement;

/// Where pools and backends stand, so that those who were there before stand where they stood.
mod arrange;
/// Places of pools among the bitmap words.
mod words;

/// What an agent before this one left.
#[derive(Debug)]
pub struct Estate {
    left: Left,
    /// Of each target, by its identity.
    records: HashMap<u128, TargetRecord>,
    /// Records that were being written when their agent died.
    torn_count: usize,
}

/// What only the agent knows that began it: when drains end. Empty after one that is gone.
#[derive(Clone, Debug, Default)]
pub struct Remaining {
    /// Of those who are leaving: when each is gone.
    pub gone: HashMap<BackendRef, Nanos>,
    /// Of each table, by its pool's name, seed and size.
    pub drains: HashMap<(String, u64, u32), Vec<Drain>>,
}

/// What a pool is found by: a hash of its name. A service likewise.
#[must_use]
pub fn name_identity(name: &str) -> u64 {
    hash::seeded(hash::identity(name.as_bytes(), 0, b""), 0)
}

impl Estate {
    /// The estate that was left so.
    #[must_use]
    pub fn new(left: Left) -> Self {
        let mut records = HashMap::with_capacity(left.header.target_count as usize);
        let mut torn_count = 0;
        for index in 0..left.header.target_count {
            match left.board.read_target(index) {
                None => torn_count += 1,
                Some(record) if record.identity == [0; 16] => {}
                Some(record) => {
                    records.insert(u128::from_be_bytes(record.identity), record);
                }
            }
        }
        Self { left, records, torn_count }
    }

    /// Generation of the configuration that was in force.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.left.header.generation
    }

    /// Histories that were being written when their agent died.
    #[must_use]
    pub const fn torn_count(&self) -> usize {
        self.torn_count
    }

    /// The record of fleet target `target`, if it is to be believed at `now`.
    #[must_use]
    pub fn record(&self, fleet: &Fleet, target: usize, now: Nanos) -> Option<&TargetRecord> {
        let wanted = &fleet.targets[target];
        let record = self.records.get(&wanted.identity)?;
        let spec = &fleet.probes[wanted.probe].spec;
        let limit_ns = unknown_after_ns(interval_ns(spec, record.state));
        let age_ns = now.saturating_sub(record.last_result_ns);
        let believed =
            record.last_result_ns != 0 && age_ns < limit_ns && verdict_of(record.state).is_some();
        believed.then_some(record)
    }

    /// Whether there is a record of fleet target `target`, be it believed or not.
    #[must_use]
    pub fn has_record(&self, fleet: &Fleet, target: usize) -> bool {
        let record = self.records.get(&fleet.targets[target].identity);
        record.is_some_and(|record| record.last_result_ns != 0)
    }

    /// The history of fleet target `target` for a prober whose `index` it has, if it is to be
    /// believed at `now`.
    #[must_use]
    pub fn past(
        &self,
        fleet: &Fleet,
        target: usize,
        index: TargetIndex,
        now: Nanos,
    ) -> Option<Past> {
        let record = self.record(fleet, target, now)?;
        Some(Past {
            target: index,
            registers: record.registers,
            verdict: verdict_of(record.state)?,
            average_s: record.average_s,
            last_ns: u64::from(record.last_us) * 1000,
            last_result_ns: record.last_result_ns,
            outcome: Outcome::from_number(record.cause, record.detail),
            indeterminate: record.indeterminate,
        })
    }

    /// The record of backend `index`.
    #[must_use]
    pub fn backend(&self, index: u32) -> Option<abi::Backend> {
        self.left.board.backend(index)
    }

    /// Whether this use of an index was in force.
    #[must_use]
    pub fn knows(&self, backend: BackendRef) -> bool {
        let record = self.left.board.backend(backend.index());
        record.is_some_and(|it| it.identity != 0 && it.generation == backend.generation())
    }

    /// Whether backend `index` served the flows it had.
    #[must_use]
    pub fn served_old(&self, index: u32) -> bool {
        self.left.board.serves_old(index)
    }

    /// Whether backend `index` took new flows.
    #[must_use]
    pub fn took_new(&self, index: u32) -> bool {
        self.left.board.takes_new(index)
    }

    /// The last generation that was given to a backend index; 0 = none.
    #[must_use]
    pub fn last_generation(&self, index: u32) -> u32 {
        self.left.board.backend(index).map_or(0, |record| record.last_generation)
    }

    /// Highest backend index with a use that is known, and one.
    #[must_use]
    pub const fn index_count(&self) -> u32 {
        self.left.header.backend_count
    }

    /// The slots of a table over the pool called `pool`, of this seed and size: as they stood, or
    /// `None` where there was no such table.
    #[must_use]
    pub fn slots(&self, pool: &str, seed: u64, slot_count: u32) -> Option<Vec<Slot>> {
        let (first, count) =
            self.tables(pool, seed).into_iter().find(|(_, count)| *count == slot_count)?;
        (first..first + count).map(|index| self.left.board.slot(index)).collect()
    }

    /// The sizes of the tables over the pool called `pool` by this seed.
    pub(crate) fn table_sizes(&self, pool: &str, seed: u64) -> Vec<u32> {
        self.tables(pool, seed).into_iter().map(|(_, count)| count).collect()
    }

    /// First slot and size of each table over a pool by a seed.
    fn tables(&self, pool: &str, seed: u64) -> Vec<(u32, u32)> {
        let is_wanted = |index: u32| {
            let pool_record = self.left.pools.get(index as usize);
            pool_record.is_some_and(|record| record.identity == name_identity(pool))
        };
        let services = self.left.services.iter().filter(|it| it.hash_seed == seed);
        let tables = services.flat_map(|service| {
            [
                (service.pool, service.slot_first, service.slot_count),
                (service.backup_pool, service.backup_slot_first, service.backup_slot_count),
            ]
        });
        tables
            .filter(|(pool, _, count)| *count != 0 && is_wanted(*pool))
            .map(|(_, first, count)| (first, count))
            .collect()
    }

    /// The maps that a datapath for `fleet` goes on with, where their sizes agree: those of flows,
    /// and what is kept by the place of something that stands where it stood.
    #[must_use]
    pub fn kept_maps(&self, fleet: &Fleet) -> Vec<&'static str> {
        let mut maps = FLOW_MAPS.to_vec();
        maps.extend([abi::GLOBAL_COUNTERS, abi::BACKEND_COUNTERS]);
        let same = |(service, left): (&Service, &abi::Service)| {
            left.identity == name_identity(&service.name)
        };
        if fleet.services.iter().zip(&self.left.services).all(same) {
            maps.push(abi::SERVICE_COUNTERS);
        } else {
            // Entries of fragments name a service by its place.
            maps.retain(|map| *map != abi::FRAGMENTS);
        }
        maps
    }
}

/// The longest interval at which a target in this state is probed.
fn interval_ns(spec: &ProbeSpec, state: u8) -> Nanos {
    let sick_ns = spec.pace.sick_ns.filter(|_| state == abi::STATE_SICK);
    spec.interval_ns.max(sick_ns.unwrap_or(0))
}

/// What a record's state says; `None` for one that is unknown: what was said before is not there.
const fn verdict_of(state: u8) -> Option<Verdict> {
    match state {
        abi::STATE_WARMING => Some(Verdict::Warming),
        abi::STATE_HEALTHY => Some(Verdict::Healthy),
        abi::STATE_SICK => Some(Verdict::Sick),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
