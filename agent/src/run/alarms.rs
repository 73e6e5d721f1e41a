//! What an operator is to be told at once: a pool that panics, a probing thread that is silent.
//!
//! Looked at by the main thread, which no probing thread can hold up.

use crate::board::{Board, coarse_now_ns};
use crate::fleet::Fleet;

use super::layout::HEARTBEAT_LIMIT_NS;

/// What was told last.
#[derive(Debug)]
pub(super) struct Alarms {
    /// By pool: whether it panics.
    panics: Box<[bool]>,
    /// By shard: whether it gives no sign of life.
    silent: Box<[bool]>,
}

impl Alarms {
    /// Nothing was told yet.
    pub(super) fn new(fleet: &Fleet, board: &Board) -> Self {
        let shards = board.header().shard_count as usize;
        let panics = vec![false; fleet.pools.len()].into();
        Self { panics, silent: vec![false; shards].into() }
    }

    /// Tells what changed.
    pub(super) fn look(&mut self, fleet: &Fleet, board: &Board) {
        for ((index, pool), told) in (0..).zip(&fleet.pools).zip(&mut self.panics) {
            let panics = board.pool_panics(index);
            if std::mem::replace(told, panics) == panics {
                continue;
            }
            let (count, total) = (board.pool_count(index), pool.backends.len());
            if panics {
                tracing::warn!(
                    "pool {} panics: {count} of {total} backends take new flows; services with \
                     all_sick = \"open\" use all of them, or their backup pool",
                    pool.name
                );
            } else {
                tracing::info!(
                    "pool {} panics no more: {count} of {total} backends take new flows",
                    pool.name
                );
            }
        }
        let now_ns = coarse_now_ns();
        for (shard, told) in (0..).zip(&mut self.silent) {
            let beat_ns = board.last_beat_ns(shard);
            let silent = beat_ns != 0 && beat_ns + HEARTBEAT_LIMIT_NS <= now_ns;
            if std::mem::replace(told, silent) == silent {
                continue;
            }
            if silent {
                let age_ms = now_ns.saturating_sub(beat_ns) / 1_000_000;
                tracing::error!(
                    "probing thread {shard} has given no sign of life for {age_ms} ms: its \
                     backends keep their last verdicts (or are open, by `stale`)"
                );
            } else {
                tracing::info!("probing thread {shard} gives signs of life again");
            }
        }
    }
}
