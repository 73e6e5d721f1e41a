//! `sickbay explain flow` says what then happens.

use sickbay_lab::configuration::Program;

use super::stage::{Answers, PORT_FIRST, Town, counters, wait_for_healthy};

#[test]
fn what_is_explained_of_a_flow_is_what_becomes_of_it() {
    const ASKED: u16 = 30;
    let mut town = Town::new(3);
    let keys = "address = \"198.51.100.1\"\nport = 80";
    let agent = town.agent(Program::Xdp, &[("web", "", 0..3)], keys);
    let explain = |port: u16| {
        let source = format!("192.0.2.10:{port}");
        agent.ask_json(&["explain", "flow", &source, "198.51.100.1:80", "tcp"]).unwrap()
    };
    town.kill(1);
    wait_for_healthy(&agent, 2);
    let victim = format!("web.{}", town.network.backends[1].name);

    let before = counters(&agent);
    let explained: Vec<_> = (PORT_FIRST..PORT_FIRST + ASKED).map(explain).collect();
    assert_eq!(counters(&agent), before, "explaining counts nothing");
    let skips = explained.iter().filter(|view| view["skipped"] == victim.as_str()).count();
    assert!(0 < skips && skips < usize::from(ASKED), "{skips}");
    for view in &explained {
        assert_eq!(view["outcome"], "steered");
        assert_eq!(view["service"]["healthy"], 2);
        assert!(view["entry"].is_null(), "nothing is remembered yet: {view}");
        let is_skipped = view["skipped"] == victim.as_str();
        assert_eq!(view["why"] == "current", !is_skipped, "{view}");
        assert_eq!(view["slot"]["backend"]["name"] == victim.as_str(), is_skipped, "{view}");
        assert_eq!(view["entry_change"], if is_skipped { "written" } else { "untouched" });
        assert_eq!(view["interface"], "eth0");
    }

    // One by one, from the very ports that were asked about.
    let mut answers = Answers::default();
    for view in &explained {
        let answered = town.ask_tcp(1);
        let name = answered.by.keys().next().cloned().unwrap_or_default();
        assert_eq!(view["backend"]["name"], format!("web.{name}"), "{view}");
        answers.failed += answered.failed;
    }
    assert_eq!(answers.failed, 0);
    let after = counters(&agent);
    assert_eq!(after.skipped - before.skipped, skips as u64);

    // A flow that was diverted is remembered.
    let diverted = explained.iter().position(|view| view["skipped"] == victim.as_str()).unwrap();
    let view = explain(PORT_FIRST + u16::try_from(diverted).unwrap());
    assert_eq!(view["entry"]["backend"]["name"], explained[diverted]["backend"]["name"]);
    assert_eq!(view["why"], "syn_again");

    let output = agent.ask(&["explain", "flow", "192.0.2.10:1", "198.51.100.1:81", "tcp"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(text, "Outcome    passed: no service takes it\n");
    let source = format!("192.0.2.10:{}", PORT_FIRST + ASKED);
    let output = agent.ask(&["explain", "flow", &source, "198.51.100.1:80", "tcp"]).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    for words in
        ["Outcome    steered: ", "Service    web, dsr: 198.51.100.1 port 80 tcp", " by eth0\n"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
}
