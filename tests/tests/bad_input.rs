//! Bad input to `sickbay run`: one clear line, exit code 1, and nothing left behind.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sickbay_lab::agent::binary;
use sickbay_lab::configuration::{Configuration, Program};
use sickbay_lab::missing::without_system_call;
use sickbay_lab::network::{INTERFACE, Network};
use sickbay_lab::private::{self, target_directory};

/// A network with one machine to run on, and a good configuration to spoil.
struct Host {
    network: Network,
    good: String,
}

impl Host {
    fn new() -> Self {
        Self::with(&Configuration::usual())
    }

    fn with(configuration: &Configuration) -> Self {
        private::require();
        let network = Network::new(2).unwrap();
        let good = configuration.text(&network);
        Self { network, good }
    }

    /// The good configuration with `line` in place of the only line that begins with `start`.
    fn spoilt(&self, start: &str, line: &str) -> String {
        let begins = |each: &&str| each.trim_start().starts_with(start);
        assert_eq!(self.good.lines().filter(begins).count(), 1, "{start}: {}", self.good);
        let mut text = String::new();
        for each in self.good.lines() {
            text.push_str(if begins(&each) { line } else { each });
            text.push('\n');
        }
        text
    }

    /// Runs the agent on a configuration, by the command that `wrap` makes of its own; it has to
    /// refuse with one line and to leave everything as it was. Returns the line.
    fn refusal(&self, configuration: &str, wrap: impl FnOnce(Command) -> Command) -> String {
        let file = private::scratch().join("bad.toml");
        fs::write(&file, configuration).unwrap();
        let mut command = Command::new(binary().unwrap());
        command.arg("run").arg("-c").arg(&file);
        let mut command = wrap(command);
        command.env("SICKBAY_LOG", "error").stdin(Stdio::null());
        let before = Traces::of(&self.network);
        let output = self.network.host.namespace.run(|| command.output()).unwrap();
        let after = Traces::of(&self.network);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
        assert_eq!(error.lines().count(), 1, "not one line: {error}");
        assert!(error.starts_with("sickbay: "), "{error}");
        assert_eq!(after, before, "left behind after: {error}");
        error
    }

    /// As [`Host::refusal`], of a file that is wrong: the line names file, line and column, and
    /// holds all `words`.
    #[track_caller]
    fn assert_file_is_refused(&self, configuration: &str, words: &[&str]) {
        let error = self.refusal(configuration, |command| command);
        assert!(error.contains("bad.toml:"), "{error}");
        for word in words {
            assert!(error.contains(word), "no {word:?} in: {error}");
        }
    }
}

/// What an agent could leave behind.
#[derive(Debug, PartialEq, Eq)]
struct Traces {
    pins: Vec<PathBuf>,
    run_files: Vec<PathBuf>,
    links: String,
    filters: String,
    qdiscs: String,
    sockets: String,
}

impl Traces {
    fn of(network: &Network) -> Self {
        let tool = |words: &[&str]| network.host.namespace.tool(words).unwrap();
        Self {
            pins: files_below(Path::new("/sys/fs/bpf")),
            run_files: files_below(Path::new("/run")),
            links: tool(&["ip", "-details", "link", "show"]),
            filters: tool(&["tc", "filter", "show", "dev", INTERFACE, "ingress"]),
            qdiscs: tool(&["tc", "qdisc", "show", "dev", INTERFACE]),
            sockets: tool(&["ss", "--all", "--numeric", "--no-header", "--unix"]),
        }
    }
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
        // Not entered: the lab's own files, among them the configuration.
        if entry.path() == private::scratch() {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_below(&entry.path()));
        }
        found.push(entry.path());
    }
    found.sort();
    found
}

#[test]
fn value_of_the_wrong_type_is_refused() {
    let host = Host::new();
    let text = host.spoilt("window", "window = \"four\"");
    host.assert_file_is_refused(&text, &["probe.web.window", "whole number"]);
}

#[test]
fn unknown_key_is_refused_with_the_nearest_known_one() {
    let host = Host::new();
    let text = host.spoilt("threshold", "treshold = 3");
    host.assert_file_is_refused(&text, &["treshold", "threshold"]);
}

#[test]
fn window_larger_than_the_register_is_refused() {
    let host = Host::new();
    let text = host.spoilt("window", "window = 65");
    host.assert_file_is_refused(&text, &["probe.web.window", "65", "64"]);
}

#[test]
fn threshold_above_the_window_is_refused() {
    let host = Host::new();
    let text = host.spoilt("threshold", "threshold = 5");
    host.assert_file_is_refused(&text, &["probe.web.threshold", "5", "4"]);
}

#[test]
fn two_backends_of_one_name_are_refused() {
    let host = Host::new();
    let text = host.good.replace("backend-2", "backend-1");
    host.assert_file_is_refused(&text, &["backend-1"]);
}

#[test]
fn pool_without_backends_is_refused() {
    let host = Host::new();
    let (before, rest) = host.good.split_once("backends = [").unwrap();
    let (_, after) = rest.split_once("\n]").unwrap();
    let text = format!("{before}backends = []{after}");
    host.assert_file_is_refused(&text, &["pool.web", "backend"]);
}

#[test]
fn file_that_is_not_there_is_refused() {
    let host = Host::new();
    let error = host.refusal("", |mut command| {
        command = Command::new(command.get_program());
        command.args(["run", "-c", "/nonexistent/sickbay.toml"]);
        command
    });
    assert!(error.contains("/nonexistent/sickbay.toml"), "{error}");
}

#[test]
fn user_without_privilege_is_refused() {
    let host = Host::new();
    // The build's directory need not be one that nobody may enter.
    let copy = private::scratch().join("sickbay");
    fs::copy(binary().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let error = host.refusal(&host.good, |command| {
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all"]);
        wrapped.arg(&copy).args(command.get_args());
        wrapped
    });
    fs::remove_file(copy).unwrap();
    assert!(error.contains("run as root"), "{error}");
}

#[test]
fn root_without_the_capability_is_refused() {
    let host = Host::new();
    let error = host.refusal(&host.good, |command| {
        let mut wrapped = Command::new("setpriv");
        wrapped.args(["--bounding-set=-bpf,-sys_admin,-perfmon", "--inh-caps=-all"]);
        wrapped.arg(command.get_program()).args(command.get_args());
        wrapped
    });
    assert!(error.contains("CAP_BPF"), "{error}");
}

#[test]
fn interface_that_does_not_exist_is_refused() {
    for program in [Program::Xdp, Program::Tc] {
        let host = Host::with(&Configuration { program, ..Configuration::usual() });
        let error =
            host.refusal(&host.spoilt("interface", "interface = \"eth7\""), |command| command);
        assert!(error.contains("eth7"), "{error}");
        // What there is instead.
        assert!(error.contains(INTERFACE), "{error}");
    }
}

#[test]
fn kernel_without_io_uring_is_refused() {
    let host = Host::new();
    let error = host.refusal(&host.good, |mut command| {
        without_system_call(&mut command, libc::SYS_io_uring_setup);
        command
    });
    assert!(error.contains("io_uring"), "{error}");
}

#[test]
fn kernel_without_bpf_is_refused() {
    let host = Host::new();
    let error = host.refusal(&host.good, |mut command| {
        without_system_call(&mut command, libc::SYS_bpf);
        command
    });
    assert!(error.to_lowercase().contains("bpf"), "{error}");
}

#[test]
fn pin_directory_outside_of_a_bpf_file_system_is_refused() {
    let host = Host::new();
    let text = host.spoilt("pin_directory", "pin_directory = \"/run/pins\"");
    let error = host.refusal(&text, |command| command);
    assert!(error.contains("/run/pins"), "{error}");
    assert!(error.contains("mount -t bpf"), "{error}");
}

#[test]
fn too_few_descriptors_are_refused() {
    let host = Host::new();
    let error = host.refusal(&host.good, |command| {
        let mut wrapped = Command::new("prlimit");
        wrapped.arg("--nofile=32:32").arg(command.get_program()).args(command.get_args());
        wrapped
    });
    assert!(error.contains("descriptors"), "{error}");
    assert!(error.contains("32"), "{error}");
}

#[test]
fn foreign_xdp_program_is_refused_and_stays() {
    let host = Host::new();
    let object = target_directory().unwrap().join("bpf/meter.bpf.o");
    let attach = |mode: &str| {
        let object = object.to_str().unwrap();
        let words = ["ip", "link", "set", INTERFACE, mode, "object", object, "section", "xdp"];
        host.network.host.namespace.tool(&words).unwrap();
    };
    attach("xdpdrv");
    // That it is the same afterwards, refusal() has compared.
    let error = host.refusal(&host.good, |command| command);
    assert!(error.contains(INTERFACE), "{error}");
    assert!(error.contains("sickbay_meter"), "{error}");
    assert!(error.contains("ip link set dev eth0"), "{error}");
    let links = host.network.host.namespace.tool(&["ip", "link", "show", INTERFACE]).unwrap();
    assert!(links.contains("prog/xdp"), "{links}");
}

#[test]
fn metrics_port_that_others_reach_or_have_is_refused() {
    let host = Host::new();
    let text = host.spoilt("shards", "shards = 1\nmetrics = \"[::]:9990\"");
    host.assert_file_is_refused(&text, &["agent.metrics", "[::]:9990", "loopback"]);
    let text = host.spoilt("shards", "shards = 1\nmetrics = \"127.0.0.1:9990\"");
    let other = || std::net::TcpListener::bind("127.0.0.1:9990").unwrap();
    let _other = host.network.host.namespace.run(other);
    let error = host.refusal(&text, |command| command);
    assert!(error.contains("127.0.0.1:9990") && error.contains("choose another port"), "{error}");
}

#[test]
fn state_directory_that_is_a_file_or_everybodys_is_refused() {
    let host = Host::new();
    let root = private::scratch().join("state");
    let instance = host.good.lines().find_map(|line| line.strip_prefix("instance = \"")).unwrap();
    let directory = root.join(instance.trim_end_matches('"'));
    let line = format!("state_directory = \"{}\"", root.display());
    let text = host.spoilt("state_directory", &line);
    fs::create_dir_all(&root).unwrap();
    fs::write(&directory, "").unwrap();
    let error = host.refusal(&text, |command| command);
    assert!(error.contains("the history") && error.contains("history = false"), "{error}");
    fs::remove_file(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let error = host.refusal(&text, |command| command);
    assert!(error.contains("mode 777"), "{error}");
    fs::remove_dir_all(&root).unwrap();
}
