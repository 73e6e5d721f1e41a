//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// The subcommands.
pub mod cli;
/// The control plane: the admin socket, its client, the journal of transitions.
pub mod control;
/// Validated configuration, with every index given out.
pub mod fleet;
/// The register graph of varnishadm's `backend.list -p`.
pub mod graph;
