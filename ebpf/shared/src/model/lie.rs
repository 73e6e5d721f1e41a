//! Tables that break a rule: each lie is what a decision without that rule would read or write.

use super::ModelTables;
use crate::abi::{BackendRef, FlowEntry, Slot};
use crate::packet::{Flow, PROTOCOL_TCP};
use crate::tables::{Bitmap, Store};

/// A rule that is taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// A draining slot's older flows still belong to its previous backend.
    PreviousIgnored,
    /// A SYN that follows its slot deletes the tuple's entry, and one that does not replaces it.
    DeletesOmitted,
    /// An entry of a former use of its backend's index is void.
    GenerationUnchecked,
    /// A flow's second packet moves its entry to the lasting store.
    PromotionLost,
    /// A retransmitted SYN leaves a backend that does not take new flows.
    TakesNewIgnoredOnEntry,
    /// Flows that do not follow their slot are remembered.
    EntriesNotWritten,
    /// A flow that is given an entry is marked, so that its packets look for it.
    MarksOmitted,
    /// A UDP flow's entry lives while the flow does.
    StampsOmitted,
    /// Entries of SYNs count.
    EmbryonicNotLookedAt,
    /// A datagram leaves a backend that does not serve.
    SicknessIgnored,
    /// A drained backend takes no new flows.
    DrainIgnored,
    /// While a pool has somebody who takes new flows, he does.
    CountsIgnored,
    /// While the backup pool has somebody who takes new flows, he does.
    BackupIgnored,
    /// Fresh verdicts hold.
    EveryVerdictStale,
}

impl Lie {
    /// Every one.
    pub const ALL: [Self; 14] = [
        Self::PreviousIgnored,
        Self::DeletesOmitted,
        Self::GenerationUnchecked,
        Self::PromotionLost,
        Self::TakesNewIgnoredOnEntry,
        Self::EntriesNotWritten,
        Self::MarksOmitted,
        Self::StampsOmitted,
        Self::EmbryonicNotLookedAt,
        Self::SicknessIgnored,
        Self::DrainIgnored,
        Self::CountsIgnored,
        Self::BackupIgnored,
        Self::EveryVerdictStale,
    ];
}

impl ModelTables {
    pub(super) fn tells(&self, lie: Lie) -> bool {
        self.lie == Some(lie)
    }

    pub(super) fn told_slot(&self, slot: Slot) -> Slot {
        if self.tells(Lie::PreviousIgnored) { Slot::settled(slot.current()) } else { slot }
    }

    pub(super) fn told_word(&self, bitmap: Bitmap, index: u32, word: u64) -> u64 {
        let seen = self.entry_seen.get();
        match (self.lie, bitmap) {
            (Some(Lie::TakesNewIgnoredOnEntry), Bitmap::TakesNew)
                if seen != BackendRef::NONE && seen.index() / 64 == index =>
            {
                word | 1 << (seen.index() % 64)
            }
            (Some(Lie::SicknessIgnored), Bitmap::ServesOld) => u64::MAX,
            (Some(Lie::DrainIgnored), Bitmap::TakesNew) => self.serves_old[index as usize],
            _ => word,
        }
    }

    pub(super) fn told_entry(&self, flow: &Flow, mut entry: FlowEntry) -> FlowEntry {
        if self.tells(Lie::GenerationUnchecked) && entry.backend != BackendRef::NONE {
            let index = entry.backend.index();
            entry.backend = BackendRef::new(index, self.backends[index as usize].generation);
        }
        let of_tcp = flow.protocol == PROTOCOL_TCP;
        self.entry_seen.set(if of_tcp { entry.backend } else { BackendRef::NONE });
        entry
    }

    /// Whether this entry is said to be written, and is not.
    pub(super) fn loses(&self, flow: &Flow, store: Store) -> bool {
        let promotes =
            store == Store::Flows && self.entries.borrow().contains_key(&(Store::Embryonic, *flow));
        self.tells(Lie::EntriesNotWritten) || (promotes && self.tells(Lie::PromotionLost))
    }
}
