//! A target's slots: on the grid of its interval, or at the pace that its last result asks for.

use crate::hash::seeded;
use crate::plan::{Nanos, Pace, ProbeSpec, TargetSpec};
use crate::schedule;

/// Which of a probe's intervals holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mood {
    /// [`ProbeSpec::interval_ns`].
    Calm,
    /// [`Pace::fast_ns`].
    Fast,
    /// [`Pace::sick_ns`].
    Sick,
}

/// One target's slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calendar {
    /// Its identity under the host's seed.
    hash: u64,
    /// One slot of the grid; the others are whole intervals away.
    origin_ns: Nanos,
    interval_ns: Nanos,
    /// The next slot.
    slot_ns: Nanos,
    /// The moment in it that the probe is due: the slot's, and its share of the jitter.
    due_ns: Nanos,
    mood: Mood,
    jitter_percent: u8,
}

impl Calendar {
    pub(super) fn new(target: &TargetSpec, probe: &ProbeSpec, seed: u64, now: Nanos) -> Self {
        let interval_ns = probe.interval_ns;
        let first_ns = schedule::first_ns(target.identity, seed, interval_ns, now);
        Self {
            hash: seeded(target.identity, seed),
            origin_ns: schedule::phase_ns(target.identity, seed, interval_ns),
            interval_ns,
            slot_ns: first_ns,
            // The first is spread already, and has a limit.
            due_ns: first_ns,
            mood: Mood::Calm,
            jitter_percent: probe.pace.jitter_percent,
        }
    }

    pub(super) const fn due_ns(&self) -> Nanos {
        self.due_ns
    }

    pub(super) const fn interval_ns(&self) -> Nanos {
        self.interval_ns
    }

    /// Is due then, whatever the slots.
    pub(super) const fn postpone(&mut self, due_ns: Nanos) {
        (self.slot_ns, self.due_ns) = (due_ns, due_ns);
    }

    /// The slot has come: moves on to the first one after `now`. Gives when it was due, and how
    /// many between were skipped.
    pub(super) fn next_slot(&mut self, now: Nanos) -> (Nanos, u64) {
        let came_ns = self.due_ns;
        let after_ns = schedule::next_ns(self.origin_ns, self.interval_ns, self.slot_ns);
        self.move_to(schedule::next_ns(self.origin_ns, self.interval_ns, now.max(self.slot_ns)));
        (came_ns, (self.slot_ns - after_ns) / self.interval_ns)
    }

    /// A result of the probe that was due at `scheduled_ns` came; says whether the next slot is
    /// another one now.
    ///
    /// Two probes are never nearer than the lesser of the old and the new interval. The fast ones
    /// follow the last; the others lie on their interval's grid, whose phase is the target's own.
    pub(super) fn turn(
        &mut self,
        mood: Mood,
        probe: &ProbeSpec,
        scheduled_ns: Nanos,
        now: Nanos,
    ) -> bool {
        let (mood, interval_ns) = interval(mood, probe);
        if mood == self.mood {
            return false;
        }
        let earliest_ns = scheduled_ns + interval_ns.min(self.interval_ns);
        self.mood = mood;
        self.interval_ns = interval_ns;
        self.origin_ns = match mood {
            Mood::Fast => earliest_ns,
            Mood::Calm | Mood::Sick => schedule::phase_of(self.hash, interval_ns),
        };
        let after_ns = now.max(earliest_ns - 1);
        self.move_to(schedule::next_ns(self.origin_ns, interval_ns, after_ns));
        true
    }

    fn move_to(&mut self, slot_ns: Nanos) {
        self.slot_ns = slot_ns;
        let span_ns = self.interval_ns / 100 * u64::from(self.jitter_percent);
        self.due_ns = slot_ns + schedule::jitter_ns(self.hash, slot_ns, span_ns);
    }
}

/// The mood as far as the probe knows it, and its interval.
fn interval(mood: Mood, probe: &ProbeSpec) -> (Mood, Nanos) {
    let Pace { fast_ns, sick_ns, .. } = probe.pace;
    match (mood, fast_ns, sick_ns) {
        (Mood::Fast, Some(fast_ns), _) => (Mood::Fast, fast_ns),
        (Mood::Sick, _, Some(sick_ns)) => (Mood::Sick, sick_ns),
        _ => (Mood::Calm, probe.interval_ns),
    }
}
