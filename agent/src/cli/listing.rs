//! What the listing subcommands share: which agent is asked, and how its answer is written.

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;

use crate::control::client::{Client, ClientError};
use crate::control::{DEFAULT_INSTANCE, RUN_ROOT};
use crate::plain::printable_json;

pub use crate::plain::printable;

/// Which running agent is asked.
#[derive(Clone, Debug, Args)]
pub struct InstanceArgs {
    /// The agent to ask, by the `instance` of its configuration
    #[arg(long, value_name = "NAME", default_value = DEFAULT_INSTANCE, value_parser = file_name)]
    pub instance: String,
    /// Where the run directories of the instances stand: its configuration's `run_directory`
    #[arg(long, value_name = "DIRECTORY", default_value = RUN_ROOT)]
    pub run_directory: PathBuf,
}

impl InstanceArgs {
    /// The run directory of the agent to ask.
    #[must_use]
    pub fn directory(&self) -> PathBuf {
        self.run_directory.join(&self.instance)
    }

    /// The agent.
    ///
    /// # Errors
    ///
    /// None runs there, or this user may not ask it.
    pub fn client(&self) -> Result<Client, ClientError> {
        Client::connect(&self.directory())
    }
}

/// How a listing is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// A table for people.
    #[default]
    Text,
    /// JSON for programs; registers are decimal strings, because they need all 64 bits.
    Json,
}

/// What the output goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Screen {
    /// Columns of the terminal; `None` = not a terminal: nothing is cut.
    pub width: Option<usize>,
    /// Whether colour is welcome.
    pub colour: bool,
}

impl Screen {
    /// Standard output: colour on a terminal only, and not when NO_COLOR is set.
    #[must_use]
    pub fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::default();
        }
        let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            width: terminal_size::terminal_size().map(|(width, _)| usize::from(width.0)),
            colour: !plain,
        }
    }
}

/// Writes `text`; a reader that has had enough (`| head`) is no error.
///
/// # Errors
///
/// The output cannot be written.
pub fn write_text(out: &mut dyn Write, text: &str) -> anyhow::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write the output"),
    }
}

/// Writes `value` as JSON, indented, with a closing LF.
///
/// # Errors
///
/// The output cannot be written.
pub fn write_json<T: Serialize>(out: &mut dyn Write, value: &T) -> anyhow::Result<()> {
    // In pieces as it is made: what is shown of a large VCL need not fit the memory.
    let mut out = io::BufWriter::new(out);
    let written = serde_json::to_writer_pretty(PlainJson(&mut out), value).map_err(io::Error::from);
    match written.and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write JSON"),
    }
}

/// JSON on its way out: what is not printable ASCII in its strings is escaped, since operators'
/// reasons are shown as they wrote them, and a terminal obeys more than C0.
struct PlainJson<W>(W);

impl<W: Write> Write for PlainJson<W> {
    /// The serializer hands over what stands between two of its own escapes as one piece.
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let is_plain = piece.iter().all(|byte| byte.is_ascii() && *byte != 0x7f);
        match std::str::from_utf8(piece) {
            Ok(text) if !is_plain => self.0.write_all(printable_json(text).as_bytes())?,
            _ => self.0.write_all(piece)?,
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// An instance's name: one file name, so that it cannot lead out of the run root.
pub(super) fn file_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains('/') || text == "." || text == ".." {
        return Err("not an instance name; for a path use --run-directory".to_owned());
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_harmless_on_a_terminal_and_means_the_same() {
        // C1's CSI, DEL, one that turns the line around, one past 16 bits, and what JSON escapes.
        let value = serde_json::json!({ "reason": "a\u{9b}2J\u{7f}\u{202e}\u{1f480}\u{1b}\"\n" });
        let mut shown = Vec::new();
        write_json(&mut shown, &value).expect("a Vec takes all bytes");
        assert!(shown.iter().all(|byte| matches!(byte, b'\n' | b' '..=b'~')), "{shown:?}");
        let read: serde_json::Value = serde_json::from_slice(&shown).expect("JSON");
        assert_eq!(read, value);
    }
}
