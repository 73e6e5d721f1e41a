//! Who belongs to the pools of the running agent: carries out what operators ask, and what time
//! brings to its end.
//!
//! [`Membership`] says what is to be; here it is written, in an order that leaves no packet
//! without a backend. Those who enter: record and next hop, then bits (by their shard), then slots.
//! Those who leave: bits, then slots; a drain later slots again, then bits and probes, then record.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sickbay_core::command::Override;
use sickbay_core::maglev::SLOTS_PER_LIGHTEST;
use sickbay_core::plan::Nanos;
use sickbay_shared::abi::{BackendCounters, BackendRef};

use super::layout::{self, TableOf};
use super::parts::Parts;
use super::slots::PoolSlots;
use crate::address::Address;
use crate::config::{self, PoolDifference};
use crate::control::host::ControlError;
use crate::control::journal::{Transition, Why};
use crate::control::members::{MemberChange, MemberEvent, MembersChanged, Reloaded};
use crate::control::pattern::Pattern;
use crate::control::said::Said;
use crate::control::view::ProbeState;
use crate::engine::monotonic_now;
use crate::fleet::{Backend, Fleet};
use crate::guard::Guards;
use crate::membership::{Membership, Standing};
use crate::shard::RequestError;

/// What time brings to its end.
mod end;
/// Backends that enter.
mod enter;
/// What the pools' sources say.
mod follow;
/// What operators say over backends.
mod say;
/// What is asked of members, and changes nothing.
mod shown;
/// Those who enter, leave and are weighed at once.
mod turn;
/// What operators said, kept in a file.
mod words;

use follow::Declined;
pub(super) use follow::Followed;
pub(super) use shown::Shown;
use turn::{Done, Named, Turn};

/// Who belongs to the pools.
#[derive(Debug)]
pub(super) struct Members {
    parts: Arc<Parts>,
    /// They count the members too.
    guards: Option<Arc<Guards>>,
    state: Mutex<State>,
    /// What operators said could not be kept the last time.
    words_fail: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    /// By fleet pool.
    pools: Vec<Membership>,
    /// By backend index.
    drained: HashMap<u32, Drained>,
    /// Backends whose health was set, by backend index.
    words: HashMap<u32, Spoken>,
    /// What the kernel had counted for an index before its present use.
    counted_before: HashMap<u32, BackendCounters>,
    /// They are gone, and their shards were not told yet.
    parting: Vec<(usize, BackendRef)>,
    /// By fleet pool: what its sources said that could not be put in force.
    declined: HashMap<usize, Declined>,
    /// Pools panic by the number of their members from now on.
    panics: bool,
    /// What was said to the agent before this one is known here: more can be said.
    begun: bool,
}

/// A backend takes no new flows because an operator said so.
#[derive(Clone, Debug)]
struct Drained {
    until_ns: Option<Nanos>,
    /// The time has come, and its flows were told.
    over: bool,
    /// Nobody is told what its probes find meanwhile; and it ends when its time is over.
    maintenance: bool,
    said: Said,
}

/// A backend's health is what an operator said.
#[derive(Clone, Debug)]
struct Spoken {
    word: Override,
    said: Said,
    until_ns: Option<Nanos>,
}

impl Members {
    /// The members of the parts' fleet; `pools` by fleet pool.
    pub(super) fn new(
        parts: Arc<Parts>,
        pools: Vec<Membership>,
        guards: Option<Arc<Guards>>,
    ) -> Self {
        let state = Mutex::new(State { pools, ..State::default() });
        Self { parts, guards, state, words_fail: AtomicBool::new(false) }
    }

    /// Carries out a change, all of it or nothing.
    ///
    /// # Errors
    ///
    /// As [`Host::change_members`](crate::control::host::Host::change_members).
    pub(super) fn change(&self, change: &MemberChange) -> Result<MembersChanged, ControlError> {
        let mut state = self.begun()?;
        let changed = match change {
            MemberChange::Add { pool, backends } => self.add(&mut state, pool, backends),
            MemberChange::Remove { pattern } => self.remove(&mut state, pattern),
            MemberChange::Weigh { pattern, weight } => self.weigh(&mut state, pattern, *weight),
            MemberChange::Drain { pattern, terms } => {
                self.drain(&mut state, pattern, (terms, false))
            }
            MemberChange::Maintain { pattern, terms } => {
                self.drain(&mut state, pattern, (terms, true))
            }
            MemberChange::Undrain { pattern } => self.undrain(&mut state, pattern),
        };
        if changed.is_ok() && change.is_said() {
            self.keep(&state, &self.parts.fleet());
        }
        changed
    }

    /// Has the members be those of the fleet `wanted`, all of it or nothing. `None` = that is not all
    /// in which it differs, or a pool has no room for them: nothing was done.
    ///
    /// # Errors
    ///
    /// What hinders the agent.
    pub(super) fn reload(&self, wanted: &Fleet) -> Result<Option<Reloaded>, ControlError> {
        let mut state = self.state();
        let fleet = self.parts.fleet();
        let gone = state.leaving();
        let Ok(differences) = config::difference(&fleet, &gone, wanted) else {
            return Ok(None);
        };
        let now = monotonic_now();
        if !differences.iter().all(|difference| state.has_room(&fleet, difference, now)) {
            return Ok(None);
        }
        let named = (0..wanted.pools.len()).map(|pool| named(wanted, pool)).collect();
        let mut turn = Turn { named, empties: true, ..Turn::default() };
        let own = |index: u32| {
            let found = fleet.backends.iter().find(|backend| backend.index == index);
            found.expect("the difference is told by the fleet's indices").clone()
        };
        for PoolDifference { pool, entering, leaving, weighed } in differences {
            let members = &state.pools[pool];
            let entering = enter::entering(members, &fleet, pool, entering, &leaving, now)?;
            turn.entering.push(entering);
            turn.leaving.extend(leaving.into_iter().map(own));
            turn.weighed.extend(weighed.into_iter().map(|(index, weight)| (own(index), weight)));
        }
        let Done { added, removed, weighed, notes } = self.carry_out(&mut state, &turn)?;
        if !(added.is_empty() && removed.is_empty() && weighed.is_empty()) {
            self.parts.board.raise_generation();
        }
        Ok(Some(Reloaded { added, removed, weighed, changed: Vec::new(), notes }))
    }

    /// Those whom an agent before this one had, and who are members no more, leave: their shards are
    /// told before anything is attached. What was counted for indices that `fresh` backends have now
    /// was counted for others.
    ///
    /// # Errors
    ///
    /// A shard does not take it.
    pub(super) fn begin(&self, fresh: &[u32]) -> Result<(), ControlError> {
        let mut state = self.state();
        let fleet = self.parts.fleet();
        let gone = state.leaving();
        let leaving: Vec<Backend> =
            fleet.backends.iter().filter(|it| gone.contains(&it.index)).cloned().collect();
        self.set_standings(&state, &each(&leaving, Standing::Draining))?;
        let now = monotonic_now();
        self.tell(&fleet, &leaving, now, |backend| MemberEvent::Removed {
            drain_ms: fleet.pools[backend.pool].drain_ns / 1_000_000,
        });
        self.say_again(&mut state, &fleet, now);
        state.begun = true;
        for index in fresh {
            let before = self.parts.counters.backend(*index).unwrap_or_default();
            if before != BackendCounters::default() {
                state.counted_before.insert(*index, before);
            }
        }
        Ok(())
    }

    /// First verdicts are there: from now on a pool of which too few take new flows panics. Not
    /// before: one whose backends have no verdict yet is not one that fell.
    pub(super) fn begin_panics(&self) {
        let mut state = self.state();
        state.panics = true;
        self.recount(&state, &self.parts.fleet());
    }

    /// What goes by the number of a pool's members follows.
    fn recount(&self, state: &State, fleet: &Fleet) {
        let count = |pool: &Membership| {
            u32::try_from(pool.member_count()).expect("backends are counted in u32")
        };
        let counts: Vec<u32> = state.pools.iter().map(count).collect();
        if state.panics {
            layout::lay_out_panics(fleet, &self.parts.board, &counts);
        }
        if let Some(guards) = &self.guards {
            guards.set_members(&counts);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, state: &mut State, pattern: &Pattern) -> Result<MembersChanged, ControlError> {
        let leaving = members_of(state, &self.parts.fleet(), pattern)?;
        let done = self.carry_out(state, &Turn { leaving, ..Turn::default() })?;
        Ok(MembersChanged { names: done.removed, notes: done.notes })
    }

    fn weigh(
        &self,
        state: &mut State,
        pattern: &Pattern,
        weight: u32,
    ) -> Result<MembersChanged, ControlError> {
        if !(1..=1000).contains(&weight) {
            let mend = "write 1 to 1000; `sickbay backend drain` takes new flows away";
            return refused(format!("weight {weight} is out of range: {mend}"));
        }
        let chosen = members_of(state, &self.parts.fleet(), pattern)?;
        let weighed = chosen.into_iter().map(|backend| (backend, weight)).collect();
        let done = self.carry_out(state, &Turn { weighed, ..Turn::default() })?;
        Ok(MembersChanged { names: done.weighed, notes: done.notes })
    }

    /// Says to whoever owns their bits what flows backends may have; undone when a shard does not
    /// take it.
    fn set_standings(&self, state: &State, wanted: &[(u32, Standing)]) -> Result<(), ControlError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let taken = self.patiently(|shards| shards.set_standings(wanted));
        if taken.is_err() {
            let before: Vec<(u32, Standing)> =
                wanted.iter().map(|(index, _)| (*index, state.standing(*index))).collect();
            // The shard that did not take the first will not take this; the others will.
            let _told_already = self.parts.with_shards(|shards| shards.set_standings(&before));
            return taken;
        }
        self.parts.unprobed.set_standings(wanted);
        Ok(())
    }

    /// Has the tables of the pools of `chosen` follow.
    fn retable(&self, state: &mut State, fleet: &Fleet, chosen: &[Backend], now: Nanos) {
        for pool in pools_of(chosen) {
            let slots = PoolSlots::of(&self.parts.board, fleet, pool);
            let slot = |table, index| slots.slot(table, index);
            slots.store(&state.pools[pool].retable(&slot, now));
        }
    }

    /// Tells the journal what became of these.
    fn tell(
        &self,
        fleet: &Fleet,
        backends: &[Backend],
        now: Nanos,
        event: impl Fn(&Backend) -> MemberEvent,
    ) {
        for backend in backends {
            let pool = &fleet.pools[backend.pool];
            let first = backend.judged.first();
            let state = first.map_or(ProbeState::Healthy, |judged| {
                let target = u32::try_from(judged.target).expect("targets are counted in u32");
                let record = self.parts.board.read_target(target).unwrap_or_default();
                ProbeState::from_board(record.state).unwrap_or(ProbeState::Unknown)
            });
            self.parts.journal.push(Transition {
                name: format!("{}.{}", pool.name, backend.name).into(),
                from: state,
                to: state,
                why: Why::Operator,
                cause: String::new(),
                good: 0,
                rule: first.map(|judged| fleet.probes[judged.probe].rule.into()),
                at_ns: now,
                member: Some(event(backend)),
            });
        }
    }

    /// What will disappoint: tables that have become too small for their shares to be even.
    fn notes(&self, state: &State, fleet: &Fleet, chosen: &[Backend]) -> Vec<String> {
        let mut notes = Vec::new();
        for pool in pools_of(chosen) {
            let weights: Vec<u32> = state.pools[pool].weights().collect();
            let total: u64 = weights.iter().copied().map(u64::from).sum();
            let lightest = u64::from(weights.iter().copied().min().unwrap_or(1));
            for TableOf { service, slot_count, .. } in layout::tables_of(fleet, pool) {
                let slots = u64::from(slot_count) * lightest / total.max(1);
                if slots < SLOTS_PER_LIGHTEST {
                    notes.push(format!(
                        "service {}: its {} slots give the lightest of {} backends {slots}: shares \
                         are uneven by up to one part in {}; a larger table_size and a restart \
                         mend it, and move flows",
                        service.name,
                        slot_count,
                        weights.len(),
                        slots.max(1),
                    ));
                }
            }
        }
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        notes
    }
}

/// Who names the members of a pool that was read.
fn named(wanted: &Fleet, pool: usize) -> Named {
    let settings = &wanted.pools[pool];
    let members = wanted.backends[settings.backends.clone()].iter();
    let origins = members.map(|it| (it.address.clone(), it.origin.clone())).collect();
    Named { pool, sources: settings.sources.clone(), origins }
}

/// The members that a pattern matches; one that is leaving is none.
fn members_of(
    state: &State,
    fleet: &Fleet,
    pattern: &Pattern,
) -> Result<Vec<Backend>, ControlError> {
    let leaving = state.leaving();
    let is_meant = |backend: &&Backend| {
        pattern.matches(&fleet.pools[backend.pool].name, &backend.name)
            && !leaving.contains(&backend.index)
    };
    let chosen: Vec<Backend> = fleet.backends.iter().filter(is_meant).cloned().collect();
    if chosen.is_empty() {
        return Err(ControlError::NoBackendMatches { pattern: pattern.as_str().to_owned() });
    }
    Ok(chosen)
}

impl State {
    /// The indices of those that are leaving.
    fn leaving(&self) -> Vec<u32> {
        let seats = self.pools.iter().flat_map(Membership::seats);
        seats.filter(|seat| seat.gone_ns.is_some()).map(|seat| seat.backend.index()).collect()
    }

    /// Whether a pool has indices for those who enter it; who is leaving has his already.
    fn has_room(&self, fleet: &Fleet, difference: &PoolDifference, now: Nanos) -> bool {
        let PoolDifference { pool, entering, .. } = difference;
        let own = fleet.backends[fleet.pools[*pool].backends.clone()].iter();
        let known: HashSet<&Address> = own.map(|backend| &backend.address).collect();
        let fresh = entering.iter().filter(|it| !known.contains(&it.address)).count();
        fresh <= self.pools[*pool].room(now)
    }

    /// What flows a backend may have, as its shard was told last.
    fn standing(&self, index: u32) -> Standing {
        let mut seats = self.pools.iter().flat_map(Membership::seats);
        let leaves = seats.any(|seat| seat.backend.index() == index && seat.gone_ns.is_some());
        match self.drained.get(&index) {
            Some(Drained { over: true, .. }) => Standing::Over,
            Some(Drained { maintenance: true, .. }) => Standing::Maintenance,
            Some(Drained { .. }) => Standing::Draining,
            None if leaves => Standing::Draining,
            None => Standing::Full,
        }
    }
}

fn each(chosen: &[Backend], standing: Standing) -> Vec<(u32, Standing)> {
    chosen.iter().map(|backend| (backend.index, standing)).collect()
}

/// The pools of these, each once.
fn pools_of(chosen: &[Backend]) -> BTreeSet<usize> {
    chosen.iter().map(|backend| backend.pool).collect()
}

/// `pool.backend` of each.
fn names(fleet: &Fleet, chosen: &[Backend]) -> Vec<String> {
    let name = |it: &Backend| format!("{}.{}", fleet.pools[it.pool].name, it.name);
    chosen.iter().map(name).collect()
}

fn refused<T>(what: String) -> Result<T, ControlError> {
    Err(ControlError::Refused { what })
}

/// What an answer of the shards means to an operator.
fn taken<T>(answer: Option<Result<T, RequestError>>) -> Result<T, ControlError> {
    match answer {
        Some(Ok(done)) => Ok(done),
        Some(Err(error @ (RequestError::Busy { .. } | RequestError::Full { .. }))) => {
            Err(ControlError::Busy { what: error.to_string() })
        }
        Some(Err(error)) => Err(ControlError::Failed { what: error.to_string() }),
        None => {
            let what = "no shard is running: the agent is starting or stopping".to_owned();
            Err(ControlError::Busy { what })
        }
    }
}
