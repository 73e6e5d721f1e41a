//! From a target's slot to the start of its probe.

use super::Prober;
use super::target::Place;
use super::waiting::Standing;
use crate::command::{Arrival, Command, LocalFault, Outcome, Report, StatusLine};
use crate::plan::{Nanos, ProbeKind, SlotIndex, TargetIndex};

impl Prober {
    /// Starts the next probe, after putting every target that is due in its queue.
    pub(super) fn start_due(&mut self, now: Nanos) -> Option<Command> {
        while self.report_room() {
            let Some(target) = self.due.pop(now) else {
                break;
            };
            self.on_due(target, now);
        }
        [Standing::Answering, Standing::Untried, Standing::Suspect]
            .into_iter()
            .find_map(|standing| self.start_from(standing, now))
    }

    /// A target's slot has come.
    fn on_due(&mut self, index: u32, now: Nanos) {
        let target = &mut self.targets[index as usize];
        let probe = &self.probes[target.probe()];
        let (slot_ns, skipped) = target.next_slot(now);
        self.counters.slept_through += skipped;
        if probe.compat.is_varnish() {
            // Until its end tells when the next one is due.
            target.postpone(now.saturating_add(probe.interval_ns));
        }
        self.due.arm(index, target.due_ns());
        if target.fell_silent(probe.interval_ns, now) {
            self.judges.on_silence(target.judge_head());
        }
        let target = &mut self.targets[index as usize];
        match target.place() {
            Place::InFlight => self.counters.overlapped += u64::from(!target.is_postponed()),
            Place::Idle => {
                target.wait(slot_ns);
                let standing = if self.judges.all_sick(target.judge_head()) {
                    Standing::Suspect
                } else {
                    target.standing()
                };
                self.waiting.push(&mut self.targets, index, standing);
            }
            Place::Removed | Place::Vacant => {
                debug_assert!(false, "target {index} was removed and is due");
            }
            Place::Waiting => {
                let scheduled_ns = target.scheduled_ns();
                target.wait(slot_ns);
                self.counters.no_slot += 1;
                let report = Report {
                    target: TargetIndex(index),
                    outcome: Outcome::Indeterminate(LocalFault::NoSlot),
                    line: StatusLine::EMPTY,
                    arrival: Arrival::default(),
                    scheduled_ns,
                    started_ns: now,
                    duration_ns: 0,
                };
                self.conclude(report, now);
            }
        }
    }

    pub(super) fn start_from(&mut self, standing: Standing, now: Nanos) -> Option<Command> {
        if !self.has_room_for(standing) {
            return None;
        }
        let target = self.next_waiting(standing)?;
        Some(self.start(target, standing == Standing::Suspect, now))
    }

    fn start(&mut self, index: u32, suspect: bool, now: Nanos) -> Command {
        let target = &mut self.targets[index as usize];
        let probe = &self.probes[target.probe()];
        let head = matches!(probe.kind, ProbeKind::Http { head: true, .. });
        let slot = self.slots.start(index, suspect, target.scheduled_ns(), head, now);
        target.start(slot);
        self.deadlines.arm(slot, now.saturating_add(probe.timeout_ns));
        self.counters.started += 1;
        Command::Start { slot: SlotIndex(slot), target: TargetIndex(index) }
    }

    /// Whether one more report has a place, besides those kept for the probes in flight.
    fn report_room(&self) -> bool {
        self.reports.len() + (self.slots.unended_count() as usize) < self.report_count_max
    }

    pub(super) fn startable(&self) -> bool {
        [Standing::Answering, Standing::Untried, Standing::Suspect]
            .into_iter()
            .any(|standing| self.waiting.any(standing) && self.has_room_for(standing))
    }

    fn has_room_for(&self, standing: Standing) -> bool {
        let suspects_full = self.slots.suspect_count_max() <= self.slots.suspect_count();
        let excluded = standing == Standing::Suspect && suspects_full;
        !excluded && self.slots.any_free() && self.report_room()
    }
}
