//! Services of every kind, and what becomes of flows when few backends or none are healthy: a real
//! agent, real servers, real clients.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// Where a flow goes is told before it goes there.
mod explain;
/// Few or no healthy backends: backup, panic, stale, and what is told of it.
mod few;
/// A fault of this host, and what it is not taken for.
mod guard;
/// TR7's table: the health result applies to services of every kind.
mod kinds;
/// Packets of protocols without ports.
mod raw;
/// Network, servers, agent.
mod stage;
