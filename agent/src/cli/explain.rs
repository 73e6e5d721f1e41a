//! `sickbay explain`: in how many seconds a probe finds a death or a recovery, and by which results;
//! or where a flow goes.
//!
//! The seconds are the core's own: [`sickbay_core::answer`] runs the prober on a virtual clock.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use sickbay_core::answer::{Answer, Course, Question, register_needing};
use sickbay_core::bound::{Pace, failures_to_sick};
use sickbay_core::plan::Rule;

use super::complain;
use super::listing::{OutputFormat, Screen, printable, write_json, write_text};
use crate::config::{self, Overrides};
use crate::fleet::{Backend, Fleet, Probe};

/// The figures as JSON.
mod figures;
/// `sickbay explain flow`: where a flow's packet would go now.
pub mod flow;
/// What probing costs the backends and this host.
mod load;
/// The register over time.
mod plot;
/// Results in a row, and seconds, as text.
mod strip;
/// The explanation for people.
mod words;

const JSON_KEYS: &str = "\
JSON (-o json), times in seconds as numbers, each as {worst, typical, best}:
  probes[]                     one object per probe
    name, interval_s, timeout_s, initial, pools, backends
    interval_fast_s, interval_sick_s (null = not given), jitter_percent: worst and best have it in
                               them, sequences are without
    rule                       {window, threshold} or {fall, rise}
    failures_to_sick           from a full register; null = never sick
    failures_tolerated         the longest run that leaves it healthy
    goods_to_healthy           good results that bring it back from an empty register
    goods_after_fall           the same just after it fell from a full one
    blind_spot_s               for 1-of-1: longest time with traffic to a dead backend; else null
    time_to_sick_s             {full, boundary}, each {refused, timed_out}
    time_to_healthy_s          {empty, boundary}, each {at_once, whole_timeout}
    first_traffic_s            {at_once, whole_timeout}, from the start of the agent
    by_failures[]              failures, register (oldest result left, H good, - bad), refused,
                               timed_out, share_of_healthy_registers (null for fall and rise)
    sequence[]                 the worst case into a black hole (where the pace changes, that of one
                               target): start_s, end_s, good, verdict
    rehearsed                  whether a prober was run; false = closed form only
    load                       address, probes_per_second, request_bytes_per_second: the busiest
                               of its backends, over all pools, while all is well;
                               probes_per_second_worst, request_bytes_per_second_worst: at the
                               quickest pace
  host                         shards, probes_per_second, probes_per_second_worst, sockets_worst,
                               sockets_room, memory_bytes,
                               backends_without_a_probe
  decision_to_traffic          design_bound_s; measured_by names the command that measures it

Exit codes: 0 done, 1 wrong configuration or no such probe, 2 wrong usage.";

/// Say in how many seconds a dead backend is sick, and by which probes.
///
/// For each probe: the worst, typical and best time to sick and back to healthy, from a register
/// that is full (or empty) and from one at the boundary, for backends that refuse and for those
/// that time out; the time from a start to the first traffic; the failures that are tolerated; and
/// what the probing costs. Worst: it happens just after a probe. Typical: the mean over all moments.
///
/// Needs no root and looks at nothing but files.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_long_help = JSON_KEYS,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true
)]
pub struct ExplainArgs {
    /// Something else to explain
    #[command(subcommand)]
    pub command: Option<ExplainCommand>,
    /// The configuration file
    #[arg(short, long, value_name = "FILE", required = true)]
    pub config: Option<PathBuf>,
    /// The probe to explain, by its name in the configuration [default: every one]
    pub probe: Option<String>,
    /// How to print
    #[arg(short, long, value_enum, default_value_t)]
    pub output: OutputFormat,
    /// Draw the register over time, from the death to the recovery
    #[arg(long)]
    pub plot: bool,
}

/// What else `sickbay explain` explains.
#[derive(Clone, Debug, Subcommand)]
pub enum ExplainCommand {
    /// Say where a flow's packet would go now, and why: slot, backend, entry, skips
    Flow(flow::FlowArgs),
}

/// Explains.
///
/// # Errors
///
/// The output cannot be written, or no probe has that name. A wrong configuration is no error here:
/// its mistakes are printed, and the exit code is 1.
pub fn run(arguments: &ExplainArgs) -> anyhow::Result<ExitCode> {
    if let Some(ExplainCommand::Flow(flow)) = &arguments.command {
        return flow::run(flow);
    }
    let path =
        arguments.config.as_deref().context("no configuration file is named: add -c FILE")?;
    let fleet = match config::load(path, &Overrides::default()) {
        Ok(good) => good.fleet,
        Err(bad) => {
            complain(&bad.to_string());
            return Ok(ExitCode::FAILURE);
        }
    };
    let probes = chosen(&fleet, path, arguments.probe.as_ref())?;
    let explained: Vec<Explained<'_>> =
        probes.into_iter().map(|(index, probe)| Explained::new(&fleet, index, probe)).collect();
    let mut stdout = std::io::stdout().lock();
    match arguments.output {
        OutputFormat::Json => write_json(&mut stdout, &figures::json(&fleet, &explained))?,
        OutputFormat::Text => {
            let screen = Screen::of_stdout();
            let mut text = String::new();
            for each in &explained {
                words::explain(&mut text, each, screen);
                if arguments.plot {
                    plot::draw(&mut text, each.question, screen);
                }
                text.push('\n');
            }
            words::host(&mut text, &load::Host::of(&fleet));
            write_text(&mut stdout, &text)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The probes to explain, with their indices.
fn chosen<'f>(
    fleet: &'f Fleet,
    path: &Path,
    probe: Option<&String>,
) -> anyhow::Result<Vec<(usize, &'f Probe)>> {
    let all = fleet.probes.iter().enumerate();
    let Some(name) = probe else {
        return Ok(all.collect());
    };
    let named: Vec<_> = all.filter(|(_, probe)| probe.name == *name).collect();
    if named.is_empty() {
        let known = fleet.probes.iter().map(|probe| probe.name.as_str());
        let file = printable(&path.to_string_lossy());
        let hint = config::nearest(name, known);
        bail!("{file} has no probe \"{}\"; {hint}", printable(name));
    }
    Ok(named)
}

/// A probe with all that is said of it.
struct Explained<'f> {
    probe: &'f Probe,
    question: Question<'f>,
    /// The names of the pools that it judges.
    pools: Vec<&'f str>,
    backends: usize,
    answer: Answer,
    /// From registers that need fewer failures: how many, and the course by pace. The most first.
    by_failures: Vec<(u32, [Course; 2])>,
    /// The load on the busiest of its backends; `None` without any.
    load: Option<load::Busiest>,
}

impl<'f> Explained<'f> {
    fn new(fleet: &'f Fleet, index: usize, probe: &'f Probe) -> Self {
        let pools = fleet.pools.iter().filter(|pool| pool.probes.contains(&index));
        let is_judged = |backend: &&Backend| backend.judged.iter().any(|each| each.probe == index);
        let question = config::question(probe);
        let answer = Answer::to(question);
        let from = |failures| {
            let before = register_needing(probe.rule, failures);
            let courses = [Pace::AtOnce, Pace::WholeTimeout]
                .map(|pace| question.dies_from(before.clone(), pace));
            (failures, courses)
        };
        let wanted = if answer.is_rehearsed { failures_shown(probe.rule) } else { Vec::new() };
        Self {
            probe,
            question,
            pools: pools.map(|pool| pool.name.as_str()).collect(),
            backends: fleet.backends.iter().filter(is_judged).count(),
            by_failures: wanted.into_iter().map(from).collect(),
            answer,
            load: load::Busiest::of(fleet, index),
        }
    }
}

/// Of the numbers of failures that can make it sick, those worth a line: all of a few, else the
/// most, the least, and the threshold, which is often taken for it.
fn failures_shown(rule: Rule) -> Vec<u32> {
    const ALL_MAX: u32 = 8;
    let Some(most) = failures_to_sick(rule) else {
        return Vec::new();
    };
    let threshold = match rule {
        Rule::Window { threshold, .. } => u32::from(threshold),
        Rule::Consecutive { .. } => most,
    };
    (1..=most)
        .rev()
        .filter(|&failures| most <= ALL_MAX || [most, threshold, 1].contains(&failures))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_failures_are_all_shown_and_of_many_the_telling_ones() {
        let window = |window, threshold| Rule::Window { window, threshold };
        assert_eq!(failures_shown(window(8, 3)), [6, 5, 4, 3, 2, 1]);
        assert_eq!(failures_shown(window(64, 10)), [55, 10, 1]);
        assert_eq!(failures_shown(window(64, 60)), [5, 4, 3, 2, 1]);
        assert_eq!(failures_shown(window(8, 0)), [0; 0]);
        assert_eq!(failures_shown(Rule::Consecutive { fall: 20, rise: 2 }), [20, 1]);
    }
}
