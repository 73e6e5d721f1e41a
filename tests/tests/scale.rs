//! Ten thousand targets at one probe a second on one shard, for half a minute: all of them well, and
//! every tenth a black hole.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, unshare};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, gettid};
use sickbay::engine::{Counters, OutcomeKind, Sink};
use sickbay::fleet::{
    Backend, CloseMode, Dns, Fleet, Judged, Observe, Origin, Pool, Probe, Request, SocketOptions,
    Steering, Target,
};
use sickbay::service_keys::ServiceKeys;
use sickbay::shard::{Roster, ShardPlan, Shards, split};
use sickbay_core::command::{Change, LocalFault, Outcome, Report, Verdict};
use sickbay_core::plan::{Compat, Nanos, OnUnknown, Pace, ProbeKind, ProbeSpec, Rule, TargetIndex};
use sickbay_core::prober::Prober;
use sickbay_lab::clock::wait_until;
use sickbay_tests::farm::Farm;
use sickbay_tests::figures;

const TARGETS: u32 = 10_000;
const SECONDS: u32 = 30;
const PORT: u16 = 8080;
const INTERVAL_NS: Nanos = 1_000_000_000;
/// Places in flight.
const SLOTS: u32 = 1024;
/// Of so many targets one is a black hole, in the test that has some.
const TITHE: u32 = 10;
/// Seconds until memory has what it needs.
const WARM_UP_SECONDS: u32 = 10;

#[test]
fn ten_thousand_targets_are_probed_each_second_on_one_core() {
    in_own_network(probe_ten_thousand_targets);
}

#[test]
fn thousand_black_holes_leave_nine_thousand_probed_on_time_in_flat_memory() {
    in_own_network(probe_around_black_holes);
}

/// Runs a test on a thread with a network namespace of its own, loopback up.
fn in_own_network(test: fn()) {
    let is_root = nix::unistd::geteuid().is_root();
    assert!(is_root, "only root can make a network namespace: run `cargo xtask test scale`");
    // The threads started below stay in this thread's namespace.
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root can make a network namespace");
        ip("link set lo up");
        outrank_builds();
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[track_caller]
fn ip(words: &str) {
    let status = Command::new("ip").args(words.split(' ')).status();
    assert!(status.expect("iproute2 is installed").success(), "ip {words}");
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
    let farm = start_farm();
    let resident_before_kib = resident_kib();
    let targets: Vec<SocketAddr> = (0..TARGETS).map(|index| farm.address(index)).collect();
    let run = Run::start(&targets, |_| true);
    run.sleep_until(SECONDS);
    let resident_kib = resident_kib() - resident_before_kib;
    let watch = run.stop();

    figures::show(&format!("{TARGETS} targets; resident memory +{resident_kib} KiB"));
    watch.holds_of_the_living(TARGETS);
    assert_eq!(watch.sick.load(Ordering::Relaxed), 0, "targets that are sick at the end");
    probed_each_second(&farm, 0..TARGETS, SECONDS);
}

fn probe_around_black_holes() {
    // A SYN for any of these goes to a host that nobody has.
    for words in [
        "link add name void0 type veth peer name void1",
        "addr add 10.77.0.1/16 dev void0",
        "link set void0 up",
        "link set void1 up",
        "neigh add 10.77.0.2 lladdr 02:00:00:00:00:01 dev void0 nud permanent",
        "route add 10.78.0.0/16 via 10.77.0.2",
    ] {
        ip(words);
    }
    let black_hole = |index: u32| {
        let [_, _, high, low] = index.to_be_bytes();
        SocketAddr::from((Ipv4Addr::new(10, 78, high, low), PORT))
    };
    let lives = |index: u32| !index.is_multiple_of(TITHE);
    let farm = start_farm();
    let address = |index| if lives(index) { farm.address(index) } else { black_hole(index) };
    let targets: Vec<SocketAddr> = (0..TARGETS).map(address).collect();
    let (sockets_before, descriptors_before) = (sockets_in_use(), descriptor_count());

    let run = Run::start(&targets, lives);
    run.sleep_until(WARM_UP_SECONDS);
    let (warm_kib, warm_descriptors) = (resident_kib(), descriptor_count());
    run.sleep_until(WARM_UP_SECONDS + SECONDS);
    let grown_kib = resident_kib() - warm_kib;
    let (descriptors, sockets) = (descriptor_count(), sockets_in_use());
    let in_flight = run.counters.in_flight();
    let watch = run.stop();

    let dead = TARGETS / TITHE;
    figures::show(&format!(
        "{dead} of {TARGETS} targets black-holed; after {WARM_UP_SECONDS} s of warming up: resident \
         memory +{grown_kib} KiB, descriptors {warm_descriptors} -> {descriptors}; sockets \
         {sockets_before} -> {sockets} with {in_flight} probes in flight; {} probes of the dead \
         had no place",
        watch.dead_without_place.load(Ordering::Relaxed),
    ));
    watch.holds_of_the_living(TARGETS - dead);
    assert_eq!(watch.sick.load(Ordering::Relaxed), i64::from(dead), "the dead are sick");
    let living = (0..TARGETS).filter(|index| lives(*index));
    probed_each_second(&farm, living, WARM_UP_SECONDS + SECONDS);
    assert!(grown_kib <= 1024, "memory grew by {grown_kib} KiB");
    // What is open beside the ring are the farm's connections of this moment. A probe that left
    // its socket behind would have left 500 a second.
    let most = |before: u64| before + u64::from(SLOTS);
    assert!(descriptors as u64 <= most(descriptors_before as u64), "{descriptors} descriptors");
    assert!(sockets <= most(sockets_before) + u64::from(SLOTS), "{sockets} sockets");
    drop(farm);
    wait_until("the last sockets to go", Duration::from_secs(30), || {
        (sockets_in_use() < sockets_before).then_some(())
    })
    .expect("every socket of a probe is closed");
}
fn start_farm() -> Farm {
    let cpus = sched_getaffinity(Pid::from_raw(0)).expect("this thread has a mask");
    // The shard takes the first CPU of the mask; the farm keeps to the last.
    let last = (0..CpuSet::count()).rev().find(|cpu| cpus.is_set(*cpu).unwrap_or(false));
    Farm::start(PORT, TARGETS, last.expect("a thread runs somewhere"))
}

/// The farm's own count.
#[track_caller]
fn probed_each_second(farm: &Farm, living: impl Iterator<Item = u32>, seconds: u32) {
    for index in living {
        let requests = farm.requests(index);
        let address = farm.address(index);
        assert!(
            (seconds - 1..=seconds + 1).contains(&requests),
            "{address} was probed {requests} times in {seconds} s"
        );
    }
}

/// The running shard.
struct Run {
    shards: Shards,
    watch: Arc<Watch>,
    counters: Arc<Counters>,
    start: Instant,
}

impl Run {
    fn start(targets: &[SocketAddr], lives: fn(u32) -> bool) -> Self {
        let watch = Arc::new(Watch::new());
        let for_shard = Arc::clone(&watch);
        let plans = split(&fleet(targets), 1);
        let start = Instant::now();
        let shards = Shards::start(plans, move |_, plan: &ShardPlan| Watcher {
            lives: plan.targets.iter().map(|target| lives(*target as u32)).collect(),
            watch: Arc::clone(&for_shard),
        })
        .expect("it starts");
        let counters = Arc::clone(shards.counters().next().expect("one shard"));
        Self { shards, watch, counters, start }
    }

    /// Sleeps until the shard has run for so long: this is the load, not a wait for something.
    fn sleep_until(&self, seconds: u32) {
        let span = Duration::from_secs(seconds.into());
        std::thread::sleep(span.saturating_sub(self.start.elapsed()));
    }

    /// Stops the shard and shows what it did.
    fn stop(self) -> Arc<Watch> {
        let Self { shards, watch, counters, start } = self;
        let seconds = start.elapsed().as_secs();
        shards.stop().expect("the shard did not fail");
        let probes = counters.probes();
        figures::show(&format!(
            "{probes} probes in {seconds} s; of the living {}; {:.2} system calls a probe; {:.1} us \
             of CPU a probe",
            watch.lateness(),
            counters.enters() as f64 / probes as f64,
            watch.cpu_ns.load(Ordering::Relaxed) as f64 / 1000.0 / probes as f64,
        ));
        for kind in OutcomeKind::ALL {
            if 0 < counters.outcomes(kind) {
                figures::show(&format!("  {}: {}", kind.name(), counters.outcomes(kind)));
            }
        }
        assert_eq!(counters.stray(), 0);
        watch
    }
}

/// Counts verdicts, how late probes of the living are, and what the shard's thread costs.
#[derive(Debug)]
struct Watch {
    healthy: AtomicI64,
    sick: AtomicI64,
    cpu_ns: AtomicU64,
    /// Probes of the living that were not good.
    living_failed: AtomicU64,
    dead_without_place: AtomicU64,
    /// Probes of the living by their lateness, each place [`LATENESS_NS`] wide; the last one holds
    /// all that are later. Of fixed size: memory is measured.
    lateness: Box<[AtomicU64]>,
}

/// Width of a place of [`Watch::lateness`].
const LATENESS_NS: Nanos = 100_000;

impl Watch {
    fn new() -> Self {
        let places = INTERVAL_NS / LATENESS_NS;
        Self {
            healthy: AtomicI64::new(0),
            sick: AtomicI64::new(0),
            cpu_ns: AtomicU64::new(0),
            living_failed: AtomicU64::new(0),
            dead_without_place: AtomicU64::new(0),
            lateness: (0..places).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn count(&self, verdict: Verdict) -> Option<&AtomicI64> {
        match verdict {
            Verdict::Healthy => Some(&self.healthy),
            Verdict::Sick => Some(&self.sick),
            Verdict::Warming => None,
        }
    }

    /// So many of a thousand probes of the living were not later than this.
    fn lateness_ns(&self, permille: u64) -> Nanos {
        let count = |place: &AtomicU64| place.load(Ordering::Relaxed);
        let wanted = self.lateness.iter().map(count).sum::<u64>() * permille / 1000;
        let mut seen = 0;
        let place = self.lateness.iter().position(|place| {
            seen += count(place);
            wanted <= seen
        });
        (place.expect("there were probes") as Nanos + 1) * LATENESS_NS
    }

    fn lateness(&self) -> String {
        let ms = |permille| self.lateness_ns(permille) as f64 / 1e6;
        format!("lateness p50 {} ms, p99 {} ms, p99.9 {} ms", ms(500), ms(990), ms(999))
    }

    /// What must hold of the living, whatever the others do.
    #[track_caller]
    fn holds_of_the_living(&self, count: u32) {
        assert_eq!(self.living_failed.load(Ordering::Relaxed), 0, "no probe of theirs failed");
        assert_eq!(self.healthy.load(Ordering::Relaxed), i64::from(count));
        // On time: a tenth of the interval is far from a probe lost, and far from what a busy
        // machine does to a thread of this priority.
        let late_ns = self.lateness_ns(999);
        assert!(late_ns <= INTERVAL_NS / 10, "one of a thousand was {late_ns} ns late");
    }
}

struct Watcher {
    watch: Arc<Watch>,
    /// By the plan's target.
    lives: Vec<bool>,
}

impl Roster for Watcher {}

impl Sink for Watcher {
    fn on_change(&mut self, _: &Prober, change: &Change, _: Nanos) {
        if let Some(count) = self.watch.count(change.before) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(count) = self.watch.count(change.verdict) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_report(&mut self, _: &Prober, report: &Report, _: Nanos) {
        let TargetIndex(target) = report.target;
        if self.lives[target as usize] {
            let failed = u64::from(report.outcome.good() != Some(true));
            self.watch.living_failed.fetch_add(failed, Ordering::Relaxed);
            let late_ns = report.started_ns.saturating_sub(report.scheduled_ns);
            let places = &self.watch.lateness;
            let place = (late_ns / LATENESS_NS).min(places.len() as u64 - 1);
            places[place as usize].fetch_add(1, Ordering::Relaxed);
        } else if report.outcome == Outcome::Indeterminate(LocalFault::NoSlot) {
            self.watch.dead_without_place.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every Linux has it");
        let ns = time.tv_sec() * 1_000_000_000 + time.tv_nsec();
        self.watch.cpu_ns.store(ns as u64, Ordering::Relaxed);
    }
}

/// One pool of as many backends, each with its own target.
fn fleet(addresses: &[SocketAddr]) -> Fleet {
    let probe = Probe {
        name: "http".into(),
        spec: ProbeSpec {
            interval_ns: INTERVAL_NS,
            timeout_ns: INTERVAL_NS,
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
    let target = |index: u32| {
        let address = addresses[index as usize];
        let request =
            format!("GET /health HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        Target {
            identity: u128::from(index) << 64 | u128::from(index),
            address: address.into(),
            request: request.into_bytes(),
            probe: 0,
            initial: 2,
        }
    };
    let backend = |index: u32| Backend {
        name: format!("backend-{index}"),
        pool: 0,
        address: addresses[index as usize].into(),
        weight: 1,
        judged: [Judged { target: index as usize, probe: 0 }].into(),
        index,
        origin: Origin::Configured,
    };
    Fleet {
        instance: "scale".into(),
        pin_directory: PathBuf::new(),
        run_directory: PathBuf::new(),
        state_directory: PathBuf::new(),
        shards: 1,
        in_flight: SLOTS,
        start_timeout_ns: 0,
        probes: vec![probe],
        targets: (0..TARGETS).map(target).collect(),
        pools: vec![Pool {
            name: "farm".into(),
            probes: vec![0],
            own_probes: Some(vec![0]),
            probe_port: None,
            drain_ns: 0,
            backends: 0..TARGETS as usize,
            first_word: 0,
            word_count: 256,
            panic: None,
            may_be_empty: false,
            sources: Vec::new(),
        }],
        backends: (0..TARGETS).map(backend).collect(),
        services: Vec::new(),
        service_keys: ServiceKeys::default(),
        attachments: Vec::new(),
        steering: Steering::default(),
        guard: None,
        privilege: Default::default(),
        read_group: None,
        watch_config: false,
        dns: Dns::default(),
        observe: Observe::default(),
    }
}

/// Resident memory of this process, in KiB.
fn resident_kib() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
}

/// Descriptors of this process.
fn descriptor_count() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// TCP sockets of this thread's network namespace, in any state but TIME_WAIT.
fn sockets_in_use() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/sockstat").expect("/proc is mounted");
    let line = text.lines().find(|line| line.starts_with("TCP:")).expect("a line for TCP");
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|word| *word == "alloc").expect("a count of sockets");
    words[at + 1].parse().expect("a number")
}
