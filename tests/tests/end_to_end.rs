//! End to end: real servers die and return under a client's load, and what the client sees of it.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::thread;
use std::time::Duration;

use sickbay_lab::clock::monotonic_ns;
use sickbay_lab::configuration::{BOUND_MS, Configuration, Program};
use sickbay_lab::load::{Load, Plan};
use sickbay_lab::network::{Family, Network, PORT};
use sickbay_lab::nginx::Nginx;
use sickbay_lab::record::Record;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_lab::watch::{Watch, find};
use sickbay_shared::abi::ServiceCounters;

const BACKEND_COUNT: usize = 8;
const VICTIM: usize = 2;

/// Waits until that many connections were begun at `from_ns` or later and are over.
fn wait_for_connections(load: &Load, count: usize, from_ns: u64) {
    load.wait_for_connections(count, from_ns, PATIENCE).unwrap();
}

/// What was seen of one death and return.
struct Death {
    victim: String,
    asked_ns: u64,
    gone_ns: u64,
    condemned_ns: u64,
    returned_ns: u64,
    acquitted_ns: u64,
    skipped: u64,
    record: Record,
}

fn one_death_and_return(stage: &mut Stage, family: Family) -> Death {
    let load = stage.load(family);
    wait_for_connections(&load, 600, 0);
    let victim = stage.network.backends[VICTIM].name.clone();
    let mut watch = Watch::new(&stage.agent, &victim).unwrap();
    let stopped = stage.servers[VICTIM].take().unwrap().stop().unwrap();
    let seen = watch.until_skipped(PATIENCE).unwrap();
    wait_for_connections(&load, 600, seen.condemned_ns);
    let list = stage.agent.ask_json(&["backend", "list"]).unwrap();
    assert_eq!(find(&list, &victim).unwrap()["state"], "sick");
    let returned_ns = stage.restart(VICTIM).unwrap();
    let acquitted_ns = watch.until_healthy(PATIENCE).unwrap();
    wait_for_connections(&load, 600, acquitted_ns);
    let record = load.stop();
    Death {
        victim,
        asked_ns: stopped.asked_ns,
        gone_ns: stopped.gone_ns,
        condemned_ns: seen.condemned_ns,
        returned_ns,
        acquitted_ns,
        skipped: watch.skipped_count().unwrap(),
        record,
    }
}

fn assert_client_saw_as_little_as_promised(death: &Death) {
    let Death { victim, record, .. } = death;
    let failed_before = record
        .connections()
        .filter(|attempt| attempt.result.is_err() && attempt.finished_ns < death.asked_ns);
    assert_eq!(failed_before.count(), 0, "connections failed before anybody died");
    let failed_after: Vec<_> = record
        .connections()
        .filter(|attempt| death.condemned_ns <= attempt.started_ns && attempt.result.is_err())
        .collect();
    assert!(failed_after.is_empty(), "after the verdict: {failed_after:?}");
    let detected_ns = death.condemned_ns.saturating_sub(death.gone_ns);
    assert!(detected_ns < 2 * BOUND_MS * 1_000_000, "condemned after {detected_ns} ns");

    // Nothing reaches the dead one, and once it is back, new flows do.
    let dead = record.answered_count(victim, death.condemned_ns, death.returned_ns);
    assert_eq!(dead, 0);
    assert!(record.first_answer(victim, death.acquitted_ns).is_some());

    // The flows of the living stay where they are; there are enough of them to tell.
    assert!(64 < record.flows_of_living(victim).count());
    let moved: Vec<u16> = record.moved_flows(victim).map(|flow| flow.source_port).collect();
    assert!(moved.is_empty(), "flows from these ports moved: {moved:?}");

    // The ports that were the victim's go to one living backend each while it is sick.
    let orphans: Vec<_> =
        record.fixed.iter().filter(|flow| flow.owner() == Some(victim.as_str())).collect();
    assert!(!orphans.is_empty(), "no fixed port was the victim's: nothing is shown");
    for flow in orphans {
        let mut answers: Vec<&str> = flow
            .attempts
            .iter()
            .filter(|attempt| death.condemned_ns <= attempt.started_ns)
            .filter(|attempt| attempt.finished_ns <= death.returned_ns)
            .filter_map(|attempt| attempt.result.as_deref().ok())
            .collect();
        answers.dedup();
        assert_eq!(answers.len(), 1, "port {}: {answers:?}", flow.source_port);
    }
}

/// Every counter of service and backends against what the client did.
fn assert_counters_agree(stage: &Stage, death: &Death) {
    let board = stage.agent.board().unwrap();
    let service = board.service_counters(0).unwrap();
    let opened = death.record.connections().count() + death.record.kept.len();
    let opened = u64::try_from(opened).unwrap();
    assert_eq!(service.new_flows, opened, "one new flow for each connection");
    assert_eq!(service.skipped, death.skipped);
    assert!(0 < death.skipped);
    let nothing = ServiceCounters {
        steered_packets: service.steered_packets,
        steered_bytes: service.steered_bytes,
        new_flows: service.new_flows,
        skipped: service.skipped,
        fell_back: service.fell_back,
        affinity_hit: service.affinity_hit,
        affinity_miss: service.affinity_miss,
        entries_written: service.entries_written,
        kept_on_sick: service.kept_on_sick,
        promoted: service.promoted,
        ..ServiceCounters::default()
    };
    assert_eq!(service, nothing, "no packet was dropped or refused");
    assert!(service.entries_written <= service.skipped);
    assert!(0 < service.promoted, "{service:?}");
    assert!(service.promoted <= service.entries_written, "{service:?}");
    assert!(3 * opened < service.steered_packets, "SYN, ACK, request and RST at least");

    let victim = u32::try_from(VICTIM).unwrap();
    let mut sum = ServiceCounters::default();
    for index in 0..u32::try_from(BACKEND_COUNT).unwrap() {
        let backend = board.backend_counters(index).unwrap();
        assert_eq!(backend.skipped, if index == victim { death.skipped } else { 0 });
        assert_eq!(backend.unresolved, 0);
        assert!(index != victim || backend.diverted_in == 0);
        sum.steered_packets += backend.steered_packets;
        sum.steered_bytes += backend.steered_bytes;
        sum.new_flows += backend.new_flows;
        sum.skipped += backend.diverted_in;
    }
    assert_eq!(sum.steered_packets, service.steered_packets);
    assert_eq!(sum.steered_bytes, service.steered_bytes);
    assert_eq!(sum.new_flows, service.new_flows);
    assert_eq!(
        sum.skipped, service.skipped,
        "each skipped flow was diverted into a living backend"
    );
}

fn dead_backend_is_skipped(family: Family, program: Program) {
    let configuration = Configuration { family, program, ..Configuration::usual() };
    let mut stage = Stage::new(BACKEND_COUNT, &configuration).unwrap();
    let death = one_death_and_return(&mut stage, family);
    assert_client_saw_as_little_as_promised(&death);
    assert_counters_agree(&stage, &death);
    assert!(stage.agent.stop().unwrap().success());
}

#[test]
fn dead_backend_is_skipped_with_xdp_over_ipv4() {
    dead_backend_is_skipped(Family::V4, Program::Xdp);
}

#[test]
fn dead_backend_is_skipped_with_xdp_over_ipv6() {
    dead_backend_is_skipped(Family::V6, Program::Xdp);
}

#[test]
fn dead_backend_is_skipped_with_tc_over_ipv4() {
    dead_backend_is_skipped(Family::V4, Program::Tc);
}

#[test]
fn dead_backend_is_skipped_with_tc_over_ipv6() {
    dead_backend_is_skipped(Family::V6, Program::Tc);
}

#[test]
fn observing_counts_what_would_be_done_and_passes_everything() {
    let configuration = Configuration { mode: "observe", ..Configuration::usual() };
    let mut stage = Stage::new(BACKEND_COUNT, &configuration).unwrap();
    let host = &stage.network.host;
    let _server = Nginx::start(&host.namespace, &host.name, PORT).unwrap();
    let death = one_death_and_return(&mut stage, Family::V4);
    let all = death.record.connections().count();
    assert_eq!(death.record.answered_count("host", 0, u64::MAX), all);
    assert!(death.record.kept.iter().all(|flow| flow.stayed() && flow.owner() == Some("host")));
    assert_counters_agree(&stage, &death);
}

#[test]
fn last_living_backend_gets_every_flow() {
    let mut stage = Stage::new(BACKEND_COUNT, &Configuration::usual()).unwrap();
    let last = stage.network.backends[BACKEND_COUNT - 1].name.clone();
    for server in &mut stage.servers[..BACKEND_COUNT - 1] {
        server.take().unwrap().stop().unwrap();
    }
    stage.wait_for_healthy(1).unwrap();
    let load = stage.load(Family::V4);
    wait_for_connections(&load, 400, 0);
    let record = load.stop();
    let all = record.connections().count();
    assert_eq!(record.answered_count(&last, 0, u64::MAX), all);
    assert!(record.kept.iter().all(|flow| flow.owner() == Some(last.as_str())));
}

#[test]
fn nobody_is_chosen_when_all_are_sick_and_the_policy_is_drop() {
    let configuration = Configuration { all_sick: "drop", ..Configuration::usual() };
    let mut stage = Stage::new(2, &configuration).unwrap();
    for server in &mut stage.servers {
        server.take().unwrap().stop().unwrap();
    }
    stage.wait_for_healthy(0).unwrap();
    let record = few_connections(&stage);
    assert!(record.connections().all(|attempt| {
        attempt.result.as_ref().unwrap_err().kind == std::io::ErrorKind::TimedOut
    }));
    let service = stage.agent.board().unwrap().service_counters(0).unwrap();
    assert!(0 < service.all_sick_dropped);
    assert_eq!((service.steered_packets, service.all_sick_open), (0, 0));
    stage.restart(1).unwrap();
    stage.wait_for_healthy(1).unwrap();
    let record = few_connections(&stage);
    assert_eq!(record.failed_count(0, u64::MAX), 0);
}

#[test]
fn somebody_is_chosen_when_all_are_sick_and_the_policy_is_open() {
    let configuration = Configuration { all_sick: "open", ..Configuration::usual() };
    let mut stage = Stage::new(2, &configuration).unwrap();
    for server in &mut stage.servers {
        server.take().unwrap().stop().unwrap();
    }
    stage.wait_for_healthy(0).unwrap();
    let record = few_connections(&stage);
    // The backends' own kernels refuse: the packets came there.
    assert!(record.connections().all(|attempt| {
        attempt.result.as_ref().unwrap_err().kind == std::io::ErrorKind::ConnectionRefused
    }));
    let service = stage.agent.board().unwrap().service_counters(0).unwrap();
    assert_eq!(service.all_sick_open, service.new_flows);
    assert_eq!(service.all_sick_dropped, 0);
    assert!(0 < service.new_flows);
}

#[test]
fn flows_go_on_when_the_agent_crashes() {
    let mut stage = Stage::new(BACKEND_COUNT, &Configuration::usual()).unwrap();
    let load = stage.load(Family::V4);
    wait_for_connections(&load, 200, 0);
    stage.agent.crash().unwrap();
    let crashed_ns = monotonic_ns();
    // Past the heartbeat's limit: a stale board must not turn anybody away either.
    thread::sleep(Duration::from_secs(3));
    wait_for_connections(&load, 600, crashed_ns);
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    assert_eq!(record.moved_flows("nobody").count(), 0);
}

/// What varnishtest's c00048 shows of `backend.set_health`, with steered flows for requests.
#[test]
fn c00048_operators_word_decides_whether_flows_are_served() {
    let configuration = Configuration { all_sick: "drop", ..Configuration::usual() };
    let stage = Stage::new(1, &configuration).unwrap();
    assert!(all_served(&stage));
    set_health(&stage, "sick", 0);
    assert!(none_served(&stage));
    set_health(&stage, "HEALTHY", 1);
    assert!(all_served(&stage));
    set_health(&stage, "Sick", 0);
    set_health(&stage, "auto", 1);
    assert!(all_served(&stage));
}

#[test]
fn c00048_operators_word_stands_over_a_probe_that_fails() {
    // The probe wants what the server never says.
    let configuration =
        Configuration { all_sick: "drop", expected_response: 404, ..Configuration::usual() };
    let stage = Stage::new(1, &configuration).unwrap();
    stage.wait_for_healthy(0).unwrap();
    assert!(none_served(&stage));
    set_health(&stage, "healthy", 1);
    assert!(all_served(&stage));
    let list = stage.agent.ask_json(&["backend", "list"]).unwrap();
    assert_eq!((&list[0]["admin"], &list[0]["state"]), (&"healthy".into(), &"sick".into()));
    set_health(&stage, "auto", 0);
    assert!(none_served(&stage));
}

/// Sets the word for every backend, and waits until so many take flows.
fn set_health(stage: &Stage, word: &str, healthy: u64) {
    let output = stage.agent.ask(&["backend", "set-health", "*", word]).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stage.wait_for_healthy(healthy).unwrap();
}

#[test]
fn backends_without_a_probe_take_flows_from_the_start_and_obey_the_operator() {
    let configuration =
        Configuration { all_sick: "drop", pool_probe: "none", ..Configuration::usual() };
    let stage = Stage::new(2, &configuration).unwrap();
    stage.wait_for_healthy(2).unwrap();
    assert!(all_served(&stage));
    let list = stage.agent.ask(&["backend", "list", "-p"]).unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    assert_eq!(list.lines().count(), 3, "a title, two rows, no results: {list}");
    for row in list.lines().skip(1) {
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words[1..4], ["healthy", "0/0", "healthy"], "{row}");
    }
    let list = stage.agent.ask_json(&["backend", "list"]).unwrap();
    assert_eq!(list[0]["registers"]["bits_H"], u64::MAX.to_string(), "as VBE.*.happy (v00003)");
    for (word, healthy) in [("sick", 0), ("auto", 2)] {
        set_health(&stage, word, healthy);
        assert!(if healthy == 0 { none_served(&stage) } else { all_served(&stage) }, "{word}");
    }
    // Each time two that are told of the word, and two of what became of them.
    let transitions = stage.agent.ask(&["watch", "--old", "--count", "8"]).unwrap();
    let transitions = String::from_utf8(transitions.stdout).unwrap();
    assert_eq!(transitions.matches("went sick: set by an operator").count(), 2, "{transitions}");
    assert_eq!(transitions.matches("went healthy: set by an operator").count(), 2);
}

fn all_served(stage: &Stage) -> bool {
    few_connections(stage).failed_count(0, u64::MAX) == 0
}

/// Every connection waits in vain: its packets are dropped.
fn none_served(stage: &Stage) -> bool {
    let timed_out =
        |error: &sickbay_lab::connection::Failure| error.kind == std::io::ErrorKind::TimedOut;
    few_connections(stage)
        .connections()
        .all(|attempt| attempt.result.as_ref().err().is_some_and(timed_out))
}

/// A few connections, quick to give up.
fn few_connections(stage: &Stage) -> Record {
    let plan = Plan {
        short_per_second: 40,
        kept: 0,
        fixed: 0,
        timeout: Duration::from_millis(500),
        ..Plan::usual(Network::vip(Family::V4))
    };
    let load = Load::start(&stage.network.client.namespace, &plan);
    wait_for_connections(&load, 20, 0);
    load.stop()
}
