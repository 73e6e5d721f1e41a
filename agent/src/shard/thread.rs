//! The life of a shard's thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::{Receiver, Sender};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::roster::Roll;
use super::{Roster, ShardPlan, ShardSnapshot, Work};
use crate::engine::{Counters, Engine, EngineError, Sink};

/// What a shard's thread is started with.
pub(super) struct Start<F> {
    pub(super) shard: usize,
    pub(super) cpu: usize,
    pub(super) plan: ShardPlan,
    pub(super) make_sink: Arc<F>,
    pub(super) counters: Arc<Counters>,
    pub(super) requests: Receiver<Work>,
    pub(super) stopping: Arc<AtomicBool>,
    pub(super) ready: Sender<Result<(), EngineError>>,
}

/// The life of a shard's thread.
pub(super) fn run<S: Sink + Roster, F: Fn(usize, &ShardPlan) -> S>(
    start: Start<F>,
) -> Result<(), EngineError> {
    let Start { shard, cpu, plan, make_sink, counters, requests, stopping, ready } = start;
    let engine = pin(shard, cpu).and_then(|()| {
        let sink = make_sink(shard, &plan);
        Engine::new(&plan.plan, &plan.endpoints, sink, counters)
    });
    let mut roll = Roll::of(&plan);
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
                Work::SetOverride { backend, word } => {
                    roll.set_override(&mut engine, backend, word);
                }
                // Whoever asks may have stopped waiting; the work is done all the same.
                Work::SetStandings { backends, reply } => {
                    for (backend, standing) in backends {
                        roll.set_standing(&mut engine, backend, standing);
                    }
                    let _asker_is_gone = reply.try_send(true);
                }
                Work::Join { backends, reply } => {
                    let joined = roll.join_all(&mut engine, &backends);
                    let _asker_is_gone = reply.try_send(joined);
                }
                Work::Part { backends, reply } => {
                    backends.into_iter().for_each(|backend| roll.part(&mut engine, backend));
                    let _asker_is_gone = reply.try_send(true);
                }
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
pub(super) fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(Pid::from_raw(0)) else {
        return vec![0];
    };
    let allowed = |cpu: &usize| set.is_set(*cpu).unwrap_or(false);
    (0..CpuSet::count()).filter(allowed).collect()
}
