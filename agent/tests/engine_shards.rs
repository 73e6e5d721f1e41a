//! Targets over shards, and the life of the shards' threads.

use std::net::{SocketAddr, TcpListener};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sickbay::engine::{EngineError, Sink};
use sickbay::fleet::{
    Backend, CloseMode, Dns, Fleet, Judged, Observe, Origin, Pool, Probe, SocketOptions, Steering,
    Target,
};
use sickbay::service_keys::ServiceKeys;
use sickbay::shard::{RequestError, Roster, ShardRequest, Shards, split};
use sickbay_core::command::{Change, Override, Report, Verdict};
use sickbay_core::plan::{Compat, Nanos, OnUnknown, Pace, ProbeKind, ProbeSpec, Rule};
use sickbay_core::prober::Prober;

const LIMIT: Duration = Duration::from_secs(30);
const MS: Nanos = 1_000_000;

/// A fleet of pools that probe `address` by TCP. Each pool: its interval in ms, and the target of
/// each of its backends.
fn fleet(address: SocketAddr, pools: &[(Nanos, &[usize])]) -> Fleet {
    let mut backends: Vec<Backend> = Vec::new();
    let mut probe_of_target = vec![0; pools.iter().flat_map(|pool| pool.1).max().unwrap_or(&0) + 1];
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for (pool, (_, targets)) in pools.iter().enumerate() {
        let first = backends.len();
        for target in *targets {
            probe_of_target[*target] = pool;
            let index = backends.len();
            backends.push(Backend {
                name: format!("b{index}"),
                pool,
                address: address.into(),
                weight: 1,
                judged: Box::new([Judged { target: *target, probe: pool }]),
                index: index as u32,
                origin: Origin::Configured,
            });
        }
        ranges.push(first..backends.len());
    }
    let probe = |(index, (interval_ms, _)): (usize, &(Nanos, &[usize]))| Probe {
        name: format!("p{index}"),
        spec: ProbeSpec {
            interval_ns: interval_ms * MS,
            timeout_ns: 1000 * MS,
            kind: ProbeKind::Tcp,
            pace: Pace::STEADY,
            compat: Compat::Off,
        },
        rule: Rule::Window { window: 1, threshold: 1 },
        initial: 0,
        on_unknown: OnUnknown::Keep,
        close: CloseMode::Rst,
        request: None,
        send: Vec::new(),
        proxy_header: None,
        socket: SocketOptions::default(),
    };
    let pool = |(index, backends): (usize, Range<usize>)| Pool {
        name: format!("pool{index}"),
        probes: vec![index],
        own_probes: Some(vec![index]),
        probe_port: None,
        drain_ns: 0,
        backends,
        first_word: index as u32,
        word_count: 1,
        panic: None,
        may_be_empty: false,
        sources: Vec::new(),
    };
    let target = |(index, probe): (usize, usize)| Target {
        identity: index as u128,
        address: address.into(),
        request: Vec::new(),
        probe,
        initial: 0,
    };
    Fleet {
        instance: "test".into(),
        pin_directory: PathBuf::new(),
        run_directory: PathBuf::new(),
        state_directory: PathBuf::new(),
        shards: 0,
        in_flight: 16,
        start_timeout_ns: 0,
        probes: pools.iter().enumerate().map(probe).collect(),
        targets: probe_of_target.into_iter().enumerate().map(target).collect(),
        pools: ranges.into_iter().enumerate().map(pool).collect(),
        backends,
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

fn listening() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
    let address = listener.local_addr().expect("a bound socket has an address");
    (listener, address)
}

#[track_caller]
fn wait_until(what: &str, mut predicate: impl FnMut() -> bool) {
    let start = Instant::now();
    while !predicate() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Counts what it is told, and whether it lives.
struct Counting {
    sick: Arc<AtomicU32>,
    alive: Arc<AtomicU32>,
    panics: bool,
}

impl Roster for Counting {}

impl Sink for Counting {
    fn on_change(&mut self, _: &Prober, change: &Change, _: Nanos) {
        match change.verdict {
            Verdict::Sick => self.sick.fetch_add(1, Ordering::Relaxed),
            _ => self.sick.fetch_sub(u32::from(change.before == Verdict::Sick), Ordering::Relaxed),
        };
    }

    fn on_report(&mut self, _: &Prober, _: &Report, _: Nanos) {
        assert!(!self.panics, "this sink panics");
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {}
}

impl Drop for Counting {
    fn drop(&mut self) {
        self.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Default)]
struct Watch {
    sick: Arc<AtomicU32>,
    alive: Arc<AtomicU32>,
}

impl Watch {
    fn sink(&self, panics: bool) -> Counting {
        self.alive.fetch_add(1, Ordering::Relaxed);
        Counting { sick: Arc::clone(&self.sick), alive: Arc::clone(&self.alive), panics }
    }
}

#[test]
fn every_target_and_every_backend_is_in_one_shard() {
    let (_listener, address) = listening();
    // Target 1 is judged by both pools, and twice by the second.
    let fleet = fleet(address, &[(1000, &[0, 1, 2]), (500, &[3, 1, 4, 1])]);
    let plans = split(&fleet, 3);
    assert_eq!(plans.len(), 3);
    let mut targets: Vec<usize> = plans.iter().flat_map(|plan| plan.targets.clone()).collect();
    targets.sort_unstable();
    assert_eq!(targets, [0, 1, 2, 3, 4]);
    let mut backends: Vec<usize> = plans.iter().flat_map(|plan| plan.judges.clone()).collect();
    backends.sort_unstable();
    assert_eq!(backends, [0, 1, 2, 3, 4, 5, 6]);
    for plan in &plans {
        assert_eq!(plan.plan.judges.len(), plan.judges.len());
        assert!(plan.plan.judges.is_sorted_by_key(|judge| judge.target));
        for (judge, backend) in plan.plan.judges.iter().zip(&plan.judges) {
            let target = plan.targets[judge.target.0 as usize];
            assert_eq!(
                target, fleet.backends[*backend].judged[0].target,
                "a judge keeps its target"
            );
        }
    }
}

#[test]
fn shards_are_balanced_by_probe_rate() {
    let (_listener, address) = listening();
    // One target at 10 ms is worth a hundred at 1 s.
    let slow: Vec<usize> = (1..=100).collect();
    let plans = split(&fleet(address, &[(10, &[0]), (1000, &slow)]), 2);
    let mut sizes: Vec<usize> = plans.iter().map(|plan| plan.targets.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 100]);
}

#[test]
fn shards_reach_first_verdicts_on_threads_of_their_own_cores() {
    let (_listener, address) = listening();
    let fleet = fleet(address, &[(50, &[0, 1, 2, 3])]);
    let watch = Watch::default();
    let make = watch.clone();
    let shards = Shards::start(split(&fleet, 2), move |_, _| make.sink(false)).expect("it starts");
    wait_until("first verdicts", || shards.warming_count() == 0);
    for shard in 0..2 {
        assert_eq!(cpus_of_thread(&format!("probe-{shard}")), 1, "pinned to one core");
    }
    let snapshots = shards.snapshot().expect("both shards answer");
    let order: Vec<usize> = snapshots.iter().map(|snapshot| snapshot.shard).collect();
    assert_eq!(order, [0, 1]);
    let probes: u64 = snapshots.iter().map(|snapshot| snapshot.histograms.probe_ns.len()).sum();
    assert!(4 <= probes, "a probe of each target");
    assert_eq!(shards.counters().map(|counters| counters.stray()).sum::<u64>(), 0);
    shards.stop().expect("no shard failed");
    assert_eq!(watch.alive.load(Ordering::Relaxed), 0);
}

#[test]
fn operators_word_reaches_the_owner() {
    let (_listener, address) = listening();
    let fleet = fleet(address, &[(50, &[0, 1, 2, 3])]);
    let watch = Watch::default();
    let make = watch.clone();
    let shards = Shards::start(split(&fleet, 2), move |_, _| make.sink(false)).expect("it starts");
    wait_until("first verdicts", || shards.warming_count() == 0);
    let say = |backend, word| shards.request(ShardRequest::SetOverride { backend, word });
    say(1, Override::Sick).expect("its shard takes it");
    say(2, Override::Sick).expect("its shard takes it");
    wait_until("two forced sick", || watch.sick.load(Ordering::Relaxed) == 2);
    say(1, Override::Auto).expect("its shard takes it");
    wait_until("one as probed", || watch.sick.load(Ordering::Relaxed) == 1);
    let nobody = say(4, Override::Sick).expect_err("there are four backends");
    assert!(matches!(nobody, RequestError::NoOwner { backend: 4 }));
}

#[test]
fn shard_that_cannot_start_stops_the_others() {
    let (_listener, address) = listening();
    let fleet = fleet(address, &[(50, &[0, 1])]);
    let mut plans = split(&fleet, 2);
    plans[1].plan.slot_count = 3_000_000;
    let watch = Watch::default();
    let make = watch.clone();
    let error = Shards::start(plans, move |_, _| make.sink(false)).expect_err("too many slots");
    assert!(error.to_string().contains("in_flight") || matches!(error, EngineError::Call { .. }));
    assert_eq!(watch.alive.load(Ordering::Relaxed), 0, "the other shard has ended");
}

#[test]
fn panic_in_a_shard_is_noticed() {
    let (_listener, address) = listening();
    let fleet = fleet(address, &[(10, &[0, 1])]);
    let watch = Watch::default();
    let make = watch.clone();
    let start = Shards::start(split(&fleet, 2), move |shard, _| make.sink(shard == 1));
    let mut shards = start.expect("it starts");
    let mut failure = None;
    wait_until("the failure", || {
        failure = shards.failure();
        failure.is_some()
    });
    assert!(matches!(failure, Some(EngineError::Panicked { shard: 1 })));
    assert_eq!(watch.alive.load(Ordering::Relaxed), 1, "the other shard goes on");
}

/// How many CPUs the thread of that name may use.
fn cpus_of_thread(name: &str) -> u32 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc is mounted");
    for task in tasks {
        let path = task.expect("a task").path();
        let comm = std::fs::read_to_string(path.join("comm")).unwrap_or_default();
        if comm.trim() != name {
            continue;
        }
        let status = std::fs::read_to_string(path.join("status")).expect("the thread lives");
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"));
        let mask = mask.expect("a mask").trim().replace(',', "");
        return u128::from_str_radix(&mask, 16).expect("a hexadecimal mask").count_ones();
    }
    panic!("no thread is called {name}");
}
