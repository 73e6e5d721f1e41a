//! Many who ask at once, and an agent that has no descriptor left: probing goes on, and no backend
//! is condemned for either.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sickbay_lab::agent::{Agent, RUN_DIRECTORY};
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::Configuration;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures::show;

/// Connections that come at once.
const CROWD: usize = 500;
/// Connections that are served at once; those beyond are told so and closed.
const PLACES: usize = 64;
/// Probes of one target that must be over before it is believed that probing goes on.
const PROBES: u64 = 10;

fn connect(agent: &Agent) -> std::io::Result<UnixStream> {
    let socket = Path::new(RUN_DIRECTORY).join(agent.instance()).join("admin.sock");
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(Duration::from_millis(200)))?;
    Ok(stream)
}

/// When each backend's last result came: in the kernel's own memory, which needs nobody's answer.
fn last_results(agent: &Agent) -> [u64; 2] {
    let board = agent.board().unwrap();
    [0, 1].map(|index| board.target(index).unwrap().last_result_ns)
}

/// Waits until each backend has been probed so many times more.
fn probing_goes_on(agent: &Agent) {
    for _ in 0..PROBES {
        let before = last_results(agent);
        wait_until("every backend has another result", PATIENCE, || {
            let now = last_results(agent);
            now.iter().zip(&before).all(|(now, before)| before < now).then_some(())
        })
        .unwrap();
    }
}

/// Nobody was condemned, now or in between.
fn nobody_was_condemned(agent: &Agent) {
    let status = agent.ask_json(&["status"]).unwrap();
    assert_eq!(status["healthy_count"], 2, "{}", agent.said());
    assert!(!agent.said().contains("went sick"), "{}", agent.said());
}

fn stage() -> Stage {
    let stage = Stage::new(2, &Configuration::usual()).unwrap();
    stage.wait_for_healthy(2).unwrap();
    stage
}

#[test]
fn five_hundred_who_ask_at_once_are_few_and_probing_goes_on() {
    let stage = stage();
    let agent = &stage.agent;
    let mut crowd: Vec<UnixStream> = (0..CROWD).map(|_| connect(agent).unwrap()).collect();
    let mut told = 0;
    for stream in crowd.iter_mut().rev() {
        let mut answer = String::new();
        // Who has a place is silent: nothing comes within the time to read.
        let _silent = stream.read_to_string(&mut answer);
        told += usize::from(answer.contains("all 64 connections to this agent are taken"));
        if CROWD - PLACES <= told {
            break;
        }
    }
    show(&format!("{CROWD} connections: {told} are told that there is no room"));
    assert_eq!(told, CROWD - PLACES);
    let descriptors = format!("/proc/{}/fd", agent.process());
    let open = std::fs::read_dir(descriptors).unwrap().count();
    assert!(open < 2 * PLACES + 100, "{open} descriptors are open");
    probing_goes_on(agent);
    drop(crowd);
    wait_until("an honest request is answered", PATIENCE, || {
        agent.ask_json(&["status"]).ok().map(drop)
    })
    .unwrap();
    nobody_was_condemned(agent);
}

#[test]
fn agent_without_a_descriptor_left_condemns_nobody() {
    let stage = stage();
    let agent = &stage.agent;
    let limit = |soft: usize| {
        let mut command = Command::new("prlimit");
        let process = agent.process().to_string();
        command.args(["--pid", &process, &format!("--nofile={soft}:")]);
        assert!(command.status().unwrap().success());
    };
    let count = || std::fs::read_dir(format!("/proc/{}/fd", agent.process())).unwrap().count();
    limit(count());
    let waiting: Vec<UnixStream> = (0..8).map(|_| connect(agent).unwrap()).collect();
    let complaint = "the admin socket cannot accept: Too many open files";
    wait_until("it has no descriptor for who asks", PATIENCE, || {
        agent.said().contains(complaint).then_some(())
    })
    .unwrap();
    probing_goes_on(agent);
    drop(waiting);
    limit(1024);
    wait_until("an honest request is answered", PATIENCE, || {
        agent.ask_json(&["status"]).ok().map(drop)
    })
    .unwrap();
    nobody_was_condemned(agent);
}
