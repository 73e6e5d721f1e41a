//! `sickbay reload`: has the agent read its configuration again.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;

use super::listing::{InstanceArgs, write_text};

/// Have the agent read its configuration again, as SIGHUP does.
///
/// Backends that are new in the file are added, those that are no longer there are removed, and
/// weights are set, all at once or not at all. What else differs needs a restart, and is refused.
/// Backends that `backend add` brought and that the file does not name are removed.
#[derive(Clone, Debug, Args)]
pub struct ReloadArgs {
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
    let reloaded = args.instance.client()?.reload()?;
    let mut lines = String::new();
    for (names, what) in
        [(&reloaded.added, "added"), (&reloaded.removed, "removed"), (&reloaded.weighed, "weighed")]
    {
        names.iter().for_each(|name| lines.push_str(&format!("{name} {what}\n")));
    }
    lines.push_str(&format!("{}\n", reloaded.summary()));
    write_text(out, &lines)?;
    reloaded.notes.iter().for_each(|note| eprintln!("sickbay: {note}"));
    Ok(ExitCode::SUCCESS)
}
