//! The thread that looks at all sources: one task for the files, one for each name.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::{AbortHandle, spawn};
use tokio::time::sleep;

use super::resolver::Resolver;
use super::watch::{Remembered, Watched, look_on};
use super::{Blackboard, Question, Source, Sourced, dns, kept};
use crate::fleet::{Dns, Fleet};

/// What is looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The configuration file, when a change of it is to be told.
    pub configuration: Option<PathBuf>,
    /// Where answers of names are kept for the next agent.
    pub state_directory: PathBuf,
    /// How names are looked up.
    pub dns: Dns,
    /// The sources of all pools.
    pub sourced: Vec<Sourced>,
}

impl Wanted {
    /// What a fleet's pools come from; `configuration` is the file that says so.
    #[must_use]
    pub fn by(fleet: &Fleet, configuration: &std::path::Path) -> Self {
        Self {
            configuration: fleet.watch_config.then(|| configuration.to_owned()),
            state_directory: fleet.state_directory.clone(),
            dns: fleet.dns.clone(),
            sourced: fleet.pools.iter().flat_map(|pool| &pool.sources).cloned().collect(),
        }
    }

    fn names(&self) -> impl Iterator<Item = &Question> {
        self.sourced.iter().filter_map(|sourced| match &sourced.source {
            Source::Name(question) => Some(question),
            Source::File { .. } => None,
        })
    }

    fn files(&self) -> Vec<Watched> {
        let lists = self.sourced.iter().filter_map(|sourced| match &sourced.source {
            Source::File { path, may_be_empty } => {
                let may_be_empty = *may_be_empty;
                Some(Watched::List { path: path.clone(), may_be_empty })
            }
            Source::Name(_) => None,
        });
        self.configuration.iter().cloned().map(Watched::Configuration).chain(lists).collect()
    }
}

/// Looks at sources until it is dropped. There is no thread before there is a source.
#[derive(Debug, Default)]
pub struct Discovery {
    board: Arc<Blackboard>,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    wanted: Sender<Arc<Wanted>>,
    thread: JoinHandle<()>,
}

impl Discovery {
    /// Where the answers stand.
    #[must_use]
    pub fn board(&self) -> Arc<Blackboard> {
        Arc::clone(&self.board)
    }

    /// From now on looks at these, and at no others. What is looked at already goes on as it was.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn look_at(&mut self, wanted: Wanted) -> io::Result<()> {
        self.board.replace(wanted.sourced.iter());
        if let Some(running) = &self.running {
            running.wanted.send_replace(Arc::new(wanted));
            return Ok(());
        }
        if wanted.sourced.is_empty() && wanted.configuration.is_none() {
            return Ok(());
        }
        for (question, answer) in kept::read(&wanted.state_directory) {
            self.board.remember(&Source::Name(question), answer);
        }
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        let (sender, receiver) = channel(Arc::new(wanted));
        let board = Arc::clone(&self.board);
        let thread = std::thread::Builder::new()
            .name("discovery".to_owned())
            .spawn(move || runtime.block_on(attend(receiver, board)))?;
        self.running = Some(Running { wanted: sender, thread });
        Ok(())
    }

    /// Looks at nothing until it is told again what to look at; the answers stay.
    pub fn rest(&mut self) {
        if let Some(Running { wanted, thread }) = self.running.take() {
            drop(wanted);
            // Had it panicked, that was printed there.
            let _ended = thread.join();
        }
    }
}

impl Drop for Discovery {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Has what is wanted looked at, until nothing is wanted any more.
async fn attend(mut wanted: Receiver<Arc<Wanted>>, board: Arc<Blackboard>) {
    let mut names: HashMap<Question, AbortHandle> = HashMap::new();
    let mut files: Option<(Vec<Watched>, AbortHandle)> = None;
    let mut dns = Dns::default();
    let remembered = Remembered::default();
    loop {
        let now = Arc::clone(&wanted.borrow_and_update());
        let asks_alike = dns == now.dns;
        names.retain(|question, task| {
            let stays = asks_alike && now.names().any(|it| it == question);
            if !stays {
                task.abort();
            }
            stays
        });
        dns = now.dns.clone();
        for question in now.names() {
            names.entry(question.clone()).or_insert_with(|| {
                spawn(ask(question.clone(), Arc::clone(&now), Arc::clone(&board))).abort_handle()
            });
        }
        let doubted = board.take_doubted();
        let doubts = doubted.iter().any(|source| matches!(source, Source::File { .. }));
        let wanted_files = now.files();
        if doubts || files.as_ref().is_none_or(|(known, _)| *known != wanted_files) {
            if let Some((_, task)) = files.take() {
                task.abort();
            }
            let (remembered, board) = (remembered.clone(), Arc::clone(&board));
            let task = spawn(look_on(wanted_files.clone(), remembered, board));
            files = Some((wanted_files, task.abort_handle()));
        }
        if wanted.changed().await.is_err() {
            return;
        }
    }
}

/// Asks for a name again and again: when its answer is believed no longer, or could not be had.
async fn ask(question: Question, wanted: Arc<Wanted>, board: Arc<Blackboard>) {
    let again = Duration::from_nanos(wanted.dns.ttl_min_ns);
    let source = Source::Name(question.clone());
    // Made anew after a failure: resolv.conf may be another by then.
    let mut resolver = Resolver::new(&wanted.dns);
    loop {
        let resolved = match &resolver {
            Ok(resolver) => resolver.resolve(&question).await,
            Err(why) => Err(why.clone()),
        };
        let (said, rest) = match resolved {
            Ok((answer, ttl)) => (Ok(answer), dns::believed(&wanted.dns, ttl)),
            Err(why) => (Err(why), again),
        };
        let failed = said.is_err();
        if board.tell(&source, said) {
            kept::write(&wanted.state_directory, &board.answers());
        }
        sleep(rest).await;
        if failed {
            resolver = Resolver::new(&wanted.dns);
        }
    }
}
