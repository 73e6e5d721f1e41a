//! The agent's own section, and what the command line puts in its place.

use std::path::{Path, PathBuf};

use sickbay_core::plan::Nanos;
use sickbay_shared::limits::SHARDS_MAX;

use super::Overrides;
use super::name;
use super::observe;
use super::problem::{Problem, Report, Step, quoted};
use super::settings::Settings;
use super::time;
use crate::fleet::Observe;

/// The agent's own settings, validated.
pub(super) struct Agent {
    pub(super) instance: String,
    pub(super) pin_directory: PathBuf,
    pub(super) run_directory: PathBuf,
    pub(super) state_directory: PathBuf,
    pub(super) shards: u32,
    pub(super) in_flight: u32,
    pub(super) start_timeout_ns: Nanos,
    pub(super) seed: u64,
    pub(super) watch_config: bool,
    pub(super) observe: Observe,
    pub(super) read_group: Option<String>,
}

/// The agent's section with the overrides in place; what is wrong is reported.
pub(super) fn validate(
    settings: &Settings,
    overrides: &Overrides,
    report: &mut Report<'_>,
) -> Agent {
    let agent = &settings.agent;
    let at = |key| [Step::Key("agent"), Step::Key(key)];
    let instance = overrides.instance.as_ref().unwrap_or(&agent.instance).clone();
    if let Some(fault) = name::instance_fault(&instance) {
        let mend = "name it with 1 to 64 letters, digits, \"-\", \"_\"";
        if overrides.instance.is_some() {
            report.error_elsewhere(of_flag("--instance", fault, mend));
        } else {
            report.error(&at("instance"), fault, mend);
        }
    }
    let limits = 0..=3_600_000_000_000;
    let place = at("start_timeout");
    let start_timeout_ns =
        time::nanos(report, &place, &agent.start_timeout, limits, 10_000_000_000);
    let mut directory = |key: &'static str, flag: &str, given: &Option<PathBuf>, written: &str| {
        let base = given.as_deref().unwrap_or(Path::new(written));
        if !base.is_absolute() || base.as_os_str().as_encoded_bytes().contains(&0) {
            let problem = format!("{} is not an absolute path", quoted(&base.to_string_lossy()));
            let mend = "begin it with \"/\"";
            match given {
                Some(_) => report.error_elsewhere(of_flag(flag, problem, mend)),
                None => report.error(&at(key), problem, mend),
            }
        }
        base.join(&instance)
    };
    let (pin, run) = (&overrides.pin_directory, &overrides.run_directory);
    let state = &overrides.state_directory;
    let state_directory =
        directory("state_directory", "--state-directory", state, &agent.state_directory);
    Agent {
        pin_directory: directory("pin_directory", "--pin-directory", pin, &agent.pin_directory),
        run_directory: directory("run_directory", "--run-directory", run, &agent.run_directory),
        shards: report
            .whole(&at("shards"), agent.shards, 0..=i64::from(SHARDS_MAX))
            .unwrap_or_default(),
        in_flight: report.whole(&at("in_flight"), agent.in_flight, 2..=65_536).unwrap_or(1024),
        start_timeout_ns,
        watch_config: agent.watch_config,
        seed: seed(agent.seed, &at("seed"), report),
        observe: observe::validate(agent, state_directory.clone(), report),
        read_group: read_group(agent.read_group.as_ref(), &at("read_group"), report),
        state_directory,
        instance,
    }
}

/// A name that a group can have; whether there is one is this host's, and asked at the start.
fn read_group(
    given: Option<&String>,
    place: &[Step<'_>],
    report: &mut Report<'_>,
) -> Option<String> {
    let name = given?;
    let odd = |c: char| c.is_control() || c.is_whitespace() || matches!(c, ':' | ',' | '/');
    if name.is_empty() || name.contains(odd) {
        let problem = format!("{} is no group's name", quoted(name));
        report.error(place, problem, "write one such as \"sickbay\"");
        return None;
    }
    Some(name.clone())
}

fn seed(given: i64, place: &[Step<'_>], report: &mut Report<'_>) -> u64 {
    u64::try_from(given).unwrap_or_else(|_| {
        report.error(place, format!("{given} is negative"), "write 0 or more");
        0
    })
}

fn of_flag(flag: &str, problem: String, mend: &str) -> Problem {
    let (file, path) = (flag.to_owned(), String::new());
    Problem { file, line: 0, column: 0, path, problem, mend: mend.to_owned() }
}
