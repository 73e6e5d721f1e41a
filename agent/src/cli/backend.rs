//! `sickbay backend`: list backends as varnishadm's `backend.list` does, set their health, and say
//! who belongs to a pool.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context as _;
use clap::{ArgAction, Args, Subcommand};

use super::listing::{InstanceArgs, OutputFormat, Screen, printable, write_json, write_text};
use super::table::{Cell, Column, Table, Tint};
use crate::control::members::StandingView;
use crate::control::said::{Said, now_unix_ms};
use crate::control::view::{Admin, BackendView, ProbeState};
use crate::fleet::Origin;
use crate::graph;

/// Who belongs to a pool.
mod members;
/// The JSON of varnishadm.
mod varnishadm;

use members::{AddArgs, DrainArgs, PatternArgs, WeightArgs};

/// Arguments of `sickbay backend`.
#[derive(Clone, Debug, Args)]
pub struct BackendArgs {
    /// What to do
    #[command(subcommand)]
    pub command: BackendCommand,
}

/// Subcommands of `sickbay backend`.
#[derive(Clone, Debug, Subcommand)]
pub enum BackendCommand {
    /// List backends: what the operator said, what the probes say, when that changed
    List(ListArgs),
    /// Force backends healthy or sick, or leave them to their probes again
    ///
    /// Probing goes on meanwhile, so after `auto` the verdict is that of the newest results. The
    /// word holds until it is taken back or its time is over, over restarts of the agent too.
    SetHealth(SetHealthArgs),
    /// Add backends to a pool
    ///
    /// Each begins by its probe's `initial` and takes no new flow before it is healthy. No flow
    /// that lives moves. What is added holds until the agent ends: write it into the configuration
    /// too.
    Add(AddArgs),
    /// Remove backends from their pools
    ///
    /// They get no new flow at once; those they have go on for the pool's `drain`. Then they are
    /// probed no more, and their places may be others'.
    Remove(PatternArgs),
    /// Give backends another share of new flows
    Weight(WeightArgs),
    /// Take new flows away from backends that keep those they have
    ///
    /// UDP has no packet that begins a flow: what sends within `udp_idle` of the drain's begin
    /// belongs to those the backend has.
    Drain(DrainArgs),
    /// Drain backends, and have nobody told what their probes find meanwhile
    ///
    /// They take no new flows and keep those they have. It ends when its time is over, or by
    /// `undrain`.
    Maintenance(DrainArgs),
    /// Let drained backends take new flows again
    Undrain(PatternArgs),
}

/// Arguments of `sickbay backend list`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Patterns:
  web.b1, web.*, *.b1   a glob over pool.backend
  b1, b[1-3]            without a dot: over backend names, in any pool
  10.0.0.1:80           a backend's whole name, as it is listed

Repeating -p or -j takes it back, as with varnishadm.

Example, all results of pool web:
  sickbay backend list -p 'web.*'")]
pub struct ListArgs {
    /// Show each backend's last 64 probe results, oldest left
    #[arg(short = 'p', long = "probes", action = ArgAction::Count)]
    pub probes: u8,
    /// Write varnishadm's JSON; for registers as exact text use `-o json`
    #[arg(short = 'j', long = "varnish-json", action = ArgAction::Count, conflicts_with = "output")]
    pub varnish_json: u8,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
    /// Only the backends that this glob matches
    pub pattern: Option<String>,
}

/// Arguments of `sickbay backend set-health`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example, out of service for maintenance, and back:
  sickbay backend set-health web.b1 sick --for 30m --reason 'disk swap'
  sickbay backend set-health web.b1 auto")]
pub struct SetHealthArgs {
    /// Which backends: a glob as for `list`
    pub pattern: String,
    /// The word: auto, healthy or sick, in any case
    pub health: String,
    /// How long it holds; until it is taken back when not given
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub limit: Option<Duration>,
    /// Why: shown in the list and told in the history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay backend`, writing to standard output.
///
/// # Errors
///
/// No agent runs, it refuses, or the output cannot be written.
pub fn run(args: &BackendArgs) -> anyhow::Result<ExitCode> {
    run_on(args, Screen::of_stdout(), &mut io::stdout().lock())
}

/// Runs `sickbay backend`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &BackendArgs, screen: Screen, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    match &args.command {
        BackendCommand::List(list) => {
            let views = list.instance.client()?.backends(list.pattern.as_deref())?;
            let probes = is_on(list.probes);
            match list.output {
                _ if is_on(list.varnish_json) => {
                    let words = varnishadm::words(probes, list.pattern.as_deref());
                    write_json(out, &varnishadm::answer(&views, probes, &words, now_unix_ms()))?;
                }
                OutputFormat::Json => write_json(out, &views)?,
                OutputFormat::Text => {
                    write_text(out, &table(&views, probes).render(screen))?;
                }
            }
        }
        BackendCommand::SetHealth(set) => {
            let (health, word) = health_word(&set.health)?;
            let client = set.instance.client()?;
            let reason = set.reason.as_deref();
            let names = client.set_health(&set.pattern, health, set.limit, reason)?;
            let lines: String = names.iter().map(|name| format!("{name} {word}\n")).collect();
            write_text(out, &lines)?;
        }
        BackendCommand::Add(add) => members::add(add, out)?,
        BackendCommand::Remove(remove) => members::remove(remove, out)?,
        BackendCommand::Weight(weight) => members::weight(weight, out)?,
        BackendCommand::Drain(drain) => members::drain(drain, out)?,
        BackendCommand::Maintenance(drain) => members::maintain(drain, out)?,
        BackendCommand::Undrain(undrain) => members::undrain(undrain, out)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// An operator's word, and how it is written; varnishadm's error when it is none.
fn health_word(text: &str) -> anyhow::Result<(Admin, &'static str)> {
    let words = [(Admin::Auto, "auto"), (Admin::Healthy, "healthy"), (Admin::Sick, "sick")];
    let known = words.into_iter().find(|(_, word)| word.eq_ignore_ascii_case(text));
    known.with_context(|| format!("Invalid state {}: write auto, healthy or sick", printable(text)))
}

/// Each mention of a flag turns it round, as with varnishadm.
const fn is_on(mentions: u8) -> bool {
    mentions % 2 == 1
}

/// Varnish's columns, the kernel's when something is attached, and what the last probe came to.
fn table(views: &[BackendView], probes: bool) -> Table {
    let steered = views.iter().any(|view| view.counters.is_some());
    let weighed = views.iter().any(|view| view.weight != 1);
    let named = views.iter().any(|view| view.origin != Origin::Configured.to_string());
    // The least widths are varnishadm's, so that its readers find their columns.
    let mut columns = vec![
        Column::cuttable("Backend name").at_least(13),
        Column::text("Admin").at_least(7),
        Column::text("Probe").at_least(7),
        Column::text("Health").at_least(9),
        Column::text("Last change"),
    ];
    if weighed {
        columns.push(Column::number("Weight"));
    }
    if named {
        columns.push(Column::cuttable("From"));
    }
    if steered {
        columns.push(Column::number("New flows"));
        columns.push(Column::number("Skipped"));
    }
    columns.push(Column::cuttable("Last result"));
    let mut table = Table::new(columns);
    for view in views {
        let mut cells = vec![
            view.name.as_str().into(),
            admin(view),
            format!("{}/{}", view.good, view.rule.map_or(0, |rule| graph::span(rule.into())))
                .into(),
            health(view.state),
            view.last_change_unix_ms.map_or_else(|| "-".to_owned(), date).into(),
        ];
        if weighed {
            cells.push(u64::from(view.weight).into());
        }
        if named {
            cells.push(view.origin.as_str().into());
        }
        if steered {
            let counters = view.counters.unwrap_or_default();
            cells.push(counters.new_flows.into());
            cells.push(counters.skipped.into());
        }
        cells.push(view.cause.as_str().into());
        // Only with the probes: a reader of varnishadm's list finds a row for each backend.
        let mut below = if probes { said(view) } else { String::new() };
        if let Some(rule) = view.rule.filter(|_| probes) {
            below.push_str(&graph::block(&view.register_array(), rule.into(), view.average_s));
        }
        table.push(cells, below);
    }
    table
}

/// Who said what of a backend, a line each.
fn said(view: &BackendView) -> String {
    let mut lines = String::new();
    let words = [(view.admin.word(), &view.health_said), (view.standing.word(), &view.drain_said)];
    for (word, said) in words {
        let Some(Said { by, at_unix_ms, reason, until_unix_ms }) = said else {
            continue;
        };
        let (by, at) = (printable(by), date(*at_unix_ms));
        let until = until_unix_ms.map_or_else(String::new, |it| format!(", until {}", date(it)));
        let reason = reason.as_ref().map_or_else(String::new, |it| format!(": {}", printable(it)));
        lines.push_str(&format!(" {word} by {by} since {at}{until}{reason}\n"));
    }
    lines
}

/// Varnish says `probe` where nothing is forced, and `healthy` where there is no probe either. A
/// backend that is no plain member says so first.
fn admin(view: &BackendView) -> Cell {
    if view.standing != StandingView::Member {
        let word = view.standing.word();
        return match view.standing_until_unix_ms {
            None => Cell::tinted(word, Tint::Odd),
            Some(until) => Cell::tinted(&format!("{word} (until {})", date(until)), Tint::Odd),
        };
    }
    match view.admin {
        Admin::Auto if view.rule.is_none() => "healthy".into(),
        Admin::Auto => "probe".into(),
        Admin::Healthy => Cell::tinted("healthy", Tint::Odd),
        Admin::Sick => Cell::tinted("sick", Tint::Odd),
    }
}

fn health(state: ProbeState) -> Cell {
    let tint = match state {
        ProbeState::Healthy => Tint::Good,
        ProbeState::Sick => Tint::Bad,
        ProbeState::Warming | ProbeState::Unknown => Tint::Odd,
    };
    Cell::tinted(state.word(), tint)
}

/// RFC 1123, as varnishadm; times no calendar has are shown as the last it has.
pub(super) fn date(unix_ms: u64) -> String {
    /// 9999-12-31T23:59:59Z, the last second that the format can write.
    const LAST_S: u64 = 253_402_300_799;
    let since_epoch = Duration::from_secs((unix_ms / 1000).min(LAST_S));
    httpdate::fmt_http_date(UNIX_EPOCH + since_epoch)
}

#[cfg(test)]
mod tests;
