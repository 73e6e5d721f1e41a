//! Test programs under the oldest kernel that is supported: Debian 12's own 6.1, in qemu.
//!
//! Under software emulation, so that it works where virtualisation is not to be had. The virtual
//! clock follows the emulated instructions and skips idle time: a slow or busy machine changes
//! nothing of what a test sees, and sleeping costs nothing.

/// The root file system: the programs, their libraries, a start script.
mod image;
/// The kernel, out of the distribution's package.
mod kernel;

use std::process::Command;

use anyhow::{Result, ensure};

use super::programs::Built;
use crate::build_ebpf;

/// The kernel's release.
const RELEASE: &str = "6.1";
/// What the start script prints when every program has run.
pub(crate) const DONE: &str = "sickbay: every program has run";

/// Test programs that run there, and the tests of each (all of them when none is named) as their
/// own command line says it. Left out is what such a kernel has not: memory in use per map (6.4; it
/// tells an estimate), socket options on the ring (6.7; refused by name there).
///
/// What the kernel decides: the verifier and the fixtures, attachment without TCX (6.6), rings
/// without socket options (6.7) and without bind (6.11), Landlock of its second version.
const PROGRAMS: [(&str, &[&str]); 10] = [
    ("agree", &["fixtures", "every_map", "explanation"]),
    ("verifier", &[]),
    ("libbpf", &[]),
    // The rest refuses before it asks the kernel, and each load takes the emulator ten seconds.
    ("attach", &["without_tcx", "a_new_agent", "native_and_generic", "detach_leaves", "are_kept"]),
    ("board", &["--skip", "maps_take_the_memory"]),
    ("confined", &[]),
    ("engine_answers", &[]),
    ("engine_sockets", &["--skip", "carries_its_mark", "--skip", "by_its_interface_alone"]),
    ("engine_shards", &[]),
    ("engine_descriptors", &[]),
];

/// The command that boots the machine, runs the programs (of their tests, those whose name contains
/// `only`) and ends; it prints what they print.
///
/// # Errors
/// When a program was not built, or the machine cannot be put together.
pub(crate) fn command(built: &Built, only: Option<&str>) -> Result<Command> {
    ensure!(
        cfg!(target_arch = "x86_64"),
        "the suite kernel-{RELEASE} is written for x86_64; name the other suites to run them"
    );
    let directory = build_ebpf::target_directory().join("vm");
    let kernel = kernel::unpack(&directory)?;
    let initrd = image::build(built, only, &kernel, &directory)?;
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-machine", "q35,accel=tcg", "-cpu", "max", "-smp", "1", "-m", "2048"])
        // One instruction a nanosecond, and no waiting for a time at which nothing happens.
        .args(["-icount", "shift=0,sleep=off"])
        .args(["-nographic", "-no-reboot", "-nic", "none"])
        .args(["-append", "console=ttyS0 quiet panic=-1"])
        .arg("-kernel")
        .arg(&kernel.image)
        .arg("-initrd")
        .arg(&initrd);
    Ok(command)
}
