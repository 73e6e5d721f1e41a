//! Results in a row that a figure waits for.

use crate::bound::{Pace, Rhythm};
use crate::plan::{Nanos, ProbeSpec};
use crate::wheel::TICK_NS;

/// Results in a row that a figure waits for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// How many.
    pub(super) count: u32,
    /// Whether they are good.
    pub(super) good: bool,
    /// How soon they come.
    pub(super) pace: Pace,
    /// What comes before its first probe.
    pub(super) before: Before,
}

/// What comes before the first probe of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// A probe that ended at once.
    Probe,
    /// One that runs into its timeout.
    Timeout,
    /// The start of the agent: the first probe has no jitter.
    Start,
}

impl Row {
    /// From the start of one of its probes to its end.
    pub(super) const fn duration_ns(self, spec: &ProbeSpec) -> Nanos {
        match self.pace {
            Pace::AtOnce => 0,
            Pace::WholeTimeout => spec.timeout_ns,
        }
    }

    /// From the start of one of its probes to that of the next, on one grid.
    pub(super) const fn period_ns(self, spec: &ProbeSpec, interval_ns: Nanos) -> Nanos {
        period_ns(spec, interval_ns, (self.pace, self.good), 0)
    }

    /// What more passes between two of its probes when the first is as late as can be, and its end
    /// so falls behind further slots.
    pub(super) const fn pushed_ns(self, spec: &ProbeSpec, interval_ns: Nanos) -> Nanos {
        pushed_ns(spec, interval_ns, (self.pace, self.good))
    }
}

/// The largest share of jitter that a slot can have, in whole ticks and less than the span.
pub(super) const fn jitter_ns_max(spec: &ProbeSpec, interval_ns: Nanos) -> Nanos {
    let span_ns = interval_ns / 100 * spec.pace.jitter_percent as Nanos;
    (span_ns / TICK_NS).saturating_sub(1) * TICK_NS
}

/// [`Row::pushed_ns`] of results that are good or not.
pub(super) const fn pushed_ns(
    spec: &ProbeSpec,
    interval_ns: Nanos,
    results: (Pace, bool),
) -> Nanos {
    let late_ns = jitter_ns_max(spec, interval_ns);
    period_ns(spec, interval_ns, results, late_ns) - period_ns(spec, interval_ns, results, 0)
}

/// From one slot that is used to the next, by probes that start this late.
const fn period_ns(
    spec: &ProbeSpec,
    interval_ns: Nanos,
    (pace, good): (Pace, bool),
    late_ns: Nanos,
) -> Nanos {
    // Without a grid there is no jitter.
    let from_end = spec.compat.is_varnish();
    let rhythm = Rhythm { interval_ns, timeout_ns: spec.timeout_ns + late_ns, from_end };
    match (pace, good) {
        (Pace::AtOnce, _) => interval_ns,
        (Pace::WholeTimeout, false) => rhythm.timed_out_period_ns(),
        (Pace::WholeTimeout, true) => rhythm.slowest_good_period_ns(),
    }
}
