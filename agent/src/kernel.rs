//! The kernel side: load the programs, pin the maps, attach, detach, read the counters.
//!
//! One instance owns one pin directory on a BPF file system:
//!
//! ```text
//! PIN_DIRECTORY/maps/NAME             every map, by its name in the ABI
//! PIN_DIRECTORY/links/INTERFACE-xdp   the link of an attached program (also -tcx; -clsact holds
//!                                     the program, for kernels whose TC has no links)
//! PIN_DIRECTORY/programs/NAME         the programs that links run, for a later agent to turn back to
//! ```
//!
//! What is pinned outlives the agent: steering goes on by the last verdicts when the agent dies, a
//! new agent takes the links over in place, and [`detach`] removes everything, agent or not.

/// Attaching to interfaces, new or in the place of what an agent before this one left.
mod attach;
/// What alone names aya: load, pin, link, samples, explaining, trials.
mod aya;
/// What an operator does by hand about what stays attached.
pub mod by_hand;
/// Counters, summed over the CPUs.
mod counters;
/// Loaded, pinned, attached; taken over from an agent that died.
mod datapath;
/// Removing everything, agent or not.
mod detach;
/// What can go wrong, with the remedy.
mod error;
/// What an agent before this one left.
mod left;
/// How much kernel memory the maps take.
pub mod memory;
/// Flow entries that move to a map of another size.
mod moving;
/// The pin directory: made, locked, undone.
mod pins;
/// Whether an object's programs do what they are to do, before anything is attached.
mod self_check;
/// How much room each map has.
mod sizes;
/// `bpf(2)` commands that aya does not offer.
pub mod syscall;
/// What an attach has changed so far, so that it can be put back.
mod turn;
/// Whether a program that has taken another's place counts what comes.
mod watch;

use std::borrow::Cow;
use std::path::Path;

pub use self::attach::{Attached, AttachedMode};
pub use self::aya::{DropRing, Explainer};
pub use self::counters::{Counters, FlowEntries};
pub use self::datapath::{Datapath, FLOW_MAPS, TcHook};
pub use self::detach::{Removed, detach};
pub use self::error::KernelError;
pub use self::left::Left;
pub use self::pins::{LINKS_FOLDER, MAPS_FOLDER, on_bpf_file_system};
pub use self::self_check::self_check;
pub use self::sizes::Sizes;

/// An object file as it was embedded, aligned for whoever parses it.
#[repr(C, align(32))]
struct Aligned<Bytes: ?Sized>(Bytes);

static EMBEDDED: &Aligned<[u8]> = &Aligned(*include_bytes!(env!("SICKBAY_EMBEDDED_OBJECT")));

/// The eBPF object in `file`; without one, that which was embedded when this program was built.
///
/// # Errors
///
/// The file cannot be read, or there is neither.
pub fn object_of(file: Option<&Path>) -> Result<Cow<'static, [u8]>, KernelError> {
    let Some(path) = file else { return object().map(Cow::Borrowed) };
    let failed = |source| KernelError::ObjectFile { path: path.to_owned(), source };
    std::fs::read(path).map(Cow::Owned).map_err(failed)
}

/// The eBPF object that was embedded when this program was built.
///
/// # Errors
///
/// [`KernelError::NoObject`]: this program was built without one.
pub fn object() -> Result<&'static [u8], KernelError> {
    match &EMBEDDED.0 {
        [] => Err(KernelError::NoObject),
        object => Ok(object),
    }
}
