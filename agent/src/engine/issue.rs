//! What the prober asks for, pushed into the ring while that has room.

use sickbay_core::command::{Command, Event, Phase};
use sickbay_core::plan::{Nanos, SlotIndex};

use super::op::{RingFull, Route, Step, Tag};
use super::{Engine, Sink};

impl<S: Sink> Engine<S> {
    /// Pushes what is due while there is room. Returns whether the ring was full before the end.
    pub(super) fn issue(&mut self, now: Nanos) -> bool {
        // Before the cancels: those look for what is in the ring.
        while self.ring.has_room() {
            let Some((slot, length)) = self.named.pop() else {
                break;
            };
            let tag = |step| self.slots.tag(slot, step);
            self.ring.push_request(self.slots.place(slot), length, tag).expect("there is room");
        }
        while self.ring.has_room() {
            let Some((slot, step)) = self.cancels.pop() else {
                break;
            };
            self.push_cancel(slot, step).expect("there is room");
        }
        while self.ring.has_room() {
            let Some(slot) = self.closes.pop() else {
                break;
            };
            self.close(slot).expect("there is room");
        }
        while self.ring.has_room() {
            let Some(command) = self.held.take().or_else(|| self.prober.poll_command(now)) else {
                // The prober may end probes that it could not even start.
                self.drain(now);
                return false;
            };
            if self.carry_out(command, now) == Err(RingFull) {
                self.held = Some(command);
                break;
            }
            self.drain(now);
        }
        self.counters.on_ring_full();
        true
    }

    fn carry_out(&mut self, command: Command, now: Nanos) -> Result<(), RingFull> {
        match command {
            Command::Start { slot, target } => {
                self.start(slot, target.0, self.routes[target.0 as usize], now)?;
            }
            Command::StartSecond { slot, target, connect_only } => {
                let route = self.routes[target.0 as usize];
                let route = if connect_only { Route::Connect } else { route };
                self.start(slot, self.seconds[&target.0], route, now)?;
            }
            Command::Receive { slot: SlotIndex(slot) } => {
                let tag = self.slots.tag(slot, Step::Receive);
                self.ring.push_receive(self.slots.place(slot), tag)?;
                self.slots.read(slot, Step::Receive);
            }
            Command::Discard { slot: SlotIndex(slot) } => {
                let tag = self.slots.tag(slot, Step::Discard);
                self.ring.push_discard(self.slots.place(slot), tag)?;
                self.slots.read(slot, Step::Discard);
            }
            Command::Cancel { slot: SlotIndex(slot) } => {
                if let Some(step) = self.slots.cancel(slot) {
                    self.push_cancel(slot, step)?;
                }
            }
            Command::Close { slot: SlotIndex(slot) } => self.close(slot)?,
        }
        Ok(())
    }

    fn close(&mut self, slot: u32) -> Result<(), RingFull> {
        let tag = |step| self.slots.tag(slot, step);
        let answer = self.ring.push_close(self.slots.place(slot), tag)?;
        self.slots.close(slot, answer);
        Ok(())
    }

    /// Begins a probe at a place of the ring's memory.
    fn start(
        &mut self,
        slot: SlotIndex,
        place: u32,
        route: Route,
        now: Nanos,
    ) -> Result<(), RingFull> {
        let SlotIndex(index) = slot;
        if route == Route::Named
            && let Err(errno) = self.ring.open_named(place, index)
        {
            let event = Event::Failed { phase: Phase::Socket, errno };
            self.prober.on_event(slot, event, now);
            return Ok(());
        }
        let generation = self.slots.next_generation(index);
        let tag = |step| Tag { slot: index, generation, step };
        self.ring.push_chain(place, route, tag)?;
        self.slots.start(index, place, route);
        Ok(())
    }

    fn push_cancel(&mut self, slot: u32, step: Step) -> Result<(), RingFull> {
        let tag = self.slots.tag(slot, Step::Cancel);
        self.ring.push_cancel(tag, self.slots.tag(slot, step))
    }
}
