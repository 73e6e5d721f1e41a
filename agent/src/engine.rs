//! The engine: one thread's loop that carries out what its prober asks for.
//!
//! In: a plan, one [`Endpoint`] a target. Out: what a [`Sink`] is told. Whoever owns the thread
//! calls [`Engine::turn`] for ever. The order inside a turn is a promise: an answer that is there
//! is fed before time is allowed to pass, so it beats its deadline; a verdict that falls reaches
//! the sink before any other work, since that is the store into the kernel's map.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use sickbay_core::command::{Change, Command, Event, Override, Phase, Report};
use sickbay_core::plan::{
    JudgeIndex, JudgeSpec, Nanos, Plan, ProbeKind, Rule, SlotIndex, TargetIndex, TargetSpec,
};
use sickbay_core::prober::Prober;

/// The memory that operations point into.
mod arenas;
/// Where a target is and what its sockets are told.
mod endpoint;
/// Why an engine cannot start or go on.
mod error;
/// What this host has for a ring, and what it must have.
mod features;
/// What the prober asks for, pushed into the ring.
mod issue;
/// Which sockets stay open.
mod kept;
/// What the ring is asked to do, and how its answers are told apart.
mod op;
/// Where the places of the ring's memory are.
mod places;
/// What each slot waits for.
mod slots;
/// What it did.
mod statistics;
/// The ring itself.
mod uring;

pub use endpoint::Endpoint;
pub use error::EngineError;
pub use features::Features;
pub use statistics::{Counters, Histograms, LATE_NS, OutcomeKind};

use op::{Route, Step};
use places::Places;
use slots::{Meaning, Slots};
use uring::Ring;

/// Time between two [`Sink::on_tick`]s, and the longest that a turn waits.
pub const TICK_NS: Nanos = 20_000_000;
/// From this many completions in a tick on, they are taken in batches.
const BUSY_COMPLETIONS: u32 = 60;
/// How long a batch may gather.
const BATCH_NS: Nanos = 200_000;
/// Completions that end a batch at once.
const BATCH_COMPLETIONS: usize = 64;
/// Wanted together with no time to wait: the kernel then moves every chain as far as it goes. It
/// moves no more steps in one call than completions are wanted (since 6.12; at least 20), so a
/// smaller number would let chains pile up behind a burst.
const ALL_COMPLETIONS: usize = 1 << 16;
/// A turn that begins so long after its wait should have ended looks for answers once more.
const OVERSLEPT_NS: Nanos = 1_000_000;

/// Who is told what an engine finds out. Called on the engine's thread: it must not block.
pub trait Sink {
    /// A verdict changed: called as soon as it falls, before anything else is done.
    fn on_change(&mut self, prober: &Prober, change: &Change, now: Nanos);
    /// A probe ended; its verdict, if it changed one, was told before.
    fn on_report(&mut self, prober: &Prober, report: &Report, now: Nanos);
    /// [`TICK_NS`] passed, or more.
    fn on_tick(&mut self, prober: &Prober, now: Nanos);
}

/// Whether this host can run an engine, and with which of its features.
///
/// # Errors
/// Why it cannot, and the remedy.
pub fn probe_features() -> Result<Features, EngineError> {
    Ring::new(1, &[]).map(|ring| ring.features())
}

/// The time that an engine works by: CLOCK_MONOTONIC.
#[must_use]
pub fn monotonic_now() -> Nanos {
    let time = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("every Linux has CLOCK_MONOTONIC");
    let seconds = u64::try_from(time.tv_sec()).expect("monotonic time is not negative");
    let nanoseconds = u64::try_from(time.tv_nsec()).expect("a timespec's ns are not negative");
    seconds * 1_000_000_000 + nanoseconds
}

/// One thread's loop. It is bound to the thread that made it.
pub struct Engine<S> {
    prober: Prober,
    ring: Ring,
    slots: Slots,
    sink: S,
    /// Per target, what its probes do.
    routes: Box<[Route]>,
    /// Where the second addresses of those targets stand in the ring's memory that have one.
    seconds: HashMap<u32, u32>,
    /// Per probe, whether it is over when its connection is open.
    connect_only: Box<[bool]>,
    /// Taken from the prober when the ring had no room for it.
    held: Option<Command>,
    /// Cancels that found nothing at one step and go on to the next. Never longer than the slots.
    cancels: Vec<(u32, Step)>,
    /// Slots whose socket could not be kept, and is to be closed. No longer either.
    closes: Vec<u32>,
    /// Slots whose connection is open, and the length of the header in their buffers, which is to be
    /// sent. No longer either.
    named: Vec<(u32, u32)>,
    counters: Arc<Counters>,
    histograms: Histograms,
    next_tick_ns: Nanos,
    /// When the last wait was to end at the latest; no deadline is before it.
    wait_end_ns: Nanos,
    completions_in_tick: u32,
    busy: bool,
}

impl<S: Sink> Engine<S> {
    /// An engine for `plan`, its schedule starting now.
    ///
    /// # Errors
    /// What this host lacks, and the remedy.
    ///
    /// # Panics
    /// If there is not one endpoint for each target of the plan.
    pub fn new(
        plan: &Plan,
        endpoints: &[Endpoint],
        sink: S,
        counters: Arc<Counters>,
    ) -> Result<Self, EngineError> {
        assert_eq!(plan.targets.len(), endpoints.len(), "one endpoint a target");
        let places = Places::new(endpoints, plan.room.targets);
        let ring = Ring::new(plan.slot_count, &places.all(endpoints))?;
        counters.set_ring_restricted(ring.features().restricted);
        let now = monotonic_now();
        let prober = Prober::new(plan, now);
        let connect_only: Box<[bool]> =
            plan.probes.iter().map(|probe| matches!(probe.kind, ProbeKind::Tcp)).collect();
        let known = plan.targets.iter().zip(endpoints);
        let known = known.map(|(spec, it)| Route::of(connect_only[spec.probe.0 as usize], it));
        let room = (0..plan.room.targets).map(|_| Route::Connect);
        let routes = known.chain(room).collect();
        Ok(Self {
            prober,
            ring,
            slots: Slots::new(plan.slot_count),
            sink,
            routes,
            seconds: places.second_of,
            connect_only,
            held: None,
            cancels: Vec::with_capacity(plan.slot_count as usize),
            closes: Vec::new(),
            named: Vec::with_capacity(plan.slot_count as usize),
            counters,
            histograms: Histograms::new(),
            next_tick_ns: now,
            wait_end_ns: now,
            completions_in_tick: 0,
            busy: false,
        })
    }

    /// One round: takes every answer, starts and ends what is due, submits, and waits for the next
    /// answer or moment, at most [`TICK_NS`].
    ///
    /// # Errors
    /// The kernel refused the ring for good.
    pub fn turn(&mut self) -> Result<(), EngineError> {
        let now = monotonic_now();
        if OVERSLEPT_NS < now.saturating_sub(self.wait_end_ns) {
            // The kernel completes nothing between two system calls of this thread: what came
            // while it was held up is still to be fetched, before deadlines are looked at.
            self.ring.submit_and_wait(ALL_COMPLETIONS, None, Duration::ZERO)?;
        }
        self.reap(now);
        let full = self.issue(now);
        self.tick(now);
        self.wait(now, full)?;
        self.counters.set_enters(self.ring.enter_count());
        Ok(())
    }

    /// An operator's word over a judge's probed state.
    pub fn on_override(&mut self, judge: JudgeIndex, word: Override) {
        let now = monotonic_now();
        self.prober.on_override(judge, word, now);
        self.drain(now);
    }

    /// Probes one more target, which has one address; see [`Prober::add_target`].
    ///
    /// # Panics
    /// When the plan has no such probe, or the target a second address.
    pub fn add_target(
        &mut self,
        spec: &TargetSpec,
        rule: Rule,
        endpoint: &Endpoint,
    ) -> Option<TargetIndex> {
        assert!(spec.second.is_none() && endpoint.second.is_none(), "one address");
        let target = self.prober.add_target(spec, rule, monotonic_now())?;
        self.ring.set_target(target.0, endpoint);
        let connect_only = self.connect_only[spec.probe.0 as usize];
        self.routes[target.0 as usize] = Route::of(connect_only, endpoint);
        // That of the target that had the index before.
        self.seconds.remove(&target.0);
        Some(target)
    }

    /// Adds a judge of a target; see [`Prober::add_judge`]. What it begins with is told with the
    /// next change, so that the sink can be prepared.
    pub fn add_judge(&mut self, spec: &JudgeSpec) -> Option<JudgeIndex> {
        self.prober.add_judge(spec, monotonic_now())
    }

    /// Removes a judge; see [`Prober::remove_judge`].
    pub fn remove_judge(&mut self, judge: JudgeIndex) {
        self.prober.remove_judge(judge, monotonic_now());
    }

    /// Probes a target no more; see [`Prober::remove_target`].
    pub fn remove_target(&mut self, target: TargetIndex) {
        self.prober.remove_target(target, monotonic_now());
    }

    /// Tells the sink something that no probe brought about, and then what changed before it.
    pub fn tell(&mut self, tell: impl FnOnce(&mut S, &Prober)) {
        tell(&mut self.sink, &self.prober);
        self.drain(monotonic_now());
    }

    /// What this kernel has.
    #[must_use]
    pub const fn features(&self) -> Features {
        self.ring.features()
    }

    /// The prober, to look at.
    #[must_use]
    pub const fn prober(&self) -> &Prober {
        &self.prober
    }

    /// Whoever is told.
    #[must_use]
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    /// The times of this engine's probes.
    #[must_use]
    pub const fn histograms(&self) -> &Histograms {
        &self.histograms
    }

    /// Feeds every completion that is there to the prober.
    fn reap(&mut self, now: Nanos) {
        while let Some((tag, result)) = self.ring.pop_completion() {
            self.completions_in_tick = self.completions_in_tick.saturating_add(1);
            let Some(tag) = tag else {
                self.counters.on_stray();
                continue;
            };
            let slot = SlotIndex(tag.slot);
            match self.slots.on_completion(tag, result) {
                Meaning::Connected => self.on_connected(slot, now),
                Meaning::Received { length } => {
                    let bytes = self.ring.received(tag.slot, length);
                    self.prober.on_event(slot, Event::Received(bytes), now);
                }
                Meaning::Discarded { byte_count } => {
                    self.prober.on_event(slot, Event::Discarded { byte_count }, now);
                }
                Meaning::Failed { phase, errno } => {
                    self.prober.on_event(slot, Event::Failed { phase, errno }, now);
                }
                Meaning::Closed => self.prober.on_event(slot, Event::Closed, now),
                Meaning::CloseAfterAll => {
                    self.ring.keep_no_more(tag.slot);
                    self.closes.push(tag.slot);
                }
                Meaning::CancelAgain(step) => self.cancels.push((tag.slot, step)),
                Meaning::Settled => {}
                Meaning::Stray => self.counters.on_stray(),
            }
            self.drain(now);
        }
    }

    /// A connection is open. Where its own address is to be sent, that can be asked for only now.
    fn on_connected(&mut self, slot: SlotIndex, now: Nanos) {
        if self.slots.route(slot.0) != Route::Named {
            return self.prober.on_event(slot, Event::Connected, now);
        }
        let event = match self.ring.write_name(slot.0) {
            Ok(length) if self.slots.go_on(slot.0) => return self.named.push((slot.0, length)),
            // Its deadline passed while it connected: nothing of the request is sent.
            Ok(_) => Event::Failed { phase: Phase::Send, errno: libc::ECANCELED },
            Err(errno) => Event::Failed { phase: Phase::Connect, errno },
        };
        self.prober.on_event(slot, event, now);
    }

    /// Hands on what the prober found out: changes first.
    fn drain(&mut self, now: Nanos) {
        let mut changed = false;
        while let Some(change) = self.prober.poll_change() {
            self.sink.on_change(&self.prober, &change, now);
            changed = true;
        }
        if changed {
            // After the last of them: whoever waits for nobody to be warming finds their bits.
            self.counters.set_warming(self.prober.warming_count());
        }
        while let Some(report) = self.prober.poll_report() {
            self.counters.on_report(&report);
            self.histograms.on_report(&report);
            self.sink.on_report(&self.prober, &report, now);
        }
    }

    fn tick(&mut self, now: Nanos) {
        if now < self.next_tick_ns {
            return;
        }
        self.busy = BUSY_COMPLETIONS <= self.completions_in_tick;
        self.completions_in_tick = 0;
        self.counters.set_warming(self.prober.warming_count());
        self.counters.set_in_flight(self.prober.in_flight_count());
        self.sink.on_tick(&self.prober, now);
        self.next_tick_ns = now + TICK_NS;
    }

    /// Submits and waits. A quiet engine wakes for each completion and each moment; a busy one
    /// lets a batch gather, which costs a probe at most [`BATCH_NS`] and saves most system calls.
    fn wait(&mut self, now: Nanos, full: bool) -> Result<(), EngineError> {
        if full || !self.cancels.is_empty() {
            self.wait_end_ns = now;
            return self.ring.submit_and_wait(ALL_COMPLETIONS, None, Duration::ZERO);
        }
        let next_ns = self.prober.next_wake().min(self.next_tick_ns).saturating_sub(now);
        let wait_ns = next_ns.max(if self.busy { BATCH_NS } else { 0 });
        self.wait_end_ns = now + wait_ns;
        let timeout = Duration::from_nanos(wait_ns);
        if self.busy {
            let batch = Some(Duration::from_nanos(BATCH_NS));
            return self.ring.submit_and_wait(BATCH_COMPLETIONS, batch, timeout);
        }
        self.ring.submit_and_wait(1, None, timeout)
    }
}
