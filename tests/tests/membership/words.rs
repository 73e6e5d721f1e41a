//! What operators say over backends: by whom and why, for how long, and over restarts.

use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::Program;
use sickbay_lab::network::Family;
use sickbay_lab::stage::PATIENCE;

use crate::{connections, four_of_six, refused, say, view};

#[test]
fn health_that_was_set_holds_while_another_configuration_is_put_in_force() {
    let stage = four_of_six(Family::V4, Program::Xdp);
    say(&stage, &["backend", "set-health", "backend-1", "sick"]);
    wait_until("it takes no new flows", PATIENCE, || {
        (view(&stage, "backend-1")?["takes_new"] == false).then_some(())
    })
    .unwrap();
    let load = stage.load(Family::V4);
    connections(&load, 100, 0);
    let text = stage.agent.configuration().unwrap();
    for window in [5, 6, 7, 8] {
        stage.agent.rewrite(&text.replace("window = 4", &format!("window = {window}"))).unwrap();
        say(&stage, &["reload"]);
        connections(&load, 100, monotonic_ns());
    }
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    assert_eq!(record.answered_count("backend-1", 0, u64::MAX), 0, "its probes were asked");
}

#[test]
fn words_and_drains_survive_a_kill_and_end_by_themselves() {
    let mut stage = four_of_six(Family::V4, Program::Xdp);
    say(&stage, &["backend", "set-health", "backend-1", "sick", "--reason", "disk \u{1b}swap"]);
    say(&stage, &["backend", "drain", "backend-2", "--reason", "kernel update"]);
    say(&stage, &["backend", "maintenance", "backend-3", "--for", "20s"]);
    wait_until("all of it was told", PATIENCE, || {
        stage.agent.said().contains("web.backend-3 is in maintenance").then_some(())
    })
    .unwrap();
    stage.agent.crash().unwrap();
    stage.agent.start_again().unwrap();
    let started_ns = monotonic_ns();
    let [one, two, three] =
        ["backend-1", "backend-2", "backend-3"].map(|name| view(&stage, name).unwrap());
    assert_eq!((&one["admin"], &one["takes_new"]), (&"sick".into(), &false.into()));
    assert_eq!(one["state"], "healthy", "its probes go on");
    assert_eq!(one["health_said"]["by"], "root");
    assert_eq!(one["health_said"]["reason"], "disk \u{1b}swap");
    assert_eq!((&two["standing"], &two["takes_new"]), (&"draining".into(), &false.into()));
    assert_eq!(two["drain_said"]["reason"], "kernel update");
    assert_eq!((&three["standing"], &three["takes_new"]), (&"maintenance".into(), &false.into()));
    assert!(three["standing_until_unix_ms"].as_u64().is_some());
    // In the list as text nothing of it is more than text.
    let list = say(&stage, &["backend", "list", "-p"]);
    assert!(
        list.contains(r" sick by root since ") && list.contains(r": disk \u{1b}swap"),
        "{list}"
    );
    assert!(!list.contains('\u{1b}'), "{list}");
    let load = stage.load(Family::V4);
    connections(&load, 200, started_ns);
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    let by_four = record.answered_count("backend-4", started_ns, u64::MAX);
    assert_eq!(by_four, record.connections().count(), "nobody else takes new flows");
    wait_until("maintenance has ended by itself", PATIENCE * 2, || {
        (view(&stage, "backend-3")?["standing"] == "member").then_some(())
    })
    .unwrap();
    say(&stage, &["backend", "set-health", "backend-1", "auto"]);
    say(&stage, &["backend", "undrain", "backend-2"]);
    stage.wait_for_healthy(4).unwrap();
    say(&stage, &["backend", "set-health", "backend-4", "sick", "--for", "1s"]);
    wait_until("its time is over", PATIENCE, || {
        (view(&stage, "backend-4")?["admin"] == "auto").then_some(())
    })
    .unwrap();
    stage.wait_for_healthy(4).unwrap();
    let long = "x".repeat(201);
    let error = refused(&stage, &["backend", "set-health", "*", "sick", "--reason", &long]);
    assert!(error.contains("the reason has 201 bytes: 200 are the most"), "{error}");
    for line in [
        r"web.backend-1 is set sick; by root: disk \x1bswap",
        "web.backend-2 is drained: no new flows; those it has go on until they close; by root: \
         kernel update",
        "web.backend-3 is in maintenance: no new flows, no news of it for 20s; by root",
        "web.backend-4 was set for its time, which is over: its probes decide again",
    ] {
        wait_until(&format!("the log tells: {line}"), PATIENCE, || {
            stage.agent.said().contains(line).then_some(())
        })
        .unwrap();
    }
}

#[test]
fn backend_in_maintenance_dies_and_returns_without_a_word() {
    let mut stage = four_of_six(Family::V4, Program::Xdp);
    say(&stage, &["backend", "maintenance", "backend-2", "--reason", "reboot"]);
    stage.servers[1].take().unwrap().stop().unwrap();
    wait_until("it is sick", PATIENCE, || {
        (view(&stage, "backend-2")?["state"] == "sick").then_some(())
    })
    .unwrap();
    stage.restart(1).unwrap();
    wait_until("it is healthy again", PATIENCE, || {
        (view(&stage, "backend-2")?["state"] == "healthy").then_some(())
    })
    .unwrap();
    assert_eq!(view(&stage, "backend-2").unwrap()["takes_new"], false);
    assert!(!stage.agent.said().contains("web.backend-2 went sick"), "{}", stage.agent.said());
    say(&stage, &["backend", "undrain", "backend-2"]);
    stage.wait_for_healthy(4).unwrap();
    stage.servers[1].take().unwrap().stop().unwrap();
    wait_until("now that is news", PATIENCE, || {
        stage.agent.said().contains("web.backend-2 went sick").then_some(())
    })
    .unwrap();
}
