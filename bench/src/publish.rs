//! From a verdict to the first packet steered by it, on another CPU.
//!
//! Method: on one CPU the steering program itself runs without a pause, by test-run, on SYNs of one
//! flow to a pool of two; before each run `ebpf/src/replay.rs` looks whom the packet of the run
//! before was sent to, and stamps a change. On the other CPU the flow's own backend turns sick and
//! well again, by what the agent's board does: one atomic and/or. The figure is from just before that
//! to the stamp, so it has in it the store's way to the other CPU, what was left of the packet in
//! hand, and the whole of the first packet that went the other way. Entries are not written, so that
//! the flow goes back as well. Beside it the same bit by bpf_map_update_elem, and what a balancer
//! without such a bit does: its table written anew by BPF_MAP_UPDATE_BATCH.

use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{Map, MapCore as _, MapFlags, Object, ProgramInput};
use sickbay::board::Mapped;
use sickbay_lab::clock::monotonic_ns;
use sickbay_lab::meter::{self, occupy, two_cpus};
use sickbay_shared::abi::{self, BackendRef, Slot};
use sickbay_shared::pod::Pod as _;

use crate::report::Report;
use crate::steer::kernel::{Kernel, map, program};
use crate::steer::replay::Replay;
use crate::steer::world::{Family, Packet, Slots, World, frame, mac_end};

const METHOD: &str = "from just before a verdict is stored to the moment when the first packet that \
                      sickbay_xdp steers by it has been steered, on another CPU; the program runs \
                      without a pause on SYNs of one flow; the packet's own time is in it";
/// The words of `WITNESSED`, as in the kernel object's `replay.rs`.
const SEEN: u32 = 0;
/// See [`SEEN`].
const SEEN_NS: u32 = 8;
/// See [`SEEN`].
const STOP: u32 = 16;
const WORDS: u32 = 32;
/// Slots of the peer's table, and of ours here.
const TABLE_SLOTS: u32 = 65_521;
/// Runs of one test-run: more than are ever needed, since they end at once when told.
const RUNS_MAX: u32 = 1 << 30;
/// A change has been seen within this, or nobody looks.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the workload.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let seen_by_meter = meter::measure()?;
    let kernel = Kernel::load(TABLE_SLOTS, 1)?;
    let world = World::of_slots(&kernel, 2, TABLE_SLOTS)?;
    world.limit_inserts(0)?;
    let flow = world.flows(Family::V4, Packet::Syn, Slots::HalfWay, 1, 0)?;
    let witness = Witness::new(&kernel)?;
    let stage = Stage { kernel: &kernel, world: &world, witness: &witness, flow: flow[0] };
    let found = stage.run(if quick { 4_000 } else { 40_000 }, if quick { 20 } else { 200 })?;
    let mut report = Report::new("publish", METHOD);
    report.titles = vec!["verdict by", "samples", "p50 ns", "p99 ns", "p99.9 ns"];
    let [bit, call, batch, batch_whole] = found;
    line(&mut report, "one atomic in mapped memory (sickbay)", "publish", bit);
    line(&mut report, "bpf_map_update_elem of the same word", "update", call);
    line(&mut report, "65,521 slots by update_batch, a flow half way", "batch", batch);
    line(&mut report, "the same, the whole call", "batch_call", batch_whole);
    report.notes.push(format!(
        "store alone, seen by a program that only looks: p50 {} ns, p99 {} ns",
        seen_by_meter.p50, seen_by_meter.p99
    ));
    report.figure("store_seen_p50_ns", seen_by_meter.p50);
    report.figure("store_seen_p99_ns", seen_by_meter.p99);
    let ratio = |peer: &str| {
        let figure = |name: &str| report.figures.get(name).and_then(serde_json::Value::as_f64);
        Some(figure(&format!("{peer}_p50_ns"))? / figure("publish_p50_ns")?)
    };
    let (by_call, by_batch) =
        (ratio("update").context("a figure")?, ratio("batch").context("a figure")?);
    report.figure("ratio_update", by_call);
    report.figure("ratio_batch", by_batch);
    report.promise(1.2 <= by_call, || format!("a system call takes {by_call:.2} times as long"));
    report.promise(100.0 <= by_batch, || format!("a batch takes {by_batch:.0} times as long"));
    Ok(report)
}

fn line(report: &mut Report, title: &str, name: &str, mut samples: Vec<u64>) {
    samples.sort_unstable();
    let rank = |per_mille: usize| {
        let rank = (samples.len() * per_mille).div_ceil(1_000);
        samples.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    };
    let ranks = [("p50", rank(500)), ("p99", rank(990)), ("p999", rank(999))];
    let mut cells = vec![title.to_owned(), samples.len().to_string()];
    for (rank, ns) in ranks {
        report.figure(format!("{name}_{rank}_ns"), ns);
        cells.push(ns.to_string());
    }
    report.rows.push(cells);
}

/// The program that looks whom the measured program sent its last packet to.
struct Witness {
    object: Object,
    words: Mapped<u64>,
}

impl Witness {
    fn new(kernel: &Kernel) -> Result<Self> {
        let object = Replay::object()?;
        kernel.steering()?.put(&object, 0)?;
        let words = Mapped::of_map(map(&object, "WITNESSED").as_fd(), WORDS)?;
        Ok(Self { object, words })
    }

    fn word(&self, index: u32) -> u64 {
        self.words.word(index).expect("a word of 32").load(Ordering::Acquire)
    }

    /// Runs packets through the program until told to stop.
    fn run(&self, frame: &[u8]) -> Result<()> {
        let input =
            ProgramInput { data_in: Some(frame), repeat: RUNS_MAX, ..ProgramInput::default() };
        program(&self.object, "sickbay_witness").test_run(input)?;
        Ok(())
    }

    fn stop(&self) {
        self.words.word(STOP).expect("a word of 32").store(1, Ordering::Release);
    }

    /// Waits until packets go to a backend; when the first was seen.
    fn wait_for(&self, backend: u32) -> Result<u64> {
        let start = Instant::now();
        while self.word(SEEN) != mac_end(backend) {
            ensure!(start.elapsed() < PATIENCE, "no packet is steered by the new verdict");
            std::hint::spin_loop();
        }
        Ok(self.word(SEEN_NS))
    }
}

struct Stage<'all> {
    kernel: &'all Kernel,
    world: &'all World<'all>,
    witness: &'all Witness,
    flow: u64,
}

impl Stage<'_> {
    /// From verdict to packet: by the bit, by a system call, by a batch; and what a batch takes.
    fn run(&self, samples: usize, batches: usize) -> Result<[Vec<u64>; 4]> {
        let (writer_cpu, reader_cpu) = two_cpus()?;
        let frame = frame(Family::V4, Packet::Syn, self.flow);
        thread::scope(|scope| {
            let running = scope.spawn(|| -> Result<()> {
                occupy(reader_cpu)?;
                self.witness.run(&frame)
            });
            let writing = scope.spawn(|| -> Result<[Vec<u64>; 4]> {
                occupy(writer_cpu)?;
                let found = self.write(samples, batches);
                self.witness.stop();
                found
            });
            let found = writing.join().expect("the writer does not panic");
            running.join().expect("the runner does not panic").context("the test-run")?;
            found
        })
    }

    fn write(&self, samples: usize, batches: usize) -> Result<[Vec<u64>; 4]> {
        let own = self.world.current_of(Family::V4, Packet::Syn, self.flow);
        let other = 1 - own;
        // The first ones only show that the program runs.
        self.verdicts(samples / 10, own, |well| self.bit(own, well))?;
        let bit = self.verdicts(samples, own, |well| self.bit(own, well))?;
        let words = self.kernel.map(abi::TAKES_NEW);
        let call = self.verdicts(samples, own, |well| {
            let word: u64 = if well { 3 } else { 1 << other };
            Ok(words.update(&0_u32.to_ne_bytes(), word.as_bytes(), MapFlags::ANY)?)
        })?;
        let tables = [table(own), table(other)];
        let slots = self.kernel.map(abi::SLOTS);
        let mut whole = Vec::with_capacity(batches);
        let batch = self.verdicts(batches, own, |well| {
            let start = Instant::now();
            tables[usize::from(!well)].put(&slots)?;
            whole.push(u64::try_from(start.elapsed().as_nanos())?);
            Ok(())
        })?;
        Ok([bit, call, batch, whole])
    }

    fn bit(&self, backend: u32, well: bool) -> Result<()> {
        self.kernel.board().set_takes_new(backend, 0, well);
        Ok(())
    }

    /// Sends the flow away from `own` and back again, as often as that, each by a verdict.
    fn verdicts(
        &self,
        count: usize,
        own: u32,
        mut tell: impl FnMut(bool) -> Result<()>,
    ) -> Result<Vec<u64>> {
        let mut samples = Vec::with_capacity(count);
        self.witness.wait_for(own)?;
        for number in 0..count.next_multiple_of(2) {
            let start = Instant::now();
            // Uneven pauses, so that verdicts do not fall in step with the packets.
            while start.elapsed() < Duration::from_nanos(5_000 + (number % 97) as u64 * 131) {
                std::hint::spin_loop();
            }
            let well = number % 2 == 1;
            let told_ns = monotonic_ns();
            tell(well)?;
            let seen_ns = self.witness.wait_for(if well { own } else { 1 - own })?;
            samples.push(seen_ns.saturating_sub(told_ns));
        }
        Ok(samples)
    }
}

/// Every slot one backend's, as keys and values of a batch.
struct Table {
    keys: Vec<u8>,
    values: Vec<u8>,
}

fn table(backend: u32) -> Table {
    let slot = Slot::settled(BackendRef::new(backend, 1));
    Table {
        keys: (0..TABLE_SLOTS).flat_map(u32::to_ne_bytes).collect(),
        values: slot.as_bytes().repeat(TABLE_SLOTS as usize),
    }
}

impl Table {
    fn put(&self, map: &Map<'_>) -> Result<()> {
        map.update_batch(&self.keys, &self.values, TABLE_SLOTS, MapFlags::ANY, MapFlags::ANY)?;
        Ok(())
    }
}
