//! Watches one backend on an agent's board: when it is condemned, skipped, acquitted.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use sickbay_shared::abi::{STATE_HEALTHY, STATE_SICK};

use crate::agent::Agent;
use crate::board::Board;
use crate::clock::{monotonic_ns, wait_until};

/// Pause between two looks at the skip counter.
const LOOK_INTERVAL: Duration = Duration::from_micros(200);

/// One backend as its agent's maps show it.
pub struct Watch {
    board: Board,
    backend: u32,
    target: u32,
    skipped_before: u64,
}

/// When a backend was condemned, and when that was first seen to have an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The agent's own stamp of the verdict, CLOCK_MONOTONIC.
    pub condemned_ns: u64,
    /// When the backend's `skipped` counter was first seen to have grown.
    pub skipped_ns: u64,
}

impl Watch {
    /// Watches the healthy backend of that name.
    ///
    /// # Errors
    /// When the agent does not know it, or it is not healthy.
    pub fn new(agent: &Agent, backend: &str) -> Result<Self> {
        let list = agent.ask_json(&["backend", "list"])?;
        let view = find(&list, backend)
            .with_context(|| format!("the agent lists no backend {backend}: {list}"))?;
        let index = view["index"].as_u64().context("no index in the list")?;
        let index = u32::try_from(index)?;
        let board = agent.board()?;
        let skipped_before = board.backend_counters(index)?.skipped;
        // Targets stand in the order of the configuration, as backends do where each has its own.
        let watch =
            Self { board, backend: index, target: target_of(&list, backend)?, skipped_before };
        let state = watch.board.target(watch.target)?.state;
        ensure!(state == STATE_HEALTHY, "{backend} is not healthy at the start: state {state}");
        Ok(watch)
    }

    /// Waits until the kernel has skipped the backend for a new flow.
    ///
    /// # Errors
    /// When it does not happen within `limit`, or the backend was skipped without a verdict.
    pub fn until_skipped(&mut self, limit: Duration) -> Result<Skipped> {
        let end_ns = monotonic_ns() + u64::try_from(limit.as_nanos())?;
        loop {
            let skipped = self.board.backend_counters(self.backend)?.skipped;
            let now = monotonic_ns();
            if self.skipped_before < skipped {
                let record = self.board.target(self.target)?;
                ensure!(record.state == STATE_SICK, "skipped in state {}", record.state);
                return Ok(Skipped { condemned_ns: record.changed_ns, skipped_ns: now });
            }
            ensure!(now < end_ns, "waited {limit:?} in vain until the kernel skips the backend");
            thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Waits until the register has acquitted the backend and returns the agent's stamp of it.
    ///
    /// # Errors
    /// When it does not happen within `limit`.
    pub fn until_healthy(&mut self, limit: Duration) -> Result<u64> {
        let record = wait_until("the backend is healthy again", limit, || {
            self.board.target(self.target).ok().filter(|record| record.state == STATE_HEALTHY)
        })?;
        Ok(record.changed_ns)
    }

    /// New flows that were the backend's own and went elsewhere, since this watch began.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn skipped_count(&self) -> Result<u64> {
        Ok(self.board.backend_counters(self.backend)?.skipped - self.skipped_before)
    }
}

/// The backend of that name in what `backend list -o json` printed.
#[must_use]
pub fn find<'list>(list: &'list Value, backend: &str) -> Option<&'list Value> {
    backends(list)?.iter().find(|view| names(view, backend))
}

fn target_of(list: &Value, backend: &str) -> Result<u32> {
    let all = backends(list).context("no list of backends")?;
    let place = all.iter().position(|view| names(view, backend)).context("not in the list")?;
    Ok(u32::try_from(place)?)
}

fn backends(list: &Value) -> Option<&Vec<Value>> {
    list.as_array().or_else(|| list.get("backends")?.as_array())
}

fn names(view: &Value, backend: &str) -> bool {
    view["name"].as_str().is_some_and(|name| name.rsplit('.').next() == Some(backend))
}
