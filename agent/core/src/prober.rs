//! The prober: schedule, probes in flight, registers and verdicts of one shard, joined.
//!
//! In: time, [`Event`]s, overrides. Out: [`Command`]s, [`Report`]s, [`Change`]s. The engine drives
//! it; the simulator drives the same one.

use crate::command::{Change, Command, Event, Outcome, Override, Report, Verdict};
use crate::plan::{JudgeIndex, Nanos, Plan, SlotIndex, TargetIndex};

/// One target's history: what is published of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct History {
    /// Varnish's registers in its order `4 6 U x X r R H`, newest result in bit 0.
    pub registers: [u64; 8],
    /// Moving average of happy probes' times, in seconds.
    pub average_s: f64,
    /// Time of the last complete reception, in ns; 0 when the last probe had none.
    pub last_ns: Nanos,
    /// When the last determinate result came; 0 = none yet.
    pub last_result_ns: Nanos,
    /// What the last probe came to; `None` before the first.
    pub outcome: Option<Outcome>,
    /// Probes that ended indeterminate since the last determinate one.
    pub indeterminate: u32,
    /// Nothing determinate came for too long.
    pub unknown: bool,
}

/// The prober of one shard.
#[derive(Debug)]
pub struct Prober {}

impl Prober {
    /// A prober of `plan`, its schedule starting at `now`. The only place that allocates.
    #[must_use]
    pub fn new(plan: &Plan, now: Nanos) -> Self {
        let _ = (plan, now);
        Self {}
    }

    /// The next thing to do, if any is due. Call until `None`, but only while there is room to
    /// carry a command out.
    pub fn poll_command(&mut self, now: Nanos) -> Option<Command> {
        let _ = now;
        None
    }

    /// A command's answer.
    pub fn on_event(&mut self, slot: SlotIndex, event: Event<'_>, now: Nanos) {
        let _ = (slot, event, now);
    }

    /// An operator's word over a judge's probed state.
    pub fn on_override(&mut self, judge: JudgeIndex, word: Override, now: Nanos) {
        let _ = (judge, word, now);
    }

    /// The next finished probe. Drain after every `poll_command` round and every `on_event`.
    pub fn poll_report(&mut self) -> Option<Report> {
        None
    }

    /// The next changed verdict. Drain like the reports.
    pub fn poll_change(&mut self) -> Option<Change> {
        None
    }

    /// When `poll_command` will next have something without an event coming first;
    /// `Nanos::MAX` = never.
    #[must_use]
    pub fn next_wake(&self) -> Nanos {
        Nanos::MAX
    }

    /// The target's history.
    #[must_use]
    pub fn history(&self, target: TargetIndex) -> &History {
        let _ = target;
        unimplemented_history()
    }

    /// What the judge says now, the override included.
    #[must_use]
    pub fn verdict(&self, judge: JudgeIndex) -> Verdict {
        let _ = judge;
        Verdict::Warming
    }

    /// The override in force.
    #[must_use]
    pub fn override_of(&self, judge: JudgeIndex) -> Override {
        let _ = judge;
        Override::Auto
    }

    /// Judges without a first verdict; 0 = steering may attach.
    #[must_use]
    pub fn warming_count(&self) -> u32 {
        0
    }

    /// Probes in flight.
    #[must_use]
    pub fn in_flight_count(&self) -> u32 {
        0
    }
}

fn unimplemented_history() -> &'static History {
    static EMPTY: History = History {
        registers: [0; 8],
        average_s: 0.0,
        last_ns: 0,
        last_result_ns: 0,
        outcome: None,
        indeterminate: 0,
        unknown: false,
    };
    &EMPTY
}
