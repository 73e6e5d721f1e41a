//! Targets over cores: one pinned thread, one engine and one plan each.
//!
//! [`split`] gives every target and all judges of it to one shard, so that each verdict bit has one
//! owner. [`Shards`] runs them, routes what operators say to the owner, has backends join and part,
//! and notices when a shard dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use sickbay_core::command::Override;
use sickbay_core::plan::Plan;

use crate::engine::{Counters, Endpoint, EngineError, Histograms, Sink};
use crate::membership::Standing;

pub use places::PlaceError;
pub use roster::{Joined, Joining, Judged, Roster};
pub use split::{shard_count, split};

use places::Places;
use thread::{Start, allowed_cpus, run};

/// Which shard has what, and room for what.
mod places;
/// Backends that join a running shard, and part from it.
mod roster;
/// A fleet over its shards.
mod split;
/// The life of a shard's thread.
mod thread;

/// Requests that wait for one shard at most; each is taken within a tick.
const REQUESTS_MAX: usize = 64;
/// How long an answer of a shard is waited for.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// What one shard works on, with the maps from its own indices to the fleet's.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    /// For its prober.
    pub plan: Plan,
    /// Where its targets are, by the plan's target index.
    pub endpoints: Vec<Endpoint>,
    /// Index into [`Fleet::targets`](crate::fleet::Fleet::targets), by the plan's target index.
    pub targets: Vec<usize>,
    /// Index into [`Fleet::backends`](crate::fleet::Fleet::backends), by the plan's judge index. A
    /// backend with several probes has as many judges, all of them here; one without a probe has none
    /// anywhere.
    pub judges: Vec<usize>,
    /// [`Backend::index`](crate::fleet::Backend::index), by the plan's judge index.
    pub owned: Vec<u32>,
}

/// What a running shard can be asked.
#[derive(Debug)]
pub enum ShardRequest {
    /// An operator's word over a backend's probed state.
    SetOverride {
        /// Its index.
        backend: u32,
        /// The word.
        word: Override,
    },
    /// Every shard's times, one answer a shard.
    Snapshot {
        /// Where to; give it room for every shard.
        reply: Sender<ShardSnapshot>,
    },
}

/// A shard's times at one moment. Its counters need no request: [`Shards::counters`].
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// Which shard.
    pub shard: usize,
    /// Its probes' times.
    pub histograms: Histograms,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No shard owns that backend.
    #[error("no shard owns backend {backend}")]
    NoOwner {
        /// Its index.
        backend: u32,
    },
    /// The shard has not taken the requests before this one; it may hang.
    #[error("shard {shard} is busy: {REQUESTS_MAX} requests wait already; try again")]
    Busy {
        /// Which.
        shard: usize,
    },
    /// The shard has ended.
    #[error("shard {shard} has ended; restart sickbay")]
    Ended {
        /// Which.
        shard: usize,
    },
    /// The shard took the request and has not answered.
    #[error("shard {shard} does not answer")]
    Silent {
        /// Which.
        shard: usize,
    },
    /// The shard has no room: what is removed is still being ended.
    #[error("shard {shard} has no room for more targets now; try again")]
    Full {
        /// Which.
        shard: usize,
    },
}

/// The running shards. Dropping them stops them.
#[derive(Debug)]
pub struct Shards {
    shards: Vec<Shard>,
    places: Places,
    stopping: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Shard {
    thread: Option<JoinHandle<Result<(), EngineError>>>,
    requests: Sender<Work>,
    counters: Arc<Counters>,
}

/// A request in the shard's own terms.
#[derive(Debug)]
enum Work {
    SetOverride {
        backend: u32,
        word: Override,
    },
    Snapshot {
        reply: Sender<ShardSnapshot>,
    },
    SetStandings {
        backends: Vec<(u32, Standing)>,
        reply: Sender<bool>,
    },
    /// All of them or none.
    Join {
        backends: Vec<Joining>,
        reply: Sender<bool>,
    },
    Part {
        backends: Vec<u32>,
        reply: Sender<bool>,
    },
}

impl Shards {
    /// Starts one thread a plan, pinned to the CPUs of this process's affinity mask in turn, and
    /// waits until each of them probes. `make_sink` is called on the shard's own thread.
    ///
    /// # Errors
    /// The first shard's that could not start; the others are stopped.
    pub fn start<S, F>(plans: Vec<ShardPlan>, make_sink: F) -> Result<Self, EngineError>
    where
        S: Sink + Roster,
        F: Fn(usize, &ShardPlan) -> S + Send + Sync + 'static,
    {
        let mut shards = Self {
            shards: Vec::with_capacity(plans.len()),
            places: Places::of(&plans),
            stopping: Arc::new(AtomicBool::new(false)),
        };
        let make_sink = Arc::new(make_sink);
        let cpus = allowed_cpus();
        let mut started = Vec::with_capacity(plans.len());
        for (shard, plan) in plans.into_iter().enumerate() {
            let (requests, taken) = bounded(REQUESTS_MAX);
            let (ready, is_ready) = bounded(1);
            let counters = Arc::new(Counters::default());
            let judges = u32::try_from(plan.judges.len()).expect("a backend index has 20 bits");
            counters.set_warming(judges);
            let start = Start {
                shard,
                cpu: cpus[shard % cpus.len()],
                plan,
                make_sink: Arc::clone(&make_sink),
                counters: Arc::clone(&counters),
                requests: taken,
                stopping: Arc::clone(&shards.stopping),
                ready,
            };
            let thread = std::thread::Builder::new()
                .name(format!("probe-{shard}"))
                .spawn(move || run(start))
                .map_err(|source| EngineError::Thread { shard, action: "started", source })?;
            shards.shards.push(Shard { thread: Some(thread), requests, counters });
            started.push(is_ready);
        }
        for (shard, is_ready) in started.into_iter().enumerate() {
            is_ready.recv().unwrap_or(Err(EngineError::Panicked { shard }))?;
        }
        Ok(shards)
    }

    /// Hands a request to the shard, or the shards, that it concerns. It is carried out within a
    /// tick or so (20 ms).
    ///
    /// # Errors
    /// Nobody owns the backend, or the shard does not take it.
    pub fn request(&self, request: ShardRequest) -> Result<(), RequestError> {
        match request {
            ShardRequest::SetOverride { backend, word } => {
                let owner = self.places.shard_of(backend);
                let shard = owner.ok_or(RequestError::NoOwner { backend })?;
                self.send(shard, Work::SetOverride { backend, word })
            }
            ShardRequest::Snapshot { reply } => (0..self.shards.len())
                .try_for_each(|shard| self.send(shard, Work::Snapshot { reply: reply.clone() })),
        }
    }

    /// Every shard's times. Waits a little for each; a shard that hangs is left out.
    ///
    /// # Errors
    /// A shard does not take the request.
    pub fn snapshot(&self) -> Result<Vec<ShardSnapshot>, RequestError> {
        let (reply, answers) = bounded(self.shards.len());
        self.request(ShardRequest::Snapshot { reply })?;
        let mut snapshots: Vec<ShardSnapshot> =
            (0..self.shards.len()).filter_map(|_| answers.recv_timeout(ANSWER_WAIT).ok()).collect();
        snapshots.sort_by_key(|snapshot| snapshot.shard);
        Ok(snapshots)
    }

    /// Asks every shard for its times; each answers within a tick. One that does not take the
    /// request, or hangs, does not answer: whoever waits says how long.
    #[must_use]
    pub fn ask_snapshots(&self) -> Receiver<ShardSnapshot> {
        let (reply, answers) = bounded(self.shards.len());
        for shard in 0..self.shards.len() {
            // Full queue, or ended: told by the answer that does not come.
            let _not_taken = self.send(shard, Work::Snapshot { reply: reply.clone() });
        }
        answers
    }

    /// Which shard each of these backends would join; nothing is changed.
    ///
    /// # Errors
    /// No shard has room for one, or its targets are on several.
    pub fn place(&self, joining: &[Joining]) -> Result<Vec<usize>, PlaceError> {
        self.places.place(joining)
    }

    /// Has backends join, each the shard that [`Self::place`] gave it; all of them or none. When it
    /// returns, their bits are on the board.
    ///
    /// # Errors
    /// A shard does not take them.
    pub fn join(&mut self, placed: Vec<(usize, Joining)>) -> Result<(), RequestError> {
        let all: Vec<u32> = placed.iter().map(|(_, joining)| joining.backend).collect();
        for (shard, joining) in &placed {
            self.places.join(*shard, joining);
        }
        let made = |backends, reply| Work::Join { backends, reply };
        let joined = self.hand_out(placed, made);
        if joined.is_err() {
            // Those that did join: the others know nothing of what they are to part from.
            self.part(&all)?;
        }
        joined
    }

    /// Has backends part. When it returns, their bits are cleared and none of their probes is told
    /// of any more. Those that nobody owns are passed over.
    ///
    /// # Errors
    /// A shard does not take them.
    pub fn part(&mut self, backends: &[u32]) -> Result<(), RequestError> {
        let placed = self.owned(backends.iter().copied(), |backend| *backend);
        self.hand_out(placed, |backends, reply| Work::Part { backends, reply })?;
        // Not before: who was not parted from yet can be asked for again.
        backends.iter().for_each(|backend| self.places.part(*backend));
        Ok(())
    }

    /// Says what flows backends may have, whatever their probes say. When it returns, their bits
    /// say so.
    ///
    /// # Errors
    /// A shard does not take it.
    pub fn set_standings(&self, standings: &[(u32, Standing)]) -> Result<(), RequestError> {
        let placed = self.owned(standings.iter().copied(), |(backend, _)| *backend);
        self.hand_out(placed, |backends, reply| Work::SetStandings { backends, reply })
    }

    /// Each shard's counters.
    pub fn counters(&self) -> impl Iterator<Item = &Arc<Counters>> {
        self.shards.iter().map(|shard| &shard.counters)
    }

    /// Targets that a shard probes; 0 for a shard that there is not.
    #[must_use]
    pub fn target_count(&self, shard: usize) -> u32 {
        self.places.target_count(shard)
    }

    /// Judges without a first verdict, all shards together; 0 = steering may attach.
    #[must_use]
    pub fn warming_count(&self) -> u32 {
        self.counters().map(|counters| counters.warming()).sum()
    }

    /// Why a shard ended that nobody stopped, if one did. It is told once a shard.
    pub fn failure(&mut self) -> Option<EngineError> {
        let ended = |shard: &Shard| shard.thread.as_ref().is_some_and(JoinHandle::is_finished);
        let shard = self.shards.iter().position(ended)?;
        self.join_thread(shard).err()
    }

    /// Stops every shard and waits for it.
    ///
    /// # Errors
    /// Why a shard had ended before.
    pub fn stop(mut self) -> Result<(), EngineError> {
        self.stop_all()
    }

    fn send(&self, shard: usize, work: Work) -> Result<(), RequestError> {
        self.shards[shard].requests.try_send(work).map_err(|error| match error {
            TrySendError::Full(_) => RequestError::Busy { shard },
            TrySendError::Disconnected(_) => RequestError::Ended { shard },
        })
    }

    /// Each of these with its shard; those that nobody owns are left out.
    fn owned<T>(
        &self,
        each: impl Iterator<Item = T>,
        backend: impl Fn(&T) -> u32,
    ) -> Vec<(usize, T)> {
        each.filter_map(|one| Some((self.places.shard_of(backend(&one))?, one))).collect()
    }

    /// Hands each shard its own, and waits until it is done.
    fn hand_out<T>(
        &self,
        placed: Vec<(usize, T)>,
        work: impl Fn(Vec<T>, Sender<bool>) -> Work,
    ) -> Result<(), RequestError> {
        let mut of_shard: Vec<Vec<T>> = self.shards.iter().map(|_| Vec::new()).collect();
        for (shard, one) in placed {
            of_shard[shard].push(one);
        }
        let mut result = Ok(());
        let mut waiting = Vec::new();
        for (shard, own) in of_shard.into_iter().enumerate().filter(|(_, own)| !own.is_empty()) {
            let (reply, answer) = bounded(1);
            match self.send(shard, work(own, reply)) {
                Ok(()) => waiting.push((shard, answer)),
                Err(error) => result = Err(error),
            }
        }
        for (shard, answer) in waiting {
            match answer.recv_timeout(ANSWER_WAIT) {
                Ok(true) => {}
                Ok(false) => result = Err(RequestError::Full { shard }),
                Err(_) => result = Err(RequestError::Silent { shard }),
            }
        }
        result
    }

    fn stop_all(&mut self) -> Result<(), EngineError> {
        self.stopping.store(true, Ordering::Release);
        let results: Vec<_> = (0..self.shards.len()).map(|shard| self.join_thread(shard)).collect();
        results.into_iter().collect()
    }

    fn join_thread(&mut self, shard: usize) -> Result<(), EngineError> {
        match self.shards[shard].thread.take() {
            None => Ok(()),
            Some(thread) => thread.join().unwrap_or(Err(EngineError::Panicked { shard })),
        }
    }
}

impl Drop for Shards {
    fn drop(&mut self) {
        if let Err(error) = self.stop_all() {
            tracing::error!("{error}");
        }
    }
}
