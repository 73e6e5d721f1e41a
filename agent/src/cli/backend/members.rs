//! `sickbay backend add`, `remove`, `weight`, `drain`, `undrain`.

use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;

use super::InstanceArgs;
use super::write_text;
use crate::config;
use crate::control::members::{MembersChanged, NewBackend};
use crate::control::protocol::Request;

/// Largest list that is read; more is a mistake (a device, a log).
const LIST_BYTES_MAX: u64 = 1 << 20;

/// Arguments of `sickbay backend add`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "A list has one backend a line, as in a pool's backends_file:
  ADDRESS:PORT [weight=N] [name=NAME]

Examples:
  sickbay backend add web 192.0.2.4:80 --name b4 --weight 2
  sickbay backend add web 192.0.2.5:80 192.0.2.6:80
  sickbay backend add web --file new.list
  generate | sickbay backend add web --file -")]
pub struct AddArgs {
    /// The pool
    pub pool: String,
    /// The backends, ADDRESS:PORT each
    #[arg(value_name = "ADDRESS:PORT", required_unless_present = "file")]
    pub addresses: Vec<String>,
    /// The backend's name, when there is one; its address when not given
    #[arg(long)]
    pub name: Option<String>,
    /// The share of each relative to the others: 1 to 1000; 1 when not given
    #[arg(long, value_name = "N")]
    pub weight: Option<u32>,
    /// A list of backends to add as well; - is standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Arguments of the commands that only say which.
#[derive(Clone, Debug, Args)]
pub struct PatternArgs {
    /// Which backends: a glob as for `list`
    pub pattern: String,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Arguments of `sickbay backend weight`.
#[derive(Clone, Debug, Args)]
pub struct WeightArgs {
    /// Which backends: a glob as for `list`
    pub pattern: String,
    /// The share of each relative to the others: 1 to 1000
    #[arg(value_name = "N")]
    pub weight: u32,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

/// Arguments of `sickbay backend drain`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example, out of service for maintenance, and back:
  sickbay backend drain web.b1 --for 10m
  sickbay backend undrain web.b1")]
pub struct DrainArgs {
    /// Which backends: a glob as for `list`
    pub pattern: String,
    /// For how long. A drain: they keep the flows they have, and then the service's on_sick holds.
    /// Maintenance: then it is over. Until it is taken back when not given
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    pub limit: Option<Duration>,
    /// Why: shown in the list and told in the history
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Which agent
    #[command(flatten)]
    pub instance: InstanceArgs,
}

pub(super) fn add(args: &AddArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.name.is_none() || (args.addresses.len() == 1 && args.file.is_none()),
        "--name goes with one address: give names in a list (--file) to add several"
    );
    let (name, weight) = (args.name.clone(), args.weight);
    let of = |address: &String| NewBackend { address: address.clone(), name: name.clone(), weight };
    let mut backends: Vec<NewBackend> = args.addresses.iter().map(of).collect();
    if let Some(file) = &args.file {
        backends.extend(listed(file, weight)?);
    }
    let request = Request::AddBackends { pool: args.pool.clone(), backends };
    tell(args.instance.client()?.change_members(request)?, "added", out)
}

pub(super) fn remove(args: &PatternArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let request = Request::RemoveBackends { pattern: args.pattern.clone() };
    tell(args.instance.client()?.change_members(request)?, "removed", out)
}

pub(super) fn weight(args: &WeightArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let request = Request::SetWeight { pattern: args.pattern.clone(), weight: args.weight };
    let done = format!("weight {}", args.weight);
    tell(args.instance.client()?.change_members(request)?, &done, out)
}

pub(super) fn drain(args: &DrainArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let (pattern, limit_ms, reason) = terms(args);
    let request = Request::Drain { pattern, limit_ms, reason };
    tell(args.instance.client()?.change_members(request)?, "draining", out)
}

pub(super) fn maintain(args: &DrainArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let (pattern, limit_ms, reason) = terms(args);
    let request = Request::Maintain { pattern, limit_ms, reason };
    tell(args.instance.client()?.change_members(request)?, "in maintenance", out)
}

/// Over whom, for how many ms, and why.
fn terms(args: &DrainArgs) -> (String, Option<u64>, Option<String>) {
    let limit_ms = args.limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    (args.pattern.clone(), limit_ms, args.reason.clone())
}

pub(super) fn undrain(args: &PatternArgs, out: &mut dyn Write) -> anyhow::Result<()> {
    let request = Request::Undrain { pattern: args.pattern.clone() };
    tell(args.instance.client()?.change_members(request)?, "undrained", out)
}

/// One line a backend; what will disappoint goes to standard error.
fn tell(changed: MembersChanged, done: &str, out: &mut dyn Write) -> anyhow::Result<()> {
    let lines: String = changed.names.iter().map(|name| format!("{name} {done}\n")).collect();
    write_text(out, &lines)?;
    for note in changed.notes {
        eprintln!("sickbay: {note}");
    }
    Ok(())
}

/// The backends of a list; those that say no weight have the one given.
fn listed(file: &Path, weight: Option<u32>) -> anyhow::Result<Vec<NewBackend>> {
    let shown = file.display().to_string();
    let mut text = String::new();
    let (name, read) = if file == Path::new("-") {
        ("standard input", io::stdin().lock().take(LIST_BYTES_MAX + 1).read_to_string(&mut text))
    } else {
        let opened = std::fs::File::open(file).with_context(|| format!("cannot open {shown}"))?;
        (shown.as_str(), opened.take(LIST_BYTES_MAX + 1).read_to_string(&mut text))
    };
    read.with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(
        text.len() as u64 <= LIST_BYTES_MAX,
        "{name} is larger than 1 MiB: name the right file, or split it"
    );
    let newcomers = config::newcomers(&text, name).map_err(anyhow::Error::msg)?;
    anyhow::ensure!(!newcomers.is_empty(), "{name} lists no backend: write ADDRESS:PORT lines");
    let new = |newcomer: config::Newcomer| NewBackend {
        address: newcomer.address.written(),
        name: newcomer.name,
        weight: Some(if newcomer.weight == 1 { weight.unwrap_or(1) } else { newcomer.weight }),
    };
    Ok(newcomers.into_iter().map(new).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_gives_addresses_names_and_weights() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("new.list");
        std::fs::write(&file, "192.0.2.4:80 name=b4\n# old\n[fd00::1]:81 weight=7\n")
            .expect("a file");
        let new = |address: &str, name: Option<&str>, weight| NewBackend {
            address: address.to_owned(),
            name: name.map(str::to_owned),
            weight: Some(weight),
        };
        assert_eq!(
            listed(&file, Some(2)).expect("a list"),
            [new("192.0.2.4:80", Some("b4"), 2), new("[fd00::1]:81", None, 7)]
        );
    }

    #[test]
    fn bad_list_is_refused_in_one_line_with_its_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("new.list");
        std::fs::write(&file, "192.0.2.4:80\n192.0.2.5\n").expect("a file");
        let error = listed(&file, None).expect_err("a port is missing").to_string();
        assert!(
            error.ends_with(
                "new.list:2:1: \"192.0.2.5\" is not ADDRESS:PORT: add the port, such as \
             \"192.0.2.5:80\""
            ),
            "{error}"
        );
        std::fs::write(&file, "# nothing\n").expect("a file");
        let error = listed(&file, None).expect_err("it is empty").to_string();
        assert!(error.contains("lists no backend"), "{error}");
        let missing = directory.path().join("missing");
        let error = format!("{:#}", listed(&missing, None).expect_err("no such file"));
        assert!(error.contains("missing") && error.contains("No such file"), "{error}");
    }
}
