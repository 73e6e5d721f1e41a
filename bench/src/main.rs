//! Workloads, one module each: what they do stands beside what they print. `cargo xtask bench NAME`
//! builds everything and runs this program as process 1's child of a private environment.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use report::Report;

/// How often this process asks for memory.
mod allocation;
/// From a backend's death to the last new connection that it gets.
mod converge;
/// One picture of what was measured.
mod picture;
/// Probes per CPU-second, beside the peers.
mod probe;
/// What the core itself costs a probe.
mod prober;
/// From a verdict to the first packet steered by it.
mod publish;
/// What a workload found.
mod report;
/// What steering costs a packet.
mod steer;

/// Measure sickbay, and its peers beside it.
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
struct Arguments {
    #[command(subcommand)]
    workload: Workload,
    /// Fewer and shorter samples: what CI runs
    #[arg(long, global = true)]
    quick: bool,
    /// Close with the figures as one JSON object on the last line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum Workload {
    /// From a backend's death, and its verdict, to the last new connection sent to it
    Converge,
    /// Draw what benches printed with --json as one SVG
    Picture(picture::Arguments),
    /// Probes per CPU-second, sickbay's and its peers', on the synthetic farm
    Probe,
    /// What the core itself costs a probe, on its simulator
    Prober,
    /// From a verdict to the first packet steered by it, on another CPU
    Publish,
    /// What steering costs a packet, by its path
    Steer,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let found: anyhow::Result<Report> = match arguments.workload {
        Workload::Converge => converge::run(arguments.quick),
        Workload::Picture(files) => picture::run(&files),
        Workload::Probe => probe::run(arguments.quick),
        Workload::Prober => Ok(prober::run()),
        Workload::Publish => publish::run(arguments.quick),
        Workload::Steer => steer::run(arguments.quick),
    };
    match found {
        Ok(report) => {
            report.print(arguments.json);
            if report.broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
