//! `sickbay check`: is the configuration right, what does it amount to, and where are its traps?
//! Or, of a VCL: which probes and backends has it, with which effective parameters?

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::complain;
use super::listing::{OutputFormat, printable, write_json};
use crate::config::{self, Overrides, Problem, Summary};
use crate::vcl::{self, Listing};

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
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["print_example", "vcl"])]
    pub config: Option<PathBuf>,
    /// Print a commented configuration that names every key, and stop
    #[arg(long, conflicts_with_all = ["config", "strict"])]
    pub print_example: bool,
    /// A VCL instead: print its probes and backends with their effective parameters. What is wrong
    /// is told in the words of Varnish's compiler
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "print_example"])]
    pub vcl: Option<PathBuf>,
    /// With --vcl: warn of unused probes and backends, as Varnish with vcc_err_unref=off
    #[arg(long, requires = "vcl")]
    pub allow_unused: bool,
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
    if let Some(path) = &arguments.vcl {
        return check_vcl(arguments, path);
    }
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
    Ok(exit_code(arguments, &findings.errors, &findings.warnings))
}

fn check_vcl(arguments: &CheckArgs, path: &Path) -> anyhow::Result<ExitCode> {
    let mut findings = VclFindings::default();
    let read = vcl::load(path);
    match &read {
        Ok(vcl) => {
            findings.listing = Some(Listing::of(vcl));
            findings.warnings.clone_from(&vcl.warnings);
            let unused =
                if arguments.allow_unused { &mut findings.warnings } else { &mut findings.errors };
            unused.extend_from_slice(&vcl.unused);
        }
        Err(bad) => {
            findings.errors.clone_from(&bad.errors);
            findings.warnings.clone_from(&bad.warnings);
        }
    }
    match arguments.output {
        OutputFormat::Text => {
            tell(&findings.errors, &findings.warnings);
            if let Some(listing) = findings.listing.as_ref().filter(|_| findings.errors.is_empty())
            {
                write!(std::io::stdout().lock(), "{listing}")?;
            }
        }
        OutputFormat::Json => write_json(&mut std::io::stdout().lock(), &findings)?,
    }
    Ok(exit_code(arguments, &findings.errors, &findings.warnings))
}

fn exit_code(arguments: &CheckArgs, errors: &[Problem], warnings: &[Problem]) -> ExitCode {
    let frowned_on = arguments.strict && !warnings.is_empty();
    if errors.is_empty() && !frowned_on { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// What is wrong and what will disappoint, one line each.
fn tell(errors: &[Problem], warnings: &[Problem]) {
    if !errors.is_empty() {
        let (errors, warnings) = (errors.to_vec(), Vec::new());
        complain(&config::ConfigError { errors, warnings }.to_string());
    }
    for warning in warnings {
        complain(&format!("warning: {warning}"));
    }
}

#[derive(Default, Serialize)]
struct VclFindings<'v> {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    /// Nothing when the VCL could not be read to its end.
    #[serde(flatten)]
    listing: Option<Listing<'v>>,
}

#[derive(Serialize)]
struct Findings {
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
    summary: Option<Summary>,
}

impl Findings {
    fn print_text(&self, path: &Path) -> std::io::Result<()> {
        tell(&self.errors, &self.warnings);
        if let Some(summary) = &self.summary {
            let file = printable(&path.to_string_lossy());
            let mut stdout = std::io::stdout().lock();
            writeln!(stdout, "{file}: {summary}")?;
            for service in &summary.steered {
                writeln!(stdout, "  {service}")?;
            }
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
