//! What the tests of this package share.

/// Random tables and packets from a seed.
pub mod chance;
/// A private host for one test: network namespace, interfaces, BPF file system.
pub mod datapath;
/// A server for every address of a loopback.
pub mod farm;
/// Figures that a passing test shows.
pub mod figures;
/// A scripted server: one backend per behaviour.
pub mod script;
/// Spells in which this machine ran nothing.
pub mod stalls;
/// The steering programs in this kernel, run packet by packet.
pub mod steering;
/// Varnish itself, as the oracle.
pub mod varnish;
