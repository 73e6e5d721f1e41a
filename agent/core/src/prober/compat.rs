//! Where a probe that behaves as Varnish's differs: what its bytes, its deadline and its end come
//! to.

use super::{Nanos, Phase, Prober};
use crate::command::{Malformed, Outcome};
use crate::plan::{Compat, Family, ProbeKind};
use crate::reply::Judged;

/// Linux's number.
const EAGAIN: i32 = 11;
/// Linux's number. The engine also gives it for a send that was cut short.
const EPIPE: i32 = 32;

impl Prober {
    /// Bytes came, or the peer closed: only then is the response judged.
    pub(super) fn on_reply(&mut self, slot: u32, bytes: &[u8], now: Nanos) {
        self.slots.reply(slot).on_bytes(bytes);
        self.on_reply_read(slot, bytes.is_empty(), now);
    }

    /// Bytes came of which nothing is kept, or the peer closed.
    pub(super) fn on_discarded(&mut self, slot: u32, byte_count: u64, now: Nanos) {
        if !self.probe_of(slot).compat.is_varnish() {
            debug_assert!(false, "slot {slot} reads all that comes and was told Discarded");
            self.counters.unexpected_events += 1;
            return;
        }
        self.on_reply_read(slot, byte_count == 0, now);
    }

    fn on_reply_read(&mut self, slot: u32, closed: bool, now: Nanos) {
        let outcome = if closed {
            self.judged_reply(slot)
        } else if !self.slots.is_expired(slot) {
            // The rest may be megabytes, and says nothing but that it is not the end.
            return if self.slots.reply(slot).is_line_over() {
                self.slots.want_discard(slot);
            } else {
                self.slots.want_receive(slot);
            };
        } else {
            // Bytes still come and the deadline has passed: Varnish's `Poll timeout … exceeded`.
            match self.timed_out(slot, Phase::Receive) {
                Outcome::TimedOut { .. } => Outcome::Truncated,
                late => late,
            }
        };
        self.end(slot, outcome, now);
    }

    /// The deadline passed and what was in flight was cancelled.
    pub(super) fn on_deadline_passed(&mut self, slot: u32, phase: Phase) -> Outcome {
        let compat = self.probe_of(slot).compat;
        // A connect to a unix socket waits for room in its queue, and for nothing else. Varnish does
        // not wait: the same failure, told at once.
        let is_unix = self.targets[self.slots.target(slot) as usize].family() == Family::Unix;
        let queues = is_unix && phase == Phase::Connect && compat.is_varnish();
        if queues && !self.slots.is_late(slot) {
            return Outcome::Failed { phase, errno: EAGAIN };
        }
        let waits = compat == Compat::Varnish { expect_close: false };
        // Of a loop so late that a timeout would say nothing, what did come says something.
        let known = !self.slots.is_late(slot) || self.slots.reply(slot).is_begun();
        if waits && phase == Phase::Receive && known {
            return self.judged_reply(slot);
        }
        self.timed_out(slot, phase)
    }

    /// A connect has failed: goes on to the target's second address when there is one. Varnish gives
    /// each of both what was left of the timeout at the start, which is all of it.
    pub(super) fn turns_to_second(&mut self, slot: u32, phase: Phase, now: Nanos) -> bool {
        let probe = self.probe_of(slot);
        let (is_varnish, timeout_ns) = (probe.compat.is_varnish(), probe.timeout_ns);
        let target = &mut self.targets[self.slots.target(slot) as usize];
        let turns = is_varnish && phase == Phase::Connect && target.has_another();
        if !turns || self.slots.is_late(slot) {
            return false;
        }
        target.turn_to_second();
        if self.slots.turn(slot, now) {
            self.deadlines.arm(slot, now.saturating_add(timeout_ns));
        }
        true
    }

    /// Whether a failure is a request that was not taken in time, which Varnish calls a short
    /// write: its peer has failed, and not the sending.
    pub(super) fn is_short_write(&self, slot: u32, phase: Phase, errno: i32) -> bool {
        phase == Phase::Send
            && errno == EPIPE
            && self.slots.is_expired(slot)
            && self.probe_of(slot).compat.is_varnish()
    }

    /// The probe of `target` is over: Varnish's next one follows an interval later.
    pub(super) fn postpone(&mut self, index: u32, now: Nanos) {
        let target = &mut self.targets[index as usize];
        let probe = &self.probes[target.probe()];
        if probe.compat.is_varnish() {
            target.postpone(now.saturating_add(target.interval_ns()));
            self.due.disarm(index);
            self.due.arm(index, target.due_ns());
        }
    }

    fn judged_reply(&mut self, slot: u32) -> Outcome {
        match (self.slots.reply(slot).judged(), &self.probe_of(slot).kind) {
            (Judged::Empty, _) => Outcome::Empty,
            (Judged::Status(status), ProbeKind::Http { expected, .. }) => {
                // The number may be any; beyond 16 bits it is told as the largest.
                let status = u16::try_from(status).unwrap_or(u16::MAX);
                Outcome::Answered { status, good: expected.contains(status) }
            }
            _ => Outcome::Malformed(Malformed::StatusLine),
        }
    }
}
