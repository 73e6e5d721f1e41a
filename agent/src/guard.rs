//! The guard: when many backends of a pool turn sick at once and the fault looks like this host's
//! own, their last verdicts are held for a while.
//!
//! [`PoolGuard`] decides, for one pool, over times it is given; `shared` is what the probing
//! threads and the main thread have of it. The verdicts themselves go on as the probes say: only
//! what the kernel is told of them is held.

/// One guard for each pool, between threads.
mod shared;

use std::collections::BTreeMap;
use std::fmt;

use sickbay_core::plan::Nanos;

pub use self::shared::{GuardView, Guards, Happening};

use crate::fleet::Guard;

/// What points to a fault of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Probes were late, or found no room.
    Late,
    /// Probes could not be made for want of descriptors, memory, ports, …
    Resources,
    /// A link lost its carrier, or a gateway does not answer.
    Link,
    /// No backend that turned sick refused or answered anything: silence alone.
    SilenceOnly,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "this host probed late",
            Self::Resources => "this host lacked resources to probe",
            Self::Link => "a link of this host went down or its gateway does not answer",
            Self::SilenceOnly => "nothing but timeouts came, not one refusal",
        })
    }
}

/// When each kind of sign of a fault of this host was last seen; 0 = never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// A probe was late, or found no room.
    pub late_ns: Nanos,
    /// A probe could not be made.
    pub resources_ns: Nanos,
    /// A link or a gateway was lost.
    pub link_ns: Nanos,
}

/// A hold in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Verdicts that fell since are held.
    pub since_ns: Nanos,
    /// It ends then at the latest.
    pub until_ns: Nanos,
    /// Backends that had turned sick when it began.
    pub fallen: u32,
    /// Why this host is suspected.
    pub evidence: Evidence,
}

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Its time was over.
    Expired,
    /// No more than the share is sick now.
    Recovered,
    /// An operator said so.
    ByHand,
}

/// What a guard decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Verdicts are held from now on.
    Begins(Hold),
    /// They are no more.
    Ends(Ended),
}

/// The guard of one pool.
#[derive(Debug)]
pub struct PoolGuard {
    rule: Guard,
    members: u32,
    /// The backends that turned sick within the time, or since the hold reaches back to.
    falls: BTreeMap<u32, Fall>,
    hold: Option<Hold>,
}

#[derive(Clone, Copy, Debug)]
struct Fall {
    at_ns: Nanos,
    /// Nothing came of the backend: no refusal, no answer.
    silent: bool,
}

impl PoolGuard {
    /// The guard of a pool of `members` backends.
    #[must_use]
    pub fn new(rule: Guard, members: u32) -> Self {
        Self { rule, members, falls: BTreeMap::new(), hold: None }
    }

    /// The pool has so many backends from now on.
    pub const fn set_members(&mut self, members: u32) {
        self.members = members;
    }

    /// The hold in force.
    #[must_use]
    pub const fn hold(&self) -> Option<Hold> {
        self.hold
    }

    /// A backend turned sick by its probes; `silent`: the last one brought no refusal and no answer.
    pub fn on_fall(
        &mut self,
        backend: u32,
        silent: bool,
        signs: &Signs,
        now: Nanos,
    ) -> Option<Decision> {
        self.falls.insert(backend, Fall { at_ns: now, silent });
        self.on_time(signs, now)
    }

    /// A backend is no longer sick by its probes: it is healthy, gone, or an operator's.
    pub fn on_recovery(&mut self, backend: u32) -> Option<Decision> {
        self.falls.remove(&backend);
        if self.hold.is_some() && !self.too_many() {
            return Some(self.end(Ended::Recovered));
        }
        None
    }

    /// Time went by, or a sign was seen.
    pub fn on_time(&mut self, signs: &Signs, now: Nanos) -> Option<Decision> {
        if let Some(hold) = self.hold {
            return (hold.until_ns <= now).then(|| self.end(Ended::Expired));
        }
        let since_ns = now.saturating_sub(self.rule.within_ns);
        self.falls.retain(|_, fall| since_ns <= fall.at_ns);
        if !self.too_many() {
            return None;
        }
        let evidence = self.evidence(signs, since_ns)?;
        let until_ns = now + self.rule.hold_ns;
        let fallen = u32::try_from(self.falls.len()).expect("backends are counted in u32");
        let hold = Hold { since_ns, until_ns, fallen, evidence };
        self.hold = Some(hold);
        Some(Decision::Begins(hold))
    }

    /// An operator ends the hold, if there is one. Those that fell are forgotten: only others that
    /// fall later can make a new one.
    pub fn release(&mut self) -> Option<Decision> {
        self.hold.is_some().then(|| self.end(Ended::ByHand))
    }

    fn end(&mut self, why: Ended) -> Decision {
        self.hold = None;
        self.falls.clear();
        Decision::Ends(why)
    }

    fn too_many(&self) -> bool {
        let share = u64::from(self.members) * u64::from(self.rule.share_percent);
        share < self.falls.len() as u64 * 100
    }

    fn evidence(&self, signs: &Signs, since_ns: Nanos) -> Option<Evidence> {
        let fresh = |at_ns: Nanos| at_ns != 0 && since_ns <= at_ns;
        if fresh(signs.link_ns) {
            Some(Evidence::Link)
        } else if fresh(signs.resources_ns) {
            Some(Evidence::Resources)
        } else if fresh(signs.late_ns) {
            Some(Evidence::Late)
        } else {
            self.falls.values().all(|fall| fall.silent).then_some(Evidence::SilenceOnly)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const RULE: Guard = Guard { share_percent: 50, within_ns: 10 * SECOND, hold_ns: 60 * SECOND };
    const NONE: Signs = Signs { late_ns: 0, resources_ns: 0, link_ns: 0 };

    /// A guard of 10 of which these fell, one each second from 100 s on; what the last one made.
    fn fell(silent: &[bool], signs: &Signs) -> (PoolGuard, Option<Decision>) {
        let mut guard = PoolGuard::new(RULE, 10);
        let mut decision = None;
        for (backend, silent) in (0..).zip(silent) {
            assert_eq!(decision, None, "before backend {backend}");
            decision = guard.on_fall(backend, *silent, signs, at(u64::from(backend)));
        }
        (guard, decision)
    }

    fn at(second: u64) -> Nanos {
        (100 + second) * SECOND
    }

    fn begins(decision: Option<Decision>) -> Hold {
        match decision {
            Some(Decision::Begins(hold)) => hold,
            other => panic!("a hold begins, not {other:?}"),
        }
    }

    #[test]
    fn half_is_not_more_than_half() {
        let (guard, decision) = fell(&[true; 5], &NONE);
        assert_eq!((decision, guard.hold()), (None, None));
    }

    #[test]
    fn more_than_the_share_in_silence_is_held() {
        let (guard, decision) = fell(&[true; 6], &NONE);
        let hold = begins(decision);
        assert_eq!(hold.evidence, Evidence::SilenceOnly);
        assert_eq!((hold.since_ns, hold.until_ns, hold.fallen), (at(5) - 10 * SECOND, at(65), 6));
        assert_eq!(guard.hold(), Some(hold));
    }

    #[test]
    fn one_refusal_shows_that_this_host_can_hear() {
        let (guard, decision) = fell(&[true, true, false, true, true, true, true], &NONE);
        assert_eq!((decision, guard.hold()), (None, None));
    }

    #[test]
    fn a_sign_of_this_host_outweighs_refusals_while_it_is_fresh() {
        let late = |second| Signs { late_ns: at(second), ..NONE };
        let (_, decision) = fell(&[false; 6], &late(0));
        assert_eq!(begins(decision).evidence, Evidence::Late);
        let old = Signs { resources_ns: at(5) - 11 * SECOND, ..NONE };
        assert_eq!(fell(&[false; 6], &old).1, None);
        let both = Signs { link_ns: at(1), resources_ns: at(2), late_ns: at(3) };
        assert_eq!(begins(fell(&[false; 6], &both).1).evidence, Evidence::Link);
    }

    #[test]
    fn sign_that_comes_after_the_falls_begins_the_hold() {
        let (mut guard, decision) = fell(&[false; 6], &NONE);
        assert_eq!(decision, None);
        let signs = Signs { link_ns: at(7), ..NONE };
        assert_eq!(begins(guard.on_time(&signs, at(7))).evidence, Evidence::Link);
        // But not when they fell too long ago.
        let (mut guard, _) = fell(&[false; 6], &NONE);
        let signs = Signs { link_ns: at(11), ..NONE };
        assert_eq!(guard.on_time(&signs, at(11)), None, "the first of six is forgotten");
    }

    #[test]
    fn falls_that_are_spread_over_more_than_the_time_are_no_flip() {
        let mut guard = PoolGuard::new(RULE, 10);
        for backend in 0..10 {
            let now = at(u64::from(backend) * 3);
            assert_eq!(guard.on_fall(backend, true, &NONE, now), None, "backend {backend}");
        }
    }

    #[test]
    fn hold_ends_in_time_and_does_not_begin_again_by_itself() {
        let (mut guard, _) = fell(&[true; 6], &NONE);
        assert_eq!(guard.on_fall(6, true, &NONE, at(30)), None, "it is held already");
        assert_eq!(guard.on_time(&NONE, at(65) - 1), None);
        assert_eq!(guard.on_time(&NONE, at(65)), Some(Decision::Ends(Ended::Expired)));
        assert_eq!(guard.on_time(&NONE, at(66)), None);
        assert_eq!(guard.on_fall(7, true, &NONE, at(66)), None, "one is not too many");
    }

    #[test]
    fn hold_ends_when_enough_recover() {
        let (mut guard, _) = fell(&[true; 6], &NONE);
        assert_eq!(guard.on_fall(6, true, &NONE, at(6)), None);
        assert_eq!(guard.on_recovery(9), None);
        assert_eq!(guard.on_recovery(0), None, "six are still too many");
        assert_eq!(guard.on_recovery(1), Some(Decision::Ends(Ended::Recovered)));
        assert_eq!(guard.on_recovery(2), None);
    }

    #[test]
    fn operator_ends_a_hold_once() {
        let (mut guard, _) = fell(&[true; 6], &NONE);
        assert_eq!(guard.release(), Some(Decision::Ends(Ended::ByHand)));
        assert_eq!((guard.release(), guard.hold()), (None, None));
        assert_eq!(guard.on_time(&NONE, at(6)), None);
    }
}
