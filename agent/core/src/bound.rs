//! How long a rule takes at most and at least to see a death or a recovery.
//!
//! With the schedule on a fixed grid and one deadline per probe, both are closed forms. They hold
//! from a full register (every result good, or every one bad), which is the farthest a register can
//! be from the other verdict. They leave out what the host adds: a loop that is late, and up to one
//! [tick](crate::wheel::TICK_NS) of each deadline. Indeterminate probes prolong them.

use crate::plan::{Nanos, Rule};

/// The least and the most time from an event at a backend to the verdict that tells of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// It happened just before a probe, and each probe ended at once.
    pub best_ns: Nanos,
    /// It happened just after a probe, and each probe took the whole timeout.
    pub worst_ns: Nanos,
}

/// From the backend's death to sick; `None` when the rule never finds sickness.
///
/// Worst: it dies just after a probe passed, into a black hole. The first bad probe starts an
/// interval later, and the last of them ends with its timeout. `failures * interval + timeout`,
/// when the timeout is shorter than the interval.
#[must_use]
pub const fn to_sick(rule: Rule, interval_ns: Nanos, timeout_ns: Nanos) -> Option<Bound> {
    let failures = match rule {
        Rule::Window { threshold: 0, .. } => return None,
        Rule::Window { window, threshold } => window - threshold + 1,
        Rule::Consecutive { fall, .. } => fall,
    };
    let after_first = failures as Nanos - 1;
    let period_ns = timed_out_period_ns(interval_ns, timeout_ns);
    Some(Bound {
        best_ns: after_first * interval_ns,
        worst_ns: interval_ns + after_first * period_ns + timeout_ns,
    })
}

/// From the backend's recovery to healthy.
///
/// Worst: it recovers just after a probe was sent into the void, which must time out first, and
/// then each answer takes the whole timeout and is good all the same. `goods * interval + timeout`,
/// when the timeout is shorter than the interval.
#[must_use]
pub const fn to_healthy(rule: Rule, interval_ns: Nanos, timeout_ns: Nanos) -> Bound {
    let goods = rule.goods_to_healthy() as Nanos;
    if goods == 0 {
        return Bound { best_ns: 0, worst_ns: 0 };
    }
    let period_ns = interval_ns * timeout_ns.div_ceil(interval_ns);
    Bound {
        best_ns: (goods - 1) * interval_ns,
        worst_ns: timed_out_period_ns(interval_ns, timeout_ns)
            + (goods - 1) * period_ns
            + timeout_ns,
    }
}

/// From one start to the next when each probe times out: slots that come while a probe is in
/// flight are skipped, and so is the one that comes at the very deadline, when the probe is only
/// being cancelled.
const fn timed_out_period_ns(interval_ns: Nanos, timeout_ns: Nanos) -> Nanos {
    interval_ns * (timeout_ns / interval_ns + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn varnishs_defaults_take_six_failures() {
        // Window 8, threshold 3: at the sixth bad result only two good ones are left.
        let rule = Rule::Window { window: 8, threshold: 3 };
        let bound = to_sick(rule, 5 * SECOND, 2 * SECOND);
        assert_eq!(bound, Some(Bound { best_ns: 25 * SECOND, worst_ns: 32 * SECOND }));
        let bound = to_healthy(rule, 5 * SECOND, 2 * SECOND);
        assert_eq!(bound, Bound { best_ns: 10 * SECOND, worst_ns: 17 * SECOND });
    }

    #[test]
    fn threshold_of_zero_is_never_sick() {
        let rule = Rule::Window { window: 8, threshold: 0 };
        assert_eq!(to_sick(rule, SECOND, SECOND / 2), None);
        assert_eq!(to_healthy(rule, SECOND, SECOND / 2), Bound { best_ns: 0, worst_ns: 0 });
    }

    #[test]
    fn timeout_past_the_interval_makes_each_failure_take_longer() {
        let rule = Rule::Consecutive { fall: 3, rise: 2 };
        // A timeout of 1.5 s skips every other slot: starts at 1, 3 and 5 s.
        let bound = to_sick(rule, SECOND, 3 * SECOND / 2);
        assert_eq!(bound.map(|bound| bound.worst_ns), Some(13 * SECOND / 2));
    }
}
