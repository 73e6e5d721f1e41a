//! What the control plane asks of the agent. `sickbay run` implements it; tests bring their own.

use sickbay_core::command::Override;

use super::drops::DropView;
use super::figures::Figures;
use super::members::{MemberChange, MembersChanged, Reloaded};
use super::pattern::Pattern;
use super::said::Terms;
use super::view::{BackendView, FlowView, ServiceView, StatusView};
use crate::flow::FlowQuestion;
use crate::guard::GuardView;

/// The agent as its control plane sees it.
///
/// Called from several threads at once, never from a probing one. A call may take time (it reads
/// the kernel's counters) but must not wait for a client.
pub trait Host: Send + Sync {
    /// The backends that `pattern` matches, or all, in the order of the configuration.
    fn backends(&self, pattern: Option<&Pattern>) -> Vec<BackendView>;

    /// All services, in the order of the configuration.
    fn services(&self) -> Vec<ServiceView>;

    /// The agent itself.
    fn status(&self) -> StatusView;

    /// What the agent does, in numbers; of each backend only when asked for.
    fn figures(&self, per_backend: bool) -> Figures;

    /// Sets the operator's word for all backends that `pattern` matches, on these terms; their names.
    ///
    /// # Errors
    ///
    /// [`ControlError::NoBackendMatches`], and what hindered the agent.
    fn set_health(
        &self,
        pattern: &Pattern,
        word: Override,
        terms: &Terms,
    ) -> Result<Vec<String>, ControlError>;

    /// The pools whose last verdicts are held.
    fn guards(&self) -> Vec<GuardView>;

    /// Ends the hold over `pool`, or over all; the pools that were held.
    ///
    /// # Errors
    ///
    /// [`ControlError::Failed`]: there is no such pool, or no guard.
    fn release_guard(&self, pool: Option<&str>) -> Result<Vec<String>, ControlError>;

    /// What would become of a flow's packet now.
    ///
    /// # Errors
    ///
    /// [`ControlError::Failed`]: no such packet can be made, or the kernel does not explain it.
    fn explain_flow(&self, question: &FlowQuestion) -> Result<FlowView, ControlError>;

    /// The newest samples of dropped packets with a sequence above `after`, oldest first.
    fn drops(&self, after: u64) -> Vec<DropView>;

    /// Changes who belongs to a pool, all of it or nothing.
    ///
    /// # Errors
    ///
    /// [`ControlError::NoBackendMatches`], [`ControlError::Refused`], and what hindered the agent.
    fn change_members(&self, change: &MemberChange) -> Result<MembersChanged, ControlError>;

    /// Reads the configuration again and has it in force, all of it or nothing; with `dry_run`,
    /// only says what that would change.
    ///
    /// # Errors
    ///
    /// [`ControlError::Refused`]: the configuration is wrong, or changes what only a restart can;
    /// and what hindered the agent.
    fn reload(&self, dry_run: bool) -> Result<Reloaded, ControlError>;
}

/// Why the agent did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// The pattern names nothing here.
    #[error(
        "No Backends matches {pattern:?}: see `sickbay backend list`; a pattern is a glob over \
         pool.backend, or without a dot over backend names, and all of a pool is \"POOL.*\""
    )]
    NoBackendMatches {
        /// As the operator wrote it.
        pattern: String,
    },
    /// What is asked cannot be.
    #[error("{what}")]
    Refused {
        /// What is wrong, and how to mend it.
        what: String,
    },
    /// The agent could not take the request now.
    #[error("{what}; try again")]
    Busy {
        /// What was in the way.
        what: String,
    },
    /// The agent failed at it.
    #[error("{what}")]
    Failed {
        /// What failed, and how to mend it.
        what: String,
    },
}
