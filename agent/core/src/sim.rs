//! A simulated engine and network around the real prober, on a virtual clock.
//!
//! Drives a [`Prober`] exactly as the engine must: wakes at the earlier of the next arrival and
//! [`Prober::next_wake`], gives what has arrived, then takes commands until there are none, and
//! drains reports and changes. The peers, the loop's lateness and the loss are drawn from a seed:
//! same plan, same seed, same calls, same trace.
//!
//! For tests, benches and explanations. It allocates.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::command::{Change, Command, Event, Override, Report};
use crate::plan::{
    JudgeIndex, JudgeSpec, Nanos, OnUnknown, Plan, ProbeKind, Rule, SlotIndex, TargetIndex,
    TargetSpec,
};
use crate::prober::Prober;

use flight::{Answer, Flight};
pub use peer::{Behaviour, OK, Peer};
pub use random::Random;

mod flight;
mod peer;
mod random;

/// One thing that happened, with when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Traced {
    /// Virtual time.
    pub at_ns: Nanos,
    /// What.
    pub what: Occurrence,
}

/// What the prober said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Occurrence {
    /// It wanted this done.
    Command(Command),
    /// It reported this.
    Report(Report),
    /// It told of this change.
    Change(Change),
}

/// The simulation.
#[derive(Debug)]
pub struct Sim {
    prober: Prober,
    now: Nanos,
    /// By probe, whether its answer is bytes.
    probe_reads: Box<[bool]>,
    /// By target.
    reads: Box<[bool]>,
    peers: Box<[Peer]>,
    flights: Box<[Flight]>,
    arrivals: BinaryHeap<Reverse<Arrival>>,
    serial: u64,
    random: Random,
    lateness_ns_max: Nanos,
    stall_until_ns: Nanos,
}

/// An answer on its way to the loop. Earliest first, then in the order they were sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Arrival {
    at_ns: Nanos,
    serial: u64,
    slot: u32,
}

impl Sim {
    /// A prober of `plan` that starts at `now`; every peer is [`Peer::HEALTHY`].
    #[must_use]
    pub fn new(plan: &Plan, seed: u64, now: Nanos) -> Self {
        let probe_reads: Box<[bool]> =
            plan.probes.iter().map(|probe| !matches!(probe.kind, ProbeKind::Tcp)).collect();
        let targets = plan.targets.iter();
        let mut reads: Vec<bool> =
            targets.map(|target| probe_reads[target.probe.0 as usize]).collect();
        reads.resize(reads.len() + plan.room.targets as usize, false);
        Self {
            prober: Prober::new(plan, now),
            now,
            probe_reads,
            peers: vec![Peer::HEALTHY; reads.len()].into_boxed_slice(),
            reads: reads.into_boxed_slice(),
            flights: vec![Flight::default(); plan.slot_count as usize].into_boxed_slice(),
            arrivals: BinaryHeap::new(),
            serial: 0,
            random: Random::new(seed),
            lateness_ns_max: 0,
            stall_until_ns: 0,
        }
    }

    /// From now on the target is this; probes in flight go on with what it was.
    pub fn set_peer(&mut self, target: TargetIndex, peer: Peer) {
        self.peers[target.0 as usize] = peer;
    }

    /// From now on each wake is late by a random time up to this.
    pub fn set_lateness_ns_max(&mut self, lateness_ns_max: Nanos) {
        self.lateness_ns_max = lateness_ns_max;
    }

    /// The loop sleeps until then, whatever happens.
    pub fn stall_until(&mut self, until_ns: Nanos) {
        self.stall_until_ns = until_ns;
    }

    /// An operator's override, now.
    pub fn set_override(&mut self, judge: JudgeIndex, word: Override, on: &mut impl FnMut(Traced)) {
        self.prober.on_override(judge, word, self.now);
        self.drain(on);
    }

    /// Adds a target with one judge, now; its peer is [`Peer::HEALTHY`]. `None`: no room is left.
    pub fn add(
        &mut self,
        spec: &TargetSpec,
        rule: Rule,
        on_unknown: OnUnknown,
        on: &mut impl FnMut(Traced),
    ) -> Option<(TargetIndex, JudgeIndex)> {
        let target = self.prober.add_target(spec, rule, self.now)?;
        self.reads[target.0 as usize] = self.probe_reads[spec.probe.0 as usize];
        self.peers[target.0 as usize] = Peer::HEALTHY;
        let judge = self.prober.add_judge(&JudgeSpec { target, rule, on_unknown }, self.now)?;
        self.drain(on);
        Some((target, judge))
    }

    /// Removes a target and its judges, now.
    pub fn remove(&mut self, target: TargetIndex, on: &mut impl FnMut(Traced)) {
        while let Some(judge) = { self.prober.judges_of(target).next() } {
            self.prober.remove_judge(judge, self.now);
        }
        self.prober.remove_target(target, self.now);
        self.drain(on);
    }

    /// Runs up to and including `until_ns`, telling `on` of all that happens.
    ///
    /// # Panics
    ///
    /// When the prober wants to be woken at a time that has passed although it was polled until it
    /// had nothing: a real loop would spin.
    pub fn run_until(&mut self, until_ns: Nanos, on: &mut impl FnMut(Traced)) {
        loop {
            let late_ns = match self.lateness_ns_max {
                0 => 0,
                most => self.random.below(most + 1),
            };
            let next_ns = self.next_ns().saturating_add(late_ns).max(self.stall_until_ns);
            if until_ns < next_ns {
                break;
            }
            self.now = next_ns;
            self.turn(on);
        }
        self.now = self.now.max(until_ns);
    }

    /// When the loop wakes next if it is not late: at an answer, or because the prober wants it.
    #[must_use]
    pub fn next_ns(&self) -> Nanos {
        let arrival_ns = self.arrivals.peek().map_or(Nanos::MAX, |Reverse(next)| next.at_ns);
        arrival_ns.min(self.prober.next_wake().max(self.now))
    }

    /// The prober.
    #[must_use]
    pub fn prober(&self) -> &Prober {
        &self.prober
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// One turn of the loop: events first, then commands.
    fn turn(&mut self, on: &mut impl FnMut(Traced)) {
        while self.arrivals.peek().is_some_and(|Reverse(next)| next.at_ns <= self.now) {
            let Some(Reverse(arrival)) = self.arrivals.pop() else {
                break;
            };
            self.deliver(arrival);
            self.drain(on);
        }
        loop {
            let mut idle = true;
            while let Some(command) = self.prober.poll_command(self.now) {
                idle = false;
                on(Traced { at_ns: self.now, what: Occurrence::Command(command) });
                self.carry_out(command);
                self.drain(on);
            }
            idle &= !self.drain(on);
            if self.now < self.prober.next_wake() {
                return;
            }
            // Reports had filled their queue; with them taken there is more to do.
            assert!(!idle, "the loop would spin");
        }
    }

    fn deliver(&mut self, Arrival { slot, serial, .. }: Arrival) {
        let flight = &mut self.flights[slot as usize];
        if flight.serial != serial {
            // Cancelled meanwhile: another answer has taken its place.
            return;
        }
        let event = match flight.answer {
            Answer::Connected => Event::Connected,
            Answer::Failed { phase, errno } => Event::Failed { phase, errno },
            Answer::Closed => Event::Closed,
            Answer::Bytes { first, end } => {
                flight.had = end;
                Event::Received(&flight.response[first..end])
            }
            Answer::Discarded { first, end } => {
                flight.had = end;
                Event::Discarded { byte_count: (end - first) as u64 }
            }
        };
        self.prober.on_event(SlotIndex(slot), event, self.now);
    }

    fn carry_out(&mut self, command: Command) {
        let now = self.now;
        let slot = match command {
            Command::Start { slot, target } | Command::StartSecond { slot, target, .. } => {
                let index = target.0 as usize;
                let flight = &mut self.flights[slot.0 as usize];
                flight.start(&self.peers[index], self.reads[index], &mut self.random, now);
                slot
            }
            Command::Receive { slot } => {
                self.flights[slot.0 as usize].receive(now);
                slot
            }
            Command::Discard { slot } => {
                self.flights[slot.0 as usize].discard(now);
                slot
            }
            Command::Cancel { slot } => {
                if !self.flights[slot.0 as usize].cancel(now) {
                    return;
                }
                slot
            }
            Command::Close { slot } => {
                self.flights[slot.0 as usize].close(now);
                slot
            }
        };
        self.serial += 1;
        let flight = &mut self.flights[slot.0 as usize];
        flight.serial = self.serial;
        if flight.answer_ns < Nanos::MAX {
            let (at_ns, serial) = (flight.answer_ns, self.serial);
            self.arrivals.push(Reverse(Arrival { at_ns, serial, slot: slot.0 }));
        }
    }

    /// Takes reports and changes; says whether there were any.
    fn drain(&mut self, on: &mut impl FnMut(Traced)) -> bool {
        let at_ns = self.now;
        let mut any = false;
        while let Some(report) = self.prober.poll_report() {
            any = true;
            on(Traced { at_ns, what: Occurrence::Report(report) });
        }
        while let Some(change) = self.prober.poll_change() {
            any = true;
            on(Traced { at_ns, what: Occurrence::Change(change) });
        }
        any
    }
}

#[cfg(test)]
mod tests;
