//! Backends without a probe: healthy unless an operator says otherwise. No shard owns their bits;
//! the control plane writes them, one word at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use sickbay_core::command::Override;

use crate::board::Board;
use crate::control::journal::{Journal, Transition, Why};
use crate::control::view::ProbeState;
use crate::engine::monotonic_now;
use crate::fleet::{Backend, Fleet};

/// Their words and when those took effect.
#[derive(Debug)]
pub(super) struct Unprobed {
    board: Arc<Board>,
    journal: Arc<Journal>,
    started_ns: u64,
    /// Of those whose word has changed a verdict: when that last was. Locked while a bit is written.
    changed_ns: Mutex<HashMap<u32, u64>>,
}

impl Unprobed {
    /// On this board; all of them have just become healthy.
    pub(super) fn new(board: Arc<Board>, journal: Arc<Journal>) -> Self {
        let changed_ns = Mutex::new(HashMap::new());
        Self { board, journal, started_ns: monotonic_now(), changed_ns }
    }

    /// Puts an operator's word over `backend` into force.
    pub(super) fn set(&self, fleet: &Fleet, backend: &Backend, word: Override) {
        let healthy = word != Override::Sick;
        let pool = u32::try_from(backend.pool).expect("pools are counted in u32");
        let mut changed_ns = self.changed_ns.lock().unwrap_or_else(PoisonError::into_inner);
        let is_change = self.board.set_takes_new(backend.index, pool, healthy);
        self.board.set_serves_old(backend.index, healthy);
        if !is_change {
            return;
        }
        let at_ns = monotonic_now();
        changed_ns.insert(backend.index, at_ns);
        let (well, ill) = (ProbeState::Healthy, ProbeState::Sick);
        let (from, to) = if healthy { (ill, well) } else { (well, ill) };
        self.journal.push(Transition {
            name: format!("{}.{}", fleet.pools[backend.pool].name, backend.name).into(),
            from,
            to,
            why: Why::Operator,
            cause: String::new(),
            good: 0,
            rule: None,
            at_ns,
        });
    }

    /// When `backend` last became what it is: CLOCK_MONOTONIC, in ns.
    pub(super) fn changed_ns(&self, backend: u32) -> u64 {
        let changed_ns = self.changed_ns.lock().unwrap_or_else(PoisonError::into_inner);
        changed_ns.get(&backend).copied().unwrap_or(self.started_ns)
    }
}
