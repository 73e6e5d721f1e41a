//! Ten thousand targets at one probe a second on one shard, for half a minute.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, unshare};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};
use sickbay::engine::{OutcomeKind, Sink};
use sickbay::fleet::{Backend, CloseMode, Fleet, Pool, Probe, Request, SocketOptions, Target};
use sickbay::shard::{Roster, Shards, split};
use sickbay_core::command::{Change, Report, Verdict};
use sickbay_core::plan::{Compat, Nanos, OnUnknown, Pace, ProbeKind, ProbeSpec, Rule};
use sickbay_core::prober::Prober;
use sickbay_tests::farm::Farm;
use sickbay_tests::figures;

const TARGETS: u32 = 10_000;
const SECONDS: u32 = 30;
const PORT: u16 = 8080;

#[test]
fn ten_thousand_targets_are_probed_each_second_on_one_core() {
    let is_root = nix::unistd::geteuid().is_root();
    assert!(is_root, "only root can make a network namespace: run `cargo xtask test scale`");
    // The threads started below stay in this thread's namespace.
    let thread = std::thread::spawn(|| {
        unshare(CloneFlags::CLONE_NEWNET).expect("root can make a network namespace");
        let lo_up = ["link", "set", "lo", "up"];
        let status = Command::new("ip").args(lo_up).status().expect("iproute2 is installed");
        assert!(status.success(), "the loopback comes up");
        outrank_builds();
        probe_ten_thousand_targets();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

/// Prober and farm need a good part of two cores; a build beside this test must not take it. Threads
/// that are started later inherit the policy. Where it may not be changed, the test runs as it is.
fn outrank_builds() {
    let thread = gettid().to_string();
    let changed = Command::new("chrt").args(["--rr", "--pid", "1", &thread]).output();
    if !changed.is_ok_and(|output| output.status.success()) {
        println!("this thread keeps its priority: chrt failed");
    }
}

fn probe_ten_thousand_targets() {
    let cpus = sched_getaffinity(Pid::from_raw(0)).expect("this thread has a mask");
    // The shard takes the first CPU of the mask; the farm keeps to the last.
    let last = (0..CpuSet::count()).rev().find(|cpu| cpus.is_set(*cpu).unwrap_or(false));
    let farm = Farm::start(PORT, TARGETS, last.expect("a thread runs somewhere"));

    let resident_before = resident_kib();
    let watch = Arc::new(Watch::default());
    let for_shard = Arc::clone(&watch);
    let plans = split(&fleet(&farm), 1);
    let start = Instant::now();
    let shards =
        Shards::start(plans, move |_, _| Watcher(Arc::clone(&for_shard))).expect("it starts");
    std::thread::sleep(Duration::from_secs(SECONDS.into()).saturating_sub(start.elapsed()));
    let resident = resident_kib() - resident_before;
    let snapshot = shards.snapshot().expect("the shard answers").remove(0);
    let counters = Arc::clone(shards.counters().next().expect("one shard"));
    shards.stop().expect("the shard did not fail");

    let lateness = &snapshot.histograms.lateness_ns;
    let us = |quantile| lateness.value_at_quantile(quantile) / 1000;
    let probes = counters.probes();
    figures::show(&format!(
        "{probes} probes of {TARGETS} targets in {SECONDS} s; resident memory +{resident} KiB; \
         lateness p50 {} us, p99 {} us, p99.9 {} us; {:.2} system calls a probe; {:.1} us of CPU \
         a probe",
        us(0.5),
        us(0.99),
        us(0.999),
        counters.enters() as f64 / probes as f64,
        watch.cpu_ns.load(Ordering::Relaxed) as f64 / 1000.0 / probes as f64,
    ));
    for kind in OutcomeKind::ALL {
        if 0 < counters.outcomes(kind) {
            figures::show(&format!("  {}: {}", kind.name(), counters.outcomes(kind)));
        }
    }
    assert_eq!(counters.stray(), 0);
    assert_eq!(watch.sick.load(Ordering::Relaxed), 0, "targets that are sick at the end");
    assert_eq!(watch.healthy.load(Ordering::Relaxed), i64::from(TARGETS));
    for index in 0..TARGETS {
        let requests = farm.requests(index);
        assert!(
            (SECONDS - 1..=SECONDS + 1).contains(&requests),
            "{} was probed {requests} times in {SECONDS} s",
            farm.address(index)
        );
    }
}

/// Counts verdicts, and what the shard's thread costs.
#[derive(Debug, Default)]
struct Watch {
    healthy: AtomicI64,
    sick: AtomicI64,
    cpu_ns: AtomicU64,
}

impl Watch {
    fn count(&self, verdict: Verdict) -> Option<&AtomicI64> {
        match verdict {
            Verdict::Healthy => Some(&self.healthy),
            Verdict::Sick => Some(&self.sick),
            Verdict::Warming => None,
        }
    }
}

struct Watcher(Arc<Watch>);

impl Roster for Watcher {}

impl Sink for Watcher {
    fn on_change(&mut self, _: &Prober, change: &Change, _: Nanos) {
        if let Some(count) = self.0.count(change.before) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = self.0.count(change.verdict) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_report(&mut self, _: &Prober, _: &Report, _: Nanos) {}

    fn on_tick(&mut self, _: &Prober, _: Nanos) {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it");
        let ns = time.tv_sec() * 1_000_000_000 + time.tv_nsec();
        self.0.cpu_ns.store(ns as u64, Ordering::Relaxed);
    }
}

/// One pool of as many backends, each with its own target.
fn fleet(farm: &Farm) -> Fleet {
    let probe = Probe {
        name: "http".into(),
        spec: ProbeSpec {
            interval_ns: 1_000_000_000,
            timeout_ns: 1_000_000_000,
            kind: ProbeKind::http(200),
            pace: Pace::STEADY,
            compat: Compat::Off,
        },
        rule: Rule::Window { window: 8, threshold: 3 },
        initial: 2,
        on_unknown: OnUnknown::Keep,
        close: CloseMode::Rst,
        request: Some(Request {
            method: "GET".into(),
            url: "/health".into(),
            host: None,
            headers: Vec::new(),
            body: None,
            raw: Vec::new(),
        }),
        send: Vec::new(),
        proxy_header: None,
        socket: SocketOptions::default(),
    };
    let target = |index| {
        let address = farm.address(index);
        let request =
            format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        Target {
            identity: u128::from(index) << 64 | u128::from(index),
            address,
            request: request.into_bytes(),
            probe: 0,
            initial: 2,
        }
    };
    let backend = |index| Backend {
        name: format!("backend-{index}"),
        pool: 0,
        address: farm.address(index),
        weight: 1,
        target: index as usize,
        more_targets: Vec::new(),
        index,
    };
    Fleet {
        instance: "scale".into(),
        pin_directory: PathBuf::new(),
        run_directory: PathBuf::new(),
        shards: 1,
        in_flight: 1024,
        start_timeout_ns: 0,
        probes: vec![probe],
        targets: (0..TARGETS).map(target).collect(),
        pools: vec![Pool {
            name: "farm".into(),
            probe: 0,
            more_probes: Vec::new(),
            probe_port: None,
            drain_ns: 0,
            backends: 0..TARGETS as usize,
            first_word: 0,
            word_count: 256,
        }],
        backends: (0..TARGETS).map(backend).collect(),
        services: Vec::new(),
        attachments: Vec::new(),
    }
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}
