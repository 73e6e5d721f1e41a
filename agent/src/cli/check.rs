//! `sickbay check`: is the configuration right, what does it amount to, and where are its traps?

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use super::complain;
use super::listing::{OutputFormat, printable};
use crate::config::{self, Overrides, Problem, Summary};

/// Validate a configuration and warn of its traps.
///
/// Every mistake is told with its line and the way to mend it, not only the first. Warnings are for
/// what is allowed and disappoints: a single probe that decides, a timeout that outlasts the
/// interval, a URL that proves nothing, more load than a backend may like.
///
/// Needs no root and looks at nothing but files.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 right (warnings included), 1 wrong, 2 wrong usage.")]
pub struct CheckArgs {
    /// The configuration file
    #[arg(short, long, value_name = "FILE", required_unless_present = "print_example")]
    pub config: Option<PathBuf>,
    /// Print a commented configuration that names every key, and stop
    #[arg(long, conflicts_with_all = ["config", "strict"])]
    pub print_example: bool,
    /// Exit with 1 when there are warnings
    #[arg(long)]
    pub strict: bool,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
}

/// Checks, and prints what came of it.
///
/// # Errors
///
/// The output cannot be written. A wrong configuration is no error here: its mistakes are printed,
/// and the exit code is 1.
pub fn run(arguments: &CheckArgs) -> anyhow::Result<ExitCode> {
    let Some(path) = arguments.config.as_ref().filter(|_| !arguments.print_example) else {
        std::io::stdout().lock().write_all(config::example().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let findings = match config::load(path, &Overrides::default()) {
        Ok(good) => {
            Findings { errors: vec![], warnings: good.warnings, summary: Some(good.summary) }
        }
        Err(bad) => Findings { errors: bad.errors, warnings: bad.warnings, summary: None },
    };
    match arguments.output {
        OutputFormat::Text => findings.print_text(path)?,
        OutputFormat::Json => findings.print_json()?,
    }
    let wrong = !findings.errors.is_empty();
    let frowned_on = arguments.strict && !findings.warnings.is_empty();
    Ok(if wrong || frowned_on { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

#[derive(Serialize)]
struct Findings {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    summary: Option<Summary>,
}

impl Findings {
    fn print_text(&self, path: &std::path::Path) -> std::io::Result<()> {
        if !self.errors.is_empty() {
            let (errors, warnings) = (self.errors.clone(), Vec::new());
            complain(&config::ConfigError { errors, warnings }.to_string());
        }
        for warning in &self.warnings {
            complain(&format!("warning: {warning}"));
        }
        if let Some(summary) = &self.summary {
            let file = printable(&path.to_string_lossy());
            writeln!(std::io::stdout().lock(), "{file}: {summary}")?;
        }
        Ok(())
    }

    fn print_json(&self) -> anyhow::Result<()> {
        let mut stdout = std::io::stdout().lock();
        serde_json::to_writer_pretty(&mut stdout, self)?;
        writeln!(stdout)?;
        Ok(())
    }
}
