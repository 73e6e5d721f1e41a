//! What the agent before this one left, as this one takes it up.

use sickbay_core::plan::{Nanos, TargetIndex};

use crate::board::BoardError;
use crate::estate::{Arrangement, Estate, Remaining};
use crate::fleet::Fleet;
use crate::kernel::Left;
use crate::membership::{Drain, Indices, Membership, Seat};
use crate::shard::ShardPlan;

/// The estate, and what its fleet was arranged to.
#[derive(Debug)]
pub(super) struct Heritage {
    pub(super) estate: Estate,
    /// By pool: whether it stands where it stood.
    pub(super) found: Vec<bool>,
    /// When drains that are under way end, as far as it is known.
    remaining: Remaining,
    /// The moment at which it was taken up.
    pub(super) now: Nanos,
}

/// Seats and indices, by pool.
pub(super) type Seating = (Vec<Vec<Seat>>, Vec<Indices>);

/// The fleet as it takes up what was left under its pin directory, if anything was.
///
/// # Errors
///
/// What was left has another layout.
pub(super) fn take_up(
    fleet: Fleet,
    remaining: Remaining,
    now: Nanos,
) -> Result<(Fleet, Option<(Heritage, Seating)>), BoardError> {
    let Some(left) = Left::read(&fleet.pin_directory)? else {
        return Ok((fleet, None));
    };
    let estate = Estate::new(left);
    if 0 < estate.torn_count() {
        tracing::warn!(
            "{} histories were being written when their agent died: not believed",
            estate.torn_count()
        );
    }
    let arranged = estate.arrange(fleet, &remaining, now);
    let Arrangement { fleet, seats, indices, found, notes } = match arranged {
        Ok(arrangement) => arrangement,
        Err(fleet) => {
            tracing::warn!(
                "there is no room for the pools beside those of the agent before this one: its \
                 histories and flows are not taken up"
            );
            return Ok((*fleet, None));
        }
    };
    notes.iter().for_each(|note| tracing::warn!("{note}"));
    Ok((fleet, Some((Heritage { estate, found, remaining, now }, (seats, indices)))))
}

impl Heritage {
    /// The indices of those who were not there.
    pub(super) fn fresh(&self, pools: &[Membership]) -> Vec<u32> {
        let seats = pools.iter().flat_map(Membership::seats);
        let fresh = seats.filter(|seat| !self.estate.knows(seat.backend));
        fresh.map(|seat| seat.backend.index()).collect()
    }

    /// The drains of a table, as far as they are known.
    pub(super) fn drains(&self, pool: &str, seed: u64, slot_count: u32) -> &[Drain] {
        let key = (pool.to_owned(), seed, slot_count);
        self.remaining.drains.get(&key).map_or(&[], Vec::as_slice)
    }

    /// Gives each plan the histories of its targets. Whether none was too old to be believed, and
    /// there was one at all: then nothing has to be waited for.
    pub(super) fn give(&self, fleet: &Fleet, plans: &mut [ShardPlan]) -> bool {
        let mut taken: usize = 0;
        for plan in plans {
            let past = (0..).zip(&plan.targets).filter_map(|(index, target)| {
                self.estate.past(fleet, *target, TargetIndex(index), self.now)
            });
            plan.plan.past = past.collect();
            taken += plan.plan.past.len();
        }
        let targets = 0..fleet.targets.len();
        let left = targets.filter(|target| self.estate.has_record(fleet, *target)).count();
        tracing::info!("taken up: {taken} of {} histories", fleet.targets.len());
        0 < taken && taken == left
    }
}
