//! Few backends are healthy, or none: backup, panic, stale verdicts, and what is told of it.

use sickbay_lab::agent::Agent;
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::Program;

use super::stage::{PATIENCE, PORT_FIRST, Town, configuration_of, counters, wait_for_healthy};

const SERVICE: &str = "address = \"198.51.100.1\"\nport = 80";

/// Exit status and words of `sickbay ready web`.
fn ready(agent: &Agent) -> (Option<i32>, String) {
    let output = agent.ask(&["ready", "web"]).unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn backup_pool_takes_new_flows_when_the_pool_has_none_and_ready_says_so() {
    let mut town = Town::new(3);
    let pools = [("web", "", 0..2), ("sorry", "", 2..3)];
    let keys = format!("{SERVICE}\nbackup = \"sorry\"\nall_sick = \"drop\"");
    let agent = town.agent(Program::Xdp, &pools, &keys);
    let backup = town.network.backends[2].name.clone();
    assert_eq!(town.ask_tcp(20).of(&backup), 0, "it is a backup");
    let (code, text) = ready(&agent);
    assert_eq!(
        (code, text.as_str()),
        (Some(0), "web: ready: 2 of 2 backends of pool web take new flows\n")
    );

    town.kill(0);
    town.kill(1);
    wait_for_healthy(&agent, 1);
    let answers = town.ask_tcp(20);
    assert_eq!((answers.of(&backup), answers.failed), (20, 0));
    assert_eq!(counters(&agent).backup, 20);
    let (code, text) = ready(&agent);
    assert_eq!(code, Some(0));
    assert!(
        text.contains("so the backup: 1 of 1 backends of pool sorry takes new flows"),
        "{text}"
    );

    town.kill(2);
    wait_for_healthy(&agent, 0);
    let (code, text) = ready(&agent);
    assert_eq!(code, Some(3), "{text}");
    assert!(text.starts_with("web: not ready: "), "{text}");
    assert_eq!(town.ask_tcp(2).failed, 2);
    assert_eq!(agent.ask(&["ready", "wed"]).unwrap().status.code(), Some(1));
}

#[test]
fn refused_at_once_when_nobody_takes_new_flows_and_the_service_says_reset() {
    let mut town = Town::new(2);
    let keys = format!("{SERVICE}\nall_sick = \"reset\"");
    for program in [Program::Xdp, Program::Tc] {
        let agent = town.agent(program, &[("web", "", 0..2)], &keys);
        assert_eq!(town.ask_tcp(4).failed, 0);
        town.kill(0);
        town.kill(1);
        wait_for_healthy(&agent, 0);
        // Refused by the kernel program: these hosts' own stacks would do it too, but no packet
        // reaches them.
        let refused = town.connect(4);
        assert_eq!(refused, [std::io::ErrorKind::ConnectionRefused; 4], "{program:?}");
        let counted = counters(&agent);
        assert_eq!((counted.reset, counted.all_sick_dropped), (4, 0), "{counted:?}");
        town.revive(0);
        town.revive(1);
        wait_for_healthy(&agent, 2);
        assert!(agent.stop().unwrap().success());
    }
}

#[test]
fn ready_is_answered_by_the_pinned_maps_when_the_agent_is_dead() {
    let mut town = Town::new(2);
    let mut agent = town.agent(Program::Xdp, &[("web", "", 0..2)], SERVICE);
    town.kill(0);
    wait_for_healthy(&agent, 1);
    let instance = agent.pin_directory().file_name().unwrap().to_string_lossy().into_owned();
    agent.crash().unwrap();
    assert_eq!(agent.ask(&["ready", "web"]).unwrap().status.code(), Some(4));
    let file = configuration_of(&instance).to_string_lossy().into_owned();
    let output = agent.ask(&["ready", "web", "-c", &file]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text}");
    let words = "web: ready: 1 of 2 backends of pool web takes new flows (no agent runs: the last";
    assert!(text.starts_with(words), "{text}");
    assert_eq!(agent.ask(&["ready", "x", "-c", &file]).unwrap().status.code(), Some(1));
}

#[test]
fn drops_tell_who_was_turned_away_and_why() {
    let mut town = Town::new(1);
    let keys = format!("{SERVICE}\nall_sick = \"drop\"");
    let agent = town.agent(Program::Xdp, &[("web", "", 0..1)], &keys);
    town.kill(0);
    wait_for_healthy(&agent, 0);
    assert_eq!(town.ask_tcp(1).failed, 1);
    let drops = wait_until("the drop is told", PATIENCE, || {
        let drops = agent.ask_json(&["drops"]).ok()?;
        (!drops.as_array()?.is_empty()).then_some(drops)
    })
    .unwrap();
    let first = &drops[0];
    assert_eq!(first["source"], format!("192.0.2.10:{PORT_FIRST}"));
    assert_eq!(first["destination"], "198.51.100.1:80");
    assert_eq!((&first["service"], &first["protocol"]), (&"web".into(), &"tcp".into()));
    assert_eq!(first["reason"], "none_takes_new");
    assert!(first["backend"].is_null() && first["observe"] == false);
    let told = drops.as_array().unwrap().len() as u64;
    assert_eq!(told, counters(&agent).all_sick_dropped, "each of so few is a sample");
}

#[test]
fn flows_of_one_client_go_to_one_backend_with_hash_by_source() {
    let mut town = Town::new(3);
    let agent =
        town.agent(Program::Xdp, &[("web", "", 0..3)], &format!("{SERVICE}\nhash = \"source\""));
    let answers = town.ask_tcp(30);
    assert_eq!((answers.by.len(), answers.failed), (1, 0), "{answers:?}");
    let first = answers.by.keys().next().unwrap().clone();
    let place = town.network.backends.iter().position(|machine| machine.name == first).unwrap();
    town.kill(place);
    wait_for_healthy(&agent, 2);
    let answers = town.ask_tcp(30);
    assert_eq!((answers.by.len(), answers.failed), (1, 0), "{answers:?}");
    assert_eq!(answers.of(&first), 0);
}

#[test]
fn service_that_would_take_the_answers_to_probes_is_refused_before_it_is_attached() {
    let town = Town::new(1);
    let keys = "address = \"192.0.2.0/24\"\nport = \"any\"";
    let error = town.try_agent(Program::Xdp, &[("web", "", 0..1)], keys).unwrap_err();
    let text = format!("{error:#}");
    let words = "service web (192.0.2.0/24 any port tcp) takes the answers to this host's own \
                 probes, which come from 192.0.2.20";
    assert!(text.contains(words), "{text}");
}

#[test]
fn panic_begins_below_its_threshold_and_ends_at_its_higher_share() {
    let mut town = Town::new(4);
    let pools = [("web", "panic_threshold = \"50%\"\npanic_end = \"75%\"", 0..4)];
    let keys = format!("{SERVICE}\nall_sick = \"open\"");
    let agent = town.agent(Program::Xdp, &pools, &keys);
    let panics = || agent.ask_json(&["service", "list"]).unwrap()[0]["panics"].clone();

    town.kill(0);
    town.kill(1);
    wait_for_healthy(&agent, 2);
    assert_eq!(panics(), false, "half is not below half");
    assert_eq!(town.ask_tcp(30).failed, 0);
    assert_eq!(counters(&agent).panic_open, 0);

    town.kill(2);
    wait_for_healthy(&agent, 1);
    assert_eq!(panics(), true);
    let answers = town.ask_tcp(40);
    // The dead ones' own kernels refuse: they got their share, and the last one is not crushed.
    assert!(0 < answers.failed, "{answers:?}");
    assert!(answers.of(&town.network.backends[3].name) < 30, "{answers:?}");
    assert!(0 < counters(&agent).panic_open);

    town.revive(2);
    wait_for_healthy(&agent, 2);
    assert_eq!(panics(), true, "half is no end yet");
    town.revive(1);
    wait_for_healthy(&agent, 3);
    assert_eq!(panics(), false);
    let before = counters(&agent).panic_open;
    assert_eq!(town.ask_tcp(30).failed, 0);
    assert_eq!(counters(&agent).panic_open, before);
    for told in ["pool web panics: 1 of 4 backends take", "pool web panics no more: 3 of 4"] {
        wait_until(&format!("the log says {told:?}"), PATIENCE, || {
            agent.said().contains(told).then_some(())
        })
        .unwrap();
    }
}

/// With a verdict against one of two, an agent that hangs, and a stale_after of 1 s: what clients
/// are answered.
fn with_a_hung_agent(stale: &str, opens: bool) {
    let mut town = Town::new(2);
    let keys = format!("{SERVICE}\n{stale}\nall_sick = \"drop\"");
    let agent = town.agent(Program::Xdp, &[("web", "", 0..2)], &keys);
    town.kill(0);
    wait_for_healthy(&agent, 1);
    assert_eq!(town.ask_tcp(30).failed, 0, "the verdict is fresh");
    assert_eq!(counters(&agent).stale_open, 0);
    // The server is back, and nobody probes it: only a stale verdict that counts for nothing lets
    // clients find it.
    agent.pause().unwrap();
    town.revive(0);
    let revived = town.network.backends[0].name.clone();
    let found =
        wait_until("the verdict is worth nothing", std::time::Duration::from_secs(5), || {
            let answers = town.ask_tcp(30);
            assert_eq!(answers.failed, 0, "{answers:?}");
            (0 < answers.of(&revived)).then_some(())
        });
    assert_eq!(found.is_ok(), opens, "{found:?}");
    assert_eq!(0 < counters(&agent).stale_open, opens);
    agent.resume().unwrap();
    wait_for_healthy(&agent, 2);
    let before = counters(&agent).stale_open;
    assert!(0 < town.ask_tcp(30).of(&revived));
    assert_eq!(counters(&agent).stale_open, before, "a verdict that is fresh again counts");
}

#[test]
fn stale_verdict_counts_for_nothing_with_stale_open() {
    with_a_hung_agent("stale = \"open\"\nstale_after = \"1s\"", true);
}

#[test]
fn stale_verdict_holds_with_stale_last() {
    with_a_hung_agent("stale = \"last\"", false);
}
