//! What one shard tells the kernel of verdicts that the guard holds.

use std::collections::HashMap;
use std::sync::Arc;

use sickbay_core::command::{LocalFault, Outcome, Override, Phase};
use sickbay_core::plan::{JudgeIndex, Nanos};
use sickbay_core::prober::Prober;

use crate::guard::{Evidence, Guards};

/// One shard's side of the guard.
#[derive(Debug)]
pub(super) struct Guarded {
    guards: Arc<Guards>,
    /// Backends that are sick by their probes and were healthy before, by their index. One is in it
    /// no longer than that: whoever takes it out tells the guard.
    falls: HashMap<u32, Fall>,
    /// The epoch of the guards that was acted upon.
    epoch: u64,
}

/// A backend that is sick by its probes.
#[derive(Clone, Copy, Debug)]
struct Fall {
    /// Its first judge.
    leader: JudgeIndex,
    at_ns: Nanos,
}

impl Guarded {
    pub(super) fn new(guards: Arc<Guards>) -> Self {
        Self { guards, falls: HashMap::new(), epoch: 0 }
    }

    /// A backend that was healthy turned sick by its probes; the last one came to `outcome`.
    pub(super) fn on_fall(
        &mut self,
        (backend, pool, leader): (u32, u32, JudgeIndex),
        outcome: Option<Outcome>,
        now: Nanos,
    ) {
        self.falls.insert(backend, Fall { leader, at_ns: now });
        self.guards.on_fall(pool, backend, outcome.is_none_or(is_silence), now);
    }

    /// A backend is not sick by its probes, or is probed no more. That it brings no results is
    /// neither.
    pub(super) fn on_recovery(&mut self, (backend, pool, _): (u32, u32, JudgeIndex), now: Nanos) {
        if self.falls.remove(&backend).is_some() {
            self.guards.on_recovery(pool, backend, now);
        }
    }

    /// Whether the verdict that condemned a backend is held.
    pub(super) fn is_held(&self, pool: u32, backend: u32) -> bool {
        self.falls.get(&backend).is_some_and(|fall| self.guards.holds(pool, fall.at_ns))
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

    /// The first judges of the backends of which the kernel may have to be told something else now.
    /// Asked at every tick; while no hold began or ended, those that an operator says are sick.
    pub(super) fn doubtful(&mut self, prober: &Prober) -> Vec<JudgeIndex> {
        let epoch = self.guards.epoch();
        let changed = std::mem::replace(&mut self.epoch, epoch) != epoch;
        // An operator who says sick what is sick already changes no verdict, and neither do its
        // probes then: both are heard here.
        let forced = |fall: &Fall| prober.override_of(fall.leader) == Override::Sick;
        let doubtful = self.falls.values().filter(|fall| changed || forced(fall));
        doubtful.map(|fall| fall.leader).collect()
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
