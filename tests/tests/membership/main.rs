//! Members come and go under a client's load: who gets new flows, and what moves.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// Many at once, a configuration that is read again, and what is refused.
mod commands;
/// Datagrams of a drained backend.
mod datagrams;
/// Connections while members come and go.
mod flows;
/// A configuration that changes more than members.
mod reload;
/// What operators say over backends.
mod words;

use std::net::SocketAddr;

use serde_json::Value;
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::{Configuration, Program, members};
use sickbay_lab::load::Load;
use sickbay_lab::network::{Family, Network, PORT};
use sickbay_lab::record::Record;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_lab::watch::find;

/// As long as a test takes to see what it is about, on a busy machine too.
const DRAIN: &str = "6s";
const DRAIN_NS: u64 = 6_000_000_000;

/// Six machines, the first four of them members.
fn four_of_six(family: Family, program: Program) -> Stage {
    let prepare = |network: &Network| {
        let members = members(&network.backends[..4], family);
        Ok(Configuration { family, program, members, drain: DRAIN, ..Configuration::usual() })
    };
    Stage::prepared(6, prepare).unwrap()
}

fn address(stage: &Stage, backend: usize, family: Family) -> String {
    SocketAddr::new(stage.network.backends[backend].address(family), PORT).to_string()
}

/// Runs a command that must succeed; what it printed.
#[track_caller]
fn say(stage: &Stage, words: &[&str]) -> String {
    let output = stage.agent.ask(words).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let said = stage.agent.said();
    assert!(output.status.success(), "{}: {error}\n{said}", words.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail; its one line.
#[track_caller]
fn refused(stage: &Stage, words: &[&str]) -> String {
    let output = stage.agent.ask(words).unwrap();
    assert!(!output.status.success(), "{} succeeded", words.join(" "));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    error
}

fn view(stage: &Stage, backend: &str) -> Option<Value> {
    let list = stage.agent.ask_json(&["backend", "list"]).unwrap();
    find(&list, backend).cloned()
}

fn wait_until_gone(stage: &Stage, backend: &str) {
    wait_until(&format!("{backend} is gone"), PATIENCE, || {
        view(stage, backend).is_none().then_some(())
    })
    .unwrap();
}

fn connections(load: &Load, count: usize, from_ns: u64) {
    load.wait_for_connections(count, from_ns, PATIENCE).unwrap();
}

/// What an end of a test must find: nothing failed, no kept connection moved, no packet lost.
fn assert_nothing_moved(stage: &Stage, record: &Record) {
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    assert_eq!(record.kept.len(), 64);
    let moved: Vec<_> = record.kept.iter().filter(|flow| !flow.stayed()).collect();
    assert!(moved.is_empty(), "{} connections moved: {:?}", moved.len(), moved[0]);
    let service = stage.agent.board().unwrap().service_counters(0).unwrap();
    assert_eq!((service.unresolved, service.all_sick_dropped, service.entries_refused), (0, 0, 0));
    let status = stage.agent.ask_json(&["status"]).unwrap();
    assert_eq!(status["packets"]["broken_table"], 0);
}

/// A list of backends that do not answer, one a line: addresses of the backends' network.
fn silent_list(count: usize) -> String {
    (0..count).map(|number| format!("192.0.2.{}:{PORT}\n", 150 + number)).collect()
}
