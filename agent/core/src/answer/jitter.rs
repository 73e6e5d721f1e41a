//! What jitter adds to a row of results.
//!
//! Jitter makes a probe late by its own share of the interval, never early, and the rehearsal runs
//! without it: one target's shares say nothing of another's. Its extremes are a closed form. The
//! mean of a row stays where it was but for a probe that jitter pushes across the next slot, since
//! the end of the row is late by as much, on average, as its beginning.

use crate::bound::{Pace, Rhythm, Times};
use crate::plan::{self, Nanos, ProbeSpec};
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

/// The same times with the jitter of `spec`.
pub(super) fn widened(times: Times, spec: &ProbeSpec, row: Row) -> Times {
    if row.count == 0 || times == Times::ZERO {
        return times;
    }
    let plan::Pace { fast_ns, sick_ns, jitter_percent } = spec.pace;
    let most_ns = |interval_ns| jitter_ns_max(interval_ns, jitter_percent);
    let calm_ns = spec.interval_ns;
    let (wait_ns, run_ns) = (calm_ns.max(sick_ns.unwrap_or(0)), fast_ns.unwrap_or(calm_ns));
    // On one grid the last probe alone counts. A change of pace begins a grid at a probe that is
    // late itself.
    let one_grid = fast_ns.is_none() && sick_ns.is_none();
    let single = row.count == 1;
    let late_ns = match row.before {
        Before::Start if single => 0,
        Before::Start => most_ns(run_ns),
        _ if single || one_grid => most_ns(wait_ns),
        _ => most_ns(wait_ns) + most_ns(run_ns),
    };
    let between = Nanos::from(row.count - 1) * pushed_ns(run_ns, spec, row.pace, row.good);
    let first_ns = match row.before {
        Before::Timeout => pushed_ns(wait_ns, spec, Pace::WholeTimeout, false),
        Before::Probe | Before::Start => 0,
    };
    Times {
        // The first of several may be as late as can be, and the last one not at all.
        best_ns: times.best_ns.saturating_sub(if single { 0 } else { late_ns }),
        typical_ns: times.typical_ns,
        worst_ns: times.worst_ns + late_ns + between + first_ns,
    }
}

/// The largest share that a slot can have, in whole ticks and less than the span.
const fn jitter_ns_max(interval_ns: Nanos, percent: u8) -> Nanos {
    (interval_ns / 100 * percent as Nanos / TICK_NS).saturating_sub(1) * TICK_NS
}

/// What more passes between two probes when the first is as late as can be and its end so falls
/// behind further slots.
const fn pushed_ns(interval_ns: Nanos, spec: &ProbeSpec, pace: Pace, good: bool) -> Nanos {
    let late_ns = jitter_ns_max(interval_ns, spec.pace.jitter_percent);
    // Without a grid there is no jitter.
    let from_end = spec.compat.is_varnish();
    let prompt = Rhythm { interval_ns, timeout_ns: spec.timeout_ns, from_end };
    let late = Rhythm { timeout_ns: spec.timeout_ns + late_ns, ..prompt };
    match (pace, good) {
        (Pace::AtOnce, _) => 0,
        (Pace::WholeTimeout, false) => late.timed_out_period_ns() - prompt.timed_out_period_ns(),
        (Pace::WholeTimeout, true) => {
            late.slowest_good_period_ns() - prompt.slowest_good_period_ns()
        }
    }
}
