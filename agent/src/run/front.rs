//! The control plane's side of the agent, whichever configuration is in force: it stays while that
//! changes, and every question is handed to the answers of the one that is.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crossbeam::channel::{RecvTimeoutError, Sender, bounded};
use sickbay_core::command::Override;

use super::answers::Answers;
use super::giving_up;
use crate::config::ConfigError;
use crate::control::drops::DropView;
use crate::control::figures::Figures;
use crate::control::host::{ControlError, Host};
use crate::control::members::{MemberChange, MembersChanged, Reloaded};
use crate::control::pattern::Pattern;
use crate::control::said::Terms;
use crate::control::view::{BackendView, FlowView, ServiceView, StatusView};
use crate::fleet::Fleet;
use crate::flow::FlowQuestion;
use crate::guard::GuardView;

/// How long a change of configuration is waited for.
const RELOAD_LIMIT: Duration = Duration::from_secs(50);

/// Reads the configuration again.
pub(super) type Source = Box<dyn Fn() -> Result<Fleet, ConfigError> + Send + Sync>;

/// What the control plane asks.
pub(super) struct Front {
    source: Source,
    current: RwLock<Arc<Answers>>,
    hand_over: Sender<Reply>,
}

/// Somebody wants the configuration read again, by the main thread, and waits for what comes of it.
pub(super) type Reply = Sender<Result<Reloaded, ControlError>>;

/// What came of reading the configuration again.
pub(super) enum Step {
    /// It is in force.
    Done(Reloaded),
    /// It changes more than members and weights.
    Succeed {
        /// The whole of it.
        wanted: Box<Fleet>,
        /// What is to be told when it is in force.
        told: Reloaded,
    },
}

impl Front {
    pub(super) const fn new(
        source: Source,
        answers: Arc<Answers>,
        hand_over: Sender<Reply>,
    ) -> Self {
        Self { source, current: RwLock::new(answers), hand_over }
    }

    /// Answers from these from now on.
    pub(super) fn replace(&self, answers: Arc<Answers>) {
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = answers;
    }

    fn current(&self) -> Arc<Answers> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the configuration again, and puts it in force where that takes members alone.
    ///
    /// # Errors
    ///
    /// It is wrong, changes what only a restart can, or could not be put in force.
    pub(super) fn step(&self) -> Result<Step, ControlError> {
        let wanted = self.read()?;
        let current = self.current();
        let members = current.members();
        let told = Reloaded::from(members.changes(&wanted)?);
        if told.changed.is_empty() && members.differs_in_members_alone(&wanted) {
            return members.reload(&wanted).map(Step::Done);
        }
        Ok(Step::Succeed { wanted: Box::new(wanted), told })
    }

    /// What reading it again would change.
    fn dry_run(&self) -> Result<Reloaded, ControlError> {
        let wanted = self.read()?;
        self.current().members().changes(&wanted).map(Reloaded::from)
    }

    fn read(&self) -> Result<Fleet, ControlError> {
        (self.source)().map_err(|error| {
            // The first mistake is enough for a line; `check` shows all of them.
            let first = error.errors.first().map_or_else(String::new, ToString::to_string);
            let more = match error.errors.len() {
                0 | 1 => String::new(),
                count => format!("; `sickbay check` shows {} more", count - 1),
            };
            let remedy = giving_up::remedy(&self.current().configured_privilege(), &first);
            let what = format!("the configuration is wrong: {first}{remedy}{more}");
            ControlError::Refused { what }
        })
    }
}

impl Host for Front {
    fn backends(&self, pattern: Option<&Pattern>) -> Vec<BackendView> {
        self.current().backends(pattern)
    }

    fn services(&self) -> Vec<ServiceView> {
        self.current().services()
    }

    fn status(&self) -> StatusView {
        self.current().status()
    }

    fn figures(&self, per_backend: bool) -> Figures {
        self.current().figures_now(per_backend)
    }

    fn set_health(
        &self,
        pattern: &Pattern,
        word: Override,
        terms: &Terms,
    ) -> Result<Vec<String>, ControlError> {
        self.current().members().set_health(pattern, word, terms)
    }

    fn guards(&self) -> Vec<GuardView> {
        self.current().guard_views()
    }

    fn release_guard(&self, pool: Option<&str>) -> Result<Vec<String>, ControlError> {
        self.current().release(pool)
    }

    fn explain_flow(&self, question: &FlowQuestion) -> Result<FlowView, ControlError> {
        self.current().explain(question)
    }

    fn drops(&self, after: u64) -> Vec<DropView> {
        self.current().drops(after)
    }

    fn change_members(&self, change: &MemberChange) -> Result<MembersChanged, ControlError> {
        self.current().members().change(change)
    }

    fn reload(&self, dry_run: bool) -> Result<Reloaded, ControlError> {
        if dry_run {
            return self.dry_run();
        }
        let busy = |what: &str| ControlError::Busy { what: what.to_owned() };
        let (reply, answer) = bounded(1);
        self.hand_over
            .try_send(reply)
            .map_err(|_| busy("another configuration is being put in force"))?;
        match answer.recv_timeout(RELOAD_LIMIT) {
            Ok(done) => done,
            Err(RecvTimeoutError::Timeout) => Err(busy("the agent is still at it")),
            Err(RecvTimeoutError::Disconnected) => Err(busy("the agent is stopping")),
        }
    }
}
