//! The test programs: cargo builds them all at once and says where each one is.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::cargo;

/// Packages whose tests are run. Always all of them in one call: cargo unifies the features of
/// what it is asked for, and would build the agent again for every other selection.
pub(crate) const PACKAGES: [&str; 8] = [
    "sickbay-core",
    "sickbay-shared",
    "sickbay",
    "sickbay-lab",
    "sickbay-fuzz",
    "sickbay-bench",
    "xtask",
    "sickbay-tests",
];

/// What cargo built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Built {
    /// The test programs.
    pub(crate) programs: Vec<Program>,
    /// The agent's binary, which tests start.
    pub(crate) agent: PathBuf,
}

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

/// Builds all test programs, and with them the agent.
///
/// # Errors
/// When one does not build.
pub(crate) fn build() -> Result<Built> {
    let words = words(&["test", "--no-run", "--message-format", "json-render-diagnostics"]);
    println!("$ cargo {}", words.join(" "));
    let output =
        cargo::command(&words).stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8(output.stdout).context("cargo's messages are UTF-8")?;
    let agent = text.lines().find_map(agent).context("cargo built no sickbay for its tests")?;
    Ok(Built { programs: text.lines().filter_map(program).collect(), agent })
}

/// A cargo command over all [`PACKAGES`].
pub(crate) fn words<'word>(command: &[&'word str]) -> Vec<&'word str> {
    let packages = PACKAGES.iter().flat_map(|package| ["--package", package]);
    command.iter().copied().chain(packages).collect()
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

/// The agent's binary, if the message announces it: cargo builds it for its integration tests.
fn agent(message: &str) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let target = &message["target"];
    let is_agent = target["kind"][0] == "bin" && target["name"] == "sickbay";
    let is_test = message["profile"]["test"].as_bool()?;
    (is_agent && !is_test).then(|| message["executable"].as_str().map(PathBuf::from))?
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
    fn agent_is_the_binary_and_not_its_unit_tests() {
        let message = |test: bool| {
            format!(
                r#"{{"manifest_path":"/x/agent/Cargo.toml","profile":{{"test":{test}}},
                "target":{{"kind":["bin"],"name":"sickbay"}},"executable":"/x/target/sickbay"}}"#
            )
        };
        assert_eq!(agent(&message(false)), Some(PathBuf::from("/x/target/sickbay")));
        assert_eq!(agent(&message(true)), None);
        assert_eq!(agent(MESSAGE), None);
    }

    #[test]
    fn library_is_no_test_program() {
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/x/Cargo.toml",
            "target":{"kind":["lib"],"name":"x"},"profile":{"test":false},"executable":null}"#;
        assert_eq!(program(library), None);
        assert_eq!(program(r#"{"reason":"build-finished","success":true}"#), None);
    }
}
