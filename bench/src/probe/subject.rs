//! Who is measured: a thread of this process, or another process. All are pinned to one CPU with
//! the lowest real-time priority, and all but one stand still at any time.

use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::{Pid, gettid};
use sickbay_lab::clock::wait_until;
use sickbay_lab::farm::{Counts, Farm};
use sickbay_lab::namespace::Namespace;

/// Until a subject that went on has its connections under way again.
const SETTLE: Duration = Duration::from_millis(200);
/// A subject starts within this. varnishd's compiler took 13 s for 1,000 backends and 70 s for twice
/// as many.
const PATIENCE: Duration = Duration::from_secs(180);
/// `CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`: the kernel's posix-timers.h.
const THREAD_CLOCK: i32 = 6;

/// One that probes the farm.
pub(crate) struct Subject {
    work: Work,
    clock: ClockId,
}

enum Work {
    /// A thread that asks its gate again and again.
    Thread { gate: Arc<Gate>, thread: Option<JoinHandle<Result<()>>> },
    /// A process, and those of its children that are to stand still with it.
    Process { child: Child, pids: Vec<Pid> },
}

/// Tells a measured thread whether to go on.
#[derive(Default)]
pub(crate) struct Gate {
    open: AtomicBool,
    stopping: AtomicBool,
}

/// What a subject did in a while.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// What the farm saw of it.
    pub(crate) counts: Counts,
    /// CPU time, what the kernel did for it included.
    pub(crate) cpu_ns: u64,
    /// Time that passed.
    pub(crate) wall_ns: u64,
}

impl Gate {
    /// Waits while the gate is shut. False when the thread is to end.
    pub(crate) fn pass(&self) -> bool {
        while !self.open.load(Ordering::Acquire) {
            if self.stopping.load(Ordering::Acquire) {
                return false;
            }
            thread::park_timeout(Duration::from_millis(5));
        }
        !self.stopping.load(Ordering::Acquire)
    }

    /// Whether the gate is shut, for those that cannot wait in it.
    pub(crate) fn is_shut(&self) -> bool {
        !self.open.load(Ordering::Acquire)
    }

    /// Whether the thread is to end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

impl Subject {
    /// A thread inside `home`, on `cpu`; its gate is shut.
    pub(crate) fn thread(
        name: &str,
        home: &Namespace,
        cpu: usize,
        body: impl FnOnce(&Arc<Gate>) -> Result<()> + Send + 'static,
    ) -> Result<Self> {
        let gate = Arc::new(Gate::default());
        let (inner, home) = (Arc::clone(&gate), home.clone());
        let (send, told) = std::sync::mpsc::channel();
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            home.enter();
            let thread = gettid();
            pin(thread, cpu)?;
            outrank_builds(thread);
            // Whoever waits for it waits as long as this thread lives.
            let _told = send.send(thread);
            body(&inner)
        })?;
        let Ok(id) = told.recv() else {
            thread.join().expect("it does not panic")?;
            anyhow::bail!("{name} ended at once");
        };
        let clock = ClockId::from_raw(!id.as_raw() << 3 | THREAD_CLOCK);
        Ok(Self { work: Work::Thread { gate, thread: Some(thread) }, clock })
    }

    /// A process inside `home`, on `cpu`. It runs until it is paused.
    pub(crate) fn process(command: &mut Command, home: &Namespace, cpu: usize) -> Result<Self> {
        let mut pinned = Command::new("taskset");
        pinned.args(["--cpu-list", &cpu.to_string(), "chrt", "--rr", "1"]);
        pinned.arg(command.get_program()).args(command.get_args());
        pinned.stdin(std::process::Stdio::null());
        pinned.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let child = home.spawn(&mut pinned)?;
        let pid = Pid::from_raw(i32::try_from(child.id()).expect("process numbers are small"));
        let clock = clock_getcpuclockid(pid).context("a child has a clock")?;
        Ok(Self { work: Work::Process { child, pids: vec![pid] }, clock })
    }

    /// Its only child is the one that works, and is measured.
    pub(crate) fn hand_over_to_child(&mut self) -> Result<()> {
        let Work::Process { pids, .. } = &mut self.work else {
            return Ok(());
        };
        let path = format!("/proc/{0}/task/{0}/children", pids[0]);
        let child = wait_until("it has a child", PATIENCE, || {
            std::fs::read_to_string(&path).ok()?.split_whitespace().next()?.parse().ok()
        })?;
        pids.push(Pid::from_raw(child));
        self.clock = clock_getcpuclockid(pids[1]).context("a child has a clock")?;
        Ok(())
    }

    /// Lets it go on.
    pub(crate) fn resume(&self) -> Result<()> {
        match &self.work {
            Work::Thread { gate, thread } => {
                let thread = thread.as_ref().expect("it is taken when it ends");
                ensure!(!thread.is_finished(), "a measured thread has ended");
                gate.open.store(true, Ordering::Release);
                thread.thread().unpark();
            }
            Work::Process { pids, .. } => {
                for pid in pids {
                    kill(*pid, Signal::SIGCONT).context("a measured process has ended")?;
                }
            }
        }
        Ok(())
    }

    /// Has it stand still.
    pub(crate) fn pause(&self) -> Result<()> {
        match &self.work {
            Work::Thread { gate, .. } => gate.open.store(false, Ordering::Release),
            Work::Process { pids, .. } => {
                for pid in pids {
                    kill(*pid, Signal::SIGSTOP).context("a measured process has ended")?;
                }
            }
        }
        Ok(())
    }

    /// Waits until the farm has had so many requests since now.
    pub(crate) fn wait_for_requests(&self, name: &str, farm: &Farm, count: u64) -> Result<()> {
        let before = farm.counts()?.requests;
        wait_until(&format!("{name} has sent {count} requests"), PATIENCE, || {
            (count <= farm.counts().ok()?.requests - before).then_some(())
        })
    }

    /// Lets it run for `span` after a while to settle, and pauses it.
    pub(crate) fn window(&self, farm: &Farm, span: Duration) -> Result<Window> {
        self.resume()?;
        thread::sleep(SETTLE);
        let window = self.watch(farm, span)?;
        self.pause()?;
        // What is on its way is answered before the next one's turn.
        thread::sleep(Duration::from_millis(50));
        Ok(window)
    }

    /// What it does in `span`, running as it is.
    pub(crate) fn watch(&self, farm: &Farm, span: Duration) -> Result<Window> {
        let (start, counts, cpu_ns) = (Instant::now(), farm.counts()?, self.cpu_ns()?);
        thread::sleep(span);
        let (wall, later, cpu_later_ns) = (start.elapsed(), farm.counts()?, self.cpu_ns()?);
        Ok(Window {
            counts: Counts {
                segments: later.segments - counts.segments,
                syns: later.syns - counts.syns,
                requests: later.requests - counts.requests,
                responses: later.responses - counts.responses,
                refusals: later.refusals - counts.refusals,
            },
            cpu_ns: cpu_later_ns - cpu_ns,
            wall_ns: u64::try_from(wall.as_nanos()).expect("a bench takes no 584 years"),
        })
    }

    fn cpu_ns(&self) -> Result<u64> {
        let time = clock_gettime(self.clock).context("what is measured has ended")?;
        Ok(time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
    }

    /// Ends it.
    pub(crate) fn stop(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        match &mut self.work {
            Work::Thread { gate, thread } => {
                gate.stopping.store(true, Ordering::Release);
                gate.open.store(true, Ordering::Release);
                match thread.take() {
                    None => Ok(()),
                    Some(thread) => {
                        thread.thread().unpark();
                        thread.join().expect("it does not panic")
                    }
                }
            }
            Work::Process { child, pids } => {
                if matches!(child.try_wait(), Ok(None)) {
                    // Those behind first: a manager would start them anew.
                    kill(pids[0], Signal::SIGKILL)?;
                    for pid in &pids[1..] {
                        let _gone_with_its_parent = kill(*pid, Signal::SIGKILL);
                    }
                    child.wait()?;
                }
                Ok(())
            }
        }
    }
}

impl Drop for Subject {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("while ending a subject: {error:#}");
        }
    }
}

impl Window {
    /// Probes per CPU-second, by what the farm answered.
    pub(crate) fn per_cpu_second(&self, tcp: bool) -> f64 {
        self.probes(tcp) as f64 * 1e9 / self.cpu_ns.max(1) as f64
    }

    /// Probes: whole responses, or connections.
    pub(crate) fn probes(&self, tcp: bool) -> u64 {
        if tcp { self.counts.syns } else { self.counts.responses }
    }

    /// How much of the CPU it had.
    pub(crate) fn cpu_share(&self) -> f64 {
        self.cpu_ns as f64 / self.wall_ns.max(1) as f64
    }
}

/// The last of the CPUs that this process may use. Another one is for who measures.
pub(crate) fn measured_cpu() -> Result<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let cpus = (0..CpuSet::count()).filter(|cpu| allowed.is_set(*cpu).unwrap_or(false));
    match cpus.collect::<Vec<usize>>().as_slice() {
        [_, .., last] => Ok(*last),
        _ => anyhow::bail!("this bench needs two CPUs: one measures, the other is measured"),
    }
}

/// Keeps a thread to a CPU.
fn pin(thread: Pid, cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(thread, &set).with_context(|| format!("cannot run on CPU {cpu}"))
}

/// A build beside this bench must not take the measured CPU; where priorities may not be changed, the
/// figures are still per CPU-second.
fn outrank_builds(thread: Pid) {
    let changed = Command::new("chrt").args(["--rr", "--pid", "1", &thread.to_string()]).output();
    if !changed.is_ok_and(|output| output.status.success()) {
        eprintln!("note: a measured thread keeps its priority: chrt failed");
    }
}
