//! The command line: what the binary can be asked, and how it answers.
//!
//! One file per subcommand, named after it; each has its arguments and a `run`. Answers go to
//! standard output, everything else to standard error, one line per mistake. Exit codes: 0 done,
//! 1 refused or failed, 2 wrong usage; `ready` has two more.

/// `sickbay backend`: list backends, set their health, say who belongs to a pool.
pub mod backend;
/// `sickbay check`: validate a configuration and warn of its traps.
pub mod check;
/// `sickbay detach`: take everything of an instance out of the kernel.
pub mod detach;
/// `sickbay drops`: samples of dropped packets, and why.
pub mod drops;
/// `sickbay explain`: how many seconds, and by which probes.
pub mod explain;
/// `sickbay generate`: manual pages, completions, the configuration's reference.
pub mod generate;
/// `sickbay guard`: pools whose last verdicts are held.
pub mod guard;
/// `sickbay history`: what became of backends, from the files that the agent writes.
pub mod history;
/// What the listing subcommands share: which agent is asked, how its answer is written.
pub mod listing;
/// `sickbay probe`: probe from the command line, without root.
pub mod probe;
/// `sickbay ready`: whether a service's new flows have somewhere healthy to go.
pub mod ready;
/// `sickbay reload`: the configuration is read again.
pub mod reload;
/// `sickbay run`: its arguments and the configuration they name.
pub mod run;
/// `sickbay service`: list services and their counters.
pub mod service;
/// `sickbay status`: the agent itself.
pub mod status;
/// Tables for people.
pub mod table;
/// `sickbay watch`: transitions and polls as they happen.
pub mod watch;

use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::{Parser, Subcommand};

use crate::control::claim::ClaimError;
use crate::kernel::{KernelError, by_hand};
use crate::log::{self, LogFormat};

const EXAMPLES: &str = "\
Examples:
  sickbay probe http://192.0.2.1/healthz         Is it well? No root, no configuration
  sickbay check --print-example > sickbay.toml   A commented configuration to begin with
  sickbay check -c sickbay.toml                  Is it right? Where are its traps?
  sickbay explain -c sickbay.toml --plot         In how many seconds, and by which probes?
  sickbay run -c sickbay.toml                    Probe, decide, steer (as root)
  sickbay backend list -p                        Verdicts and the last 64 results of each
  sickbay history 'web.*' --since 1h             What became of them, and why
  sickbay watch --format varnishlog              Every probe, as varnishlog shows Backend_health
  sickbay explain flow 192.0.2.7:4711 198.51.100.1:80 tcp
                                                 Where would it go, and why?
  sickbay detach                                 Take everything out of the kernel

Exit codes: 0 done, 1 refused or failed, 2 wrong usage; `ready` has more of its own.
Logs go to standard error; SICKBAY_LOG sets the level (such as debug, or sickbay::engine=trace),
--log-format json (or SICKBAY_LOG_FORMAT=json) makes them one JSON object per line.";

/// Probes backends and steers flows past sick ones in the kernel.
///
/// sickbay probes tens of thousands of backends, judges each by its last results (k good ones of
/// the last n, as Varnish does), and publishes the verdict to an XDP or TC program, which skips a
/// sick backend for every new flow. Begin with `observe` services: they count what would be done
/// and change nothing.
#[derive(Debug, Parser)]
#[command(name = "sickbay", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// How log lines are written [default: the configuration's log_format, or text]
    #[arg(long, global = true, value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What the binary can be asked. The variants stand in the order of a first session.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Probe targets from the command line, without root: a first success
    Probe(probe::ProbeArgs),
    /// Validate a configuration and warn of its traps
    Check(check::CheckArgs),
    /// Say in how many seconds a dead backend is sick, and by which probes
    Explain(explain::ExplainArgs),
    /// Probe, decide and steer until a signal comes (as root)
    ///
    /// What is pinned outlives the agent: when it stops or dies, steering goes on by the last
    /// verdicts until a new agent takes over, or until `sickbay detach`. Once started, the agent
    /// gives up what it does not need: capabilities, system calls, files; [privilege] in the
    /// configuration says more, and `sickbay status` what is held.
    Run(run::RunArgs),
    /// Show the running agent
    Status(status::StatusArgs),
    /// Have the running agent read its configuration again: backends and weights
    Reload(reload::ReloadArgs),
    /// List backends, set their health, say who belongs to a pool
    Backend(backend::BackendArgs),
    /// Watch verdicts change, or every probe in Varnish's words
    Watch(watch::WatchArgs),
    /// Show what became of backends, from the files that the agent writes
    History(history::HistoryArgs),
    /// List services and what the kernel did with their packets
    Service(service::ServiceArgs),
    /// Show samples of dropped packets, and why they were
    Drops(drops::DropsArgs),
    /// List the pools whose last verdicts are held, or release them
    Guard(guard::GuardArgs),
    /// Say by the exit status whether a service's new flows have somewhere healthy to go
    Ready(ready::ReadyArgs),
    /// Take everything of an instance out of the kernel, with or without its agent
    Detach(detach::DetachArgs),
    /// Generate manual pages, shell completions, or the reference of the configuration
    Generate(generate::GenerateArgs),
}

/// Reads the arguments, does what they ask, and says how it went.
#[must_use]
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if !matches!(arguments.command, Command::Run(_)) {
        // That one reads the configuration first, which may say how.
        log::start(arguments.log_format, LogFormat::default());
    }
    let done = match &arguments.command {
        Command::Probe(arguments) => probe::run(arguments),
        Command::Check(arguments) => check::run(arguments),
        Command::Explain(arguments) => explain::run(arguments),
        Command::Run(run) => run::run(run, arguments.log_format),
        Command::Status(arguments) => status::run(arguments),
        Command::Reload(arguments) => reload::run(arguments),
        Command::Backend(arguments) => backend::run(arguments),
        Command::Watch(arguments) => watch::run(arguments),
        Command::History(arguments) => history::run(arguments),
        Command::Service(arguments) => service::run(arguments),
        Command::Drops(arguments) => drops::run(arguments),
        Command::Guard(arguments) => guard::run(arguments),
        Command::Ready(arguments) => ready::run(arguments),
        Command::Detach(arguments) => detach::run(arguments),
        Command::Generate(arguments) => generate::run(arguments),
    };
    done.unwrap_or_else(|error| {
        if is_broken_pipe(&error) {
            // Whoever read our output has seen enough.
            return ExitCode::SUCCESS;
        }
        complain(&whole_text(&error));
        ExitCode::FAILURE
    })
}

/// Writes each line of a message to standard error behind the program's name; in the journal it is an
/// error, where the reason of a failed start is looked for.
pub fn complain(message: &str) {
    let priority = if log::to_journal() { "<3>" } else { "" };
    let mut stderr = std::io::stderr().lock();
    for line in message.lines() {
        // When standard error is gone there is nobody left to tell.
        if writeln!(stderr, "{priority}sickbay: {line}").is_err() {
            return;
        }
    }
}

/// The error with its causes, each once: many errors name their cause in their own text.
fn whole_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

/// The error, and behind it what goes on steering for the instance that is pinned there; not where
/// that is another agent's business.
fn with_what_stays(error: anyhow::Error, pin_directory: &Path, between: &str) -> anyhow::Error {
    let is_anothers = error.is::<ClaimError>()
        || matches!(error.downcast_ref(), Some(KernelError::Running { .. }));
    match by_hand::what_stays(pin_directory) {
        Some(stays) if !is_anothers => anyhow!("{}{between}{stays}", whole_text(&error)),
        _ => error,
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn cause_is_told_once() {
        let cause = || std::io::Error::other("the disk is full");
        let named = anyhow::Error::new(cause()).context("cannot write x: the disk is full");
        assert_eq!(whole_text(&named), "cannot write x: the disk is full");
        let unnamed = anyhow::Error::new(cause()).context("cannot write x");
        assert_eq!(whole_text(&unnamed), "cannot write x: the disk is full");
    }

    #[test]
    fn arguments_are_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn long_help_of_run_says_what_outlives_it() {
        let mut command = Arguments::command();
        let run = command.find_subcommand_mut("run").expect("it is a subcommand");
        let help = run.render_long_help().to_string();
        assert!(help.contains("What is pinned outlives the agent"), "{help}");
        assert!(help.contains("`sickbay status` what is held"), "{help}");
    }

    #[test]
    fn check_needs_a_file_unless_it_prints_the_example() {
        let parse = |words: &[&str]| Arguments::try_parse_from(words).map(|parsed| parsed.command);
        let error = parse(&["sickbay", "check"]).expect_err("no file");
        assert_eq!(error.exit_code(), 2);
        parse(&["sickbay", "check", "--print-example"]).expect("no file is needed");
        parse(&["sickbay", "check", "-c", "x", "--print-example"]).expect_err("one of the two");
        parse(&["sickbay", "check", "-c", "x", "-o", "json", "--strict"]).expect("all of it");
    }
}
