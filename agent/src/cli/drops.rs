//! `sickbay drops`: samples of the packets that the kernel program dropped or refused, and why.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use clap::Args;

use super::complain;
use super::listing::{InstanceArgs, OutputFormat, printable, write_json, write_text};
use crate::control::drops::DropView;

/// Between two questions to the agent.
const LOOK: Duration = Duration::from_millis(100);

/// Show samples of dropped packets, with their addresses and the reason
///
/// The kernel program samples: `drop_samples_per_second` of each CPU at most. How many there were
/// in all say the counters (`sickbay service list -o json`). The agent keeps the newest 4096.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sickbay drops                    What the agent has kept
  sickbay drops --follow           And what comes
  sickbay drops -f -o json | jq    An object a line while following")]
pub struct DropsArgs {
    /// Go on with what comes
    #[arg(short, long)]
    pub follow: bool,
    /// Only of this service
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// End when so many were printed
    #[arg(short, long)]
    pub count: Option<usize>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay drops`, writing to standard output.
///
/// # Errors
///
/// No agent runs, it refuses or ends, or the output cannot be written.
pub fn run(args: &DropsArgs) -> anyhow::Result<ExitCode> {
    run_on(args, &mut io::stdout().lock())
}

/// Runs `sickbay drops`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &DropsArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let client = args.instance.client()?;
    let is_wanted =
        |view: &DropView| args.service.as_ref().is_none_or(|name| *name == view.service);
    let mut left = args.count.unwrap_or(usize::MAX);
    let mut seen = 0;
    loop {
        let views = client.drops(seen)?;
        let missed = views.first().map_or(0, |first| first.sequence.saturating_sub(seen + 1));
        if 0 < missed && 0 < seen {
            complain(&format!("{missed} samples missed: they came faster than they were taken"));
        }
        seen = views.last().map_or(seen, |last| last.sequence);
        let wanted: Vec<DropView> = views.into_iter().filter(is_wanted).take(left).collect();
        left -= wanted.len();
        write(out, args, &wanted)?;
        if !args.follow || left == 0 {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(LOOK);
    }
}

fn write(out: &mut dyn Write, args: &DropsArgs, views: &[DropView]) -> anyhow::Result<()> {
    match args.output {
        OutputFormat::Text => {
            let lines: String = views.iter().map(|view| format!("{}\n", line(view))).collect();
            write_text(out, &lines)
        }
        // One that goes on has no end to close an array at.
        OutputFormat::Json if args.follow => {
            let mut lines = String::new();
            for view in views {
                lines.push_str(&serde_json::to_string(view)?);
                lines.push('\n');
            }
            write_text(out, &lines)
        }
        OutputFormat::Json => write_json(out, &views),
    }
}

/// `2026-11-29T17:30:28.250Z web tcp 192.0.2.1:40000 > 198.51.100.1:80: no backend takes …`.
fn line(view: &DropView) -> String {
    let time = UNIX_EPOCH + Duration::from_millis(view.at_unix_ms);
    let time = humantime::format_rfc3339_millis(time);
    let observed = if view.observe { " (observed only: passed)" } else { "" };
    let backend = view.backend.as_ref().map_or_else(String::new, |name| format!(" [{name}]"));
    printable(&format!(
        "{time} {} {} {} > {}: {}{backend}{observed}",
        view.service,
        view.protocol,
        view.source,
        view.destination,
        view.why(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_one_line() {
        let view = DropView {
            sequence: 1,
            // 2026-11-29T17:30:28Z, by `date -u -d @1795973428`.
            at_unix_ms: 1_795_973_428_250,
            source: "192.0.2.1:40000".to_owned(),
            destination: "198.51.100.1:80".to_owned(),
            protocol: "tcp".to_owned(),
            size_bytes: 74,
            service: "web".to_owned(),
            backend: Some("nginx.b1".to_owned()),
            reason: "unresolved".to_owned(),
            observe: true,
        };
        assert_eq!(
            line(&view),
            "2026-11-29T17:30:28.250Z web tcp 192.0.2.1:40000 > 198.51.100.1:80: its backend's \
             next hop is not known [nginx.b1] (observed only: passed)"
        );
    }
}
