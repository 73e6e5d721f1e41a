//! `cargo xtask test`: every test, by suites. Each has a budget; one that ran nothing has failed.

/// The test programs, built by cargo and sorted into suites.
mod programs;
/// One suite's run: its programs, their summaries, its budget.
mod suite;
/// Test programs under the oldest kernel that is supported.
mod vm;

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use programs::Built;
use suite::{Counts, SUITES, Suite};

use crate::{bench, build_ebpf, packages};

/// What to test.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Suites: unit, kernel, bad-input, conformance, end-to-end, restart, policies, kernel-6.1,
    /// scale, bench; all of them when none is named
    suites: Vec<String>,
    /// Only tests whose name contains this
    #[arg(long)]
    only: Option<String>,
}

/// Runs the suites and closes with the line `N passed, N failed`.
///
/// # Errors
/// When the machine lacks something, or the tests do not build.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let suites = chosen(&arguments.suites)?;
    packages::ensure_installed(packages::Use::Tests)?;
    build_ebpf::run()?;
    let built = programs::build()?;
    let only = arguments.only.as_deref();
    // Most suites wait for most of their time. It has ended before nothing may run beside them.
    let mut released = match suites.iter().any(|suite| suite.is_of_benches()) {
        true => Some(bench::build_beside()?),
        false => None,
    };
    let mut sum = Counts::default();
    let mut lines = Vec::new();
    thread::scope(|scope| -> Result<()> {
        let beside: Vec<_> = suites.iter().filter(|suite| suite.runs_beside()).collect();
        let mut beside: Vec<_> = beside
            .into_iter()
            .map(|suite| scope.spawn(|| run_quietly(suite, &built, only)))
            .collect();
        for suite in &suites {
            println!("\n== {}: {} (budget {} s)", suite.name, suite.what, suite.budget.as_secs());
            if suite.measures()
                && let Some(mut building) = released.take()
            {
                building.wait()?;
            }
            let (counts, took) = if suite.runs_beside() {
                let (text, ended) = beside.remove(0).join().expect("a suite does not panic");
                print!("{text}");
                ended?
            } else {
                let start = Instant::now();
                let counts = suite.run(&built, only, &mut |line| println!("{line}"))?;
                (counts, start.elapsed())
            };
            lines.push(format!(
                "{:<12} {:>5} passed {:>3} failed {:>6.1} s of {} s",
                suite.name,
                counts.passed,
                counts.failed,
                took.as_secs_f64(),
                suite.budget.as_secs()
            ));
            sum.add(counts);
        }
        Ok(())
    })?;
    println!("\n{}\n", lines.join("\n"));
    println!("{} passed, {} failed", sum.passed, sum.failed);
    let good = sum.failed == 0 && 0 < sum.passed;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a suite beside others; what it printed, and what came of it after how long.
fn run_quietly(
    suite: &Suite,
    built: &Built,
    only: Option<&str>,
) -> (String, Result<(Counts, Duration)>) {
    let (start, mut text) = (Instant::now(), String::new());
    let counts = suite.run(built, only, &mut |line| {
        text.push_str(line);
        text.push('\n');
    });
    (text, counts.map(|counts| (counts, start.elapsed())))
}

fn chosen(names: &[String]) -> Result<Vec<&'static Suite>> {
    if names.is_empty() {
        return Ok(SUITES.iter().collect());
    }
    names
        .iter()
        .map(|name| match SUITES.iter().find(|suite| suite.name == name) {
            Some(suite) => Ok(suite),
            None => {
                let known: Vec<&str> = SUITES.iter().map(|suite| suite.name).collect();
                bail!("no suite is called {name}; there are {}", known.join(", "))
            }
        })
        .collect()
}
