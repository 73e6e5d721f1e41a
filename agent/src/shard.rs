//! Targets over cores: one pinned thread, one engine and one plan each.
//!
//! [`split`] gives every target and all judges of it to one shard, so that each verdict bit has one
//! owner. [`Shards`] runs them, routes an operator's word to the owner, and notices when one dies.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, TrySendError, bounded};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gethostname};
use sickbay_core::command::Override;
use sickbay_core::hash;
use sickbay_core::plan::{JudgeIndex, JudgeSpec, Plan, ProbeIndex, Room, TargetIndex, TargetSpec};
use sickbay_shared::limits::SHARDS_MAX;

use crate::engine::{Counters, Endpoint, Engine, EngineError, Histograms, Sink};
use crate::fleet::{Fleet, ProxyHeader, Target};

/// Requests that wait for one shard at most; each is taken within a tick.
const REQUESTS_MAX: usize = 64;
/// How long a snapshot waits for a shard.
const SNAPSHOT_WAIT: Duration = Duration::from_secs(2);

/// What one shard works on, with the maps from its own indices to the fleet's.
#[derive(Clone, Debug)]
pub struct ShardPlan {
    /// For its prober.
    pub plan: Plan,
    /// Where its targets are, by the plan's target index.
    pub endpoints: Vec<Endpoint>,
    /// Index into [`Fleet::targets`], by the plan's target index.
    pub targets: Vec<usize>,
    /// Index into [`Fleet::backends`], by the plan's judge index. A backend with several probes has
    /// as many judges, all of them here; one without a probe has none anywhere.
    pub judges: Vec<usize>,
}

/// How many shards the fleet gets on this host: what it asks for, or one a CPU that this process
/// may use; at least one, and no more than there are targets.
#[must_use]
pub fn shard_count(fleet: &Fleet) -> usize {
    let wanted = match fleet.shards {
        0 => allowed_cpus().len(),
        wanted => wanted as usize,
    };
    wanted.min(SHARDS_MAX as usize).clamp(1, fleet.targets.len().max(1))
}

/// The fleet over `shard_count` shards, balanced by probes per second. Every target and every
/// backend that is probed is in exactly one of them. The same fleet gives the same split.
///
/// # Panics
/// If `shard_count` is 0.
#[must_use]
pub fn split(fleet: &Fleet, shard_count: usize) -> Vec<ShardPlan> {
    assert!(0 < shard_count, "at least one shard");
    let owned = assign_targets(fleet, shard_count);
    let mut backends_of_target = vec![Vec::new(); fleet.targets.len()];
    for (index, backend) in fleet.backends.iter().enumerate() {
        for judged in &backend.judged {
            backends_of_target[judged.target].push((index, judged.probe));
        }
    }
    owned.into_iter().map(|targets| shard_plan(fleet, targets, &backends_of_target)).collect()
}

/// What a running shard can be asked.
#[derive(Debug)]
pub enum ShardRequest {
    /// An operator's word over a backend's probed state.
    SetOverride {
        /// Index into [`Fleet::backends`].
        backend: usize,
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
        /// Index into [`Fleet::backends`].
        backend: usize,
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
}

/// The running shards. Dropping them stops them.
#[derive(Debug)]
pub struct Shards {
    shards: Vec<Shard>,
    /// Shard and first judge, by fleet backend.
    owners: Vec<Option<(usize, JudgeIndex)>>,
    /// The other judges of those backends that have several.
    more_judges: HashMap<usize, Vec<JudgeIndex>>,
    stopping: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Shard {
    thread: Option<JoinHandle<Result<(), EngineError>>>,
    requests: Sender<Work>,
    counters: Arc<Counters>,
    target_count: u32,
}

/// A request in the shard's own terms.
#[derive(Debug)]
enum Work {
    SetOverride { judge: JudgeIndex, word: Override },
    Snapshot { reply: Sender<ShardSnapshot> },
}

/// What a shard's thread is started with.
struct Start<F> {
    shard: usize,
    cpu: usize,
    plan: ShardPlan,
    make_sink: Arc<F>,
    counters: Arc<Counters>,
    requests: Receiver<Work>,
    stopping: Arc<AtomicBool>,
    ready: Sender<Result<(), EngineError>>,
}

impl Shards {
    /// Starts one thread a plan, pinned to the CPUs of this process's affinity mask in turn, and
    /// waits until each of them probes. `make_sink` is called on the shard's own thread.
    ///
    /// # Errors
    /// The first shard's that could not start; the others are stopped.
    pub fn start<S, F>(plans: Vec<ShardPlan>, make_sink: F) -> Result<Self, EngineError>
    where
        S: Sink,
        F: Fn(usize, &ShardPlan) -> S + Send + Sync + 'static,
    {
        let (owners, more_judges) = owners(&plans);
        let mut shards = Self {
            shards: Vec::with_capacity(plans.len()),
            owners,
            more_judges,
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
            let target_count =
                u32::try_from(plan.targets.len()).expect("targets are counted in u32");
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
            shards.shards.push(Shard { thread: Some(thread), requests, counters, target_count });
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
                let owner = self.owners.get(backend).copied().flatten();
                let (shard, judge) = owner.ok_or(RequestError::NoOwner { backend })?;
                let more = self.more_judges.get(&backend).into_iter().flatten().copied();
                std::iter::once(judge)
                    .chain(more)
                    .try_for_each(|judge| self.send(shard, Work::SetOverride { judge, word }))
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
        let mut snapshots: Vec<ShardSnapshot> = (0..self.shards.len())
            .filter_map(|_| answers.recv_timeout(SNAPSHOT_WAIT).ok())
            .collect();
        snapshots.sort_by_key(|snapshot| snapshot.shard);
        Ok(snapshots)
    }

    /// Each shard's counters.
    pub fn counters(&self) -> impl Iterator<Item = &Arc<Counters>> {
        self.shards.iter().map(|shard| &shard.counters)
    }

    /// Targets that a shard probes; 0 for a shard that there is not.
    #[must_use]
    pub fn target_count(&self, shard: usize) -> u32 {
        self.shards.get(shard).map_or(0, |shard| shard.target_count)
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
        self.join(shard).err()
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

    fn stop_all(&mut self) -> Result<(), EngineError> {
        self.stopping.store(true, Ordering::Release);
        let results: Vec<_> = (0..self.shards.len()).map(|shard| self.join(shard)).collect();
        results.into_iter().collect()
    }

    fn join(&mut self, shard: usize) -> Result<(), EngineError> {
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

/// The life of a shard's thread.
fn run<S: Sink, F: Fn(usize, &ShardPlan) -> S>(start: Start<F>) -> Result<(), EngineError> {
    let Start { shard, cpu, plan, make_sink, counters, requests, stopping, ready } = start;
    let engine = pin(shard, cpu).and_then(|()| {
        let sink = make_sink(shard, &plan);
        Engine::new(&plan.plan, &plan.endpoints, sink, counters)
    });
    // The engine has what it needs; a plan of a million targets is worth freeing.
    drop((plan, make_sink));
    let mut engine = match engine {
        Ok(engine) => engine,
        Err(error) => {
            // The caller waits for this one and then joins: the error reaches it once.
            let _caller_is_gone = ready.send(Err(error));
            return Ok(());
        }
    };
    if ready.send(Ok(())).is_err() {
        return Ok(());
    }
    while !stopping.load(Ordering::Acquire) {
        for work in requests.try_iter() {
            match work {
                Work::SetOverride { judge, word } => engine.on_override(judge, word),
                Work::Snapshot { reply } => {
                    let histograms = engine.histograms().clone();
                    // Whoever asked may have stopped waiting.
                    let _asker_is_gone = reply.try_send(ShardSnapshot { shard, histograms });
                }
            }
        }
        engine.turn()?;
    }
    Ok(())
}

fn pin(shard: usize, cpu: usize) -> Result<(), EngineError> {
    let mut set = CpuSet::new();
    set.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|errno| {
        EngineError::Thread { shard, action: "pinned to its core", source: io::Error::from(errno) }
    })
}

/// The CPUs that this thread may use; at least one.
fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
        return vec![0];
    };
    let allowed = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    (0..CpuSet::count()).filter(allowed).collect()
}

type Owners = (Vec<Option<(usize, JudgeIndex)>>, HashMap<usize, Vec<JudgeIndex>>);

fn owners(plans: &[ShardPlan]) -> Owners {
    let backends = plans.iter().flat_map(|plan| &plan.judges);
    let mut owners = vec![None; backends.max().map_or(0, |last| last + 1)];
    let mut more: HashMap<usize, Vec<JudgeIndex>> = HashMap::new();
    for (shard, plan) in plans.iter().enumerate() {
        for (judge, backend) in plan.judges.iter().enumerate() {
            let judge = JudgeIndex(u32::try_from(judge).expect("a backend index has 20 bits"));
            match &mut owners[*backend] {
                owner @ None => *owner = Some((shard, judge)),
                Some(_) => more.entry(*backend).or_default().push(judge),
            }
        }
    }
    (owners, more)
}

/// Which targets each shard gets: the heaviest first, each to the shard with the least load. Those
/// of one backend stay together.
fn assign_targets(fleet: &Fleet, shard_count: usize) -> Vec<Vec<usize>> {
    let interval_ns = |target: &usize| fleet.probes[fleet.targets[*target].probe].spec.interval_ns;
    let mut order: Vec<usize> = (0..fleet.targets.len()).collect();
    order.sort_by_key(|target| (interval_ns(target), *target));

    let leaders = leaders(fleet);
    let mut placed = vec![None; fleet.targets.len()];
    let mut loads: BinaryHeap<_> = (0..shard_count).map(|shard| Reverse((0_u64, shard))).collect();
    let mut owned = vec![Vec::new(); shard_count];
    for target in order {
        // Probes per 1000 s: intervals are at least 10 ms, so a million targets stay far below u64.
        let rate = 1_000_000_000_000 / interval_ns(&target).max(1);
        let shard = match placed[leaders[target]] {
            // The few that come with others are not weighed: the next ones even it out.
            Some(shard) => shard,
            None => {
                let Reverse((load, shard)) = loads.pop().expect("as many as there are shards");
                loads.push(Reverse((load + rate.max(1), shard)));
                shard
            }
        };
        placed[leaders[target]] = Some(shard);
        owned[shard].push(target);
    }
    for targets in &mut owned {
        targets.sort_unstable();
    }
    owned
}

/// For each target one that stands for all which backends with several probes hold together.
fn leaders(fleet: &Fleet) -> Vec<usize> {
    fn leader(parents: &mut [usize], mut target: usize) -> usize {
        while parents[target] != target {
            parents[target] = parents[parents[target]];
            target = parents[target];
        }
        target
    }
    let mut parents: Vec<usize> = (0..fleet.targets.len()).collect();
    for backend in &fleet.backends {
        for pair in backend.judged.windows(2) {
            let (first, second) =
                (leader(&mut parents, pair[0].target), leader(&mut parents, pair[1].target));
            parents[second] = first;
        }
    }
    (0..parents.len()).map(|target| leader(&mut parents, target)).collect()
}

fn shard_plan(
    fleet: &Fleet,
    targets: Vec<usize>,
    backends_of_target: &[Vec<(usize, usize)>],
) -> ShardPlan {
    let mut judges = Vec::new();
    let mut judge_specs = Vec::new();
    for (local, target) in targets.iter().enumerate() {
        for (backend, probe) in &backends_of_target[*target] {
            let probe = &fleet.probes[*probe];
            judges.push(*backend);
            judge_specs.push(JudgeSpec {
                target: TargetIndex(u32::try_from(local).expect("indices are u32")),
                rule: probe.rule,
                on_unknown: probe.on_unknown,
            });
        }
    }
    let plan = Plan {
        probes: fleet.probes.iter().map(|probe| probe.spec.clone()).collect(),
        targets: targets.iter().map(|target| target_spec(&fleet.targets[*target])).collect(),
        judges: judge_specs,
        slot_count: fleet.in_flight.max(2),
        phase_seed: phase_seed(&fleet.instance),
        room: Room::NONE,
    };
    let endpoint = |target: &usize| {
        let target = &fleet.targets[*target];
        Endpoint {
            address: target.address.clone(),
            // What gets the flows is what is probed.
            second: None,
            request: target.request.clone(),
            proxy_v1: fleet.probes[target.probe].proxy_header == Some(ProxyHeader::V1Own),
            close: fleet.probes[target.probe].close,
            socket: fleet.probes[target.probe].socket.clone(),
        }
    };
    let endpoints = targets.iter().map(endpoint).collect();
    ShardPlan { plan, endpoints, targets, judges }
}

fn target_spec(target: &Target) -> TargetSpec {
    TargetSpec {
        identity: target.identity,
        probe: ProbeIndex(u32::try_from(target.probe).expect("indices are u32")),
        family: target.address.family(),
        second: None,
        initial: target.initial,
    }
}

/// The same at every start of one instance on one host, another on every other host.
fn phase_seed(instance: &str) -> u64 {
    let host = gethostname().unwrap_or_default();
    hash::seeded(hash::identity(host.as_encoded_bytes(), 0, instance.as_bytes()), 0)
}
