//! The project's own commands: `cargo xtask COMMAND`, one file per command, named after it.

mod build_ebpf;

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
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::BuildEbpf => build_ebpf::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
