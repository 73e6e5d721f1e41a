//! What operators say over backends: health, drains, maintenance. Put in force, ended when its time
//! is over, and kept for the agent after this one.

use std::sync::MutexGuard;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use sickbay_core::command::Override;
use sickbay_core::plan::Nanos;

use super::words::{self, KeptDrain, KeptHealth, KeptWord};
use super::{
    ControlError, Drained, Fleet, MemberEvent, Members, MembersChanged, Pattern, RequestError,
    Spoken, Standing, State, each, members_of, monotonic_now, names, refused, taken,
};
use crate::control::said::Terms;
use crate::control::view::Admin;
use crate::fleet::Backend;
use crate::shard::{ShardRequest, Shards};

/// How long a shard is asked again that has too much to do.
const HAND_OVER_LIMIT: Duration = Duration::from_secs(2);

/// How long whoever says something waits for an agent that begins, and between two looks.
const BEGIN_LIMIT: Duration = Duration::from_secs(2);
const BEGIN_LOOK: Duration = Duration::from_millis(5);

impl Members {
    /// The state once [`Self::begin`] has read what was said before, which would otherwise be lost as
    /// soon as anything is kept; that is waited for.
    pub(super) fn begun(&self) -> Result<MutexGuard<'_, State>, ControlError> {
        let limit = Instant::now() + BEGIN_LIMIT;
        loop {
            let state = self.state();
            if state.begun {
                return Ok(state);
            }
            drop(state);
            if limit < Instant::now() {
                let what = "the agent is starting: what was said before is not in force yet";
                return Err(ControlError::Busy { what: what.to_owned() });
            }
            thread::sleep(BEGIN_LOOK);
        }
    }

    /// Sets the health of all backends that `pattern` matches, those that are leaving as well; their
    /// names.
    ///
    /// # Errors
    ///
    /// As [`Host::set_health`](crate::control::host::Host::set_health).
    pub(in crate::run) fn set_health(
        &self,
        pattern: &Pattern,
        word: Override,
        terms: &Terms,
    ) -> Result<Vec<String>, ControlError> {
        terms.check().map_err(|what| ControlError::Refused { what })?;
        let mut state = self.begun()?;
        let fleet = self.parts.fleet();
        let is_meant = |it: &&Backend| pattern.matches(&fleet.pools[it.pool].name, &it.name);
        let chosen: Vec<Backend> = fleet.backends.iter().filter(is_meant).cloned().collect();
        if chosen.is_empty() {
            return Err(ControlError::NoBackendMatches { pattern: pattern.as_str().to_owned() });
        }
        let now = monotonic_now();
        let until_ns = until_ns(terms, now);
        for backend in &chosen {
            self.hand_over(backend.index, word)?;
            match word {
                Override::Auto => state.words.remove(&backend.index),
                word => {
                    let said = terms.said();
                    state.words.insert(backend.index, Spoken { word, said, until_ns })
                }
            };
        }
        let (health, said) = (Admin::from(word), terms.said());
        self.tell(&fleet, &chosen, now, |_| MemberEvent::HealthSet { health, said: said.clone() });
        self.keep(&state, &fleet);
        Ok(names(&fleet, &chosen))
    }

    /// Takes new flows away from members, for maintenance or not.
    pub(super) fn drain(
        &self,
        state: &mut State,
        pattern: &Pattern,
        (terms, maintenance): (&Terms, bool),
    ) -> Result<MembersChanged, ControlError> {
        terms.check().map_err(|what| ControlError::Refused { what })?;
        let fleet = self.parts.fleet();
        let chosen = members_of(state, &fleet, pattern)?;
        let standing = if maintenance { Standing::Maintenance } else { Standing::Draining };
        self.set_standings(state, &each(&chosen, standing))?;
        let now = monotonic_now();
        let until_ns = until_ns(terms, now);
        for backend in &chosen {
            let said = terms.said();
            let drained = Drained { until_ns, over: false, maintenance, said };
            state.drained.insert(backend.index, drained);
            state.pools[backend.pool].set_drained(backend.index, true);
        }
        self.retable(state, &fleet, &chosen, now);
        let limit_ms = terms.limit.map(|it| u64::try_from(it.as_millis()).unwrap_or(u64::MAX));
        let said = terms.said();
        self.tell(&fleet, &chosen, now, |_| match maintenance {
            true => MemberEvent::MaintenanceBegan { said: said.clone() },
            false => MemberEvent::DrainBegan { limit_ms, said: said.clone() },
        });
        Ok(MembersChanged { names: names(&fleet, &chosen), notes: Vec::new() })
    }

    /// Gives new flows back to members that are drained or in maintenance.
    pub(super) fn undrain(
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
        self.end_drain(state, &fleet, &chosen, monotonic_now())?;
        Ok(MembersChanged { names: names(&fleet, &chosen), notes: Vec::new() })
    }

    fn end_drain(
        &self,
        state: &mut State,
        fleet: &Fleet,
        chosen: &[Backend],
        now: Nanos,
    ) -> Result<(), ControlError> {
        self.set_standings(state, &each(chosen, Standing::Full))?;
        for backend in chosen {
            state.drained.remove(&backend.index);
            state.pools[backend.pool].set_drained(backend.index, false);
        }
        self.retable(state, fleet, chosen, now);
        self.tell(fleet, chosen, now, |_| MemberEvent::DrainEnded);
        Ok(())
    }

    /// Ends what was said for a time that is over.
    pub(super) fn end_words(&self, state: &mut State, now: Nanos) {
        let is_over = |until_ns: Option<Nanos>| until_ns.is_some_and(|until_ns| until_ns <= now);
        let word = |(index, spoken): (&u32, &Spoken)| is_over(spoken.until_ns).then_some(*index);
        let words: Vec<u32> = state.words.iter().filter_map(word).collect();
        let ends = |drained: &&Drained| !drained.over && is_over(drained.until_ns);
        let drained = state.drained.iter().filter(|(_, drained)| ends(drained));
        let (maintained, over): (Vec<_>, Vec<_>) = drained.partition(|(_, it)| it.maintenance);
        let indices = |of: Vec<(&u32, &Drained)>| of.into_iter().map(|(it, _)| *it).collect();
        let (maintained, over): (Vec<u32>, Vec<u32>) = (indices(maintained), indices(over));
        if words.is_empty() && maintained.is_empty() && over.is_empty() {
            return;
        }
        let fleet = self.parts.fleet();
        let own = |indices: &[u32]| -> Vec<Backend> {
            fleet.backends.iter().filter(|it| indices.contains(&it.index)).cloned().collect()
        };
        for backend in own(&words) {
            if let Err(error) = self.hand_over(backend.index, Override::Auto) {
                return tracing::warn!("a word whose time is over holds for now: {error}");
            }
            state.words.remove(&backend.index);
            self.tell(&fleet, &[backend], now, |_| MemberEvent::HealthOver);
        }
        if !maintained.is_empty()
            && let Err(error) = self.end_drain(state, &fleet, &own(&maintained), now)
        {
            return tracing::warn!("maintenance whose time is over holds for now: {error}");
        }
        if !over.is_empty() {
            let chosen = own(&over);
            if let Err(error) = self.set_standings(state, &each(&chosen, Standing::Over)) {
                return tracing::warn!("drained backends serve on for now: {error}");
            }
            for index in over {
                state.drained.entry(index).and_modify(|drained| drained.over = true);
            }
            self.tell(&fleet, &chosen, now, |_| MemberEvent::DrainTimeOver);
        }
        self.keep(state, &fleet);
    }

    /// Says again what was said to the agent before this one, before anything is attached.
    pub(super) fn say_again(&self, state: &mut State, fleet: &Fleet, now: Nanos) {
        let kept = match words::read(&fleet.state_directory, now) {
            Ok(kept) => kept,
            Err(error) => {
                return tracing::error!(
                    "what operators said before cannot be read from {}: {error}; set-health and \
                     drain begin anew",
                    fleet.state_directory.display()
                );
            }
        };
        let leaving = state.leaving();
        let words_before = state.words.len();
        let mut standings = Vec::new();
        let mut found = Vec::new();
        for word in kept {
            let is_own = |it: &&Backend| word.is_over(fleet, it) && !leaving.contains(&it.index);
            let Some(backend) = fleet.backends.iter().find(is_own) else {
                tracing::warn!(
                    "{} of pool {} is not there any more: what was said of it is \
                     forgotten",
                    word.address,
                    word.pool
                );
                continue;
            };
            if let Some(KeptHealth { health, said, until_ns }) = word.health {
                let spoken = Spoken { word: health.into(), said, until_ns };
                if let Err(error) = self.hand_over(backend.index, spoken.word) {
                    tracing::error!("a backend's health is not as it was set: {error}");
                    continue;
                }
                state.words.insert(backend.index, spoken);
            }
            if let Some(KeptDrain { maintenance, said, until_ns }) = word.drain {
                let drained = Drained { until_ns, over: false, maintenance, said };
                state.drained.insert(backend.index, drained);
                state.pools[backend.pool].set_drained(backend.index, true);
                standings.push((backend.index, state.standing(backend.index)));
                found.push(backend.clone());
            }
        }
        if let Err(error) = self.set_standings(state, &standings) {
            tracing::error!("backends are not drained as they were: {error}");
        }
        if words_before < state.words.len() {
            self.wait_for_shards();
        }
        self.retable(state, fleet, &found, now);
    }

    /// Waits until what was handed over is in force: a shard answers after what it was given before.
    fn wait_for_shards(&self) {
        let all = |shards: &mut Shards| Ok((shards.snapshot()?.len(), shards.counters().count()));
        match self.patiently(all) {
            Ok((answered, asked)) if answered < asked => {
                tracing::warn!("set-health may not be in force at once: a shard does not answer");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!("set-health may not be in force at once: {error}"),
        }
    }

    /// Keeps what holds now for the next agent.
    pub(super) fn keep(&self, state: &State, fleet: &Fleet) {
        let mut kept = Vec::new();
        for backend in &fleet.backends {
            let (word, drained) =
                (state.words.get(&backend.index), state.drained.get(&backend.index));
            if word.is_none() && drained.is_none() {
                continue;
            }
            let health = word.map(|spoken| KeptHealth {
                health: spoken.word.into(),
                said: spoken.said.clone(),
                until_ns: spoken.until_ns,
            });
            let drain = drained.map(|drained| KeptDrain {
                maintenance: drained.maintenance,
                said: drained.said.clone(),
                until_ns: drained.until_ns,
            });
            kept.push(KeptWord { health, drain, ..KeptWord::of(fleet, backend) });
        }
        let failed = words::write(&fleet.state_directory, kept).err();
        let failed_before = self.words_fail.swap(failed.is_some(), Ordering::Relaxed);
        if let Some(error) = failed.filter(|_| !failed_before) {
            tracing::error!(
                "what operators said will not outlive the agent, for {} takes no file: {error}",
                fleet.state_directory.display()
            );
        }
    }

    /// Hands one backend's word to whoever owns its verdict.
    fn hand_over(&self, backend: u32, word: Override) -> Result<(), ControlError> {
        if self.parts.unprobed.set_word(backend, word) {
            return Ok(());
        }
        self.patiently(|shards| shards.request(ShardRequest::SetOverride { backend, word }))
    }

    /// Asks the shards, and again while one has its queue full: it takes what waits within a tick, and
    /// a pattern over a whole fleet fills that.
    pub(super) fn patiently<T>(
        &self,
        ask: impl Fn(&mut Shards) -> Result<T, RequestError>,
    ) -> Result<T, ControlError> {
        let limit = Instant::now() + HAND_OVER_LIMIT;
        loop {
            match self.parts.with_shards(&ask) {
                Some(Err(RequestError::Busy { .. })) if Instant::now() < limit => {
                    thread::sleep(Duration::from_millis(5));
                }
                answer => return taken(answer),
            }
        }
    }
}

/// When the time is over for which something is said at `now`.
fn until_ns(terms: &Terms, now: Nanos) -> Option<Nanos> {
    let limit_ns = terms.limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
    limit_ns.map(|limit_ns| now.saturating_add(limit_ns))
}
