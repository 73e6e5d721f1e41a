//! This host loses its link, and the guard does not take that for the death of its backends.

use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::Program;

use super::stage::{PATIENCE, Town, wait_for_healthy};

const SERVICE: &str = "address = \"198.51.100.1\"\nport = 80\n";

#[test]
fn lost_link_holds_the_last_verdicts_until_an_operator_releases_them() {
    let town = Town::new(4);
    let guard = "[guard]\nshare = \"50%\"\nwithin = \"10s\"\nhold = \"1h\"";
    let agent = town.agent(Program::Xdp, &[("web", "", 0..4)], &format!("{SERVICE}{guard}"));
    let held = || agent.ask_json(&["guard", "list"]).unwrap();
    assert_eq!(held(), serde_json::json!([]));

    town.network.switch.ip("link set to-host down\n").unwrap();
    let view = wait_until("verdicts are held", PATIENCE, || held().get(0).cloned()).unwrap();
    assert_eq!((&view["pool"], &view["fallen"]), (&"web".into(), &3.into()));
    let evidence = "a link of this host went down or its gateway does not answer";
    assert_eq!(view["evidence"], evidence);
    let is_sick = |all: &serde_json::Value| {
        all.as_array().is_some_and(|all| all.iter().all(|backend| backend["state"] == "sick"))
    };
    wait_until("the probes say that all are sick", PATIENCE, || {
        is_sick(&agent.ask_json(&["backend", "list"]).ok()?).then_some(())
    })
    .unwrap();
    wait_for_healthy(&agent, 4);
    wait_until("it is in the journal", PATIENCE, || {
        agent.said().contains("web: 3 backends turned sick at once and").then_some(())
    })
    .unwrap();

    let output = agent.ask(&["guard", "release", "web"]).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "web: released\n");
    wait_for_healthy(&agent, 0);
    town.network.switch.ip("link set to-host up\n").unwrap();
    wait_for_healthy(&agent, 4);
    assert_eq!(town.ask_tcp(20).failed, 0);
}

#[test]
fn one_dead_backend_is_believed_under_a_guard_and_so_are_refusals_of_all() {
    let mut town = Town::new(3);
    let guard = "[guard]\nshare = \"50%\"";
    let agent = town.agent(Program::Xdp, &[("web", "", 0..3)], &format!("{SERVICE}{guard}"));
    town.kill(0);
    wait_for_healthy(&agent, 2);
    town.kill(1);
    town.kill(2);
    // Their hosts say "refused": that is no fault of this one.
    wait_for_healthy(&agent, 0);
    assert_eq!(agent.ask_json(&["guard", "list"]).unwrap(), serde_json::json!([]));
}
