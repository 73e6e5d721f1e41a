//! The prober: schedule, probes in flight, registers and verdicts of one shard, joined.
//!
//! In: time, [`Event`]s, overrides. Out: [`Command`]s, [`Report`]s, [`Change`]s. The engine drives
//! it; the simulator drives the same one.
//!
//! **Order.** Give every event that has arrived to [`Prober::on_event`] *before*
//! [`Prober::poll_command`]: deadlines are looked at in the latter alone, so an answer that was
//! there when the loop came to look wins over its deadline, however late the loop.
//!
//! **A probe.** A target's timer fires at each of its slots. Free: it queues for a place in flight,
//! those that answered the last time before the untried, and these before the suspect: the sick, and
//! those whose last probe ran into its deadline. Still queued from the slot before: that one is
//! reported as [`LocalFault::NoSlot`]. Still in flight: the slot is skipped. A result that asks for
//! another pace ([`Pace`](crate::plan::Pace)) moves the next slot. A probe whose deadline
//! passes is cancelled, and ends when what was cancelled has answered.
//!
//! **Members.** Targets and judges may be added and removed at any time ([`Prober::add_target`]),
//! as many as the plan keeps [`Room`](crate::plan::Room) for.
//!
//! **Bounds.** A probe in flight has a place for its report kept free in the queue, and nothing
//! that reports is begun without one; undrained reports thus stop new starts and lose nothing. A
//! judge stands in the queue of changes at most once: changes that nobody took in between come out
//! as one, from the first state to the last.

use std::collections::VecDeque;

use crate::command::{
    Change, Command, Event, LocalFault, Outcome, Override, Phase, Report, Verdict,
};
use crate::plan::{
    JudgeIndex, JudgeSpec, Nanos, Plan, ProbeKind, ProbeSpec, SlotIndex, TargetIndex,
};
use crate::register::{HAPPY, Registers};
use crate::wheel::Wheel;

pub use counters::Counters;
use judge::Judges;
use slot::{Slots, Stage};
use target::{Place, Target};
use waiting::{Standing, Waiting};

mod answer;
mod calendar;
mod compat;
mod counters;
mod errno;
mod judge;
mod members;
mod slot;
mod starting;
mod target;
mod waiting;

/// One target's history: what is published of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct History {
    /// Varnish's registers in its order `4 6 U x X r R H`, newest result in bit 0.
    pub registers: Registers,
    /// Moving average of happy probes' times, in seconds.
    pub average_s: f64,
    /// Time of the last complete reception, in ns; 0 when the last probe had none.
    pub last_ns: Nanos,
    /// When the last determinate result came; 0 = none yet.
    pub last_result_ns: Nanos,
    /// What the last probe came to; `None` before the first.
    pub outcome: Option<Outcome>,
    /// Probes that ended indeterminate since the last determinate one (saturating).
    pub indeterminate: u32,
    /// Nothing determinate came for too long.
    pub unknown: bool,
}

/// The prober of one shard.
#[derive(Debug)]
pub struct Prober {
    probes: Box<[ProbeSpec]>,
    /// Never longer than `target_count_max`, which is their capacity at the start.
    targets: Vec<Target>,
    target_count_max: usize,
    /// Those that are probed.
    target_count: u32,
    /// The first place that a removed target left.
    vacant_head: u32,
    judges: Judges,
    slots: Slots,
    /// Timers of targets: each one's next slot. Always armed.
    due: Wheel,
    /// Timers of slots: their deadlines.
    deadlines: Wheel,
    waiting: Waiting,
    reports: VecDeque<Report>,
    report_count_max: usize,
    phase_seed: u64,
    counters: Counters,
}

impl Prober {
    /// A prober of `plan`, its schedule starting at `now`. The only place that allocates.
    ///
    /// # Panics
    ///
    /// When the plan breaks its own rules: an index out of range, judges or past not sorted by
    /// target, fewer than 2 slots, an interval of 0.
    #[must_use]
    pub fn new(plan: &Plan, now: Nanos) -> Self {
        assert!(2 <= plan.slot_count, "a prober needs at least 2 slots");
        let target_count_max = plan.targets.len() + plan.room.targets as usize;
        let mut targets = Vec::with_capacity(target_count_max);
        for (index, spec) in (0..).zip(&plan.targets) {
            let probe = &plan.probes[spec.probe.0 as usize];
            let threshold = threshold(&plan.judges, index);
            targets.push(Target::new(spec, probe, threshold, plan.phase_seed, now));
        }
        for past in &plan.past {
            targets[past.target.0 as usize].take_up(past);
        }
        let judges = Judges::new(&plan.judges, plan.room.judges, &mut targets, &plan.past);
        let timer_count = u32::try_from(target_count_max).expect("indices are u32");
        let mut due = Wheel::new(timer_count, now);
        for (index, target) in (0..).zip(&targets) {
            due.arm(index, target.due_ns());
        }
        let report_count_max = 2 * plan.slot_count as usize;
        let prober = Self {
            probes: plan.probes.clone().into_boxed_slice(),
            target_count: targets.len() as u32,
            targets,
            target_count_max,
            vacant_head: waiting::NONE,
            judges,
            slots: Slots::new(plan.slot_count),
            due,
            deadlines: Wheel::new(plan.slot_count, now),
            waiting: Waiting::default(),
            reports: VecDeque::with_capacity(report_count_max),
            report_count_max,
            phase_seed: plan.phase_seed,
            counters: Counters::default(),
        };
        prober.invariants();
        prober
    }

    /// The next thing to do, if any is due. Call until `None`, but only while there is room to
    /// carry a command out.
    pub fn poll_command(&mut self, now: Nanos) -> Option<Command> {
        while let Some(slot) = self.deadlines.pop(now) {
            self.on_deadline(slot, now);
        }
        let command = self
            .slots
            .next_wanted()
            .or_else(|| self.start_from(Standing::Answering, now))
            .or_else(|| self.start_from(Standing::Untried, now))
            .or_else(|| self.start_due(now));
        self.invariants();
        command
    }

    /// A command's answer.
    pub fn on_event(&mut self, slot: SlotIndex, event: Event<'_>, now: Nanos) {
        let stage = self.slots.stage(slot.0);
        match (stage, event) {
            (Stage::Flying, Event::Connected) => self.on_connected(slot.0, now),
            (Stage::Flying, Event::Received(bytes)) => {
                self.slots.arrive(slot.0, bytes.len() as u64, now);
                self.on_received(slot.0, bytes, now);
            }
            (Stage::Flying, Event::Discarded { byte_count }) => {
                self.slots.arrive(slot.0, byte_count, now);
                self.on_discarded(slot.0, byte_count, now);
            }
            (Stage::Flying, Event::Failed { phase, errno }) => {
                self.on_failed(slot.0, phase, errno, now);
            }
            (Stage::Closing, Event::Closed) if self.slots.is_turning(slot.0) => {
                self.slots.want_second(slot.0);
            }
            (Stage::Closing, Event::Closed) => self.slots.free(slot.0),
            _ => {
                debug_assert!(false, "slot {} is {stage:?} and was told {event:?}", slot.0);
                self.counters.unexpected_events += 1;
            }
        }
        self.invariants();
    }

    /// An operator's word over a judge's probed state.
    pub fn on_override(&mut self, judge: JudgeIndex, word: Override, _now: Nanos) {
        let target = self.judges.target(judge.0);
        let unknown = self.targets[target as usize].history().unknown;
        self.judges.on_override(judge.0, word, unknown);
        self.invariants();
    }

    /// The next finished probe. Drain after every `poll_command` round and every `on_event`.
    pub fn poll_report(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// The next changed verdict. Drain like the reports.
    pub fn poll_change(&mut self) -> Option<Change> {
        let targets = &self.targets;
        self.judges.poll_change(|target| targets[target as usize].history().unknown)
    }

    /// When `poll_command` will next have something without an event coming first;
    /// `Nanos::MAX` = never. 0 = at once: also after a round that returned `None` because reports
    /// had filled their queue, so drain, look here, and poll again. May be too early, never too
    /// late.
    #[must_use]
    pub fn next_wake(&self) -> Nanos {
        if self.slots.any_wanted() || self.startable() {
            return 0;
        }
        self.due.next_wake().min(self.deadlines.next_wake())
    }

    /// The target's history.
    #[must_use]
    pub fn history(&self, target: TargetIndex) -> &History {
        self.targets[target.0 as usize].history()
    }

    /// What the judge says now, the override included.
    #[must_use]
    pub fn verdict(&self, judge: JudgeIndex) -> Verdict {
        self.judges.verdict(judge.0)
    }

    /// What the probes say to the judge, whatever the override.
    #[must_use]
    pub fn probed_verdict(&self, judge: JudgeIndex) -> Verdict {
        self.judges.probed_verdict(judge.0)
    }

    /// The override in force.
    #[must_use]
    pub fn override_of(&self, judge: JudgeIndex) -> Override {
        self.judges.override_of(judge.0)
    }

    /// Judges without a first verdict; 0 = steering may attach.
    #[must_use]
    pub fn warming_count(&self) -> u32 {
        self.judges.warming_count()
    }

    /// Probes in flight: slots that are not free, those that are closing included.
    #[must_use]
    pub fn in_flight_count(&self) -> u32 {
        self.slots.used_count()
    }

    /// What was counted so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    fn on_deadline(&mut self, slot: u32, now: Nanos) {
        self.counters.expired += 1;
        let timeout_ns = self.probe_of(slot).timeout_ns;
        self.slots.expire(slot, timeout_ns, now);
    }

    fn on_connected(&mut self, slot: u32, now: Nanos) {
        let outcome = match self.probe_of(slot).kind {
            ProbeKind::Tcp => Outcome::Connected,
            _ if self.slots.has_overrun(slot) => Outcome::OpenedLate,
            ProbeKind::Http { .. } | ProbeKind::Banner { .. } => {
                debug_assert!(false, "slot {slot} waits for bytes and was told Connected");
                self.counters.unexpected_events += 1;
                return;
            }
        };
        self.end(slot, outcome, now);
    }

    fn on_received(&mut self, slot: u32, bytes: &[u8], now: Nanos) {
        if self.probe_of(slot).compat.is_varnish() {
            return self.on_reply(slot, bytes, now);
        }
        let target = &self.targets[self.slots.target(slot) as usize];
        let end = match &self.probes[target.probe()].kind {
            ProbeKind::Http { expected, content, .. } => {
                answer::http(self.slots.response(slot), bytes, *expected, content)
            }
            ProbeKind::Banner { expected, bytes_max } => {
                self.slots.banner(slot).on_bytes(bytes, expected, *bytes_max)
            }
            ProbeKind::Tcp => {
                debug_assert!(false, "slot {slot} only connects and was told Received");
                self.counters.unexpected_events += 1;
                return;
            }
        };
        let outcome = match end {
            Some(outcome) => outcome,
            None if self.slots.is_expired(slot) => self.timed_out(slot, Phase::Receive),
            None => return self.slots.want_receive(slot),
        };
        self.end(slot, outcome, now);
    }

    fn on_failed(&mut self, slot: u32, phase: Phase, errno: i32, now: Nanos) {
        let blame = errno::blame(phase, errno, self.slots.is_expired(slot));
        if blame != errno::Blame::Local && self.turns_to_second(slot, phase, now) {
            return;
        }
        let outcome = match blame {
            errno::Blame::Deadline => self.on_deadline_passed(slot, phase),
            errno::Blame::Peer if self.is_short_write(slot, phase, errno) => {
                self.timed_out(slot, phase)
            }
            errno::Blame::Local => Outcome::Indeterminate(LocalFault::Errno { errno }),
            errno::Blame::Peer => Outcome::Failed { phase, errno },
        };
        self.end(slot, outcome, now);
        if phase == Phase::Socket {
            // There is nothing to close.
            self.slots.free(slot);
        }
    }

    fn timed_out(&self, slot: u32, phase: Phase) -> Outcome {
        if self.slots.is_late(slot) {
            Outcome::Indeterminate(LocalFault::LoopLate)
        } else {
            Outcome::TimedOut { phase }
        }
    }

    /// A probe is over; its connection is still to be closed.
    fn end(&mut self, slot: u32, outcome: Outcome, now: Nanos) {
        self.deadlines.disarm(slot);
        let expired = self.slots.is_expired(slot);
        let report = self.slots.end(slot, outcome, now);
        let target = &mut self.targets[report.target.0 as usize];
        self.counters.ended += 1;
        if target.is_removed() {
            return self.vacate(report.target.0);
        }
        target.end(outcome, expired);
        self.conclude(report, now);
        self.postpone(report.target.0, now);
    }

    /// Shifts a result in, judges it and reports it.
    fn conclude(&mut self, report: Report, now: Nanos) {
        let target = &mut self.targets[report.target.0 as usize];
        let was_unknown = target.history().unknown;
        if target.record(report.outcome, report.duration_ns, now) {
            let registers = target.history().registers;
            self.judges.on_result(target.judge_head(), registers[HAPPY], was_unknown);
            let mood = self.judges.mood(target.judge_head(), registers[HAPPY] & 1 == 1);
            if target.turn(mood, &self.probes[target.probe()], now) {
                self.due.disarm(report.target.0);
                self.due.arm(report.target.0, target.due_ns());
            }
        }
        debug_assert!(self.reports.len() < self.report_count_max, "a report without a place");
        self.reports.push_back(report);
    }

    fn probe_of(&self, slot: u32) -> &ProbeSpec {
        &self.probes[self.targets[self.slots.target(slot) as usize].probe()]
    }

    /// What always holds; looked at after each mutation in debug builds. O(1).
    fn invariants(&self) {
        debug_assert!(self.slots.suspect_count() <= self.slots.suspect_count_max());
        debug_assert!(self.slots.unended_count() <= self.slots.used_count());
        debug_assert_eq!(self.deadlines.armed_count(), self.slots.unexpired_count());
        debug_assert_eq!(self.due.armed_count(), self.target_count);
        debug_assert!(
            self.reports.len() + self.slots.unended_count() as usize <= self.report_count_max
        );
        debug_assert_eq!(
            self.counters.started,
            self.counters.ended + u64::from(self.slots.unended_count())
        );
    }
}

/// The most good results that a judge of this target needs: with several rules over one register
/// the largest bounds what is assumed, the others want no more.
fn threshold(judges: &[JudgeSpec], target: u32) -> u8 {
    let first = judges.partition_point(|judge| judge.target.0 < target);
    let own = judges[first..].iter().take_while(|judge| judge.target.0 == target);
    own.map(|judge| judge.rule.goods_to_healthy()).max().unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests;
