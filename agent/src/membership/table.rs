//! One table's slots, and when their drains end.
//!
//! | the slot is | a change wants another backend | the drain ends |
//! |---|---|---|
//! | settled {a, a} | {b, a}: it drains from now on | |
//! | draining {b, a} | {c, a}: the drain that runs goes on | {b, b} |
//! | draining {b, a} | back to a: {a, a}, settled at once | |
//! | nobody's {-, -} | {b, b}: settled at once | |
//!
//! A drain is counted from the change that began it. Later changes need none of their own: a flow
//! that came to {b, a} has an entry, because the slot drained when it came.

use std::collections::VecDeque;

use sickbay_core::plan::Nanos;
use sickbay_shared::abi::{BackendRef, Slot};

/// What is kept of a table beside its slots, which stand in the map.
#[derive(Clone, Debug)]
pub struct Table {
    /// Seed of the table.
    pub seed: u64,
    /// Slots it has, a prime.
    pub slot_count: u32,
    /// From a change to the end of the drain that it begins.
    pub drain_ns: Nanos,
    /// Whether drained members lose their slots. UDP has no packet that begins a flow, so only so
    /// do its new flows go elsewhere; TCP flows stay for as long as they like without a slot lost.
    pub sheds: bool,
    /// The oldest first; each slot that drains is in exactly one.
    drains: VecDeque<Drain>,
}

/// The slots that began to drain with one change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drain {
    /// When they settle.
    pub end_ns: Nanos,
    /// Which, ascending.
    pub slots: Vec<u32>,
}

impl Table {
    /// A table all of whose slots are settled.
    #[must_use]
    pub const fn new(seed: u64, slot_count: u32, drain_ns: Nanos, sheds: bool) -> Self {
        Self { seed, slot_count, drain_ns, sheds, drains: VecDeque::new() }
    }

    /// Slots that are draining already, ascending: as long as `known` says, or for a drain from
    /// `now` on.
    pub(super) fn resume(&mut self, mut slots: Vec<u32>, known: &[Drain], now: Nanos) {
        let longest_ns = now.saturating_add(self.drain_ns);
        for drain in known {
            let is_of = |slot: &mut u32| drain.slots.binary_search(slot).is_ok();
            let own: Vec<u32> = slots.extract_if(.., is_of).collect();
            if !own.is_empty() {
                // Another configuration may want them to drain for less.
                let end_ns = drain.end_ns.min(longest_ns);
                self.drains.push_back(Drain { end_ns, slots: own });
            }
        }
        if !slots.is_empty() {
            self.drains.push_back(Drain { end_ns: longest_ns, slots });
        }
    }

    pub(super) fn drains(&self) -> Vec<Drain> {
        self.drains.iter().cloned().collect()
    }

    /// The slots to store so that each belongs to whom `wanted` says. `slot` reads one as it stands.
    pub(super) fn change(
        &mut self,
        slot: &dyn Fn(u32) -> Slot,
        wanted: &[BackendRef],
        now: Nanos,
    ) -> Vec<(u32, Slot)> {
        let (mut changed, mut begun, mut returned) = (Vec::new(), Vec::new(), Vec::new());
        for (index, &backend) in (0..).zip(wanted) {
            let before = slot(index);
            if before.current() == backend {
                continue;
            }
            let after = Slot::new(backend, before.previous());
            if before.previous().generation() == 0 {
                // Nobody has no flows to keep.
                changed.push((index, Slot::settled(backend)));
                continue;
            }
            if !before.drains() {
                begun.push(index);
            } else if !after.drains() {
                returned.push(index);
            }
            changed.push((index, after));
        }
        if !returned.is_empty() {
            let stays = |index: &u32| returned.binary_search(index).is_err();
            self.drains.iter_mut().for_each(|drain| drain.slots.retain(stays));
            self.drains.retain(|drain| !drain.slots.is_empty());
        }
        if !begun.is_empty() {
            let end_ns = now.saturating_add(self.drain_ns);
            self.drains.push_back(Drain { end_ns, slots: begun });
        }
        changed
    }

    /// The slots to store whose drain has ended by `now`.
    pub(super) fn settle(&mut self, slot: &dyn Fn(u32) -> Slot, now: Nanos) -> Vec<(u32, Slot)> {
        let mut settled = Vec::new();
        while let Some(drain) = self.drains.pop_front_if(|drain| drain.end_ns <= now) {
            let word = |index| (index, Slot::settled(slot(index).current()));
            settled.extend(drain.slots.into_iter().map(word));
        }
        settled.sort_unstable_by_key(|(index, _)| *index);
        settled
    }

    pub(super) fn next_end_ns(&self) -> Option<Nanos> {
        self.drains.front().map(|drain| drain.end_ns)
    }

    pub(super) fn draining_count(&self) -> usize {
        self.drains.iter().map(|drain| drain.slots.len()).sum()
    }
}
