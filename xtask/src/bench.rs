//! `cargo xtask bench`: builds everything as it is released, and runs a workload of `sickbay-bench`
//! in a private environment, where peers, farms and agents may do as they like.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::process::ExitCode;

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
    let packages = ["--package", "sickbay", "--package", "sickbay-bench"];
    cargo::run(&[&["build", "--release", "--bins"], &packages[..]].concat())?;
    let program = build_ebpf::target_directory().join("release/sickbay-bench");
    let mut words: Vec<OsString> = vec!["run".into(), program.into()];
    words.extend(arguments.words.iter().cloned());
    Err(inside::enter(&words)?.exec()).context("cannot make a private environment")
}
