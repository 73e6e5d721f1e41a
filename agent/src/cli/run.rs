//! `sickbay run`: its arguments, and the configuration that they name; then [`crate::run`].

use std::path::PathBuf;
use std::process::ExitCode;

use super::with_what_stays;
use crate::config::{self, ConfigError, Configuration, Overrides};
use crate::discovery::Answers;
use crate::log::{self, LogFormat};
use crate::run::{self, Configured, Options};

/// Arguments of `sickbay run`.
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
    /// Use this eBPF object in place of the embedded one: for trying another version's
    #[arg(long, value_name = "FILE", hide = true)]
    pub object: Option<PathBuf>,
    /// Take everything out of the kernel at the end, instead of leaving the last verdicts in force
    #[arg(long)]
    pub detach_on_exit: bool,
}

/// Loads the configuration, starts the log as it says unless `log_format` does, and runs the agent
/// until a signal comes.
///
/// # Errors
///
/// The configuration is wrong, or what [`run::run`] fails with.
pub fn run(arguments: &RunArgs, log_format: Option<LogFormat>) -> anyhow::Result<ExitCode> {
    let configuration = arguments.load(&Answers::new());
    let configured = configuration.as_ref().map(|it| it.fleet.observe.log_format);
    log::start(log_format, configured.unwrap_or_default());
    let configuration = configuration.map_err(|error| arguments.not_loaded(error))?;
    tell(&configuration);
    let fleet = configuration.fleet;
    let pin_directory = fleet.pin_directory.clone();
    let (object, detach_on_exit) = (arguments.object.clone(), arguments.detach_on_exit);
    let options = Options { object, read: configuration.directories, detach_on_exit };
    let (arguments, file) = (arguments.clone(), arguments.config.clone());
    let source = move |known: &Answers| {
        let configuration = arguments.load(known)?;
        tell(&configuration);
        Ok(configuration.fleet)
    };
    run::run(fleet, Configured { file, source: Box::new(source) }, &options)
        .map_err(|error| with_what_stays(error, &pin_directory, "; "))?;
    Ok(ExitCode::SUCCESS)
}

impl RunArgs {
    /// The configuration with the arguments' overrides; what its names mean `known` says.
    ///
    /// # Errors
    ///
    /// Every mistake in the file, or why it cannot be read.
    pub fn load(&self, known: &Answers) -> Result<Configuration, ConfigError> {
        config::load_knowing(&self.config, &self.overrides(), known)
    }

    fn overrides(&self) -> Overrides {
        Overrides {
            instance: self.instance.clone(),
            pin_directory: self.pin_directory.clone(),
            run_directory: self.run_directory.clone(),
            state_directory: self.state_directory.clone(),
        }
    }

    /// The mistakes, and what goes on steering under the name that the instance has without its file.
    fn not_loaded(&self, error: ConfigError) -> anyhow::Error {
        match config::default_pin_directory(&self.overrides()) {
            Ok(pin_directory) => with_what_stays(error.into(), &pin_directory, "\n"),
            Err(_) => error.into(),
        }
    }
}

/// Logs what will disappoint, and what the configuration amounts to.
fn tell(configuration: &Configuration) {
    for warning in &configuration.warnings {
        tracing::warn!("{warning}");
    }
    tracing::info!("{}", configuration.summary);
}
