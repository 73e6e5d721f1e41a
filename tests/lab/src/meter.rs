//! From a store into map memory to a program on another CPU: how long.
//!
//! The kernel object `meter.bpf.o` spins, under BPF_PROG_TEST_RUN on one CPU, until a word of a
//! mapped array changes, and stamps what the kernel's clock says then. Here, on another CPU, the
//! word is changed the way the agent changes a verdict bit: one store, stamped just before it.
#![expect(unsafe_code, reason = "map memory is mapped, and shared with a kernel program")]

use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use aya::maps::{Map, MapData};
use aya::programs::{TestRun as _, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::mman::{MapFlags, ProtFlags, mmap, munmap};
use nix::unistd::Pid;

use crate::private::target_directory;

/// Samples of one measurement.
pub const SAMPLE_COUNT: usize = 2000;

/// The program's name in the object.
const PROGRAM: &str = "sickbay_meter";
/// The word that is stored; this and the next three as in the kernel object's `meter.rs`.
const STORED: usize = 0;
const SEEN: usize = 8;
const SEEN_NS: usize = 16;
const STOP: usize = 24;
const WORD_COUNT: usize = 32;
/// Runs of one test-run: more than are ever needed, since the program ends them at once when told.
const RUNS_MAX: u32 = 2_000_000;
/// A spinning program has seen a store within this, or it does not spin.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least that a test-run takes as an Ethernet frame.
const FRAME: [u8; 64] = [0; 64];

/// A distribution in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentiles {
    /// Half of the samples are at most this.
    pub p50: u64,
    /// 99 of 100 are.
    pub p99: u64,
    /// How many samples there are.
    pub count: usize,
}

impl Percentiles {
    /// From samples in any order, by the nearest rank; `None` without any.
    #[must_use]
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let rank = |percent: usize| {
            let rank = (samples.len() * percent).div_ceil(100);
            samples.get(rank.saturating_sub(1)).copied()
        };
        Some(Self { p50: rank(50)?, p99: rank(99)?, count: samples.len() })
    }
}

/// Measures [`SAMPLE_COUNT`] stores.
///
/// # Errors
/// When there are not two CPUs, the object is not built, or the kernel refuses it.
pub fn measure() -> Result<Percentiles> {
    let (writer_cpu, reader_cpu) = two_cpus()?;
    let mut object = load(&target_directory()?.join("bpf/meter.bpf.o"))?;
    let program: &mut Xdp = object.program_mut(PROGRAM).context("no such program")?.try_into()?;
    program.load().context("the kernel refuses the meter")?;
    // Only now: a program is loaded with the descriptors of its maps.
    let memory = MeterMemory::new(&mut object)?;
    let program: &Xdp = object.program(PROGRAM).context("no such program")?.try_into()?;
    let samples = thread::scope(|scope| {
        let spinning = scope.spawn(move || -> Result<()> {
            occupy(reader_cpu)?;
            let options =
                TestRunOptions { data_in: Some(&FRAME), repeat: RUNS_MAX, ..Default::default() };
            program.test_run(options)?;
            Ok(())
        });
        let samples = scope.spawn(|| -> Result<Vec<u64>> {
            occupy(writer_cpu)?;
            let samples = store_and_wait(&memory);
            memory.word(STOP).store(1, Ordering::Relaxed);
            samples
        });
        let samples = samples.join().expect("the writer does not panic");
        spinning.join().expect("the reader does not panic").context("the meter's test-run")?;
        samples
    })?;
    Percentiles::of(samples).context("no sample")
}

fn store_and_wait(memory: &MeterMemory) -> Result<Vec<u64>> {
    let mut samples = Vec::with_capacity(SAMPLE_COUNT);
    // The first ones only show that the program spins.
    let warm_up_count = SAMPLE_COUNT / 10;
    for value in 1..=SAMPLE_COUNT + warm_up_count {
        let start = Instant::now();
        // Uneven pauses, so that samples do not fall in step with the program's runs.
        while start.elapsed() < Duration::from_micros(5 + (value % 7) as u64 * 3) {
            std::hint::spin_loop();
        }
        let stored_ns = crate::clock::monotonic_ns();
        memory.word(STORED).store(value as u64, Ordering::Release);
        while memory.word(SEEN).load(Ordering::Acquire) != value as u64 {
            ensure!(start.elapsed() < PATIENCE, "the meter's program does not see the stores");
            std::hint::spin_loop();
        }
        let seen_ns = memory.word(SEEN_NS).load(Ordering::Acquire);
        if warm_up_count < value {
            samples.push(seen_ns.saturating_sub(stored_ns));
        }
    }
    Ok(samples)
}

fn load(object: &Path) -> Result<Ebpf> {
    ensure!(object.is_file(), "no {}: `cargo xtask build-ebpf` makes it", object.display());
    EbpfLoader::new().load_file(object).with_context(|| format!("cannot load {}", object.display()))
}

/// Two CPUs that this process may run on.
///
/// # Errors
/// When there are fewer.
pub fn two_cpus() -> Result<(usize, usize)> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    match (cpus.next(), cpus.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => bail!("the meter needs two CPUs: one stores, the other looks"),
    }
}

/// Takes a CPU for this thread alone. Without real-time priority, what is measured on a busy
/// machine is how long another process had the CPU; where it is not granted, so be it.
///
/// # Errors
/// When the thread may not run there.
pub fn occupy(cpu: usize) -> Result<()> {
    let lowest = libc::sched_param { sched_priority: 1 };
    // SAFETY: the kernel only reads the struct, and 0 is the calling thread.
    let _ = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const lowest) };
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// The meter's map in this process's memory.
struct MeterMemory {
    words: NonNull<AtomicU64>,
}

// SAFETY: the mapping belongs to the process, not to a thread, and is only used as atomics.
unsafe impl Sync for MeterMemory {}

impl MeterMemory {
    fn new(object: &mut Ebpf) -> Result<Self> {
        let map = object.take_map("METER").context("no map METER in the meter's object")?;
        let Map::Array(map) = map else { bail!("METER is no array") };
        Self::map(&map)
    }

    fn map(map: &MapData) -> Result<Self> {
        let length = NonZeroUsize::new(WORD_COUNT * size_of::<u64>()).expect("32 words");
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping where the kernel likes it; nobody else knows its address.
        let address =
            unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, map.fd().as_fd(), 0) };
        Ok(Self { words: address.context("cannot map METER")?.cast() })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < WORD_COUNT);
        // SAFETY: within the mapping (just asserted), which lives as long as self and is
        // page-aligned; every access of either side is of one whole word.
        unsafe { self.words.add(index).as_ref() }
    }
}

impl Drop for MeterMemory {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; the borrow checker saw the last reference go.
        let _ = unsafe { munmap(self.words.cast(), WORD_COUNT * size_of::<u64>()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let percentiles = Percentiles::of((1..=1000).rev().collect()).unwrap();
        assert_eq!(percentiles, Percentiles { p50: 500, p99: 990, count: 1000 });
        assert_eq!(Percentiles::of(vec![]), None);
        assert_eq!(Percentiles::of(vec![7]), Some(Percentiles { p50: 7, p99: 7, count: 1 }));
    }
}
