//! What can go wrong on the kernel side; each in one line: what, where, how to mend it.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::by_hand;
use crate::netlink::NetlinkError;

/// Why the kernel side cannot do what was asked.
#[derive(Debug, Error)]
pub enum KernelError {
    /// This program was built without the eBPF object.
    #[error(
        "this sickbay was built without its eBPF object and cannot steer: run `cargo xtask \
         build-ebpf`, then build it again"
    )]
    NoObject,
    /// More than the limits allow.
    #[error(
        "{count} {what} are more than the {limit} one instance can hold: use a second instance"
    )]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        count: u32,
        /// How many are allowed.
        limit: u32,
    },
    /// The pin directory is not on a BPF file system.
    #[error(
        "{} is not on a BPF file system: mount one with `mount -t bpf bpf /sys/fs/bpf`, or set \
         pin_directory to where one is", path.display()
    )]
    NoBpfFileSystem {
        /// The pin directory.
        path: PathBuf,
    },
    /// A name on the BPF file system has a dot.
    #[error(
        "cannot make {}: a BPF file system takes no names with a dot, as {name:?} has; give the \
         instance another name", path.display()
    )]
    PinName {
        /// The pin directory.
        path: PathBuf,
        /// The name.
        name: String,
    },
    /// Another agent holds the pin directory.
    #[error(
        "another agent of this instance runs (it holds {}): stop it, or give this one another \
         name with --instance", path.display()
    )]
    Running {
        /// The pin directory.
        path: PathBuf,
    },
    /// A file operation on the pin directory failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Pins {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The kernel refused a map or a program, or the object is not what it should be.
    #[error("cannot load the eBPF programs: {reason}")]
    Load {
        /// What the kernel or the loader said, in one line.
        reason: String,
    },
    /// The object's programs do not do what they are to do.
    #[error(
        "the eBPF programs failed their self-check ({what}), so nothing was attached or changed: \
         they do not belong to this sickbay, or this kernel runs them wrongly"
    )]
    SelfCheck {
        /// Which packet came to what, and what was expected.
        what: String,
    },
    /// A program that was put in the place of another one does nothing.
    #[error(
        "the program that was put in the place of the one before counted none of {received} \
         packets that came: the one before was put back"
    )]
    NotCounting {
        /// Packets that the interfaces received.
        received: u64,
    },
    /// The file that is to be used as the object cannot be read.
    #[error("cannot read the eBPF object {}: {source}", path.display())]
    ObjectFile {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The object lacks a map or a program.
    #[error(
        "the eBPF object has no {name}: it belongs to another version; run `cargo xtask \
         build-ebpf`, then build again"
    )]
    NotInObject {
        /// The name it lacks.
        name: &'static str,
    },
    /// No interface of this name.
    #[error("there is no interface {name:?} in this network namespace; {hint}")]
    NoInterface {
        /// The name.
        name: String,
        /// What there is.
        hint: String,
    },
    /// Somebody else's XDP program is on the interface.
    #[error(
        "{interface} already runs an XDP program that is not ours (id {program_id}, name \
         {program_name:?}): remove it with `{}` (if a bpf_link holds it: stop its owner), then \
         start again", by_hand::remove_xdp(interface, *generic)
    )]
    ForeignProgram {
        /// The interface.
        interface: String,
        /// The program's id.
        program_id: u32,
        /// The program's name.
        program_name: String,
        /// Whether it runs in generic mode.
        generic: bool,
    },
    /// The attach failed.
    #[error("cannot attach to {interface} ({mode}): {reason}")]
    Attach {
        /// The interface.
        interface: String,
        /// How it was tried.
        mode: &'static str,
        /// What the kernel said, and what helps.
        reason: String,
    },
    /// The detach failed.
    #[error("cannot detach from {interface}: {reason}; by hand: `{by_hand}`")]
    Detach {
        /// The interface.
        interface: String,
        /// What the kernel said.
        reason: String,
        /// The command that does it.
        by_hand: String,
    },
    /// A map operation failed.
    #[error("map {map}: {reason}")]
    Map {
        /// The map.
        map: &'static str,
        /// What went wrong.
        reason: String,
    },
    /// The kernel did not run the program that explains.
    #[error("the kernel does not explain a packet: {reason}")]
    Explain {
        /// What it said.
        reason: String,
    },
    /// A query to the kernel failed.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}
