//! The configuration: from a TOML file to the [`Fleet`], validated once, with every mistake named.
//!
//! `reading` compares the text with the schema of `settings`; `agent`, `probes`, `pools` and
//! `services` check one section each and report through `problem`; `assembly` and `tables` give
//! out the indices; `traps` warns of what is allowed and disappoints. All report before anything
//! is refused, so that one run shows every mistake.

mod agent;
mod assembly;
mod changes;
mod claims;
mod difference;
mod endpoint;
mod example;
mod growth;
mod judging;
mod lines;
mod name;
mod names;
mod observe;
mod percent;
mod pools;
mod privilege;
mod probes;
mod problem;
mod question;
mod reading;
mod reference;
mod regrowth;
mod services;
pub mod settings;
mod shape;
mod source;
mod steering;
mod summary;
mod tables;
mod time;
mod traffic;
mod traps;
mod vcl_backends;

use std::path::{Path, PathBuf};

pub use self::changes::{Changes, changes};
pub use self::difference::{PoolDifference, difference};
pub(crate) use self::endpoint::{Fault, check as check_host, endpoint as parse_endpoint};
pub use self::example::example;
pub use self::growth::{Newcomer, check_apart, check_fits, grow, newcomer, newcomers};
pub(crate) use self::lines::Lines;
pub(crate) use self::name::backend_fault;
pub use self::problem::{ConfigError, Problem};
pub(crate) use self::problem::{nearest, quoted};
pub use self::reference::reference;
pub use self::regrowth::{Regrowth, regrow};
pub use self::summary::{
    Load, ProbeSummary, Summary, in_flight_worst, question, rate, rate_worst, rates, rounded,
};

use self::agent::Agent;
use self::judging::Judges;
use self::pools::DraftPool;
use self::problem::Report;
use self::services::DraftService;
use self::settings::Settings;
use self::tables::Tables;
use crate::discovery::{Answers, file};
use crate::fleet::{BackupTable, Fleet, Probe, Service};

/// Bytes of a configuration file: 65,536 backends of 250 bytes each fit. It is held as a tree of some
/// hundred times its size.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Largest weight of a backend.
pub(crate) const WEIGHT_MAX: i64 = 1000;

/// What the command line puts in place of the file's own settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Instance name.
    pub instance: Option<String>,
    /// Pin directory, without the instance name.
    pub pin_directory: Option<PathBuf>,
    /// Run directory, without the instance name.
    pub run_directory: Option<PathBuf>,
    /// State directory, without the instance name.
    pub state_directory: Option<PathBuf>,
}

/// A configuration that can be run.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// What it says.
    pub fleet: Fleet,
    /// What will disappoint, in the file's order.
    pub warnings: Vec<Problem>,
    /// What it amounts to.
    pub summary: Summary,
    /// The directories that its files stand in, links followed.
    pub directories: Vec<PathBuf>,
}

/// Reads and validates the configuration file at `path`. Its names are not looked up.
///
/// # Errors
///
/// Every mistake in it, or why it cannot be read.
pub fn load(path: &Path, overrides: &Overrides) -> Result<Configuration, ConfigError> {
    load_knowing(path, overrides, &Answers::new())
}

/// Reads and validates the configuration file at `path` as [`load`] does. What its names mean
/// `known` says; one that is not known has no backends yet.
///
/// # Errors
///
/// Every mistake in it, or why it cannot be read.
pub fn load_knowing(
    path: &Path,
    overrides: &Overrides,
    known: &Answers,
) -> Result<Configuration, ConfigError> {
    let text = file::read(path, FILE_BYTES_MAX).map_err(|(problem, mend)| {
        let (file, path) = (shown(path), String::new());
        let error = Problem { file, line: 0, column: 0, path, problem, mend };
        ConfigError { errors: vec![error], warnings: Vec::new() }
    })?;
    parse_knowing(&text, path, overrides, known)
}

/// Validates the text of a configuration file. `path` is its name, and what the files it names are
/// relative to. No name has backends.
///
/// # Errors
///
/// Every mistake in it.
pub fn parse(text: &str, path: &Path, overrides: &Overrides) -> Result<Configuration, ConfigError> {
    parse_knowing(text, path, overrides, &Answers::new())
}

/// Validates the text of a configuration file as [`parse`] does, with what its names mean.
///
/// # Errors
///
/// Every mistake in it.
pub fn parse_knowing(
    text: &str,
    path: &Path,
    overrides: &Overrides,
    known: &Answers,
) -> Result<Configuration, ConfigError> {
    let source = reading::parse(&shown(path), text)?;
    let mut report = Report::new(&source);
    let settings = reading::read(&source, &mut report);
    let directory = path.parent().unwrap_or(Path::new(""));
    let fleet = validate(&settings, directory, (overrides, known), &mut report);
    if let Some(fleet) = &fleet {
        traps::warn(&settings, fleet, &mut report);
    }
    let warnings = report.finish()?;
    let fleet = fleet.expect("a report without errors comes with a fleet");
    let summary = Summary::of(&fleet);
    let directories = directories(&settings, path);
    Ok(Configuration { fleet, warnings, summary, directories })
}

/// The directories of the file at `path` and of the files that it names, links followed. What is
/// read of a VCL's includes stands below its own.
fn directories(settings: &Settings, path: &Path) -> Vec<PathBuf> {
    let beside = path.parent().unwrap_or(Path::new(""));
    let pools = settings.pool.values();
    let named = pools.flat_map(|pool| pool.backends_file.iter().chain(&pool.vcl));
    let files = [path.to_owned()].into_iter().chain(named.map(|file| beside.join(file)));
    // Where the path leads, and where it stands: a link there may be turned to another file.
    let places = files.flat_map(|file| [file.canonicalize().ok(), std::path::absolute(file).ok()]);
    let directories = places.flatten().filter_map(|place| place.parent().map(Path::to_owned));
    let unique: std::collections::BTreeSet<PathBuf> = directories.collect();
    unique.into_iter().collect()
}

/// Where an instance without a configuration file is pinned, its name included.
///
/// # Errors
///
/// The overrides are not a name or not an absolute path.
pub fn default_pin_directory(overrides: &Overrides) -> Result<PathBuf, ConfigError> {
    let source = reading::parse("", "")?;
    let mut report = Report::new(&source);
    let agent = agent::validate(&Settings::default(), overrides, &mut report);
    report.finish()?;
    Ok(agent.pin_directory)
}

/// The fleet; `None` when errors were reported.
fn validate(
    settings: &Settings,
    directory: &Path,
    (overrides, known): (&Overrides, &Answers),
    report: &mut Report<'_>,
) -> Option<Fleet> {
    if report.is_full() {
        return None;
    }
    let agent = agent::validate(settings, overrides, report);
    let mut probes = probes::validate(settings, report);
    let mut drafts = pools::validate(settings, directory, known, report);
    for (name, draft) in settings.pool.keys().zip(&mut drafts) {
        add_vcl_probes(name, draft, &mut probes, report);
    }
    let services = services::validate(settings, report);
    services::check_pools(settings, &services, &drafts, report);
    let attachments = services::validate_attachments(settings, report);
    let steering = steering::validate(settings, report);
    let guard = steering::validate_guard(settings, report);
    let privilege = privilege::validate(settings, report);
    let dns = names::validate(settings, report);
    if drafts.is_empty() && !report.has_errors() {
        report.error(
            &[],
            "there is no pool: nothing to probe",
            "add a [probe.NAME] and a [pool.NAME]",
        );
    }
    if report.has_errors() {
        return None;
    }
    let tables = tables::place(settings, &services, &drafts, report);
    let services = steer(settings, &agent, services, &tables);
    let service_keys = claims::resolve(&services, report);
    let names: Vec<&str> = settings.pool.keys().map(String::as_str).collect();
    let assembled = assembly::assemble(&names, drafts, &probes, report);
    if report.has_errors() {
        return None;
    }
    Some(Fleet {
        instance: agent.instance,
        pin_directory: agent.pin_directory,
        run_directory: agent.run_directory,
        state_directory: agent.state_directory,
        shards: agent.shards,
        in_flight: agent.in_flight,
        start_timeout_ns: agent.start_timeout_ns,
        probes,
        targets: assembled.targets,
        pools: assembled.pools,
        backends: assembled.backends,
        services,
        service_keys,
        attachments,
        steering,
        guard,
        privilege,
        watch_config: agent.watch_config,
        dns,
        observe: agent.observe,
        read_group: agent.read_group,
    })
}

/// Adds the probes of the pool's VCL to the others, under names that tell whose they are.
fn add_vcl_probes(
    pool: &str,
    draft: &mut DraftPool,
    probes: &mut Vec<Probe>,
    report: &mut Report<'_>,
) {
    let first = probes.len();
    // Within a name's length; the names themselves have been checked.
    let cut = |name: &str, length: usize| name.chars().take(length).collect::<String>();
    let is_only = draft.vcl_probes.len() == 1;
    for probe in &draft.vcl_probes {
        let name = match is_only {
            true => format!("{}_vcl", cut(pool, 60)),
            false => format!("{}_vcl_{}", cut(pool, 29), cut(&probe.name, 30)),
        };
        probes.push(probes::validate_one(&name, &probe.settings, report));
    }
    for member in &mut draft.members {
        if let Judges::Vcl { probe, .. } = &mut member.judges {
            *probe += first;
        }
    }
}

fn steer(
    settings: &Settings,
    agent: &Agent,
    drafts: Vec<DraftService>,
    tables: &[Tables],
) -> Vec<Service> {
    let named = settings.service.iter().zip(drafts).zip(tables);
    named
        .map(|(((name, written), draft), tables)| Service {
            name: name.clone(),
            traffic: draft.traffic.expect("a draft without errors has its traffic"),
            pool: draft.pool,
            backup: draft.backup.zip(tables.backup).map(|(pool, (slot_first, slot_count))| {
                BackupTable { pool, slot_first, slot_count }
            }),
            mode: written.mode,
            hash: written.hash,
            all_sick: written.all_sick,
            on_sick_tcp: written.on_sick_tcp,
            on_sick_udp: written.on_sick_udp,
            stale: written.stale,
            stale_after_ns: draft.stale_after_ns,
            udp_idle_ns: draft.udp_idle_ns,
            seed: agent.seed,
            slot_first: tables.own.0,
            slot_count: tables.own.1,
            sized: written.table_size != 0,
        })
        .collect()
}

/// A path as it is shown: what would break the line or move the cursor is escaped.
pub(crate) fn shown(path: &Path) -> String {
    path.to_string_lossy()
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}
