//! What steering costs a packet, net of everything around it; beside it the same work done the
//! usual way, and the same program without the health test.
//!
//! Method: `ebpf/src/replay.rs` restores the packet, writes the next flow's address and port into it
//! and tail-calls the program that is measured, all by test-runs of 10,000 packets. The same with a
//! program that does nothing is the floor. Blocks of both take turns; the figure is the fastest of
//! the one less the fastest of the other, because a busy machine only ever adds. One flow alone
//! flatters every program that remembers flows, so each case is measured with 10,000 too, and those
//! that enter flows with more flows than the map holds.

/// The cases: what is sent, to which tables, and what must become of it.
mod cases;
/// The kernel programs that are measured, and their maps.
pub(crate) mod kernel;
/// The peer's own tables.
mod peer;
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
use replay::{REPLAYED_MAX, Replay, idle_interface};
use world::{Family, World, any_flows, frame};

const METHOD: &str = "ns a packet by test-run of sickbay_xdp (mode dsr, XDP_TX): the fastest of many \
                      blocks of 10,000 packets, less the fastest of a program that does nothing; \
                      real-time priority on one CPU; rotated = 10,000 flows, hot = one";
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
    let kernel = Kernel::load(table_slots(largest))?;
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
    floor: Replay,
    steering: Replay,
    untested: Replay,
    peer: Replay,
    insert: Replay,
    blocks: u32,
    /// Cases so far: none has flows of another one's.
    case_count: u32,
}

impl<'kernel> Bench<'kernel> {
    fn new(kernel: &'kernel Kernel, blocks: u32) -> Result<Self> {
        Ok(Self {
            kernel,
            floor: Replay::of_own(NOTHING, idle_interface(0)?)?,
            steering: Replay::of(&kernel.steering(), idle_interface(1)?)?,
            untested: Replay::of(&kernel.untested(), idle_interface(2)?)?,
            peer: Replay::of(&kernel.peer(), idle_interface(3)?)?,
            insert: Replay::of_own(INSERT, idle_interface(4)?)?,
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
        promise(&mut report);
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
                let replays = [&self.steering, &self.untested];
                let [with, without] = fastest(replays, 3 * self.blocks)?;
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
        let [floor, steering] = fastest([&self.floor, &self.steering], self.blocks)?;
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
        let [floor, insert] = fastest([&self.floor, &self.insert], self.blocks)?;
        Ok(insert - floor)
    }

    /// The peer's net time: all its backends are well, and all its flows entered.
    fn peer_ns(&mut self, way: Way, flows: u32) -> Result<f64> {
        // Every new connection is of a flow that has no entry yet.
        let flows = if way == Way::SynFirst { REPLAYED_MAX } else { flows };
        let flows = any_flows(flows);
        for replay in [&mut self.floor, &mut self.peer] {
            replay.take(Family::V4, &frame(Family::V4, way.packet(), flows[0]), &flows)?;
        }
        let [floor, peer] = fastest([&self.floor, &self.peer], self.blocks)?;
        Ok(peer - floor)
    }

    /// Gives each of these flows, whose slots are sick, an entry that lasts: a diverted SYN makes it,
    /// the first packet after it makes it last. A few at a time, which the map of SYNs can hold.
    fn enter(&mut self, family: Family, flows: &[u64]) -> Result<()> {
        for some in flows.chunks(1_000) {
            for packet in [world::Packet::Syn, world::Packet::Ack] {
                self.steering.take(family, &frame(family, packet, some[0]), some)?;
                self.steering.block_ns()?;
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
        for replay in [&mut self.floor, &mut self.steering, &mut self.untested, &mut self.insert] {
            replay.take(family, &frame, &flows)?;
        }
        ensure!(self.steering.run_once()? != 0, "the program gave up");
        if way == Way::EstablishedEntry {
            self.enter(family, &flows)?;
            self.steering.take(family, &frame, &flows)?;
        }
        if matches!(way, Way::SynAgain | Way::DatagramDiverted) {
            // The first packet of each flow makes its entry.
            self.steering.block_ns()?;
        }
        Ok(())
    }
}

/// ns a packet of each one's fastest block; their blocks take turns.
fn fastest<const COUNT: usize>(replays: [&Replay; COUNT], blocks: u32) -> Result<[f64; COUNT]> {
    let mut least = [f64::INFINITY; COUNT];
    for _ in 0..blocks {
        for (least, replay) in least.iter_mut().zip(replays) {
            *least = least.min(replay.block_ns()?);
        }
    }
    Ok(least)
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

/// What must hold on any machine: ratios, with room.
fn promise(report: &mut Report) {
    // What is slower, what is faster, and by how much at least. A flow alone is what repeats.
    const AT_LEAST: [(&str, &str, &str, f64); 5] = [
        ("ratio_usual_syn", "usual_syn_first_v4_ns", "syn_first_v4_ns", 2.0),
        ("ratio_usual_established", "usual_established_v4_ns", "established_v4_ns", 1.3),
        ("ratio_entry", "established_entry_v4_hot_ns", "established_v4_hot_ns", 0.8),
        ("ratio_diverted", "syn_diverted_v4_hot_ns", "syn_first_v4_hot_ns", 0.8),
        ("ratio_not_vip", "syn_first_v4_hot_ns", "not_vip_v4_hot_ns", 1.0),
    ];
    // What may not grow, against what, and by how much at most.
    const AT_MOST: [(&str, &str, &str, f64); 2] = [
        (
            "ratio_10000_backends",
            "syn_first_v4_of_10000_backends_hot_ns",
            "syn_first_v4_hot_ns",
            2.5,
        ),
        ("ratio_99_percent_sick", "syn_first_v4_at_99_percent_sick_ns", "syn_first_v4_ns", 3.0),
    ];
    let figure = |report: &Report, name: &str| {
        report.figures.get(name).and_then(serde_json::Value::as_f64).unwrap_or(f64::NAN)
    };
    let bounds = AT_LEAST.map(|bound| (bound, true)).into_iter();
    for ((name, above, below, limit), at_least) in bounds.chain(AT_MOST.map(|bound| (bound, false)))
    {
        let ratio = figure(report, above) / figure(report, below);
        report.figure(name, (ratio * 100.0).round() / 100.0);
        let holds = if at_least { limit <= ratio } else { ratio <= limit };
        report
            .promise(holds, || format!("{name}: {above} is {ratio:.2} times {below}, not {limit}"));
    }
    let (test, packet) =
        (figure(report, "health_test_ns_max"), figure(report, "syn_first_v4_hot_ns"));
    report.promise(test <= 0.3 * packet, || {
        format!("the health test takes {test:.1} ns of a packet's {packet:.1}")
    });
}
