//! Those who enter, leave and are weighed at once: all of it or nothing.

use std::collections::HashMap;

use sickbay_core::plan::Nanos;
use sickbay_shared::abi::BackendRef;

use super::{
    ControlError, Fleet, MemberEvent, Members, Standing, State, each, layout, monotonic_now, names,
    refused,
};
use crate::address::Address;
use crate::config::{self, Newcomer};
use crate::discovery::Sourced;
use crate::fleet::{Backend, Origin};

/// A change of members.
#[derive(Debug, Default)]
pub(super) struct Turn {
    /// At most one for each pool.
    pub(super) entering: Vec<Entering>,
    pub(super) leaving: Vec<Backend>,
    /// Each with the weight it is to have.
    pub(super) weighed: Vec<(Backend, u32)>,
    /// Who names the members from then on, at most one for each pool.
    pub(super) named: Vec<Named>,
    /// A pool that may be empty may be left so; an operator's own word never does that.
    pub(super) empties: bool,
}

/// Who names a pool's members.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) pool: usize,
    pub(super) sources: Vec<Sourced>,
    /// Of members that the configuration does not name.
    pub(super) origins: HashMap<Address, Origin>,
}

/// Those who enter a pool.
#[derive(Debug)]
pub(super) struct Entering {
    pub(super) pool: usize,
    /// Those that are new to it.
    pub(super) fresh: Vec<Newcomer>,
    /// Those that were leaving it, each with the weight it is to have.
    pub(super) again: Vec<(Backend, u32)>,
}

/// What was done, `pool.backend` each.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) added: Vec<String>,
    pub(super) removed: Vec<String>,
    pub(super) weighed: Vec<String>,
    /// What will disappoint.
    pub(super) notes: Vec<String>,
}

impl Members {
    /// Carries a turn out. What can fail comes first, and is undone when it does: no slot has
    /// changed by then.
    pub(super) fn carry_out(&self, state: &mut State, turn: &Turn) -> Result<Done, ControlError> {
        let fleet = self.parts.fleet();
        check_left(state, &fleet, turn)?;
        let now = monotonic_now();
        let (grown, entered) = enter(state, &fleet, turn, now)?;
        let again = || turn.entering.iter().flat_map(|entering| &entering.again);
        let mut standings = each(&turn.leaving, Standing::Draining);
        standings.extend(again().map(|(backend, _)| (backend.index, Standing::Full)));
        let ready = self.make_ready(&grown, &entered);
        if let Err(error) = ready.and_then(|()| self.set_standings(state, &standings)) {
            self.take_back(state, &entered, now);
            return Err(error);
        }
        for (backend, weight) in again() {
            let member = layout::member(&backend.address, *weight);
            let revived = state.pools[backend.pool].enter(member, now);
            debug_assert!(revived.is_ok(), "one that was leaving has its index");
        }
        for (backend, _) in &entered {
            if let Ok(before) = self.parts.counters.backend(backend.index) {
                state.counted_before.insert(backend.index, before);
            }
        }
        for backend in &turn.leaving {
            state.drained.remove(&backend.index);
            state.pools[backend.pool].leave(backend.index, now);
        }
        for (backend, weight) in &turn.weighed {
            state.pools[backend.pool].weigh(backend.index, *weight);
        }
        Ok(self.put_in_force(state, grown, &entered, turn, now))
    }

    /// As if those who are new had not been there. An index of which a trace may be left is used no
    /// more.
    fn take_back(&self, state: &mut State, entered: &[(Backend, u32)], now: Nanos) {
        let clean = self.unmake(entered);
        for (backend, generation) in entered {
            let taken = BackendRef::new(backend.index, *generation);
            state.pools[backend.pool].take_back(taken);
            if clean {
                state.pools[backend.pool].release(taken, now);
            }
        }
        if !clean {
            tracing::error!("{} indices cannot be used until a restart", entered.len());
        }
    }

    /// Slots, fleet and journal, when all that enter are ready.
    fn put_in_force(
        &self,
        state: &mut State,
        mut grown: Fleet,
        entered: &[(Backend, u32)],
        turn: &Turn,
        now: Nanos,
    ) -> Done {
        for Named { pool, sources, origins } in &turn.named {
            grown.pools[*pool].sources.clone_from(sources);
            let own = grown.pools[*pool].backends.clone();
            for backend in &mut grown.backends[own] {
                if let Some(origin) = origins.get(&backend.address) {
                    backend.origin = origin.clone();
                }
            }
        }
        let again = turn.entering.iter().flat_map(|entering| &entering.again);
        let again: Vec<(Backend, u32)> = again.cloned().collect();
        for (backend, weight) in again.iter().chain(&turn.weighed) {
            let own = grown.backends.iter_mut().find(|it| it.index == backend.index);
            own.expect("who is weighed is in the fleet").weight = *weight;
        }
        let with_weight =
            |(backend, weight): &(Backend, u32)| Backend { weight: *weight, ..backend.clone() };
        let mut added: Vec<Backend> = entered.iter().map(|(backend, _)| backend.clone()).collect();
        added.extend(again.iter().map(with_weight));
        let weighed: Vec<Backend> =
            turn.weighed.iter().map(|(backend, _)| backend.clone()).collect();
        let all = [added.as_slice(), &turn.leaving, &weighed].concat();
        self.retable(state, &grown, &all, now);
        self.tell(&grown, &added, now, |backend| MemberEvent::Added {
            address: backend.address.to_string(),
            weight: backend.weight,
        });
        self.tell(&grown, &turn.leaving, now, |backend| MemberEvent::Removed {
            drain_ms: grown.pools[backend.pool].drain_ns / 1_000_000,
        });
        for (backend, weight) in &turn.weighed {
            let (from, to) = (backend.weight, *weight);
            let one = std::slice::from_ref(backend);
            self.tell(&grown, one, now, |_| MemberEvent::Weighed { from, to });
        }
        let done = Done {
            added: names(&grown, &added),
            removed: names(&grown, &turn.leaving),
            weighed: names(&grown, &weighed),
            notes: self.notes(state, &grown, &all),
        };
        self.recount(state, &grown);
        self.parts.set_fleet(grown);
        done
    }
}

/// Gives an index to each that is new. The fleet with them, and each with its index's generation.
/// Nothing is given when they do not fit into the fleet.
fn enter(
    state: &mut State,
    fleet: &Fleet,
    turn: &Turn,
    now: Nanos,
) -> Result<(Fleet, Vec<(Backend, u32)>), ControlError> {
    let mut grown = fleet.clone();
    let mut entered = Vec::new();
    let mut given: Vec<(usize, BackendRef)> = Vec::new();
    for Entering { pool, fresh, .. } in turn.entering.iter().filter(|it| !it.fresh.is_empty()) {
        let first = given.len();
        for newcomer in fresh {
            let member = layout::member(&newcomer.address, newcomer.weight);
            let own = state.pools[*pool].enter(member, now).expect("there was room just now");
            given.push((*pool, own.backend()));
        }
        let indices = given[first..].iter().map(|(_, backend)| backend.index());
        let newcomers: Vec<(u32, Newcomer)> = indices.zip(fresh.iter().cloned()).collect();
        grown = match config::grow(&grown, *pool, &newcomers) {
            Ok(grown) => grown,
            Err(what) => {
                for (pool, backend) in given {
                    state.pools[pool].take_back(backend);
                    state.pools[pool].release(backend, now);
                }
                return refused(what);
            }
        };
        let end = grown.pools[*pool].backends.end;
        let own = grown.backends[end - fresh.len()..end].iter().cloned();
        entered.extend(own.zip(given[first..].iter().map(|(_, backend)| backend.generation())));
    }
    Ok((grown, entered))
}

/// A service's pool keeps a member.
fn check_left(state: &State, fleet: &Fleet, turn: &Turn) -> Result<(), ControlError> {
    for (index, pool) in fleet.pools.iter().enumerate() {
        let leaving = turn.leaving.iter().filter(|backend| backend.pool == index).count();
        let of_pool = turn.entering.iter().filter(|entering| entering.pool == index);
        let entering: usize = of_pool.map(|it| it.fresh.len() + it.again.len()).sum();
        let serves = layout::serves(fleet, index) && !(turn.empties && pool.may_be_empty);
        if serves && 0 < leaving && state.pools[index].member_count() + entering <= leaving {
            return refused(format!(
                "a service needs pool {0}, and nobody would be left in it: add others first, or \
                 drain these (`sickbay backend drain '{0}.*'`)",
                pool.name
            ));
        }
    }
    Ok(())
}
