//! What the tests of this package share.

/// Random tables and packets from a seed.
pub mod chance;
/// The steering programs in this kernel, run packet by packet.
pub mod steering;
