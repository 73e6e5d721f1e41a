//! What the tests of this package share.

/// A private host for one test: network namespace, interfaces, BPF file system.
pub mod datapath;
