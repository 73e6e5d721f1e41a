//! A pool's members that are not written in the configuration itself: from a file, from names in the
//! DNS, from a range, from a VCL.

use std::collections::HashSet;
use std::path::Path;

use super::{Draft, Member, Origin};
use crate::address::Address;
use crate::config::problem::{Problem, dotted};
use crate::config::vcl_backends::{self, Refusal, VclProbe};
use crate::config::{endpoint, names, shown};
use crate::discovery::file::{self, FILE_BYTES_MAX, NOBODY, NOBODY_MEND};
use crate::discovery::{Answers, Source, Sourced};
use crate::fleet;

impl Draft<'_, '_, '_> {
    pub(super) fn file(&mut self, directory: &Path) {
        let Some(file) = &self.pool.backends_file else {
            return;
        };
        let place = self.at("backends_file");
        let path = directory.join(file);
        self.list = shown(&path);
        let text = match file::read(&path, FILE_BYTES_MAX) {
            Ok(text) => text,
            Err((problem, mend)) => {
                self.report.error(&place, format!("{} {problem}", self.list), mend);
                return;
            }
        };
        let (listed, faults) = file::parse(&path, &text);
        let may_be_empty = self.pool.allow_empty;
        if listed.is_empty() && faults.is_empty() && !may_be_empty {
            let problem = format!("{} {NOBODY}", self.list);
            self.report.error(&place, problem, NOBODY_MEND);
            return;
        }
        for fault in faults {
            let (problem, mend) = fault.fault;
            let (line, column) = (fault.line, fault.column);
            self.error_in_list(line, column, problem, mend);
        }
        let named_by = fleet::Origin::File(self.list.as_str().into());
        let answer = file::members(&listed, &named_by);
        self.members.reserve_exact(listed.len());
        self.members.extend(listed.into_iter().map(|listed| Member {
            name: listed.name,
            weight: listed.weight,
            named_by: named_by.clone(),
            ..Member::plain(listed.address, Origin::Line(listed.line))
        }));
        let source = Source::File { path, may_be_empty };
        self.sources.push(Sourced { source, answer: Some(answer) });
    }

    /// Whom the pool's names mean, as far as `known` says. What is a member already is one: two names
    /// may well mean the same host.
    pub(super) fn names(&mut self, known: &Answers) {
        if self.pool.backends_dns.is_empty() {
            return;
        }
        let mut taken: HashSet<Address> =
            self.members.iter().map(|member| member.address.clone()).collect();
        for (index, entry) in self.pool.backends_dns.iter().enumerate() {
            let [pool, name] = self.place();
            let place = [pool, name, "backends_dns".into(), index.into()];
            if self.report.is_marred(&place) {
                continue;
            }
            let Some(question) = names::question(entry, &place, self.report) else {
                continue;
            };
            let source = Source::Name(question);
            if self.sources.iter().any(|known| known.source == source) {
                let problem = format!("{source} is in the pool already");
                self.report.error(&place, problem, "remove one of the two");
                continue;
            }
            let answer = known.get(&source).cloned();
            for member in answer.iter().flat_map(|answer| answer.iter()) {
                if taken.insert(member.address.clone()) {
                    self.members.push(Member {
                        weight: member.weight,
                        named_by: member.origin.clone(),
                        ..Member::plain(member.address.clone(), Origin::Name)
                    });
                }
            }
            self.sources.push(Sourced { source, answer });
        }
    }

    pub(super) fn range(&mut self) {
        let Some(range) = &self.pool.backends_range else {
            return;
        };
        match endpoint::range(range) {
            Ok(addresses) => {
                self.members.reserve_exact(addresses.len());
                let plain = |address| Member::plain(Address::Inet(address), Origin::Range);
                self.members.extend(addresses.into_iter().map(plain));
            }
            Err((problem, mend)) => {
                let place = self.at("backends_range");
                self.report.error(&place, problem, mend);
            }
        }
    }

    /// The backends of the pool's VCL; their probes when the pool has none.
    pub(super) fn vcl(&mut self, directory: &Path) -> Vec<VclProbe> {
        let place = self.at("prefer_ipv6");
        let Some(file) = &self.pool.vcl else {
            if self.pool.prefer_ipv6.is_some() {
                let problem = "prefer_ipv6 has no meaning without vcl";
                self.report.error(&place, problem, "remove it; an address has one family");
            }
            return Vec::new();
        };
        let place = self.at("vcl");
        let wanted = vcl_backends::Wanted {
            own_probes: self.pool.probe.is_none(),
            prefer_ipv6: self.pool.prefer_ipv6 == Some(true),
        };
        match vcl_backends::take(&directory.join(file), wanted) {
            Ok(taken) => {
                for (problem, mend) in taken.notes {
                    self.report.warn(&place, problem, mend);
                }
                self.members.extend(taken.members);
                return taken.probes;
            }
            Err(Refusal::File(error)) => {
                for problem in error.errors {
                    let path = dotted(&place);
                    self.report.error_elsewhere(Problem { path, ..problem });
                }
            }
            Err(Refusal::Unfit(problem, mend)) => self.report.error(&place, problem, mend),
        }
        Vec::new()
    }

    pub(super) fn error_in_list(
        &mut self,
        line: usize,
        column: usize,
        problem: String,
        mend: String,
    ) {
        let path = dotted(&self.at("backends_file"));
        let file = self.list.clone();
        let problem = Problem { file, line, column, path, problem, mend };
        self.report.error_elsewhere(problem);
    }
}
