//! The project's own commands: `cargo xtask COMMAND`, one file per command, named after it.

/// `cargo xtask bench`: workloads, and peers beside them.
mod bench;
/// `cargo xtask build-ebpf`: the kernel objects.
mod build_ebpf;
/// Cargo, called with the project's own arguments.
mod cargo;
/// `cargo xtask ci`: format, lint, every test.
mod ci;
/// `cargo xtask demo`: one death and one return, seen from a client.
mod demo;
/// `cargo xtask dist`: a Debian package.
mod dist;
/// `cargo xtask earlier-object`: what the tests of upgrades upgrade from.
mod earlier_object;
/// `cargo xtask fuzz`: parsers under libFuzzer, the corpus kept.
mod fuzz;
/// What runs as process 1 of a private environment.
mod inside;
/// What the machine must have, installed through apt.
mod packages;
/// `cargo xtask test`: every test, by suites.
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build the kernel objects, target/bpf/*.bpf.o, with any rustc that has its library source
    BuildEbpf,
    /// Show the main job on a private network: a backend dies, is skipped, and comes back
    Demo(demo::Arguments),
    /// Run every test, those that need a kernel included; or the named suites
    Test(test::Arguments),
    /// Measure sickbay, and its peers beside it
    Bench(bench::Arguments),
    /// Build a Debian package: binary, unit, manual pages, completions
    Dist(dist::Arguments),
    /// Build the kernel object of an earlier commit, from which the tests upgrade
    EarlierObject(earlier_object::Arguments),
    /// Fuzz the parsers, and keep the corpus that the unit suite replays
    Fuzz(fuzz::Arguments),
    /// What CI runs: format, lint, then every test
    Ci,
    /// The second half of other commands, as process 1 of a private environment
    #[command(hide = true, subcommand)]
    Inside(inside::Command),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::BuildEbpf => build_ebpf::run().map(|()| ExitCode::SUCCESS),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Test(arguments) => test::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Dist(arguments) => dist::run(&arguments),
        Command::EarlierObject(arguments) => earlier_object::run(&arguments),
        Command::Fuzz(arguments) => fuzz::run(&arguments),
        Command::Ci => ci::run(),
        Command::Inside(command) => inside::run(&command),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
