//! The control plane's side of the agent, whichever configuration is in force: it stays while that
//! changes, and every question is handed to the answers of the one that is.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use crossbeam::channel::{RecvTimeoutError, Sender, bounded};
use sickbay_core::command::Override;

use super::answers::Answers;
use super::giving_up;
use super::members::Followed;
use crate::config::ConfigError;
use crate::control::drops::DropView;
use crate::control::figures::Figures;
use crate::control::host::{ControlError, Host};
use crate::control::members::{MemberChange, MembersChanged, Reloaded};
use crate::control::pattern::Pattern;
use crate::control::said::Terms;
use crate::control::view::{BackendView, FlowView, ServiceView, StatusView};
use crate::discovery::{Answers as KnownAnswers, Blackboard, Discovery, Wanted};
use crate::fleet::Fleet;
use crate::flow::FlowQuestion;
use crate::guard::GuardView;

/// How long a change of configuration is waited for.
const RELOAD_LIMIT: Duration = Duration::from_secs(50);

/// Reads the configuration again; what names mean is said.
pub type Source = Box<dyn Fn(&KnownAnswers) -> Result<Fleet, ConfigError> + Send + Sync>;

/// What the control plane asks.
pub(super) struct Front {
    configured: Configured,
    current: RwLock<Arc<Answers>>,
    /// What the sources of the pools say.
    board: Arc<Blackboard>,
    /// Looks at the sources. Held while members change after a file or a source: one at a time.
    discovery: Mutex<Discovery>,
    hand_over: Sender<Reply>,
}

/// Where the configuration is.
pub struct Configured {
    /// Its file.
    pub file: PathBuf,
    /// Reads it.
    pub source: Source,
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
    pub(super) fn new(
        configured: Configured,
        discovery: Discovery,
        answers: Arc<Answers>,
        hand_over: Sender<Reply>,
    ) -> Self {
        let board = discovery.board();
        let (current, discovery) = (RwLock::new(answers), Mutex::new(discovery));
        Self { configured, current, board, discovery, hand_over }
    }

    fn discovery(&self) -> MutexGuard<'_, Discovery> {
        self.discovery.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This fleet is in force: its sources are looked at, and no others.
    pub(super) fn look_at(&self, fleet: &Fleet) {
        self.look_on(&mut self.discovery(), fleet);
    }

    fn look_on(&self, discovery: &mut Discovery, fleet: &Fleet) {
        if let Err(error) = discovery.look_at(Wanted::by(fleet, &self.configured.file)) {
            tracing::error!("files and names are not followed: there is no thread for it: {error}");
        }
    }

    /// Whether the configuration file has changed, when that is to be followed.
    pub(super) fn is_to_reload(&self) -> bool {
        self.board.take_configuration_changed()
    }

    /// Has the members be those whom their sources name now; the fleet to put in force where that
    /// takes more.
    pub(super) fn follow(&self) -> Option<Box<Fleet>> {
        let _one_at_a_time = self.discovery();
        match self.current().members().follow(&self.board) {
            Followed::Done => None,
            Followed::Succeed(wanted) => Some(wanted),
        }
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
        let mut discovery = self.discovery();
        let wanted = self.read()?;
        let current = self.current();
        let members = current.members();
        let changes = members.changes(&wanted)?;
        let members_alone = changes.changed.is_empty();
        let followed = changes.followed.clone();
        let told = Reloaded::from(changes);
        if members_alone && let Some(mut reloaded) = members.reload(&wanted)? {
            reloaded.changed = followed;
            self.look_on(&mut discovery, &wanted);
            return Ok(Step::Done(reloaded));
        }
        Ok(Step::Succeed { wanted: Box::new(wanted), told })
    }

    /// What reading it again would change.
    fn dry_run(&self) -> Result<Reloaded, ControlError> {
        let _one_at_a_time = self.discovery();
        let wanted = self.read()?;
        self.current().members().changes(&wanted).map(Reloaded::from)
    }

    fn read(&self) -> Result<Fleet, ControlError> {
        (self.configured.source)(&self.board.answers()).map_err(|error| {
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
        self.current().status(&self.board)
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
