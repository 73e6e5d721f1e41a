//! Members that the configuration does not name itself: how names are looked up, and who named whom.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use sickbay_core::plan::Nanos;

/// How names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The servers; empty = those of /etc/resolv.conf.
    pub resolvers: Vec<SocketAddr>,
    /// How long an answer is waited for.
    pub timeout_ns: Nanos,
    /// An answer holds for so long at least; a failure is followed by another try after it.
    pub ttl_min_ns: Nanos,
    /// An answer holds for so long at most.
    pub ttl_max_ns: Nanos,
}

impl Default for Dns {
    fn default() -> Self {
        Self {
            resolvers: Vec::new(),
            timeout_ns: 3_000_000_000,
            ttl_min_ns: 5_000_000_000,
            ttl_max_ns: 300_000_000_000,
        }
    }
}

/// Who named a backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// The configuration.
    #[default]
    Configured,
    /// An operator, while the agent ran.
    Operator,
    /// This file.
    File(Arc<str>),
    /// This name in the DNS.
    Name(Arc<str>),
    /// An agent that is gone; it is leaving.
    Left,
}

impl Origin {
    /// Whether one of its pool's sources named it.
    #[must_use]
    pub const fn is_source(&self) -> bool {
        matches!(self, Self::File(_) | Self::Name(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configured => write!(f, "configuration"),
            Self::Operator => write!(f, "operator"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Name(name) => write!(f, "name {name}"),
            Self::Left => write!(f, "before"),
        }
    }
}
