//! What a hundred thousand timed-out probes leave behind, and what a host out of ports is told.
//!
//! Both tests live in network namespaces of their own, which only root can make.

use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use sickbay::engine::OutcomeKind;
use sickbay::fleet::CloseMode;
use sickbay_core::command::{LocalFault, Outcome, Verdict};
use sickbay_core::plan::JudgeIndex;

#[path = "engine/rig.rs"]
#[expect(dead_code, reason = "the tests of the answers use the rest")]
mod rig;

#[path = "engine/network.rs"]
mod network;

use network::{in_own_network, void};
use rig::{LIMIT, Rig, Setup, serve_parts};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const PROBES: u64 = 100_000;

#[test]
fn timed_out_probes_leave_no_descriptor_and_no_socket_behind() {
    in_own_network(|| {
        let address = void();
        let descriptors_before = descriptor_count();
        let sockets_before = sockets_in_use();

        let setup = Setup {
            targets: (0..4000).map(|index| (address, index % 2 == 0)).collect(),
            interval: Duration::from_millis(100),
            timeout: Duration::from_millis(100),
            slots: 8000,
            close: CloseMode::Rst,
            proxy_v1: false,
        };
        let mut rig = Rig::new(&setup);
        let timed_out = |rig: &Rig| rig.counters.outcomes(OutcomeKind::TimedOut);
        let mut descriptors_most = 0;
        for goal in (0..=PROBES).step_by(10_000) {
            rig.turn_until("more timed-out probes", |rig| goal <= timed_out(rig));
            descriptors_most = descriptors_most.max(descriptor_count());
        }
        assert!(PROBES <= timed_out(&rig));
        // The engine stands still meanwhile; the kernel puts closed ones away in its own time.
        wait_until("as few sockets as slots", || {
            sockets_in_use() <= sockets_before + u64::from(setup.slots)
        });
        assert_eq!(descriptors_most, descriptors_before + 1, "the ring's own and no other");
        drop(rig);
        assert_eq!(descriptor_count(), descriptors_before);
        wait_until("the last sockets to go", || sockets_in_use() == sockets_before);
    });
}

#[test]
fn socket_of_a_reset_connection_is_kept_and_no_other() {
    in_own_network(|| {
        let (http, silent) = (serve_parts(&[OK]), void());
        for (close, kept) in [(CloseMode::Rst, 1..=2), (CloseMode::Fin, 0..=0)] {
            let mut setup = Setup::one(http, true);
            setup.targets = vec![(http, true), (http, false), (silent, true)];
            (setup.interval, setup.timeout) =
                (Duration::from_millis(200), Duration::from_millis(100));
            // One after the other through the slots, each leaving its own to another kind.
            (setup.slots, setup.close) = (2, close);
            // The listener; others come and go in the kernel's own time.
            wait_until("those of before to go", || open_sockets() == 1);
            let mut rig = Rig::new(&setup);
            rig.turn_until("probes of each", |rig| {
                let outcome = |kind| rig.counters.outcomes(kind);
                [OutcomeKind::Good, OutcomeKind::Connected, OutcomeKind::TimedOut]
                    .into_iter()
                    .all(|kind| 5 <= outcome(kind))
                    && rig.engine.prober().in_flight_count() == 0
            });
            wait_until("the others to go", || kept.contains(&(open_sockets() - 1)));
            drop(rig);
        }
        wait_until("the last to go", || open_sockets() == 1);
    });
}

#[test]
fn named_connections_that_time_out_give_their_second_descriptor_back() {
    in_own_network(|| {
        let mut setup = Setup::one(void(), true);
        setup.targets = vec![setup.targets[0]; 100];
        (setup.timeout, setup.slots) = (Duration::from_millis(50), 200);
        setup.proxy_v1 = true;
        let descriptors_before = descriptor_count();
        let mut rig = Rig::new(&setup);
        let mut descriptors_most = 0;
        for goal in (0..=1000).step_by(100) {
            rig.turn_until("more timed-out probes", |rig| {
                goal <= rig.counters.outcomes(OutcomeKind::TimedOut)
            });
            descriptors_most = descriptors_most.max(descriptor_count());
        }
        assert!(descriptors_most <= descriptors_before + 1 + setup.targets.len());
        drop(rig);
        assert_eq!(descriptor_count(), descriptors_before);
    });
}

#[test]
fn host_out_of_ports_holds_it_against_no_target() {
    in_own_network(|| {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
        let address = listener.local_addr().expect("a bound socket has an address");
        std::fs::write("/proc/sys/net/ipv4/ip_local_port_range", "40000 40001")
            .expect("this namespace's ports are ours");
        let _taken: Vec<TcpStream> =
            (0..2).map(|_| TcpStream::connect(address).expect("a port is free")).collect();
        let mut setup = Setup::one(address, false);
        setup.interval = Duration::from_millis(50);
        let mut rig = Rig::new(&setup);
        rig.turn_until("five probes", |rig| 5 <= rig.told().reports.len());
        for report in &rig.told().reports {
            let fault = LocalFault::Errno { errno: libc::EADDRNOTAVAIL };
            assert_eq!(report.outcome, Outcome::Indeterminate(fault));
        }
        assert!(rig.told().changes.is_empty());
        assert_eq!(rig.engine.prober().verdict(JudgeIndex(0)), Verdict::Warming);
    });
}

/// Descriptors of this process.
fn descriptor_count() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc is mounted").count()
}

/// TCP sockets of this thread's network namespace that have a port, in any state but TIME_WAIT.
fn sockets_in_use() -> u64 {
    // "alloc" would be those of the whole host, whoever opened them.
    socket_count("TCP:", "inuse")
}

/// Sockets of this thread's network namespace, connected or not.
fn open_sockets() -> u64 {
    socket_count("sockets:", "used")
}

fn socket_count(line: &str, word: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/sockstat").expect("/proc is mounted");
    let line = text.lines().find(|it| it.starts_with(line)).expect("a line of that name");
    let words: Vec<&str> = line.split(' ').collect();
    let at = words.iter().position(|it| *it == word).expect("a count of sockets");
    words[at + 1].parse().expect("a number")
}

#[track_caller]
fn wait_until(what: &str, predicate: impl Fn() -> bool) {
    let start = Instant::now();
    while !predicate() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
