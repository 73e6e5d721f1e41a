//! The places of probes in flight, and what each wants done next.

use super::answer::Banner;
use crate::command::{Arrival, Command, Outcome, Report};
use crate::plan::{Nanos, SlotIndex, TargetIndex};
use crate::reply::Reply;
use crate::response::Response;

/// End of a list.
const NONE: u32 = u32::MAX;

/// All slots.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
    free_head: u32,
    /// Slots that want something done, first in, first out.
    wanting_head: u32,
    wanting_tail: u32,
    used_count: u32,
    /// Probes without an outcome yet.
    unended_count: u32,
    /// Of these, whose deadline has not been seen to pass.
    unexpired_count: u32,
    suspect_count: u32,
}

/// How far a slot has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// No probe.
    Free,
    /// A start, a receive or a discard has not been answered.
    Flying,
    /// The next receive or discard has not been taken.
    Resting,
    /// The probe is over; the connection is not closed.
    Ended,
    /// The close has not been answered.
    Closing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Second,
    Receive,
    Discard,
    Cancel,
    Close,
}

#[derive(Debug)]
struct Slot {
    stage: Stage,
    wanted: Wanted,
    /// Stands in the list of those that want something, though it may have changed its mind.
    queued: bool,
    /// Its target was [`Standing::Suspect`](super::Standing) when it started.
    suspect: bool,
    /// The deadline passed.
    expired: bool,
    /// The loop came more than half the timeout late to see it pass.
    late: bool,
    /// Its first address is being closed; then comes the second.
    turning: bool,
    /// The timeout was spent on the first address.
    overran: bool,
    /// In the list of free slots, or of those that want something.
    next: u32,
    target: u32,
    scheduled_ns: Nanos,
    started_ns: Nanos,
    /// What its deadline counts from: the start, or the turn to the second address.
    timed_ns: Nanos,
    arrival: Arrival,
    response: Response,
    banner: Banner,
    /// The response of a probe that behaves as Varnish's.
    reply: Reply,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let slot = |index: u32| Slot {
            stage: Stage::Free,
            wanted: Wanted::Nothing,
            queued: false,
            suspect: false,
            expired: false,
            late: false,
            turning: false,
            overran: false,
            next: if index + 1 < count { index + 1 } else { NONE },
            target: 0,
            scheduled_ns: 0,
            started_ns: 0,
            timed_ns: 0,
            arrival: Arrival::default(),
            response: Response::new(false),
            banner: Banner::NEW,
            reply: Reply::NEW,
        };
        Self {
            slots: (0..count).map(slot).collect(),
            free_head: 0,
            wanting_head: NONE,
            wanting_tail: NONE,
            used_count: 0,
            unended_count: 0,
            unexpired_count: 0,
            suspect_count: 0,
        }
    }

    pub(super) fn stage(&self, slot: u32) -> Stage {
        self.slots[slot as usize].stage
    }

    pub(super) fn target(&self, slot: u32) -> u32 {
        self.slots[slot as usize].target
    }

    pub(super) fn is_expired(&self, slot: u32) -> bool {
        self.slots[slot as usize].expired
    }

    pub(super) fn is_late(&self, slot: u32) -> bool {
        self.slots[slot as usize].late
    }

    pub(super) fn response(&mut self, slot: u32) -> &mut Response {
        &mut self.slots[slot as usize].response
    }

    pub(super) fn banner(&mut self, slot: u32) -> &mut Banner {
        &mut self.slots[slot as usize].banner
    }

    pub(super) fn reply(&mut self, slot: u32) -> &mut Reply {
        &mut self.slots[slot as usize].reply
    }

    pub(super) fn any_free(&self) -> bool {
        self.free_head != NONE
    }

    pub(super) fn any_wanted(&self) -> bool {
        self.wanting_head != NONE
    }

    pub(super) fn used_count(&self) -> u32 {
        self.used_count
    }

    pub(super) fn unended_count(&self) -> u32 {
        self.unended_count
    }

    pub(super) fn unexpired_count(&self) -> u32 {
        self.unexpired_count
    }

    pub(super) fn suspect_count(&self) -> u32 {
        self.suspect_count
    }

    /// Slots that targets under suspicion hold at most.
    pub(super) fn suspect_count_max(&self) -> u32 {
        self.slots.len() as u32 / 2
    }

    /// Gives a free slot to a target's probe. There must be one.
    pub(super) fn start(
        &mut self,
        target: u32,
        suspect: bool,
        scheduled_ns: Nanos,
        head: bool,
        now: Nanos,
    ) -> u32 {
        let index = self.free_head;
        let slot = &mut self.slots[index as usize];
        debug_assert_eq!(slot.stage, Stage::Free);
        self.free_head = slot.next;
        slot.stage = Stage::Flying;
        (slot.suspect, slot.expired, slot.late) = (suspect, false, false);
        (slot.turning, slot.overran) = (false, false);
        (slot.target, slot.scheduled_ns) = (target, scheduled_ns);
        (slot.started_ns, slot.timed_ns) = (now, now);
        slot.arrival = Arrival::default();
        slot.response = Response::new(head);
        slot.banner = Banner::NEW;
        slot.reply = Reply::NEW;
        self.used_count += 1;
        self.unended_count += 1;
        self.unexpired_count += 1;
        self.suspect_count += u32::from(suspect);
        index
    }

    /// So many bytes came; none when the peer closed.
    pub(super) fn arrive(&mut self, index: u32, byte_count: u64, now: Nanos) {
        let slot = &mut self.slots[index as usize];
        if 0 < byte_count {
            slot.arrival.byte_count += byte_count;
            slot.arrival.last_ns = now.saturating_sub(slot.started_ns);
        }
    }

    /// The slot's deadline passed. A receive that is still to be taken goes out all the same, the
    /// cancel behind it: what has arrived already counts.
    pub(super) fn expire(&mut self, index: u32, timeout_ns: Nanos, now: Nanos) {
        let slot = &mut self.slots[index as usize];
        let deadline_ns = slot.timed_ns.saturating_add(timeout_ns);
        slot.expired = true;
        slot.late = timeout_ns / 2 < now.saturating_sub(deadline_ns);
        self.unexpired_count -= 1;
        if slot.stage == Stage::Flying {
            self.want(index, Wanted::Cancel);
        }
    }

    /// The first address cannot be connected to: it is closed, and then the second one is tried. Says
    /// whether that wants a deadline of its own, because the probe's has passed.
    pub(super) fn turn(&mut self, index: u32, now: Nanos) -> bool {
        let slot = &mut self.slots[index as usize];
        slot.stage = Stage::Ended;
        slot.turning = true;
        slot.overran = slot.expired;
        if slot.overran {
            (slot.expired, slot.timed_ns) = (false, now);
            self.unexpired_count += 1;
        }
        let overran = slot.overran;
        self.want(index, Wanted::Close);
        overran
    }

    /// Whether its close is that of a first address.
    pub(super) fn is_turning(&self, slot: u32) -> bool {
        self.slots[slot as usize].turning
    }

    /// Whether the timeout was spent on the first address.
    pub(super) fn has_overrun(&self, slot: u32) -> bool {
        self.slots[slot as usize].overran
    }

    /// The first address is closed.
    pub(super) fn want_second(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.turning = false;
        slot.stage = Stage::Resting;
        self.want(index, Wanted::Second);
    }

    /// The response goes on.
    pub(super) fn want_receive(&mut self, index: u32) {
        self.slots[index as usize].stage = Stage::Resting;
        self.want(index, Wanted::Receive);
    }

    /// The response goes on, and the rest of it says nothing.
    pub(super) fn want_discard(&mut self, index: u32) {
        self.slots[index as usize].stage = Stage::Resting;
        self.want(index, Wanted::Discard);
    }

    /// The probe is over: its report, and the connection wants closing.
    pub(super) fn end(&mut self, index: u32, outcome: Outcome, now: Nanos) -> Report {
        let slot = &mut self.slots[index as usize];
        slot.stage = Stage::Ended;
        self.unended_count -= 1;
        self.unexpired_count -= u32::from(!slot.expired);
        let report = Report {
            target: TargetIndex(slot.target),
            outcome,
            line: if slot.reply.is_begun() { slot.reply.line() } else { slot.response.line() },
            arrival: slot.arrival,
            scheduled_ns: slot.scheduled_ns,
            started_ns: slot.started_ns,
            duration_ns: now.saturating_sub(slot.started_ns),
        };
        self.want(index, Wanted::Close);
        report
    }

    /// The connection is closed, or never was.
    pub(super) fn free(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        debug_assert!(matches!(slot.stage, Stage::Ended | Stage::Closing));
        slot.stage = Stage::Free;
        slot.wanted = Wanted::Nothing;
        self.used_count -= 1;
        self.suspect_count -= u32::from(slot.suspect);
        if !slot.queued {
            slot.next = self.free_head;
            self.free_head = index;
        }
    }

    /// Takes the next command that a slot wants done.
    pub(super) fn next_wanted(&mut self) -> Option<Command> {
        while self.wanting_head != NONE {
            let index = self.wanting_head;
            let slot = &mut self.slots[index as usize];
            self.wanting_head = slot.next;
            if self.wanting_head == NONE {
                self.wanting_tail = NONE;
            }
            slot.queued = false;
            let wanted = std::mem::replace(&mut slot.wanted, Wanted::Nothing);
            let slot_index = SlotIndex(index);
            match wanted {
                Wanted::Nothing if slot.stage == Stage::Free => {
                    slot.next = self.free_head;
                    self.free_head = index;
                }
                Wanted::Nothing => {}
                Wanted::Second | Wanted::Receive | Wanted::Discard => {
                    slot.stage = Stage::Flying;
                    let (target, connect_only) = (TargetIndex(slot.target), slot.overran);
                    if slot.expired {
                        self.want(index, Wanted::Cancel);
                    }
                    let slot = slot_index;
                    return Some(match wanted {
                        Wanted::Second => Command::StartSecond { slot, target, connect_only },
                        Wanted::Discard => Command::Discard { slot },
                        _ => Command::Receive { slot },
                    });
                }
                Wanted::Cancel => return Some(Command::Cancel { slot: slot_index }),
                Wanted::Close => {
                    slot.stage = Stage::Closing;
                    return Some(Command::Close { slot: slot_index });
                }
            }
        }
        None
    }

    /// Wants this instead of what it wanted before.
    fn want(&mut self, index: u32, wanted: Wanted) {
        let slot = &mut self.slots[index as usize];
        slot.wanted = wanted;
        if slot.queued {
            return;
        }
        slot.queued = true;
        slot.next = NONE;
        match self.wanting_tail {
            NONE => self.wanting_head = index,
            tail => self.slots[tail as usize].next = index,
        }
        self.wanting_tail = index;
    }
}
