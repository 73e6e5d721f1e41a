//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// The loop that carries out what the core asks for: one ring, one thread.
pub mod engine;
/// Subcommands that need nothing but this library.
pub mod cli {
    /// `sickbay probe`.
    pub mod probe;
}
/// Validated configuration, with every index given out.
pub mod fleet;
/// Targets over cores: one pinned thread, one engine and one plan each.
pub mod shard;
