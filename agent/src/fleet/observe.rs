//! What operators look at: metrics, history and log, as the configuration has them.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::log::LogFormat;

/// Where the agent tells what it does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observe {
    /// Where Prometheus reads the metrics, a loopback address; `None` = nowhere.
    pub metrics: Option<SocketAddr>,
    /// Whether each backend has series of its own.
    pub metrics_per_target: bool,
    /// The history on disk; `None` = none.
    pub history: Option<History>,
    /// How log lines are written.
    pub log_format: LogFormat,
}

/// The history on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    /// Its directory (the instance name included); 0700.
    pub directory: PathBuf,
    /// What its files take at most, in bytes.
    pub bytes_max: u64,
}
