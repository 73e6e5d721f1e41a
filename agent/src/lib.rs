//! sickbay, the host agent: I/O, kernel, configuration, control. It decides nothing; the core does.

/// The loop that carries out what the core asks for: one ring, one thread.
pub mod engine;
/// Validated configuration, with every index given out.
pub mod fleet;
