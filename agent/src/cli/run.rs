//! `sickbay run`: its arguments, and the configuration that they name; then [`crate::run`].

use std::path::PathBuf;
use std::process::ExitCode;

use crate::config::{self, ConfigError, Configuration, Overrides};
use crate::run::{self, Options};

/// Probe, decide and steer until a signal comes (as root).
///
/// What is pinned outlives the agent: when it stops or dies, steering goes on by the last verdicts
/// until a new agent takes over, or until `sickbay detach`.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE")]
    pub config: PathBuf,
    /// Name of this instance, in place of the file's
    #[arg(long, value_name = "NAME")]
    pub instance: Option<String>,
    /// Where maps and links are pinned, in place of the file's; the instance name is appended
    #[arg(long, value_name = "DIRECTORY")]
    pub pin_directory: Option<PathBuf>,
    /// Where the admin socket stands, in place of the file's; the instance name is appended
    #[arg(long, value_name = "DIRECTORY")]
    pub run_directory: Option<PathBuf>,
    /// Where the history of events is kept, in place of the file's; the instance name is appended
    #[arg(long, value_name = "DIRECTORY")]
    pub state_directory: Option<PathBuf>,
    /// Take everything out of the kernel at the end, instead of leaving the last verdicts in force
    #[arg(long)]
    pub detach_on_exit: bool,
}

/// Loads the configuration and runs the agent until a signal comes.
///
/// # Errors
///
/// The configuration is wrong, or what [`run::run`] fails with.
pub fn run(arguments: &RunArgs) -> anyhow::Result<ExitCode> {
    let fleet = arguments.load()?.fleet;
    let options = Options { detach_on_exit: arguments.detach_on_exit };
    let arguments = arguments.clone();
    let source = move || arguments.load().map(|configuration| configuration.fleet);
    run::run(fleet, source, options)?;
    Ok(ExitCode::SUCCESS)
}

impl RunArgs {
    /// The configuration with the arguments' overrides; its warnings are logged.
    ///
    /// # Errors
    ///
    /// Every mistake in the file, or why it cannot be read.
    pub fn load(&self) -> Result<Configuration, ConfigError> {
        let overrides = Overrides {
            instance: self.instance.clone(),
            pin_directory: self.pin_directory.clone(),
            run_directory: self.run_directory.clone(),
            state_directory: self.state_directory.clone(),
        };
        let configuration = config::load(&self.config, &overrides)?;
        for warning in &configuration.warnings {
            tracing::warn!("{warning}");
        }
        tracing::info!("{}", configuration.summary);
        Ok(configuration)
    }
}
