//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// Validated configuration, with every index given out.
pub mod fleet;
/// The register graph of varnishadm's `backend.list -p`.
pub mod graph;
