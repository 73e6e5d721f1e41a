//! The subcommands against a served agent: what is typed, what is printed.

use std::process::ExitCode;

use clap::Args;
use sickbay::cli::backend::{self, BackendArgs};
use sickbay::cli::drops::{self, DropsArgs};
use sickbay::cli::explain::flow::{self, FlowArgs};
use sickbay::cli::guard::{self, GuardArgs};
use sickbay::cli::listing::Screen;
use sickbay::cli::ready::{self, ReadyArgs};
use sickbay::cli::service::{self, ServiceArgs};
use sickbay::cli::status::{self, StatusArgs};
use sickbay::control::host::Host as _;
use sickbay::control::server::Options;
use sickbay::control::view::{Admin, BackendView};

use super::fake::{Fake, Served};

/// What is typed after `sickbay backend` and so on.
#[track_caller]
fn typed<T: Args>(served: &Served, words: &[&str]) -> T {
    let root = served.root.path().to_str().expect("a plain path");
    let all = [&["sickbay"], words, &["--instance", "fake", "--run-directory", root]].concat();
    let command = T::augment_args(clap::Command::new("sickbay"));
    let matches = command.try_get_matches_from(all).expect("words that are understood");
    T::from_arg_matches(&matches).expect("words that are understood")
}

fn backend(served: &Served, words: &[&str]) -> anyhow::Result<String> {
    let mut out = Vec::new();
    backend::run_on(&typed::<BackendArgs>(served, words), Screen::default(), &mut out)?;
    Ok(String::from_utf8(out)?)
}

#[test]
fn backends_are_listed_as_varnishadm_lists_them() {
    let served = Served::new(Fake::new(), Options::default());
    let text = backend(&served, &["list"]).expect("a list");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        "Backend name   Admin    Probe    Health     Last change                    New flows  \
         Skipped  Last result"
    );
    let rest = "  probe    8/8      healthy    Sun, 29 Nov 2026 17:30:28 GMT         17        5  \
                HTTP/1.1 200 \\x1b[31mOK";
    assert_eq!(
        lines[1..],
        [
            format!("web.b1       {rest}"),
            format!("web.b2       {rest}"),
            format!("api.b1       {rest}")
        ]
    );
}

#[test]
fn pattern_and_graph_show_what_they_are_asked_for() {
    let served = Served::new(Fake::new(), Options::default());
    let text = backend(&served, &["list", "-p", "api.*"]).expect("a list");
    assert_eq!(text.lines().filter(|line| line.starts_with("api.b1")).count(), 1);
    assert!(!text.contains("web.b1"));
    let rows: Vec<&str> = text.lines().skip(5).map(|line| line[67..].trim()).collect();
    assert_eq!(rows, ["Good IPv4", "Good Xmit", "Good Recv", "Happy"]);
    let none = backend(&served, &["list", "nothing"]).expect("an empty list");
    assert_eq!(none.lines().count(), 1);
}

#[test]
fn json_keeps_all_64_bits_and_every_field() {
    let served = Served::new(Fake::new(), Options::default());
    let text = backend(&served, &["list", "-o", "json"]).expect("a list");
    let views: Vec<BackendView> = serde_json::from_str(&text).expect("views");
    assert_eq!(views, Fake::new().backends(None));
    let plain: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let first = &plain[0];
    assert_eq!(first["name"], "web.b1");
    assert_eq!(first["admin"], "auto");
    assert_eq!(first["state"], "healthy");
    assert_eq!((&first["threshold"], &first["window"]), (&3.into(), &8.into()));
    let registers = &first["registers"];
    let keys: Vec<&String> = registers.as_object().expect("an object").keys().collect();
    assert_eq!(
        keys,
        ["bits_4", "bits_6", "bits_U", "bits_x", "bits_X", "bits_r", "bits_R", "bits_H"]
    );
    assert_eq!(registers["bits_4"], "18446744073709551615");
    assert_eq!(registers["bits_R"], "18446744073709551614");
    assert_eq!(registers["bits_H"], "9007199254740993");
    assert_eq!(first["counters"]["skipped"], 5);
}

#[test]
fn health_is_set_by_pattern_in_any_case() {
    let served = Served::new(Fake::new(), Options::default());
    let said = backend(&served, &["set-health", "web.*", "SICK"]).expect("it is set");
    assert_eq!(said, "web.b1 sick\nweb.b2 sick\n");
    let admins = || -> Vec<Admin> {
        let views = served.client().backends(None).expect("an answer");
        views.iter().map(|view| view.admin).collect()
    };
    assert_eq!(admins(), [Admin::Sick, Admin::Sick, Admin::Auto]);
    backend(&served, &["set-health", "b1", "Healthy"]).expect("it is set");
    assert_eq!(admins(), [Admin::Healthy, Admin::Sick, Admin::Healthy]);
    let text = backend(&served, &["list", "web.b2"]).expect("a list");
    assert!(text.contains("web.b2         sick     8/8      healthy"), "{text}");
    backend(&served, &["set-health", "*", "auto"]).expect("it is set");
    assert_eq!(admins(), [Admin::Auto; 3]);
}

#[test]
fn pattern_that_matches_nothing_or_is_none_is_an_error_in_one_line() {
    let served = Served::new(Fake::new(), Options::default());
    let error = backend(&served, &["set-health", "web", "sick"]).expect_err("a pool is none");
    assert_eq!(
        error.to_string(),
        "No Backends matches \"web\": see `sickbay backend list`; a pattern is a glob over \
         pool.backend, or without a dot over backend names, and all of a pool is \"POOL.*\""
    );
    let error = backend(&served, &["list", "web.b[1"]).expect_err("not a glob");
    assert!(error.to_string().starts_with("\"web.b[1\" is not a glob: "), "{error}");
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn services_and_status_are_listed_in_both_formats() {
    let served = Served::new(Fake::new(), Options::default());
    let mut out = Vec::new();
    service::run_on(&typed::<ServiceArgs>(&served, &["list"]), Screen::default(), &mut out)
        .expect("a list");
    assert_eq!(
        String::from_utf8(out).expect("text"),
        "\
Service  Address          Proto  Mode  Pool  Healthy  Attached         New flows  Skipped  \
         All sick  Packets  Bytes
www      198.51.100.1:80  tcp    dsr   web       1/2  eth0 xdp/native         31        0  \
         \x20      0        0      0
"
    );
    let mut out = Vec::new();
    let words = typed::<ServiceArgs>(&served, &["list", "-o", "json"]);
    service::run_on(&words, Screen::default(), &mut out).expect("a list");
    let services: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!(services[0]["attached"][0]["mode"], "native");
    assert_eq!(services[0]["counters"].as_object().expect("an object").len(), 22);

    let mut out = Vec::new();
    status::run_on(&typed::<StatusArgs>(&served, &["-o", "json"]), Screen::default(), &mut out)
        .expect("a status");
    let agent: serde_json::Value = serde_json::from_slice(&out).expect("JSON");
    assert_eq!((&agent["instance"], &agent["warming_count"]), (&"fake".into(), &0.into()));
}

#[test]
fn names_that_lead_out_of_the_run_root_are_refused() {
    for name in ["../x", "a/b", "", ".."] {
        let command = StatusArgs::augment_args(clap::Command::new("sickbay"));
        let parsed = command.try_get_matches_from(["sickbay", "--instance", name]);
        assert_eq!(parsed.expect_err("no instance name").exit_code(), 2, "{name}");
    }
}

#[test]
fn ready_answers_by_its_exit_status() {
    let served = Served::new(Fake::new(), Options::default());
    let ask = |words: &[&str]| {
        let mut out = Vec::new();
        let code = ready::run_on(&typed::<ReadyArgs>(&served, words), &mut out)?;
        anyhow::Ok((code, String::from_utf8(out)?))
    };
    let (code, text) = ask(&["www"]).expect("an answer");
    assert_eq!(code, ExitCode::SUCCESS);
    assert_eq!(text, "www: ready: 1 of 2 backends of pool web takes new flows\n");
    let error = ask(&["ww"]).expect_err("there is none").to_string();
    assert_eq!(error, "there is no service \"ww\"; did you mean \"www\"?");
    let (_, json) = ask(&["www", "-o", "json"]).expect("an answer");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["ready"], &json["pool"]["healthy"]), (&true.into(), &1.into()));
}

#[test]
fn ready_has_an_exit_status_of_its_own_when_no_agent_runs() {
    let root = tempfile::tempdir().expect("a directory");
    let path = root.path().to_str().expect("a plain path");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_sickbay"))
        .args(["ready", "www", "--instance", "nobody", "--run-directory", path])
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(4));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("sickbay: "));
}

#[test]
fn held_pools_are_listed_and_released() {
    let served = Served::new(Fake::new(), Options::default());
    let ask = |words: &[&str]| {
        let mut out = Vec::new();
        guard::run_on(&typed::<GuardArgs>(&served, words), &mut out)?;
        anyhow::Ok(String::from_utf8(out)?)
    };
    let text = ask(&["list"]).expect("a list");
    assert!(text.starts_with("web: 2 backends turned sick at once and this host probed late"));
    assert_eq!(ask(&["release"]).expect("it was held"), "web: released\n");
    assert!(ask(&["release", "api"]).expect_err("no such pool").to_string().contains("api"));
}

#[test]
fn drops_are_shown_of_one_service_and_up_to_a_count() {
    let served = Served::new(Fake::new(), Options::default());
    let ask = |words: &[&str]| {
        let mut out = Vec::new();
        drops::run_on(&typed::<DropsArgs>(&served, words), &mut out).expect("an answer");
        String::from_utf8(out).expect("text")
    };
    assert_eq!(ask(&[]).lines().count(), 3);
    let line = "2026-11-29T17:30:28.250Z www tcp 192.0.2.1:40000 > 198.51.100.1:80: no backend \
                takes new flows";
    assert_eq!(ask(&["--service", "www"]), format!("{line}\n{line}\n"));
    assert_eq!(ask(&["--follow", "-c", "2"]).lines().count(), 2);
    let json: serde_json::Value = serde_json::from_str(&ask(&["-o", "json"])).expect("JSON");
    assert_eq!(json[2]["sequence"], 3);
}

#[test]
fn flow_is_asked_about_as_it_was_typed() {
    let served = Served::new(Fake::new(), Options::default());
    let ask = |words: &[&str]| {
        let mut out = Vec::new();
        flow::run_on(&typed::<FlowArgs>(&served, words), &mut out)?;
        anyhow::Ok(String::from_utf8(out)?)
    };
    let text = ask(&["192.0.2.1:40000", "198.51.100.1:80", "tcp"]).expect("an answer");
    assert_eq!(text, "Outcome    passed: port 80 was asked for\n");
    let json = ask(&["192.0.2.1:40000", "198.51.100.1:80", "tcp", "-o", "json"]).expect("JSON");
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["outcome"], "passed");
    let error = ask(&["192.0.2.1", "198.51.100.1:80", "tcp"]).expect_err("no port").to_string();
    assert_eq!(error, "192.0.2.1 has no port: write ADDRESS:PORT for tcp and udp");
}

#[test]
fn members_are_changed_by_words_and_each_is_told() {
    let served = Served::new(Fake::new(), Options::default());
    let list = served.root.path().join("new.list");
    std::fs::write(&list, "192.0.2.5:80\n192.0.2.6:80 name=b6\n").expect("a file");
    let list = list.to_str().expect("a plain path");
    let added = backend(&served, &["add", "web", "192.0.2.4:80", "--file", list]);
    assert_eq!(
        added.expect("it adds"),
        "web.192.0.2.4:80 added\nweb.192.0.2.5:80 added\nweb.b6 added\n"
    );
    let removed = backend(&served, &["remove", "web.*"]).expect("it removes");
    assert_eq!(removed.lines().count(), 5);
    assert!(removed.lines().all(|line| line.starts_with("web.") && line.ends_with(" removed")));
    // The fake refuses these with what it was asked.
    let asked = |words: &[&str]| backend(&served, words).expect_err("refused").to_string();
    let text = asked(&["drain", "api.b1", "--for", "10m"]);
    assert!(text.starts_with("Drain") && text.contains("limit: Some(600s)"), "{text}");
    assert!(asked(&["drain", "api.b1"]).contains("limit: None"));
    assert!(asked(&["undrain", "api.*"]).starts_with("Undrain"));
    let text = asked(&["weight", "api.b1", "7"]);
    assert!(text.starts_with("Weigh") && text.contains("weight: 7"), "{text}");
    let text = asked(&["add", "web", "192.0.2.4:80", "--name", "a", "--file", list]);
    assert!(text.starts_with("--name goes with one address"), "{text}");
    let refused = sickbay::cli::reload::run_on(&typed(&served, &["--"][..0]), &mut Vec::new());
    assert_eq!(refused.expect_err("refused").to_string(), "line 7 is wrong");
}
