//! The test programs: cargo builds them all at once and says where each one is.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;

/// Packages whose tests are run; those of [`KERNEL_PACKAGE`] need a private environment.
pub(crate) const UNIT_PACKAGES: [&str; 5] =
    ["sickbay-core", "sickbay-shared", "sickbay", "sickbay-lab", "xtask"];
/// The package of the tests that need a kernel.
const KERNEL_PACKAGE: &str = "sickbay-tests";

/// A test program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The target's name: the file name under `tests/`, or the crate's.
    pub(crate) name: String,
    /// Whether it needs a private environment.
    pub(crate) privileged: bool,
    /// Where it is.
    pub(crate) path: PathBuf,
}

/// Builds all test programs.
///
/// # Errors
/// When one does not build.
pub(crate) fn build() -> Result<Vec<Program>> {
    let mut words = vec!["test", "--no-run", "--message-format", "json-render-diagnostics"];
    for package in UNIT_PACKAGES.iter().chain([&KERNEL_PACKAGE]) {
        words.extend(["--package", package]);
    }
    println!("$ cargo {}", words.join(" "));
    let output =
        cargo::command(&words).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8(output.stdout).context("cargo's messages are UTF-8")?;
    Ok(text.lines().filter_map(program).collect())
}

/// The test program that a message of cargo's announces, if it does.
fn program(message: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let path = message["executable"].as_str()?;
    let manifest = message["manifest_path"].as_str()?;
    let target = &message["target"];
    is_test.then(|| Program {
        name: target["name"].as_str().unwrap_or_default().to_owned(),
        privileged: manifest.ends_with("/tests/Cargo.toml") && target["kind"][0] == "test",
        path: path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","manifest_path":"/x/tests/Cargo.toml",
        "target":{"kind":["test"],"name":"end_to_end"},"profile":{"test":true},
        "executable":"/x/target/debug/deps/end_to_end-1"}"#;

    #[test]
    fn program_of_the_kernel_package_is_privileged() {
        let program = program(MESSAGE).unwrap();
        assert_eq!(program.name, "end_to_end");
        assert!(program.privileged);
        assert_eq!(program.path, PathBuf::from("/x/target/debug/deps/end_to_end-1"));
    }

    #[test]
    fn library_is_no_test_program() {
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/x/Cargo.toml",
            "target":{"kind":["lib"],"name":"x"},"profile":{"test":false},"executable":null}"#;
        assert_eq!(program(library), None);
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
