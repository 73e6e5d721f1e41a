//! The log: text or JSON, to standard error; for a terminal, a file or the journal.
//!
//! At the level of a normal run (`info`) it tells transitions, alarms and what operators had done,
//! and nothing of single probes. Every line is printable ASCII, whatever stands in the texts. When
//! standard error is the journal, a line begins with its priority, `<6>`, which systemd takes off
//! (sd-daemon(3)), and has no time of its own.

use std::fmt;
use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format;
use tracing_subscriber::util::SubscriberInitExt as _;

use self::lines::{Lines, Place};
use crate::cli::complain;

/// One event, one line.
mod lines;

/// The level's variable.
const LEVEL_VARIABLE: &str = "SICKBAY_LOG";
/// The format's variable.
const FORMAT_VARIABLE: &str = "SICKBAY_LOG_FORMAT";
/// Device and inode of what systemd connected standard error to (systemd.exec(5)).
const JOURNAL_VARIABLE: &str = "JOURNAL_STREAM";

/// How log lines are written.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people: time, level, part, message.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

impl fmt::Display for LogFormat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Starts the log, once. The format is what the command line says, else what the variable
/// SICKBAY_LOG_FORMAT says, else what the configuration says.
pub fn start(given: Option<LogFormat>, configured: LogFormat) {
    let format = given.or_else(format_of_environment).unwrap_or(configured);
    let wanted = std::env::var(LEVEL_VARIABLE).unwrap_or_default();
    let wanted = if wanted.is_empty() { "info".to_owned() } else { wanted };
    let filter = EnvFilter::try_new(&wanted).unwrap_or_else(|error| {
        complain(&format!("{LEVEL_VARIABLE}: {error}; using info"));
        EnvFilter::new("info")
    });
    let place = place();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match (format, place) {
        (LogFormat::Json, Place::Journal) => {
            let lines = Lines::json(format::format().json().without_time(), place);
            builder.json().event_format(lines).finish().try_init()
        }
        (LogFormat::Json, _) => {
            let lines = Lines::json(format::format().json(), place);
            builder.json().event_format(lines).finish().try_init()
        }
        (LogFormat::Text, Place::Journal) => {
            let lines = Lines::text(format::format().without_time(), place);
            builder.event_format(lines).finish().try_init()
        }
        (LogFormat::Text, _) => {
            let lines = Lines::text(format::format(), place);
            builder.event_format(lines).finish().try_init()
        }
    };
    if let Err(error) = started {
        complain(&format!("no log: {error}"));
    }
}

fn format_of_environment() -> Option<LogFormat> {
    let text = std::env::var(FORMAT_VARIABLE).ok().filter(|text| !text.is_empty())?;
    let format = LogFormat::from_str(&text, false);
    if format.is_err() {
        complain(&format!("{FORMAT_VARIABLE} is neither text nor json; it says nothing"));
    }
    format.ok()
}

/// Whether standard error is the journal.
pub fn to_journal() -> bool {
    let journal = std::env::var(JOURNAL_VARIABLE).unwrap_or_default();
    // Its inode too: a program that was started with another standard error has the variable all
    // the same.
    !journal.is_empty()
        && std::fs::metadata("/proc/self/fd/2")
            .is_ok_and(|found| journal == format!("{}:{}", found.dev(), found.ino()))
}

/// What standard error is.
fn place() -> Place {
    if to_journal() {
        Place::Journal
    } else if std::io::stderr().is_terminal() {
        Place::Terminal
    } else {
        Place::File
    }
}
