//! Workloads, one module each: what they do stands beside what they print.

use std::process::ExitCode;

/// What the core itself costs a probe.
mod prober;

fn main() -> ExitCode {
    let workload = std::env::args().nth(1);
    match workload.as_deref() {
        Some("prober") => {
            println!("{}", prober::run());
            ExitCode::SUCCESS
        }
        other => {
            let said = other.map_or_else(String::new, |word| format!("no workload {word:?}; "));
            eprintln!("sickbay-bench: {said}usage: sickbay-bench prober");
            ExitCode::from(2)
        }
    }
}
