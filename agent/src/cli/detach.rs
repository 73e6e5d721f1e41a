//! `sickbay detach`: programs off their interfaces, maps unpinned, directories removed.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::listing::{OutputFormat, printable};
use super::with_what_stays;
use crate::config::{self, Overrides};
use crate::kernel;

/// Take everything of an instance out of the kernel, with or without its agent.
///
/// Traffic then takes the way it had before sickbay. When there is nothing to remove, that is said
/// and is no error.
#[derive(Clone, Debug, clap::Args)]
pub struct DetachArgs {
    /// The instance's configuration file, for its name and pin directory
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Name of the instance, in place of the file's [default: default]
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    /// Where it is pinned, in place of the file's, without the instance name [default:
    /// /sys/fs/bpf/sickbay]
    #[arg(long, value_name = "DIRECTORY")]
    pub pin_directory: Option<PathBuf>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Detaches, and prints what was removed.
///
/// # Errors
///
/// The configuration is wrong, something could not be removed, or the output cannot be written.
pub fn run(arguments: &DetachArgs) -> anyhow::Result<ExitCode> {
    let overrides = Overrides {
        instance: arguments.instance.clone(),
        pin_directory: arguments.pin_directory.clone(),
        ..Overrides::default()
    };
    let directory = match &arguments.config {
        Some(path) => config::load(path, &overrides)?.fleet.pin_directory,
        None => config::default_pin_directory(&overrides)?,
    };
    let removed = kernel::detach(&directory)
        .map_err(|error| with_what_stays(error.into(), &directory, "; "))?;
    let removed: Vec<String> = removed.iter().map(ToString::to_string).collect();
    let mut stdout = std::io::stdout().lock();
    match arguments.output {
        OutputFormat::Json => {
            let directory = directory.to_string_lossy();
            serde_json::to_writer_pretty(&mut stdout, &Answer { directory, removed })?;
            writeln!(stdout)?;
        }
        OutputFormat::Text if removed.is_empty() => {
            let directory = printable(&directory.to_string_lossy());
            writeln!(stdout, "nothing is pinned at {directory}")?;
        }
        OutputFormat::Text => {
            for line in removed {
                writeln!(stdout, "{line}")?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[derive(Serialize)]
struct Answer<'a> {
    directory: std::borrow::Cow<'a, str>,
    removed: Vec<String>,
}
