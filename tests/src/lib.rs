//! What the tests of this package share.

/// A server for every address of a loopback.
pub mod farm;
