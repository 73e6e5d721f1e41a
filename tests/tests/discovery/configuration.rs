//! A watched configuration: the same rules as `sickbay reload`, without anybody asking.

use std::fs;

use sickbay_lab::agent::Agent;
use sickbay_lab::clock::wait_until;

use crate::{FARM, PATIENCE, Stage, configuration, each, members, wait_for_members};

#[track_caller]
fn wait_until_said(agent: &Agent, what: &str, count: usize) {
    let said =
        wait_until(what, PATIENCE, || (agent.said().matches(what).count() == count).then_some(()));
    assert!(said.is_ok(), "{what} {count} times, in:\n{}", agent.said());
}

#[test]
fn changed_configuration_is_put_in_force_and_a_wrong_one_is_refused_in_one_line() {
    let stage = Stage::new(FARM);
    let pool = |indices: &[u32]| {
        let backends: Vec<String> =
            indices.iter().map(|index| format!("\"{}\"", stage.backend(*index))).collect();
        format!("backends = [{}]", backends.join(", "))
    };
    let text = configuration("watch_config = true", &pool(&[0, 1]), "");
    let agent = stage.start(&text);
    let changed = text.replace(&pool(&[0, 1]), &pool(&[0, 2]));
    agent.rewrite(&changed).unwrap();
    let now = each([stage.backend(0), stage.backend(2)]);
    wait_for_members(&agent, &now);
    let generation = agent.ask_json(&["status"]).unwrap()["generation"].clone();
    agent.rewrite(&changed.replace("threshold = 2", "treshold = 2")).unwrap();
    wait_until_said(&agent, "not read again: the configuration is wrong: ", 1);
    agent.rewrite("").unwrap();
    wait_until_said(&agent, "not read again: the configuration is wrong: ", 2);
    assert_eq!(members(&agent), now);
    assert_eq!(agent.ask_json(&["status"]).unwrap()["generation"], generation);
    // More than members, and by the next good one.
    agent.rewrite(&changed.replace("window = 8", "window = 9")).unwrap();
    wait_until_said(&agent, "1 other change", 1);
    assert_eq!(members(&agent), now);
}

#[test]
fn configuration_is_left_alone_unless_it_is_to_be_watched() {
    let stage = Stage::new(FARM);
    let list = crate::scratch("web.list");
    fs::write(&list, stage.list(0..1)).unwrap();
    let pool = format!("backends_file = \"{}\"", list.display());
    let text = configuration("", &pool, "");
    let agent = stage.start(&text);
    let more = format!("[pool.more]\nprobe = \"web\"\nbackends = [\"{}\"]\n", stage.backend(9));
    agent.rewrite(&format!("{text}{more}")).unwrap();
    // What its list says is followed all the same, and only that.
    crate::replace(&list, &stage.list(1..3));
    wait_for_members(&agent, &each([stage.backend(1), stage.backend(2)]));
    assert!(!agent.said().contains("read again"), "{}", agent.said());
    assert_eq!(crate::client(&agent).backends(Some("more.*")).unwrap_or_default(), []);
}
