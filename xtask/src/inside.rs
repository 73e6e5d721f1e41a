//! What runs as process 1 of a private environment: the second half of `demo` and `test`.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ExitCode};

use anyhow::{Context, Result};
use clap::Subcommand;
use sickbay_lab::private;

use crate::demo;

/// What to do inside.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// The demo's story
    Demo(demo::Arguments),
    /// A program with its arguments
    Run {
        /// The program and its arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
        words: Vec<OsString>,
    },
}

/// Sets the private environment up and does the command in it.
///
/// # Errors
/// When this is no private environment, or the command cannot be done.
pub(crate) fn run(command: &Command) -> Result<ExitCode> {
    private::set_up()?;
    match command {
        Command::Demo(arguments) => demo::tell(arguments),
        Command::Run { words } => run_program(words),
    }
}

/// The command that runs `xtask inside` with these words in a private environment.
///
/// # Errors
/// When this program's own file is gone.
pub(crate) fn enter(words: &[OsString]) -> Result<process::Command> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = private::command(program);
    command.arg("inside").args(words);
    Ok(command)
}

fn run_program(words: &[OsString]) -> Result<ExitCode> {
    let (program, arguments) = words.split_first().context("no program was named")?;
    let status = process::Command::new(program)
        .args(arguments)
        .status()
        .with_context(|| format!("cannot start {}", program.display()))?;
    if let Some(signal) = status.signal() {
        eprintln!("{} died of signal {signal}", program.display());
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
