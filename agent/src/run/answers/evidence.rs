//! What the agent keeps for questions about dropped packets and held verdicts.

use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use sickbay_shared::abi::DropRecord;

use super::{Answers, Clocks};
use crate::control::drops::DropView;
use crate::control::host::ControlError;
use crate::control::view::FlowEntriesView;
use crate::engine::monotonic_now;
use crate::guard::Guards;
use crate::kernel::FlowEntries;

/// Between two counts of the flows' entries.
const COUNT_EVERY: Duration = Duration::from_secs(1);

impl Answers {
    /// The guards of the pools, when there are any.
    pub(in crate::run) fn guards(&self) -> Option<&Arc<Guards>> {
        self.guards.as_ref()
    }

    /// Keeps a sample for whoever asks.
    pub(in crate::run) fn keep_drop(&self, record: &DropRecord) {
        let fleet = self.parts.fleet();
        let service =
            fleet.services.get(record.service as usize).map(|service| service.name.clone());
        let backend = (record.backend.generation() != 0)
            .then(|| self.backend_name(record.backend.index()))
            .flatten();
        let at_unix_ms = Clocks::read().unix_ms(record.at_ns).unwrap_or(0);
        self.drops.keep(DropView::new(record, at_unix_ms, service.unwrap_or_default(), backend));
    }

    /// The name of the backend with this index in the maps, `pool.backend`.
    pub(super) fn backend_name(&self, index: u32) -> Option<String> {
        let fleet = self.parts.fleet();
        let pool = fleet.pools.get(self.parts.board.backend(index)?.pool as usize)?;
        let members = &fleet.backends[pool.backends.clone()];
        let backend = members.iter().find(|backend| backend.index == index)?;
        Some(format!("{}.{}", pool.name, backend.name))
    }

    /// The entries of flows, by address family.
    pub(super) fn flow_entries(&self) -> Vec<FlowEntriesView> {
        let mut counted = self.flow_entries.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, views)) = &*counted
            && at.elapsed() < COUNT_EVERY
        {
            return views.clone();
        }
        let entries = self.parts.counters.flow_entries().unwrap_or_default();
        let view = |(family, entries): (&str, FlowEntries)| FlowEntriesView {
            family: family.to_owned(),
            flows: entries.flows,
            embryonic: entries.embryonic,
            room: entries.room.into(),
        };
        let views: Vec<_> = ["ipv4", "ipv6"].into_iter().zip(entries).map(view).collect();
        *counted = Some((Instant::now(), views.clone()));
        views
    }

    /// Ends the hold over `pool`, or over all.
    pub(in crate::run) fn release(&self, pool: Option<&str>) -> Result<Vec<String>, ControlError> {
        let Some(guards) = &self.guards else {
            let what = "this agent has no guard: give [guard] a share in its configuration";
            return Err(ControlError::Failed { what: what.to_owned() });
        };
        if let Some(name) = pool.filter(|name| !guards.has_pool(name)) {
            let what = format!("there is no pool {name:?}: see `sickbay guard list`");
            return Err(ControlError::Failed { what });
        }
        Ok(guards.release(pool, monotonic_now()))
    }
}
