//! `cargo xtask demo`: one death and one return on a private network, seen from a client.

/// The agent on a synthetic farm.
mod farm;
/// What happens, and what was seen of it.
mod story;
/// The facts, for people and for programs.
mod timeline;

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::{Context, Result};
use sickbay_lab::configuration::Program;
use sickbay_lab::network::Family;

use crate::{build_ebpf, cargo, inside, packages};

/// How to show it.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Close with the facts as one JSON object on the last line
    #[arg(long)]
    json: bool,
    /// Over IPv6
    #[arg(long)]
    v6: bool,
    /// Steer with the TC program instead of XDP
    #[arg(long)]
    tc: bool,
    /// Instead, probe so many backends of a synthetic farm that change their ways
    #[arg(long, value_name = "BACKENDS", conflicts_with_all = ["v6", "tc"])]
    farm: Option<u32>,
}

impl Arguments {
    fn family(&self) -> Family {
        if self.v6 { Family::V6 } else { Family::V4 }
    }

    fn program(&self) -> Program {
        if self.tc { Program::Tc } else { Program::Xdp }
    }

    fn words(&self) -> Vec<OsString> {
        let flags = [("--json", self.json), ("--v6", self.v6), ("--tc", self.tc)];
        let mut words: Vec<OsString> = vec!["demo".into()];
        words.extend(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| (*flag).into()));
        words.extend(self.farm.map(|count| format!("--farm={count}").into()));
        words
    }
}

/// Prepares the machine, builds, and goes on as process 1 of a private environment: this process
/// becomes that environment's keeper, so that ending it, by any means, ends everything.
///
/// # Errors
/// When the machine lacks something or the build fails; on success it does not return.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    packages::ensure_installed(packages::Use::Demo)?;
    build_ebpf::run()?;
    let mut command = inside::enter(&arguments.words())?;
    if arguments.farm.is_some() {
        cargo::run(&["build", "--release", "--package", "sickbay", "--bin", "sickbay"])?;
        let agent = build_ebpf::target_directory().join("release/sickbay");
        command.env(sickbay_lab::agent::BINARY_VARIABLE, agent);
    } else {
        cargo::build_agent()?;
    }
    Err(command.exec()).context("cannot make a private environment")
}

/// The second half, inside.
///
/// # Errors
/// When a part of the network, a server or the agent does not do what it should.
pub(crate) fn tell(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(count) = arguments.farm {
        farm::play(count, arguments.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let facts = story::play(arguments.family(), arguments.program())?;
    timeline::print(&facts);
    if arguments.json {
        println!("{}", timeline::json(&facts));
    }
    Ok(if facts.as_promised() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
