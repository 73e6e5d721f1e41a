//! `sickbay watch`: what a running agent finds out, as it finds it out.
//!
//! Transitions of verdicts, or Varnish's record of every poll. The agent is asked again and again
//! for what is newer than what was seen: one that is restarted meanwhile is found again, and a
//! reader that is slow holds up nobody. What came too fast to be kept is told on standard error.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::complain;
use super::listing::{InstanceArgs, printable, write_text};
use crate::control::client::{Client, ClientError};
use crate::control::journal::TransitionView;
use crate::control::pattern::Pattern;
use crate::plain::printable_json;

/// Between two questions to the agent.
const LOOK: Duration = Duration::from_millis(100);

/// Arguments of `sickbay watch`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sickbay watch                          What turns sick or healthy, from now on
  sickbay watch --format varnishlog      Every probe, as varnishlog -i Backend_health
  sickbay watch 'web.*'                  Of one pool")]
pub struct WatchArgs {
    /// How to print
    #[arg(short, long, visible_alias = "output", value_enum, default_value_t)]
    pub format: WatchFormat,
    /// Begin with what the agent still has of the past
    #[arg(short = 'd', long)]
    pub old: bool,
    /// End when so many lines were printed
    #[arg(short, long)]
    pub count: Option<u64>,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
    /// Only of the backends that this glob matches, as for `backend list`
    pub pattern: Option<String>,
}

/// How `sickbay watch` prints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WatchFormat {
    /// Transitions, a line each.
    #[default]
    Text,
    /// Transitions, a JSON object a line.
    Json,
    /// Every poll, as `varnishlog -g raw -i Backend_health` prints it; control bytes escaped.
    Varnishlog,
}

/// Runs `sickbay watch` until its count is reached, its reader leaves, or a signal ends it.
///
/// # Errors
///
/// No agent runs, it refuses or ends, or the output cannot be written.
pub fn run(args: &WatchArgs) -> anyhow::Result<ExitCode> {
    run_on(args, &mut io::stdout().lock())
}

/// Runs `sickbay watch`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &WatchArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let pattern = args.pattern.as_deref().map(Pattern::new).transpose()?;
    let mut source = Source::new(args, args.instance.client()?)?;
    let mut left = args.count.unwrap_or(u64::MAX);
    loop {
        for (name, line) in source.newer()? {
            if !pattern.as_ref().is_none_or(|pattern| matches(pattern, &name)) {
                continue;
            }
            if left == 0 {
                break;
            }
            left -= 1;
            write_text(out, &format!("{line}\n"))?;
        }
        if left == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

/// What is watched, and how far it was seen.
struct Source {
    client: Client,
    format: WatchFormat,
    /// The sequence of the newest that was seen.
    seen: u64,
}

impl Source {
    fn new(args: &WatchArgs, client: Client) -> Result<Self, ClientError> {
        let mut source = Self { client, format: args.format, seen: 0 };
        if !args.old {
            source.newer()?;
        }
        Ok(source)
    }

    /// What is newer than what was seen: backends' names and lines.
    fn newer(&mut self) -> Result<Vec<(String, String)>, ClientError> {
        if self.format == WatchFormat::Varnishlog {
            return self.newer_polls();
        }
        let transitions = self.client.transitions(self.seen)?;
        let sequences = transitions.iter().map(|view| view.sequence);
        self.told_gap(sequences.clone().min(), "transitions");
        self.seen = sequences.max().unwrap_or(self.seen);
        let line = |view: TransitionView| (view.name.clone(), transition_line(self.format, &view));
        Ok(transitions.into_iter().map(line).collect())
    }

    fn newer_polls(&mut self) -> Result<Vec<(String, String)>, ClientError> {
        let polls = self.client.polls(self.seen)?;
        let sequences = polls.iter().map(|view| view.sequence);
        self.told_gap(sequences.clone().min(), "records");
        self.seen = sequences.max().unwrap_or(self.seen);
        let line = |record: &str| format!("0 Backend_health - {}", printable(record));
        Ok(polls.into_iter().map(|view| (view.name, line(&view.record))).collect())
    }

    /// Says what was missed before `first`, the oldest of what is new.
    fn told_gap(&self, first: Option<u64>, what: &str) {
        let missed = first.map_or(0, |first| first.saturating_sub(self.seen + 1));
        if 0 < missed && 0 < self.seen {
            complain(&format!("{missed} {what} missed: they came faster than they were taken"));
        }
    }
}

fn transition_line(format: WatchFormat, view: &TransitionView) -> String {
    if format == WatchFormat::Json {
        return printable_json(&serde_json::to_string(view).expect("a transition is plain data"));
    }
    let since_epoch = Duration::from_millis(view.at_unix_ms);
    let time = humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since_epoch);
    printable(&format!("{time} {}", view.text()))
}

/// A name is `pool.backend`, or a pool's, which has no dot.
pub(super) fn matches(pattern: &Pattern, name: &str) -> bool {
    let (pool, backend) = name.split_once('.').unwrap_or((name, ""));
    pattern.matches(pool, backend)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::journal::Why;
    use crate::control::view::{ProbeState, RuleView};

    #[test]
    fn transition_is_one_printable_line_with_its_time() {
        let view = TransitionView {
            sequence: 7,
            at_ns: 1,
            // 2026-11-29T17:30:28Z, by `date -u -d @1795973428`.
            at_unix_ms: 1_795_973_428_250,
            name: "web.b3".to_owned(),
            from: ProbeState::Healthy,
            to: ProbeState::Sick,
            why: Why::Probe,
            cause: "Open error 111\n".to_owned(),
            good: 2,
            rule: Some(RuleView::Window { threshold: 3, window: 4 }),
            member: None,
        };
        assert_eq!(
            transition_line(WatchFormat::Text, &view),
            "2026-11-29T17:30:28.250Z web.b3 went sick: 2 of 4 good, needs 3: Open error 111\\n"
        );
        let json: TransitionView =
            serde_json::from_str(&transition_line(WatchFormat::Json, &view)).expect("JSON");
        assert_eq!(json, view);
    }

    #[test]
    fn backend_that_is_called_by_its_address_is_matched_within_its_pool() {
        let pattern = Pattern::new("web.10.0.0.1:80").expect("a pattern");
        assert!(matches(&pattern, "web.10.0.0.1:80"));
        assert!(!matches(&pattern, "api.10.0.0.1:80"));
    }

    #[test]
    fn what_is_told_of_a_pool_is_matched_by_all_of_its_backends() {
        let pattern = Pattern::new("web.*").expect("a pattern");
        assert!(matches(&pattern, "web") && matches(&pattern, "web.b1"));
        assert!(!matches(&pattern, "api"));
    }
}
