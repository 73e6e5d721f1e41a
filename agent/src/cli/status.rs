//! `sickbay status`: the agent itself, its probing threads, and where it is attached.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::backend::date;
use super::listing::{InstanceArgs, OutputFormat, Screen, printable, write_json, write_text};
use super::service::attached_text;
use super::table::{Cell, Column, Table, Tint};
use crate::control::view::{
    FlowEntriesView, PercentilesView, PrivilegeView, ShardView, SourceView, StatusView,
};

/// Arguments of `sickbay status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArgs {
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay status`, writing to standard output.
///
/// # Errors
///
/// No agent runs, it refuses, or the output cannot be written.
pub fn run(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    run_on(args, Screen::of_stdout(), &mut io::stdout().lock())
}

/// Runs `sickbay status`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &StatusArgs, screen: Screen, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let status = args.instance.client()?.status()?;
    match args.output {
        OutputFormat::Json => write_json(out, &status)?,
        OutputFormat::Text => write_text(out, &text(&status, screen))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(status: &StatusView, screen: Screen) -> String {
    let mut lines = vec![
        ("Instance", format!("{}, pid {}", printable(&status.instance), status.pid)),
        ("Version", printable(&status.version)),
        ("Up", uptime(status.uptime_s)),
        ("Generation", status.generation.to_string()),
        (
            "Backends",
            format!(
                "{}: {} take new flows, {} have no verdict yet",
                status.backend_count, status.healthy_count, status.warming_count
            ),
        ),
        ("Attached", printable(&attached_text(&status.attached))),
    ];
    if let Some(figures) = status.verdict_to_kernel_ns {
        lines.push(("Verdict to kernel", percentiles(figures, "ns")));
    }
    if let Some(figures) = status.lateness_us {
        lines.push(("Probe lateness", percentiles(figures, "µs")));
    }
    for FlowEntriesView { family, flows, embryonic, room } in &status.flow_entries {
        let name = if family == "ipv6" { "Flow entries (IPv6)" } else { "Flow entries (IPv4)" };
        let full = if flows < room { "" } else { ": full, the least recently used give way" };
        lines.push((name, format!("{flows} of {room}, {embryonic} of SYNs{full}")));
    }
    if status.transitions_dropped != 0 {
        lines.push(("Transitions not logged", status.transitions_dropped.to_string()));
    }
    if let Some(privilege) = &status.privilege {
        lines.extend(held(privilege, &status.shards));
    }
    let mut text = String::new();
    for (name, value) in lines {
        writeln!(text, "{name:<22}  {value}").expect("a String takes all text");
    }
    text.push('\n');
    text.push_str(&shards(status).render(screen));
    if !status.sources.is_empty() {
        text.push('\n');
        text.push_str(&sources(&status.sources).render(screen));
    }
    text
}

/// What the process can still do, and what it cannot.
fn held(privilege: &PrivilegeView, shards: &[ShardView]) -> Vec<(&'static str, String)> {
    let PrivilegeView { capabilities, bounding, no_new_privileges, seccomp, landlock_abi } =
        privilege;
    let named = |names: &[String]| match names {
        [] => "none".to_owned(),
        names => printable(&names.join(" ")),
    };
    let mut lines = vec![("Capabilities", named(capabilities))];
    if bounding != capabilities {
        lines.push(("Bounding set", named(bounding)));
    }
    let calls = match seccomp {
        0 => "not filtered".to_owned(),
        mode => format!("filtered (seccomp mode {mode})"),
    };
    let files = landlock_abi.map_or_else(
        || "not confined".to_owned(),
        |version| format!("confined (Landlock ABI {version})"),
    );
    let restricted = shards.iter().filter(|shard| shard.ring_restricted).count();
    lines.extend([
        ("New privileges", if *no_new_privileges { "none" } else { "possible" }.to_owned()),
        ("System calls", calls),
        ("Files", files),
        ("Probing rings", format!("{restricted} of {} restricted", shards.len())),
    ]);
    lines
}

/// What pools follow. A fault stands below its source as a whole line.
fn sources(sources: &[SourceView]) -> Table {
    let columns = [
        Column::text("Pool"),
        Column::text("Follows"),
        Column::number("Backends"),
        Column::text("State"),
    ];
    let mut table = Table::new(columns.to_vec());
    for view in sources {
        let (state, below) = match (&view.fault, view.answered_unix_ms) {
            (Some(fault), _) => {
                let since = view
                    .fault_unix_ms
                    .map_or_else(String::new, |ms| format!("since {}: ", date(ms)));
                (Cell::tinted("fault", Tint::Bad), format!(" {since}{}\n", printable(fault)))
            }
            (None, Some(_)) => (Cell::tinted("well", Tint::Good), String::new()),
            (None, None) => (Cell::tinted("not asked yet", Tint::Odd), String::new()),
        };
        let cells = vec![
            view.pool.as_str().into(),
            view.source.as_str().into(),
            view.backends.map_or_else(|| Cell::from("-"), Cell::from),
            state,
        ];
        table.push(cells, below);
    }
    table
}

fn shards(status: &StatusView) -> Table {
    let titles = ["Shard", "Heartbeat (ms)", "Targets", "In flight", "Probes"];
    let mut table = Table::new(titles.map(Column::number).to_vec());
    for shard in &status.shards {
        let heartbeat = shard.heartbeat_age_ms.map_or_else(|| Cell::from("-"), Cell::from);
        table.push(
            vec![
                u64::from(shard.shard).into(),
                heartbeat,
                u64::from(shard.targets).into(),
                u64::from(shard.in_flight).into(),
                shard.probes.into(),
            ],
            String::new(),
        );
    }
    table
}

fn percentiles(figures: PercentilesView, unit: &str) -> String {
    let PercentilesView { p50, p99, max, count } = figures;
    format!("p50 {p50} {unit}, p99 {p99} {unit}, max {max} {unit} of {count}")
}

/// Whole seconds, in words; nonsense (negative, not a number) counts as none.
fn uptime(uptime_s: f64) -> String {
    let whole = Duration::try_from_secs_f64(uptime_s).unwrap_or_default().as_secs();
    humantime::format_duration(Duration::from_secs(whole)).to_string()
}

#[cfg(test)]
mod tests {
    use super::{Screen, text};
    use crate::control::view::{
        AttachedView, FlowEntriesView, PercentilesView, PrivilegeView, ShardView, SourceView,
        StatusView,
    };

    #[test]
    fn status_names_the_agent_its_places_and_its_threads() {
        let attached = AttachedView {
            interface: "eth0".to_owned(),
            program: "xdp".to_owned(),
            mode: "native".to_owned(),
        };
        let shard = ShardView {
            shard: 0,
            heartbeat_age_ms: Some(4),
            targets: 8,
            in_flight: 1,
            probes: 12_345,
            ring_restricted: true,
        };
        let status = StatusView {
            instance: "demo".to_owned(),
            pid: 4711,
            version: "0.1.0".to_owned(),
            uptime_s: 3725.9,
            generation: 3,
            shards: vec![shard],
            attached: vec![attached],
            warming_count: 1,
            healthy_count: 7,
            backend_count: 8,
            transitions_dropped: 0,
            verdict_to_kernel_ns: Some(PercentilesView { p50: 150, p99: 205, max: 900, count: 2 }),
            lateness_us: None,
            packets: None,
            flow_entries: vec![FlowEntriesView {
                family: "ipv4".to_owned(),
                flows: 64,
                embryonic: 3,
                room: 64,
            }],
            privilege: Some(PrivilegeView {
                capabilities: vec!["CAP_NET_ADMIN".to_owned(), "CAP_BPF".to_owned()],
                bounding: vec!["CAP_BPF".to_owned()],
                no_new_privileges: true,
                seccomp: 2,
                landlock_abi: None,
            }),
            sources: vec![
                SourceView {
                    pool: "web".to_owned(),
                    source: "file /etc/web.list".to_owned(),
                    backends: Some(8),
                    answered_unix_ms: Some(1_795_973_428_000),
                    fault: None,
                    fault_unix_ms: None,
                },
                SourceView {
                    pool: "web".to_owned(),
                    source: "name web.example.com:80".to_owned(),
                    backends: None,
                    answered_unix_ms: None,
                    fault: Some("no answer\nin time".to_owned()),
                    fault_unix_ms: Some(1_795_973_428_000),
                },
            ],
        };
        assert_eq!(
            text(&status, Screen::default()),
            "\
Instance                demo, pid 4711
Version                 0.1.0
Up                      1h 2m 5s
Generation              3
Backends                8: 7 take new flows, 1 have no verdict yet
Attached                eth0 xdp/native
Verdict to kernel       p50 150 ns, p99 205 ns, max 900 ns of 2
Flow entries (IPv4)     64 of 64, 3 of SYNs: full, the least recently used give way
Capabilities            CAP_NET_ADMIN CAP_BPF
Bounding set            CAP_BPF
New privileges          none
System calls            filtered (seccomp mode 2)
Files                   not confined
Probing rings           1 of 1 restricted

Shard  Heartbeat (ms)  Targets  In flight  Probes
    0               4        8          1   12345

Pool  Follows                  Backends  State
web   file /etc/web.list              8  well
web   name web.example.com:80         -  fault
 since Sun, 29 Nov 2026 17:30:28 GMT: no answer\\nin time
"
        );
    }
}
