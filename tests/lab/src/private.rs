//! The private environment: namespaces of mounts, processes and networks around a whole run.
//!
//! A command built by [`command`] runs its program as process 1 of a process namespace. When it
//! ends, the kernel kills every other process in there; with them go the network namespaces
//! (unnamed, held by descriptors), the mounts with their bpffs (and so all pins and links), and the
//! scratch files, which stand on a tmpfs. It ends at the latest when `unshare` does, which dies
//! with whoever started it. Nothing is left to be cleaned up by code that might not run.

#![expect(unsafe_code, reason = "a signal handler is set by an unsafe call")]

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use crate::namespace::bring_loopback_up;

/// Set inside the private environment, to the file name of its scratch directory.
const MARKER: &str = "SICKBAY_LAB";
/// A directory that every Debian has and no checkout lies in; a tmpfs covers it inside.
const COVERED: &str = "/run";
/// The bpf file system's usual place, which the environment covers with an empty one of its own.
const BPF_DIRECTORY: &str = "/sys/fs/bpf";

/// `program` as process 1 of new namespaces of processes, mounts and network. Add arguments and
/// spawn it, or better `exec` it. The program calls [`set_up`] first thing.
#[must_use]
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    // Dies with the process that spawned it; --kill-child takes the rest along.
    command.args(["--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--net", "--fork"]);
    command.args(["--kill-child=SIGKILL", "--mount-proc", "--"]);
    command.arg(program);
    command
}

/// Makes this process, started by [`command`], the first of its private environment: mounts the
/// bpf file system and scratch memory, brings loopback up, and lets the stop signals end it.
///
/// # Errors
/// When this is not process 1 (a guard against mounting over a real system), or a mount fails.
pub fn set_up() -> Result<()> {
    if std::process::id() != 1 {
        bail!("this command only runs as process 1 of a private environment");
    }
    exit_on_signals()?;
    mount_over("bpf", BPF_DIRECTORY, "mode=0700")
        .context("no bpf file system: sickbay needs CONFIG_BPF_SYSCALL")?;
    mount_over("tmpfs", COVERED, "mode=0755,size=1g")?;
    fs::create_dir(Path::new(COVERED).join(MARKER))?;
    bring_loopback_up()
}

/// Whether this process lives inside a private environment.
#[must_use]
pub fn inside() -> bool {
    Path::new(COVERED).join(MARKER).is_dir()
}

/// For tests: panics with the remedy outside of a private environment.
///
/// # Panics
/// Outside. A test that cannot run has not passed.
#[track_caller]
pub fn require() {
    assert!(inside(), "this test needs a private environment: run it with `cargo xtask test`");
}

/// Scratch memory: a directory on the private environment's tmpfs.
#[must_use]
pub fn scratch() -> PathBuf {
    Path::new(COVERED).join(MARKER)
}

/// Cargo's target directory: where this program was built, with the kernel objects in `bpf/`.
///
/// # Errors
/// When this program does not stand in one.
pub fn target_directory() -> Result<PathBuf> {
    let program = env::current_exe().context("cannot find this program's own file")?;
    // TARGET/debug/xtask, or TARGET/debug/deps/end_to_end-1234.
    let profile = program.ancestors().skip(1).find(|directory| !directory.ends_with("deps"));
    let target = profile.and_then(Path::parent);
    target.map(Path::to_path_buf).context("this program does not stand in a target directory")
}

fn mount_over(kind: &str, directory: &str, options: &str) -> Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some(kind), directory, Some(kind), flags, Some(options))
        .with_context(|| format!("cannot mount {kind} on {directory}"))
}

/// Process 1 is spared by signals it has no handler for; this gives it one that ends it.
fn exit_on_signals() -> Result<()> {
    let handler = SigHandler::Handler(exit_at_once);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        // SAFETY: the handler only calls _exit, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }.context("cannot set a signal handler")?;
    }
    Ok(())
}

extern "C" fn exit_at_once(signal: i32) {
    // SAFETY: _exit takes any number, does not return, and is async-signal-safe (signal-safety(7)).
    unsafe { libc::_exit(128 + signal) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_process_is_refused() {
        let error = set_up().unwrap_err();
        assert!(error.to_string().contains("process 1"), "{error}");
    }

    #[test]
    fn command_dies_with_its_parent_and_takes_all_along() {
        let command = command("true");
        let words: Vec<_> = command.get_args().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(words[..3], ["--pdeathsig", "KILL", "unshare"]);
        assert!(words.contains(&"--kill-child=SIGKILL"));
        assert_eq!(words.last(), Some(&"true"));
    }
}
