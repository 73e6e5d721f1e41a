//! A configuration that changes more than members: all of it in force at once, or nothing.

use std::net::SocketAddr;

use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::{Configuration, Program, members};
use sickbay_lab::network::{Family, Network, PORT};
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_shared::abi::TargetRecord;

use crate::{assert_nothing_moved, connections, refused, say, view};

/// Three of the network's backends; what is changed is changed in the text.
fn stage(program: Program) -> (Stage, String) {
    let prepare = |network: &Network| {
        let members = members(&network.backends[..3], Family::V4);
        Ok(Configuration { program, members, drain: "60s", ..Configuration::usual() })
    };
    let stage = Stage::prepared(5, prepare).unwrap();
    let text = stage.agent.configuration().unwrap();
    (stage, text)
}

/// A further pool of the network's last two, and a service over it.
fn second_service(stage: &Stage) -> String {
    let of = |backend: usize| {
        SocketAddr::new(stage.network.backends[backend].address(Family::V4), PORT).to_string()
    };
    format!(
        "[pool.api]\nprobe = \"web\"\nbackends = [\"{}\", \"{}\"]\n\
         [service.api]\naddress = \"198.51.100.2\"\nport = {PORT}\npool = \"api\"\nmode = \"dsr\"\n",
        of(3),
        of(4),
    )
}

/// The record of the target that had this identity, wherever it stands by now.
fn record(stage: &Stage, identity: [u8; 16]) -> TargetRecord {
    let board = stage.agent.board().unwrap();
    let mut records = (0..8).map(|index| board.target(index).unwrap());
    records.find(|record| record.identity == identity).unwrap()
}

fn all_of_it_at_once(program: Program) {
    let (mut stage, text) = stage(program);
    let load = stage.load(Family::V4);
    connections(&load, 300, 0);
    stage.servers[2].take().unwrap().stop().unwrap();
    stage.wait_for_healthy(2).unwrap();
    let changed = text.replace("window = 4\nthreshold = 3", "window = 8\nthreshold = 2")
        + &second_service(&stage);
    stage.agent.rewrite(&changed).unwrap();
    let told = "pool api added\nprobe web changed\nservice api added\n";
    let dry = say(&stage, &["reload", "--dry-run"]);
    let (address_4, address_5) = (view(&stage, "backend-1").is_some(), &dry);
    assert!(address_4 && address_5.contains("would be: 2 added, 0 removed"), "{dry}");
    let services = stage.agent.ask_json(&["service", "list"]).unwrap();
    assert_eq!(services.as_array().unwrap().len(), 1, "nothing has changed yet");
    let before = stage.agent.board().unwrap().target(0).unwrap();
    let reloading_ns = monotonic_ns();
    let done = say(&stage, &["reload"]);
    for line in told.lines() {
        assert!(dry.contains(line) && done.contains(line), "{line}\n{dry}\n{done}");
    }
    let after = record(&stage, before.identity);
    assert_eq!((before.identity, before.changed_ns), (after.identity, after.changed_ns));
    // Ten results at most since: what was there is there.
    let goes_on = |shift: u32| after.registers[7] >> shift == before.registers[7];
    assert!((0..10).any(goes_on), "{:b} {:b}", before.registers[7], after.registers[7]);
    // By its new rule two of eight are enough, and backend-3 has been healthy for longer: its last
    // good results make it healthy at once, and it takes flows until it has failed seven times.
    stage.wait_for_healthy(4).unwrap();
    connections(&load, 400, reloading_ns);
    let record = load.stop();
    let living = record.kept.iter().filter(|flow| flow.owner() != Some("backend-3"));
    assert_eq!(living.filter(|flow| !flow.stayed()).count(), 0);
    let said = stage.agent.said();
    assert!(!said.contains("web.backend-1 went sick"), "{said}");
    assert_eq!(said.matches("web.backend-1 went healthy").count(), 1, "{said}");
}

#[test]
fn rules_pools_and_services_change_at_once_with_xdp() {
    all_of_it_at_once(Program::Xdp);
}

#[test]
fn rules_pools_and_services_change_at_once_with_tc() {
    all_of_it_at_once(Program::Tc);
}

#[test]
fn another_question_leaves_everybody_as_he_was_until_it_is_answered() {
    let (mut stage, text) = stage(Program::Xdp);
    stage.servers[2].take().unwrap().stop().unwrap();
    stage.wait_for_healthy(2).unwrap();
    let load = stage.load(Family::V4);
    connections(&load, 300, 0);
    // Three good answers until the first verdict: that takes longer than the reload.
    let question = "url = \"/\"\ninterval = \"10s\"\ninitial = 0";
    let (start, end) = (text.find("url =").unwrap(), text.find("timeout =").unwrap());
    stage.agent.rewrite(&format!("{}{question}\n{}", &text[..start], &text[end..])).unwrap();
    say(&stage, &["reload"]);
    let reloaded_ns = monotonic_ns();
    let views = ["backend-1", "backend-2", "backend-3"].map(|name| view(&stage, name).unwrap());
    let takes_new = views.each_ref().map(|view| view["takes_new"].as_bool().unwrap());
    assert_eq!(takes_new, [true, true, false], "{views:?}");
    connections(&load, 300, reloaded_ns);
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
}

#[test]
fn backend_that_loses_its_probe_is_in_service_whatever_that_said_last() {
    let (mut stage, text) = stage(Program::Xdp);
    stage.servers[2].take().unwrap().stop().unwrap();
    stage.wait_for_healthy(2).unwrap();
    say(&stage, &["backend", "set-health", "backend-1", "sick"]);
    stage.agent.rewrite(&text.replace("probe = \"web\"", "probe = \"none\"")).unwrap();
    say(&stage, &["reload"]);
    let views = ["backend-1", "backend-2", "backend-3"].map(|name| view(&stage, name).unwrap());
    let takes_new = views.each_ref().map(|view| view["takes_new"].as_bool().unwrap());
    assert_eq!(takes_new, [false, true, true], "what an operator says holds: {views:?}");
}

#[test]
fn what_cannot_be_put_in_force_changes_nothing() {
    let (stage, text) = stage(Program::Xdp);
    let load = stage.load(Family::V4);
    connections(&load, 300, 0);
    let before = stage.agent.ask_json(&["status"]).unwrap();
    let elsewhere = text.replace("interface = \"eth0\"", "interface = \"eth7\"");
    let restart = text.replace("run_directory = \"/run/sickbay\"", "run_directory = \"/run/x\"");
    for (wrong, what) in [
        (elsewhere, "eth7"),
        (restart, "instance and directories are not as they run"),
        ("[pool.web]\nprobe = 7\n".to_owned(), "the configuration is wrong: "),
    ] {
        stage.agent.rewrite(&wrong).unwrap();
        let error = refused(&stage, &["reload"]);
        assert!(error.contains(what), "{error}");
    }
    let after = stage.agent.ask_json(&["status"]).unwrap();
    assert_eq!(before["generation"], after["generation"]);
    assert_eq!(before["attached"], after["attached"]);
    let refused_ns = monotonic_ns();
    connections(&load, 300, refused_ns);
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
}

#[test]
fn words_members_that_leave_and_counters_outlive_a_change() {
    let (stage, text) = stage(Program::Xdp);
    let load = stage.load(Family::V4);
    connections(&load, 300, 0);
    say(&stage, &["backend", "drain", "backend-1", "--reason", "a test"]);
    say(&stage, &["backend", "remove", "backend-2"]);
    let until = view(&stage, "backend-2").unwrap()["standing_until_unix_ms"].as_u64().unwrap();
    let counted = view(&stage, "backend-3").unwrap()["counters"]["new_flows"].as_u64().unwrap();
    assert!(0 < counted);
    let without = text
        .lines()
        .filter(|line| !line.contains("backend-2"))
        .map(|line| format!("{line}\n"))
        .collect::<String>();
    stage.agent.rewrite(&without.replace("window = 4", "window = 6")).unwrap();
    say(&stage, &["reload"]);
    let one = view(&stage, "backend-1").unwrap();
    assert_eq!(
        (&one["standing"], &one["drain_said"]["reason"]),
        (&"draining".into(), &"a test".into())
    );
    let named = format!("{}:{PORT}", stage.network.backends[1].ipv4);
    let list = stage.agent.ask_json(&["backend", "list"]).unwrap();
    // Its name was the configuration's, which has it no more.
    let two = list.as_array().unwrap().iter().find(|it| it["address"] == *named).unwrap();
    assert_eq!(two["standing"], "leaving");
    let left = two["standing_until_unix_ms"].as_u64().unwrap();
    assert!(left.abs_diff(until) < 2_000, "{left} {until}");
    let after = view(&stage, "backend-3").unwrap()["counters"]["new_flows"].as_u64().unwrap();
    assert!(counted <= after, "{counted} {after}");
    stage.agent.hang_up().unwrap();
    wait_until("it was read again", PATIENCE, || {
        stage.agent.said().contains("read again: nothing has changed").then_some(())
    })
    .unwrap();
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
}
