//! What each slot has in flight, and what an answer of the ring means for it.
//!
//! A chain (or a receive, or a close) is answered exactly once: every operation but the last posts
//! its completion only when it fails, and then the kernel posts none for the rest of the chain
//! (`io_uring.c: req_set_fail` turns the skip on itself into a skip on its followers).

use sickbay_core::command::Phase;

use super::op::{Route, Step, Tag};

/// All slots of one ring.
#[derive(Debug)]
pub(super) struct Slots {
    slots: Box<[Slot]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// Where its target stands in the ring's memory.
    place: u32,
    route: Route,
    generation: u32,
    pending: Pending,
    /// The step that was last tried to cancel.
    cancelling: Option<Step>,
}

/// What a slot waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// Nothing.
    Nothing,
    /// The one answer of a chain; `last` is its last step.
    Chain { last: Step },
    /// The answer of a single receive or discard.
    Read(Step),
    /// The answer of a close, or of a reset that leaves the socket.
    Close(Step),
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The connection of a TCP probe is open.
    Connected,
    /// So many bytes stand in the slot's buffer.
    Received {
        /// How many.
        length: usize,
    },
    /// So many bytes were thrown away.
    Discarded {
        /// How many.
        byte_count: u64,
    },
    /// The command failed.
    Failed {
        /// How far it had come.
        phase: Phase,
        /// The errno, positive.
        errno: i32,
    },
    /// The slot is free for its next use.
    Closed,
    /// The socket cannot stay, and is to be closed.
    CloseAfterAll,
    /// The cancel found nothing at its step, and the slot still waits: cancel this step.
    CancelAgain(Step),
    /// Nothing to do.
    Settled,
    /// An answer that belongs to nobody.
    Stray,
}

impl Slots {
    pub(super) fn new(count: u32) -> Self {
        let free = Slot {
            place: 0,
            route: Route::Connect,
            generation: 0,
            pending: Pending::Nothing,
            cancelling: None,
        };
        Self { slots: vec![free; count as usize].into() }
    }

    /// The generation of the slot's next use.
    pub(super) fn next_generation(&self, slot: u32) -> u32 {
        (self.slots[slot as usize].generation + 1) % Tag::GENERATIONS
    }

    /// Where the target of the slot's present use stands in the ring's memory.
    pub(super) fn place(&self, slot: u32) -> u32 {
        self.slots[slot as usize].place
    }

    /// What the slot's present use does.
    pub(super) fn route(&self, slot: u32) -> Route {
        self.slots[slot as usize].route
    }

    /// The slot begins its next use, for the target at `place`, with the first chain of `route`.
    pub(super) fn start(&mut self, slot: u32, place: u32, route: Route) {
        let generation = self.next_generation(slot);
        let pending = Pending::Chain { last: route.first_chain_end() };
        let slot = &mut self.slots[slot as usize];
        debug_assert_eq!(slot.pending, Pending::Nothing, "it is in use");
        *slot = Slot { place, route, generation, pending, cancelling: None };
    }

    /// The slot's connection is open and its chain goes on, up to a receive. False when its
    /// deadline has passed: then nothing more is to be begun.
    pub(super) fn go_on(&mut self, slot: u32) -> bool {
        let place = &mut self.slots[slot as usize];
        debug_assert_eq!(place.pending, Pending::Nothing, "slot {slot} is in use");
        if place.cancelling.is_some() {
            return false;
        }
        place.pending = Pending::Chain { last: Step::Receive };
        true
    }

    /// The slot begins a receive or a discard of its own.
    pub(super) fn read(&mut self, slot: u32, step: Step) {
        let place = &mut self.slots[slot as usize];
        debug_assert_eq!(place.pending, Pending::Nothing, "slot {slot} is in use");
        place.pending = Pending::Read(step);
        place.cancelling = None;
    }

    /// The slot begins its close, which this step will answer.
    pub(super) fn close(&mut self, slot: u32, step: Step) {
        let place = &mut self.slots[slot as usize];
        debug_assert_eq!(place.pending, Pending::Nothing, "slot {slot} is in use");
        place.pending = Pending::Close(step);
    }

    /// The step to cancel first, if the slot has anything to cancel. A chain is looked for at its
    /// connect: that is where most probes hang that do hang.
    pub(super) fn cancel(&mut self, slot: u32) -> Option<Step> {
        let place = &mut self.slots[slot as usize];
        let step = match place.pending {
            Pending::Chain { .. } => Step::Connect,
            Pending::Read(step) => step,
            Pending::Nothing | Pending::Close(_) => return None,
        };
        place.cancelling = Some(step);
        Some(step)
    }

    /// The tag of a step of the slot's present use.
    pub(super) fn tag(&self, slot: u32, step: Step) -> Tag {
        Tag { slot, generation: self.slots[slot as usize].generation, step }
    }

    /// What an answer means; the slot is left waiting for nothing when it was its answer.
    pub(super) fn on_completion(&mut self, tag: Tag, result: i32) -> Meaning {
        let Some(place) = self.slots.get_mut(tag.slot as usize) else {
            return Meaning::Stray;
        };
        if place.generation != tag.generation {
            // A cancel that came too late for its probe is nobody's loss.
            let late_cancel = tag.step == Step::Cancel;
            return if late_cancel { Meaning::Settled } else { Meaning::Stray };
        }
        if tag.step == Step::Cancel {
            return place.on_cancel_failed(result);
        }
        if tag.step == Step::Reset {
            // Posted when there was nothing to reset; the close answers all the same.
            return Meaning::Settled;
        }
        let answered = match place.pending {
            Pending::Nothing => false,
            Pending::Chain { last } => tag.step as u8 <= last as u8,
            Pending::Read(step) | Pending::Close(step) => tag.step == step,
        };
        if !answered {
            return Meaning::Stray;
        }
        let meaning = meaning(tag.step, result);
        place.pending = Pending::Nothing;
        meaning
    }
}

impl Slot {
    /// Only cancels that found nothing (ENOENT) or what is just being done (EALREADY) are posted.
    /// The chain may stand at another of its steps, or between two: try them in turn.
    fn on_cancel_failed(&mut self, result: i32) -> Meaning {
        if matches!(self.pending, Pending::Nothing | Pending::Close(_)) || result >= 0 {
            return Meaning::Settled;
        }
        let Some(tried) = self.cancelling else {
            return Meaning::Settled;
        };
        let next = match (self.pending, tried) {
            (Pending::Read(step), _) => step,
            (Pending::Chain { last: Step::Connect }, _) => Step::Connect,
            (_, Step::Connect) => Step::Receive,
            (_, Step::Receive) => Step::Send,
            _ => Step::Connect,
        };
        self.cancelling = Some(next);
        Meaning::CancelAgain(next)
    }
}

/// What an operation that is not a cancel came to.
fn meaning(step: Step, result: i32) -> Meaning {
    match step {
        // Closing an empty slot (its socket was never made) is answered by EBADF.
        Step::Close => return Meaning::Closed,
        Step::Keep if result < 0 => return Meaning::CloseAfterAll,
        Step::Keep => return Meaning::Closed,
        _ => {}
    }
    let phase = step.phase();
    match (step, result) {
        (_, result) if result < 0 => Meaning::Failed { phase, errno: -result },
        (Step::Receive, length) => Meaning::Received { length: length as usize },
        (Step::Discard, count) => Meaning::Discarded { byte_count: count as u64 },
        (Step::Connect, _) => Meaning::Connected,
        // A success that is posted all the same is a send that the peer cut short.
        _ => Meaning::Failed { phase, errno: libc::EPIPE },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HTTP: Route = Route::Exchange;
    const TCP: Route = Route::Connect;

    fn started(route: Route) -> Slots {
        let mut slots = Slots::new(2);
        slots.start(1, 7, route);
        slots
    }

    fn answer(slots: &mut Slots, step: Step, result: i32) -> Meaning {
        let tag = slots.tag(1, step);
        slots.on_completion(tag, result)
    }

    #[test]
    fn last_step_of_a_chain_is_its_good_answer() {
        assert_eq!(answer(&mut started(TCP), Step::Connect, 0), Meaning::Connected);
        let received = Meaning::Received { length: 12 };
        assert_eq!(answer(&mut started(HTTP), Step::Receive, 12), received);
    }

    #[test]
    fn failing_step_names_the_phase() {
        for (step, phase) in [
            (Step::Socket, Phase::Socket),
            (Step::Option, Phase::Connect),
            (Step::Bind, Phase::Connect),
            (Step::Connect, Phase::Connect),
            (Step::Send, Phase::Send),
            (Step::Receive, Phase::Receive),
        ] {
            let failed = Meaning::Failed { phase, errno: 111 };
            assert_eq!(answer(&mut started(HTTP), step, -111), failed);
        }
    }

    #[test]
    fn second_answer_of_a_chain_is_stray() {
        let mut slots = started(HTTP);
        answer(&mut slots, Step::Connect, -111);
        assert_eq!(answer(&mut slots, Step::Receive, -libc::ECANCELED), Meaning::Stray);
    }

    #[test]
    fn answer_of_an_earlier_use_is_stray() {
        let mut slots = started(TCP);
        let tag = slots.tag(1, Step::Connect);
        slots.on_completion(tag, 0);
        slots.start(1, 7, TCP);
        assert_eq!(slots.on_completion(tag, 0), Meaning::Stray);
        assert_eq!(answer(&mut slots, Step::Connect, 0), Meaning::Connected);
    }

    #[test]
    fn answer_for_a_slot_that_does_not_exist_is_stray() {
        let tag = Tag { slot: 2, generation: 0, step: Step::Close };
        assert_eq!(Slots::new(2).on_completion(tag, 0), Meaning::Stray);
    }

    #[test]
    fn send_that_the_peer_cut_short_fails() {
        let failed = Meaning::Failed { phase: Phase::Send, errno: libc::EPIPE };
        assert_eq!(answer(&mut started(HTTP), Step::Send, 10), failed);
    }

    #[test]
    fn chain_goes_on_after_its_connect_unless_its_deadline_has_passed() {
        let mut slots = started(TCP);
        assert_eq!(answer(&mut slots, Step::Connect, 0), Meaning::Connected);
        assert!(slots.go_on(1));
        assert_eq!(answer(&mut slots, Step::Receive, 5), Meaning::Received { length: 5 });

        let mut slots = started(TCP);
        slots.cancel(1);
        assert_eq!(answer(&mut slots, Step::Connect, 0), Meaning::Connected);
        assert!(!slots.go_on(1));
        assert_eq!(answer(&mut slots, Step::Cancel, -libc::ENOENT), Meaning::Settled);
    }

    #[test]
    fn cancel_that_finds_nothing_tries_each_step_in_turn() {
        let mut slots = started(HTTP);
        assert_eq!(slots.cancel(1), Some(Step::Connect));
        for next in [Step::Receive, Step::Send, Step::Connect, Step::Receive] {
            let again = Meaning::CancelAgain(next);
            assert_eq!(answer(&mut slots, Step::Cancel, -libc::ENOENT), again);
        }
        let failed = Meaning::Failed { phase: Phase::Receive, errno: libc::ECANCELED };
        assert_eq!(answer(&mut slots, Step::Receive, -libc::ECANCELED), failed);
        assert_eq!(answer(&mut slots, Step::Cancel, -libc::ENOENT), Meaning::Settled);
    }

    #[test]
    fn cancel_of_an_earlier_use_touches_nothing() {
        let mut slots = started(TCP);
        slots.cancel(1);
        let tag = slots.tag(1, Step::Cancel);
        answer(&mut slots, Step::Connect, 0);
        slots.start(1, 7, TCP);
        assert_eq!(slots.on_completion(tag, -libc::ENOENT), Meaning::Settled);
    }

    #[test]
    fn cancel_of_a_discard_finds_the_discard() {
        let mut slots = started(HTTP);
        answer(&mut slots, Step::Receive, 2048);
        slots.read(1, Step::Discard);
        assert_eq!(slots.cancel(1), Some(Step::Discard));
        let again = Meaning::CancelAgain(Step::Discard);
        assert_eq!(answer(&mut slots, Step::Cancel, -libc::EALREADY), again);
        assert_eq!(answer(&mut slots, Step::Receive, 7), Meaning::Stray);
        let discarded = Meaning::Discarded { byte_count: 1 << 20 };
        assert_eq!(answer(&mut slots, Step::Discard, 1 << 20), discarded);
    }

    #[test]
    fn idle_slot_has_nothing_to_cancel() {
        assert_eq!(Slots::new(1).cancel(0), None);
    }

    #[test]
    fn close_of_an_empty_slot_is_closed_all_the_same() {
        let mut slots = started(HTTP);
        answer(&mut slots, Step::Socket, -libc::ENFILE);
        slots.close(1, Step::Close);
        assert_eq!(answer(&mut slots, Step::Reset, -libc::EBADF), Meaning::Settled);
        assert_eq!(answer(&mut slots, Step::Close, -libc::EBADF), Meaning::Closed);
    }

    #[test]
    fn socket_that_cannot_stay_is_closed() {
        let mut slots = started(HTTP);
        answer(&mut slots, Step::Receive, 12);
        slots.close(1, Step::Keep);
        assert_eq!(answer(&mut slots, Step::Keep, -libc::EBUSY), Meaning::CloseAfterAll);
        slots.close(1, Step::Close);
        assert_eq!(answer(&mut slots, Step::Close, 0), Meaning::Closed);
        slots.start(1, 7, HTTP);
        answer(&mut slots, Step::Receive, 12);
        slots.close(1, Step::Keep);
        assert_eq!(answer(&mut slots, Step::Keep, 0), Meaning::Closed);
    }
}
