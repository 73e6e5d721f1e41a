//! Who belongs to the pools of the running agent: carries out what operators ask, and what time
//! brings to its end.
//!
//! [`Membership`] says what is to be; here it is written, in an order that leaves no packet
//! without a backend. Those who enter: record and next hop, then bits (by their shard), then slots.
//! Those who leave: bits, then slots; a drain later slots again, then bits and probes, then record.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sickbay_core::command::Override;
use sickbay_core::maglev::SLOTS_PER_LIGHTEST;
use sickbay_core::plan::Nanos;
use sickbay_shared::abi::{self, BackendCounters, BackendRef};

use super::layout;
use super::parts::Parts;
use crate::control::host::ControlError;
use crate::control::journal::{Transition, Why};
use crate::control::members::{MemberChange, MemberEvent, MembersChanged, StandingView};
use crate::control::pattern::Pattern;
use crate::control::view::ProbeState;
use crate::engine::monotonic_now;
use crate::fleet::{Backend, Fleet};
use crate::membership::{Ended, Membership, Rewrite, Standing};
use crate::shard::{RequestError, Shards};

/// Backends that enter.
mod enter;

/// How long next hops and shards are waited for.
const PATIENCE: Duration = Duration::from_secs(2);

/// Who belongs to the pools.
#[derive(Debug)]
pub(super) struct Members {
    parts: Arc<Parts>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By fleet pool.
    pools: Vec<Membership>,
    /// By backend index.
    drained: HashMap<u32, Drained>,
    /// An operator's words, by backend index; those that say nothing are not there.
    words: HashMap<u32, Override>,
    /// What the kernel had counted for an index before its present use.
    counted_before: HashMap<u32, BackendCounters>,
    /// They are gone, and their shards were not told yet.
    parting: Vec<(usize, BackendRef)>,
}

#[derive(Clone, Copy, Debug)]
struct Drained {
    until_ns: Option<Nanos>,
    /// The time has come, and its flows were told.
    over: bool,
}

/// What is shown of backends besides their probes.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// By backend index, those that are no plain members.
    pub(super) standings: HashMap<u32, (StandingView, Option<Nanos>)>,
    pub(super) words: HashMap<u32, Override>,
    pub(super) counted_before: HashMap<u32, BackendCounters>,
}

impl Members {
    /// The members of the parts' fleet; `pools` by fleet pool.
    pub(super) fn new(parts: Arc<Parts>, pools: Vec<Membership>) -> Self {
        Self { parts, state: Mutex::new(State { pools, ..State::default() }) }
    }

    /// Carries out a change, all of it or nothing.
    ///
    /// # Errors
    ///
    /// As [`Host::change_members`](crate::control::host::Host::change_members).
    pub(super) fn change(&self, change: &MemberChange) -> Result<MembersChanged, ControlError> {
        let mut state = self.state();
        match change {
            MemberChange::Add { pool, backends } => self.add(&mut state, pool, backends),
            MemberChange::Remove { pattern } => self.remove(&mut state, pattern),
            MemberChange::Weigh { pattern, weight } => self.weigh(&mut state, pattern, *weight),
            MemberChange::Drain { pattern, limit } => self.drain(&mut state, pattern, *limit),
            MemberChange::Undrain { pattern } => self.undrain(&mut state, pattern),
        }
    }

    /// Brings to its end what has come to it. Called every now and then.
    pub(super) fn tick(&self) {
        let mut state = self.state();
        let now = monotonic_now();
        for pool in 0..state.pools.len() {
            if state.pools[pool].next_end_ns().is_none_or(|end_ns| now < end_ns) {
                continue;
            }
            let fleet = self.parts.fleet();
            let slot = self.slot_reader(&fleet, pool);
            let Ended { rewrites, gone } = state.pools[pool].end(&slot, now);
            self.store(&fleet, pool, &rewrites);
            if !rewrites.is_empty() {
                let count: usize = rewrites.iter().map(|rewrite| rewrite.slots.len()).sum();
                let pool = &fleet.pools[pool].name;
                tracing::info!("pool {pool}: a drain has ended, {count} slots are settled");
            }
            state.parting.extend(gone.into_iter().map(|backend| (pool, backend)));
        }
        if !state.parting.is_empty() {
            self.part(&mut state, now);
        }
        self.end_drains(&mut state, now);
    }

    /// An operator's word over a backend was taken by its shard.
    pub(super) fn set_word(&self, backend: u32, word: Override) {
        match word {
            Override::Auto => self.state().words.remove(&backend),
            word => self.state().words.insert(backend, word),
        };
    }

    /// What is shown of all backends.
    pub(super) fn shown(&self) -> Shown {
        let state = self.state();
        let drained = state.drained.iter().map(|(index, drained)| {
            let view = if drained.over { StandingView::Drained } else { StandingView::Draining };
            (*index, (view, drained.until_ns))
        });
        let seats = state.pools.iter().flat_map(Membership::seats);
        let leaving = seats.filter_map(|seat| {
            let gone_ns = seat.gone_ns?;
            Some((seat.backend.index(), (StandingView::Leaving, Some(gone_ns))))
        });
        Shown {
            standings: drained.chain(leaving).collect(),
            words: state.words.clone(),
            counted_before: state.counted_before.clone(),
        }
    }

    /// Members of each pool, those that are leaving not among them.
    pub(super) fn counts(&self) -> Vec<usize> {
        self.state().pools.iter().map(Membership::member_count).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove(&self, state: &mut State, pattern: &Pattern) -> Result<MembersChanged, ControlError> {
        let fleet = self.parts.fleet();
        let chosen = members_of(state, &fleet, pattern)?;
        for (index, pool) in fleet.pools.iter().enumerate() {
            let leaving = chosen.iter().filter(|backend| backend.pool == index).count();
            let serves = fleet.services.iter().any(|service| service.pool == index);
            if serves && 0 < leaving && leaving == state.pools[index].member_count() {
                return refused(format!(
                    "a service needs pool {0}, and nobody would be left in it: add others first, \
                     or drain these (`sickbay backend drain '{0}.*'`)",
                    pool.name
                ));
            }
        }
        self.set_standings(state, &chosen, Standing::Draining)?;
        let now = monotonic_now();
        for backend in &chosen {
            state.drained.remove(&backend.index);
            state.pools[backend.pool].leave(backend.index, now);
        }
        self.retable(state, &fleet, &chosen, now);
        self.tell(&fleet, &chosen, now, |backend| MemberEvent::Removed {
            drain_ms: fleet.pools[backend.pool].drain_ns / 1_000_000,
        });
        Ok(changed(&fleet, &chosen, self.notes(state, &fleet, &chosen)))
    }

    fn weigh(
        &self,
        state: &mut State,
        pattern: &Pattern,
        weight: u32,
    ) -> Result<MembersChanged, ControlError> {
        let fleet = self.parts.fleet();
        if !(1..=1000).contains(&weight) {
            let mend = "write 1 to 1000; `sickbay backend drain` takes new flows away";
            return refused(format!("weight {weight} is out of range: {mend}"));
        }
        let chosen = members_of(state, &fleet, pattern)?;
        let now = monotonic_now();
        let mut weighed = (*fleet).clone();
        for backend in &chosen {
            state.pools[backend.pool].weigh(backend.index, weight);
        }
        let indices: Vec<u32> = chosen.iter().map(|backend| backend.index).collect();
        for backend in weighed.backends.iter_mut().filter(|it| indices.contains(&it.index)) {
            backend.weight = weight;
        }
        self.retable(state, &fleet, &chosen, now);
        self.parts.set_fleet(weighed);
        self.tell(&fleet, &chosen, now, |backend| MemberEvent::Weighed {
            from: backend.weight,
            to: weight,
        });
        Ok(changed(&fleet, &chosen, self.notes(state, &fleet, &chosen)))
    }

    fn drain(
        &self,
        state: &mut State,
        pattern: &Pattern,
        limit: Option<Duration>,
    ) -> Result<MembersChanged, ControlError> {
        let fleet = self.parts.fleet();
        let chosen = members_of(state, &fleet, pattern)?;
        self.set_standings(state, &chosen, Standing::Draining)?;
        let now = monotonic_now();
        let limit_ns = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let until_ns = limit_ns.map(|limit_ns| now.saturating_add(limit_ns));
        for backend in &chosen {
            state.drained.insert(backend.index, Drained { until_ns, over: false });
            state.pools[backend.pool].set_drained(backend.index, true);
        }
        self.retable(state, &fleet, &chosen, now);
        let limit_ms = limit_ns.map(|limit_ns| limit_ns / 1_000_000);
        self.tell(&fleet, &chosen, now, |_| MemberEvent::DrainBegan { limit_ms });
        Ok(changed(&fleet, &chosen, Vec::new()))
    }

    fn undrain(
        &self,
        state: &mut State,
        pattern: &Pattern,
    ) -> Result<MembersChanged, ControlError> {
        let fleet = self.parts.fleet();
        let mut chosen = members_of(state, &fleet, pattern)?;
        chosen.retain(|backend| state.drained.contains_key(&backend.index));
        if chosen.is_empty() {
            return refused(format!("none that {:?} matches is drained", pattern.as_str()));
        }
        self.set_standings(state, &chosen, Standing::Full)?;
        let now = monotonic_now();
        for backend in &chosen {
            state.drained.remove(&backend.index);
            state.pools[backend.pool].set_drained(backend.index, false);
        }
        self.retable(state, &fleet, &chosen, now);
        self.tell(&fleet, &chosen, now, |_| MemberEvent::DrainEnded);
        Ok(changed(&fleet, &chosen, Vec::new()))
    }

    /// Nothing is left of those whose drain has ended. What a shard does not take now it is asked
    /// to take again at the next tick.
    fn part(&self, state: &mut State, now: Nanos) {
        let indices: Vec<u32> = state.parting.iter().map(|(_, it)| it.index()).collect();
        match self.parts.with_shards(|shards| shards.part(&indices)) {
            Some(Ok(())) => {}
            Some(Err(error)) => return tracing::warn!("backends that left stay probed: {error}"),
            None => return,
        }
        self.parts.with_neighbours(|it| it.change(Vec::new(), indices.clone(), PATIENCE));
        let fleet = self.parts.fleet();
        let gone: Vec<Backend> =
            fleet.backends.iter().filter(|it| indices.contains(&it.index)).cloned().collect();
        let mut rest = (*fleet).clone();
        rest.remove(&indices);
        self.parts.set_fleet(rest);
        for (pool, backend) in state.parting.drain(..) {
            self.parts.board.write_backend(backend.index(), &abi::Backend::default());
            state.pools[pool].release(backend, now);
            state.words.remove(&backend.index());
        }
        self.tell(&fleet, &gone, now, |_| MemberEvent::Gone);
    }

    /// The time is over of those that are drained with a limit.
    fn end_drains(&self, state: &mut State, now: Nanos) {
        let is_over =
            |drained: &Drained| !drained.over && drained.until_ns.is_some_and(|it| it <= now);
        let over: Vec<u32> =
            state.drained.iter().filter(|(_, it)| is_over(it)).map(|(index, _)| *index).collect();
        if over.is_empty() {
            return;
        }
        let fleet = self.parts.fleet();
        let chosen: Vec<Backend> =
            fleet.backends.iter().filter(|it| over.contains(&it.index)).cloned().collect();
        if let Err(error) = self.set_standings(state, &chosen, Standing::Over) {
            return tracing::warn!("drained backends serve on for now: {error}");
        }
        for index in over {
            state.drained.entry(index).and_modify(|drained| drained.over = true);
        }
        self.tell(&fleet, &chosen, now, |_| MemberEvent::DrainTimeOver);
    }

    /// Says to their shards what flows backends may have; undone when one does not take it.
    fn set_standings(
        &self,
        state: &State,
        chosen: &[Backend],
        standing: Standing,
    ) -> Result<(), ControlError> {
        let wanted: Vec<_> = chosen.iter().map(|backend| (backend.index, standing)).collect();
        let set = |shards: &mut Shards| shards.set_standings(&wanted);
        let taken = taken(self.parts.with_shards(set));
        if taken.is_err() {
            let before = |backend: &Backend| {
                let standing = match state.drained.get(&backend.index) {
                    None => Standing::Full,
                    Some(Drained { over: false, .. }) => Standing::Draining,
                    Some(Drained { over: true, .. }) => Standing::Over,
                };
                (backend.index, standing)
            };
            let before: Vec<_> = chosen.iter().map(before).collect();
            // The shard that did not take the first will not take this; the others will.
            let _told_already = self.parts.with_shards(|shards| shards.set_standings(&before));
        }
        taken
    }

    /// Has the tables of the pools of `chosen` follow.
    fn retable(&self, state: &mut State, fleet: &Fleet, chosen: &[Backend], now: Nanos) {
        let mut pools: Vec<usize> = chosen.iter().map(|backend| backend.pool).collect();
        pools.dedup();
        for pool in pools {
            let slot = self.slot_reader(fleet, pool);
            let rewrites = state.pools[pool].retable(&slot, now);
            self.store(fleet, pool, &rewrites);
        }
    }

    fn slot_reader<'a>(
        &'a self,
        fleet: &'a Fleet,
        pool: usize,
    ) -> impl Fn(usize, u32) -> abi::Slot + 'a {
        let firsts: Vec<u32> =
            layout::services_of(fleet, pool).map(|(_, service)| service.slot_first).collect();
        move |table, index| {
            let slot = self.parts.board.slot(firsts[table] + index);
            slot.expect("the board has every slot of every table")
        }
    }

    fn store(&self, fleet: &Fleet, pool: usize, rewrites: &[Rewrite]) {
        let services: Vec<_> = layout::services_of(fleet, pool).collect();
        for Rewrite { table, slots } in rewrites {
            let (_, service) = services[*table];
            for (index, slot) in slots {
                self.parts.board.write_slots(service.slot_first + index, &[*slot]);
            }
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
            let target = u32::try_from(backend.target).expect("targets are counted in u32");
            let record = self.parts.board.read_target(target).unwrap_or_default();
            let state = ProbeState::from_board(record.state).unwrap_or(ProbeState::Unknown);
            self.parts.journal.push(Transition {
                name: format!("{}.{}", pool.name, backend.name).into(),
                from: state,
                to: state,
                why: Why::Operator,
                cause: String::new(),
                good: 0,
                rule: fleet.probes[pool.probe].rule.into(),
                at_ns: now,
                member: Some(event(backend)),
            });
        }
    }

    /// What will disappoint: tables that have become too small for their shares to be even.
    fn notes(&self, state: &State, fleet: &Fleet, chosen: &[Backend]) -> Vec<String> {
        let mut pools: Vec<usize> = chosen.iter().map(|backend| backend.pool).collect();
        pools.dedup();
        let mut notes = Vec::new();
        for pool in pools {
            let weights: Vec<u32> = state.pools[pool].weights().collect();
            let total: u64 = weights.iter().copied().map(u64::from).sum();
            let lightest = u64::from(weights.iter().copied().min().unwrap_or(1));
            for (_, service) in layout::services_of(fleet, pool) {
                let slots = u64::from(service.slot_count) * lightest / total.max(1);
                if slots < SLOTS_PER_LIGHTEST {
                    notes.push(format!(
                        "service {}: its {} slots give the lightest of {} backends {slots}: shares \
                         are uneven by up to one part in {}; a restart makes the table larger",
                        service.name,
                        service.slot_count,
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

/// The members that a pattern matches; one that is leaving is none.
fn members_of(
    state: &State,
    fleet: &Fleet,
    pattern: &Pattern,
) -> Result<Vec<Backend>, ControlError> {
    let leaving: Vec<u32> = state
        .pools
        .iter()
        .flat_map(Membership::seats)
        .filter(|seat| seat.gone_ns.is_some())
        .map(|seat| seat.backend.index())
        .collect();
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

fn changed(fleet: &Fleet, chosen: &[Backend], notes: Vec<String>) -> MembersChanged {
    let name = |it: &Backend| format!("{}.{}", fleet.pools[it.pool].name, it.name);
    MembersChanged { names: chosen.iter().map(name).collect(), notes }
}

fn refused<T>(what: String) -> Result<T, ControlError> {
    Err(ControlError::Refused { what })
}

/// What an answer of the shards means to an operator.
fn taken(answer: Option<Result<(), RequestError>>) -> Result<(), ControlError> {
    match answer {
        Some(Ok(())) => Ok(()),
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
