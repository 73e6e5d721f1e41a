//! What steering costs a packet, net of everything around it; beside it the same work done the
//! usual way, and the same program without the health test.
//!
//! Method: `ebpf/src/replay.rs` restores the packet, writes the next flow's address and port into it
//! and tail-calls the program that is measured, all by test-runs of 10,000 packets. The same with a
//! program that does nothing is the floor. Blocks of both take turns; the figure is the fastest of
//! the one less the fastest of the other, because a busy machine only ever adds. Where the kernel puts
//! a program's code adds too, so the steering program is loaded four times, and its blocks go round.
//! One flow alone flatters every program that remembers flows, so each case is measured with 10,000
//! too, and those that enter flows with more flows than the map holds.

/// The cases: what is sent, to which tables, and what must become of it.
mod cases;
/// The kernel programs that are measured, and their maps.
pub(crate) mod kernel;
/// The peer's own tables.
mod peer;
/// What must hold on any machine.
mod promises;
/// Runs of a program, each with the next flow's packet.
pub(crate) mod replay;
/// A pool, so many of it sick, and flows to it.
pub(crate) mod world;

use std::thread;

use anyhow::{Context as _, Result, ensure};
use sickbay_lab::meter::{occupy, two_cpus};
use sickbay_lab::namespace::Namespace;

use crate::report::Report;
use cases::{Case, Way};
use kernel::{INSERT, Kernel, NOTHING};
use replay::{Measured, REPLAYED_MAX, Replay, idle_interface};
use world::{Family, World, any_flows, frame};

const METHOD: &str = "ns a packet by test-run of sickbay_xdp (mode dsr, XDP_TX): the fastest of many \
                      blocks of 10,000 packets, less the fastest of a program that does nothing; \
                      real-time priority on one CPU; rotated = 10,000 flows, hot = one";
/// Times that what is compared is loaded.
const LOADS: usize = 4;
/// Flows that take turns, when not one.
const ROTATED: u32 = 10_000;
/// Backends of a pool, where another number is not the point.
const BACKENDS: u32 = 1_000;
/// Sick backends of a hundred, likewise.
const SICK_PERCENT: u32 = 10;
const SICK_PERCENTS: [u32; 6] = [0, 1, 10, 50, 90, 99];
const SIZES: [u32; 5] = [10, 100, 1_000, 10_000, 65_536];

/// Runs the workload.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let first = measure_apart(quick)?;
    if first.broken.is_empty() {
        return Ok(first);
    }
    // A spell in which the machine was busy elsewhere spoils one of two; a regression spoils both.
    let mut second = measure_apart(quick)?;
    second.notes.push(format!("measured anew, since at first: {}", first.broken.join("; ")));
    Ok(second)
}

fn measure_apart(quick: bool) -> Result<Report> {
    let namespace = Namespace::new("steer")?;
    // On a thread of its own, which is held to one CPU: this one is not.
    let measuring = thread::spawn(move || {
        namespace.enter();
        measure(quick)
    });
    measuring.join().expect("what measures does not panic")
}

fn measure(quick: bool) -> Result<Report> {
    let (cpu, _) = two_cpus()?;
    let sizes: &[u32] = if quick { &[10, 10_000] } else { &SIZES };
    let largest = sizes.iter().copied().max().context("a size")?;
    let kernel = Kernel::load(table_slots(largest), LOADS)?;
    peer::put_tables(&kernel)?;
    let mut bench = Bench::new(&kernel, if quick { 30 } else { 150 })?;
    occupy(cpu)?;
    bench.all(sizes, quick)
}

/// Slots of the table of a pool of so many.
fn table_slots(backends: u32) -> u32 {
    use sickbay_core::maglev::{Member, table_size};
    let member = |identity| Member { identity, weight: 1 };
    table_size(&(0..u64::from(backends)).map(member).collect::<Vec<_>>()).slot_count
}

struct Bench<'kernel> {
    kernel: &'kernel Kernel,
    replay: Replay,
    floor: Measured,
    steering: Measured,
    untested: Measured,
    peer: Measured,
    insert: Measured,
    blocks: u32,
    /// Cases so far: none has flows of another one's.
    case_count: u32,
}

impl<'kernel> Bench<'kernel> {
    fn new(kernel: &'kernel Kernel, blocks: u32) -> Result<Self> {
        let replay = Replay::new(idle_interface()?)?;
        Ok(Self {
            kernel,
            floor: replay.own(NOTHING)?,
            steering: kernel.steering()?,
            untested: kernel.untested()?,
            peer: kernel.peer()?,
            insert: replay.own(INSERT)?,
            replay,
            blocks,
            case_count: 0,
        })
    }

    /// Everything, and what must hold of it.
    fn all(&mut self, sizes: &[u32], quick: bool) -> Result<Report> {
        let mut report = Report::new("steer", METHOD);
        report.titles =
            vec!["path", "backends", "sick", "v4", "v4 hot", "v6", "v6 hot", "usual v4"];
        self.paths(&mut report)?;
        self.shares(&mut report, quick)?;
        self.sizes(&mut report, sizes)?;
        self.health_test(&mut report)?;
        promises::hold(&mut report);
        Ok(report)
    }

    /// Every path, with as many sick backends as are not the point.
    fn paths(&mut self, report: &mut Report) -> Result<()> {
        const WAYS: [Way; 9] = [
            Way::NotService,
            Way::SynFirst,
            Way::SynDiverted,
            Way::SynDivertedNew,
            Way::SynAgain,
            Way::Established,
            Way::EstablishedEntry,
            Way::Datagram,
            Way::DatagramDiverted,
        ];
        let mut world = World::new(self.kernel, BACKENDS)?;
        world.make_sick(SICK_PERCENT);
        for way in WAYS {
            self.path(report, &mut world, way, SICK_PERCENT)?;
        }
        world.make_sick(100);
        self.path(report, &mut world, Way::Dropped, 100)
    }

    fn path(
        &mut self,
        report: &mut Report,
        world: &mut World<'_>,
        way: Way,
        sick_percent: u32,
    ) -> Result<()> {
        let case = |family, flows| Case { way, family, backends: BACKENDS, sick_percent, flows };
        let rotated = if way == Way::SynDivertedNew { REPLAYED_MAX } else { ROTATED };
        let mut cells =
            vec![way.title().to_owned(), BACKENDS.to_string(), format!("{sick_percent} %")];
        for (family, name) in [(Family::V4, "v4"), (Family::V6, "v6")] {
            let net = self.steering_ns(world, case(family, rotated))?;
            report.figure(format!("{}_{name}_ns", way.name()), rounded(net));
            cells.push(shown(net));
            if way == Way::SynDivertedNew {
                cells.push("-".into());
                continue;
            }
            let net = self.steering_ns(world, case(family, 1))?;
            report.figure(format!("{}_{name}_hot_ns", way.name()), rounded(net));
            cells.push(shown(net));
        }
        cells.push(match way {
            Way::SynFirst | Way::Established | Way::NotService => {
                let net = self.peer_ns(way, rotated)?;
                report.figure(format!("usual_{}_v4_ns", way.name()), rounded(net));
                shown(net)
            }
            Way::SynDivertedNew => {
                let net = self.insert_ns(world, case(Family::V4, rotated))?;
                report.figure("map_insert_ns", rounded(net));
                format!("insert {}", shown(net))
            }
            _ => "-".into(),
        });
        report.rows.push(cells);
        Ok(())
    }

    /// More and more of the pool sick.
    fn shares(&mut self, report: &mut Report, quick: bool) -> Result<()> {
        let mut world = World::new(self.kernel, BACKENDS)?;
        let percents: &[u32] = if quick { &[0, 50, 99] } else { &SICK_PERCENTS };
        for &sick_percent in percents {
            world.make_sick(sick_percent);
            for way in [Way::SynFirst, Way::Established, Way::SynDiverted] {
                if sick_percent == 0 && way == Way::SynDiverted {
                    continue;
                }
                let case = |flows| Case {
                    way,
                    family: Family::V4,
                    backends: BACKENDS,
                    sick_percent,
                    flows,
                };
                let net = self.steering_ns(&mut world, case(ROTATED))?;
                let name = format!("{}_v4_at_{sick_percent}_percent_sick_ns", way.name());
                report.figure(name, rounded(net));
                report.rows.push(line(&case(ROTATED), shown(net), "-".into()));
            }
        }
        Ok(())
    }

    /// Larger and larger pools.
    fn sizes(&mut self, report: &mut Report, sizes: &[u32]) -> Result<()> {
        for &backends in sizes {
            let mut world = World::new(self.kernel, backends)?;
            world.make_sick(SICK_PERCENT);
            for way in [Way::SynFirst, Way::SynDiverted, Way::EstablishedEntry] {
                let case = |flows| Case {
                    way,
                    family: Family::V4,
                    backends,
                    sick_percent: SICK_PERCENT,
                    flows,
                };
                let rotated = self.steering_ns(&mut world, case(ROTATED))?;
                let hot = self.steering_ns(&mut world, case(1))?;
                for (suffix, net) in [("", rotated), ("_hot", hot)] {
                    let name = format!("{}_v4_of_{backends}_backends{suffix}_ns", way.name());
                    report.figure(name, rounded(net));
                }
                report.rows.push(line(&case(ROTATED), shown(rotated), shown(hot)));
            }
        }
        Ok(())
    }

    /// The same program without the health test, in turns with the real one.
    fn health_test(&mut self, report: &mut Report) -> Result<()> {
        let mut world = World::new(self.kernel, BACKENDS)?;
        world.make_sick(0);
        let mut worst: f64 = 0.0;
        for way in [Way::SynFirst, Way::Established] {
            for flows in [ROTATED, 1] {
                let case =
                    Case { way, family: Family::V4, backends: BACKENDS, sick_percent: 0, flows };
                self.prepare(&mut world, &case)?;
                let measured = [&self.steering, &self.untested];
                let [with, without] = self.fastest(measured, 3 * self.blocks)?;
                let name = if flows == 1 { "_hot" } else { "" };
                report.figure(
                    format!("health_test_{}{name}_ns", way.name()),
                    rounded(with - without),
                );
                report.notes.push(format!(
                    "the health test costs {:.1} ns of {}{}",
                    with - without,
                    way.title(),
                    if flows == 1 { ", hot" } else { "" },
                ));
                worst = worst.max(with - without);
            }
        }
        report.figure("health_test_ns_max", rounded(worst));
        Ok(())
    }

    /// The case's net time in the steering program.
    fn steering_ns(&mut self, world: &mut World<'_>, case: Case) -> Result<f64> {
        self.prepare(world, &case)?;
        let before = world.counters()?;
        let [floor, steering] = self.fastest([&self.floor, &self.steering], self.blocks)?;
        let went = case.way.went(&world.counters()?) - case.way.went(&before);
        let sent = u64::from(self.blocks) * 10_000;
        let right = went * 100 / sent;
        ensure!(
            case.way == Way::NotService || 99 <= right,
            "only {right} of 100 packets went the way of {case:?}"
        );
        Ok(steering - floor)
    }

    fn insert_ns(&mut self, world: &mut World<'_>, case: Case) -> Result<f64> {
        self.prepare(world, &case)?;
        let [floor, insert] = self.fastest([&self.floor, &self.insert], self.blocks)?;
        Ok(insert - floor)
    }

    /// The peer's net time: all its backends are well, and all its flows entered.
    fn peer_ns(&mut self, way: Way, flows: u32) -> Result<f64> {
        // Every new connection is of a flow that has no entry yet.
        let flows = if way == Way::SynFirst { REPLAYED_MAX } else { flows };
        let flows = any_flows(flows);
        self.replay.take(Family::V4, &frame(Family::V4, way.packet(), flows[0]), &flows)?;
        let [floor, peer] = self.fastest([&self.floor, &self.peer], self.blocks)?;
        Ok(peer - floor)
    }

    /// Gives each of these flows, whose slots are sick, an entry that lasts: a diverted SYN makes it,
    /// the first packet after it makes it last. A few at a time, which the map of SYNs can hold.
    fn enter(&mut self, family: Family, flows: &[u64]) -> Result<()> {
        for some in flows.chunks(1_000) {
            for packet in [world::Packet::Syn, world::Packet::Ack] {
                self.replay.take(family, &frame(family, packet, some[0]), some)?;
                self.replay.block_ns(&self.steering, 0)?;
            }
        }
        Ok(())
    }

    /// Makes tables and flows what the case wants them to be.
    fn prepare(&mut self, world: &mut World<'_>, case: &Case) -> Result<()> {
        let Case { way, family, flows, .. } = *case;
        self.case_count += 1;
        let flows = world.flows(family, way.packet(), way.slots(), flows, self.case_count)?;
        world.limit_inserts(if way == Way::SynDiverted { 0 } else { u32::MAX })?;
        // While nobody is sick, nobody looks among the embryonic entries; else everybody does.
        world.pretend_embryonic(0 < case.sick_percent)?;
        let frame = frame(family, way.packet(), flows[0]);
        self.replay.take(family, &frame, &flows)?;
        ensure!(self.replay.run_once(&self.steering)? != 0, "the program gave up");
        if way == Way::EstablishedEntry {
            self.enter(family, &flows)?;
            self.replay.take(family, &frame, &flows)?;
        }
        if matches!(way, Way::SynAgain | Way::DatagramDiverted) {
            // The first packet of each flow makes its entry.
            self.replay.block_ns(&self.steering, 0)?;
        }
        Ok(())
    }

    /// ns a packet of each one's fastest block; their blocks take turns, and so do the times that a
    /// program was loaded.
    fn fastest<const COUNT: usize>(
        &self,
        measured: [&Measured; COUNT],
        blocks: u32,
    ) -> Result<[f64; COUNT]> {
        let mut least = [f64::INFINITY; COUNT];
        for turn in 0..blocks {
            for (least, measured) in least.iter_mut().zip(measured) {
                *least = least.min(self.replay.block_ns(measured, turn)?);
            }
        }
        Ok(least)
    }
}

fn line(case: &Case, rotated: String, hot: String) -> Vec<String> {
    let none = || "-".to_owned();
    let (backends, sick) = (case.backends.to_string(), format!("{} %", case.sick_percent));
    vec![case.way.title().into(), backends, sick, rotated, hot, none(), none(), none()]
}

fn shown(ns: f64) -> String {
    format!("{ns:.1}")
}

fn rounded(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}
