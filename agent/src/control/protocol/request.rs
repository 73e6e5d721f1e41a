//! What can be asked of a running agent, and by whom.

use serde::{Deserialize, Serialize};

use crate::control::members::NewBackend;
use crate::control::view::Admin;
use crate::flow::FlowQuestion;

/// A request as it is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RequestLine {
    /// [`PROTOCOL`](super::PROTOCOL) of the client.
    pub protocol: u32,
    /// What is asked.
    pub request: Request,
}

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The agent itself.
    Status,
    /// Its services.
    Services,
    /// Its backends.
    Backends {
        /// Those that it matches; `None` = all.
        #[serde(default)]
        pattern: Option<String>,
    },
    /// Set an operator's word.
    SetHealth {
        /// For whom.
        pattern: String,
        /// The word.
        health: Admin,
        /// For how long, in ms; `None` = until it is taken back.
        #[serde(default)]
        limit_ms: Option<u64>,
        /// Why, in the operator's words.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Backends enter a pool.
    AddBackends {
        /// The pool's name.
        pool: String,
        /// Who.
        backends: Vec<NewBackend>,
    },
    /// Backends leave their pools.
    RemoveBackends {
        /// Which.
        pattern: String,
    },
    /// Backends have another share.
    SetWeight {
        /// Whose.
        pattern: String,
        /// 1 to 1000.
        weight: u32,
    },
    /// Backends take no new flows.
    Drain {
        /// Which.
        pattern: String,
        /// For how long they keep those they have, in ms; `None` = until they close.
        #[serde(default)]
        limit_ms: Option<u64>,
        /// Why, in the operator's words.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Backends take no new flows, and what their probes find is nobody's news.
    Maintain {
        /// Which.
        pattern: String,
        /// For how long, in ms; `None` = until they are undrained.
        #[serde(default)]
        limit_ms: Option<u64>,
        /// Why, in the operator's words.
        #[serde(default)]
        reason: Option<String>,
    },
    /// Backends take new flows again.
    Undrain {
        /// Which.
        pattern: String,
    },
    /// The configuration is read again.
    Reload {
        /// Only say what that would change.
        #[serde(default)]
        dry_run: bool,
    },
    /// The newest transitions.
    Transitions {
        /// Those with a sequence above this.
        #[serde(default)]
        after: u64,
    },
    /// The pools whose last verdicts are held.
    Guards,
    /// End a hold.
    ReleaseGuard {
        /// Over this pool; `None` = all.
        #[serde(default)]
        pool: Option<String>,
    },
    /// What would become of a flow's packet now.
    ExplainFlow(FlowQuestion),
    /// The newest samples of dropped packets.
    Drops {
        /// Those with a sequence above this.
        #[serde(default)]
        after: u64,
    },
    /// The newest polls. They are kept from the first such request on, and while they go on.
    Polls {
        /// Those with a sequence above this.
        #[serde(default)]
        after: u64,
    },
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// Its user.
    pub uid: u32,
    /// Whether it may change something, and not only look.
    pub may_change: bool,
}

impl Request {
    /// Whether it only looks: whoever may read may ask it.
    #[must_use]
    pub const fn only_looks(&self) -> bool {
        match self {
            Self::Status
            | Self::Services
            | Self::Backends { .. }
            | Self::Guards
            | Self::ExplainFlow(_)
            | Self::Drops { .. }
            | Self::Transitions { .. }
            | Self::Polls { .. } => true,
            Self::SetHealth { .. }
            | Self::ReleaseGuard { .. }
            | Self::AddBackends { .. }
            | Self::RemoveBackends { .. }
            | Self::SetWeight { .. }
            | Self::Drain { .. }
            | Self::Maintain { .. }
            | Self::Undrain { .. }
            // A dry run too: it reads, as the agent, whatever file the configuration names.
            | Self::Reload { .. } => false,
        }
    }

    /// Whether it changes members: that may take longer than to answer a question.
    #[must_use]
    pub const fn is_change(&self) -> bool {
        match self {
            Self::AddBackends { .. }
            | Self::RemoveBackends { .. }
            | Self::SetWeight { .. }
            | Self::Drain { .. }
            | Self::Maintain { .. }
            | Self::Undrain { .. }
            | Self::Reload { .. } => true,
            Self::Status
            | Self::Services
            | Self::Backends { .. }
            | Self::SetHealth { .. }
            | Self::Guards
            | Self::ReleaseGuard { .. }
            | Self::ExplainFlow(_)
            | Self::Drops { .. }
            | Self::Transitions { .. }
            | Self::Polls { .. } => false,
        }
    }
}
