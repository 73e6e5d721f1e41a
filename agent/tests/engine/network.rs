//! Network namespaces of a test's own, which only root can make.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use nix::sched::{CloneFlags, unshare};

/// The count of descriptors is the process's, so the tests of one program take turns.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// An address that nobody answers at: the SYN goes to a host that is not there.
pub(crate) fn void() -> SocketAddr {
    run("ip", &["link", "add", "name", "void0", "type", "veth", "peer", "name", "void1"]);
    run("ip", &["addr", "add", "10.77.0.1/16", "dev", "void0"]);
    run("ip", &["link", "set", "void0", "up"]);
    run("ip", &["link", "set", "void1", "up"]);
    let mac = "02:00:00:00:00:01";
    run("ip", &["neigh", "add", "10.77.0.2", "lladdr", mac, "dev", "void0", "nud", "permanent"]);
    SocketAddr::from(([10, 77, 0, 2], 80))
}

/// Runs the test on a thread with a network namespace of its own, loopback up.
#[track_caller]
pub(crate) fn in_own_network(test: fn()) {
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
pub(crate) fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("iproute2 is installed");
    assert!(status.success(), "{program} {arguments:?}");
}
