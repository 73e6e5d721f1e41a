//! The prober driven by hand, event by event.

use super::*;
use crate::command::{ChangeCause, Malformed};
use crate::plan::{Compat, Family, JudgeSpec, OnUnknown, Pace, ProbeIndex, Room, Rule, TargetSpec};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MS;
/// Where the virtual clock of these tests starts.
const START: Nanos = 1000 * SECOND;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ECANCELED: i32 = 125;
const ECONNREFUSED: i32 = 111;

const HTTP: ProbeKind = ProbeKind::http(200);

/// Targets with one judge each (2 of 3, nothing assumed), an interval of 1 s, a timeout of 200 ms.
fn plan(target_count: u32, slot_count: u32, kind: ProbeKind) -> Plan {
    let rule = Rule::Window { window: 3, threshold: 2 };
    let target = |index| TargetSpec {
        identity: u128::from(index),
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        second: None,
        initial: 0,
    };
    let judge = |index| JudgeSpec { target: TargetIndex(index), rule, on_unknown: OnUnknown::Keep };
    Plan {
        probes: vec![ProbeSpec {
            interval_ns: SECOND,
            timeout_ns: 200 * MS,
            kind,
            pace: Pace::STEADY,
            compat: Compat::Off,
        }],
        targets: (0..target_count).map(target).collect(),
        judges: (0..target_count).map(judge).collect(),
        slot_count,
        phase_seed: 1,
        past: Vec::new(),
        room: Room::NONE,
    }
}

/// A prober with a clock and what it said.
struct Bench {
    prober: Prober,
    now: Nanos,
}

impl Bench {
    fn new(plan: &Plan) -> Self {
        Self { prober: Prober::new(plan, START), now: START }
    }

    fn poll(&mut self) -> Option<Command> {
        self.prober.poll_command(self.now)
    }

    /// Moves on to the next command and takes it.
    #[track_caller]
    fn next(&mut self) -> Command {
        for _ in 0..1000 {
            if let Some(command) = self.poll() {
                return command;
            }
            self.now = self.prober.next_wake();
        }
        panic!("no command comes");
    }

    /// Moves on to the next start and takes it.
    #[track_caller]
    fn start(&mut self) -> SlotIndex {
        match self.next() {
            Command::Start { slot, .. } => slot,
            other => panic!("{other:?} is no start"),
        }
    }

    fn event(&mut self, slot: SlotIndex, event: Event<'_>) {
        self.prober.on_event(slot, event, self.now);
    }

    fn failed(&mut self, slot: SlotIndex, phase: Phase, errno: i32) {
        self.event(slot, Event::Failed { phase, errno });
    }

    /// The one report there must be.
    #[track_caller]
    fn report(&mut self) -> Report {
        let report = self.prober.poll_report().expect("a report");
        assert_eq!(self.prober.poll_report(), None);
        report
    }

    /// Takes the close and answers it.
    #[track_caller]
    fn close(&mut self, slot: SlotIndex) {
        assert_eq!(self.poll(), Some(Command::Close { slot }));
        self.event(slot, Event::Closed);
    }

    /// One whole probe that ends so at once.
    #[track_caller]
    fn probe(&mut self, event: Event<'_>) -> Report {
        let slot = self.start();
        self.event(slot, event);
        let report = self.report();
        self.close(slot);
        report
    }

    fn history(&self) -> &History {
        self.prober.history(TargetIndex(0))
    }

    fn verdict(&self) -> Verdict {
        self.prober.verdict(JudgeIndex(0))
    }

    fn changes(&mut self) -> Vec<Change> {
        std::iter::from_fn(|| self.prober.poll_change()).collect()
    }
}

mod compat;
mod judging;
mod members;
mod pace;
mod past;
mod probing;
mod room;
