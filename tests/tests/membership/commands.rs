//! Many at once, a configuration that is read again, and what is refused.

use std::fs;

use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::{Configuration, Program, members};
use sickbay_lab::network::{Family, INTERFACE, Network, PORT};
use sickbay_lab::private;
use sickbay_lab::record::Record;
use sickbay_lab::stage::{PATIENCE, Stage};

use crate::{
    DRAIN, address, assert_nothing_moved, connections, four_of_six, refused, say, view,
    wait_until_gone,
};

#[test]
fn configuration_that_is_read_again_brings_members_and_weights() {
    let base = Configuration { drain: DRAIN, ..Configuration::usual() };
    let first = base.clone();
    let prepare = |network: &Network| {
        let members = members(&network.backends[..4], Family::V4);
        Ok(Configuration { members, ..first })
    };
    let stage = Stage::prepared(6, prepare).unwrap();
    let all = &stage.network.backends;
    let text =
        |lines: String| Configuration { members: lines, ..base.clone() }.text(&stage.network);
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    // 1 weighs more, 4 is gone, 5 has the address of 5, and 6 is new.
    let heavy = members(&all[..1], Family::V4).replace(" }", ", weight = 3 }");
    let wanted = text(heavy + &members(&all[1..3], Family::V4) + &members(&all[4..], Family::V4));
    stage.agent.rewrite(&wanted).unwrap();
    assert_eq!(
        say(&stage, &["reload"]),
        "web.backend-5 added\nweb.backend-6 added\nweb.backend-4 removed\nweb.backend-1 weighed\n\
         2 added, 1 removed, 1 with another weight\n"
    );
    let reloaded_ns = monotonic_ns();
    let generation = || stage.agent.ask_json(&["status"]).unwrap()["generation"].clone();
    assert_eq!(generation(), 2, "another configuration is in force");
    stage.wait_for_healthy(5).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 800, healthy_ns);
    stage.agent.rewrite("[pool.web]\nprobe = 7\n").unwrap();
    let error = refused(&stage, &["reload"]);
    assert!(error.contains("the configuration is wrong: "), "{error}");
    stage.agent.rewrite(&wanted).unwrap();
    stage.agent.hang_up().unwrap();
    wait_until("it was read again", PATIENCE, || {
        stage.agent.said().contains("read again: nothing has changed").then_some(())
    })
    .unwrap();
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    let others = record.kept.iter().filter(|flow| flow.owner() != Some("backend-4"));
    assert_eq!(others.filter(|flow| !flow.stayed()).count(), 0);
    assert_eq!(record.answered_count("backend-4", reloaded_ns, u64::MAX), 0);
    for backend in ["backend-5", "backend-6"] {
        assert!(0 < record.answered_count(backend, healthy_ns, u64::MAX), "{backend}");
    }
    assert_eq!(view(&stage, "backend-1").unwrap()["weight"], 3);
}

#[test]
fn backends_without_a_probe_join_drain_and_leave_as_others_do() {
    let prepare = |network: &Network| {
        let members = members(&network.backends[..4], Family::V4);
        let drain = DRAIN;
        Ok(Configuration { members, drain, pool_probe: "none", ..Configuration::usual() })
    };
    let stage = Stage::prepared(6, prepare).unwrap();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    let to = address(&stage, 4, Family::V4);
    say(&stage, &["backend", "add", "web", &to, "--name", "backend-5"]);
    // Nobody is asked: it takes flows when the command is through.
    let added_ns = monotonic_ns();
    assert_eq!(stage.agent.ask_json(&["status"]).unwrap()["healthy_count"], 5);
    assert_eq!(say(&stage, &["backend", "drain", "backend-2"]), "web.backend-2 draining\n");
    let drained_ns = monotonic_ns();
    let drained = view(&stage, "backend-2").unwrap();
    assert_eq!((&drained["standing"], &drained["takes_new"]), (&"draining".into(), &false.into()));
    assert_eq!(drained["state"], "healthy");
    connections(&load, 800, drained_ns);
    say(&stage, &["backend", "set-health", "backend-2", "sick"]);
    say(&stage, &["backend", "undrain", "backend-2"]);
    stage.wait_for_healthy(4).unwrap();
    let undraining_ns = monotonic_ns();
    say(&stage, &["backend", "set-health", "backend-2", "auto"]);
    stage.wait_for_healthy(5).unwrap();
    connections(&load, 400, monotonic_ns());
    say(&stage, &["backend", "remove", "backend-5"]);
    let removed_ns = monotonic_ns();
    stage.wait_for_healthy(4).unwrap();
    connections(&load, 400, removed_ns);
    wait_until_gone(&stage, "backend-5");
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
    let answered = |backend: &str, from_ns, until_ns| {
        // Those of fixed ports are no sample: see above.
        let short = Record { short: record.short.clone(), ..Record::default() };
        short.answered_count(backend, from_ns, until_ns)
    };
    assert_eq!(answered("backend-2", drained_ns, undraining_ns), 0);
    assert!(0 < answered("backend-2", undraining_ns, u64::MAX));
    assert!(0 < answered("backend-5", added_ns, removed_ns));
    assert_eq!(answered("backend-5", removed_ns, u64::MAX), 0);
}

/// Addresses of each machine in the test of hundreds.
const EACH: usize = 75;

fn many(machine: usize) -> impl Iterator<Item = String> {
    (1..=EACH).map(move |number| format!("10.9.{machine}.{number}:{PORT}"))
}

/// Four machines with 75 addresses each, those of the first two members.
fn hundreds() -> Stage {
    let prepare = |network: &Network| {
        network.host.namespace.ip(&format!("addr add 10.9.255.1/16 dev {INTERFACE}\n"))?;
        for (machine, backend) in (1..).zip(&network.backends) {
            let add = |n| format!("addr add 10.9.{machine}.{n}/16 dev {INTERFACE}\n");
            backend.namespace.ip(&(1..=EACH).map(add).collect::<String>())?;
        }
        let line = |address| format!("    \"{address}\",\n");
        let members = (1..=2).flat_map(many).map(line).collect();
        Ok(Configuration { members, drain: DRAIN, ..Configuration::usual() })
    };
    Stage::prepared(4, prepare).unwrap()
}

#[test]
fn hundreds_come_and_go_at_once() {
    let stage = hundreds();
    stage.wait_for_healthy(150).unwrap();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    let list = private::scratch().join("hundreds.list");
    fs::write(&list, (3..=4).flat_map(many).collect::<Vec<_>>().join("\n")).unwrap();
    let started_ns = monotonic_ns();
    let printed = say(&stage, &["backend", "add", "web", "--file", list.to_str().unwrap()]);
    assert_eq!(printed.lines().count(), 150);
    let added_ms = (monotonic_ns() - started_ns) / 1_000_000;
    // The table was made for 150 and keeps its size: 16,381 over 300 are 54 each, fewer than 100.
    let note =
        "service web: its 16381 slots give the lightest of 300 backends 54: shares are uneven";
    assert!(stage.agent.said().contains(note), "{}", stage.agent.said());
    stage.wait_for_healthy(300).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 400, healthy_ns);
    let started_ns = monotonic_ns();
    let printed = say(&stage, &["backend", "remove", "web.10.9.1.*"]);
    assert_eq!(printed.lines().count(), EACH);
    let removed_ms = (monotonic_ns() - started_ns) / 1_000_000;
    sickbay_tests::figures::show(&format!(
        "150 backends added in {added_ms} ms, {EACH} removed in {removed_ms} ms"
    ));
    let removed_ns = monotonic_ns();
    stage.wait_for_healthy(225).unwrap();
    connections(&load, 400, removed_ns);
    wait_until("all are gone", PATIENCE, || {
        let list = stage.agent.ask_json(&["backend", "list"]).ok()?;
        (list.as_array()?.len() == 225).then_some(())
    })
    .unwrap();
    let gone_ns = monotonic_ns();
    connections(&load, 400, gone_ns);
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    for backend in ["backend-3", "backend-4"] {
        assert!(0 < record.answered_count(backend, healthy_ns, removed_ns), "{backend}");
    }
    assert_eq!(record.answered_count("backend-1", removed_ns, u64::MAX), 0);
    let moved = record.moved_flows("backend-1").filter(|flow| {
        // Fixed ports are new connections each time: they follow the table.
        record.kept.iter().any(|kept| kept.source_port == flow.source_port)
    });
    assert_eq!(moved.count(), 0, "connections of those who stay");
}

#[test]
fn what_cannot_be_is_refused_in_one_line_and_changes_nothing() {
    let stage = four_of_six(Family::V4, Program::Xdp);
    let before = stage.agent.ask_json(&["backend", "list"]).unwrap().as_array().unwrap().len();
    let first = address(&stage, 0, Family::V4);
    let fifth = address(&stage, 4, Family::V4);
    for (words, line) in [
        (vec!["add", "wed", &fifth], "there is no pool \"wed\""),
        (vec!["add", "web", &fifth, &first], "is in pool web already"),
        (vec!["add", "web", &fifth, &fifth], "is in pool web already"),
        (vec!["add", "web", "192.0.2.105"], "add the port"),
        (vec!["add", "web", &fifth, "--name", "backend-1"], "is taken in pool web"),
        (vec!["add", "web", &fifth, "--name", "a*"], "odd character"),
        (vec!["add", "web", &fifth, "--weight", "0"], "out of range"),
        (vec!["add", "web", &fifth, "1.2.3.4:5", "--name", "x"], "--name goes with one address"),
        (vec!["remove", "web.*"], "nobody would be left in it"),
        (vec!["remove", "nobody"], "No Backends matches"),
        (vec!["weight", "backend-1", "1001"], "out of range"),
        (vec!["undrain", "backend-1"], "is drained"),
    ] {
        let words: Vec<&str> = [vec!["backend"], words].concat();
        let error = refused(&stage, &words);
        assert!(error.contains(line), "{}: {error}", words.join(" "));
    }
    let after = stage.agent.ask_json(&["backend", "list"]).unwrap().as_array().unwrap().len();
    assert_eq!(after, before);
    assert!(view(&stage, "backend-5").is_none());
}
