//! Who judges a member of a pool: the pool's probes, its own, those of the pool's VCL, or nobody.

use std::collections::HashSet;

use super::problem::{Report, Step, nearest, quoted};
use super::settings::ProbeNames;

/// What stands in place of a probe's name where there is none.
pub(super) const NONE: &str = "none";

/// Who judges a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Judges {
    /// The pool's probes.
    Pool,
    /// These: indices into the probes. Without any it is healthy without being probed.
    Own(Vec<usize>),
    /// One of the probes that the pool's VCL gives, with the bytes it sends to this member.
    Vcl {
        /// Index into the VCL's probes, and into all of them once they have joined the others.
        probe: usize,
        /// The whole request.
        request: Vec<u8>,
    },
}

/// The probes that `names` mean, each once, out of `probes`, which are sorted. What is wrong is
/// reported as of `place`.
pub(super) fn named(
    names: &ProbeNames,
    probes: &[&str],
    place: &[Step<'_>],
    report: &mut Report<'_>,
) -> Vec<usize> {
    let names = names.as_slice();
    if names == [NONE] {
        return Vec::new();
    }
    if names.is_empty() {
        let mend = format!("name one; {}", nearest("", probes.iter().copied()));
        report.error(place, "the list of probes is empty", mend);
    }
    let mut found = Vec::with_capacity(names.len());
    let mut known = HashSet::new();
    for name in names {
        if report.is_full() {
            break;
        }
        match probes.binary_search(&name.as_str()) {
            _ if name == NONE => {
                let problem = "\"none\" stands beside a probe";
                report.error(place, problem, "write probe = \"none\", or remove \"none\"");
            }
            Ok(probe) if !known.insert(probe) => {
                let problem = format!("{} is named twice", quoted(name));
                report.error(place, problem, "remove one of the two");
            }
            Ok(probe) => found.push(probe),
            Err(_) => {
                let problem = format!("there is no probe {}", quoted(name));
                report.error(place, problem, nearest(name, probes.iter().copied()));
            }
        }
    }
    found
}
