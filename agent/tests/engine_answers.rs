//! What an engine makes of every kind of server, on real sockets of the loopback.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt};
use sickbay::engine::OutcomeKind;
use sickbay::fleet::CloseMode;
use sickbay_core::command::{
    ChangeCause, LocalFault, Malformed, Outcome, Override, Phase, Verdict,
};
use sickbay_core::plan::{JudgeIndex, TargetIndex};
use sickbay_core::text::Bits;

#[path = "engine/rig.rs"]
mod rig;

use rig::{LIMIT, Rig, Setup, first_outcome, read_request, serve, serve_parts};

const GOOD: Outcome = Outcome::Answered { status: 200, good: true };
/// The slots were others'.
const BUSY: Outcome = Outcome::Indeterminate(LocalFault::NoSlot);
const TIMED_OUT: Outcome = Outcome::TimedOut { phase: Phase::Receive };

/// Responses whose end can be known without a close, in the parts they arrive in.
const FRAMED: [&[&[u8]]; 5] = [
    &[b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"],
    &[b"HTTP/1.1 2", b"00 OK\r\nContent-", b"Length: 2\r\n\r\n", b"o", b"k"],
    &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", b"0\r\n", b"\r\n"],
    &[b"HTTP/1.1 204 No\r\n\r\n"],
    &[b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"],
];

fn unused_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
    listener.local_addr().expect("a bound socket has an address")
}

#[test]
fn good_answer_makes_a_target_healthy() {
    let address = serve_parts(&[b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"]);
    let mut rig = Rig::new(&Setup::one(address, true));
    let report = rig.first_report();
    assert_eq!(report.outcome, GOOD);
    assert_eq!(report.line.as_bytes(), b"HTTP/1.1 200 OK");
    let change = rig.told().changes[0];
    assert_eq!((change.before, change.verdict), (Verdict::Warming, Verdict::Healthy));
    assert_eq!(change.cause, ChangeCause::Probe);
    assert_eq!(rig.told().order, [true, false], "the change is told before the report");
    let registers = rig.engine.prober().history(TargetIndex(0)).registers;
    assert_eq!(Bits(&registers).to_string(), "4---X-RH");
    assert_eq!(rig.counters.outcomes(OutcomeKind::Good), 1);
    assert_eq!(rig.counters.warming(), 0);
    rig.turn_until("its close", |rig| rig.engine.prober().in_flight_count() == 0);
}

#[test]
fn server_that_waits_for_an_ack_before_its_next_part_gets_it_at_once() {
    // Nagle's algorithm, which is on unless a server turns it off: a small part stays behind until
    // the one before is acknowledged. An ACK that is put off comes after 40 ms (TCP_DELACK_MIN).
    let address = serve("127.0.0.1", |mut stream| {
        if !read_request(&mut stream) {
            return;
        }
        let parts = [&b"HTTP/1.1 200 OK\r\n"[..], b"Content-Length: 2\r\n\r\n", b"ok"];
        let _probe_is_gone = parts.into_iter().try_for_each(|part| stream.write_all(part));
        let _closed = stream.read(&mut [0]);
    });
    let probes = (0..5).map(|_| Rig::new(&Setup::one(address, true)).first_report());
    let fastest_ns = probes
        .map(|report| {
            assert_eq!(report.outcome, GOOD);
            report.duration_ns
        })
        .min();
    assert!(fastest_ns < Some(30_000_000), "{fastest_ns:?} ns");
}

#[test]
fn other_status_is_a_bad_answer() {
    let address = serve_parts(&[b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"]);
    assert_eq!(first_outcome(address, true), Outcome::Answered { status: 500, good: false });
}

#[test]
fn refused_connection_fails_in_the_connect() {
    for http in [false, true] {
        let Outcome::Failed { phase: Phase::Connect, errno } =
            first_outcome(unused_address(), http)
        else {
            panic!("a refused connection is a failed connect");
        };
        // The kernel says one or the other (see the lab notes).
        assert!([libc::ECONNREFUSED, libc::ECONNABORTED].contains(&errno), "errno {errno}");
    }
}

#[test]
fn connection_that_opens_is_good_for_a_tcp_probe() {
    let address = serve("127.0.0.1", drop);
    assert_eq!(first_outcome(address, false), Outcome::Connected);
}

#[test]
fn ipv6_target_moves_its_own_register() {
    let address = serve("::1", |mut stream| {
        if read_request(&mut stream) {
            // The probe may be gone: its deadline is its own affair.
            let _gone = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n");
        }
    });
    let mut rig = Rig::new(&Setup::one(address, true));
    assert_eq!(rig.first_report().outcome, GOOD);
    let registers = rig.engine.prober().history(TargetIndex(0)).registers;
    assert_eq!(Bits(&registers).to_string(), "-6--X-RH");
}

#[test]
fn silent_server_is_timed_out_at_the_deadline() {
    let address = serve_parts(&[]);
    let mut setup = Setup::one(address, true);
    setup.timeout = Duration::from_millis(200);
    let report = Rig::new(&setup).first_report();
    assert_eq!(report.outcome, TIMED_OUT);
    assert!((200_000_000..700_000_000).contains(&report.duration_ns), "{}", report.duration_ns);
}

#[test]
fn dripping_server_is_timed_out_at_the_deadline_of_the_whole_probe() {
    let address = serve("127.0.0.1", |mut stream| {
        if !read_request(&mut stream) {
            return;
        }
        for byte in b"HTTP/1.1 200 OK\r\nX: ".iter().chain([b'x'; 1000].iter()) {
            if stream.write_all(&[*byte]).is_err() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    let mut setup = Setup::one(address, true);
    setup.timeout = Duration::from_millis(300);
    let report = Rig::new(&setup).first_report();
    assert_eq!(report.outcome, TIMED_OUT);
    assert!(report.line.as_bytes().starts_with(b"HTTP"), "it received what came");
}

#[test]
fn server_that_closes_without_a_byte_is_an_empty_response() {
    let address = serve("127.0.0.1", |mut stream| {
        read_request(&mut stream);
    });
    assert_eq!(first_outcome(address, true), Outcome::Empty);
}

#[test]
fn reset_inside_the_response_fails_in_the_receive() {
    let address = serve("127.0.0.1", |mut stream| {
        if read_request(&mut stream) {
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n");
            let linger = libc::linger { l_onoff: 1, l_linger: 0 };
            setsockopt(&stream, sockopt::Linger, &linger).expect("TCP has the option");
        }
    });
    let failed = Outcome::Failed { phase: Phase::Receive, errno: libc::ECONNRESET };
    assert_eq!(first_outcome(address, true), failed);
}

#[test]
fn response_that_breaks_off_is_truncated() {
    let address = serve("127.0.0.1", |mut stream| {
        if read_request(&mut stream) {
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nfour");
        }
    });
    assert_eq!(first_outcome(address, true), Outcome::Truncated);
}

#[test]
fn answer_that_is_no_http_is_malformed() {
    let address = serve_parts(&[b"220 mail.example ESMTP\r\n"]);
    assert_eq!(first_outcome(address, true), Outcome::Malformed(Malformed::StatusLine));
}

#[test]
fn probe_ends_with_the_framing_though_the_connection_stays_open() {
    for parts in FRAMED {
        let address = serve_parts(parts);
        let mut setup = Setup::one(address, true);
        setup.timeout = LIMIT;
        let report = Rig::new(&setup).first_report();
        let Outcome::Answered { status: 200 | 204, .. } = report.outcome else {
            panic!("{parts:?} came to {:?}", report.outcome);
        };
        assert!(report.duration_ns < 10_000_000_000, "it waited for the close");
    }
}

#[test]
fn long_response_is_received_in_many_pieces() {
    let address = serve("127.0.0.1", |mut stream| {
        if read_request(&mut stream) {
            let mut response = b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n".to_vec();
            response.resize(response.len() + 50_000, b'x');
            stream.write_all(&response).expect("the probe reads to the end");
        }
    });
    let mut rig = Rig::new(&Setup::one(address, true));
    assert_eq!(rig.first_report().outcome, GOOD);
}

#[test]
fn full_backlog_is_a_black_hole_and_times_out_in_the_connect() {
    let hole = BlackHole::new();
    for http in [false, true] {
        let mut setup = Setup::one(hole.address, http);
        setup.timeout = Duration::from_millis(200);
        let report = Rig::new(&setup).first_report();
        assert_eq!(report.outcome, Outcome::TimedOut { phase: Phase::Connect });
    }
}

#[test]
fn answer_that_is_there_beats_a_deadline_that_a_stalled_loop_missed() {
    let (told, events) = mpsc::channel();
    let address = serve("127.0.0.1", move |mut stream| {
        if read_request(&mut stream) {
            told.send(()).expect("the test listens");
            let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            told.send(()).expect("the test listens");
            let _closed = stream.read(&mut [0]);
        }
    });
    let mut setup = Setup::one(address, true);
    setup.timeout = Duration::from_millis(100);
    let mut rig = Rig::new(&setup);
    rig.turn_until("the request", |_| events.try_recv().is_ok());
    if rig.told().reports.is_empty() {
        // From here on the loop stalls: past the answer, and far past the deadline.
        events.recv_timeout(LIMIT).expect("the server answers");
        let stalled = Instant::now();
        while stalled.elapsed() < Duration::from_millis(150) {
            std::thread::yield_now();
        }
    }
    assert_eq!(rig.first_report().outcome, GOOD);
}

#[test]
fn connection_is_closed_as_it_was_asked_to_be() {
    for (close, rst) in [(CloseMode::Rst, true), (CloseMode::Fin, false)] {
        let (told, ends) = mpsc::channel();
        let address = serve("127.0.0.1", move |mut stream| {
            if read_request(&mut stream) {
                let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
                // The test may have what it wants from an earlier probe.
                let _enough = told.send(stream.read(&mut [0]).map_err(|error| error.kind()));
            }
        });
        let mut setup = Setup::one(address, true);
        setup.close = close;
        let mut rig = Rig::new(&setup);
        rig.first_report();
        rig.turn_until("its close", |rig| rig.engine.prober().in_flight_count() == 0);
        let end = ends.recv_timeout(LIMIT).expect("the server sees the end");
        let expected = if rst { Err(std::io::ErrorKind::ConnectionReset) } else { Ok(0) };
        assert_eq!(end, expected, "{close:?}");
    }
}

#[test]
fn two_slots_serve_every_kind_of_target_in_turn() {
    let (peers, seen) = mpsc::channel();
    let http = |address| {
        let peers = peers.clone();
        serve(address, move |mut stream| {
            if read_request(&mut stream) {
                // The test may have what it wants.
                let _enough = stream.peer_addr().map(|peer| peers.send(peer));
                let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        })
    };
    let (ipv4, ipv6) = (http("127.0.0.1"), http("::1"));
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().expect("an address"), ipv4.port());
    let accepts = serve("127.0.0.1", drop);
    let refused = Outcome::Failed { phase: Phase::Connect, errno: libc::ECONNREFUSED };
    let cases = [
        (ipv4, true, GOOD),
        (accepts, false, Outcome::Connected),
        (ipv6, true, GOOD),
        (mapped, true, GOOD),
        (ipv6, false, Outcome::Connected),
        (unused_address(), true, refused),
        (ipv4, true, GOOD),
    ];
    let mut setup = Setup::one(ipv4, true);
    setup.targets = cases.map(|(address, http, _)| (address, http)).to_vec();
    setup.slots = 2;
    let mut rig = Rig::new(&setup);
    let probed = |rig: &Rig, target| {
        let of_target = rig.told().reports.iter().filter(|it| it.target.0 as usize == target);
        of_target.filter(|it| it.outcome != BUSY).count()
    };
    rig.turn_until("four probes of each", |rig| (0..cases.len()).all(|it| 4 <= probed(rig, it)));
    for report in rig.told().reports.iter().filter(|report| report.outcome != BUSY) {
        let (address, http, expected) = cases[report.target.0 as usize];
        assert_eq!(report.outcome, expected, "{address} {http}");
    }
    // Each is a connection of its own.
    let mut peers: Vec<SocketAddr> = seen.try_iter().collect();
    let connections = peers.len();
    peers.sort_unstable();
    peers.dedup();
    assert!(16 <= connections && peers.len() == connections, "{connections} from {peers:?}");
}

#[test]
fn burst_larger_than_the_ring_loses_nothing() {
    let address = serve("127.0.0.1", drop);
    let mut setup = Setup::one(address, false);
    setup.targets = vec![(address, false); 1000];
    setup.slots = 1000;
    setup.timeout = LIMIT;
    let mut rig = Rig::new(&setup);
    // All are due before the first turn: five times what one submission holds.
    let start = Instant::now();
    while start.elapsed() < setup.interval {
        std::thread::yield_now();
    }
    let target_was_probed = |rig: &Rig, target| {
        let history = rig.engine.prober().history(TargetIndex(target));
        history.outcome == Some(Outcome::Connected)
    };
    rig.turn_until("a probe of each", |rig| (0..1000).all(|target| target_was_probed(rig, target)));
    assert!(0 < rig.counters.ring_full());
    let connected = rig.counters.outcomes(OutcomeKind::Connected);
    assert_eq!(connected, rig.counters.probes(), "none came to anything else");
}

#[test]
fn two_engines_live_in_one_process() {
    let address = serve("127.0.0.1", drop);
    let engines = [0, 1].map(|_| {
        std::thread::spawn(move || {
            let mut rig = Rig::new(&Setup::one(address, false));
            (rig.first_report().outcome, rig.counters.probes())
        })
    });
    for engine in engines {
        assert_eq!(engine.join().expect("no panic"), (Outcome::Connected, 1));
    }
}

#[test]
fn operators_word_is_told_at_once() {
    let address = serve("127.0.0.1", drop);
    let mut rig = Rig::new(&Setup::one(address, false));
    rig.first_report();
    rig.engine.on_override(JudgeIndex(0), Override::Sick);
    let change = rig.told().changes.last().expect("a change");
    assert_eq!((change.before, change.verdict), (Verdict::Healthy, Verdict::Sick));
    assert_eq!(change.cause, ChangeCause::Override);
}

#[test]
fn ticks_come_though_nothing_happens() {
    let mut setup = Setup::one(unused_address(), false);
    setup.interval = Duration::from_secs(3600);
    let mut rig = Rig::new(&setup);
    let start = Instant::now();
    rig.turn_until("ten ticks", |rig| 10 <= rig.told().ticks);
    assert!(Duration::from_millis(180) <= start.elapsed(), "a tick is 20 ms");
}

/// A listener whose backlog is full: it answers no SYN.
struct BlackHole {
    address: SocketAddr,
    _listener: std::os::fd::OwnedFd,
    _filling: Vec<TcpStream>,
}

impl BlackHole {
    fn new() -> Self {
        use nix::sys::socket::{
            AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, getsockname, listen,
            socket,
        };
        use std::os::fd::AsRawFd;
        let flags = SockFlag::SOCK_CLOEXEC;
        let listener = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("socket");
        bind(listener.as_raw_fd(), &SockaddrIn::new(127, 0, 0, 1, 0)).expect("bind");
        listen(&listener, Backlog::new(0).expect("0 is a backlog")).expect("listen");
        let bound: SockaddrIn = getsockname(listener.as_raw_fd()).expect("getsockname");
        let address = SocketAddr::from((bound.ip(), bound.port()));
        let mut filling = Vec::new();
        let soon = Duration::from_millis(200);
        while let Ok(stream) = TcpStream::connect_timeout(&address, soon) {
            filling.push(stream);
            assert!(filling.len() < 16, "a backlog of 0 takes one connection");
        }
        Self { address, _listener: listener, _filling: filling }
    }
}
