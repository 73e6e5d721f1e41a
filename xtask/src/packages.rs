//! What the machine must have: which Debian packages are missing, and their installation.

use std::env;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::build_ebpf;

/// Programs, the package each comes in, and why it is needed.
const PROGRAMS: [(&str, &str, &str); 5] = [
    ("nginx", "nginx-light", "the web servers that play the backends"),
    ("ip", "iproute2", "sets up the private networks"),
    ("ethtool", "ethtool", "sets the private interfaces up for XDP"),
    ("unshare", "util-linux", "makes the private environment"),
    ("setpriv", "util-linux", "ends the private environment with its maker"),
];
/// Files that only the tests need, as [`PROGRAMS`]: their oracle, and what libbpf is built with.
const TEST_FILES: [(&str, &str, &str); 15] = [
    ("/usr/sbin/varnishd", "varnish", "the oracle of the conformance tests"),
    ("/usr/sbin/haproxy", "haproxy", "a real server of the tests, on TCP and on a unix socket"),
    ("/usr/bin/curl", "curl", "a real client of the tests, over TCP"),
    ("/usr/bin/iperf3", "iperf3", "a real client of the tests, over TCP, for long"),
    (
        "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1",
        "libfaketime",
        "steps the wall clock of one agent by a day",
    ),
    ("/usr/bin/promtool", "prometheus", "reads the metrics, as an operator's does"),
    ("/usr/bin/make", "make", "builds libbpf, the tests' second loader"),
    ("/usr/bin/pkg-config", "pkg-config", "finds libelf for libbpf"),
    ("/usr/include/libelf.h", "libelf-dev", "libbpf reads objects with it"),
    ("/usr/include/zlib.h", "zlib1g-dev", "libelf needs it"),
    ("/usr/bin/qemu-system-x86_64", "qemu-system-x86", "emulates a machine for the oldest kernel"),
    (
        "/usr/bin/systemd-analyze",
        "systemd",
        "judges the unit, and says what its filters let through",
    ),
    ("/usr/bin/man", "man-db", "renders the manual pages, as a reader sees them"),
    ("/usr/bin/strip", "binutils", "takes the symbols out of the packaged binary"),
    ("/bin/busybox", "busybox-static", "is that machine's shell"),
];
/// Where Debian's nginx writes its process number when its package has started it.
const NGINX_PROCESS_FILE: &str = "/run/nginx.pid";
/// What a package's installation asks before it starts a service (invoke-rc.d(8)).
const POLICY_FILE: &str = "/usr/sbin/policy-rc.d";
/// Answers that nothing may be started.
const POLICY: &str = "#!/bin/sh\n# While sickbay's xtask installs packages.\nexit 101\n";

/// What the machine is to be ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The demo.
    Demo,
    /// The tests, and whatever else compiles them.
    Tests,
}

/// Sees to it that the machine has everything that demo or tests need: says what is missing and
/// why, and installs it through apt.
///
/// # Errors
/// Not root, or no apt: the text is the exact list and command. Or apt fails.
pub(crate) fn ensure_installed(what_for: Use) -> Result<()> {
    let missing = missing(what_for);
    if !missing.is_empty() {
        println!("These packages are missing:");
        for (package, reason) in &missing {
            println!("  {package:<16} {reason}");
        }
        let names: Vec<&str> = missing.iter().map(|(package, _)| *package).collect();
        let by_hand = format!("apt-get install --no-install-recommends {}", names.join(" "));
        ensure!(is_root(), "only root can install them; run as root: {by_hand}");
        let apt = found("apt-get");
        ensure!(apt, "this system has no apt-get; install what corresponds to: {by_hand}");
        install(&names)?;
    }
    for (program, package, _) in PROGRAMS {
        ensure!(
            found(program),
            "{program} (package {package}) is not in PATH; is /usr/sbin in it? \
             mend: export PATH=\"$PATH:/usr/sbin:/sbin\""
        );
    }
    ensure!(is_root(), "private networks and eBPF need root; run this command as root");
    Ok(())
}

fn missing(what_for: Use) -> Vec<(&'static str, &'static str)> {
    let mut missing: Vec<(&str, &str)> = Vec::new();
    for (program, package, reason) in PROGRAMS {
        let known = missing.iter().any(|(name, _)| *name == package);
        if !known && !found(program) && !found_in("/usr/sbin", program) {
            missing.push((package, reason));
        }
    }
    if what_for == Use::Tests {
        let absent = TEST_FILES.iter().filter(|(path, ..)| !Path::new(path).exists());
        missing.extend(absent.map(|&(_, package, reason)| (package, reason)));
    }
    missing.extend(build_ebpf::missing_packages());
    missing
}

fn install(packages: &[&str]) -> Result<()> {
    // Debian's nginx starts its service when installed, unless somebody listens on port 80: so
    // somebody does. On a machine where that port is taken, nothing needs to be held.
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 80)).ok();
    let _policy = Policy::set()?;
    let was_running = Path::new(NGINX_PROCESS_FILE).exists();
    apt(&["update", "--quiet"])?;
    let mut words = vec!["install", "--quiet", "--yes", "--no-install-recommends"];
    words.extend(packages);
    let installed = apt(&words);
    drop(held);
    if !was_running && Path::new(NGINX_PROCESS_FILE).exists() {
        println!("The installation has started the nginx service; stopping it again.");
        let status = Command::new("service").args(["nginx", "stop"]).status();
        ensure!(
            status.is_ok_and(|status| status.success()),
            "cannot stop the nginx service, which the installation has started; \
             mend: service nginx stop"
        );
    }
    installed
}

/// Nothing is started by an installation while it lives. A policy that was there stays in force.
struct Policy {
    ours: bool,
}

impl Policy {
    fn set() -> Result<Self> {
        let mut options = fs::OpenOptions::new();
        match options.write(true).create_new(true).mode(0o755).open(POLICY_FILE) {
            Ok(mut file) => {
                let policy = Self { ours: true };
                file.write_all(POLICY.as_bytes()).context("cannot write policy-rc.d")?;
                Ok(policy)
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(Self { ours: false }),
            Err(error) => Err(error).context(format!("cannot write {POLICY_FILE}")),
        }
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours
            && let Err(error) = fs::remove_file(POLICY_FILE)
        {
            println!("cannot remove {POLICY_FILE}, which keeps services from starting: {error}");
        }
    }
}

fn apt(words: &[&str]) -> Result<()> {
    println!("$ apt-get {}", words.join(" "));
    let status = Command::new("apt-get")
        .args(words)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .status()
        .context("cannot start apt-get")?;
    if !status.success() {
        bail!("`apt-get {}` failed ({status})", words.join(" "));
    }
    Ok(())
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn found(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

fn found_in(directory: &str, program: &str) -> bool {
    Path::new(directory).join(program).is_file()
}
