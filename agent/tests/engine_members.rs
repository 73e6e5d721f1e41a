//! Backends that join running shards and part from them, on real sockets and a real ring.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sickbay::config::{Newcomer, Overrides, grow, parse};
use sickbay::engine::{Counters, Endpoint, Engine, Sink};
use sickbay::fleet::{CloseMode, Fleet, Origin, SocketOptions};
use sickbay::membership::Standing;
use sickbay::shard::{Joined, Joining, PlaceError, Roster, Shards, split};
use sickbay_core::command::{Change, Outcome, Report, Verdict};
use sickbay_core::plan::{
    Compat, Family, JudgeIndex, JudgeSpec, Nanos, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind,
    ProbeSpec, Room, Rule, TargetIndex, TargetSpec,
};
use sickbay_core::prober::Prober;

/// Longest that any test here waits for anything.
const LIMIT: Duration = Duration::from_secs(30);

/// A TCP server that counts its connections, or accepts them and never answers.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicU64>,
}

impl Server {
    fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
        let address = listener.local_addr().expect("a bound socket has an address");
        let connections = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&connections);
        // Ends with the test's process.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                counted.fetch_add(1, Ordering::Relaxed);
                // Holds it until the prober closes.
                std::thread::spawn(move || {
                    stream.map(|mut stream| stream.read(&mut [0; 512]).is_ok())
                });
            }
        });
        Self { address, connections }
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// What a sink was told, by judge.
#[derive(Debug, Default)]
struct Told {
    verdicts: HashMap<u32, Verdict>,
    /// The backend of each judge that joined.
    joined: HashMap<u32, u32>,
    parted: Vec<(Vec<JudgeIndex>, Vec<TargetIndex>)>,
    standings: Vec<Standing>,
    /// Reports of targets without a judge.
    orphans: u64,
    reports: u64,
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Told>>);

impl Recorder {
    fn look<T>(&self, look: impl FnOnce(&mut Told) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Recorder {
    fn on_change(&mut self, _: &Prober, change: &Change, _: Nanos) {
        self.look(|told| told.verdicts.insert(change.judge.0, change.verdict));
    }

    fn on_report(&mut self, prober: &Prober, report: &Report, _: Nanos) {
        let orphan = prober.judges_of(report.target).next().is_none();
        self.look(|told| {
            told.orphans += u64::from(orphan);
            told.reports += 1;
        });
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {}
}

impl Roster for Recorder {
    fn on_joined(&mut self, prober: &Prober, joined: &Joined<'_>) {
        for (judge, target) in joined.seats {
            let judges: Vec<JudgeIndex> = prober.judges_of(*target).collect();
            assert!(judges.contains(judge), "it is there when it is told");
            let backend = joined.joining.backend;
            self.look(|told| {
                told.verdicts.remove(&judge.0);
                told.joined.insert(judge.0, backend)
            });
        }
    }

    fn on_parted(&mut self, judges: &[JudgeIndex], targets: &[TargetIndex]) {
        self.look(|told| told.parted.push((judges.to_vec(), targets.to_vec())));
    }

    fn on_standing(&mut self, _: &Prober, _: JudgeIndex, standing: Standing) {
        self.look(|told| told.standings.push(standing));
    }
}

/// A fleet of one pool: TCP probes every 20 ms unless the server is to be asked by HTTP.
fn fleet(addresses: &[SocketAddr], http: bool) -> Fleet {
    let kind = if http { "type = \"http\"" } else { "type = \"tcp\"" };
    let list: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    let text = format!(
        "[probe.p]\n{kind}\ninterval = \"20ms\"\ntimeout = \"15ms\"\nwindow = 1\n\
         threshold = 1\ninitial = 0\n[pool.p]\nprobe = \"p\"\nbackends = [{}]\n",
        list.join(", ")
    );
    parse(&text, Path::new("t.toml"), &Overrides::default()).expect("it is right").fleet
}

/// The fleet with one more backend, and that one.
fn grown(fleet: &Fleet, index: u32, address: SocketAddr) -> (Fleet, Joining) {
    let newcomer =
        Newcomer { name: None, address: address.into(), weight: 1, origin: Origin::Operator };
    let grown = grow(fleet, 0, &[(index, newcomer)]).expect("it fits");
    let backend = grown.backends.last().expect("it was added");
    let joining = Joining::of(&grown, backend);
    (grown, joining)
}

#[track_caller]
fn wait_until(what: &str, mut predicate: impl FnMut() -> bool) {
    let start = Instant::now();
    while !predicate() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn start(fleet: &Fleet, shards: usize, recorder: &Recorder) -> Shards {
    let recorder = recorder.clone();
    Shards::start(split(fleet, shards), move |_, _| recorder.clone()).expect("it starts")
}

fn join(shards: &mut Shards, joining: Joining) {
    let placed = shards.place(std::slice::from_ref(&joining)).expect("there is room");
    shards.join(vec![(placed[0], joining)]).expect("the shard takes it");
}

#[test]
fn backend_joins_and_parts_while_the_other_is_probed_on() {
    let (first, second) = (Server::start(), Server::start());
    let fleet = fleet(&[first.address], false);
    let recorder = Recorder::default();
    let mut shards = start(&fleet, 1, &recorder);
    wait_until("the first is healthy", || {
        recorder.look(|told| told.verdicts.get(&0) == Some(&Verdict::Healthy))
    });
    let (_, joining) = grown(&fleet, 1, second.address);
    join(&mut shards, joining);
    assert_eq!(recorder.look(|told| told.joined.get(&1).copied()), Some(1));
    wait_until("the second is healthy", || {
        recorder.look(|told| told.verdicts.get(&1) == Some(&Verdict::Healthy))
    });
    assert_eq!(shards.target_count(0), 2);
    shards.set_standings(&[(1, Standing::Draining), (77, Standing::Over)]).expect("it takes it");
    assert_eq!(recorder.look(|told| told.standings.clone()), [Standing::Draining]);
    shards.part(&[1, 77]).expect("the shard takes it");
    let parted = recorder.look(|told| told.parted.clone());
    assert_eq!(parted, [(vec![JudgeIndex(1)], vec![TargetIndex(1)])]);
    assert_eq!(shards.target_count(0), 1);
    let (others, own) = (first.connections(), second.connections());
    wait_until("the first is probed on", || others + 20 < first.connections());
    // One may have been under way.
    assert!(second.connections() <= own + 1, "who has parted is probed");
    assert_eq!(recorder.look(|told| told.orphans), 0);
    assert_eq!(shards.counters().map(|counters| counters.stray()).sum::<u64>(), 0);
    shards.stop().expect("it did not fail");
}

#[test]
fn backend_whose_target_is_probed_already_joins_its_shard_and_costs_no_probe() {
    let servers = [Server::start(), Server::start(), Server::start()];
    let text = servers.each_ref().map(|server| server.address);
    let mut fleet = fleet(&text, false);
    // A second pool that asks the same of nobody yet.
    let mut other = fleet.pools[0].clone();
    (other.name, other.backends, other.first_word) = ("q".to_owned(), 3..3, 7);
    fleet.pools.push(other);
    let recorder = Recorder::default();
    let mut shards = start(&fleet, 2, &recorder);
    let plans = split(&fleet, 2);
    for (place, server) in servers.iter().enumerate() {
        let index = 7 * 64 + u32::try_from(place).expect("three");
        let newcomer = Newcomer {
            name: None,
            address: server.address.into(),
            weight: 1,
            origin: Origin::Operator,
        };
        fleet = grow(&fleet, 1, &[(index, newcomer)]).expect("it fits");
        let backend = fleet.backends.last().expect("it was added");
        assert_eq!(backend.judged[0].target, place, "the target of the first pool's");
        let joining = Joining::of(&fleet, backend);
        let shard = shards.place(std::slice::from_ref(&joining)).expect("there is room")[0];
        assert!(plans[shard].targets.contains(&place), "where its target is");
        shards.join(vec![(shard, joining)]).expect("the shard takes it");
    }
    assert_eq!(fleet.targets.len(), 3);
    assert_eq!(shards.target_count(0) + shards.target_count(1), 3);
    // It parts, and its target stays, for the other pool's backend is judged by it.
    shards.part(&[7 * 64]).expect("the shard takes it");
    assert_eq!(recorder.look(|told| told.parted[0].1.len()), 0);
    let before = servers[0].connections();
    wait_until("its target is probed on", || before + 5 < servers[0].connections());
}

#[test]
fn hundreds_come_and_go_in_flight_and_leave_room_and_ring_as_they_were() {
    let (first, hanging) = (Server::start(), Server::start());
    // Over HTTP the server never answers: most probes are in flight when their backend parts.
    let fleet = fleet(&[first.address], true);
    let room = fleet.target_room();
    let recorder = Recorder::default();
    let mut shards = start(&fleet, 1, &recorder);
    for round in 0..8 {
        let mut all = fleet.clone();
        let mut joining = Vec::new();
        for number in 0..u8::try_from(room).expect("63") {
            let address = SocketAddr::from(([127, 1, round, number + 1], hanging.address.port()));
            let (more, one) = grown(&all, 1 + u32::from(number), address);
            all = more;
            joining.push(one);
        }
        let mut more = joining[0].clone();
        (more.backend, more.judged[0].target) = (70, 70);
        let beyond: Vec<Joining> = joining.iter().cloned().chain([more]).collect();
        assert_eq!(shards.place(&beyond), Err(PlaceError::Full));
        let reports = recorder.look(|told| told.reports);
        // Those of the round before may have a cancel that was not answered yet.
        wait_until("all join", || {
            let placed = shards.place(&joining).expect("there is room");
            shards.join(placed.into_iter().zip(joining.clone()).collect()).is_ok()
        });
        wait_until("they are probed", || {
            reports + 2 * room as u64 <= recorder.look(|told| told.reports)
        });
        let indices: Vec<u32> = joining.iter().map(|one| one.backend).collect();
        shards.part(&indices).expect("the shard takes it");
        assert_eq!(shards.target_count(0), 1);
    }
    assert_eq!(recorder.look(|told| told.orphans), 0, "nobody who parted is reported");
    assert_eq!(shards.counters().map(|counters| counters.stray()).sum::<u64>(), 0);
    shards.stop().expect("it did not fail");
}

#[test]
fn backend_whose_probes_are_several_shards_is_refused_by_name() {
    let server = Server::start();
    let address = server.address;
    let probe = |name: &str, send: &str| {
        format!(
            "[probe.{name}]\ntype = \"tcp\"\ninterval = \"1s\"\ntimeout = \"500ms\"\nsend = \
             \"{send}\"\nexpect = \"x\"\n"
        )
    };
    let text = format!(
        "{}{}[pool.a]\nprobe = \"flat\"\nbackends = [\"{address}\"]\n\
         [pool.b]\nprobe = \"deep\"\nbackends = [\"{address}\"]\n\
         [pool.c]\nprobe = [\"flat\", \"deep\"]\nbackends = [\"127.0.0.2:9\"]\n",
        probe("deep", "d"),
        probe("flat", "f"),
    );
    let fleet = parse(&text, Path::new("t.toml"), &Overrides::default()).expect("right").fleet;
    let shards = start(&fleet, 2, &Recorder::default());
    let plans = split(&fleet, 2);
    let shard_of = |target: usize| plans.iter().position(|plan| plan.targets.contains(&target));
    let [a, b] = [0, 1].map(|pool| fleet.backends[pool].judged[0].target);
    assert_ne!(shard_of(a), shard_of(b), "as many probes on each");
    let newcomer =
        Newcomer { name: None, address: address.into(), weight: 1, origin: Origin::Operator };
    let grown = grow(&fleet, 2, &[(200, newcomer)]).expect("it fits");
    let joining = Joining::of(&grown, grown.backends.last().expect("it was added"));
    assert_eq!(joining.judged.len(), 2);
    assert_eq!(shards.place(&[joining]), Err(PlaceError::Split));
}

/// The last outcome of each target.
#[derive(Default)]
struct Outcomes(HashMap<u32, Outcome>);

impl Sink for Outcomes {
    fn on_change(&mut self, _: &Prober, _: &Change, _: Nanos) {}

    fn on_report(&mut self, _: &Prober, report: &Report, _: Nanos) {
        self.0.insert(report.target.0, report.outcome);
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {}
}

/// Answers each request with 200 when it begins with `begin`, and else with 500.
fn answers(begin: &'static str) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut came = [0; 512];
            let length = stream.read(&mut came).unwrap_or_default();
            let status = if came[..length].starts_with(begin.as_bytes()) { 200 } else { 500 };
            // The test may be over.
            let _nobody_reads = write!(stream, "HTTP/1.1 {status} x\r\n\r\n");
        }
    });
    address
}

#[test]
fn target_that_is_added_is_probed_at_its_own_address_and_leaves_another_its_second() {
    let request = b"GET / HTTP/1.0\r\n\r\n".to_vec();
    let socket = SocketOptions::default();
    let endpoint = |address: SocketAddr, second: Option<SocketAddr>, proxy_v1| Endpoint {
        address: address.into(),
        second: second.map(Into::into),
        request: request.clone(),
        proxy_v1,
        close: CloseMode::Rst,
        socket: socket.clone(),
    };
    let target = |identity, second| TargetSpec {
        identity,
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        second,
        initial: 0,
    };
    let rule = Rule::Window { window: 1, threshold: 1 };
    let plan = Plan {
        probes: vec![ProbeSpec {
            interval_ns: 20_000_000,
            timeout_ns: 5_000_000_000,
            kind: ProbeKind::http(200),
            pace: Pace::STEADY,
            compat: Compat::Varnish { expect_close: false },
        }],
        targets: vec![target(1, Some(Family::Ipv4))],
        judges: vec![JudgeSpec { target: TargetIndex(0), rule, on_unknown: OnUnknown::Keep }],
        slot_count: 4,
        phase_seed: 0,
        past: Vec::new(),
        room: Room { targets: 2, judges: 2 },
    };
    // Nobody listens at the first address.
    let gone = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
    let nobody = gone.local_addr().expect("a bound socket has an address");
    drop(gone);
    let first = endpoint(nobody, Some(answers("GET / ")), false);
    let counters = Arc::new(Counters::default());
    let mut engine = Engine::new(&plan, &[first], Outcomes::default(), counters).expect("it runs");
    let named = endpoint(answers("PROXY TCP4 127.0.0.1 127.0.0.1 "), None, true);
    let added = [named, endpoint(answers("GET / "), None, false)];
    for (identity, endpoint) in (2..).zip(&added) {
        let index = engine.add_target(&target(identity, None), rule, endpoint).expect("room");
        assert_eq!(u128::from(index.0), identity - 1);
        let judge = JudgeSpec { target: index, rule, on_unknown: OnUnknown::Keep };
        engine.add_judge(&judge).expect("room");
    }
    assert_eq!(engine.add_target(&target(4, None), rule, &added[1]), None, "there is no more room");
    let start = Instant::now();
    let good = |outcome: &Outcome| outcome.good() == Some(true);
    while engine.sink().0.len() < 3 || !engine.sink().0.values().all(good) {
        assert!(start.elapsed() < LIMIT, "{:?}", engine.sink().0);
        engine.turn().expect("the ring works");
    }
}
