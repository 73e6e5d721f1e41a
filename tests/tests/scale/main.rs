//! Ten thousand targets at one probe a second on one shard, for half a minute: all of them well, and
//! every tenth a black hole.

/// The targets and their probe.
mod fleet;
/// What this process holds.
mod held;
/// The running shard.
mod run;
/// What the shard's probes come to.
mod watch;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use nix::sched::{CloneFlags, CpuSet, sched_getaffinity, unshare};
use nix::unistd::{Pid, gettid};
use sickbay_core::plan::Nanos;
use sickbay_lab::clock::wait_until;
use sickbay_tests::farm::Farm;
use sickbay_tests::figures;

use held::{descriptor_count, resident_kib, sockets_in_use};
use run::Run;

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
    let stood_seconds = run.stood_seconds();
    let watch = run.stop();

    figures::show(&format!("{TARGETS} targets; resident memory +{resident_kib} KiB"));
    watch.holds_of_the_living(TARGETS);
    assert_eq!(watch.sick.load(Ordering::Relaxed), 0, "targets that are sick at the end");
    probed_each_second(&farm, 0..TARGETS, SECONDS, stood_seconds);
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
    let stood_seconds = run.stood_seconds();
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
    probed_each_second(&farm, living, WARM_UP_SECONDS + SECONDS, stood_seconds);
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
    // The shard takes the first CPU; the farm keeps to the last.
    Farm::start(PORT, TARGETS, *cpus().last().expect("a thread runs somewhere"))
}

/// Where this thread may run.
fn cpus() -> Vec<usize> {
    let mask = sched_getaffinity(Pid::from_raw(0)).expect("this thread has a mask");
    (0..CpuSet::count()).filter(|cpu| mask.is_set(*cpu).unwrap_or(false)).collect()
}

/// The farm's own count: what falls into a second in which this machine stood is not made up for.
#[track_caller]
fn probed_each_second(
    farm: &Farm,
    living: impl Iterator<Item = u32>,
    seconds: u32,
    stood_seconds: u32,
) {
    for index in living {
        let requests = farm.requests(index);
        let address = farm.address(index);
        assert!(
            (seconds - 1 - stood_seconds..=seconds + 1).contains(&requests),
            "{address} was probed {requests} times in {seconds} s; {stood_seconds} s of standstill"
        );
    }
}
