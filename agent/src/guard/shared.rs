//! One guard for each pool, between the probing threads, which tell of falls and ask what is held,
//! and the main thread, which lets time go by.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sickbay_core::plan::Nanos;

use super::{Decision, Ended, Evidence, Hold, PoolGuard, Signs};
use crate::fleet::Fleet;

/// The guards of all pools.
#[derive(Debug)]
pub struct Guards {
    pools: Box<[Guarded]>,
    /// Grows whenever a hold begins or ends.
    epoch: AtomicU64,
    late_ns: AtomicU64,
    resources_ns: AtomicU64,
    link_ns: AtomicU64,
    happened: Mutex<Vec<Happening>>,
}

#[derive(Debug)]
struct Guarded {
    name: String,
    guard: Mutex<PoolGuard>,
    /// Verdicts that fell since then are held; [`Nanos::MAX`] = none.
    held_since_ns: AtomicU64,
}

/// A hold that began or ended, to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// The pool's name.
    pub pool: String,
    /// What happened, as it is told behind the pool's name.
    pub text: String,
    /// When.
    pub at_ns: Nanos,
}

/// A pool whose verdicts are held, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardView {
    /// The pool's name.
    pub pool: String,
    /// Why this host is suspected.
    pub evidence: String,
    /// Backends that had turned sick when the hold began.
    pub fallen: u32,
    /// How long the hold still lasts at most, in ms.
    pub left_ms: u64,
}

impl Guards {
    /// The guards of a fleet; `None` when it is not guarded.
    #[must_use]
    pub fn new(fleet: &Fleet) -> Option<Self> {
        let rule = fleet.guard?;
        let guarded = |pool: &crate::fleet::Pool| {
            let members = u32::try_from(pool.backends.len()).expect("backends are counted in u32");
            Guarded {
                name: pool.name.clone(),
                guard: Mutex::new(PoolGuard::new(rule, members)),
                held_since_ns: AtomicU64::new(Nanos::MAX),
            }
        };
        Some(Self {
            pools: fleet.pools.iter().map(guarded).collect(),
            epoch: AtomicU64::new(0),
            late_ns: AtomicU64::new(0),
            resources_ns: AtomicU64::new(0),
            link_ns: AtomicU64::new(0),
            happened: Mutex::new(Vec::new()),
        })
    }

    /// How many backends each pool has now.
    pub fn set_members(&self, counts: &[u32]) {
        for (pool, members) in self.pools.iter().zip(counts) {
            let mut guard = pool.guard.lock().unwrap_or_else(PoisonError::into_inner);
            guard.set_members(*members);
        }
    }

    /// Something points to a fault of this host.
    pub fn sign(&self, evidence: Evidence, now: Nanos) {
        let stamp = match evidence {
            Evidence::Late => &self.late_ns,
            Evidence::Resources => &self.resources_ns,
            Evidence::Link => &self.link_ns,
            // That is seen by the falls themselves.
            Evidence::SilenceOnly => return,
        };
        stamp.fetch_max(now, Ordering::Relaxed);
    }

    /// A backend of pool `pool` turned sick by its probes.
    pub fn on_fall(&self, pool: u32, backend: u32, silent: bool, now: Nanos) {
        let signs = self.signs();
        self.decide(pool, now, |guard| guard.on_fall(backend, silent, &signs, now));
    }

    /// A backend of pool `pool` is no longer sick by its probes.
    pub fn on_recovery(&self, pool: u32, backend: u32, now: Nanos) {
        self.decide(pool, now, |guard| guard.on_recovery(backend));
    }

    /// Time went by; the main thread says so several times a second. What was decided since the
    /// last time.
    pub fn on_time(&self, now: Nanos) -> Vec<Happening> {
        let signs = self.signs();
        for pool in 0..self.pools.len() {
            let pool = u32::try_from(pool).expect("pools are counted in u32");
            self.decide(pool, now, |guard| guard.on_time(&signs, now));
        }
        std::mem::take(&mut *self.happened.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends the hold over this pool, or over all; the names of those that were held.
    pub fn release(&self, name: Option<&str>, now: Nanos) -> Vec<String> {
        let mut released = Vec::new();
        for (index, pool) in (0..).zip(&self.pools) {
            let meant = name.is_none_or(|name| name == pool.name);
            if meant && self.decide(index, now, PoolGuard::release) {
                released.push(pool.name.clone());
            }
        }
        released
    }

    /// Whether a verdict of pool `pool` that fell at `fell_ns` is held now.
    #[must_use]
    pub fn holds(&self, pool: u32, fell_ns: Nanos) -> bool {
        let since_ns = self.pools[pool as usize].held_since_ns.load(Ordering::Acquire);
        since_ns <= fell_ns
    }

    /// Another number than before means that some hold began or ended.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether a pool of this name is guarded.
    #[must_use]
    pub fn has_pool(&self, name: &str) -> bool {
        self.pools.iter().any(|pool| pool.name == name)
    }

    /// The holds in force.
    #[must_use]
    pub fn views(&self, now: Nanos) -> Vec<GuardView> {
        let view = |pool: &Guarded| {
            let Hold { until_ns, fallen, evidence, .. } = pool.lock().hold()?;
            Some(GuardView {
                pool: pool.name.clone(),
                evidence: evidence.to_string(),
                fallen,
                left_ms: until_ns.saturating_sub(now) / 1_000_000,
            })
        };
        self.pools.iter().filter_map(view).collect()
    }

    fn signs(&self) -> Signs {
        Signs {
            late_ns: self.late_ns.load(Ordering::Relaxed),
            resources_ns: self.resources_ns.load(Ordering::Relaxed),
            link_ns: self.link_ns.load(Ordering::Relaxed),
        }
    }

    /// Lets the pool's guard decide; whether it did.
    fn decide(
        &self,
        pool: u32,
        now: Nanos,
        decide: impl FnOnce(&mut PoolGuard) -> Option<Decision>,
    ) -> bool {
        let guarded = &self.pools[pool as usize];
        let mut guard = guarded.lock();
        let Some(decision) = decide(&mut guard) else {
            return false;
        };
        let held_since_ns = guard.hold().map_or(Nanos::MAX, |hold| hold.since_ns);
        guarded.held_since_ns.store(held_since_ns, Ordering::Release);
        drop(guard);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        let text = text_of(decision, now);
        let happening = Happening { pool: guarded.name.clone(), text, at_ns: now };
        self.happened.lock().unwrap_or_else(PoisonError::into_inner).push(happening);
        true
    }
}

impl Guarded {
    fn lock(&self) -> MutexGuard<'_, PoolGuard> {
        self.guard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn text_of(decision: Decision, now: Nanos) -> String {
    match decision {
        Decision::Begins(hold) => format!(
            "{} backends turned sick at once and {}: their last verdicts are held for {} s at \
             most; `sickbay guard release` ends it",
            hold.fallen,
            hold.evidence,
            hold.until_ns.saturating_sub(now) / 1_000_000_000,
        ),
        Decision::Ends(why) => {
            let why = match why {
                Ended::Expired => "its time is over",
                Ended::Recovered => "enough backends are healthy again",
                Ended::ByHand => "an operator released it",
            };
            format!("the hold over the last verdicts has ended: {why}")
        }
    }
}
