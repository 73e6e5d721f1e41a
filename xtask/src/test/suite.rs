//! One suite's run: its programs, their summaries, its budget.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sickbay_lab::agent::BINARY_VARIABLE;

use super::programs::{self, Built, Program};
use super::vm;
use crate::{bench, cargo, inside};

/// A set of test programs.
pub(crate) struct Suite {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) what: &'static str,
    /// It is ended, and has failed, when it takes longer.
    pub(crate) budget: Duration,
    /// Which programs belong to it.
    members: Members,
}

enum Members {
    /// Those that need no privilege, and the examples in the documentation.
    Unprivileged,
    /// The privileged programs of these names.
    Named(&'static [&'static str]),
    /// The same of programs that take times.
    Measuring(&'static [&'static str]),
    /// Privileged programs that no other suite names.
    OtherPrivileged,
    /// Those that run once more, under the oldest kernel that is supported.
    OldestKernel,
    /// Benches in their quick form, which hold ratios to a wide margin.
    Benches(&'static [&'static str]),
}

/// All suites, the quick ones first, those that measure last, when nothing runs beside them.
pub(crate) const SUITES: [Suite; 11] = [
    Suite {
        name: "unit",
        what: "core, shared, agent, lab, xtask; no privilege",
        budget: Duration::from_secs(300),
        members: Members::Unprivileged,
    },
    Suite {
        name: "kernel",
        what: "programs, maps and networks in the kernel",
        budget: Duration::from_secs(300),
        members: Members::OtherPrivileged,
    },
    Suite {
        name: "bad-input",
        what: "each mistake gets a clear line, and leaves nothing behind",
        budget: Duration::from_secs(120),
        members: Members::Named(&["bad_input"]),
    },
    Suite {
        name: "conformance",
        what: "probes as Varnish's own, record by record",
        budget: Duration::from_secs(240),
        members: Members::Named(&["conformance", "vcl_compiler"]),
    },
    Suite {
        name: "end-to-end",
        what: "real servers die, come and go under load",
        budget: Duration::from_secs(480),
        members: Members::Named(&["end_to_end", "real_servers", "membership", "metrics", "faults"]),
    },
    Suite {
        name: "restart",
        what: "agents are killed, replaced and read again under traffic",
        budget: Duration::from_secs(900),
        members: Members::Named(&["transfers", "upgrade"]),
    },
    Suite {
        name: "policies",
        what: "services of every kind; few healthy backends, or none",
        budget: Duration::from_secs(300),
        members: Members::Named(&["policies"]),
    },
    Suite {
        name: "discovery",
        what: "files, names and a watched configuration; 300 reloads at 10,000 targets",
        budget: Duration::from_secs(420),
        members: Members::Named(&["discovery"]),
    },
    Suite {
        name: "kernel-6.1",
        what: "programs, maps and rings under Debian 12's own kernel, emulated",
        budget: Duration::from_secs(900),
        members: Members::OldestKernel,
    },
    Suite {
        name: "scale",
        what: "10,000 targets on one core",
        budget: Duration::from_secs(180),
        members: Members::Measuring(&["scale"]),
    },
    Suite {
        name: "bench",
        what: "the quick form of each bench: ratios to peers, with a wide margin",
        budget: Duration::from_secs(600),
        members: Members::Benches(&["probe", "publish", "steer", "converge"]),
    },
];

/// What tests came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Passed.
    pub(crate) passed: u64,
    /// Failed; a program that died or ran nothing counts as one.
    pub(crate) failed: u64,
}

impl Counts {
    /// Adds another's.
    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }

    const fn one_failed() -> Self {
        Self { passed: 0, failed: 1 }
    }
}

impl Suite {
    /// Whether it can run beside others: it keeps one core busy, in a machine of its own.
    pub(crate) const fn runs_beside(&self) -> bool {
        matches!(self.members, Members::OldestKernel)
    }

    /// Whether it runs what is built as it is released.
    pub(crate) const fn is_of_benches(&self) -> bool {
        matches!(self.members, Members::Benches(_))
    }

    /// Whether it takes times, so that nothing may run beside it.
    pub(crate) const fn measures(&self) -> bool {
        matches!(self.members, Members::Benches(_) | Members::Measuring(_))
    }

    /// Runs the suite's programs one after the other, one test at a time where they need a kernel;
    /// what they print is told line by line.
    ///
    /// # Errors
    /// When a program cannot be started.
    pub(crate) fn run(
        &self,
        built: &Built,
        only: Option<&str>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Counts> {
        let deadline = Instant::now() + self.budget;
        if matches!(self.members, Members::OldestKernel) {
            return run_machine(vm::command(built, only)?, deadline, say);
        }
        if let Members::Benches(names) = self.members {
            return run_benches(names, only, deadline, say);
        }
        let mut sum = Counts::default();
        for program in built.programs.iter().filter(|program| self.has(program)) {
            say(&format!("-- {}", program.name));
            let mut command = command(program, only)?;
            command.env(BINARY_VARIABLE, &built.agent);
            let counts = run_program(command, deadline, say)?;
            if program.privileged && only.is_none() && counts == Counts::default() {
                say(&format!("FAILED: {} ran no test", program.name));
                sum.add(Counts::one_failed());
            }
            sum.add(counts);
        }
        if matches!(self.members, Members::Unprivileged) && only.is_none() {
            say("-- examples in the documentation");
            sum.add(run_program(documentation(), deadline, say)?);
        }
        if sum == Counts::default() {
            say(&format!("FAILED: the suite {} ran no test", self.name));
            sum.add(Counts::one_failed());
        }
        Ok(sum)
    }

    fn has(&self, program: &Program) -> bool {
        match self.members {
            Members::Unprivileged => !program.privileged,
            Members::OldestKernel | Members::Benches(_) => false,
            Members::Named(names) | Members::Measuring(names) => {
                program.privileged && names.contains(&program.name.as_str())
            }
            Members::OtherPrivileged => {
                let named = |suite: &Suite| {
                    matches!(suite.members, Members::Named(_) | Members::Measuring(_))
                        && suite.has(program)
                };
                program.privileged && !SUITES.iter().any(named)
            }
        }
    }
}

fn command(program: &Program, only: Option<&str>) -> Result<Command> {
    let mut command = if program.privileged {
        let mut words: Vec<OsString> = vec!["run".into(), program.path.clone().into()];
        words.push("--test-threads=1".into());
        inside::enter(&words)?
    } else {
        Command::new(&program.path)
    };
    command.args(only);
    Ok(command)
}

fn documentation() -> Command {
    cargo::command(&programs::words(&["test", "--quiet", "--doc"]))
}

/// Builds the benches as they are released, and runs the quick form of each, which fails when a
/// promise is broken.
fn run_benches(
    names: &[&str],
    only: Option<&str>,
    deadline: Instant,
    say: &mut dyn FnMut(&str),
) -> Result<Counts> {
    let program = bench::build()?;
    let mut sum = Counts::default();
    for name in names.iter().filter(|name| only.is_none_or(|only| name.contains(only))) {
        say(&format!("-- {name}"));
        let mut command = bench::command(&program, &[(*name).into(), "--quick".into()])?;
        command.stdin(Stdio::null());
        let counts = run_program(command, deadline, say)?;
        let passed = u64::from(counts == Counts::default());
        sum.add(Counts { passed, failed: counts.failed });
    }
    if sum == Counts::default() {
        say("FAILED: no bench is called so");
        sum.add(Counts::one_failed());
    }
    Ok(sum)
}

/// Runs the machine of another kernel. It must say itself that it came to the end: one that dies
/// on the way ends like one that is done, and has run fewer tests.
fn run_machine(command: Command, deadline: Instant, say: &mut dyn FnMut(&str)) -> Result<Counts> {
    let mut done = false;
    let mut counts = run_program(command, deadline, &mut |line| {
        done |= line.trim() == vm::DONE;
        say(line);
    })?;
    if !done {
        say("FAILED: the machine ended before every program had run");
        counts.add(Counts::one_failed());
    }
    Ok(counts)
}

/// Runs one program, says what it prints, and reads its summaries.
fn run_program(
    mut command: Command,
    deadline: Instant,
    say: &mut dyn FnMut(&str),
) -> Result<Counts> {
    let program = command.get_program().to_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", program.display()))?;
    let mut counts = Counts::default();
    let lines = lines_of(&mut child)?;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                say(&line);
                counts.add(summary(&line).unwrap_or_default());
            }
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                say("FAILED: the suite's budget is spent");
                child.kill()?;
                child.wait()?;
                counts.add(Counts::one_failed());
                return Ok(counts);
            }
        }
    }
    let status = child.wait()?;
    if !status.success() && counts.failed == 0 {
        say(&format!("FAILED: {} ended with {status}", program.display()));
        counts.add(Counts::one_failed());
    }
    Ok(counts)
}

fn lines_of(child: &mut Child) -> Result<mpsc::Receiver<String>> {
    let stdout = child.stdout.take().context("standard output is piped")?;
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    Ok(receiver)
}

/// What libtest's (and libtest-mimic's) closing line says; an ignored test has not passed.
fn summary(line: &str) -> Option<Counts> {
    let rest = line.trim().strip_prefix("test result: ")?;
    let count = |noun: &str| {
        rest.split([';', '.']).find_map(|part| {
            let number = part.trim().strip_suffix(noun)?.trim_end();
            number.rsplit(' ').next()?.parse::<u64>().ok()
        })
    };
    let ignored = count(" ignored").unwrap_or(0);
    Some(Counts { passed: count(" passed")?, failed: count(" failed")? + ignored })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_read() {
        let line = "test result: ok. 13 passed; 0 failed; 0 ignored; 0 measured; \
                    0 filtered out; finished in 0.01s";
        assert_eq!(summary(line), Some(Counts { passed: 13, failed: 0 }));
    }

    #[test]
    fn failed_and_ignored_tests_count_as_failed() {
        let line = "test result: FAILED. 2 passed; 1 failed; 3 ignored; 0 measured; \
                    0 filtered out; finished in 1.25s";
        assert_eq!(summary(line), Some(Counts { passed: 2, failed: 4 }));
    }

    #[test]
    fn other_lines_are_no_summary() {
        assert_eq!(summary("running 13 tests"), None);
        assert_eq!(summary("test clock::tests::a ... ok"), None);
    }

    #[test]
    fn every_privileged_program_is_in_exactly_one_suite() {
        for name in [
            "agree",
            "board",
            "attach",
            "end_to_end",
            "policies",
            "bad_input",
            "scale",
            "conformance",
            "vcl_compiler",
            "real_servers",
            "upgrade",
            "faults",
            "metrics",
            "discovery",
            "new_one",
        ] {
            let program = Program { name: name.to_owned(), privileged: true, path: "x".into() };
            assert_eq!(SUITES.iter().filter(|suite| suite.has(&program)).count(), 1, "{name}");
        }
    }

    #[test]
    fn program_that_outlives_the_budget_is_ended_and_has_failed() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let start = Instant::now();
        let counts = run_program(command, start + Duration::from_millis(50), &mut |_| ()).unwrap();
        assert_eq!(counts, Counts { passed: 0, failed: 1 });
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn program_that_dies_without_a_summary_has_failed() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let counts = run_program(Command::new("false"), deadline, &mut |_| ()).unwrap();
        assert_eq!(counts, Counts { passed: 0, failed: 1 });
    }

    #[test]
    fn machine_that_stops_on_the_way_has_failed() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let said = |text: &str| {
            let mut command = Command::new("echo");
            command.args(["-e", text]);
            run_machine(command, deadline, &mut |_| ()).unwrap()
        };
        let summary = "test result: ok. 2 passed; 0 failed; 0 ignored";
        let whole = format!("{summary}\\n{}", vm::DONE);
        assert_eq!(said(&whole), Counts { passed: 2, failed: 0 });
        assert_eq!(said(summary), Counts { passed: 2, failed: 1 });
    }
}
