//! `sickbay reload`: has the agent read its configuration again.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::listing::{InstanceArgs, printable, write_text};

/// Have the agent read its configuration again, as SIGHUP does.
///
/// All of the file is put in force at once, or nothing. Backends that are new in it are added, those
/// that are no longer there are removed (also those that `backend add` brought) and keep their flows
/// for their pool's drain. Targets keep their results, and another rule judges these. Only the
/// instance's name, its directories, metrics, history and log format need a restart.
#[derive(Clone, Debug, Args)]
pub struct ReloadArgs {
    /// Only say what it would change
    #[arg(long)]
    pub dry_run: bool,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay reload`, writing to standard output.
///
/// # Errors
///
/// No agent runs, it refuses, or the output cannot be written.
pub fn run(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    run_on(args, &mut io::stdout().lock())
}

/// Runs `sickbay reload`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &ReloadArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let reloaded = args.instance.client()?.reload(args.dry_run)?;
    let mut lines = String::new();
    for (names, what) in
        [(&reloaded.added, "added"), (&reloaded.removed, "removed"), (&reloaded.weighed, "weighed")]
    {
        names.iter().for_each(|name| lines.push_str(&format!("{name} {what}\n")));
    }
    reloaded.changed.iter().for_each(|line| lines.push_str(&format!("{}\n", printable(line))));
    let would = if args.dry_run { "would be: " } else { "" };
    lines.push_str(&format!("{would}{}\n", reloaded.summary()));
    write_text(out, &lines)?;
    reloaded.notes.iter().for_each(|note| eprintln!("sickbay: {note}"));
    Ok(ExitCode::SUCCESS)
}
