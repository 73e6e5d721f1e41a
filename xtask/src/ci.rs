//! `cargo xtask ci`: format, lint, then every test. The same on every machine.

use std::process::ExitCode;

use anyhow::Result;

use crate::{cargo, packages, test};

/// Runs all of it; stops at the first step that fails.
///
/// # Errors
/// A file is not formatted, a lint speaks, or the tests cannot be built.
pub(crate) fn run() -> Result<ExitCode> {
    cargo::run(&["fmt", "--all", "--check"])?;
    // The lints compile the tests, and these a C library.
    packages::ensure_installed(packages::Use::Tests)?;
    let lint = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    cargo::run(&lint)?;
    test::run(&test::Arguments::default())
}
