//! What the shard's thread says to the one that prints: lines as they come, sums for the summary.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::SystemTime;

use crossbeam::channel::Sender;
use sickbay_core::command::{Change, Report, Verdict};
use sickbay_core::plan::{JudgeIndex, Nanos};
use sickbay_core::prober::Prober;

use super::line::Line;
use crate::engine::Sink;
use crate::shard::Roster;

/// The sums of one target. The shard's thread writes them; the printing one reads.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Probes with a good result.
    pub(super) good: AtomicU64,
    /// Probes with a bad one.
    pub(super) bad: AtomicU64,
    /// Probes that this host is to blame for.
    pub(super) indeterminate: AtomicU64,
    /// Of those with a result: their times' sum.
    pub(super) sum_ns: AtomicU64,
    /// The longest.
    pub(super) max_ns: AtomicU64,
    /// Lines that found the queue full.
    pub(super) unprinted: AtomicU64,
    /// It had its probes.
    pub(super) done: AtomicBool,
    verdict: AtomicU8,
}

impl Tally {
    /// Whether the last verdict was healthy; the first probe has to come before any verdict.
    pub(super) fn is_healthy(&self) -> bool {
        self.verdict.load(Ordering::Acquire) == 1
    }

    fn probes(&self) -> u64 {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        load(&self.good) + load(&self.bad) + load(&self.indeterminate)
    }

    fn add(&self, report: &Report) {
        let counter = match report.outcome.good() {
            Some(true) => &self.good,
            Some(false) => &self.bad,
            None => &self.indeterminate,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if report.outcome.good().is_some() {
            self.sum_ns.fetch_add(report.duration_ns, Ordering::Relaxed);
            self.max_ns.fetch_max(report.duration_ns, Ordering::Relaxed);
        }
    }
}

/// Writes tallies and hands on lines.
#[derive(Debug)]
pub(super) struct LineSink {
    tallies: Arc<[Tally]>,
    lines: Sender<Line>,
    count: Option<u64>,
    /// The verdict that was last told of each target.
    told: Vec<Option<Verdict>>,
    /// Whether each target was healthy before: Varnish has no other word.
    healthy: Vec<bool>,
}

impl LineSink {
    /// A sink that is content with `count` probes of each target; `healthy` says
    /// of each how it begins.
    pub(super) fn new(
        tallies: Arc<[Tally]>,
        lines: Sender<Line>,
        count: Option<u64>,
        healthy: Vec<bool>,
    ) -> Self {
        let told = vec![None; tallies.len()];
        Self { tallies, lines, count, told, healthy }
    }
}

impl Roster for LineSink {}

impl Sink for LineSink {
    fn on_change(&mut self, _: &Prober, _: &Change, _: Nanos) {
        // The report that follows tells it.
    }

    fn on_report(&mut self, prober: &Prober, report: &Report, _: Nanos) {
        let index = report.target.0 as usize;
        let tally = &self.tallies[index];
        if tally.done.load(Ordering::Relaxed) {
            return;
        }
        // One judge a target, in the targets' order.
        let verdict = prober.verdict(JudgeIndex(report.target.0));
        let before = self.told[index].replace(verdict);
        let healthy = verdict == Verdict::Healthy;
        let was_healthy = std::mem::replace(&mut self.healthy[index], healthy);
        tally.add(report);
        tally.verdict.store(u8::from(healthy), Ordering::Release);
        let history = prober.history(report.target);
        let line = Line {
            time: SystemTime::now(),
            report: *report,
            registers: history.registers,
            average_s: history.average_s,
            last_ns: history.last_ns,
            verdict,
            changed: before != Some(verdict),
            turned: was_healthy != healthy,
        };
        if self.lines.try_send(line).is_err() {
            tally.unprinted.fetch_add(1, Ordering::Relaxed);
        }
        if self.count.is_some_and(|count| count <= tally.probes()) {
            tally.done.store(true, Ordering::Release);
        }
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {}
}
