//! What the agent and the kernel program share: the layout of the maps and the steering decision.
//!
//! Compiled twice, for the host and for the kernel's eBPF machine, so that host tests, fuzzers and
//! the kernel run the same [`steer::decide`]. No allocation, no clock of its own, no I/O: packets
//! and tables come in behind the traits [`packet::Packet`] and [`tables::Tables`].
#![no_std]

#[cfg(test)]
extern crate std;

/// The bounds that the maps, the loops and the agent obey, related by const assertions.
pub mod limits;
/// The maps: their names, and the structs that stand in them.
pub mod abi;
/// Plain old data: structs as bytes and back, for maps and memory maps.
pub mod pod;
