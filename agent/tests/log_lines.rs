//! What `sickbay run` writes to standard error: text or JSON, for a file and for the journal.
//!
//! The agent is refused right behind its first line, because its maps could be pinned nowhere.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// How standard error and environment are.
#[derive(Clone, Copy, PartialEq)]
enum Journal {
    /// None.
    No,
    /// Standard error is the journal.
    Yes,
    /// The variable is there, and standard error is something else.
    Elsewhere,
}

/// The lines of a run with this `log_format` in its file and these words behind the command.
fn lines(configured: &str, words: &[&str], journal: Journal) -> Vec<String> {
    let root = TempDir::new().unwrap();
    let file = root.path().join("sickbay.toml");
    let text = format!(
        "[agent]\npin_directory = \"{0}/pins\"\nrun_directory = \"{0}/run\"\nlog_format = \
         \"{configured}\"\nhistory = false\n[probe.p]\n[pool.web]\nprobe = \"p\"\nbackends = \
         [\"127.0.0.1:1\"]\n",
        root.path().display()
    );
    fs::write(&file, text).unwrap();
    let log = root.path().join("log");
    let stderr = File::create(&log).unwrap();
    let found = stderr.metadata().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sickbay"));
    command.args(words).arg("run").arg("-c").arg(&file);
    for variable in ["SICKBAY_LOG", "SICKBAY_LOG_FORMAT", "JOURNAL_STREAM"] {
        command.env_remove(variable);
    }
    match journal {
        Journal::No => {}
        Journal::Yes => {
            command.env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino()));
        }
        Journal::Elsewhere => {
            command.env("JOURNAL_STREAM", format!("{}:{}", found.dev(), found.ino() + 1));
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    assert_eq!(command.status().unwrap().code(), Some(1));
    let text = fs::read_to_string(&log).unwrap();
    text.lines().filter(|line| line.contains("1 backend")).map(str::to_owned).collect()
}

/// The only one.
fn line(configured: &str, words: &[&str], journal: Journal) -> String {
    let mut lines = lines(configured, words, journal);
    assert_eq!(lines.len(), 1, "{lines:?}");
    lines.remove(0)
}

const SAYS: &str = "0 services, 1 pool, 1 backend, 1 target; 0.2 probes/s";

#[test]
fn line_of_text_begins_with_its_time_and_for_the_journal_with_its_priority() {
    let plain = line("text", &[], Journal::No);
    assert!(plain.starts_with("20") && plain.contains("Z  INFO sickbay::cli::run: "), "{plain}");
    assert!(plain.contains(SAYS), "{plain}");
    let journal = line("text", &[], Journal::Yes);
    assert!(journal.starts_with("<6> INFO sickbay::cli::run: "), "{journal}");
    assert!(journal.contains(SAYS), "{journal}");
    let elsewhere = line("text", &[], Journal::Elsewhere);
    assert!(elsewhere.starts_with("20"), "{elsewhere}");
}

#[test]
fn format_is_the_command_lines_else_the_configurations() {
    let is_json = |line: &str| serde_json::from_str::<Value>(line).is_ok();
    let configured = line("json", &[], Journal::No);
    let value: Value = serde_json::from_str(&configured).unwrap();
    assert!(value["fields"]["message"].as_str().unwrap().starts_with(SAYS), "{configured}");
    assert!(value["timestamp"].is_string(), "{configured}");
    assert!(is_json(&line("text", &["--log-format", "json"], Journal::No)));
    assert!(!is_json(&line("json", &["--log-format", "text"], Journal::No)));
    let journal = line("json", &[], Journal::Yes);
    let value: Value = serde_json::from_str(journal.strip_prefix("<6>").unwrap()).unwrap();
    assert!(value["timestamp"].is_null(), "the journal has its own: {journal}");
}
