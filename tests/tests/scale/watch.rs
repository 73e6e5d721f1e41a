//! What the shard's probes come to: verdicts, failures, and how late they were.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};
use sickbay::engine::Sink;
use sickbay::shard::Roster;
use sickbay_core::command::{Change, LocalFault, Outcome, Report, Verdict};
use sickbay_core::plan::{Nanos, TargetIndex};
use sickbay_core::prober::Prober;
use sickbay_tests::stalls::Stalls;

use super::INTERVAL_NS;

/// Counts verdicts, how late probes of the living are, and what the shard's thread costs.
#[derive(Debug)]
pub(super) struct Watch {
    healthy: AtomicI64,
    pub(super) sick: AtomicI64,
    pub(super) cpu_ns: AtomicU64,
    /// Probes of the living that were not good.
    living_failed: AtomicU64,
    pub(super) dead_without_place: AtomicU64,
    /// Probes of the living by their lateness, each place [`LATENESS_NS`] wide; the last one holds
    /// all that are later. Of fixed size: memory is measured.
    lateness: Box<[AtomicU64]>,
    /// Probes of the living that were due while this machine ran nothing, or soon after.
    excused: AtomicU64,
}

/// Width of a place of [`Watch::lateness`].
const LATENESS_NS: Nanos = 100_000;

impl Watch {
    pub(super) fn new() -> Self {
        let places = INTERVAL_NS / LATENESS_NS;
        Self {
            healthy: AtomicI64::new(0),
            sick: AtomicI64::new(0),
            cpu_ns: AtomicU64::new(0),
            living_failed: AtomicU64::new(0),
            dead_without_place: AtomicU64::new(0),
            lateness: (0..places).map(|_| AtomicU64::new(0)).collect(),
            excused: AtomicU64::new(0),
        }
    }

    fn count(&self, verdict: Verdict) -> Option<&AtomicI64> {
        match verdict {
            Verdict::Healthy => Some(&self.healthy),
            Verdict::Sick => Some(&self.sick),
            Verdict::Warming => None,
        }
    }

    /// So many of a thousand probes of the living were not later than this.
    fn lateness_ns(&self, permille: u64) -> Nanos {
        let wanted = self.in_time_or_late() * permille / 1000;
        let mut seen = 0;
        let place = self.lateness.iter().position(|place| {
            seen += place.load(Ordering::Relaxed);
            wanted <= seen
        });
        (place.expect("there were probes") as Nanos + 1) * LATENESS_NS
    }

    /// Probes of the living whose lateness is counted.
    fn in_time_or_late(&self) -> u64 {
        self.lateness.iter().map(|place| place.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn lateness(&self) -> String {
        let ms = |permille| self.lateness_ns(permille) as f64 / 1e6;
        let excused = self.excused.load(Ordering::Relaxed);
        format!(
            "lateness p50 {} ms, p99 {} ms, p99.9 {} ms; {excused} due while this machine stood",
            ms(500),
            ms(990),
            ms(999),
        )
    }

    /// What must hold of the living, whatever the others do.
    #[track_caller]
    pub(super) fn holds_of_the_living(&self, count: u32) {
        assert_eq!(self.living_failed.load(Ordering::Relaxed), 0, "no probe of theirs failed");
        assert_eq!(self.healthy.load(Ordering::Relaxed), i64::from(count));
        let (excused, judged) = (self.excused.load(Ordering::Relaxed), self.in_time_or_late());
        assert!(excused <= judged / 4, "this machine stood still: {judged} probes tell too little");
        // On time: a tenth of the interval is far from a probe lost, and far from what a busy
        // machine does to a thread of this priority.
        let late_ns = self.lateness_ns(999);
        assert!(late_ns <= INTERVAL_NS / 10, "one of a thousand was {late_ns} ns late");
    }
}

pub(super) struct Watcher {
    pub(super) watch: Arc<Watch>,
    pub(super) stalls: Arc<Stalls>,
    /// By the plan's target.
    pub(super) lives: Vec<bool>,
}

impl Roster for Watcher {}

impl Sink for Watcher {
    fn on_change(&mut self, _: &Prober, change: &Change, _: Nanos) {
        if let Some(count) = self.watch.count(change.before) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = self.watch.count(change.verdict) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_report(&mut self, _: &Prober, report: &Report, _: Nanos) {
        let TargetIndex(target) = report.target;
        let without_place = report.outcome == Outcome::Indeterminate(LocalFault::NoSlot);
        if self.lives[target as usize] {
            let excused = self.stalls.excuse(report.scheduled_ns);
            let failed = report.outcome.good() != Some(true) && !(without_place && excused);
            self.watch.living_failed.fetch_add(failed.into(), Ordering::Relaxed);
            if excused {
                self.watch.excused.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let late_ns = report.started_ns.saturating_sub(report.scheduled_ns);
            let places = &self.watch.lateness;
            let place = (late_ns / LATENESS_NS).min(places.len() as u64 - 1);
            places[place as usize].fetch_add(1, Ordering::Relaxed);
        } else if without_place {
            self.watch.dead_without_place.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it");
        let ns = time.tv_sec() * 1_000_000_000 + time.tv_nsec();
        self.watch.cpu_ns.store(ns as u64, Ordering::Relaxed);
    }
}
