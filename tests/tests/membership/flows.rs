//! Connections: whom new ones go to while members come and go, and that kept ones stay.

use std::fs;

use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::Program;
use sickbay_lab::network::Family;
use sickbay_lab::private;
use sickbay_lab::record::Record;
use sickbay_lab::stage::PATIENCE;

use crate::{
    DRAIN_NS, address, assert_nothing_moved, connections, four_of_six, refused, say, silent_list,
    view, wait_until_gone,
};

fn added_backend_gets_its_share(family: Family, program: Program) {
    let stage = four_of_six(family, program);
    let load = stage.load(family);
    connections(&load, 400, 0);
    let to = address(&stage, 4, family);
    let printed = say(&stage, &["backend", "add", "web", &to, "--name", "backend-5"]);
    assert_eq!(printed, "web.backend-5 added\n");
    stage.wait_for_healthy(5).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 800, healthy_ns);
    // Two more changes within one drain.
    say(&stage, &["backend", "weight", "backend-1", "3"]);
    let to = address(&stage, 5, family);
    say(&stage, &["backend", "add", "web", &to, "--name", "backend-6"]);
    stage.wait_for_healthy(6).unwrap();
    let six_ns = monotonic_ns();
    connections(&load, 800, six_ns);
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
    // One of five. Of some 300 new ports, spread by a hash: four standard deviations are 0.09.
    let answered = |backend: &str, from_ns, until_ns| {
        // Those of fixed ports are no sample: a SYN from the port of a moment ago is taken for a
        // retransmission, and stays where that one was.
        let short = Record { short: record.short.clone(), ..Record::default() };
        let all = short.connections().filter(|it| (from_ns..until_ns).contains(&it.started_ns));
        short.answered_count(backend, from_ns, until_ns) as f64 / all.count() as f64
    };
    let share = answered("backend-5", healthy_ns, six_ns);
    assert!((0.11..0.29).contains(&share), "{share}");
    // Three of eight, and one of eight.
    let share = answered("backend-1", six_ns, u64::MAX);
    assert!((0.28..0.48).contains(&share), "{share}");
    let share = answered("backend-6", six_ns, u64::MAX);
    assert!((0.06..0.20).contains(&share), "{share}");
    assert_eq!(view(&stage, "backend-1").unwrap()["weight"], 3);
}

#[test]
fn added_backend_gets_its_share_and_moves_nobody_with_xdp_over_ipv4() {
    added_backend_gets_its_share(Family::V4, Program::Xdp);
}

#[test]
fn added_backend_gets_its_share_and_moves_nobody_with_tc_over_ipv6() {
    added_backend_gets_its_share(Family::V6, Program::Tc);
}

#[test]
fn drained_backend_gets_no_new_flow_and_keeps_those_it_has() {
    let stage = four_of_six(Family::V4, Program::Xdp);
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    assert_eq!(say(&stage, &["backend", "drain", "backend-2"]), "web.backend-2 draining\n");
    let drained_ns = monotonic_ns();
    let two = view(&stage, "backend-2").unwrap();
    assert_eq!((&two["standing"], &two["takes_new"]), (&"draining".into(), &false.into()));
    assert_eq!(two["state"], "healthy", "its probes go on");
    connections(&load, 800, drained_ns);
    let undraining_ns = monotonic_ns();
    say(&stage, &["backend", "undrain", "backend-2"]);
    let undrained_ns = monotonic_ns();
    assert_eq!(view(&stage, "backend-2").unwrap()["standing"], "member");
    connections(&load, 800, undrained_ns);
    say(&stage, &["backend", "drain", "backend-2", "--for", "1s"]);
    wait_until("its time is over", PATIENCE, || {
        let two = view(&stage, "backend-2")?;
        (two["standing"] == "drained").then_some(())
    })
    .unwrap();
    let over_ns = monotonic_ns();
    connections(&load, 400, over_ns);
    let record = load.stop();
    // TCP's on_sick is `keep`: also those of one whose time is over.
    assert_nothing_moved(&stage, &record);
    let kept = record.kept.iter().filter(|flow| flow.owner() == Some("backend-2")).count();
    assert!(3 < kept, "backend-2 had {kept} connections: nothing is shown");
    assert_eq!(record.answered_count("backend-2", drained_ns, undraining_ns), 0);
    assert!(0 < record.answered_count("backend-2", undrained_ns, over_ns));
    assert_eq!(record.answered_count("backend-2", over_ns, u64::MAX), 0);
    let said = stage.agent.said();
    for line in [
        "web.backend-2 is drained: no new flows; those it has go on until they close",
        "web.backend-2 is drained no more: it takes new flows when healthy",
        "web.backend-2 is drained: no new flows; those it has go on for 1s",
        "web.backend-2 has been drained for its time: on_sick says what its flows do",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

#[test]
fn removed_backend_serves_its_flows_for_a_drain_and_its_index_then_serves_another() {
    let stage = four_of_six(Family::V4, Program::Xdp);
    let index = view(&stage, "backend-3").unwrap()["index"].clone();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    // The drain begins between these two.
    let removing_ns = monotonic_ns();
    assert_eq!(say(&stage, &["backend", "remove", "backend-3"]), "web.backend-3 removed\n");
    let removed_ns = monotonic_ns();
    assert_eq!(view(&stage, "backend-3").unwrap()["standing"], "leaving");
    connections(&load, 600, removed_ns);
    wait_until_gone(&stage, "backend-3");
    assert!(DRAIN_NS <= monotonic_ns() - removing_ns, "it was gone before its drain had ended");
    // 60 of the 64 indices were never used: they come first, and then that of backend-3.
    let list = private::scratch().join("silent.list");
    fs::write(&list, silent_list(60)).unwrap();
    say(&stage, &["backend", "add", "web", "--file", list.to_str().unwrap()]);
    let room = refused(&stage, &["backend", "add", "web", "192.0.2.98:80", "192.0.2.99:80"]);
    assert!(room.contains("pool web has room for 1 more backends now, and 2 are"), "{room}");
    let to = address(&stage, 5, Family::V4);
    say(&stage, &["backend", "add", "web", &to, "--name", "backend-6"]);
    assert_eq!(view(&stage, "backend-6").unwrap()["index"], index);
    stage.wait_for_healthy(4).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 800, healthy_ns);
    let record = load.stop();
    assert_eq!(record.answered_count("backend-3", removed_ns, u64::MAX), 0);
    assert!(0 < record.answered_count("backend-6", healthy_ns, u64::MAX));
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    let (gone, living): (Vec<_>, Vec<_>) =
        record.kept.iter().partition(|flow| flow.owner() == Some("backend-3"));
    assert!(3 < gone.len(), "backend-3 had {} connections: nothing is shown", gone.len());
    let moved = living.iter().filter(|flow| !flow.stayed()).count();
    assert_eq!(moved, 0, "connections of the living");
    for flow in gone {
        let mut within = flow
            .attempts
            .iter()
            .filter(|attempt| attempt.finished_ns < removing_ns + DRAIN_NS - 500_000_000);
        assert!(within.all(|attempt| attempt.result.as_deref() == Ok("backend-3")));
        let strays = flow.attempts.iter().filter(|attempt| {
            attempt.result.as_deref().is_ok_and(|backend| backend != "backend-3")
        });
        assert_eq!(strays.count(), 0, "a connection of one that is gone cannot be another's");
    }
    let said = stage.agent.said();
    assert!(said.contains("web.backend-3 was removed: its flows go on for 6s"), "{said}");
    assert!(said.contains("web.backend-3 is gone: its drain has ended"), "{said}");
}

#[test]
fn one_that_is_added_again_before_it_is_gone_keeps_its_flows() {
    let stage = four_of_six(Family::V4, Program::Tc);
    let index = view(&stage, "backend-3").unwrap()["index"].clone();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    say(&stage, &["backend", "remove", "backend-3"]);
    let removed_ns = monotonic_ns();
    connections(&load, 300, removed_ns);
    let to = address(&stage, 2, Family::V4);
    let other = refused(&stage, &["backend", "add", "web", &to, "--name", "other"]);
    assert!(other.contains("is still leaving as web.backend-3"), "{other}");
    say(&stage, &["backend", "add", "web", &to]);
    let added_ns = monotonic_ns();
    let three = view(&stage, "backend-3").unwrap();
    assert_eq!((&three["standing"], &three["index"]), (&"member".into(), &index));
    // Past the drain that it would have ended with.
    wait_until("the drain has passed", PATIENCE, || {
        (removed_ns + DRAIN_NS + 1_000_000_000 < monotonic_ns()).then_some(())
    })
    .unwrap();
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
    assert!(0 < record.answered_count("backend-3", added_ns, u64::MAX));
}
