//! `sickbay explain` as it is called: figures by hand, JSON keys, what goes where.

use std::process::{Command, Output};

use serde_json::{Value, json};

/// A configuration of one probe with these lines and two backends.
fn configuration(probe: &str) -> String {
    format!(
        "[agent]\nshards = 1\n[probe.web]\nurl = \"/healthz\"\n{probe}\n[pool.api]\n\
         probe = \"web\"\nbackends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n"
    )
}

/// Calls `sickbay explain` on a file with this text, in a directory of its own.
fn explain(text: &str, arguments: &[&str]) -> Output {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.toml");
    std::fs::write(&path, text).expect("a file");
    let mut words = vec!["explain", "-c", path.to_str().expect("a plain path")];
    words.extend(arguments);
    Command::new(env!("CARGO_BIN_EXE_sickbay")).args(words).output().expect("it starts")
}

fn json(probe: &str) -> Value {
    let output = explain(&configuration(probe), &["-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("is JSON")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("is text")
}

fn times(worst: f64, typical: f64, best: f64) -> Value {
    json!({ "worst": worst, "typical": typical, "best": best })
}

#[test]
fn defaults_are_answered_as_by_hand() {
    let json = json("");
    let probe = &json["probes"][0];
    // 3 of 8 at 5 s and 2 s: six failures; see the core's tests for each figure's reason.
    assert_eq!(probe["failures_to_sick"], 6);
    assert_eq!(probe["failures_tolerated"], 5);
    assert_eq!(probe["goods_to_healthy"], 3);
    assert_eq!(probe["goods_after_fall"], 3);
    assert_eq!(probe["blind_spot_s"], Value::Null);
    assert_eq!(probe["time_to_sick_s"]["full"]["refused"], times(30.0, 27.5, 25.0));
    assert_eq!(probe["time_to_sick_s"]["full"]["timed_out"], times(32.0, 29.5, 27.0));
    assert_eq!(probe["time_to_sick_s"]["boundary"]["refused"], times(5.0, 2.5, 0.0));
    assert_eq!(probe["time_to_sick_s"]["boundary"]["timed_out"], times(7.0, 4.5, 2.0));
    assert_eq!(probe["time_to_healthy_s"]["empty"]["at_once"], times(15.0, 12.5, 10.0));
    assert_eq!(probe["time_to_healthy_s"]["empty"]["whole_timeout"], times(17.0, 14.5, 12.0));
    assert_eq!(probe["first_traffic_s"]["at_once"], times(2.0, 1.0, 0.0));
    // The seed's 15 s: true from registers whose third-newest good result is the sixth-newest.
    let three = &probe["by_failures"][3];
    assert_eq!(three["failures"], 3);
    assert_eq!(three["register"], "HHH---HH");
    assert_eq!(three["refused"], times(15.0, 12.5, 10.0));
    assert_eq!(three["share_of_healthy_registers"], 40.0 / 219.0);
    let last = &probe["sequence"][5];
    let expected = json!({ "start_s": 30.0, "end_s": 32.0, "good": false, "verdict": "sick" });
    assert_eq!(*last, expected);
    assert_eq!(probe["rehearsed"], true);
}

#[test]
fn keys_are_those_that_the_help_names() {
    let json = json("");
    let keys = |value: &Value| -> Vec<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    };
    assert_eq!(keys(&json), ["probes", "host", "decision_to_traffic"]);
    let help = Command::new(env!("CARGO_BIN_EXE_sickbay"))
        .args(["explain", "--help"])
        .output()
        .expect("it starts");
    let help = text(&help.stdout);
    for object in [&json["probes"][0], &json["probes"][0]["load"], &json["host"]] {
        for key in keys(object) {
            assert!(help.contains(&key), "--help does not name {key}");
        }
    }
    for key in keys(&json["probes"][0]["by_failures"][0]) {
        assert!(help.contains(&key), "--help does not name {key}");
    }
}

#[test]
fn varnishs_period_has_seconds_of_its_own() {
    let json = json("compat = \"varnish\"");
    let full = &json["probes"][0]["time_to_sick_s"]["full"];
    assert_eq!(full["refused"], times(30.0, 27.5, 25.0));
    // Each of six timeouts is followed by a whole interval.
    assert_eq!(full["timed_out"], times(42.0, 39.5, 37.0));
    assert_eq!(json["probes"][0]["rehearsed"], true);
}

#[test]
fn pace_is_in_the_seconds_and_in_the_load() {
    let paced = "jitter = \"20%\"\ninterval_fast = \"1s\"\ninterval_sick = \"10s\"";
    let output = explain(&configuration(paced), &[]);
    let shown = text(&output.stdout);
    let line = "Pace: every 1 s while results disagree; every 10 s while sick; each late by up to \
                20 % of its interval";
    assert!(shown.contains(line), "{shown}");
    assert!(shown.contains("at the quickest pace 1 probes/s"), "{shown}");

    let json = json("jitter = \"20%\"");
    // A fifth of 5 s, less the tick that it never reaches.
    let full = &json["probes"][0]["time_to_sick_s"]["full"];
    assert_eq!(full["refused"], times(30.999, 27.5, 24.001));
    let load = &json["probes"][0]["load"];
    assert_eq!(
        (&load["probes_per_second"], &load["probes_per_second_worst"]),
        (&json!(0.2), &json!(0.2))
    );
    let host = &self::json("interval_fast = \"1s\"")["host"];
    assert_eq!(host["probes_per_second"], 0.4);
    assert_eq!(host["probes_per_second_worst"], 2.0);
    // Two targets, a timeout of 2 s at 1 s: always one in flight each.
    assert_eq!(host["sockets_worst"], 2);
}

#[test]
fn load_is_over_all_pools_and_the_request_is_counted() {
    let more = "[probe.deep]\nurl = \"/deep\"\ninterval = \"1s\"\ntimeout = \"500ms\"\n\
                [pool.deep]\nprobe = \"deep\"\nbackends = [\"192.0.2.2:81\"]\n";
    let output = explain(&(configuration("") + more), &["web", "-o", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(json["probes"].as_array().expect("a list").len(), 1);
    let load = &json["probes"][0]["load"];
    // 1 a second and 1 in 5 seconds.
    assert_eq!(load["address"], "192.0.2.2");
    assert_eq!(load["probes_per_second"], 1.2);
    assert!(load["request_bytes_per_second"].as_f64().expect("a number") > 60.0);
    let host = &json["host"];
    assert_eq!(host["shards"], 1);
    assert_eq!(host["probes_per_second"], 1.4);
    // 2/5 of two targets and half of the third: 1.3 at once.
    assert_eq!(host["sockets_worst"], 2);
    assert_eq!(host["sockets_room"], 1024);
}

#[test]
fn one_of_one_has_a_blind_spot() {
    let json = json("window = 1\nthreshold = 1\ninterval = \"30s\"");
    let probe = &json["probes"][0];
    assert_eq!(probe["blind_spot_s"], 32.0);
    assert_eq!(probe["failures_tolerated"], 0);
    assert_eq!(probe["time_to_sick_s"]["full"]["timed_out"], times(32.0, 17.0, 2.0));
}

#[test]
fn consecutive_rule_and_long_timeout_are_explained() {
    let json = json("fall = 3\nrise = 2\ninterval = \"1s\"\ntimeout = \"1500ms\"");
    let probe = &json["probes"][0];
    assert_eq!(probe["rule"], json!({ "fall": 3, "rise": 2 }));
    // Starts at 1, 3 and 5 s, the last ends at 6.5 s.
    assert_eq!(probe["time_to_sick_s"]["full"]["timed_out"], times(6.5, 6.0, 5.5));
    assert_eq!(probe["by_failures"][0]["share_of_healthy_registers"], Value::Null);
}

#[test]
fn text_says_it_in_sentences_within_80_columns() {
    let output = explain(&configuration(""), &["--plot"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let text = text(&output.stdout);
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.len());
    }
    for part in [
        "Probe web: every 5 s, timeout 2 s, healthy while 3 of the last 8 are good\n",
        "  result ok ok ok ok ok ok ok ok |  x  x  x  x  x  x -> sick\n",
        "  second                         0  7 12 17 22 27 32\n",
        "5 failures in a row are tolerated",
        "threshold = 3 counts good results, not failures: a full register needs 6.\n",
        "40 of 219  HHH---HH\n",
        "HH------  sick     <- 32 s after it died\n",
        "cargo xtask demo",
    ] {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
    assert!(!text.contains('\x1b'), "colour without a terminal");
}

#[test]
fn widest_register_is_drawn_within_80_columns() {
    let output = explain(&configuration("window = 64\nthreshold = 60"), &["--plot"]);
    let text = text(&output.stdout);
    let rows: Vec<&str> = text.lines().filter(|line| line.contains("HHHH-  healthy")).collect();
    assert_eq!(rows.len(), 1, "{text}");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.len());
    }
    // Five failures at 5 s, by timeouts of 2 s.
    assert!(text.contains("  sick\n      <- 27 s after it died\n"), "{text}");
}

#[test]
fn unknown_probe_is_told_with_the_nearest_name() {
    let output = explain(&configuration(""), &["wbe"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let error = text(&output.stderr);
    assert!(error.ends_with("has no probe \"wbe\"; did you mean \"web\"?\n"), "{error}");
}

#[test]
fn wrong_configuration_is_told_as_by_check() {
    let output = explain("[probe.web]\nwindow = 65\nthreshold = 3\n", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("Window must be 64 or less"));
}

#[test]
fn check_and_explain_give_the_same_seconds() {
    for probe in ["", "window = 3\nthreshold = 2\ntimeout = \"7s\"", "fall = 2\nrise = 4"] {
        let explained = json(probe);
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("t.toml");
        std::fs::write(&path, configuration(probe)).expect("a file");
        let path = path.to_str().expect("a plain path");
        let checked = Command::new(env!("CARGO_BIN_EXE_sickbay"))
            .args(["check", "-c", path, "-o", "json"])
            .output()
            .expect("it starts");
        let checked: Value = serde_json::from_slice(&checked.stdout).expect("is JSON");
        let summary = &checked["summary"]["probes"][0];
        let probe = &explained["probes"][0];
        let sick = &probe["time_to_sick_s"]["full"]["timed_out"]["worst"];
        assert_eq!(summary["time_to_sick_s_max"], *sick);
        let healthy = &probe["time_to_healthy_s"]["empty"]["whole_timeout"]["worst"];
        assert_eq!(summary["time_to_healthy_s_max"], *healthy);
    }
}

#[test]
fn backends_without_a_probe_are_told_of() {
    let with = |more: &str| {
        format!(
            "[probe.web]\nurl = \"/h\"\n[pool.api]\nprobe = \"web\"\nbackends = \
             [\"192.0.2.1:80\", {{ address = \"192.0.2.2:80\", probe = \"none\" }}{more}]\n"
        )
    };
    let one = explain(&with(""), &[]);
    let said = text(&one.stdout);
    assert!(said.contains("1 backend of pool api\n"), "{said}");
    assert!(
        said.contains("1 backend has no probe: it is always healthy, and its death is not seen.\n"),
        "{said}"
    );
    let more = with(", { address = \"192.0.2.3:80\", probe = \"none\" }");
    let two = explain(&more, &["-o", "json"]);
    let two: Value = serde_json::from_slice(&two.stdout).expect("is JSON");
    assert_eq!(two["host"]["backends_without_a_probe"], 2);
    assert_eq!(two["probes"][0]["backends"], 1);

    let none = "[pool.api]\nprobe = \"none\"\nbackends = [\"192.0.2.1:80\"]\n";
    let said = explain(none, &[]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    assert!(text(&said.stdout).contains("1 backend has no probe"), "{}", text(&said.stdout));
}
