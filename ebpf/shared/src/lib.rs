//! What the agent and the kernel program share: the layout of the maps and the steering decision.
//!
//! Compiled twice, for the host and for the kernel's eBPF machine, so that host tests, fuzzers and
//! the kernel run the same [`steer::decide`]. No allocation, no clock of its own, no I/O: packets
//! and tables come in behind the traits [`packet::Packet`] and [`tables::Tables`].
#![no_std]

#[cfg(any(test, feature = "model"))]
extern crate std;

/// The maps: their names, and the structs that stand in them.
pub mod abi;
/// Budgets: what one CPU may spend in a second.
pub mod budget;
/// Counters: which of them a packet moves, as a function of what was decided of it.
pub mod counters;
/// Entries of SYNs: an array of lines, whose entries give way to one another.
pub mod embryonic;
/// Explaining: the decision over the live tables, with what it found, without leaving a trace.
pub mod explain;
/// The lab's synthetic farm: what a backend of it does.
pub mod farm;
/// The flow hash: 64 bits from a flow and a seed, the same on the host and in the kernel.
pub mod hash;
/// The bounds that the maps, the loops and the agent obey, related by const assertions.
pub mod limits;
/// The host's tables, counters and packets, for tests.
#[cfg(any(test, feature = "model"))]
pub mod model;
/// Packets: what the decision reads of them, and nothing it cannot be sure of.
pub mod packet;
/// Plain old data: structs as bytes and back, for maps and memory maps.
pub mod pod;
/// Answers: a packet turned into the refusal of itself, or an echo request into its reply.
pub mod reply;
/// Searches: the loops of choosing, each bounded, each of numbers alone.
pub mod search;
/// Choosing a backend for a new flow: the slot's, or one in its place, evenly.
pub mod select;
/// Services: which one a packet is for.
pub mod service;
/// The decision: what becomes of a packet.
pub mod steer;
/// Tables: what the decision looks up, wherever it stands.
pub mod tables;

#[cfg(test)]
mod tests;
