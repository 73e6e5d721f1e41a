//! One backend dies and returns, as often as is wanted.

use std::thread;
use std::time::Duration;

use anyhow::Result;
use sickbay_lab::clock::wait_until;

use super::ground::INTERVAL_MS;
use super::samples::Death;
use super::server::Server;
use super::tap::Tap;

/// After a verdict: what is still under way arrives within this.
const TAIL: Duration = Duration::from_millis(25);
/// Nothing here takes longer, busy as the machine may be.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a side says of the backend: whether it takes new connections, and since when
/// (CLOCK_MONOTONIC, ns).
pub(super) type Verdict = (bool, u64);

/// Lets the backend die `count` times, at moments spread evenly over the probes' interval; each time
/// it is well, and gets new connections, before.
///
/// # Errors
/// When the verdicts or the new connections do not come.
pub(super) fn deaths(
    count: usize,
    server: &Server,
    tap: &Tap,
    verdict: impl Fn() -> Option<Verdict>,
) -> Result<Vec<Death>> {
    let mut deaths = Vec::with_capacity(count);
    let mut well_since_ns = 0;
    for number in 0..count {
        wait_until("new connections reach the backend", PATIENCE, || {
            tap.last().filter(|syn| well_since_ns < syn.arrived_ns)
        })?;
        thread::sleep(phase(number));
        let died_ns = server.die()?;
        let condemned_ns = wait_for(&verdict, false, died_ns)?;
        thread::sleep(TAIL);
        let revived_ns = server.revive()?;
        deaths.push(Death { died_ns, condemned_ns, revived_ns });
        well_since_ns = wait_for(&verdict, true, revived_ns)?;
    }
    Ok(deaths)
}

fn wait_for(verdict: &impl Fn() -> Option<Verdict>, healthy: bool, after_ns: u64) -> Result<u64> {
    let what = if healthy { "the backend is acquitted" } else { "the backend is condemned" };
    wait_until(what, PATIENCE, || {
        let (is_healthy, since_ns) = verdict()?;
        (is_healthy == healthy && after_ns < since_ns).then_some(since_ns)
    })
}

/// Where in the interval a death falls, counted from the acquittal, which is a probe's: multiples of
/// the golden ratio lie evenly, however many are taken.
fn phase(number: usize) -> Duration {
    let millionths = number as u64 * 618_034 % 1_000_000;
    Duration::from_nanos(INTERVAL_MS * millionths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_lie_evenly_in_the_interval() {
        let mut phases: Vec<Duration> = (0..200).map(phase).collect();
        phases.sort_unstable();
        let interval = Duration::from_millis(INTERVAL_MS);
        assert!(phases[199] < interval);
        let gap = phases.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(gap < interval / 50, "{gap:?}");
    }
}
