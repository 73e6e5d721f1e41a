//! What every failure says of what stays attached, done as it is said.

use std::process::Command;

use sickbay_lab::configuration::{Configuration, Program};
use sickbay_lab::stage::Stage;

use super::{keeping, links, refused, variant};

/// The command behind `before` in a line, between backquotes.
fn command<'a>(line: &'a str, before: &str) -> &'a str {
    let (_, rest) = line.split_once(before).unwrap_or_else(|| panic!("no {before:?}: {line}"));
    rest.trim_start().trim_start_matches('`').split('`').next().unwrap()
}

/// How many programs the host's interfaces run.
fn program_count(stage: &Stage) -> usize {
    let host = &stage.network.host.namespace;
    let links = host.tool(&["ip", "-details", "link", "show"]).unwrap();
    let filters = host.tool(&["tc", "filter", "show", "dev", "eth0", "ingress"]).unwrap();
    links.matches("prog/xdp").count() + filters.matches("sickbay_tc").count()
}

#[test]
fn what_is_said_to_be_done_by_hand_takes_the_program_off() {
    for program in [Program::Xdp, Program::Tc] {
        let configuration = Configuration { program, ..Configuration::usual() };
        let mut stage = Stage::new(1, &configuration).unwrap();
        stage.agent.crash().unwrap();
        stage.agent.set_launch(keeping(Some(variant("blind"))));
        let said = refused(&mut stage);
        let last = said.lines().last().unwrap();
        let by_hand = command(last, "without sickbay");
        assert_eq!(links(&stage).len(), 1);
        if program == Program::Xdp {
            assert_eq!(program_count(&stage), 1);
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", by_hand]);
        let done = stage.network.host.namespace.run(|| shell.output()).unwrap();
        assert!(done.status.success(), "{by_hand}: {}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(program_count(&stage), 0, "{by_hand}");
        assert!(!stage.agent.pin_directory().exists());
        // Where nothing stays, nothing is said of it.
        let said = refused(&mut stage);
        assert!(!said.contains("detach") && said.contains("self-check"), "{said}");
    }
}

#[test]
fn configuration_that_is_wrong_at_a_restart_tells_what_stays() {
    let configuration = Configuration { instance: "default".to_owned(), ..Configuration::usual() };
    let mut stage = Stage::new(1, &configuration).unwrap();
    stage.agent.crash().unwrap();
    stage.agent.set_launch(keeping(None));
    let text = stage.agent.configuration().unwrap();
    stage.agent.rewrite(&text.replace("threshold = 3", "threshold = 30")).unwrap();
    let said = refused(&mut stage);
    let last = said.lines().last().unwrap();
    assert!(said.contains("threshold"), "{said}");
    assert!(last.contains("by the last verdicts (eth0: xdp, program "), "{last}");
    assert_eq!(command(last, "); "), "sickbay detach --instance default");
}

#[test]
fn detach_that_fails_tells_what_stays() {
    let mut stage = Stage::new(1, &Configuration::usual()).unwrap();
    stage.agent.crash().unwrap();
    // It sorts before the link's pin, and is no link.
    let stranger = stage.agent.pin_directory().join("links/a-xdp");
    std::fs::create_dir(&stranger).unwrap();
    let pins = stage.agent.pin_directory().parent().unwrap().display().to_string();
    let mut words = vec!["detach", "--instance", stage.agent.instance()];
    words.extend(["--pin-directory", &pins]);
    let mut detach = Command::new(sickbay_lab::agent::binary().unwrap());
    let failed = stage.network.host.namespace.run(|| detach.args(&words).output()).unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let said = String::from_utf8(failed.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("cannot detach from a: ") && said.contains("by hand: `rm "), "{said}");
    assert!(said.contains("eth0: xdp, program "), "{said}");
    std::fs::remove_dir(&stranger).unwrap();
    let done = stage.network.host.namespace.run(|| detach.output()).unwrap();
    assert!(done.status.success());
    assert_eq!(program_count(&stage), 0);
}
