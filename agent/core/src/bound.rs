//! How long a rule takes to see a death or a recovery: the closed forms.
//!
//! With the schedule on a fixed grid, or an interval from each end, and one deadline per probe, each
//! is a few terms. They leave
//! out what the host adds: a loop that is late, and up to one [tick](crate::wheel::TICK_NS) of each
//! start and deadline. Indeterminate probes prolong them. [`crate::answer`] gets the same figures
//! from a prober on a virtual clock, and holds them against these.

use crate::limits::FIRST_PROBE_NS_MAX;
use crate::plan::{Nanos, Rule};

/// From an event at a backend to the verdict that tells of it, over every moment at which the event
/// can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// It happened just before a probe.
    pub best_ns: Nanos,
    /// The mean over moments that are spread evenly between two probes.
    pub typical_ns: Nanos,
    /// It happened just after a probe.
    pub worst_ns: Nanos,
}

impl Times {
    /// No time at all.
    pub const ZERO: Self = Self { best_ns: 0, typical_ns: 0, worst_ns: 0 };

    /// After a wait of anything up to `wait_ns_max`, evenly spread, always `rest_ns` more.
    #[must_use]
    pub const fn waiting(wait_ns_max: Nanos, rest_ns: Nanos) -> Self {
        Self {
            best_ns: rest_ns,
            typical_ns: rest_ns + wait_ns_max / 2,
            worst_ns: rest_ns + wait_ns_max,
        }
    }
}

/// How soon the results come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pace {
    /// Refused at once, answered at once.
    AtOnce,
    /// Each probe takes its whole timeout: a black hole, or an answer that comes just in time.
    WholeTimeout,
}

/// What the register holds when it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distance {
    /// Every result is good before a death, bad before a recovery: as far as can be.
    Far,
    /// One more result decides.
    Boundary,
}

/// When a target is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rhythm {
    /// From one scheduled start to the next; not 0.
    pub interval_ns: Nanos,
    /// One deadline for the whole probe.
    pub timeout_ns: Nanos,
    /// The interval runs from the end of a probe, as Varnish's, and there is no grid.
    pub from_end: bool,
}

impl Rhythm {
    /// From one start to the next when each probe times out: slots that come while a probe is in
    /// flight are skipped, and so is the one that comes at the very deadline, when the probe is
    /// only being cancelled.
    #[must_use]
    pub const fn timed_out_period_ns(self) -> Nanos {
        if self.from_end {
            return self.interval_ns + self.timeout_ns;
        }
        self.interval_ns * (self.timeout_ns / self.interval_ns + 1)
    }

    /// From one start to the next when each answer comes at its deadline, and counts: the slot of
    /// that moment is free for the next probe.
    #[must_use]
    pub const fn slowest_good_period_ns(self) -> Nanos {
        if self.from_end {
            return self.interval_ns + self.timeout_ns;
        }
        self.interval_ns * self.timeout_ns.div_ceil(self.interval_ns)
    }

    /// From the start of the first of `count` failures to the end of the last.
    const fn failures_ns(self, count: u32, pace: Pace) -> Nanos {
        let after_first = count as Nanos - 1;
        match pace {
            Pace::AtOnce => after_first * self.interval_ns,
            Pace::WholeTimeout => after_first * self.timed_out_period_ns() + self.timeout_ns,
        }
    }

    /// From the start of the first of `count` good answers to the end of the last.
    const fn goods_ns(self, count: u32, pace: Pace) -> Nanos {
        let after_first = count as Nanos - 1;
        match pace {
            Pace::AtOnce => after_first * self.interval_ns,
            Pace::WholeTimeout => after_first * self.slowest_good_period_ns() + self.timeout_ns,
        }
    }
}

/// Bad results in a row that make a full register sick; `None` when the rule never finds sickness.
#[must_use]
pub const fn failures_to_sick(rule: Rule) -> Option<u32> {
    match rule {
        Rule::Window { threshold: 0, .. } => None,
        Rule::Window { window, threshold } => Some((window - threshold + 1) as u32),
        Rule::Consecutive { fall, .. } => Some(fall as u32),
    }
}

/// From the backend's death to sick; `None` when the rule never finds sickness.
///
/// Worst: it dies just after a probe passed, and the first bad one starts an interval later. From a
/// full register into a black hole that is `failures * interval + timeout`, when the timeout is
/// shorter than the interval.
#[must_use]
pub const fn to_sick(rule: Rule, rhythm: Rhythm, distance: Distance, pace: Pace) -> Option<Times> {
    let failures = match (failures_to_sick(rule), distance) {
        (None, _) => return None,
        (Some(failures), Distance::Far) => failures,
        (Some(_), Distance::Boundary) => 1,
    };
    Some(Times::waiting(rhythm.interval_ns, rhythm.failures_ns(failures, pace)))
}

/// From the backend's recovery to healthy.
///
/// Worst: it recovers just after a probe was sent into the void, which must time out first, and
/// then each answer takes the whole timeout and is good all the same. From an empty register that
/// is `goods * interval + timeout`, when the timeout is shorter than the interval.
#[must_use]
pub const fn to_healthy(rule: Rule, rhythm: Rhythm, distance: Distance, pace: Pace) -> Times {
    let goods = match (rule.goods_to_healthy(), distance) {
        (0, _) => return Times::ZERO,
        (goods, Distance::Far) => goods as u32,
        (_, Distance::Boundary) => 1,
    };
    let after_failure = match distance {
        Distance::Far => true,
        Distance::Boundary => boundary_ends_bad(rule),
    };
    let wait_ns = match pace {
        Pace::WholeTimeout if after_failure => rhythm.timed_out_period_ns(),
        _ => rhythm.interval_ns,
    };
    Times::waiting(wait_ns, rhythm.goods_ns(goods, pace))
}

/// From the start of the agent, or from the moment a target is added, to the first traffic of a
/// faultless backend.
///
/// The first probe comes within the lesser of the interval and [`FIRST_PROBE_NS_MAX`]. With a
/// longer interval the second follows at the next slot of the grid, which may be at once, and may
/// come while the first is still in flight, and then is skipped.
#[must_use]
pub const fn to_first_traffic(rule: Rule, initial: u8, rhythm: Rhythm, pace: Pace) -> Times {
    let Some(goods) = goods_at_start(rule, initial) else {
        return Times::ZERO;
    };
    let Rhythm { interval_ns, timeout_ns, from_end } = rhythm;
    let on_grid = interval_ns <= FIRST_PROBE_NS_MAX;
    let wait_ns = if on_grid { interval_ns } else { FIRST_PROBE_NS_MAX };
    if goods == 1 || on_grid || from_end {
        return Times::waiting(wait_ns, rhythm.goods_ns(goods, pace));
    }
    let first_ns = match pace {
        Pace::AtOnce => 0,
        Pace::WholeTimeout => timeout_ns,
    };
    Times::waiting(wait_ns + interval_ns, first_ns + rhythm.goods_ns(goods - 1, pace))
}

/// Good results that a target needs at its start; `None` when those assumed are enough.
#[must_use]
pub const fn goods_at_start(rule: Rule, initial: u8) -> Option<u32> {
    let goods = rule.goods_to_healthy();
    if goods == 0 {
        // Any result will do, but one there must be.
        return Some(1);
    }
    if goods <= initial { None } else { Some((goods - initial) as u32) }
}

/// Whether the newest result of a register that is one good result short of healthy can be bad;
/// [`crate::answer`] takes such a one where it can. Not when every result of the window must be
/// good, or in a row: then that one would be missing.
pub(crate) const fn boundary_ends_bad(rule: Rule) -> bool {
    match rule {
        Rule::Window { window, threshold } => threshold < window || window == 1,
        Rule::Consecutive { rise, .. } => rise == 1,
    }
}

/// Of the contents that a window can have while it is healthy, how many turn sick at exactly the
/// `failures`-th bad result in a row. 0 for the consecutive rule, which asks for the newest alone.
///
/// The newest `threshold` good results are what holds it: the oldest of these stands at place
/// `window - failures` (the newest result is place 0), and leaves the window at that failure.
#[must_use]
pub fn registers_needing(rule: Rule, failures: u32) -> u128 {
    let Rule::Window { window, threshold } = rule else {
        return 0;
    };
    let (window, threshold) = (u32::from(window), u32::from(threshold));
    if threshold == 0 || failures == 0 || window - threshold + 1 < failures {
        return 0;
    }
    // One good at that place, one less than the threshold among the newer, anything behind.
    choices(window - failures, threshold - 1) << (failures - 1)
}

/// How many contents of the window are healthy. 0 for the consecutive rule.
#[must_use]
pub fn registers_healthy(rule: Rule) -> u128 {
    let most = failures_to_sick(rule).unwrap_or(0);
    (1..=most).map(|failures| registers_needing(rule, failures)).sum()
}

/// In how many ways `chosen` of `count` can be taken.
fn choices(count: u32, chosen: u32) -> u128 {
    (0..u128::from(chosen)).fold(1, |ways, index| ways * (u128::from(count) - index) / (index + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;
    const DEFAULT: Rule = Rule::Window { window: 8, threshold: 3 };

    const fn every(interval_ns: Nanos, timeout_ns: Nanos) -> Rhythm {
        Rhythm { interval_ns, timeout_ns, from_end: false }
    }

    #[test]
    fn varnishs_defaults_take_six_failures() {
        // Window 8, threshold 3: at the sixth bad result only two good ones are left.
        let rhythm = every(5 * SECOND, 2 * SECOND);
        let times = to_sick(DEFAULT, rhythm, Distance::Far, Pace::AtOnce).expect("is sick");
        assert_eq!(times.best_ns, 25 * SECOND);
        let times = to_sick(DEFAULT, rhythm, Distance::Far, Pace::WholeTimeout).expect("is sick");
        assert_eq!(times.worst_ns, 32 * SECOND);
        let times = to_healthy(DEFAULT, rhythm, Distance::Far, Pace::AtOnce);
        assert_eq!(times.best_ns, 10 * SECOND);
        let times = to_healthy(DEFAULT, rhythm, Distance::Far, Pace::WholeTimeout);
        assert_eq!(times.worst_ns, 17 * SECOND);
    }

    #[test]
    fn threshold_of_zero_is_never_sick() {
        let rule = Rule::Window { window: 8, threshold: 0 };
        let rhythm = every(SECOND, SECOND / 2);
        assert_eq!(to_sick(rule, rhythm, Distance::Far, Pace::AtOnce), None);
        assert_eq!(to_healthy(rule, rhythm, Distance::Far, Pace::AtOnce), Times::ZERO);
        assert_eq!(registers_healthy(rule), 0);
    }

    #[test]
    fn timeout_past_the_interval_makes_each_failure_take_longer() {
        let rule = Rule::Consecutive { fall: 3, rise: 2 };
        // A timeout of 1.5 s skips every other slot: starts at 1, 3 and 5 s.
        let rhythm = every(SECOND, 3 * SECOND / 2);
        let times = to_sick(rule, rhythm, Distance::Far, Pace::WholeTimeout).expect("is sick");
        assert_eq!(times.worst_ns, 13 * SECOND / 2);
    }

    #[test]
    fn registers_are_counted_as_they_are_when_all_are_tried() {
        for window in 1..=10_u8 {
            for threshold in 1..=window {
                let rule = Rule::Window { window, threshold };
                let mut counts = [0_u128; 12];
                for register in 0..1_u64 << window {
                    let left = failures_left(register, window, threshold);
                    counts[left as usize] += 1;
                }
                for failures in 1..12_u32 {
                    let counted = counts[failures as usize];
                    assert_eq!(registers_needing(rule, failures), counted, "{rule:?} {failures}");
                }
                let healthy: u128 = counts[1..].iter().sum();
                assert_eq!(registers_healthy(rule), healthy, "{rule:?}");
            }
        }
    }

    /// By shifting zeros in until too few are left; 0 = sick already.
    fn failures_left(register: u64, window: u8, threshold: u8) -> u32 {
        let mask = (1 << window) - 1;
        let short = |after: &u32| (register << after & mask).count_ones() < u32::from(threshold);
        (0..64).find(short).expect("an empty window is sick")
    }

    #[test]
    fn largest_window_is_counted_without_overflow() {
        // All 2^64 contents but the empty one hold at least one good result.
        let rule = Rule::Window { window: 64, threshold: 1 };
        assert_eq!(registers_healthy(rule), u128::from(u64::MAX));
    }
}
