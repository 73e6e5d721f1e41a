//! `sickbay history`: what became of backends, from the files that the agent writes. It need not
//! run, and is not asked.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, anyhow};
use clap::Args;

use super::complain;
use super::listing::{OutputFormat, file_name, printable, write_text};
use super::watch::matches;
use crate::control::DEFAULT_INSTANCE;
use crate::control::history::reader::{Item, Reader};
use crate::control::history::{HistoryEvent, STATE_ROOT};
use crate::control::pattern::Pattern;
use crate::plain::printable_json;

/// Arguments of `sickbay history`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sickbay history --since 1h                       All of the last hour
  sickbay history 'web.*' --since 2026-11-29T17:30:00Z
  sickbay history web.b3 -o json                   Of one backend, a JSON object a line")]
pub struct HistoryArgs {
    /// Only from this moment on: how long ago (90s, 1h, 2days), or when (2026-11-29T17:30:00Z,
    /// UTC)
    #[arg(long, value_name = "AGO|TIME", value_parser = since)]
    pub since: Option<SystemTime>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Whose, by the `instance` of its configuration
    #[arg(long, value_name = "NAME", default_value = DEFAULT_INSTANCE, value_parser = file_name)]
    pub instance: String,
    /// Where the histories of the instances stand: its configuration's `state_directory`
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_ROOT)]
    pub state_directory: PathBuf,
    /// Only of the backends that this glob matches, as for `backend list`
    pub pattern: Option<String>,
}

/// Prints the history.
///
/// # Errors
///
/// There is none, it cannot be read, or the output cannot be written.
pub fn run(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    run_on(args, &mut io::stdout().lock())
}

/// Prints the history to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &HistoryArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let pattern = args.pattern.as_deref().map(Pattern::new).transpose()?;
    let directory = args.state_directory.join(&args.instance);
    let shown = printable(&directory.to_string_lossy());
    let failed = |error: io::Error| {
        let remedy = match error.kind() {
            io::ErrorKind::NotFound => {
                "; has its agent run with history = true? --instance and --state-directory say which"
            }
            io::ErrorKind::PermissionDenied => "; run as root",
            _ => "",
        };
        anyhow!("cannot read the history in {shown}: {error}{remedy}")
    };
    let mut reader = Reader::new(&directory).map_err(failed)?;
    let since_ms = args.since.map_or(0, unix_ms);
    let mut unreadable = Unreadable::default();
    // A line at a time would be a system call a line.
    let mut out = io::BufWriter::new(out);
    let mut missing = 0;
    while let Some(item) = reader.next_item().map_err(failed)? {
        match item {
            Item::Missing(count) => missing = count,
            Item::Unreadable { path, line } => unreadable.count(path, line),
            Item::Event(event, line) => {
                let gap = std::mem::take(&mut missing);
                if event.event.at_unix_ms < since_ms {
                    continue;
                }
                if 0 < gap {
                    let order = event.order;
                    complain(&format!("{gap} events before number {order} could not be kept"));
                }
                let name = &event.event.name;
                if pattern.as_ref().is_some_and(|pattern| !matches(pattern, name)) {
                    continue;
                }
                let line = shown_line(args.output, &event, &line);
                if let Err(error) = writeln!(out, "{line}") {
                    return match error.kind() {
                        io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
                        _ => Err(error).context("cannot write the output"),
                    };
                }
            }
        }
    }
    unreadable.tell();
    write_text(&mut out, "")?;
    Ok(ExitCode::SUCCESS)
}

/// The event as it is printed; JSON as it stands in the file.
fn shown_line(output: OutputFormat, event: &HistoryEvent, line: &str) -> String {
    match output {
        OutputFormat::Json => printable_json(line),
        OutputFormat::Text => printable(&format!("{} {}", event.time, event.event.text())),
    }
}

/// Lines that are no events.
#[derive(Default)]
struct Unreadable {
    count: u64,
    first: Option<(PathBuf, u64)>,
}

impl Unreadable {
    fn count(&mut self, path: PathBuf, line: u64) {
        self.count += 1;
        self.first.get_or_insert((path, line));
    }

    /// Says it once, however many there are.
    fn tell(self) {
        if let Some((path, line)) = self.first {
            let path = printable(&path.to_string_lossy());
            let count = self.count;
            complain(&format!(
                "{path}:{line}: no event that this version reads ({count} such lines in all)"
            ));
        }
    }
}

/// A moment, as it is written after `--since`.
fn since(text: &str) -> Result<SystemTime, String> {
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        return Ok(time);
    }
    let refused = || {
        "neither how long ago (90s, 1h, 2days) nor when (2026-11-29T17:30:00Z, in UTC)".to_owned()
    };
    let ago = humantime::parse_duration(text).map_err(|_| refused())?;
    SystemTime::now().checked_sub(ago).ok_or_else(refused)
}

fn unix_ms(time: SystemTime) -> u64 {
    let since_epoch = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;
    use crate::control::history::tests::event;

    /// What is printed of a history of these backends, an hour from one to the next.
    fn printed(names: &[&str], since: Option<&str>, output: OutputFormat) -> String {
        let root = TempDir::new().unwrap();
        let directory = root.path().join("default");
        fs::create_dir(&directory).unwrap();
        let mut text = String::new();
        for (order, name) in (0..).zip(names) {
            let mut event = event(name, "Open error 111 \u{1b}[2J<b>");
            event.at_unix_ms += 3_600_000 * order;
            text.push_str(&HistoryEvent::new(order + 1, event).line());
        }
        fs::write(directory.join("events-00000000000000000001.jsonl"), text).unwrap();
        let args = HistoryArgs {
            since: since.map(|text| super::since(text).unwrap()),
            output,
            instance: "default".to_owned(),
            state_directory: root.path().to_owned(),
            pattern: Some("web.*".to_owned()),
        };
        let mut out = Vec::new();
        run_on(&args, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    const NAMES: [&str; 4] = ["web.b1", "api.b1", "web.b2", "web"];

    #[test]
    fn events_are_printed_with_their_times_and_causes() {
        let text = printed(&NAMES, Some("2026-11-29T18:00:00Z"), OutputFormat::Text);
        let went = r"went sick: 2 of 4 good, needs 3: Open error 111 \u{1b}[2J<b>";
        let expected = format!(
            "2026-11-29T19:30:28.250Z web.b2 {went}\n2026-11-29T20:30:28.250Z web {went}\n"
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn json_is_the_events_as_they_were() {
        let text = printed(&NAMES, None, OutputFormat::Json);
        assert!(text.is_ascii() && !text.contains('\u{1b}'), "{text:?}");
        let events: Vec<HistoryEvent> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let orders: Vec<u64> = events.iter().map(|event| event.order).collect();
        assert_eq!(orders, [1, 3, 4]);
        assert_eq!(events[0].event.cause, "Open error 111 \u{1b}[2J<b>");
    }

    #[test]
    fn since_is_a_moment_or_how_long_ago() {
        let ago = since("1h").unwrap();
        let age = SystemTime::now().duration_since(ago).unwrap();
        assert!((3_600..3_660).contains(&age.as_secs()), "{age:?}");
        // By `date -u -d 2026-11-29T17:30:28Z +%s`.
        let moment = UNIX_EPOCH + Duration::from_secs(1_795_973_428);
        assert_eq!(since("2026-11-29T17:30:28Z"), Ok(moment));
        for odd in ["", "yesterday", "-1h", "2026-13-01T00:00:00Z", "99999999999999years"] {
            assert!(since(odd).is_err(), "{odd}");
        }
    }

    #[test]
    fn history_that_is_not_there_is_said_with_the_remedy() {
        let args = HistoryArgs {
            since: None,
            output: OutputFormat::Text,
            instance: "none".to_owned(),
            state_directory: PathBuf::from("/nonexistent"),
            pattern: None,
        };
        let error = run_on(&args, &mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("/nonexistent/none") && error.contains("--instance"), "{error}");
        assert_eq!(error.lines().count(), 1);
    }
}
