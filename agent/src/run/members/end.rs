//! What time brings to its end: the drains of slots, of backends that were removed, and of backends
//! that are drained with a limit.

use sickbay_core::plan::Nanos;

use super::super::slots::PoolSlots;
use super::{MemberEvent, Members, State, layout, monotonic_now};
use crate::fleet::Backend;
use crate::membership::Ended;

impl Members {
    /// Brings to its end what has come to it. Called every now and then.
    pub(in crate::run) fn tick(&self) {
        let mut state = self.state();
        let now = monotonic_now();
        for pool in 0..state.pools.len() {
            if state.pools[pool].next_end_ns().is_none_or(|end_ns| now < end_ns) {
                continue;
            }
            let fleet = self.parts.fleet();
            let slots = PoolSlots::of(&self.parts.board, &fleet, pool);
            let slot = |table, index| slots.slot(table, index);
            let Ended { rewrites, gone } = state.pools[pool].end(&slot, now);
            slots.store(&rewrites);
            if !rewrites.is_empty() {
                let count: usize = rewrites.iter().map(|rewrite| rewrite.slots.len()).sum();
                let pool = &fleet.pools[pool].name;
                tracing::info!("pool {pool}: a drain has ended, {count} slots are settled");
            }
            state.parting.extend(gone.into_iter().map(|backend| (pool, backend)));
        }
        if !state.parting.is_empty() {
            self.part(&mut state, now);
        }
        self.end_words(&mut state, now);
    }

    /// Nothing is left of those whose drain has ended. What a shard does not take now it is asked
    /// to take again at the next tick.
    fn part(&self, state: &mut State, now: Nanos) {
        let indices: Vec<u32> = state.parting.iter().map(|(_, it)| it.index()).collect();
        match self.parts.with_shards(|shards| shards.part(&indices)) {
            Some(Ok(())) => {}
            Some(Err(error)) => return tracing::warn!("backends that left stay probed: {error}"),
            None => return,
        }
        self.parts.unprobed.part(&indices);
        if self.parts.forget_next_hops(&indices) == Some(false) {
            return tracing::warn!(
                "next hops of backends that left are looked up still; again soon"
            );
        }
        let fleet = self.parts.fleet();
        let gone: Vec<Backend> =
            fleet.backends.iter().filter(|it| indices.contains(&it.index)).cloned().collect();
        let mut rest = (*fleet).clone();
        rest.remove(&indices);
        self.parts.set_fleet(rest);
        for (pool, backend) in state.parting.drain(..) {
            let vacant = layout::vacant_record(backend.generation());
            self.parts.board.write_backend(backend.index(), &vacant);
            state.pools[pool].release(backend, now);
            state.words.remove(&backend.index());
        }
        self.tell(&fleet, &gone, now, |_| MemberEvent::Gone);
        self.keep(state, &self.parts.fleet());
    }
}
