//! sickbay's own engine as a subject: one thread, as a shard of the agent runs it. Its sink counts and
//! publishes nothing.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use hdrhistogram::Histogram;
use sickbay::engine::{Counters, Engine, Sink};
use sickbay_core::command::{Change, LocalFault, Outcome, Report};
use sickbay_core::plan::Nanos;
use sickbay_core::prober::Prober;
use sickbay_lab::namespace::Namespace;

use super::Stage;
use super::subject::Subject;
use super::targets::{Kind, endpoints, plan};

/// How much is asked of an engine at full speed, as a share of what it can do ...
const DEMAND: f64 = 1.05;
/// ... and what is taken for right. Less, and it has time to rest; more, and slots that come while
/// their targets still wait for a probe cost as well, and are counted among the costs of the probes.
const DEMAND_RIGHT: std::ops::RangeInclusive<f64> = 1.0..=1.12;
/// Engines that are tried until the demand is right; the last one is taken as it is.
const TRIES: u32 = 4;

/// Longest lateness that is told apart.
const LATENESS_NS_MAX: u64 = 60_000_000_000;

/// What the running engine shows.
pub(crate) struct Gauge {
    /// The engine's own counters.
    pub(crate) counters: Arc<Counters>,
    /// Probes are looked at only while this holds.
    looking: AtomicBool,
    bad: AtomicU64,
    missed: AtomicU64,
    lateness_ns: Mutex<Histogram<u64>>,
}

/// What the probes between two looks were.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Probes that did not find what they must.
    pub(crate) bad: u64,
    /// Slots without a probe.
    pub(crate) missed: u64,
    /// From a probe's moment to its start.
    pub(crate) lateness_ns: Histogram<u64>,
}

impl Gauge {
    fn new() -> Self {
        let lateness_ns = Histogram::new_with_bounds(1, LATENESS_NS_MAX, 3);
        Self {
            counters: Arc::new(Counters::default()),
            looking: AtomicBool::new(false),
            bad: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            lateness_ns: Mutex::new(lateness_ns.expect("the bounds are in order")),
        }
    }

    /// Begins to look, or ends it.
    pub(crate) fn look(&self, looking: bool) {
        self.looking.store(looking, Ordering::Release);
    }

    /// What was seen so far.
    pub(crate) fn seen(&self) -> Seen {
        Seen {
            bad: self.bad.load(Ordering::Relaxed),
            missed: self.missed.load(Ordering::Relaxed),
            lateness_ns: self.lateness_ns.lock().expect("nobody panics with it").clone(),
        }
    }
}

/// Starts an engine over so many targets of the farm; it stands still.
pub(crate) fn start(
    home: &Namespace,
    cpu: usize,
    (count, kind): (u32, Kind),
    interval_ns: Nanos,
    slot_count: u32,
) -> Result<(Subject, Arc<Gauge>)> {
    let gauge = Arc::new(Gauge::new());
    let inner = Arc::clone(&gauge);
    let subject = Subject::thread("sickbay", home, cpu, move |gate| {
        let counters = Arc::clone(&inner.counters);
        let sink = Look { gauge: inner, skipped: 0 };
        let plan_of_all = plan(count, kind, interval_ns, slot_count);
        let endpoints_of_all = endpoints(count, kind);
        let mut engine = Engine::new(&plan_of_all, &endpoints_of_all, sink, counters)?;
        drop((plan_of_all, endpoints_of_all));
        while gate.pass() {
            engine.turn()?;
        }
        Ok(())
    })?;
    Ok((subject, gauge))
}

/// An engine of which a little more is asked than it can do, found out by trying, first with what is
/// a little more than `guess` probes a second.
pub(crate) fn saturated(
    stage: &Stage,
    what: (u32, Kind),
    guess: f64,
) -> Result<(Subject, Arc<Gauge>)> {
    let Stage { home, farm, cpu, extent } = stage;
    let mut asked = guess * DEMAND;
    let mut tries = 1;
    loop {
        let interval_ns = interval_ns(what.0, asked);
        let (own, gauge) = start(home, *cpu, what, interval_ns, super::IN_FLIGHT)?;
        // What is touched for the first time is not what is measured.
        own.window(farm, Duration::from_nanos(interval_ns).min(extent.window * 4))?;
        let able = own.window(farm, extent.window)?.per_cpu_second(what.1.is_tcp());
        if tries == TRIES || DEMAND_RIGHT.contains(&(asked / able)) {
            return Ok((own, gauge));
        }
        own.stop()?;
        asked = able * DEMAND;
        tries += 1;
    }
}

/// The interval at which so many targets ask for so many probes a second.
fn interval_ns(count: u32, asked: f64) -> Nanos {
    (f64::from(count) * 1e9 / asked) as Nanos
}

struct Look {
    gauge: Arc<Gauge>,
    /// Slots that the prober has skipped so far.
    skipped: u64,
}

impl Sink for Look {
    fn on_change(&mut self, _: &Prober, _: &Change, _: Nanos) {}

    fn on_report(&mut self, _: &Prober, report: &Report, _: Nanos) {
        let gauge = &self.gauge;
        if !gauge.looking.load(Ordering::Relaxed) {
            return;
        }
        if report.outcome == Outcome::Indeterminate(LocalFault::NoSlot) {
            gauge.missed.fetch_add(1, Ordering::Relaxed);
            return;
        }
        if report.outcome.good() != Some(true) {
            gauge.bad.fetch_add(1, Ordering::Relaxed);
        }
        let lateness_ns = report.started_ns.saturating_sub(report.scheduled_ns);
        // Nobody else holds it while it is looked at.
        if let Ok(mut histogram) = gauge.lateness_ns.try_lock() {
            histogram.saturating_record(lateness_ns);
        }
    }

    fn on_tick(&mut self, prober: &Prober, _: Nanos) {
        let counters = prober.counters();
        let skipped = counters.overlapped + counters.slept_through;
        if self.gauge.looking.load(Ordering::Relaxed) {
            self.gauge.missed.fetch_add(skipped - self.skipped, Ordering::Relaxed);
        }
        self.skipped = skipped;
    }
}
