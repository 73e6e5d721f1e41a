//! `sickbay ready`: whether a service's new flows have somewhere healthy to go, as an exit status:
//! for a routing daemon that announces its address.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Args;
use serde::Serialize;

use super::complain;
use super::listing::{InstanceArgs, OutputFormat, printable, write_json, write_text};
use crate::board::{Board, coarse_now_ns};
use crate::config::{self, Overrides, nearest};
use crate::control::client::{Client, ClientError};
use crate::control::view::ServiceView;
use crate::fleet::Fleet;
use crate::kernel::LINKS_FOLDER;

/// Exit code: new flows have nowhere healthy to go.
const NOT_READY: u8 = 3;
/// Exit code: it cannot be told, because no agent answers.
const UNKNOWN: u8 = 4;

/// Say by the exit status whether a service's new flows have somewhere healthy to go
///
/// Ready: its programs are attached, and its pool or its backup pool has a backend that takes new
/// flows. A pool that panics still is ready. `all_sick = "open"` alone does not make a service
/// ready: its flows go somewhere, but nowhere healthy.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Exit codes:
  0  ready
  1  the question failed: no such service, not permitted
  2  wrong usage
  3  not ready
  4  no agent answers, and no -c names a configuration whose pinned maps could be looked at

Example, as a health check of BIRD or keepalived: sickbay ready web >/dev/null")]
pub struct ReadyArgs {
    /// The service, by its name in the configuration
    pub service: String,
    /// The instance's configuration file; with it, the pinned maps tell the last verdicts when no
    /// agent answers
    #[arg(short, long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Runs `sickbay ready`, writing to standard output.
///
/// # Errors
///
/// There is no such service, the agent refuses, the configuration is wrong, or the output cannot
/// be written.
pub fn run(args: &ReadyArgs) -> anyhow::Result<ExitCode> {
    run_on(args, &mut io::stdout().lock())
}

/// Runs `sickbay ready`, writing to `out`.
///
/// # Errors
///
/// As [`run`].
pub fn run_on(args: &ReadyArgs, out: &mut dyn Write) -> anyhow::Result<ExitCode> {
    let load = |path: &PathBuf| config::load(path, &Overrides::default());
    let fleet =
        args.config.as_ref().map(load).transpose()?.map(|configuration| configuration.fleet);
    let directory = match &fleet {
        Some(fleet) => fleet.run_directory.clone(),
        None => args.instance.directory(),
    };
    let services = Client::connect(&directory).and_then(|client| client.services());
    let answer = match (services, &fleet) {
        (Ok(views), _) => Answer::of(named(&views, &args.service)?),
        (Err(ClientError::NoAgent { .. }), Some(fleet)) => by_the_maps(fleet, &args.service)?,
        (Err(error @ ClientError::NoAgent { .. }), None) => {
            complain(&error.to_string());
            return Ok(ExitCode::from(UNKNOWN));
        }
        (Err(error), _) => return Err(error.into()),
    };
    match args.output {
        OutputFormat::Json => write_json(out, &answer)?,
        OutputFormat::Text => write_text(out, &format!("{}\n", printable(&answer.text())))?,
    }
    Ok(if answer.ready { ExitCode::SUCCESS } else { ExitCode::from(NOT_READY) })
}

/// Whether a service is ready, and by what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Answer {
    service: String,
    ready: bool,
    attached: bool,
    pool: PoolCount,
    /// `null` = it has no backup pool.
    backup: Option<PoolCount>,
    /// Since the last sign of life, when no agent answers and the pinned maps were looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    verdicts_age_ms: Option<u64>,
}

/// How many of a pool take new flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct PoolCount {
    name: String,
    healthy: u64,
    total: u64,
}

impl Answer {
    fn of(view: &ServiceView) -> Self {
        let count = |name: &String, healthy: u32, total: u32| PoolCount {
            name: name.clone(),
            healthy: healthy.into(),
            total: total.into(),
        };
        let backup = view.backup.as_ref();
        let backup = backup.map(|name| count(name, view.backup_healthy, view.backup_total));
        let pool = count(&view.pool, view.healthy, view.total);
        Self::new(&view.name, !view.attached.is_empty(), pool, backup)
    }

    fn new(service: &str, attached: bool, pool: PoolCount, backup: Option<PoolCount>) -> Self {
        let backs_up = backup.as_ref().is_some_and(|backup| 0 < backup.healthy);
        let ready = attached && (0 < pool.healthy || backs_up);
        let service = service.to_owned();
        Self { service, ready, attached, pool, backup, verdicts_age_ms: None }
    }

    fn text(&self) -> String {
        let of = |pool: &PoolCount| {
            format!("{} of {} backends of pool {}", pool.healthy, pool.total, pool.name)
        };
        let takers = |pool: &PoolCount| {
            let verb = if pool.healthy == 1 { "takes" } else { "take" };
            format!("{} {verb} new flows", of(pool))
        };
        let word = if self.ready { "ready" } else { "not ready" };
        let backs_up = self.backup.as_ref().filter(|backup| 0 < backup.healthy);
        let why = match (&self.backup, backs_up) {
            _ if !self.attached => "steering is not attached to any interface".to_owned(),
            _ if 0 < self.pool.healthy => takers(&self.pool),
            (_, Some(backup)) => {
                format!("{}, so the backup: {}", takers(&self.pool), takers(backup))
            }
            (Some(backup), None) => format!("{}, nor {}", takers(&self.pool), takers(backup)),
            (None, None) => takers(&self.pool),
        };
        let age = self.verdicts_age_ms.map_or_else(String::new, |age| {
            format!(" (no agent runs: the last verdicts, {} s old)", age / 1000)
        });
        format!("{}: {word}: {why}{age}", self.service)
    }
}

/// The service of this name.
fn named<'v>(views: &'v [ServiceView], name: &str) -> anyhow::Result<&'v ServiceView> {
    if let Some(view) = views.iter().find(|view| view.name == name) {
        return Ok(view);
    }
    let known = nearest(name, views.iter().map(|view| view.name.as_str()));
    bail!("there is no service {name:?}; {known}")
}

/// What the pinned maps of a configuration's instance say.
fn by_the_maps(fleet: &Fleet, name: &str) -> anyhow::Result<Answer> {
    let Some(service) = fleet.services.iter().find(|each| each.name == name) else {
        let known = nearest(name, fleet.services.iter().map(|each| each.name.as_str()));
        bail!("there is no service {name:?}; {known}")
    };
    let board = Board::open(&fleet.pin_directory).and_then(|board| {
        board.checked_header()?;
        Ok(board)
    });
    let board = board.context("no agent runs, and nothing usable is pinned")?;
    let links = std::fs::read_dir(fleet.pin_directory.join(LINKS_FOLDER));
    let attached = links.is_ok_and(|mut links| links.next().is_some());
    let pool = count(fleet, &board, service.pool);
    let backup = service.backup.map(|backup| count(fleet, &board, backup.pool));
    let beats = (0..board.header().shard_count).map(|shard| board.last_beat_ns(shard));
    let age_ns = coarse_now_ns().saturating_sub(beats.max().unwrap_or(0));
    let verdicts_age_ms = Some(age_ns / 1_000_000);
    Ok(Answer { verdicts_age_ms, ..Answer::new(&service.name, attached, pool, backup) })
}

fn count(fleet: &Fleet, board: &Board, pool: usize) -> PoolCount {
    let index = u32::try_from(pool).expect("pools are counted in u32");
    let pool = &fleet.pools[pool];
    PoolCount {
        name: pool.name.clone(),
        healthy: board.pool_count(index),
        total: pool.backends.len() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, healthy: u64) -> PoolCount {
        PoolCount { name: name.to_owned(), healthy, total: 8 }
    }

    #[test]
    fn service_is_ready_by_its_pool_or_its_backup_once_it_is_attached() {
        let answer = |attached, healthy, backup: Option<u64>| {
            let backup = backup.map(|healthy| pool("sorry", healthy));
            let answer = Answer::new("web", attached, pool("nginx", healthy), backup);
            (answer.ready, answer.text())
        };
        for (attached, healthy, backup, ready, text) in [
            (true, 7, None, true, "web: ready: 7 of 8 backends of pool nginx take new flows"),
            (true, 1, Some(0), true, "web: ready: 1 of 8 backends of pool nginx takes new flows"),
            (
                true,
                0,
                Some(2),
                true,
                "web: ready: 0 of 8 backends of pool nginx take new flows, so the backup: 2 of 8 \
                 backends of pool sorry take new flows",
            ),
            (
                true,
                0,
                Some(0),
                false,
                "web: not ready: 0 of 8 backends of pool nginx take new flows, nor 0 of 8 backends \
                 of pool sorry take new flows",
            ),
            (true, 0, None, false, "web: not ready: 0 of 8 backends of pool nginx take new flows"),
            (false, 8, None, false, "web: not ready: steering is not attached to any interface"),
        ] {
            assert_eq!(answer(attached, healthy, backup), (ready, text.to_owned()));
        }
    }

    #[test]
    fn last_verdicts_are_told_with_their_age() {
        let answer = Answer::new("web", true, pool("nginx", 8), None);
        let text = Answer { verdicts_age_ms: Some(75_999), ..answer }.text();
        assert!(text.ends_with("take new flows (no agent runs: the last verdicts, 75 s old)"));
    }
}
