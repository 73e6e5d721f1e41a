//! Three users and one socket: root, a member of the group, and somebody else.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use sickbay_lab::agent::{Agent, RUN_DIRECTORY, STATE_DIRECTORY, binary};
use sickbay_lab::configuration::Configuration;
use sickbay_lab::private;
use sickbay_lab::stage::Stage;

use crate::{printed, refusal};

/// A group that every Debian has; its number (base-passwd).
const GROUP: &str = "games";
const GROUP_NUMBER: &str = "60";
/// Nobody's numbers: in no group.
const USER: &str = "54321";

/// Whose groups a command runs with.
enum User {
    /// The group is its own one.
    Primary,
    /// The group is one of its others.
    Supplementary,
    /// Of another group.
    Stranger,
}

/// `sickbay`, where every user may run it.
fn for_everyone() -> PathBuf {
    let copy = private::scratch().join("sickbay");
    if !copy.exists() {
        fs::copy(binary().unwrap(), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    }
    copy
}

fn ask(agent: &Agent, user: &User, words: &[&str]) -> Output {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--no-new-privs"]);
    match user {
        User::Primary => command.args(["--regid", GROUP_NUMBER, "--clear-groups"]),
        User::Supplementary => command.args(["--regid", USER, "--groups", GROUP_NUMBER]),
        User::Stranger => command.args(["--regid", USER, "--clear-groups"]),
    };
    command.arg("--").arg(for_everyone()).args(words).args(["--instance", agent.instance()]);
    match words[0] {
        "history" => command.args(["--state-directory", STATE_DIRECTORY]),
        _ => command.args(["--run-directory", RUN_DIRECTORY]),
    };
    command.output().unwrap()
}

#[test]
fn members_of_the_group_look_and_change_nothing_and_others_get_nothing() {
    let agent = format!("read_group = \"{GROUP}\"\n");
    let stage = Stage::new(2, &Configuration { agent, ..Configuration::usual() }).unwrap();
    stage.wait_for_healthy(2).unwrap();
    let agent = &stage.agent;
    let looks: [&[&str]; 10] = [
        &["status"],
        &["backend", "list", "-p"],
        &["service", "list"],
        &["guard", "list"],
        &["drops"],
        &["ready", "web"],
        &["explain", "flow", "192.0.2.10:4711", "198.51.100.1:80", "tcp"],
        &["watch", "--old", "--count", "2"],
        &["watch", "--format", "varnishlog", "--count", "2"],
        &["history", "--since", "1h"],
    ];
    for user in [User::Primary, User::Supplementary] {
        for words in looks {
            let said = printed(agent, &ask(agent, &user, words));
            assert!(!said.is_empty() || matches!(words[0], "drops" | "guard"), "{words:?}");
        }
        let changes: [&[&str]; 9] = [
            &["backend", "set-health", "web.backend-1", "sick"],
            &["backend", "drain", "web.backend-1"],
            &["backend", "undrain", "web.backend-1"],
            &["backend", "maintenance", "web.backend-1"],
            &["backend", "weight", "web.backend-1", "7"],
            &["backend", "add", "web", "192.0.2.199:80"],
            &["backend", "remove", "web.backend-1"],
            &["guard", "release"],
            &["reload", "--dry-run"],
        ];
        for words in changes {
            let error = refusal(&ask(agent, &user, words));
            let expected = format!("uid {USER} may look at this agent and change nothing");
            assert!(error.contains(&expected), "{words:?}: {error}");
        }
    }
    let error = refusal(&ask(agent, &User::Stranger, &["status"]));
    assert!(error.contains("not permitted to ask the agent"), "{error}");
    assert!(!ask(agent, &User::Stranger, &["history"]).status.success());
    // Root may, and nothing of all that has changed anything.
    let status = agent.ask_json(&["status"]).unwrap();
    assert_eq!(status["healthy_count"], 2);
    printed(agent, &agent.ask(&["backend", "set-health", "web.backend-1", "sick"]).unwrap());
}

#[test]
fn without_a_group_nobody_but_root_gets_anything() {
    let stage = Stage::new(1, &Configuration::usual()).unwrap();
    for user in [User::Primary, User::Supplementary, User::Stranger] {
        let error = refusal(&ask(&stage.agent, &user, &["status"]));
        assert!(error.contains("not permitted to ask the agent"), "{error}");
    }
}

#[test]
fn group_that_is_none_is_refused_in_one_line() {
    private::require();
    let directory = private::scratch().join("no-group");
    fs::create_dir_all(&directory).unwrap();
    let file = directory.join("sickbay.toml");
    let text = format!(
        "[agent]\ninstance = \"no-group\"\nread_group = \"sickbey\"\nhistory = false\n\
         run_directory = \"{RUN_DIRECTORY}\"\n[probe.p]\n[pool.a]\nprobe = \"p\"\n\
         backends = [\"127.0.0.1:9\"]\n"
    );
    fs::write(&file, text).unwrap();
    let mut command = Command::new(binary().unwrap());
    let output = command.env("SICKBAY_LOG", "error").arg("run").arg("-c").arg(&file).output();
    let error = refusal(&output.unwrap());
    assert!(error.contains("there is no group \"sickbey\""), "{error}");
    assert!(error.contains("`groupadd --system sickbey`"), "{error}");
}
