//! The control plane of `sickbay run`: what operators ask a running agent, and what it answers.
//!
//! One admin socket per instance. The server decides nothing and knows nothing: it asks a
//! [`Host`](crate::control::host::Host), which `sickbay run` implements over the board, the
//! kernel's counters and the shards. Locking, limits and the wire format stand here.

/// One agent per run directory: the lock, the directory, the socket's path.
pub mod claim;
/// The admin socket's client, blocking.
pub mod client;
/// Distributions of times.
pub mod distribution;
/// Samples of dropped packets.
pub mod drops;
/// What the agent does, in numbers.
pub mod figures;
/// Events on disk.
pub mod history;
/// What the control plane asks of the agent.
pub mod host;
/// Verdict transitions: from the shards to the log and to whoever asks.
pub mod journal;
/// Who belongs to a pool: what is asked of it, and what is told.
pub mod members;
/// What Prometheus reads.
pub mod metrics;
/// Patterns over backend names.
pub mod pattern;
/// Who is at the other end.
mod peer;
/// Every poll, for those who watch.
pub mod polls;
/// The wire format: one JSON request a line, one JSON response a line.
pub mod protocol;
/// The group that may look.
pub mod readers;
/// Who said something over a backend, when and why.
pub mod said;
/// The admin socket's server.
pub mod server;
/// What is shown: backends, services, the agent, as serde types.
pub mod view;

/// Where the run directories of the instances stand.
pub const RUN_ROOT: &str = "/run/sickbay";
/// The instance when none is named.
pub const DEFAULT_INSTANCE: &str = "default";
/// The admin socket's file name in the run directory.
pub const SOCKET_NAME: &str = "admin.sock";
/// The lock's file name in the run directory.
pub const LOCK_NAME: &str = "lock";
