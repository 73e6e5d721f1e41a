//! The running shard: how it is started, left to work, and stopped.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use sickbay::engine::{Counters, OutcomeKind};
use sickbay::shard::{ShardPlan, Shards, split};
use sickbay_tests::figures;
use sickbay_tests::stalls::Stalls;

use super::cpus;
use super::fleet::fleet;
use super::watch::{Watch, Watcher};

/// The running shard.
pub(super) struct Run {
    shards: Shards,
    watch: Arc<Watch>,
    /// Of the shard's CPU and the farm's.
    stalls: Arc<Stalls>,
    pub(super) counters: Arc<Counters>,
    start: Instant,
}

impl Run {
    pub(super) fn start(targets: &[SocketAddr], lives: fn(u32) -> bool) -> Self {
        let watch = Arc::new(Watch::new());
        let stalls = Arc::new(Stalls::watch(&cpus()));
        let for_shard = (Arc::clone(&watch), Arc::clone(&stalls));
        let plans = split(&fleet(targets), 1);
        let start = Instant::now();
        let shards = Shards::start(plans, move |_, plan: &ShardPlan| Watcher {
            lives: plan.targets.iter().map(|target| lives(*target as u32)).collect(),
            watch: Arc::clone(&for_shard.0),
            stalls: Arc::clone(&for_shard.1),
        })
        .expect("it starts");
        let counters = Arc::clone(shards.counters().next().expect("one shard"));
        Self { shards, watch, stalls, counters, start }
    }

    /// Sleeps until the shard has run for so long: this is the load, not a wait for something.
    pub(super) fn sleep_until(&self, seconds: u32) {
        let span = Duration::from_secs(seconds.into());
        std::thread::sleep(span.saturating_sub(self.start.elapsed()));
    }

    /// Seconds that this machine stood still so far, begun ones too.
    pub(super) fn stood_seconds(&self) -> u32 {
        self.stalls.total_ns().div_ceil(1_000_000_000).try_into().expect("no test runs for years")
    }

    /// Stops the shard and shows what it did.
    pub(super) fn stop(self) -> Arc<Watch> {
        let Self { shards, watch, stalls: _, counters, start } = self;
        let seconds = start.elapsed().as_secs();
        shards.stop().expect("the shard did not fail");
        let probes = counters.probes();
        figures::show(&format!(
            "{probes} probes in {seconds} s; of the living {}; {:.2} system calls a probe; {:.1} us \
             of CPU a probe",
            watch.lateness(),
            counters.enters() as f64 / probes as f64,
            watch.cpu_ns.load(Ordering::Relaxed) as f64 / 1000.0 / probes as f64,
        ));
        for kind in OutcomeKind::ALL {
            if 0 < counters.outcomes(kind) {
                figures::show(&format!("  {}: {}", kind.name(), counters.outcomes(kind)));
            }
        }
        assert_eq!(counters.stray(), 0);
        watch
    }
}
