//! Spells in which this machine ran nothing: its hypervisor had stopped it, or given its CPUs to
//! others.
//!
//! A thread on each CPU, above every other in priority, sleeps a little again and again. When it
//! wakes late, nobody has run there. What a test finds late in such a spell, and in as long again
//! afterwards, is not the fault of what it tests; a thread that is slow itself never makes one.

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use sickbay_lab::clock::monotonic_ns;

const NAP: Duration = Duration::from_millis(5);
/// A nap that was longer by this is a spell, in ns.
const SPELL_NS: u64 = 20_000_000;

/// The watched CPUs. Dropping it ends the watch.
#[derive(Debug)]
pub struct Stalls {
    spells: Arc<[Spell]>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// A CPU's last spell, CLOCK_MONOTONIC, and all of them together, in ns.
#[derive(Debug, Default)]
struct Spell {
    from_ns: AtomicU64,
    until_ns: AtomicU64,
    total_ns: AtomicU64,
}

impl Spell {
    /// Only its own CPU's thread adds.
    fn add(&self, from_ns: u64, until_ns: u64) {
        self.total_ns.fetch_add(until_ns - from_ns, Ordering::Relaxed);
        // One that begins while the last one's work is made up for goes on with it.
        if !self.excuses(from_ns) {
            self.from_ns.store(from_ns, Ordering::Relaxed);
        }
        self.until_ns.store(until_ns, Ordering::Release);
    }

    fn excuses(&self, due_ns: u64) -> bool {
        let until_ns = self.until_ns.load(Ordering::Acquire);
        let from_ns = self.from_ns.load(Ordering::Relaxed);
        from_ns <= due_ns && due_ns < until_ns + until_ns.saturating_sub(from_ns)
    }
}

impl Stalls {
    /// Watches these CPUs.
    ///
    /// # Panics
    /// Without the privilege (CAP_SYS_NICE): a watch that has to wait for others would excuse them.
    #[must_use]
    pub fn watch(cpus: &[usize]) -> Self {
        let spells: Arc<[Spell]> = cpus.iter().map(|_| Spell::default()).collect();
        let stopping = Arc::new(AtomicBool::new(false));
        let watch = |(place, cpu): (usize, &usize)| {
            let (spells, stopping, cpu) = (Arc::clone(&spells), Arc::clone(&stopping), *cpu);
            let (ready, is_ready) = mpsc::channel();
            let thread = thread::spawn(move || {
                stay_above_all(cpu);
                let _waiting = ready.send(());
                while !stopping.load(Ordering::Relaxed) {
                    let due_ns = monotonic_ns() + NAP.as_nanos() as u64;
                    thread::sleep(NAP);
                    let now_ns = monotonic_ns();
                    if due_ns + SPELL_NS < now_ns {
                        spells[place].add(due_ns, now_ns);
                    }
                }
            });
            is_ready.recv().expect("the watch begins");
            thread
        };
        let threads = cpus.iter().enumerate().map(watch).collect();
        Self { spells, stopping, threads }
    }

    /// Whether what was due at this moment (CLOCK_MONOTONIC, ns) may be late because of the last
    /// spell of a CPU.
    #[must_use]
    pub fn excuse(&self, due_ns: u64) -> bool {
        self.spells.iter().any(|spell| spell.excuses(due_ns))
    }

    /// All spells together, of the CPU that had most, in ns.
    #[must_use]
    pub fn total_ns(&self) -> u64 {
        let totals = self.spells.iter().map(|spell| spell.total_ns.load(Ordering::Relaxed));
        totals.max().unwrap_or_default()
    }
}

impl Drop for Stalls {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join();
        }
    }
}

fn stay_above_all(cpu: usize) {
    let mut cpus = CpuSet::new();
    cpus.set(cpu).expect("the kernel knows that many CPUs");
    sched_setaffinity(Pid::from_raw(0), &cpus).expect("the CPU may be used");
    let thread = gettid().to_string();
    let changed = Command::new("chrt").args(["--fifo", "--pid", "99", &thread]).output();
    let changed = changed.expect("util-linux is installed");
    assert!(changed.status.success(), "{}", String::from_utf8_lossy(&changed.stderr));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spell_excuses_itself_and_as_long_again() {
        let spell = Spell::default();
        assert!(!spell.excuses(0) && !spell.excuses(1_000));
        spell.add(1_000, 1_400);
        let excused = |due_ns: &u64| spell.excuses(*due_ns);
        assert!([1_000, 1_399, 1_799].iter().all(excused));
        assert!(![999, 1_800].iter().any(excused));
        assert_eq!(spell.total_ns.load(Ordering::Relaxed), 400);
    }

    #[test]
    fn spell_soon_after_another_goes_on_with_it() {
        let spell = Spell::default();
        spell.add(1_000, 1_400);
        spell.add(1_700, 1_800);
        assert!(spell.excuses(1_000) && spell.excuses(2_599) && !spell.excuses(2_600));
        spell.add(3_000, 3_100);
        assert!(!spell.excuses(2_999) && spell.excuses(3_199) && !spell.excuses(3_200));
        assert_eq!(spell.total_ns.load(Ordering::Relaxed), 600);
    }
}
