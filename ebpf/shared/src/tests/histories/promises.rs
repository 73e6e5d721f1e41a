//! What was promised to whom, and whether a packet keeps it.
//!
//! The promises know nothing of slots or entries: an established flow stays where it is while its
//! backend lives, and as `on_sick` says when it does not; a new flow goes to somebody who takes new
//! flows while there is one, unless panic, stale verdicts or fail-open let it go to another.

use std::format;
use std::string::String;

use super::world::{SECOND_NS, STALE_AFTER_S, World};
use crate::abi::{
    ALL_SICK_OPEN, BackendRef, ON_SICK_KEEP, ON_SICK_REHASH, POOL_PANICS, STALE_OPEN,
};
use crate::packet::{PROTOCOL_TCP, PROTOCOL_UDP};
use crate::steer::{Dropped, Outcome, Path, Reason, Steered};
use crate::tables::Bitmap;

impl World {
    /// An established flow's packet: to `backend`, while that lives.
    pub(super) fn judge_follow(
        &self,
        client: u16,
        protocol: u8,
        outcome: Outcome,
        backend: BackendRef,
    ) -> Result<Option<BackendRef>, String> {
        let tcp = protocol == PROTOCOL_TCP;
        let on_sick = if tcp { self.policies.on_sick_tcp } else { self.policies.on_sick_udp };
        let may_leave = !self.serves(backend)
            && on_sick != ON_SICK_KEEP
            && !self.fails_open()
            && !self.is_stale(backend);
        match outcome {
            Outcome::Steered(steered) if steered.backend == backend => Ok(Some(backend)),
            Outcome::Steered(Steered { backend: other, path: Path::Moved, .. })
                if may_leave && on_sick == ON_SICK_REHASH && self.takes_new(other) =>
            {
                Ok(Some(other))
            }
            Outcome::Dropped(Dropped { reason: Reason::BackendSick, .. })
                if may_leave && on_sick != ON_SICK_REHASH =>
            {
                Ok(None)
            }
            other => Err(format!("flow of {client} on {backend:?}: {other:?}")),
        }
    }

    /// The first packet of a flow, or of one that cannot be told from a new one.
    pub(super) fn judge_open(
        &self,
        client: u16,
        protocol: u8,
        outcome: Outcome,
    ) -> Result<Option<BackendRef>, String> {
        let follows_slot = protocol == PROTOCOL_UDP && self.policies.on_sick_udp == ON_SICK_REHASH;
        match outcome {
            Outcome::Steered(steered) => {
                let backend = steered.backend;
                let opened = self.allowed(backend) && (self.fails_open() || self.is_stale(backend));
                // Where no UDP flow is entered that follows its slot, none is known to be new.
                if self.takes_new(backend) || opened || (follows_slot && self.serves(backend)) {
                    Ok(Some(backend))
                } else {
                    Err(format!("new flow of {client}: {outcome:?}"))
                }
            }
            Outcome::Dropped(Dropped { reason, .. })
                if reason != Reason::BrokenTable && !self.somebody_takes_new() =>
            {
                Ok(None)
            }
            other => Err(format!("new flow of {client}: {other:?}")),
        }
    }

    pub(super) fn takes_new(&self, backend: BackendRef) -> bool {
        self.tables.has_bit(Bitmap::TakesNew, backend.index())
    }

    pub(super) fn serves(&self, backend: BackendRef) -> bool {
        self.tables.has_bit(Bitmap::ServesOld, backend.index())
    }

    pub(super) fn allowed(&self, backend: BackendRef) -> bool {
        self.tables.has_bit(Bitmap::Allowed, backend.index())
    }

    /// The verdict against a backend is stale, and acquits it.
    fn is_stale(&self, backend: BackendRef) -> bool {
        let age_ns = self.now_ns() - self.tables.heartbeats_ns[0];
        self.policies.stale == STALE_OPEN
            && STALE_AFTER_S * SECOND_NS <= age_ns
            && self.allowed(backend)
    }

    /// Backends of a pool that take new flows; 0 also when they are too few.
    fn supply(&self, pool: u32) -> u32 {
        let bits = self.tables.takes_new[pool as usize].count_ones();
        let panics = self.tables.pool_counts[pool as usize] & POOL_PANICS != 0;
        if panics && self.policies.all_sick == ALL_SICK_OPEN { 0 } else { bits }
    }

    fn somebody_takes_new(&self) -> bool {
        self.supply(0) != 0 || (self.policies.has_backup && self.supply(1) != 0)
    }

    fn fails_open(&self) -> bool {
        self.policies.all_sick == ALL_SICK_OPEN && !self.somebody_takes_new()
    }
}
