//! Unix sockets, banners, and what a probe's socket is told, on real sockets of this host.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixName, UnixListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use sickbay::config::{Overrides, parse};
use sickbay::engine::{Address, Counters, Endpoint, Engine, Sink, probe_features};
use sickbay::fleet::{CloseMode, SocketOptions};
use sickbay::shard::{Roster, Shards, split};
use sickbay_core::command::{Change, Outcome, Report, Verdict};
use sickbay_core::pattern::Pattern;
use sickbay_core::plan::{
    Compat, JudgeSpec, Nanos, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind, ProbeSpec, Room, Rule,
    TargetIndex, TargetSpec,
};
use sickbay_core::prober::Prober;
use sickbay_core::text::Bits;

const LIMIT: Duration = Duration::from_secs(30);
const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: 0.0.0.0\r\nConnection: close\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const GOOD: Outcome = Outcome::Answered { status: 200, good: true };

/// Keeps the first report, and the bits after it.
#[derive(Default)]
struct First(Option<(Report, String)>);

impl Sink for First {
    fn on_change(&mut self, _: &Prober, _: &Change, _: Nanos) {}

    fn on_report(&mut self, prober: &Prober, report: &Report, _: Nanos) {
        let bits = Bits(&prober.history(report.target).registers).to_string();
        self.0.get_or_insert((*report, bits));
    }

    fn on_tick(&mut self, _: &Prober, _: Nanos) {}
}

/// What the first probe of the endpoint comes to, with its bits.
#[track_caller]
fn first(endpoint: &Endpoint, kind: ProbeKind) -> (Outcome, String) {
    let rule = Rule::Window { window: 1, threshold: 1 };
    let plan = Plan {
        probes: vec![ProbeSpec {
            interval_ns: 100_000_000,
            timeout_ns: 1_000_000_000,
            kind,
            pace: Pace::STEADY,
            compat: Compat::Off,
        }],
        targets: vec![TargetSpec {
            identity: 1,
            probe: ProbeIndex(0),
            family: endpoint.address.family(),
            initial: 0,
        }],
        judges: vec![JudgeSpec { target: TargetIndex(0), rule, on_unknown: OnUnknown::Keep }],
        slot_count: 2,
        phase_seed: 0,
        room: Room::NONE,
    };
    let endpoints = std::slice::from_ref(endpoint);
    let mut engine = Engine::new(&plan, endpoints, First::default(), Arc::new(Counters::default()))
        .expect("this host runs engines");
    let start = Instant::now();
    loop {
        if let Some((report, bits)) = &engine.sink().0 {
            return (report.outcome, bits.clone());
        }
        assert!(start.elapsed() < LIMIT, "no report within {LIMIT:?}");
        engine.turn().expect("the ring works");
    }
}

fn endpoint(address: Address, request: &[u8]) -> Endpoint {
    let (request, socket) = (request.to_vec(), SocketOptions::default());
    Endpoint { address, request, close: CloseMode::Rst, socket }
}

/// Answers every connection with `answer` once `request` has come; tells where each is from.
fn serve(request: &'static [u8], answer: &'static [u8]) -> (SocketAddr, mpsc::Receiver<IpAddr>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
    let address = listener.local_addr().expect("a bound socket has an address");
    let (from, peers) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, peer)) = listener.accept() {
            let mut came = vec![0; request.len()];
            if stream.read_exact(&mut came).is_ok() && came == request {
                // The test may be over.
                let _nobody_waits = (from.send(peer.ip()), stream.write_all(answer));
            }
        }
    });
    (address, peers)
}

fn serve_unix(listener: UnixListener) {
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut came = vec![0; GET.len()];
            if stream.read_exact(&mut came).is_ok() && came == GET {
                let _nobody_waits = stream.write_all(OK);
            }
        }
    });
}

#[test]
fn unix_socket_is_probed_by_its_file_and_by_its_abstract_name() {
    let path = std::env::temp_dir().join(format!("sickbay-test-{}.sock", std::process::id()));
    let name = format!("sickbay-test-{}", std::process::id());
    let abstract_name = UnixName::from_abstract_name(&name).expect("a short name");
    serve_unix(UnixListener::bind(&path).expect("the directory is ours"));
    serve_unix(UnixListener::bind_addr(&abstract_name).expect("the name is ours"));
    for text in [path.to_str().expect("UTF-8").to_owned(), format!("@{name}")] {
        let address = Address::unix(&text).expect("an address");
        let seen = first(&endpoint(address, GET), ProbeKind::http(200));
        assert_eq!(seen, (GOOD, "--U-X-RH".to_owned()), "{text}");
        let connected = first(&endpoint(address, b""), ProbeKind::Tcp);
        assert_eq!(connected, (Outcome::Connected, "--U----H".to_owned()), "{text}");
    }
    std::fs::remove_file(&path).expect("it is there");
    let gone = Address::unix(path.to_str().expect("UTF-8")).expect("an address");
    let (outcome, bits) = first(&endpoint(gone, GET), ProbeKind::http(200));
    assert!(matches!(outcome, Outcome::Failed { errno: libc::ENOENT, .. }), "{outcome:?}");
    assert_eq!(bits, "--------");
}

#[test]
fn tcp_probe_sends_and_finds_the_bytes_it_waits_for() {
    let (address, _peers) = serve(b"PING\r\n", b"+PONG\r\n");
    let expected = |text: &[u8]| ProbeKind::Banner {
        expected: Pattern::new(text).expect("a pattern"),
        bytes_max: 7,
    };
    let ping = endpoint(address.into(), b"PING\r\n");
    let seen = first(&ping, expected(b"PONG"));
    assert_eq!(seen, (Outcome::Matched, "4---X-RH".to_owned()));
    let seen = first(&ping, expected(b"ERR"));
    assert_eq!(seen, (Outcome::Mismatched, "4---X-R-".to_owned()));
}

#[test]
fn banner_is_awaited_without_sending_anything() {
    let (address, _peers) = serve(b"", b"SSH-2.0-server\r\n");
    let expected = Pattern::new(b"SSH-2.0").expect("a pattern");
    let seen = first(&endpoint(address.into(), b""), ProbeKind::Banner { expected, bytes_max: 99 });
    assert_eq!(seen, (Outcome::Matched, "4---X-RH".to_owned()));
}

#[test]
fn probe_comes_from_the_source_and_by_the_interface_that_are_given() {
    let features = probe_features().expect("this host runs engines");
    let (address, peers) = serve(GET, OK);
    let mut given = endpoint(address.into(), GET);
    given.socket.interface = features.close_by_rst.then(|| "lo".to_owned());
    given.socket.source = features.bind.then(|| IpAddr::from([127, 9, 8, 7]));
    assert_eq!(first(&given, ProbeKind::http(200)).0, GOOD);
    let expected = given.socket.source.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    assert_eq!(peers.recv_timeout(LIMIT), Ok(expected));
}

#[test]
fn socket_that_cannot_be_told_so_says_nothing_about_its_target() {
    if !probe_features().expect("this host runs engines").close_by_rst {
        return;
    }
    let (address, _peers) = serve(GET, OK);
    let mut given = endpoint(address.into(), GET);
    given.socket.interface = Some("nosuchif0".to_owned());
    let (outcome, _) = first(&given, ProbeKind::http(200));
    assert!(matches!(outcome, Outcome::Indeterminate(_)), "{outcome:?}");
}

/// Counts the verdicts that turned healthy.
struct Healthy(Arc<AtomicU32>);

impl Roster for Healthy {}

impl Sink for Healthy {
    fn on_change(&mut self, _: &Prober, change: &Change, _: Nanos) {
        if change.verdict == Verdict::Healthy {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_report(&mut self, _: &Prober, _: &Report, _: Nanos) {}

    fn on_tick(&mut self, _: &Prober, _: Nanos) {}
}

#[test]
fn target_that_two_pools_want_is_connected_to_once_and_each_applies_its_own_rule() {
    let request = b"GET / HTTP/1.0\r\n\r\n";
    let (address, peers) = serve(request, OK);
    let probe = "request = [\"GET / HTTP/1.0\"]\ninterval = \"200ms\"\ntimeout = \"100ms\"\n";
    let text = format!(
        "[probe.quick]\n{probe}window = 1\nthreshold = 1\ninitial = 0\n\
         [probe.slow]\n{probe}window = 3\nthreshold = 3\ninitial = 0\n\
         [pool.a]\nprobe = \"quick\"\nbackends = [\"{address}\"]\n\
         [pool.b]\nprobe = \"slow\"\nbackends = [\"{address}\"]\n"
    );
    let fleet = parse(&text, Path::new("test.toml"), &Overrides::default()).expect("good").fleet;
    assert_eq!((fleet.backends.len(), fleet.targets.len()), (2, 1));
    let healthy = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&healthy);
    let shards = Shards::start(split(&fleet, 1), move |_, _| Healthy(Arc::clone(&seen)));
    let shards = shards.expect("it starts");
    let counters: Vec<Arc<Counters>> = shards.counters().cloned().collect();
    let start = Instant::now();
    while healthy.load(Ordering::Relaxed) < 2 {
        assert!(start.elapsed() < LIMIT, "both pools are healthy in the end");
        std::thread::sleep(Duration::from_millis(2));
    }
    shards.stop().expect("it did not fail");
    // Each probe is one connection, whoever judges it; the last may not have ended.
    let probes = counters.iter().map(|counters| counters.probes()).sum::<u64>();
    let connections = peers.try_iter().count() as u64;
    assert!(3 <= probes, "the slower rule needs three");
    assert!((probes..=probes + 1).contains(&connections), "{connections} for {probes} probes");
}
