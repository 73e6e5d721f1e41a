//! What one shard tells the kernel of verdicts that the guard holds.

use std::collections::HashMap;
use std::sync::Arc;

use sickbay_core::command::{ChangeCause, LocalFault, Outcome, Override, Phase, Verdict};
use sickbay_core::plan::{JudgeIndex, Nanos};
use sickbay_core::prober::Prober;

use crate::guard::{Evidence, Guards};

/// One shard's side of the guard.
#[derive(Debug)]
pub(super) struct Guarded {
    guards: Arc<Guards>,
    /// Backends that are sick by their probes, by their index.
    falls: HashMap<u32, Fall>,
    /// The epoch of the guards that was acted upon.
    epoch: u64,
}

/// A backend that is sick by its probes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fall {
    /// Its pool's index.
    pool: u32,
    /// Its first judge.
    pub(super) leader: JudgeIndex,
    at_ns: Nanos,
}

impl Guarded {
    pub(super) fn new(guards: Arc<Guards>) -> Self {
        Self { guards, falls: HashMap::new(), epoch: 0 }
    }

    /// What the kernel is told of a backend whose probes, or whose operator, say `verdict`, and
    /// said `before`.
    pub(super) fn told(
        &mut self,
        (backend, pool, leader): (u32, u32, JudgeIndex),
        (before, verdict): (Verdict, Verdict),
        (cause, outcome): (ChangeCause, Option<Outcome>),
        now: Nanos,
    ) -> Verdict {
        if verdict != Verdict::Sick || cause != ChangeCause::Probe {
            if self.falls.remove(&backend).is_some() {
                self.guards.on_recovery(pool, backend, now);
            }
            return verdict;
        }
        // One that was never healthy has no verdict to hold.
        if before == Verdict::Healthy {
            self.falls.insert(backend, Fall { pool, leader, at_ns: now });
            self.guards.on_fall(pool, backend, outcome.is_none_or(is_silence), now);
        }
        let fell = self.falls.get(&backend);
        let held = fell.is_some_and(|fall| self.guards.holds(pool, fall.at_ns));
        if held { Verdict::Healthy } else { Verdict::Sick }
    }

    /// Whether the verdict that condemned a backend is held.
    pub(super) fn is_held(&self, pool: u32, backend: u32) -> bool {
        self.falls.get(&backend).is_some_and(|fall| self.guards.holds(pool, fall.at_ns))
    }

    /// A backend is probed no more.
    pub(super) fn part(&mut self, pool: u32, backend: u32, now: Nanos) {
        if self.falls.remove(&backend).is_some() {
            self.guards.on_recovery(pool, backend, now);
        }
    }

    /// What a probe came to: a sign of this host's own fault, or none.
    pub(super) fn on_outcome(&self, outcome: Outcome, now: Nanos) {
        match outcome {
            Outcome::Indeterminate(LocalFault::Errno { .. }) => {
                self.guards.sign(Evidence::Resources, now);
            }
            Outcome::Indeterminate(LocalFault::NoSlot | LocalFault::LoopLate) => {
                self.guards.sign(Evidence::Late, now);
            }
            _ => {}
        }
    }

    /// The backends of which the kernel is to be told something else now, each with whether it is
    /// told that it is healthy. Asked at every tick; nothing when no hold began or ended.
    pub(super) fn changes(&mut self, prober: &Prober) -> Vec<(Fall, bool)> {
        let epoch = self.guards.epoch();
        let is_held = |fall: &Fall| {
            self.guards.holds(fall.pool, fall.at_ns)
                && prober.override_of(fall.leader) != Override::Sick
        };
        // An operator who says sick what is sick already changes no verdict: he is heard here.
        let forced = |fall: &&Fall| prober.override_of(fall.leader) == Override::Sick;
        if epoch == self.epoch {
            return self.falls.values().filter(forced).map(|fall| (*fall, false)).collect();
        }
        self.epoch = epoch;
        self.falls.values().map(|fall| (*fall, is_held(fall))).collect()
    }
}

/// Nothing came of the backend: no refusal, no answer, and no open connection.
fn is_silence(outcome: Outcome) -> bool {
    match outcome {
        Outcome::TimedOut { phase } => matches!(phase, Phase::Socket | Phase::Connect),
        Outcome::Failed { errno, .. } => {
            [libc::EHOSTUNREACH, libc::ENETUNREACH, libc::EHOSTDOWN, libc::ETIMEDOUT]
                .contains(&errno)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests;
