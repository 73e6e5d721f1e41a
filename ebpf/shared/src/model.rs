//! The host's tables, counters and packets: what tests decide with, in place of maps and frames.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::vec;
use std::vec::Vec;

use crate::abi::{
    AddressPrefixKey, Backend, BackendCounters, BackendRef, Budget, DropRecord, FlowEntry,
    FragmentEntry, FragmentKey, GlobalCounters, Header, POOL_PANICS, Pool, PortPrefixKey, Service,
    ServiceCounters, ServiceKey, Slot,
};
use crate::counters::Counters;
use crate::limits::GROUP_WORDS;
use crate::packet::{Flow, Packet};
use crate::pod::Pod;
use crate::reply::Rewrite;
use crate::tables::{Bitmap, Store};

/// What answers must be.
pub mod answer;
/// Packets whose expected fate is written out; run on the host and in the kernel.
pub mod fixtures;
/// Frames, header by header, right or wrong.
pub mod frame;
/// Tables that break a rule.
mod lie;
/// What the decision reads of the tables, and leaves behind in them.
mod lookups;

pub use self::lie::Lie;

/// The tables as plain collections; entries and clock behind cells, as maps are.
#[derive(Clone, Debug, Default)]
pub struct ModelTables {
    /// The header.
    pub header: Header,
    /// Service indices by key.
    pub service_keys: HashMap<ServiceKey, u32>,
    /// Address prefixes and their numbers, in any order.
    pub address_prefixes: Vec<(AddressPrefixKey, u32)>,
    /// Port prefixes and their service indices, in any order.
    pub port_prefixes: Vec<(PortPrefixKey, u32)>,
    /// By service index.
    pub services: Vec<Service>,
    /// All tables, one after the other.
    pub slots: Vec<Slot>,
    /// By pool index.
    pub pools: Vec<Pool>,
    /// By pool index.
    pub pool_counts: Vec<u64>,
    /// By word index / [`GROUP_WORDS`].
    pub group_counts: Vec<u32>,
    /// By word index.
    pub takes_new: Vec<u64>,
    /// By word index.
    pub serves_old: Vec<u64>,
    /// By word index.
    pub allowed: Vec<u64>,
    /// By backend index.
    pub backends: Vec<Backend>,
    /// When each shard last gave a sign of life.
    pub heartbeats_ns: Vec<u64>,
    /// The flows that do not follow their slot, by where their entries stand.
    pub entries: RefCell<HashMap<(Store, Flow), FlowEntry>>,
    /// The marks ([`flow_mark`](crate::hash::flow_mark)) of flows that may have entries; `None` = all.
    pub marks: RefCell<Option<HashSet<u32>>>,
    /// When an entry was last put or stamped among the embryonic ones.
    pub embryonic_seen_ns: Cell<u64>,
    /// Where the first fragments of datagrams went.
    pub fragments: RefCell<HashMap<FragmentKey, FragmentEntry>>,
    /// What this CPU has spent.
    pub budget: Cell<Budget>,
    /// Records of packets that reached no backend.
    pub drops: RefCell<Vec<DropRecord>>,
    /// The clock.
    pub clock_ns: Cell<u64>,
    /// No entry can be written.
    pub full: bool,
    /// No record can be put.
    pub drops_full: bool,
    /// A rule that these tables make the decision break, so that a test can show that it would
    /// notice.
    pub lie: Option<Lie>,
    /// The backend of the entry that was looked up last; see [`Lie::TakesNewIgnoredOnEntry`].
    entry_seen: Cell<BackendRef>,
}

impl ModelTables {
    /// Tables with room for `words` bitmap words, as many backends, and nothing in use.
    #[must_use]
    pub fn new(words: u32) -> Self {
        let count = words as usize;
        Self {
            group_counts: vec![0; count.div_ceil(GROUP_WORDS as usize)],
            takes_new: vec![0; count],
            serves_old: vec![0; count],
            allowed: vec![0; count],
            backends: vec![Backend::default(); count * 64],
            marks: RefCell::new(Some(HashSet::new())),
            header: Header {
                embryonic_inserts_per_second: u32::MAX,
                flow_inserts_per_second: u32::MAX,
                replies_per_second: u32::MAX,
                drop_records_per_second: u32::MAX,
                ..Header::default()
            },
            ..Self::default()
        }
    }

    /// Adds a pool and returns its index; its place is the caller's choice.
    pub fn add_pool(&mut self, first_word: u32, word_count: u32) -> u32 {
        self.pools.push(Pool { first_word, word_count, ..Pool::default() });
        self.pool_counts.push(0);
        (self.pools.len() - 1) as u32
    }

    /// Puts a service in force under its own index, found by `key`.
    pub fn put_service(&mut self, key: ServiceKey, service: Service) {
        let index = service.index as usize;
        if self.services.len() <= index {
            self.services.resize(index + 1, Service::default());
        }
        self.services[index] = service;
        self.service_keys.insert(key, service.index);
    }

    /// Puts a backend into use, healthy, with MACs and an interface made of its index.
    pub fn add_backend(&mut self, index: u32, pool: u32, generation: u32) -> BackendRef {
        let [low, high, ..] = index.to_le_bytes();
        self.backends[index as usize] = Backend {
            next_hop: u64::from_le_bytes([2, 0, 0, 0, high, low, 1, 0]),
            source_mac: u64::from_le_bytes([6, 0, 0, 0, high, low, 0, 0]),
            interface_index: 10 + index,
            generation,
            pool,
            ..Backend::default()
        };
        self.put_bit(Bitmap::ServesOld, index, true);
        self.put_bit(Bitmap::Allowed, index, true);
        self.put_bit(Bitmap::TakesNew, index, true);
        BackendRef::new(index, generation)
    }

    /// Makes a backend healthy or sick, as the agent does: both bits and the counts.
    pub fn put_health(&mut self, index: u32, healthy: bool) {
        self.put_bit(Bitmap::ServesOld, index, healthy);
        self.put_bit(Bitmap::TakesNew, index, healthy);
    }

    /// Sets or clears a bit, and keeps the counts.
    pub fn put_bit(&mut self, bitmap: Bitmap, index: u32, set: bool) {
        let word = (index / 64) as usize;
        let old = self.bits(bitmap)[word];
        let new = if set { old | 1 << (index % 64) } else { old & !(1 << (index % 64)) };
        match bitmap {
            Bitmap::TakesNew => self.takes_new[word] = new,
            Bitmap::ServesOld => self.serves_old[word] = new,
            Bitmap::Allowed => self.allowed[word] = new,
        }
        if bitmap == Bitmap::TakesNew {
            let pool = self.backends[index as usize].pool as usize;
            let group = word / GROUP_WORDS as usize;
            let (more, less) = (new.count_ones(), old.count_ones());
            let (of_group, of_pool) = (&mut self.group_counts[group], &mut self.pool_counts[pool]);
            // A test may have put counts there that the bits do not bear out.
            *of_group = (*of_group + more).saturating_sub(less);
            let (flags, count) = (*of_pool & POOL_PANICS, *of_pool & u64::from(u32::MAX));
            *of_pool = flags | (count + u64::from(more)).saturating_sub(u64::from(less));
        }
    }

    /// A backend's bit.
    #[must_use]
    pub fn has_bit(&self, bitmap: Bitmap, index: u32) -> bool {
        self.bits(bitmap)[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Says that the pool panics, or no longer does.
    pub fn put_panic(&mut self, pool: u32, panics: bool) {
        let count = &mut self.pool_counts[pool as usize];
        *count = if panics { *count | POOL_PANICS } else { *count & !POOL_PANICS };
    }

    /// Lets time pass.
    pub fn advance_ns(&self, ns: u64) {
        self.clock_ns.set(self.clock_ns.get() + ns);
    }

    fn bits(&self, bitmap: Bitmap) -> &Vec<u64> {
        match bitmap {
            Bitmap::TakesNew => &self.takes_new,
            Bitmap::ServesOld => &self.serves_old,
            Bitmap::Allowed => &self.allowed,
        }
    }
}

/// All counters; those that never moved are not there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelCounters {
    /// Of packets that belong to no service.
    pub global: RefCell<GlobalCounters>,
    /// By service index.
    pub services: RefCell<HashMap<u32, ServiceCounters>>,
    /// By backend index.
    pub backends: RefCell<HashMap<u32, BackendCounters>>,
}

impl Counters for ModelCounters {
    fn global(&self, count: impl FnOnce(&mut GlobalCounters)) {
        count(&mut self.global.borrow_mut());
    }

    fn service(&self, index: u32, count: impl FnOnce(&mut ServiceCounters)) {
        count(self.services.borrow_mut().entry(index).or_default());
    }

    fn backend(&self, index: u32, count: impl FnOnce(&mut BackendCounters)) {
        count(self.backends.borrow_mut().entry(index).or_default());
    }
}

/// A packet as a slice, read with the bounds of the slice.
#[derive(Clone, Copy, Debug)]
pub struct Bytes<'a> {
    /// The frame.
    pub frame: &'a [u8],
    /// See [`Packet::tags_taken_off`].
    pub tags_taken_off: usize,
}

impl<'a> Bytes<'a> {
    /// The frame, with nothing taken off.
    #[must_use]
    pub const fn new(frame: &'a [u8]) -> Self {
        Self { frame, tags_taken_off: 0 }
    }
}

impl Packet for Bytes<'_> {
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.frame.get(offset..offset + N)?.try_into().ok()
    }

    fn words<const N: usize>(&self, offset: usize) -> Option<[u32; N]> {
        let bytes = self.frame.get(offset..offset + 4 * N)?;
        let mut words = [0; N];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_bytes(bytes)?;
        }
        Some(words)
    }

    fn size_bytes(&self) -> u32 {
        self.frame.len() as u32
    }

    fn tags_taken_off(&self) -> usize {
        self.tags_taken_off
    }
}

/// A packet that can be written, as an answer is.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The frame.
    pub frame: Vec<u8>,
}

impl Packet for Buffer {
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        Bytes::new(&self.frame).bytes(offset)
    }

    fn words<const N: usize>(&self, offset: usize) -> Option<[u32; N]> {
        Bytes::new(&self.frame).words(offset)
    }

    fn size_bytes(&self) -> u32 {
        self.frame.len() as u32
    }

    fn tags_taken_off(&self) -> usize {
        0
    }
}

impl Rewrite for Buffer {
    fn put_words<const N: usize>(&mut self, offset: usize, words: [u32; N]) -> bool {
        let Some(bytes) = self.frame.get_mut(offset..offset + 4 * N) else {
            return false;
        };
        for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        true
    }

    fn trim(&mut self, size_bytes: usize) -> bool {
        self.frame.truncate(size_bytes);
        true
    }

    fn grow_front(&mut self, bytes: usize) -> bool {
        // What stands there is not zero in a driver's buffer either.
        self.frame.splice(..0, vec![0xee; bytes]);
        true
    }
}
