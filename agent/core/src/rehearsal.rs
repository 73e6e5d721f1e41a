//! One target on the virtual clock: its prober, run a result at a time.
//!
//! A peer that is set between two results is met by the next probe: whether a backend dies just
//! after a probe or just before the next, the probes see the same.

use crate::bound::Pace;
use crate::command::Verdict;
use crate::plan::{
    self, Family, JudgeIndex, JudgeSpec, Nanos, OnUnknown, Plan, ProbeIndex, ProbeKind, ProbeSpec,
    Room, Rule, TargetIndex, TargetSpec,
};
use crate::register::HAPPY;
use crate::sim::{Behaviour, Occurrence, Peer, Sim};

const TARGET: TargetIndex = TargetIndex(0);
const JUDGE: JudgeIndex = JudgeIndex(0);
/// On one grid any will do: every figure is relative to it. Where the pace changes there are several,
/// and how they lie to each other follows from this: what is seen is one target's, and the times of
/// [`crate::answer`] are not taken from it.
const IDENTITY: u128 = 0x51c4_ba75_51c4_ba75_51c4_ba75_51c4_ba75;
const PHASE_SEED: u64 = 1;

/// One probe's end, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// When it was started.
    pub started_ns: Nanos,
    /// When it ended.
    pub ended_ns: Nanos,
    /// Whether it was good.
    pub good: bool,
    /// The happy register with it, newest result in bit 0.
    pub happy: u64,
    /// The verdict with it.
    pub verdict: Verdict,
}

/// The target.
#[derive(Debug)]
pub struct Rehearsal {
    sim: Sim,
    timeout_ns: Nanos,
}

impl Rehearsal {
    /// A target that is probed as `spec` says from `now` on and judged by `rule`. Its kind does not
    /// matter: no more is asked of the peer than to be good or bad. Nor does its jitter: it probes
    /// on the slot.
    #[must_use]
    pub fn new(spec: &ProbeSpec, rule: Rule, initial: u8, now: Nanos) -> Self {
        let pace = plan::Pace { jitter_percent: 0, ..spec.pace };
        let plan = plan(&ProbeSpec { pace, ..spec.clone() }, rule, initial);
        Self { sim: Sim::new(&plan, 0, now), timeout_ns: spec.timeout_ns }
    }

    /// From the start of a prober to its first probe of the target, and a slot of the grid.
    #[must_use]
    pub fn first_and_slot_ns(spec: &ProbeSpec) -> (Nanos, Nanos) {
        let first_ns = crate::schedule::first_ns(IDENTITY, PHASE_SEED, spec.interval_ns, 0);
        (first_ns, crate::schedule::phase_ns(IDENTITY, PHASE_SEED, spec.interval_ns))
    }

    /// From now on the backend is well, and answers at this pace.
    pub fn revive(&mut self, pace: Pace) {
        let delay_ns = match pace {
            Pace::AtOnce => 0,
            Pace::WholeTimeout => self.timeout_ns,
        };
        self.sim.set_peer(TARGET, Peer::HEALTHY.with_delay_ns(delay_ns));
    }

    /// From now on the backend is dead, and fails at this pace.
    pub fn kill(&mut self, pace: Pace) {
        let behaviour = match pace {
            Pace::AtOnce => Behaviour::Refuses,
            Pace::WholeTimeout => Behaviour::BlackHole,
        };
        self.sim.set_peer(TARGET, Peer::new(behaviour));
    }

    /// Runs to the end of the next probe.
    pub fn next_result(&mut self) -> Landed {
        loop {
            let mut ended = None;
            let wake_ns = self.sim.next_ns();
            self.sim.run_until(wake_ns, &mut |traced| {
                if let Occurrence::Report(report) = traced.what {
                    ended = Some((report, traced.at_ns));
                }
            });
            if let Some((report, ended_ns)) = ended {
                return Landed {
                    started_ns: report.started_ns,
                    ended_ns,
                    good: report.outcome.good().unwrap_or(false),
                    happy: self.sim.prober().history(TARGET).registers[HAPPY],
                    verdict: self.verdict(),
                };
            }
        }
    }

    /// The verdict now.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.sim.prober().verdict(JUDGE)
    }
}

/// A plan of the one target.
pub(crate) fn plan(spec: &ProbeSpec, rule: Rule, initial: u8) -> Plan {
    let probe = ProbeSpec { kind: ProbeKind::Tcp, ..spec.clone() };
    let target = TargetSpec {
        identity: IDENTITY,
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        second: None,
        initial,
    };
    let judge = JudgeSpec { target: TARGET, rule, on_unknown: OnUnknown::Keep };
    Plan {
        probes: vec![probe],
        targets: vec![target],
        judges: vec![judge],
        slot_count: 2,
        phase_seed: PHASE_SEED,
        past: Vec::new(),
        room: Room::NONE,
    }
}
