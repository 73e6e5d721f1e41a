//! The kernel's stamps of packets, which are of CLOCK_REALTIME, brought to CLOCK_MONOTONIC, also
//! while CLOCK_REALTIME is set: a host that has slept, or a machine whose hypervisor stopped it, is.

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};
use sickbay_lab::clock::monotonic_ns;

/// Two clocks are read this many times, and the closest pair is taken.
const PAIRS: usize = 10;
/// How well what is between two clocks is known, in ns: a reader may be held up between the readings.
const PRECISION_NS: u64 = 100_000;

/// What CLOCK_REALTIME has been ahead of CLOCK_MONOTONIC, in ns, in the order in which that was seen.
#[derive(Debug, Default)]
pub(super) struct Offsets(Vec<u64>);

impl Offsets {
    /// As it is now.
    pub(super) fn new() -> Self {
        let mut offsets = Self::default();
        offsets.look();
        offsets
    }

    /// When a packet was stamped that has just been read, CLOCK_MONOTONIC in ns; now, if no offset
    /// puts its stamp before that.
    pub(super) fn moment_ns(&mut self, stamp_ns: u64) -> u64 {
        self.look();
        moment_ns(&self.0, stamp_ns, monotonic_ns())
    }

    fn look(&mut self) {
        let offset_ns = realtime_offset_ns();
        if self.0.iter().all(|known_ns| PRECISION_NS < known_ns.abs_diff(offset_ns)) {
            self.0.push(offset_ns);
        }
    }
}

/// The latest moment, of those that the offsets make of a stamp, that is not after now.
///
/// A packet is read soon after it is stamped. By an offset that was not in force at its stamp it
/// comes out in the future, or else before what it comes out as by the one that was: that is right
/// for every clock that was set by more than the packet waited.
fn moment_ns(offsets_ns: &[u64], stamp_ns: u64, now_ns: u64) -> u64 {
    let moments = offsets_ns.iter().filter_map(|offset_ns| stamp_ns.checked_sub(*offset_ns));
    moments.filter(|moment_ns| *moment_ns <= now_ns + PRECISION_NS).max().unwrap_or(now_ns)
}

fn realtime_offset_ns() -> u64 {
    let pairs = (0..PAIRS).map(|_| {
        let before_ns = monotonic_ns();
        let now = clock_gettime(ClockId::CLOCK_REALTIME).expect("every Linux has CLOCK_REALTIME");
        let after_ns = monotonic_ns();
        let middle_ns = before_ns.midpoint(after_ns);
        (after_ns - before_ns, nanoseconds(now).saturating_sub(middle_ns))
    });
    pairs.min().expect("there are pairs").1
}

/// A time as one number.
pub(super) fn nanoseconds(time: TimeSpec) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).expect("the year is after 1970");
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).expect("nanoseconds are positive")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const OFFSET_NS: u64 = 1_800_000_000_000 * MS;
    const NOW_NS: u64 = 60_000 * MS;

    #[test]
    fn stamp_is_brought_back_by_the_offset_there_is() {
        assert_eq!(moment_ns(&[OFFSET_NS], OFFSET_NS + NOW_NS - MS, NOW_NS), NOW_NS - MS);
        // The offset itself is known to a few µs only.
        let ahead_ns = NOW_NS + 20_000;
        assert_eq!(moment_ns(&[OFFSET_NS], OFFSET_NS + ahead_ns, NOW_NS), ahead_ns);
    }

    #[test]
    fn stamp_is_brought_back_by_the_offset_of_its_time_when_the_clock_was_set() {
        for (before, after) in [(OFFSET_NS, OFFSET_NS + 782 * MS), (OFFSET_NS + 5 * MS, OFFSET_NS)]
        {
            for stamped_by in [before, after] {
                for waited_ns in [0, 50_000, 4 * MS] {
                    let stamped_ns = NOW_NS - waited_ns;
                    let found = moment_ns(&[before, after], stamped_by + stamped_ns, NOW_NS);
                    assert_eq!(found, stamped_ns, "{before} -> {after} by {stamped_by}");
                }
            }
        }
    }

    #[test]
    fn stamp_of_the_future_is_of_now() {
        assert_eq!(moment_ns(&[OFFSET_NS], OFFSET_NS + NOW_NS + 200 * MS, NOW_NS), NOW_NS);
        assert_eq!(moment_ns(&[OFFSET_NS], 0, NOW_NS), NOW_NS);
    }

    #[test]
    fn offset_is_one_while_nobody_sets_the_clock() {
        let mut offsets = Offsets::new();
        let before_ns = monotonic_ns();
        let now = clock_gettime(ClockId::CLOCK_REALTIME).unwrap();
        let moment_ns = offsets.moment_ns(nanoseconds(now));
        assert!(before_ns.abs_diff(moment_ns) < 1_000 * MS, "{before_ns} {moment_ns}");
        let known = offsets.0.len();
        (0..100).for_each(|_| offsets.look());
        assert!(offsets.0.len() <= known + 1, "{offsets:?}");
    }
}
