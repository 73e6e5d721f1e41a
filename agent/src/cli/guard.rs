//! `sickbay guard`: which pools' last verdicts are held, and the end of a hold by hand.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::listing::{InstanceArgs, OutputFormat, printable, write_json, write_text};
use crate::guard::GuardView;

/// Arguments of `sickbay guard`.
#[derive(Clone, Debug, Args)]
pub struct GuardArgs {
    /// What to do
    #[command(subcommand)]
    pub command: GuardCommand,
}

/// Subcommands of `sickbay guard`.
#[derive(Clone, Debug, Subcommand)]
pub enum GuardCommand {
    /// List the pools whose last verdicts are held, and why
    List(ListArgs),
    /// End the hold over a pool, or over all: the kernel is told the verdicts as they are
    Release(ReleaseArgs),
}

/// Arguments of `sickbay guard list`.
#[derive(Clone, Debug, Args)]
pub struct ListArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Arguments of `sickbay guard release`.
#[derive(Clone, Debug, Args)]
pub struct ReleaseArgs {
    /// The pool [default: every one that is held]
    pub pool: Option<String>,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay guard`, writing to standard output.
///
/// # Errors
///
/// No agent runs, it refuses, or the output cannot be written.
pub fn run(args: &GuardArgs) -> anyhow::Result<ExitCode> {
    run_on(args, &mut io::stdout().lock())
}

/// Runs `sickbay guard`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &GuardArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match &args.command {
        GuardCommand::List(list) => {
            let views = list.instance.client()?.guards()?;
            match list.output {
                OutputFormat::Json => write_json(out, &views)?,
                OutputFormat::Text => write_text(out, &text(&views))?,
            }
        }
        GuardCommand::Release(release) => {
            let pools = release.instance.client()?.release_guard(release.pool.as_deref())?;
            let mut text = String::new();
            for pool in &pools {
                writeln!(text, "{}: released", printable(pool)).expect("a String takes all text");
            }
            write_text(out, if pools.is_empty() { "nothing was held\n" } else { &text })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn text(views: &[GuardView]) -> String {
    if views.is_empty() {
        return "no verdicts are held\n".to_owned();
    }
    let mut text = String::new();
    for view in views {
        let left_s = view.left_ms.div_ceil(1000);
        let line = format!(
            "{}: {} backends turned sick at once and {}: last verdicts held for {left_s} s more at \
             most",
            view.pool, view.fallen, view.evidence,
        );
        text.push_str(&printable(&line));
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_is_told_with_its_reason_and_its_end() {
        assert_eq!(text(&[]), "no verdicts are held\n");
        let view = GuardView {
            pool: "web".to_owned(),
            evidence: "this host probed late".to_owned(),
            fallen: 6,
            left_ms: 59_001,
        };
        assert_eq!(
            text(&[view]),
            "web: 6 backends turned sick at once and this host probed late: last verdicts held for \
             60 s more at most\n"
        );
    }
}
