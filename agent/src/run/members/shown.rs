//! What is asked of members, and changes nothing.

use std::collections::HashMap;

use sickbay_core::command::Override;
use sickbay_core::plan::Nanos;
use sickbay_shared::abi::BackendCounters;

use super::{ControlError, Drained, Fleet, Members, Membership, layout};
use crate::config::{self, Changes};
use crate::control::members::StandingView;
use crate::control::said::Said;
use crate::estate::Remaining;

/// What is shown of backends besides their probes.
#[derive(Debug, Default)]
pub(in crate::run) struct Shown {
    /// By backend index, those that are no plain members.
    pub(in crate::run) standings: HashMap<u32, (StandingView, Option<Nanos>)>,
    /// Health that was set, and who set it.
    pub(in crate::run) words: HashMap<u32, (Override, Said)>,
    /// Who drained it, or has it in maintenance.
    pub(in crate::run) drains: HashMap<u32, Said>,
    pub(in crate::run) counted_before: HashMap<u32, BackendCounters>,
}

impl Members {
    /// What is shown of all backends.
    pub(in crate::run) fn shown(&self) -> Shown {
        let state = self.state();
        let drained = state.drained.iter().map(|(index, drained)| {
            let view = match drained {
                Drained { over: true, .. } => StandingView::Drained,
                Drained { maintenance: true, .. } => StandingView::Maintenance,
                Drained { .. } => StandingView::Draining,
            };
            (*index, (view, drained.until_ns))
        });
        let seats = state.pools.iter().flat_map(Membership::seats);
        let leaving = seats.filter_map(|seat| {
            let gone_ns = seat.gone_ns?;
            Some((seat.backend.index(), (StandingView::Leaving, Some(gone_ns))))
        });
        Shown {
            standings: drained.chain(leaving).collect(),
            words: state
                .words
                .iter()
                .map(|(index, spoken)| (*index, (spoken.word, spoken.said.clone())))
                .collect(),
            drains: state.drained.iter().map(|(index, it)| (*index, it.said.clone())).collect(),
            counted_before: state.counted_before.clone(),
        }
    }

    /// When the drains that are under way end.
    pub(in crate::run) fn remaining(&self) -> Remaining {
        let (state, fleet) = (self.state(), self.parts.fleet());
        let mut remaining = Remaining::default();
        for (pool, members) in state.pools.iter().enumerate() {
            let seats = members.seats().iter();
            remaining.gone.extend(seats.filter_map(|seat| Some((seat.backend, seat.gone_ns?))));
            for (index, table) in layout::tables_of(&fleet, pool).enumerate() {
                let name = fleet.pools[pool].name.clone();
                let key = (name, table.service.seed, table.slot_count);
                remaining.drains.insert(key, members.drains(index));
            }
        }
        remaining
    }

    /// What a configuration would change.
    ///
    /// # Errors
    ///
    /// [`ControlError::Refused`]: what only a restart can.
    pub(in crate::run) fn changes(&self, wanted: &Fleet) -> Result<Changes, ControlError> {
        let gone = self.state().leaving();
        config::changes(&self.parts.fleet(), &gone, wanted)
            .map_err(|what| ControlError::Refused { what })
    }

    /// Members of each pool, those that are leaving not among them.
    pub(in crate::run) fn counts(&self) -> Vec<usize> {
        self.state().pools.iter().map(Membership::member_count).collect()
    }
}
