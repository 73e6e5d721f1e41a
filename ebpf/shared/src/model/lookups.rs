//! What the decision reads of the model's tables, and leaves behind in them.

use std::vec::Vec;

use super::{Lie, ModelTables};
use crate::abi::{
    AddressPrefixKey, DropRecord, EmbryonicEntry, FlowEntry, FragmentEntry, FragmentKey,
    HEADER_HAS_PREFIXES, Pool, PortPrefixKey, Service, ServiceKey, Slot,
};
use crate::budget::{Purse, spend};
use crate::embryonic::tag;
use crate::packet::{FLOW_KEY_WORDS, Flow, Headers};
use crate::pod::Pod;
use crate::service::NO_SERVICE;
use crate::tables::{Added, Bitmap, Memory, NextHop, Store, Tables};

impl Tables for ModelTables {
    fn service_by_key(&self, key: &[u32; 5]) -> u32 {
        self.service_keys.get(&of_words::<ServiceKey>(key)).copied().unwrap_or(NO_SERVICE)
    }

    fn has_prefixes(&self) -> bool {
        self.header.flags & HEADER_HAS_PREFIXES != 0
    }

    fn address_prefix(&self, key: &AddressPrefixKey) -> Option<u32> {
        longest_match(&self.address_prefixes, key, |key| key.bits)
    }

    fn port_prefix(&self, key: &PortPrefixKey) -> u32 {
        longest_match(&self.port_prefixes, key, |key| key.bits).unwrap_or(NO_SERVICE)
    }

    fn service(&self, index: u32) -> Option<&Service> {
        self.services.get(index as usize)
    }

    fn slot(&self, index: u32) -> Option<Slot> {
        self.slots.get(index as usize).map(|slot| self.told_slot(*slot))
    }

    fn pool(&self, index: u32) -> Option<Pool> {
        self.pools.get(index as usize).copied()
    }

    fn pool_count(&self, pool: u32) -> u64 {
        // In the worlds that lie, pool 1 is the backup pool.
        let hidden = match self.lie {
            Some(Lie::CountsIgnored) => pool == 0,
            Some(Lie::BackupIgnored) => pool == 1,
            _ => false,
        };
        let count = if hidden { None } else { self.pool_counts.get(pool as usize) };
        count.copied().unwrap_or_default()
    }

    fn group_count(&self, group: u32) -> u32 {
        self.group_counts.get(group as usize).copied().unwrap_or_default()
    }

    fn word(&self, bitmap: Bitmap, index: u32) -> u64 {
        let word = self.bits(bitmap).get(index as usize).copied().unwrap_or_default();
        self.told_word(bitmap, index, word)
    }

    fn generation(&self, backend_index: u32) -> u32 {
        self.backends.get(backend_index as usize).map_or(0, |backend| backend.generation)
    }

    fn next_hop(&self, backend_index: u32) -> NextHop {
        self.backends.get(backend_index as usize).map_or_else(NextHop::default, |backend| NextHop {
            next_hop: backend.next_hop,
            source_mac: backend.source_mac,
            interface_index: backend.interface_index,
        })
    }

    fn sign_of_life_ns(&self, backend_index: u32) -> u64 {
        if self.tells(Lie::EveryVerdictStale) {
            return 0;
        }
        let shard = self.backends.get(backend_index as usize).map(|backend| backend.shard);
        let beat = shard.and_then(|shard| self.heartbeats_ns.get(usize::from(shard)));
        beat.copied().unwrap_or_default()
    }

    fn entry(&self, flow: &Flow) -> FlowEntry {
        self.entry_in(Store::Flows, flow)
    }

    fn embryonic_entry(&self, flow: &Flow, now_ns: u64) -> FlowEntry {
        let entry = self.entry_in(Store::Embryonic, flow);
        // Its time as the map's entries have it.
        EmbryonicEntry::new(tag(flow, 0), entry.backend, entry.seen_ns).said(now_ns)
    }

    fn is_marked(&self, mark: u32) -> bool {
        self.marks.borrow().as_ref().is_none_or(|marks| marks.contains(&mark))
    }

    fn embryonic_seen_ns(&self) -> u64 {
        if self.tells(Lie::EmbryonicNotLookedAt) { 0 } else { self.embryonic_seen_ns.get() }
    }

    fn fragment(&self, key: &[u32; FLOW_KEY_WORDS]) -> FragmentEntry {
        self.fragments.borrow().get(&of_words::<FragmentKey>(key)).copied().unwrap_or_default()
    }

    fn now_ns(&self) -> u64 {
        self.clock_ns.get()
    }
}

impl ModelTables {
    fn entry_in(&self, store: Store, flow: &Flow) -> FlowEntry {
        let entry = self.entries.borrow().get(&(store, *flow)).copied();
        self.told_entry(flow, entry.unwrap_or_default())
    }
}

impl Memory for ModelTables {
    fn write_entry(&self, flow: &Flow, store: Store, entry: &FlowEntry) -> bool {
        if !self.full && !self.loses(flow, store) {
            self.entries.borrow_mut().insert((store, *flow), *entry);
        }
        !self.full
    }

    fn add_lasting(&self, flow: &Flow, entry: &FlowEntry) -> Added {
        if self.entries.borrow().contains_key(&(Store::Flows, *flow)) {
            return Added::Present;
        }
        if self.write_entry(flow, Store::Flows, entry) { Added::New } else { Added::Refused }
    }

    fn mark(&self, mark: u32) {
        if self.tells(Lie::MarksOmitted) {
            return;
        }
        if let Some(marks) = self.marks.borrow_mut().as_mut() {
            marks.insert(mark);
        }
    }

    fn stamp_entry(&self, flow: &Flow, store: Store, now_ns: u64) {
        if self.tells(Lie::StampsOmitted) {
            return;
        }
        if let Some(entry) = self.entries.borrow_mut().get_mut(&(store, *flow)) {
            entry.seen_ns = now_ns;
        }
    }

    fn delete_entry(&self, flow: &Flow, store: Store) {
        if !self.tells(Lie::DeletesOmitted) {
            self.entries.borrow_mut().remove(&(store, *flow));
        }
    }

    fn note_embryonic(&self, now_ns: u64) {
        self.embryonic_seen_ns.set(now_ns);
    }

    fn write_fragment(&self, headers: &Headers, entry: FragmentEntry) -> bool {
        if !self.full {
            self.fragments.borrow_mut().insert(of_words(&headers.fragment_key()), entry);
        }
        !self.full
    }

    fn spend(&self, purse: Purse, now_ns: u64) -> bool {
        let mut budget = self.budget.get();
        let spent = spend(&mut budget, &self.header, purse, now_ns);
        self.budget.set(budget);
        spent
    }

    fn put_drop(&self, record: &DropRecord) -> bool {
        if !self.drops_full {
            self.drops.borrow_mut().push(*record);
        }
        !self.drops_full
    }
}

/// A map's key, from the words that the decision makes of it.
fn of_words<K: Pod>(words: &[u32]) -> K {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    K::from_bytes(&bytes).expect("as many words as the key has")
}

/// What the longest of `prefixes` that covers `key` stands for. Behind its number of bits, a key is
/// the bytes that are matched.
fn longest_match<K: Pod>(prefixes: &[(K, u32)], key: &K, bits: impl Fn(&K) -> u32) -> Option<u32> {
    let differs_at = |prefix: &K| {
        let pairs = prefix.as_bytes()[4..].iter().zip(&key.as_bytes()[4..]);
        let mut equal = 0;
        for (ours, theirs) in pairs {
            equal += (ours ^ theirs).leading_zeros();
            if ours != theirs {
                break;
            }
        }
        equal
    };
    let covering = prefixes.iter().filter(|(prefix, _)| bits(prefix) <= differs_at(prefix));
    covering.max_by_key(|(prefix, _)| bits(prefix)).map(|(_, number)| *number)
}
