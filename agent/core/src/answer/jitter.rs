//! What jitter adds to a row of results on one grid.
//!
//! Jitter makes a probe late by its own share of the interval, never early, and the rehearsal runs
//! without it: one target's shares say nothing of another's. Its extremes are a closed form. The
//! mean of a row stays where it was but for a probe that jitter pushes across the next slot, since
//! the end of the row is late by as much, on average, as its beginning.

use super::row::{Before, Row, jitter_ns_max, pushed_ns};
use crate::bound::{Pace, Times};
use crate::plan::{Nanos, ProbeSpec};

/// The same times with the jitter of `spec`.
pub(super) fn widened(times: Times, spec: &ProbeSpec, row: Row) -> Times {
    if row.count == 0 || times == Times::ZERO {
        return times;
    }
    let interval_ns = spec.interval_ns;
    let single = row.count == 1;
    // On one grid the last probe alone counts.
    let late_ns = match row.before {
        Before::Start if single => 0,
        Before::Start | Before::Probe | Before::Timeout => jitter_ns_max(spec, interval_ns),
    };
    let between = Nanos::from(row.count - 1) * row.pushed_ns(spec, interval_ns);
    let first_ns = match row.before {
        Before::Timeout => pushed_ns(spec, interval_ns, (Pace::WholeTimeout, false)),
        Before::Probe | Before::Start => 0,
    };
    Times {
        // The first of several may be as late as can be, and the last one not at all.
        best_ns: times.best_ns.saturating_sub(if single { 0 } else { late_ns }),
        typical_ns: times.typical_ns,
        worst_ns: times.worst_ns + late_ns + between + first_ns,
    }
}
