//! The binary: everything it can do is in the library, one file per subcommand.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: sickbay::pages::HugePages = sickbay::pages::HugePages;

fn main() -> ExitCode {
    sickbay::cli::main()
}
