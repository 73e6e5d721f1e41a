//! What the tests of this package share.

/// A server for every address of a loopback.
pub mod farm;
/// A private host for one test: network namespace, interfaces, BPF file system.
pub mod datapath;
