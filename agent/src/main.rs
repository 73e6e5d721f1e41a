//! The binary: everything it can do is in the library, one file per subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    sickbay::cli::main()
}
