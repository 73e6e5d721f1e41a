//! The admin socket from outside: its limits, its life, and the subcommands that use it.

/// The subcommands against a served agent.
mod commands;
/// An agent of three backends that is none.
mod fake;
/// Start, stop, locks, and what is left behind.
mod life;
/// What a client may not do to the others.
mod limits;
/// The metrics port, and what a scraper may not do to the others.
mod metrics;
