//! Cargo, called with the project's own arguments.

use std::env;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

/// Cargo of the toolchain that runs this program.
pub(crate) fn command(words: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).stdin(Stdio::null());
    command
}

/// Runs cargo to its end.
///
/// # Errors
/// When it fails; what it said stands on standard error.
pub(crate) fn run(words: &[&str]) -> Result<()> {
    println!("$ cargo {}", words.join(" "));
    let status = command(words).status().context("cannot start cargo")?;
    ensure!(status.success(), "`cargo {}` failed", words.join(" "));
    Ok(())
}

/// Builds the agent's binary, the object that is there embedded.
///
/// # Errors
/// When it does not build.
pub(crate) fn build_agent() -> Result<()> {
    run(&["build", "--package", "sickbay", "--bin", "sickbay"])
}
