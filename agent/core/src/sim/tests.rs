//! The prober in simulated worlds.

use std::borrow::Cow;

use super::*;
use crate::command::{Change, LocalFault, Outcome, Phase, Verdict};
use crate::hash::{identity, mix};
use crate::plan::{
    Compat, Family, JudgeSpec, OnUnknown, Pace, ProbeIndex, ProbeSpec, Room, Rule, TargetSpec,
};
use crate::text::Bits;

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MS;
const START: Nanos = 1_000_000 * SECOND;
const HTTP: ProbeKind = ProbeKind::http(200);

/// Targets with one judge each.
fn plan(target_count: u32, rule: Rule, initial: u8, probe: ProbeSpec, slot_count: u32) -> Plan {
    let target = |index: u32| TargetSpec {
        identity: identity(&index.to_be_bytes(), 80, b""),
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        second: None,
        initial,
    };
    let judge = |index| JudgeSpec { target: TargetIndex(index), rule, on_unknown: OnUnknown::Keep };
    Plan {
        probes: vec![probe],
        targets: (0..target_count).map(target).collect(),
        judges: (0..target_count).map(judge).collect(),
        slot_count,
        phase_seed: 7,
        past: Vec::new(),
        room: Room::NONE,
    }
}

const fn window(window: u8, threshold: u8) -> Rule {
    Rule::Window { window, threshold }
}

const fn http(interval_ns: Nanos, timeout_ns: Nanos) -> ProbeSpec {
    ProbeSpec { interval_ns, timeout_ns, kind: HTTP, pace: Pace::STEADY, compat: Compat::Off }
}

const fn answers(bytes: &'static [u8]) -> Peer {
    Peer::new(Behaviour::Answers(Cow::Borrowed(bytes)))
}

/// Starts by target, reports and changes of a run.
#[derive(Default)]
struct Log {
    starts: Vec<(Nanos, TargetIndex)>,
    reports: Vec<Report>,
    changes: Vec<(Nanos, Change)>,
}

impl Log {
    fn run(sim: &mut Sim, until_ns: Nanos) -> Self {
        let mut log = Self::default();
        sim.run_until(until_ns, &mut |traced| match traced.what {
            Occurrence::Command(Command::Start { target, .. }) => {
                log.starts.push((traced.at_ns, target));
            }
            Occurrence::Command(_) => {}
            Occurrence::Report(report) => log.reports.push(report),
            Occurrence::Change(change) => log.changes.push((traced.at_ns, change)),
        });
        log
    }

    fn run_for(sim: &mut Sim, span_ns: Nanos) -> Self {
        let until_ns = sim.now() + span_ns;
        Self::run(sim, until_ns)
    }

    fn starts_of(&self, target: u32) -> Vec<Nanos> {
        let of = self.starts.iter().filter(|(_, started)| started.0 == target);
        of.map(|&(at_ns, _)| at_ns).collect()
    }
}

mod bounds;
mod compat;
mod members;
mod rules;
mod varnish;
