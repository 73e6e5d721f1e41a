//! What a running agent holds, and who may ask it: seen from outside.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// Many who ask, and an agent without descriptors.
mod crowd;
/// Capabilities, filters and files of every thread.
mod held;
/// A group that may look.
mod readers;

use std::process::Output;

use sickbay_lab::agent::Agent;

/// The one line of a command that must fail.
#[track_caller]
fn refusal(output: &Output) -> String {
    assert!(!output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let error = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    error
}

/// What a command prints that must succeed.
#[track_caller]
fn printed(agent: &Agent, output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", agent.said());
    String::from_utf8(output.stdout.clone()).unwrap()
}
