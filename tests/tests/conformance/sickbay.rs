//! `sickbay probe`, run for its records.

use std::process::{Command, Stdio};

use sickbay_lab::agent::binary;
use sickbay_tests::script::Address;
use sickbay_tests::varnish::{ProbeParameters, Records, read_log};

/// A run of `sickbay probe --format varnishlog`.
pub(crate) struct Probing {
    words: Vec<String>,
    polls: usize,
}

impl Probing {
    /// As `parameters` say, so many polls of each target.
    pub(crate) fn of(parameters: ProbeParameters, polls: usize) -> Self {
        let ProbeParameters {
            timeout_ms,
            interval_ms,
            window,
            threshold,
            initial,
            expected_response,
        } = parameters;
        let words = format!(
            "probe --format varnishlog --count {polls} --timeout {timeout_ms}ms \
             --interval {interval_ms}ms --window {window} --threshold {threshold} \
             --initial {initial} --expect {expected_response}"
        );
        Self { words: words.split_whitespace().map(str::to_owned).collect(), polls }
    }

    /// In compat mode.
    pub(crate) fn compat(self) -> Self {
        self.and(&["--compat", "varnish"])
    }

    /// With more options.
    pub(crate) fn and(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| (*word).to_owned()));
        self
    }

    /// The records of these backends, by their names.
    pub(crate) fn records(&self, backends: &[(&str, Address)]) -> Records {
        let targets: Vec<String> = backends.iter().map(|(_, address)| target(address)).collect();
        let output = Command::new(binary().expect("sickbay is built"))
            .args(&self.words)
            .args(&targets)
            .env("SICKBAY_LOG", "error")
            .stdin(Stdio::null())
            .output()
            .expect("sickbay can be started");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 1)), "{error}");
        let mut by_target = read_log(&output.stdout).expect("records");
        let mut records = Records::new();
        for ((name, _), target) in backends.iter().zip(&targets) {
            let all = by_target.remove(target).unwrap_or_else(|| panic!("no record of {target}"));
            assert_eq!(all.len(), self.polls, "{name}: {error}");
            records.insert((*name).to_owned(), all);
        }
        assert!(by_target.is_empty(), "records of others: {by_target:?}");
        records
    }
}

/// A target as `sickbay probe` takes it.
fn target(address: &Address) -> String {
    match address {
        Address::Inet(address) => format!("http://{address}/"),
        Address::Unix(path) => format!("unix:{}:/", path.display()),
    }
}
