//! Pools: their backends from all their sources, each address once.

/// Members that are not written in the configuration itself.
mod sources;

use std::collections::HashMap;
use std::path::Path;

use sickbay_core::plan::Nanos;
use sickbay_shared::limits::{BACKENDS_MAX, POOL_BACKENDS_MAX};

use super::WEIGHT_MAX;
use super::endpoint;
use super::judging::{self, Judges};
use super::name;
use super::names;
use super::percent::percent;
use super::problem::{Report, Step, nearest, quoted};
use super::settings::{BackendEntry, BackendSettings, PoolSettings, Settings};
use super::time;
use super::vcl_backends::VclProbe;
use crate::address::Address;
use crate::discovery::{Answers, Source, Sourced};
use crate::fleet::{self, Panic};

/// How far above its threshold a panic ends, unless that is given.
const PANIC_HYSTERESIS_PERCENT: u8 = 10;

/// A pool before the indices are given out.
#[derive(Debug)]
pub(super) struct DraftPool {
    /// Its own probes: indices into them; empty = its members are healthy unless they have some.
    /// `None` when it names none: each member has its own.
    pub(super) probes: Option<Vec<usize>>,
    /// The members, in the order of the file.
    pub(super) members: Vec<Member>,
    /// The port to probe instead of each backend's own.
    pub(super) probe_port: Option<u16>,
    /// How long a change of members leaves its mark.
    pub(super) drain_ns: Nanos,
    /// When too few of it take new flows.
    pub(super) panic: Option<Panic>,
    /// Whether it may have no members.
    pub(super) may_be_empty: bool,
    /// What its members come from besides, with what each said.
    pub(super) sources: Vec<Sourced>,
    /// The probes that its VCL gives, to be added to the others.
    pub(super) vcl_probes: Vec<VclProbe>,
}

/// A member of a pool.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: Option<String>,
    pub(super) address: Address,
    /// What is probed instead.
    pub(super) probe_address: Option<Address>,
    pub(super) weight: u32,
    pub(super) judges: Judges,
    /// Where it stands, for whoever has to mend something.
    pub(super) origin: Origin,
    /// Who named it, for whoever looks at the list of backends.
    pub(super) named_by: fleet::Origin,
}

impl Member {
    /// With nothing but an address.
    fn plain(address: Address, origin: Origin) -> Self {
        let (judges, named_by) = (Judges::Pool, fleet::Origin::Configured);
        Self { name: None, address, probe_address: None, weight: 1, judges, origin, named_by }
    }
}

/// Where a member stands in the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) enum Origin {
    /// Element of `backends`.
    Entry(usize),
    /// Line of the pool's file; 0 where that has no lines.
    Line(usize),
    /// Meant by an element of `backends_dns`.
    Name,
    /// In the pool's range.
    Range,
    /// In its VCL.
    Vcl,
}

/// Every pool, in the order of names; what is wrong is reported.
pub(super) fn validate(
    settings: &Settings,
    directory: &Path,
    known: &Answers,
    report: &mut Report<'_>,
) -> Vec<DraftPool> {
    let probes: Vec<&str> = settings.probe.keys().map(String::as_str).collect();
    let mut drafts: Vec<DraftPool> = Vec::with_capacity(settings.pool.len());
    let mut count = 0;
    for (name, pool) in &settings.pool {
        if report.is_full() {
            break;
        }
        let (members, sources) = (Vec::new(), Vec::new());
        let draft = Draft { name, pool, report, members, sources, list: String::new() };
        drafts.push(draft.validate(&probes, directory, known));
        count += drafts.last().map_or(0, |draft| draft.members.len());
        // A range is a few bytes: were all of them carried out, a page of them would fill memory.
        if BACKENDS_MAX as usize <= count.saturating_sub(1) {
            let problem = format!(
                "the pools up to this one have {count} backends; {BACKENDS_MAX} are the most"
            );
            report.error(
                &["pool".into(), name.as_str().into()],
                problem,
                "use fewer or smaller pools",
            );
            break;
        }
    }
    let is_name = |it: &&Sourced| matches!(it.source, Source::Name(_));
    let names = drafts.iter().flat_map(|draft| &draft.sources).filter(is_name).count();
    names::check_count(names, report);
    drafts
}

struct Draft<'a, 'r, 's> {
    name: &'a str,
    pool: &'a PoolSettings,
    report: &'r mut Report<'s>,
    members: Vec<Member>,
    sources: Vec<Sourced>,
    /// The pool's file as it is shown.
    list: String,
}

impl<'a> Draft<'a, '_, '_> {
    fn validate(mut self, probes: &[&str], directory: &Path, known: &Answers) -> DraftPool {
        name::check_section(self.report, &self.place(), self.name);
        let own = self.own_probes(probes);
        for (index, entry) in self.pool.backends.iter().enumerate() {
            self.entry(index, entry, probes);
        }
        self.file(directory);
        self.range();
        let vcl_probes = self.vcl(directory);
        self.names(known);
        if own.is_none() {
            self.check_judges(probes);
        }
        let probe_port = self.probe_port();
        let place = self.at("drain");
        let limits = 1_000_000_000..=86_400_000_000_000;
        let drain_ns = time::nanos(self.report, &place, &self.pool.drain, limits, 300_000_000_000);
        self.check_duplicates();
        self.check_count();
        let panic = self.panic();
        let Self { members, sources, pool, .. } = self;
        let may_be_empty = pool.allow_empty || !pool.backends_dns.is_empty();
        DraftPool {
            probes: own,
            members,
            probe_port,
            drain_ns,
            panic,
            may_be_empty,
            sources,
            vcl_probes,
        }
    }

    fn panic(&mut self) -> Option<Panic> {
        const NOUN: &str = "no share of a pool";
        let (at_threshold, at_end) = (self.at("panic_threshold"), self.at("panic_end"));
        let end = self.pool.panic_end.as_deref();
        let Some(below) = self.pool.panic_threshold.as_deref() else {
            if end.is_some() && !self.report.is_marred(&at_threshold) {
                let problem = "panic_end has no meaning without panic_threshold";
                self.report.error(&at_end, problem, "remove it, or add panic_threshold = \"30%\"");
            }
            return None;
        };
        let below_percent = percent(self.report, &at_threshold, (below, NOUN), 1..=100)?;
        let end_percent = match end {
            Some(end) => percent(self.report, &at_end, (end, NOUN), below_percent..=100)?,
            None => below_percent.saturating_add(PANIC_HYSTERESIS_PERCENT).min(100),
        };
        Some(Panic { below_percent, end_percent })
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

    /// The pool's own probes; `None` when it names none.
    fn own_probes(&mut self, probes: &[&str]) -> Option<Vec<usize>> {
        let place = self.at("probe");
        if self.report.is_marred(&place) {
            return Some(Vec::new());
        }
        let names = self.pool.probe.as_ref()?;
        Some(judging::named(names, probes, &place, self.report))
    }

    /// Of a pool without a probe, every member has its own.
    fn check_judges(&mut self, probes: &[&str]) {
        let is_judged = |member: &Member| member.judges != Judges::Pool;
        let any = !self.members.is_empty() || self.pool.vcl.is_some();
        if any && self.members.iter().all(is_judged) {
            return;
        }
        let mend = format!("add probe = \"NAME\"; {}", nearest("", probes.iter().copied()));
        self.report.error(&self.place(), "the pool has no probe", mend);
    }

    fn entry(&mut self, index: usize, entry: &BackendEntry, probes: &[&str]) {
        let place = self.at_entry(index);
        if self.report.is_marred(&place) {
            return;
        }
        let origin = Origin::Entry(index);
        let table = match entry {
            BackendEntry::Table(table) => table,
            BackendEntry::Address(text) => {
                match endpoint::endpoint(text) {
                    Ok(address) => self.members.push(Member::plain(address, origin)),
                    Err((problem, mend)) => self.report.error(&place, problem, mend),
                }
                return;
            }
        };
        let [pool, name_step, backends, element] = place;
        let inner = |key| [pool, name_step, backends, element, Step::Key(key)];
        let Some(text) = &table.address else {
            if !self.report.is_marred(&inner("address")) {
                let mend = "add address = \"ADDRESS:PORT\"";
                self.report.error(&place, "the backend has no address", mend);
            }
            return;
        };
        let address = self.address(text, &inner("address"));
        let BackendSettings { name, probe_address, probe, weight, .. } = table;
        if let Some(fault) = name.as_ref().and_then(|name| name::backend_fault(name)) {
            let mend = "name it with 1 to 64 letters, digits, \"-\", \"_\", \".\", \":\"";
            self.report.error(&inner("name"), fault, mend);
        }
        let weight = weight
            .map_or(Some(1), |weight| self.report.whole(&inner("weight"), weight, 1..=WEIGHT_MAX));
        let probe_address =
            probe_address.as_ref().and_then(|text| self.address(text, &inner("probe_address")));
        let judges = match probe {
            None => Judges::Pool,
            Some(names) => Judges::Own(judging::named(names, probes, &inner("probe"), self.report)),
        };
        if let Some(address) = address {
            let (name, weight) = (name.clone(), weight.unwrap_or(1));
            let plain = Member::plain(address, origin);
            self.members.push(Member { name, probe_address, weight, judges, ..plain });
        }
    }

    fn address(&mut self, text: &str, place: &[Step<'_>]) -> Option<Address> {
        let faulty = |(problem, mend): endpoint::Fault| self.report.error(place, problem, mend);
        endpoint::endpoint(text).map_err(faulty).ok()
    }

    fn probe_port(&mut self) -> Option<u16> {
        let place = self.at("probe_port");
        let port = self.report.whole(&place, self.pool.probe_port?, 1..=65_535)?;
        let has_none =
            |member: &&Member| member.probe_address.is_none() && member.address.inet().is_none();
        if let Some(member) = self.members.iter().find(has_none) {
            let problem = format!("probe_port has no meaning for {}", member.address);
            self.report.error(&place, problem, "give that backend a pool of its own");
        }
        u16::try_from(port).ok()
    }

    fn check_duplicates(&mut self) {
        let members = std::mem::take(&mut self.members);
        let mut addresses: HashMap<&Address, usize> = HashMap::with_capacity(members.len());
        let mut twice = Vec::new();
        for (index, member) in members.iter().enumerate() {
            if let Some(first) = addresses.insert(&member.address, index) {
                addresses.insert(&member.address, first);
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
        let may_be_empty = self.pool.allow_empty || !self.pool.backends_dns.is_empty();
        let failed = ["backends_file", "backends_dns", "backends_range", "vcl"]
            .into_iter()
            .any(|key| self.report.is_marred(&self.at(key)));
        if count == 0 && !any_entry && !failed && !may_be_empty {
            let mend = "add backends = [\"ADDRESS:PORT\", …], backends_file, backends_dns or \
                        backends_range; or allow_empty = true";
            self.report.error(&self.place(), "the pool has no backends", mend);
        }
    }

    fn describe(&self, origin: Origin) -> String {
        match origin {
            Origin::Entry(index) => format!("line {}", self.report.line(&self.at_entry(index))),
            Origin::Line(0) => format!("in {}", self.list),
            Origin::Line(line) => format!("{}:{line}", self.list),
            Origin::Name => "in its backends_dns".to_owned(),
            Origin::Range => "in its backends_range".to_owned(),
            Origin::Vcl => "in its vcl".to_owned(),
        }
    }

    fn error_of(&mut self, origin: Origin, problem: String, mend: &str) {
        match origin {
            Origin::Entry(index) => self.report.error(&self.at_entry(index), problem, mend),
            Origin::Line(line) => {
                self.error_in_list(line, line.min(1), problem, mend.to_owned());
            }
            Origin::Name => self.report.error(&self.at("backends_dns"), problem, mend),
            Origin::Range => self.report.error(&self.at("backends_range"), problem, mend),
            Origin::Vcl => self.report.error(&self.at("vcl"), problem, mend),
        }
    }
}
