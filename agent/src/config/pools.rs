//! Pools: their backends from the four sources, each address once.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;

use sickbay_core::plan::Nanos;
use sickbay_shared::limits::POOL_BACKENDS_MAX;

use super::backend_list::{self, WEIGHT_MAX};
use super::endpoint;
use super::name;
use super::problem::{Problem, Report, Step, dotted, nearest, quoted};
use super::settings::{BackendEntry, BackendSettings, PoolSettings, ProbeSettings, Settings};
use super::{
    time,
    vcl_backends::{self, Refusal},
};

/// A pool before the indices are given out.
#[derive(Debug)]
pub(super) struct DraftPool {
    /// Index into the probes.
    pub(super) probe: usize,
    /// Further ones.
    pub(super) more_probes: Vec<usize>,
    /// The members, in the order of the file.
    pub(super) members: Vec<Member>,
    /// The port to probe instead of each backend's own.
    pub(super) probe_port: Option<u16>,
    /// How long a change of members leaves its mark.
    pub(super) drain_ns: Nanos,
    /// The probe that its VCL gives, to be added to the probes and to hold instead of `probe`.
    pub(super) vcl_probe: Option<Box<ProbeSettings>>,
}

/// A member of a pool.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: Option<String>,
    pub(super) address: SocketAddr,
    /// What is probed instead.
    pub(super) probe_address: Option<SocketAddr>,
    pub(super) weight: u32,
    /// The bytes to send instead of those that the probe makes.
    pub(super) request: Option<Vec<u8>>,
    pub(super) origin: Origin,
}

/// Where a member stands in the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// Element of `backends`.
    Entry(usize),
    /// Line of the pool's file.
    Line(usize),
    /// In the pool's range.
    Range,
    /// In its VCL.
    Vcl,
}

/// Every pool, in the order of names; what is wrong is reported.
pub(super) fn validate(
    settings: &Settings,
    directory: &Path,
    report: &mut Report<'_>,
) -> Vec<DraftPool> {
    let probes: Vec<&str> = settings.probe.keys().map(String::as_str).collect();
    settings
        .pool
        .iter()
        .map(|(name, pool)| {
            let draft = Draft { name, pool, report, members: Vec::new(), list: String::new() };
            draft.validate(&probes, directory)
        })
        .collect()
}

struct Draft<'a, 'r, 's> {
    name: &'a str,
    pool: &'a PoolSettings,
    report: &'r mut Report<'s>,
    members: Vec<Member>,
    /// The pool's file as it is shown.
    list: String,
}

impl<'a> Draft<'a, '_, '_> {
    fn validate(mut self, probes: &[&str], directory: &Path) -> DraftPool {
        name::check_section(self.report, &self.place(), self.name);
        let mut named = self.probes(probes);
        let probe = if named.is_empty() { 0 } else { named.remove(0) };
        for (index, entry) in self.pool.backends.iter().enumerate() {
            self.entry(index, entry);
        }
        self.file(directory);
        self.range();
        let vcl_probe = self.vcl(directory);
        let probe_port = self.probe_port();
        let place = self.at("drain");
        let limits = 1_000_000_000..=86_400_000_000_000;
        let drain_ns = time::nanos(self.report, &place, &self.pool.drain, limits, 300_000_000_000);
        self.check_duplicates();
        self.check_count();
        let more_probes = named;
        DraftPool { probe, more_probes, members: self.members, probe_port, drain_ns, vcl_probe }
    }

    fn place(&self) -> [Step<'a>; 2] {
        ["pool".into(), self.name.into()]
    }

    fn at(&self, key: &'a str) -> [Step<'a>; 3] {
        ["pool".into(), self.name.into(), key.into()]
    }

    fn at_entry(&self, index: usize) -> [Step<'a>; 4] {
        ["pool".into(), self.name.into(), "backends".into(), index.into()]
    }

    /// The pool's probes, each once.
    fn probes(&mut self, probes: &[&str]) -> Vec<usize> {
        let place = self.at("probe");
        if self.report.is_marred(&place) {
            return Vec::new();
        }
        let names = self.pool.probe.as_ref().map_or(&[][..], |names| names.as_slice());
        if names.is_empty() && self.pool.vcl.is_none() {
            let mend = format!("add probe = \"NAME\"; {}", nearest("", probes.iter().copied()));
            self.report.error(&self.place(), "the pool has no probe", mend);
        }
        let mut found = Vec::with_capacity(names.len());
        for name in names {
            match probes.binary_search(&name.as_str()) {
                Ok(probe) if found.contains(&probe) => {
                    let problem = format!("{} is named twice", quoted(name));
                    self.report.error(&place, problem, "remove one of the two");
                }
                Ok(probe) => found.push(probe),
                Err(_) => {
                    let problem = format!("there is no probe {}", quoted(name));
                    self.report.error(&place, problem, nearest(name, probes.iter().copied()));
                }
            }
        }
        found
    }

    fn entry(&mut self, index: usize, entry: &BackendEntry) {
        let place = self.at_entry(index);
        if self.report.is_marred(&place) {
            return;
        }
        let (text, name, weight) = match entry {
            BackendEntry::Address(text) => (Some(text), None, None),
            BackendEntry::Table(table) => {
                (table.address.as_ref(), table.name.as_ref(), table.weight)
            }
        };
        let [pool, name_step, backends, element] = place;
        let inner = |key| [pool, name_step, backends, element, Step::Key(key)];
        let weight = match weight {
            None => 1,
            Some(weight) => {
                self.report.whole(&inner("weight"), weight, 1..=WEIGHT_MAX).unwrap_or(1)
            }
        };
        if let Some(fault) = name.and_then(|name| name::backend_fault(name)) {
            let mend = "name it with 1 to 64 letters, digits, \"-\", \"_\", \".\", \":\"";
            self.report.error(&inner("name"), fault, mend);
        }
        let is_table = matches!(entry, BackendEntry::Table(_));
        let Some(text) = text else {
            if !self.report.is_marred(&inner("address")) {
                let mend = "add address = \"ADDRESS:PORT\"";
                self.report.error(&place, "the backend has no address", mend);
            }
            return;
        };
        let probe_address = match entry {
            BackendEntry::Table(BackendSettings { probe_address: Some(text), .. }) => {
                let parsed = endpoint::endpoint(text);
                let faulty =
                    |(problem, mend)| self.report.error(&inner("probe_address"), problem, mend);
                parsed.map_err(faulty).ok()
            }
            _ => None,
        };
        match endpoint::endpoint(text) {
            Ok(address) => {
                let name = name.cloned();
                let origin = Origin::Entry(index);
                let member = Member { name, address, probe_address, weight, request: None, origin };
                self.members.push(member);
            }
            Err((problem, mend)) if is_table => {
                self.report.error(&inner("address"), problem, mend);
            }
            Err((problem, mend)) => self.report.error(&place, problem, mend),
        }
    }

    fn file(&mut self, directory: &Path) {
        let Some(file) = &self.pool.backends_file else {
            return;
        };
        let place = self.at("backends_file");
        let path = directory.join(file);
        self.list = super::shown(&path);
        let text = match backend_list::read(&path) {
            Ok(text) => text,
            Err((problem, mend)) => {
                self.report.error(&place, format!("{} {problem}", self.list), mend);
                return;
            }
        };
        let (listed, faults) = backend_list::parse(&text);
        for fault in faults {
            let (problem, mend) = fault.fault;
            let (line, column) = (fault.line, fault.column);
            self.error_in_list(line, column, problem, mend);
        }
        self.members.reserve_exact(listed.len());
        self.members.extend(listed.into_iter().map(|listed| Member {
            name: listed.name,
            address: listed.address,
            probe_address: None,
            weight: listed.weight,
            request: None,
            origin: Origin::Line(listed.line),
        }));
    }

    fn range(&mut self) {
        let Some(range) = &self.pool.backends_range else {
            return;
        };
        match endpoint::range(range) {
            Ok(addresses) => {
                self.members.reserve_exact(addresses.len());
                let origin = Origin::Range;
                self.members.extend(addresses.into_iter().map(|address| Member {
                    name: None,
                    address,
                    probe_address: None,
                    weight: 1,
                    request: None,
                    origin,
                }));
            }
            Err((problem, mend)) => {
                let place = self.at("backends_range");
                self.report.error(&place, problem, mend);
            }
        }
    }

    /// The backends of the pool's VCL; the probe they share when the pool has none.
    fn vcl(&mut self, directory: &Path) -> Option<Box<ProbeSettings>> {
        let file = self.pool.vcl.as_ref()?;
        let place = self.at("vcl");
        let taken = vcl_backends::take(&directory.join(file), self.pool.probe.is_some());
        match taken {
            Ok(taken) => {
                self.members.extend(taken.members);
                taken.probe
            }
            Err(Refusal::File(error)) => {
                for problem in error.errors {
                    let path = dotted(&place);
                    self.report.error_elsewhere(Problem { path, ..problem });
                }
                None
            }
            Err(Refusal::Unfit(problem, mend)) => {
                self.report.error(&place, problem, mend);
                None
            }
        }
    }

    fn probe_port(&mut self) -> Option<u16> {
        let place = self.at("probe_port");
        let port = self.report.whole(&place, self.pool.probe_port?, 1..=65_535)?;
        u16::try_from(port).ok()
    }

    fn check_duplicates(&mut self) {
        let members = std::mem::take(&mut self.members);
        let mut addresses: HashMap<SocketAddr, usize> = HashMap::with_capacity(members.len());
        let mut twice = Vec::new();
        for (index, member) in members.iter().enumerate() {
            if let Some(first) = addresses.insert(member.address, index) {
                addresses.insert(member.address, first);
                twice.push((index, first, format!("backend {}", member.address)));
            }
        }
        // The default names are the addresses: they clash only with names that are given.
        if members.iter().any(|member| member.name.is_some()) {
            let mut names: HashMap<String, usize> = HashMap::with_capacity(members.len());
            for (index, member) in members.iter().enumerate() {
                let name = member.name.clone().unwrap_or_else(|| member.address.to_string());
                let shown = format!("backend name {}", quoted(&name));
                let is_given = member.name.is_some();
                if let Some(&first) = names.get(&name) {
                    if is_given || members[first].name.is_some() {
                        twice.push((index, first, shown));
                    }
                } else {
                    names.insert(name, index);
                }
            }
        }
        for (index, first, what) in twice {
            let first = self.describe(members[first].origin);
            let problem = format!("{what} is in the pool already ({first})");
            self.error_of(members[index].origin, problem, "remove or change one of the two");
        }
        self.members = members;
    }

    fn check_count(&mut self) {
        let (count, max) = (self.members.len(), POOL_BACKENDS_MAX as usize);
        if max < count {
            let problem = format!("the pool has {count} backends; {max} are the most");
            self.report.error(&self.place(), problem, "split it into several pools");
        }
        let entries = self.at("backends");
        let any_entry = !self.pool.backends.is_empty() || self.report.is_marred(&entries);
        let failed = ["backends_file", "backends_range", "vcl"]
            .into_iter()
            .any(|key| self.report.is_marred(&self.at(key)));
        if count == 0 && !any_entry && !failed {
            let problem = match (&self.pool.backends_file, &self.pool.backends_range) {
                (Some(_), _) => "the pool has no backends: its backends_file lists none",
                _ => "the pool has no backends",
            };
            let mend = "add backends = [\"ADDRESS:PORT\", …], backends_file or backends_range";
            self.report.error(&self.place(), problem, mend);
        }
    }

    fn describe(&self, origin: Origin) -> String {
        match origin {
            Origin::Entry(index) => format!("line {}", self.report.line(&self.at_entry(index))),
            Origin::Line(line) => format!("{}:{line}", self.list),
            Origin::Range => "in its backends_range".to_owned(),
            Origin::Vcl => "in its vcl".to_owned(),
        }
    }

    fn error_of(&mut self, origin: Origin, problem: String, mend: &str) {
        match origin {
            Origin::Entry(index) => self.report.error(&self.at_entry(index), problem, mend),
            Origin::Line(line) => self.error_in_list(line, 1, problem, mend.to_owned()),
            Origin::Range => self.report.error(&self.at("backends_range"), problem, mend),
            Origin::Vcl => self.report.error(&self.at("vcl"), problem, mend),
        }
    }

    fn error_in_list(&mut self, line: usize, column: usize, problem: String, mend: String) {
        let path = dotted(&self.at("backends_file"));
        let file = self.list.clone();
        let problem = Problem { file, line, column, path, problem, mend };
        self.report.error_elsewhere(problem);
    }
}
