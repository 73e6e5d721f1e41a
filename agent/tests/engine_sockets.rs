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

use nix::sys::socket::{getsockopt, sockopt};
use sickbay::address::Address;
use sickbay::config::{Overrides, parse};
use sickbay::engine::{Counters, Endpoint, Engine, Sink, probe_features};
use sickbay::fleet::{CloseMode, SocketOptions};
use sickbay::shard::{Roster, Shards, split};
use sickbay_core::command::{Change, Outcome, Phase, Report, Verdict};
use sickbay_core::pattern::Pattern;
use sickbay_core::plan::{
    Compat, JudgeSpec, Nanos, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind, ProbeSpec, Room, Rule,
    TargetIndex, TargetSpec,
};
use sickbay_core::prober::Prober;
use sickbay_core::text::Bits;

#[path = "engine/network.rs"]
mod network;

use network::{in_own_network, void};

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
    first_as(endpoint, kind, Compat::Off)
}

#[track_caller]
fn first_as(endpoint: &Endpoint, kind: ProbeKind, compat: Compat) -> (Outcome, String) {
    let rule = Rule::Window { window: 1, threshold: 1 };
    let plan = Plan {
        probes: vec![ProbeSpec {
            interval_ns: 100_000_000,
            timeout_ns: 5_000_000_000,
            kind,
            pace: Pace::STEADY,
            compat,
        }],
        targets: vec![TargetSpec {
            identity: 1,
            probe: ProbeIndex(0),
            family: endpoint.address.family(),
            second: None,
            initial: 0,
        }],
        judges: vec![JudgeSpec { target: TargetIndex(0), rule, on_unknown: OnUnknown::Keep }],
        slot_count: 2,
        phase_seed: 0,
        past: Vec::new(),
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
    Endpoint { address, second: None, request, proxy_v1: false, close: CloseMode::Rst, socket }
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
        let seen = first(&endpoint(address.clone(), GET), ProbeKind::http(200));
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

/// What came before the request on a connection; it is answered.
fn before_request(mut stream: impl Read + Write) -> String {
    let mut came = Vec::new();
    let mut byte = [0];
    while !came.ends_with(GET) && stream.read_exact(&mut byte).is_ok() {
        came.push(byte[0]);
    }
    // The test fails by itself when this does.
    let _sent = stream.write_all(OK);
    came.truncate(came.len().saturating_sub(GET.len()));
    String::from_utf8(came).expect("a header of version 1 is ASCII")
}

#[test]
fn proxy_header_of_version_1_names_the_connections_own_address() {
    let ipv4 = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let ipv6 = TcpListener::bind("[::1]:0").expect("loopback can be bound");
    let at = |listener: &TcpListener| listener.local_addr().expect("it is bound");
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().expect("an address"), at(&ipv4).port());
    for compat in [Compat::Off, Compat::VARNISH] {
        for (listener, address, family) in [
            (&ipv4, at(&ipv4), "TCP4"),
            (&ipv6, at(&ipv6), "TCP6"),
            // By its IPv4 address, as Varnish 7.1.1 writes it.
            (&ipv4, mapped, "TCP6"),
        ] {
            let listener = listener.try_clone().expect("a descriptor is free");
            let server = std::thread::spawn(move || {
                let (stream, peer) = listener.accept().expect("the probe connects");
                (before_request(stream), peer)
            });
            let mut given = endpoint(address.into(), GET);
            given.proxy_v1 = true;
            let (outcome, bits) = first_as(&given, ProbeKind::http(200), compat);
            let (header, peer) = server.join().expect("the server does not panic");
            let (ip, port) = (peer.ip(), peer.port());
            assert_eq!(header, format!("PROXY {family} {ip} {ip} {port} {port}\r\n"));
            assert_eq!((outcome, &bits[2..]), (GOOD, "--X-RH"), "{header}");
        }
    }
}

#[test]
fn proxy_header_of_version_1_says_unknown_on_a_unix_socket_and_precedes_what_tcp_sends() {
    let name = format!("sickbay-proxy-{}", std::process::id());
    let abstract_name = UnixName::from_abstract_name(&name).expect("a short name");
    let unix = UnixListener::bind_addr(&abstract_name).expect("the name is ours");
    let server =
        std::thread::spawn(move || before_request(unix.accept().expect("the probe connects").0));
    let mut given = endpoint(Address::unix(&format!("@{name}")).expect("an address"), GET);
    given.proxy_v1 = true;
    assert_eq!(first(&given, ProbeKind::http(200)), (GOOD, "--U-X-RH".to_owned()));
    assert_eq!(server.join().expect("it does not panic"), "PROXY UNKNOWN\r\n");

    // A server that speaks first sees the header of a probe that sends nothing else.
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    given = endpoint(listener.local_addr().expect("it is bound").into(), b"");
    given.proxy_v1 = true;
    let server = std::thread::spawn(move || {
        let (mut stream, peer) = listener.accept().expect("the probe connects");
        let expected = format!("PROXY TCP4 {0} {0} {1} {1}\r\n", peer.ip(), peer.port());
        let mut came = vec![0; expected.len()];
        stream.read_exact(&mut came).expect("a header comes");
        assert_eq!(came, expected.as_bytes());
        stream.write_all(b"220 ready\r\n").expect("the probe waits");
    });
    let expected = Pattern::new(b"220").expect("a pattern");
    let seen = first(&given, ProbeKind::Banner { expected, bytes_max: 64 });
    server.join().expect("the header is right");
    assert_eq!(seen, (Outcome::Matched, "4---X-RH".to_owned()));
}

#[test]
fn refused_connection_that_was_to_be_named_is_refused_all_the_same() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let address = listener.local_addr().expect("it is bound");
    drop(listener);
    let mut given = endpoint(address.into(), GET);
    given.proxy_v1 = true;
    let (outcome, bits) = first(&given, ProbeKind::http(200));
    assert!(matches!(outcome, Outcome::Failed { phase: Phase::Connect, .. }), "{outcome:?}");
    assert_eq!(bits, "--------");
}

/// Reads the request, answers with a body that takes many receives, and closes.
fn answer_at_length(mut stream: impl Read + Write) {
    let mut came = vec![0; GET.len()];
    if stream.read_exact(&mut came).is_ok() {
        let body = vec![b'x'; 10_000_000];
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n";
        // The test fails by itself when this does.
        let _sent = stream.write_all(head).and_then(|()| stream.write_all(&body));
    }
}

#[test]
fn large_body_is_drained_to_its_end_as_varnish_does() {
    let path = std::env::temp_dir().join(format!("sickbay-body-{}.sock", std::process::id()));
    let unix = UnixListener::bind(&path).expect("the directory is ours");
    let ipv4 = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
    let ipv6 = TcpListener::bind("[::1]:0").expect("loopback can be bound");
    let cases = [
        (Address::unix(path.to_str().expect("UTF-8")).expect("an address"), "--U-X-RH"),
        (ipv4.local_addr().expect("it is bound").into(), "4---X-RH"),
        (ipv6.local_addr().expect("it is bound").into(), "-6--X-RH"),
    ];
    std::thread::spawn(move || unix.incoming().flatten().for_each(answer_at_length));
    for listener in [ipv4, ipv6] {
        std::thread::spawn(move || listener.incoming().flatten().for_each(answer_at_length));
    }
    for (address, bits) in cases {
        let seen = first_as(&endpoint(address.clone(), GET), ProbeKind::http(200), Compat::VARNISH);
        assert_eq!(seen, (GOOD, bits.to_owned()), "{address}");
    }
    std::fs::remove_file(&path).expect("it is there");
}

#[test]
fn probe_comes_from_the_source_and_by_the_interface_that_are_given() {
    let features = probe_features().expect("this host runs engines");
    let (address, peers) = serve(GET, OK);
    let mut given = endpoint(address.into(), GET);
    given.socket.interface = features.socket_options.then(|| "lo".to_owned());
    given.socket.source = features.bind.then(|| IpAddr::from([127, 9, 8, 7]));
    assert_eq!(first(&given, ProbeKind::http(200)).0, GOOD);
    let expected = given.socket.source.unwrap_or(IpAddr::from([127, 0, 0, 1]));
    assert_eq!(peers.recv_timeout(LIMIT), Ok(expected));
}

#[test]
fn probe_carries_its_mark() {
    in_own_network(|| {
        // What the server accepts then has the mark of the SYN.
        std::fs::write("/proc/sys/net/ipv4/tcp_fwmark_accept", "1").expect("a setting of ours");
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
        let address = listener.local_addr().expect("it is bound");
        for mark in [None, Some(7), Some(0x8000_0001)] {
            let mut given = endpoint(address.into(), b"");
            given.socket.mark = mark;
            assert_eq!(first(&given, ProbeKind::Tcp).0, Outcome::Connected);
            let (accepted, _) = listener.accept().expect("the probe connected");
            let seen = getsockopt(&accepted, sockopt::Mark).expect("root may ask");
            assert_eq!(seen, mark.unwrap_or(0));
        }
    });
}

#[test]
fn probe_leaves_by_its_interface_alone() {
    in_own_network(|| {
        let _nobody = void();
        let listener = TcpListener::bind("127.0.0.1:0").expect("loopback can be bound");
        let mut given = endpoint(listener.local_addr().expect("it is bound").into(), b"");
        given.socket.interface = Some("lo".to_owned());
        assert_eq!(first(&given, ProbeKind::Tcp).0, Outcome::Connected);
        // The same address, but by a wire on which nobody has it.
        given.socket.interface = Some("void0".to_owned());
        let (outcome, _) = first(&given, ProbeKind::Tcp);
        assert_ne!(outcome.good(), Some(true), "{outcome:?}");
    });
}

#[test]
fn socket_that_cannot_be_told_so_says_nothing_about_its_target() {
    if !probe_features().expect("this host runs engines").socket_options {
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
