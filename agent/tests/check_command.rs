//! `sickbay check` as it is called: exit codes, what goes where, JSON.

use std::path::PathBuf;
use std::process::{Command, Output};

const SOUND: &str = "[probe.p]\nurl = \"/healthz\"\n[pool.p]\nprobe = \"p\"\n\
                     backends = [\"192.0.2.1:80\"]\n";

/// Calls `sickbay check` on a file with this text, in a directory of its own.
fn check(text: &str, arguments: &[&str]) -> (Output, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("t.toml");
    std::fs::write(&path, text).expect("a file");
    let mut words = vec!["check", "-c", path.to_str().expect("a plain path")];
    words.extend(arguments);
    (sickbay(&words), path)
}

fn sickbay(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sickbay")).args(words).output().expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("is text")
}

#[test]
fn sound_configuration_is_summed_up_and_exits_with_0() {
    let (output, path) = check(SOUND, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "");
    // 8/3 at 5 s and 2 s: six failures, 6 * 5 + 2 seconds.
    let expected = "0 services, 1 pool, 1 backend, 1 target; 0.2 probes/s; p sick within 32 s";
    let stdout = text(&output.stdout);
    let rest = stdout.strip_prefix(&format!("{}: {expected}; maps of ", path.display()));
    // Of entries alone there are 262,144 times 96 + 120 bytes.
    let megabytes = rest.and_then(|rest| rest.split_once(" MB for ")).expect(stdout).0;
    assert!((57..100).contains(&megabytes.parse::<u32>().expect(stdout)), "{stdout}");
}

#[test]
fn services_are_shown_as_they_will_be_steered() {
    let services = "panic_threshold = \"30%\"\n[pool.q]\nprobe = \"p\"\n\
                    backends = [\"192.0.2.2:80\"]\n\
                    [service.a]\naddress = \"198.51.100.0/24\"\nport = [443, \"8000-8099\"]\n\
                    protocol = \"any\"\npool = \"p\"\nbackup = \"q\"\n\
                    [service.b]\naddress = \"198.51.100.1\"\nprotocol = \"gre\"\npool = \"q\"\n\
                    all_sick = \"reset\"\n";
    let (output, _) = check(&format!("{SOUND}{services}"), &[]);
    let lines: Vec<&str> = text(&output.stdout).lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "  service a: 198.51.100.0/24 ports 443,8000-8099 any to pool p, then q; observe; all \
             sick: open, and from below 30 % until 40 %",
            "  service b: 198.51.100.1 gre to pool q; observe; all sick: reset",
        ]
    );
}

#[test]
fn mistakes_go_to_standard_error_one_line_each_and_exit_with_1() {
    let (output, path) = check(&SOUND.replace("url", "urk").replace("192.", "392."), &[]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "");
    let lines: Vec<&str> = text(&output.stderr).lines().collect();
    let name = path.display();
    assert_eq!(lines.len(), 2);
    assert_eq!(
        lines[0],
        format!("sickbay: {name}:2:1: probe.p.urk: unknown key \"urk\"; did you mean \"url\"?")
    );
    assert!(lines[1].starts_with(&format!("sickbay: {name}:5:13: pool.p.backends[0]: ")));
}

#[test]
fn warnings_exit_with_0_and_strictly_with_1() {
    let trap = SOUND.replace("/healthz", "/");
    let (output, path) = check(&trap, &[]);
    assert_eq!(output.status.code(), Some(0));
    let begin = format!("sickbay: warning: {}:2:7: probe.p.url: ", path.display());
    assert!(text(&output.stderr).starts_with(&begin));
    let (output, _) = check(&trap, &["--strict"]);
    assert_eq!(output.status.code(), Some(1));
    let (output, _) = check(SOUND, &["--strict"]);
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn json_has_errors_warnings_and_the_summary() {
    let (output, path) = check(&SOUND.replace("/healthz", "/"), &["-o", "json"]);
    assert_eq!(output.status.code(), Some(0));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(json["errors"], serde_json::json!([]));
    assert_eq!(json["warnings"][0]["file"], path.display().to_string());
    assert_eq!(json["warnings"][0]["line"], 2);
    assert_eq!(json["warnings"][0]["path"], "probe.p.url");
    assert_eq!(json["summary"]["backends"], 1);
    assert_eq!(json["summary"]["probes"][0]["time_to_sick_s_max"], 32.0);

    let (output, _) = check("[probe.p]\nwindow = 65\nthreshold = 3\n", &["-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(json["errors"][0]["problem"], "Window must be 64 or less, but is 65");
    assert_eq!(json["summary"], serde_json::Value::Null);
}

#[test]
fn absent_file_is_told_with_the_systems_words() {
    let output = sickbay(&["check", "-c", "/nonexistent/t.toml"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        "sickbay: /nonexistent/t.toml: cannot be read: No such file or directory (os error 2); \
         name a file that exists\n"
    );
}

#[test]
fn wrong_usage_exits_with_2() {
    assert_eq!(sickbay(&[]).status.code(), Some(2));
    assert_eq!(sickbay(&["frob"]).status.code(), Some(2));
    assert_eq!(sickbay(&["check"]).status.code(), Some(2));
    assert_eq!(sickbay(&["check", "-c", "x", "-o", "xml"]).status.code(), Some(2));
}

#[test]
fn help_teaches_by_example() {
    let output = sickbay(&["--help"]);
    assert_eq!(output.status.code(), Some(0));
    let help = text(&output.stdout);
    assert!(help.contains("sickbay check --print-example > sickbay.toml"));
    assert!(help.contains("SICKBAY_LOG"));
}

#[test]
fn printed_example_passes_its_own_check() {
    let output = sickbay(&["check", "--print-example"]);
    assert_eq!(output.status.code(), Some(0));
    let (output, _) = check(text(&output.stdout), &["--strict"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}
