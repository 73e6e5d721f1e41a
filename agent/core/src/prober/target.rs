//! One target: its history, its slots on the grid, and where its probe is.

use super::calendar::{Calendar, Mood};
use super::waiting::{self, Standing};
use super::{History, judge};
use crate::average;
use crate::command::Outcome;
use crate::limits::unknown_after_ns;
use crate::past::Past;
use crate::plan::{Compat, Family, Nanos, ProbeSpec, TargetSpec};
use crate::register::{self, HAPPY};

/// Where a target's probe is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Nowhere: the next slot has not come.
    Idle,
    /// In a queue.
    Waiting,
    /// In flight.
    InFlight,
    /// In a queue or in flight, and removed: the place is vacant when that is over.
    Removed,
    /// There is no target here.
    Vacant,
}

/// One target.
#[derive(Debug)]
pub(super) struct Target {
    history: History,
    /// Its slots; its timer is armed for the next one.
    calendar: Calendar,
    /// The slot of the probe that waits or is in flight.
    scheduled_ns: Nanos,
    /// Since when it is probed.
    since_ns: Nanos,
    /// The next one that waits, or of the free places; in flight, its place there.
    pub(super) link: u32,
    probe: u32,
    judge_head: u32,
    place: Place,
    standing: Standing,
    family: Family,
    second: Option<Family>,
    /// Its probe has gone on to the second address.
    on_second: bool,
    compat: Compat,
    /// Happy probes in the average, at most 4.
    rate: u8,
}

// With a timer (24 bytes) and a judge (24) about 248 bytes: 300,000 targets are 74 MB.
const _: () = assert!(size_of::<Target>() <= 200);

impl Target {
    /// A target probed as `probe` says from `now` on; `threshold` good results are assumed at most.
    pub(super) fn new(
        spec: &TargetSpec,
        probe: &ProbeSpec,
        threshold: u8,
        phase_seed: u64,
        now: Nanos,
    ) -> Self {
        let registers = register::prefilled(spec.initial, threshold);
        let compat = probe.compat;
        Self {
            history: History {
                registers,
                average_s: 0.0,
                last_ns: 0,
                last_result_ns: 0,
                outcome: None,
                indeterminate: 0,
                unknown: false,
            },
            calendar: Calendar::new(spec, probe, phase_seed, now),
            scheduled_ns: 0,
            since_ns: now,
            link: waiting::NONE,
            probe: spec.probe.0,
            judge_head: judge::NONE,
            place: Place::Idle,
            standing: Standing::Untried,
            family: spec.family,
            second: spec.second,
            on_second: false,
            compat,
            // Varnish's average knows the assumed results as ones that took no time.
            rate: if compat.is_varnish() { registers[HAPPY].count_ones() as u8 } else { 0 },
        }
    }

    /// Goes on with a history that was left. The results that were assumed count no more.
    pub(super) fn take_up(&mut self, past: &Past) {
        self.history = History {
            registers: past.registers,
            average_s: past.average_s,
            last_ns: past.last_ns,
            last_result_ns: past.last_result_ns,
            outcome: past.outcome,
            indeterminate: past.indeterminate,
            unknown: false,
        };
        let goods = past.registers[HAPPY].count_ones() as u8;
        self.rate = goods.min(average::RATE_MAX);
        self.standing = match past.outcome {
            Some(Outcome::TimedOut { .. }) => Standing::Suspect,
            Some(outcome) if outcome.good().is_some() => Standing::Answering,
            _ => Standing::Untried,
        };
    }

    pub(super) const fn history(&self) -> &History {
        &self.history
    }

    pub(super) const fn probe(&self) -> usize {
        self.probe as usize
    }

    /// Of the address that is probed now.
    pub(super) fn family(&self) -> Family {
        self.second.filter(|_| self.on_second).unwrap_or(self.family)
    }

    /// Whether there is another address to try.
    pub(super) const fn has_another(&self) -> bool {
        self.second.is_some() && !self.on_second
    }

    /// Its probe goes on to the second address.
    pub(super) fn turn_to_second(&mut self) {
        debug_assert!(self.has_another() && self.place == Place::InFlight);
        self.on_second = true;
    }

    /// The first of its judges, or [`judge::NONE`].
    pub(super) const fn judge_head(&self) -> u32 {
        self.judge_head
    }

    pub(super) const fn set_judge_head(&mut self, judge: u32) {
        self.judge_head = judge;
    }

    pub(super) const fn place(&self) -> Place {
        self.place
    }

    pub(super) const fn due_ns(&self) -> Nanos {
        self.calendar.due_ns()
    }

    pub(super) const fn scheduled_ns(&self) -> Nanos {
        self.scheduled_ns
    }

    /// Its slot has come: moves on to the first one after `now`. Gives when it was due, and how
    /// many between were skipped.
    pub(super) fn next_slot(&mut self, now: Nanos) -> (Nanos, u64) {
        self.calendar.next_slot(now)
    }

    /// Goes on at the pace that a result asks for; says whether its timer is to be armed anew.
    pub(super) fn turn(&mut self, mood: Mood, probe: &ProbeSpec, now: Nanos) -> bool {
        self.calendar.turn(mood, probe, self.scheduled_ns, now)
    }

    /// The interval as it is now.
    pub(super) const fn interval_ns(&self) -> Nanos {
        self.calendar.interval_ns()
    }

    /// Is due then, not at its next slot.
    pub(super) const fn postpone(&mut self, due_ns: Nanos) {
        self.calendar.postpone(due_ns);
    }

    /// Whether it is due an interval after its last probe's end, not at slots of its own.
    pub(super) const fn is_postponed(&self) -> bool {
        self.compat.is_varnish()
    }

    pub(super) fn wait(&mut self, scheduled_ns: Nanos) {
        self.place = Place::Waiting;
        self.scheduled_ns = scheduled_ns;
    }

    pub(super) fn start(&mut self, slot: u32) {
        debug_assert_eq!(self.place, Place::Waiting);
        self.place = Place::InFlight;
        self.link = slot;
        self.on_second = false;
    }

    /// Is probed no more; what waits or is in flight ends without a report.
    pub(super) const fn remove(&mut self) {
        self.place = Place::Removed;
    }

    pub(super) const fn is_removed(&self) -> bool {
        matches!(self.place, Place::Removed | Place::Vacant)
    }

    /// Its place is free for another; `link` is the next one.
    pub(super) fn vacate(&mut self, link: u32) {
        debug_assert_eq!(self.place, Place::Removed);
        self.place = Place::Vacant;
        self.link = link;
    }

    /// Its probe is over; `expired` if its deadline had passed.
    pub(super) fn end(&mut self, outcome: Outcome, expired: bool) {
        debug_assert_eq!(self.place, Place::InFlight);
        self.place = Place::Idle;
        match outcome.good() {
            Some(false) if expired => self.standing = Standing::Suspect,
            Some(_) => self.standing = Standing::Answering,
            // A fault of this host is held against nobody.
            None => {}
        }
    }

    /// What may be expected of its next probe, its judges aside.
    pub(super) const fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether it turned unknown just now: asked at each of its slots.
    pub(super) fn fell_silent(&mut self, interval_ns: Nanos, now: Nanos) -> bool {
        let interval_ns = interval_ns.max(self.calendar.interval_ns());
        let limit_ns = unknown_after_ns(interval_ns);
        let heard_ns = self.history.last_result_ns.max(self.since_ns);
        if self.history.unknown || now.saturating_sub(heard_ns) < limit_ns {
            return false;
        }
        self.history.unknown = true;
        true
    }

    /// Takes in what a probe came to; says whether it was determinate.
    pub(super) fn record(&mut self, outcome: Outcome, duration_ns: Nanos, now: Nanos) -> bool {
        let family = self.family();
        let history = &mut self.history;
        history.outcome = Some(outcome);
        let Some(good) = outcome.good() else {
            history.indeterminate = history.indeterminate.saturating_add(1);
            return false;
        };
        register::record(&mut history.registers, outcome, family, self.compat);
        history.last_ns = if is_reception(outcome) { duration_ns } else { 0 };
        if good {
            average::add(&mut history.average_s, &mut self.rate, duration_ns as f64 / 1e9);
        }
        history.last_result_ns = now;
        history.indeterminate = 0;
        history.unknown = false;
        true
    }
}

/// Whether all that was waited for came; Varnish gives a time for these alone.
const fn is_reception(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Connected
            | Outcome::Answered { .. }
            | Outcome::Lacking { .. }
            | Outcome::Matched
            | Outcome::Mismatched
            | Outcome::Malformed(_)
    )
}
