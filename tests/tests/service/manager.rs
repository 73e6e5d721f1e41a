//! What the service manager is told, by an agent held to its unit.

use std::thread;

use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_tests::figures::show;

use super::{PATIENCE, Service, WATCHDOG};

const PING: &str = "WATCHDOG=1";

/// One thread that is stopped where it stands, while the others of its process go on.
struct Hung(Pid);

impl Hung {
    /// Stops the thread of this name; dropped by the same thread, it lets it go on.
    fn new(process: Pid, name: &str) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let task = tasks
            .map(|task| task.unwrap().path())
            .find(|task| std::fs::read_to_string(task.join("comm")).unwrap().trim() == name)
            .unwrap();
        let number = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let thread = Pid::from_raw(number);
        ptrace::seize(thread, ptrace::Options::empty()).unwrap();
        ptrace::interrupt(thread).unwrap();
        waitpid(thread, Some(WaitPidFlag::__WALL)).unwrap();
        Self(thread)
    }
}

impl Drop for Hung {
    /// Lets it go on; in a test that fails too, since a process ends with its last thread.
    fn drop(&mut self) {
        if let Err(errno) = ptrace::detach(self.0, None) {
            eprintln!("the thread {} stays stopped: {errno}", self.0);
        }
    }
}

#[test]
fn manager_is_told_of_start_life_reload_and_end() {
    let mut service = Service::start();
    let (_, before) = service.wait_for("READY=1");
    // start_timeout of 10 s, and the margin.
    assert_eq!(before.first().map(String::as_str), Some("EXTEND_TIMEOUT_USEC=40000000"));
    assert!(before.iter().any(|text| text.starts_with("STATUS=waiting for")), "{before:?}");
    let pins = service.pins().join("links");
    let links = || std::fs::read_dir(&pins).unwrap().count();
    assert_eq!(links(), 1, "ready is attached");
    service.wait_for("STATUS=2 of 2 backends take new flows; 1 service");

    let begin_ns = monotonic_ns();
    for _ in 0..4 {
        service.wait_for(PING);
    }
    let took_ns = monotonic_ns() - begin_ns;
    // Three quarters of the watchdog's time; the first may have waited for this thread a while.
    let least_ns = u64::try_from(WATCHDOG.as_nanos()).unwrap() / 2;
    assert!(least_ns <= took_ns, "four pings in {took_ns} ns are too many");

    let before_us = monotonic_ns() / 1000;
    service.signal(Signal::SIGHUP);
    let (reloading, _) = service.wait_for("RELOADING=1\nMONOTONIC_USEC=");
    let at_us: u64 = reloading.rsplit('=').next().unwrap().parse().unwrap();
    assert!((before_us..=monotonic_ns() / 1000).contains(&at_us), "{reloading}");
    service.wait_for("READY=1");
    assert!(service.said().contains("read again: "), "{}", service.said());
    reload_by_the_socket_is_announced(&service);

    assert!(service.stop().success(), "{}", service.said());
    let told = service.told();
    let ends = told.iter().filter(|text| *text == "STOPPING=1").count();
    assert_eq!(ends, 1, "{told:?}");
    assert_eq!(told.last().map(String::as_str), Some("STOPPING=1"), "nothing comes after it");
    assert_eq!(links(), 1, "steering stays");
}

/// As `systemctl reload` does it: nothing changed, members changed, more than members changed, a
/// mistake. Each time the manager is told that it begins, and then that it is over.
fn reload_by_the_socket_is_announced(service: &Service) {
    let text = std::fs::read_to_string(service.configuration()).unwrap();
    let one_less: Vec<&str> = text.lines().filter(|line| !line.contains("backend-2")).collect();
    for (changed, succeeds) in [
        (text.clone(), true),
        (one_less.join("\n"), true),
        (text.replace("threshold = 3", "threshold = 2"), true),
        (text.replace("threshold = 3", "threshold = 30"), false),
    ] {
        std::fs::write(service.configuration(), changed).unwrap();
        service.told();
        let run_directory = sickbay_lab::agent::RUN_DIRECTORY;
        let words = ["reload", "--instance", &service.instance, "--run-directory", run_directory];
        let output = service.sickbay(&words);
        assert_eq!(output.status.success(), succeeds, "{output:?}\n{}", service.said());
        service.wait_for("RELOADING=1\nMONOTONIC_USEC=");
        service.wait_for("READY=1");
    }
    let output = service.sickbay(&[
        "reload",
        "--dry-run",
        "--instance",
        &service.instance,
        "--run-directory",
        sickbay_lab::agent::RUN_DIRECTORY,
    ]);
    assert!(!output.status.success(), "the mistake is still there");
    let told = service.told();
    assert!(!told.iter().any(|text| text.starts_with("RELOADING")), "only asked: {told:?}");
}

#[test]
fn one_hung_shard_of_two_stops_the_pings_and_they_come_back() {
    let service = Service::start();
    service.wait_for("READY=1");
    service.wait_for(PING);
    let hung = Hung::new(service.process(), "probe-1");
    // The main thread lives, and says so: it is the shard that feeds no watchdog.
    let alarm = "probing thread 1 has given no sign of life";
    wait_until(alarm, PATIENCE, || service.said().contains(alarm).then_some(())).unwrap();
    service.told();
    thread::sleep(2 * WATCHDOG);
    let told = service.told();
    show(&format!("one shard hangs for {WATCHDOG:?} twice: {told:?} is told"));
    assert!(!told.iter().any(|text| text == PING), "{told:?}");
    drop(hung);
    service.wait_for(PING);
}

#[test]
fn stopped_agent_sends_no_ping() {
    let service = Service::start();
    service.wait_for("READY=1");
    service.wait_for(PING);
    service.signal(Signal::SIGSTOP);
    // Until it has stopped, one may still come.
    let state = format!("/proc/{}/stat", service.process());
    wait_until("it has stopped", PATIENCE, || {
        std::fs::read_to_string(&state).unwrap().contains(") T ").then_some(())
    })
    .unwrap();
    service.told();
    thread::sleep(2 * WATCHDOG);
    assert_eq!(service.told(), [""; 0]);
    service.signal(Signal::SIGCONT);
    service.wait_for(PING);
}
