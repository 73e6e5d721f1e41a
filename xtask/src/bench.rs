//! `cargo xtask bench`: builds everything as it is released, and runs a workload of `sickbay-bench`
//! in a private environment, where peers, farms and agents may do as they like.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context as _, Result};

use crate::{build_ebpf, cargo, inside, packages};

/// What to measure.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// A workload and its options; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

/// Prepares the machine, builds, and becomes the keeper of the private environment in which the
/// workload runs.
///
/// # Errors
/// When the machine lacks something or the build fails; on success it does not return.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::ensure_installed(packages::Use::Tests)?;
    build_ebpf::run()?;
    let program = build()?;
    Err(command(&program, &arguments.words)?.exec()).context("cannot make a private environment")
}

/// What builds the benches and the agent as they are released.
const BUILD: [&str; 7] =
    ["build", "--release", "--bins", "--package", "sickbay", "--package", "sickbay-bench"];

/// Begins to build them, beside what has more need of the machine.
///
/// # Errors
/// When cargo cannot be started; whether it builds, [`build`] tells.
pub(crate) fn build_beside() -> Result<Child> {
    let cargo = cargo::command(&BUILD);
    let mut patient = Command::new("nice");
    patient.args(["-n", "15"]).arg(cargo.get_program()).args(cargo.get_args());
    patient.stdin(Stdio::null()).stderr(Stdio::null()).spawn().context("cannot start nice")
}

/// Builds the benches and the agent as they are released; the benches' program.
///
/// # Errors
/// When they do not build.
pub(crate) fn build() -> Result<PathBuf> {
    cargo::run(&BUILD)?;
    Ok(build_ebpf::target_directory().join("release/sickbay-bench"))
}

/// The command that runs the benches' program with these words in a private environment.
///
/// # Errors
/// When this program's own file is gone.
pub(crate) fn command(program: &Path, words: &[OsString]) -> Result<Command> {
    let mut all: Vec<OsString> = vec!["run".into(), program.into()];
    all.extend(words.iter().cloned());
    inside::enter(&all)
}
