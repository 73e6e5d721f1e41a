//! Pools that follow files and names, and a configuration that is watched: against the built agent,
//! with backends on the loopback of a namespace.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// A configuration file that is watched.
mod configuration;
/// Files of backends.
mod files;
/// Names in the DNS.
mod names;
/// A thousand reloads at ten thousand targets.
mod reloads;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sickbay::control::client::Client;
use sickbay::control::members::StandingView;
use sickbay::control::view::{BackendView, SourceView};
use sickbay_lab::agent::{Agent, PIN_DIRECTORY, RUN_DIRECTORY, STATE_DIRECTORY};
use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::namespace::Namespace;
use sickbay_lab::private;
use sickbay_tests::farm::Farm;

/// What has not come by then does not come, busy as the machine may be.
const PATIENCE: Duration = Duration::from_secs(20);
/// The backends' port.
const PORT: u16 = 8080;
/// Backends that answer: 127.0.1.1 and those behind it.
const FARM: u32 = 200;

/// A namespace with backends in it.
struct Stage {
    home: Namespace,
    farm: Farm,
}

impl Stage {
    fn new(count: u32) -> Self {
        private::require();
        let home = Namespace::new("home").unwrap();
        home.tool(&["ip", "link", "set", "lo", "up"]).unwrap();
        let farm = home.run(|| Farm::start(PORT, count, last_cpu()));
        Self { home, farm }
    }

    /// `ADDRESS:PORT` of a backend.
    fn backend(&self, index: u32) -> String {
        self.farm.address(index).to_string()
    }

    /// A list of these, one a line.
    fn list(&self, indices: impl IntoIterator<Item = u32>) -> String {
        let mut list = String::new();
        for index in indices {
            writeln!(list, "{}", self.backend(index)).unwrap();
        }
        list
    }

    fn start(&self, text: &str) -> Agent {
        let instance = instance_of(text);
        Agent::start(&self.home, &instance, text).unwrap()
    }
}

fn last_cpu() -> usize {
    let cpus = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0)).unwrap();
    let known = 0..nix::sched::CpuSet::count();
    known.rev().find(|cpu| cpus.is_set(*cpu).unwrap_or(false)).unwrap()
}

/// A configuration whose pool `web` has these keys; `more` are further tables.
fn configuration(agent: &str, pool: &str, more: &str) -> String {
    let instance = format!("disco-{}", monotonic_ns());
    format!(
        "[agent]\ninstance = \"{instance}\"\npin_directory = \"{PIN_DIRECTORY}\"\n\
         run_directory = \"{RUN_DIRECTORY}\"\nstate_directory = \"{STATE_DIRECTORY}\"\nshards = 1\n\
         {agent}\n[probe.web]\nurl = \"/\"\ninterval = \"500ms\"\ntimeout = \"400ms\"\nwindow = 8\n\
         threshold = 2\n\n[pool.web]\nprobe = \"web\"\ndrain = \"1s\"\n{pool}\n{more}\n"
    )
}

fn instance_of(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("instance = ")).unwrap();
    line.split('"').nth(1).unwrap().to_owned()
}

/// A file of its own in scratch memory.
fn scratch(name: &str) -> PathBuf {
    let directory = private::scratch().join(format!("lists-{}", monotonic_ns()));
    fs::create_dir_all(&directory).unwrap();
    directory.join(name)
}

/// Puts a file in another's place, as editors do.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

fn client(agent: &Agent) -> Client {
    Client::connect(&Path::new(RUN_DIRECTORY).join(agent.instance())).unwrap()
}

/// The members of the pool `web`, sorted: address and weight.
fn members(agent: &Agent) -> Vec<(String, u32)> {
    let is_member = |view: &BackendView| view.standing == StandingView::Member;
    let views = client(agent).backends(Some("web.*")).unwrap_or_default();
    let mut members: Vec<(String, u32)> =
        views.into_iter().filter(is_member).map(|view| (view.address, view.weight)).collect();
    members.sort();
    members
}

#[track_caller]
fn wait_for_members(agent: &Agent, wanted: &[(String, u32)]) {
    let mut wanted = wanted.to_vec();
    wanted.sort();
    let mut last = Vec::new();
    let there = wait_until("the members are as wanted", PATIENCE, || {
        last = members(agent);
        (last == wanted).then_some(())
    });
    assert!(there.is_ok(), "{last:?}, not {wanted:?}; the agent said:\n{}", agent.said());
}

/// How the only source stands.
fn source(agent: &Agent) -> SourceView {
    let mut sources = client(agent).status().unwrap().sources;
    assert_eq!(sources.len(), 1, "{sources:?}");
    sources.remove(0)
}

/// Waits until the only source has a fault that says this.
#[track_caller]
fn wait_for_fault(agent: &Agent, what: &str) {
    let there = wait_until("the fault is shown", PATIENCE, || {
        source(agent).fault.filter(|fault| fault.contains(what))
    });
    assert!(there.is_ok(), "{:?}, not {what:?}; the agent said:\n{}", source(agent), agent.said());
}

fn each(backends: impl IntoIterator<Item = String>) -> Vec<(String, u32)> {
    backends.into_iter().map(|backend| (backend, 1)).collect()
}
