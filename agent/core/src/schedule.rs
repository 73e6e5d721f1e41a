//! When a target is due: a first probe soon, then a fixed grid of its own.
//!
//! The grid is `phase + n * interval` of the monotonic clock, the phase hashed from the target's
//! identity and the host's seed. It does not depend on when the agent started or on how long a
//! probe took, so restarts and slow answers leave the load as evenly spread as it was.

use crate::hash::seeded;
use crate::limits::FIRST_PROBE_NS_MAX;
use crate::plan::Nanos;
use crate::wheel::TICK_NS;

/// The place of a target's grid within its interval, in whole wheel ticks.
#[must_use]
pub fn phase_ns(identity: u128, seed: u64, interval_ns: Nanos) -> Nanos {
    spread_ns(seeded(identity, seed), interval_ns)
}

/// When a target is probed first: within the lesser of its interval and
/// [`FIRST_PROBE_NS_MAX`] from `now`.
///
/// With a short interval that is simply its next grid slot. With a longer one it is a moment of its
/// own, spread as evenly; the grid follows.
#[must_use]
pub fn first_ns(identity: u128, seed: u64, interval_ns: Nanos, now: Nanos) -> Nanos {
    if interval_ns <= FIRST_PROBE_NS_MAX {
        next_ns(phase_ns(identity, seed, interval_ns), interval_ns, now)
    } else {
        now + spread_ns(seeded(identity, seed), FIRST_PROBE_NS_MAX)
    }
}

/// The first grid slot after `after`.
#[must_use]
pub const fn next_ns(phase_ns: Nanos, interval_ns: Nanos, after: Nanos) -> Nanos {
    if after < phase_ns {
        return phase_ns;
    }
    phase_ns + ((after - phase_ns) / interval_ns + 1) * interval_ns
}

/// Maps a hash evenly onto the ticks of a span: the high bits of the product.
fn spread_ns(hash: u64, span_ns: Nanos) -> Nanos {
    let ticks = u128::from((span_ns / TICK_NS).max(1));
    ((u128::from(hash) * ticks) >> 64) as u64 * TICK_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Nanos = 1_000_000_000;

    #[test]
    fn next_slot_is_strictly_later_and_on_the_grid() {
        assert_eq!(next_ns(300, 1000, 0), 300);
        assert_eq!(next_ns(300, 1000, 299), 300);
        assert_eq!(next_ns(300, 1000, 300), 1300);
        assert_eq!(next_ns(300, 1000, 1299), 1300);
        assert_eq!(next_ns(300, 1000, 9300), 10_300);
        assert_eq!(next_ns(0, 1000, 0), 1000);
    }

    #[test]
    fn first_probe_comes_within_interval_and_two_seconds() {
        let now = 77 * SECOND;
        for identity in 0..10_000_u128 {
            for interval_ns in [SECOND / 100, SECOND, 2 * SECOND, 5 * SECOND, 86_400 * SECOND] {
                let wait = first_ns(identity, 9, interval_ns, now) - now;
                assert!(wait <= interval_ns.min(2 * SECOND), "{identity} {interval_ns}: {wait}");
            }
        }
    }

    #[test]
    fn hosts_with_different_seeds_probe_at_different_times() {
        let same = (0..1000_u128)
            .filter(|&identity| phase_ns(identity, 1, SECOND) == phase_ns(identity, 2, SECOND))
            .count();
        // One in a thousand meets by chance; ten would be no chance.
        assert!(same < 10, "{same}");
    }
}
