//! A client's load: connections of three kinds, each recorded with its times and who answered.
//!
//! Short connections show what a new flow meets; kept ones show whether an established flow is
//! ever moved; fixed ports show, by opening the very same 5-tuple again and again, where the table
//! sends it. A few threads in the client's namespace; what they did can be looked at while they
//! run.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::clock::{monotonic_ns, wait_until};
use crate::connection::{Answer, Connection, Failure};
use crate::namespace::Namespace;
use crate::record::{Attempt, Flow, Record};

/// The first of the fixed ports; below the range the system chooses from (32768 and up).
pub const FIXED_PORT_FIRST: u16 = 20_000;

/// What a client does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where to.
    pub to: SocketAddr,
    /// Short connections a second, over all threads; 0 = none.
    pub short_per_second: u32,
    /// Threads that open them.
    pub short_threads: u32,
    /// Kept connections.
    pub kept: u16,
    /// Pause between two requests of a kept connection.
    pub kept_interval: Duration,
    /// Fixed ports.
    pub fixed: u16,
    /// Pause between two connections from one fixed port.
    pub fixed_interval: Duration,
    /// Limit of opening, and of each answer.
    pub timeout: Duration,
}

impl Plan {
    /// The load of the demo and the tests: 400 short connections a second, 64 kept ones that ask
    /// every 50 ms, and 64 fixed ports opened every 100 ms.
    #[must_use]
    pub fn usual(to: SocketAddr) -> Self {
        Self {
            to,
            short_per_second: 400,
            short_threads: 4,
            kept: 64,
            kept_interval: Duration::from_millis(50),
            fixed: 64,
            fixed_interval: Duration::from_millis(100),
            timeout: Duration::from_secs(1),
        }
    }
}

/// A load that runs. Dropping it stops it.
#[derive(Debug)]
pub struct Load {
    record: Arc<Mutex<Record>>,
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the load inside `namespace`.
    #[must_use]
    pub fn start(namespace: &Namespace, plan: &Plan) -> Self {
        let mut load = Self { record: Arc::default(), stopping: Arc::default(), threads: vec![] };
        if 0 < plan.short_per_second {
            for _ in 0..plan.short_threads.max(1) {
                load.add(namespace, plan, short_connections);
            }
        }
        if 0 < plan.kept {
            load.add(namespace, plan, kept_connections);
        }
        if 0 < plan.fixed {
            load.add(namespace, plan, fixed_ports);
        }
        load
    }

    /// Looks at what was done so far. Keep it short: the load waits meanwhile.
    pub fn look<T>(&self, view: impl FnOnce(&Record) -> T) -> T {
        view(&lock(&self.record))
    }

    /// Waits until that many connections were begun at `from_ns` or later and are over.
    ///
    /// # Errors
    /// When that takes longer than `limit`.
    pub fn wait_for_connections(&self, count: usize, from_ns: u64, limit: Duration) -> Result<()> {
        wait_until(&format!("{count} connections are over"), limit, || {
            let done = self.look(|record| {
                record.connections().filter(|attempt| from_ns <= attempt.started_ns).count()
            });
            (count <= done).then_some(())
        })
    }

    /// Stops the load and returns all that it did.
    #[must_use]
    pub fn stop(mut self) -> Record {
        self.join();
        std::mem::take(&mut lock(&self.record))
    }

    fn add(&mut self, namespace: &Namespace, plan: &Plan, work: fn(&Plan, &Shared)) {
        let namespace = namespace.clone();
        let plan = plan.clone();
        let shared =
            Shared { record: Arc::clone(&self.record), stopping: Arc::clone(&self.stopping) };
        self.threads.push(thread::spawn(move || {
            namespace.enter();
            work(&plan, &shared);
        }));
    }

    fn join(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            if let Err(panic) = thread.join()
                && !thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.join();
    }
}

/// What the threads of a load share.
struct Shared {
    record: Arc<Mutex<Record>>,
    stopping: Arc<AtomicBool>,
}

impl Shared {
    fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        lock(&self.record)
    }
}

fn lock(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

fn short_connections(plan: &Plan, shared: &Shared) {
    let mut pace = Pace::new(
        Duration::from_secs(1) * plan.short_threads.max(1) / plan.short_per_second.max(1),
    );
    while !shared.stopping() {
        pace.wait();
        let attempt = attempt(|| connect_and_ask(plan, 0));
        shared.record().short.push(attempt);
    }
}

fn kept_connections(plan: &Plan, shared: &Shared) {
    let mut connections: Vec<Option<Connection>> = Vec::new();
    for index in 0..usize::from(plan.kept) {
        let started_ns = monotonic_ns();
        let opened = Connection::open(plan.to, 0, plan.timeout);
        let mut flow = Flow::default();
        match &opened {
            Ok(connection) => flow.source_port = connection.source_port().unwrap_or_default(),
            Err(failure) => flow.attempts.push(Attempt {
                started_ns,
                finished_ns: monotonic_ns(),
                result: Err(*failure),
            }),
        }
        shared.record().kept.insert(index, flow);
        connections.push(opened.ok());
    }
    let mut pace = Pace::new(plan.kept_interval);
    while !shared.stopping() {
        pace.wait();
        for (index, place) in connections.iter_mut().enumerate() {
            let Some(connection) = place else { continue };
            let attempt = attempt(|| connection.ask());
            if attempt.result.is_err() {
                *place = None;
            }
            shared.record().kept[index].attempts.push(attempt);
        }
    }
}

fn fixed_ports(plan: &Plan, shared: &Shared) {
    let ports = (FIXED_PORT_FIRST..).take(usize::from(plan.fixed));
    shared.record().fixed =
        ports.map(|source_port| Flow { source_port, ..Flow::default() }).collect();
    let mut pace = Pace::new(plan.fixed_interval);
    while !shared.stopping() {
        pace.wait();
        for (index, port) in (FIXED_PORT_FIRST..).take(usize::from(plan.fixed)).enumerate() {
            let attempt = attempt(|| connect_and_ask(plan, port));
            shared.record().fixed[index].attempts.push(attempt);
        }
    }
}

fn connect_and_ask(plan: &Plan, source_port: u16) -> Result<Answer, Failure> {
    Connection::open(plan.to, source_port, plan.timeout)?.ask()
}

fn attempt(ask: impl FnOnce() -> Result<Answer, Failure>) -> Attempt {
    let started_ns = monotonic_ns();
    let result = ask().map(|answer| answer.backend);
    Attempt { started_ns, finished_ns: monotonic_ns(), result }
}

/// Even steps; one that is late is not caught up.
struct Pace {
    interval: Duration,
    next: Instant,
}

impl Pace {
    fn new(interval: Duration) -> Self {
        Self { interval, next: Instant::now() }
    }

    fn wait(&mut self) {
        let now = Instant::now();
        thread::sleep(self.next.saturating_duration_since(now));
        self.next = (self.next + self.interval).max(now);
    }
}
