//! What the core itself costs a probe: 10,000 targets for 30 virtual seconds on the simulator.
//!
//! Method: every peer answers after a virtual moment; the time is the process's user time, so the
//! simulator's own queue of answers is in it, and the figure is an upper bound of the core's cost.
//! No socket and no ring: the network stack's price is not in it.

use nix::sys::resource::{UsageWho, getrusage};
use sickbay_core::hash;
use sickbay_core::plan::{
    Compat, Family, JudgeSpec, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind, ProbeSpec, Room, Rule,
    TargetIndex, TargetSpec,
};
use sickbay_core::sim::{Occurrence, Sim};

use crate::report::Report;

const METHOD: &str = "30 virtual seconds on the simulator; user time of the process, simulator \
                      included; no socket, no ring";
const TARGETS: u32 = 10_000;
const INTERVAL_NS: u64 = 1_000_000_000;
const RUN_NS: u64 = 30 * INTERVAL_NS;

/// Runs the workload.
pub(crate) fn run() -> Report {
    let mut sim = Sim::new(&plan(), 1, 0);
    let mut probes: u64 = 0;
    let started_ns = user_ns();
    sim.run_until(RUN_NS, &mut |traced| {
        probes += u64::from(matches!(traced.what, Occurrence::Report(_)));
    });
    let per_probe_ns = (user_ns() - started_ns) / probes.max(1);
    let mut report = Report::new("prober", METHOD);
    report.titles = vec!["targets", "probes", "user ns a probe"];
    report.rows = vec![vec![TARGETS.to_string(), probes.to_string(), per_probe_ns.to_string()]];
    report.figure("probes", probes);
    let scheduled = u64::from(TARGETS) * (RUN_NS / INTERVAL_NS - 1);
    report.promise(scheduled <= probes, || format!("{probes} probes of {scheduled} at least"));
    report.figure("user_ns_per_probe", per_probe_ns);
    report
}

fn plan() -> Plan {
    let target = |index: u32| TargetSpec {
        identity: hash::identity(&index.to_be_bytes(), 80, b""),
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        second: None,
        initial: 2,
    };
    let judge = |index| JudgeSpec {
        target: TargetIndex(index),
        rule: Rule::Window { window: 8, threshold: 3 },
        on_unknown: OnUnknown::Keep,
    };
    Plan {
        probes: vec![ProbeSpec {
            interval_ns: INTERVAL_NS,
            timeout_ns: INTERVAL_NS / 2,
            kind: ProbeKind::http(200),
            pace: Pace::STEADY,
            compat: Compat::Off,
        }],
        targets: (0..TARGETS).map(target).collect(),
        judges: (0..TARGETS).map(judge).collect(),
        slot_count: 1024,
        phase_seed: 1,
        past: Vec::new(),
        room: Room::NONE,
    }
}

fn user_ns() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("every process may ask for its own usage");
    let time = usage.user_time();
    let seconds = u64::try_from(time.tv_sec()).expect("used time is not negative");
    let micros = u64::try_from(time.tv_usec()).expect("used time is not negative");
    seconds * 1_000_000_000 + micros * 1_000
}
