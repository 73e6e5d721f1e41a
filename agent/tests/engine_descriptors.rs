//! What a hundred thousand timed-out probes leave behind, and what a host out of ports is told.
//!
//! Both tests live in network namespaces of their own, which only root can make.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, unshare};
use sickbay::engine::OutcomeKind;
use sickbay::fleet::CloseMode;
use sickbay_core::command::{LocalFault, Outcome, Verdict};
use sickbay_core::plan::JudgeIndex;

#[path = "engine/rig.rs"]
#[expect(dead_code, reason = "the tests of the answers use the rest")]
mod rig;

use rig::{LIMIT, Rig, Setup};

const PROBES: u64 = 100_000;
/// The count of descriptors is the process's, so the tests of this file take turns.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

#[test]
fn timed_out_probes_leave_no_descriptor_and_no_socket_behind() {
    in_own_network(|| {
        // No route leads anywhere else, and nobody answers here: a SYN into the void.
        run("ip", &["link", "add", "name", "void0", "type", "veth", "peer", "name", "void1"]);
        run("ip", &["addr", "add", "10.77.0.1/16", "dev", "void0"]);
        run("ip", &["link", "set", "void0", "up"]);
        run("ip", &["link", "set", "void1", "up"]);
        let mac = "02:00:00:00:00:01";
        run(
            "ip",
            &["neigh", "add", "10.77.0.2", "lladdr", mac, "dev", "void0", "nud", "permanent"],
        );
        let descriptors_before = descriptor_count();
        let sockets_before = sockets_in_use();

        let address = SocketAddr::from(([10, 77, 0, 2], 80));
        let setup = Setup {
            targets: (0..4000).map(|index| (address, index % 2 == 0)).collect(),
            interval: Duration::from_millis(100),
            timeout: Duration::from_millis(100),
            slots: 8000,
            close: CloseMode::Rst,
        };
        let mut rig = Rig::new(&setup);
        let timed_out = |rig: &Rig| rig.counters.outcomes(OutcomeKind::TimedOut);
        let mut descriptors_most = 0;
        for goal in (0..=PROBES).step_by(10_000) {
            rig.turn_until("more timed-out probes", |rig| goal <= timed_out(rig));
            descriptors_most = descriptors_most.max(descriptor_count());
        }
        assert!(PROBES <= timed_out(&rig));
        assert!(
            sockets_in_use() <= sockets_before + u64::from(setup.slots),
            "no more sockets than slots"
        );
        assert_eq!(descriptors_most, descriptors_before + 1, "the ring's own and no other");
        drop(rig);
        assert_eq!(descriptor_count(), descriptors_before);
        wait_until("the last sockets to go", || sockets_in_use() == sockets_before);
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

/// Runs the test on a thread with a network namespace of its own, loopback up.
#[track_caller]
fn in_own_network(test: fn()) {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can make a network namespace");
        return;
    }
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = std::thread::spawn(move || {
        unshare(CloneFlags::CLONE_NEWNET).expect("root can make a network namespace");
        run("ip", &["link", "set", "lo", "up"]);
        test();
    });
    if let Err(panic) = thread.join() {
        std::panic::resume_unwind(panic);
    }
}

#[track_caller]
fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("iproute2 is installed");
    assert!(status.success(), "{program} {arguments:?}");
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

#[track_caller]
fn wait_until(what: &str, predicate: impl Fn() -> bool) {
    let start = Instant::now();
    while !predicate() {
        assert!(start.elapsed() < LIMIT, "waited {LIMIT:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
