//! An attach that fails at its last interface: whatever ran on the others runs there again.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::process::Command;

use sickbay::fleet::{Program, XdpMode};
use sickbay::kernel::{TcHook, detach};
use sickbay_tests::datapath::{attachment, host_with_pair, in_force, link};

const NATIVE: Program = Program::Xdp(XdpMode::Native);
const GENERIC: Program = Program::Xdp(XdpMode::Generic);

/// The ids of the programs of our filters on `one`, as traffic control tells them.
fn filters() -> Vec<u32> {
    let output = Command::new("tc").args(["filter", "show", "dev", "one", "ingress"]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let ours = text.lines().filter(|line| line.contains("sickbay_tc"));
    let id = |line: &str| line.split(" id ").nth(1)?.split(' ').next()?.parse().ok();
    ours.map(|line| id(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

#[test]
fn link_is_updated_back() {
    let host = host_with_pair();
    let mut dead = host.load().unwrap();
    dead.attach(&[attachment("one", NATIVE)]).unwrap();
    drop(dead);
    let pin = host.pins("main").join("links/one-xdp");
    let before = (link(&pin), in_force("one"), host.pinned());
    let mut datapath = host.load().unwrap();
    // Loopback's driver has no XDP.
    let wanted = ["one", "two", "lo"].map(|interface| attachment(interface, NATIVE));
    let error = datapath.attach(&wanted).unwrap_err().to_string();
    assert!(error.starts_with("cannot attach to lo (xdp native): "), "{error}");
    drop(datapath);
    assert_eq!((link(&pin), in_force("one"), host.pinned()), before);
    assert_eq!(in_force("two"), None, "what was new is gone");
}

#[test]
fn link_that_was_replaced_for_its_mode_is_made_again() {
    let host = host_with_pair();
    let mut dead = host.load().unwrap();
    dead.attach(&[attachment("one", NATIVE), attachment("two", GENERIC)]).unwrap();
    drop(dead);
    let before = (in_force("one"), in_force("two"), host.pinned());
    let mut datapath = host.load().unwrap();
    let wanted = [attachment("one", GENERIC), attachment("two", NATIVE), attachment("lo", NATIVE)];
    datapath.attach(&wanted).unwrap_err();
    drop(datapath);
    assert_eq!((in_force("one"), in_force("two"), host.pinned()), before);
    detach(&host.pins("main")).unwrap();
    assert_eq!((in_force("one"), in_force("two")), (None, None), "the pins hold the links");
}

#[test]
fn filter_runs_its_program_again() {
    let host = host_with_pair();
    let mut dead = host.load().unwrap();
    dead.set_tc_hook(TcHook::Clsact);
    dead.attach(&[attachment("one", Program::Tc)]).unwrap();
    drop(dead);
    let before = (filters(), host.pinned());
    assert_eq!(before.0.len(), 1);
    let mut datapath = host.load().unwrap();
    datapath.set_tc_hook(TcHook::Clsact);
    datapath.attach(&[attachment("one", Program::Tc), attachment("lo", NATIVE)]).unwrap_err();
    drop(datapath);
    assert_eq!((filters(), host.pinned()), before);
    // The one that succeeds runs in the same place.
    let mut datapath = host.load().unwrap();
    datapath.set_tc_hook(TcHook::Clsact);
    let attached = datapath.attach(&[attachment("one", Program::Tc)]).unwrap();
    assert!(attached[0].taken_over);
    assert_ne!(filters(), before.0);
    assert_eq!(filters().len(), 1);
    drop(datapath);
    detach(&host.pins("main")).unwrap();
    assert_eq!(filters(), [0; 0]);
}
