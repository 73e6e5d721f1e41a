//! What the fuzzer says of a run, in a line.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context, Result};

/// What came of fuzzing one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Report {
    /// The target's.
    pub(super) name: String,
    /// Inputs that were tried.
    executions: u64,
    /// Edges of the code that were reached, before and after.
    covered: (u64, u64),
    /// Files that are kept.
    pub(super) kept_files: u64,
    /// Their bytes.
    pub(super) kept_bytes: u64,
    /// Inputs that broke something, as they are kept.
    pub(super) broken: Vec<PathBuf>,
}

impl Report {
    /// What stands over the lines.
    pub(super) const HEADER: &'static str =
        "target     executions   edges: first  last   corpus: files  bytes   broken";

    /// From the fuzzer's log: its status lines are `#N KIND cov: N ft: N corp: N/Nb …`.
    ///
    /// # Errors
    /// There is no such line in it: the fuzzer did not begin.
    pub(super) fn of(name: &str, log: &str) -> Result<Self> {
        let states: Vec<(u64, u64)> = log.lines().filter_map(state).collect();
        let first = states.first().context("the fuzzer says nothing: it did not begin")?;
        let last = states.last().unwrap_or(first);
        Ok(Self {
            name: name.to_owned(),
            executions: last.0,
            covered: (first.1, last.1),
            kept_files: 0,
            kept_bytes: 0,
            broken: Vec::new(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, executions, covered: (first, last), kept_files, kept_bytes, .. } = self;
        let broken = self.broken.len();
        write!(
            f,
            "{name:<8} {executions:>12} {first:>14} {last:>5} {kept_files:>15} {kept_bytes:>6} \
             {broken:>8}"
        )?;
        self.broken.iter().try_for_each(|file| write!(f, "\n  {}", file.display()))
    }
}

/// Executions and coverage that a line tells.
fn state(line: &str) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix('#')?.split_ascii_whitespace();
    let executions = words.next()?.parse().ok()?;
    let covered = words.skip_while(|word| *word != "cov:").nth(1)?.parse().ok()?;
    Some((executions, covered))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "INFO: Seed: 1\n#2\tINITED cov: 12 ft: 13 corp: 1/1b exec/s: 0 rss: 31Mb\n\
        #77\tNEW    cov: 363 ft: 904 corp: 206/2091b lim: 33 exec/s: 2633 rss: 32Mb L: 30/33 MS: 1\n\
        #21205\tDONE   cov: 364 ft: 915 corp: 213/2242b lim: 38 exec/s: 2356 rss: 32Mb\n\
        ###### Recommended dictionary. ######\n\"\\010\" # Uses: 210\nDone 21205 runs\n";

    #[test]
    fn executions_and_coverage_are_read() {
        let report = Report::of("status", LOG).unwrap();
        assert_eq!((report.executions, report.covered), (21_205, (12, 364)));
        let line = "status          21205             12   364               0      0        0";
        assert_eq!(report.to_string(), line);
    }

    #[test]
    fn log_without_a_state_is_no_run() {
        let error = Report::of("status", "INFO: Seed: 1\n==1== ERROR: libFuzzer\n").unwrap_err();
        assert!(error.to_string().contains("did not begin"), "{error}");
    }
}
