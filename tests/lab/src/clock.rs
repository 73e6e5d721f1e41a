//! Monotonic time, and waiting with a limit.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use nix::time::{ClockId, clock_gettime};

/// Pause between two looks of [`wait_until`].
const LOOK_INTERVAL: Duration = Duration::from_millis(2);

/// CLOCK_MONOTONIC in ns: the clock of the agent's stamps.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    let seconds = u64::try_from(now.tv_sec()).expect("monotonic time is never negative");
    let nanoseconds = u64::try_from(now.tv_nsec()).expect("nanoseconds are never negative");
    seconds * 1_000_000_000 + nanoseconds
}

/// Waits until `predicate` holds and returns what it gave.
///
/// # Errors
/// When `limit` passes first; the text names `what` was waited for.
pub fn wait_until<T>(
    what: &str,
    limit: Duration,
    mut predicate: impl FnMut() -> Option<T>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        if let Some(value) = predicate() {
            return Ok(value);
        }
        if limit < start.elapsed() {
            bail!("waited {limit:?} in vain until {what}");
        }
        thread::sleep(LOOK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_what_the_predicate_gave() {
        let mut looks = 0;
        let value = wait_until("the third look", Duration::from_secs(5), || {
            looks += 1;
            (looks == 3).then_some("there")
        });
        assert_eq!(value.unwrap(), "there");
        assert_eq!(looks, 3);
    }

    #[test]
    fn waiting_in_vain_names_what_was_waited_for() {
        let error = wait_until::<()>("pigs fly", Duration::from_millis(5), || None).unwrap_err();
        assert_eq!(error.to_string(), "waited 5ms in vain until pigs fly");
    }

    #[test]
    fn monotonic_time_does_not_go_back() {
        let first = monotonic_ns();
        assert!(first <= monotonic_ns());
        assert!(0 < first);
    }
}
