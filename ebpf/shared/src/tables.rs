//! Tables: what the decision looks up, wherever it stands.
//!
//! In the kernel they are the maps of [`abi`](crate::abi); on the host the model of the tests.

use crate::abi::{
    AddressPrefixKey, BackendRef, DropRecord, FlowEntry, FragmentEntry, NEXT_HOP_VALID, Pool,
    PortPrefixKey, Service, Slot,
};
use crate::budget::Purse;
use crate::packet::{FLOW_KEY_WORDS, Flow, Headers};
use crate::select::{self, Choice};
use crate::steer::{self, record};
use crate::{search, service};

/// What the decision looks up. A number outside a table reads as nothing there (`None` or 0).
pub trait Tables: Sized {
    /// The service of these bytes of a [`ServiceKey`](crate::abi::ServiceKey);
    /// [`NO_SERVICE`](service::NO_SERVICE) when they name none.
    fn service_by_key(&self, key: &[u32; 5]) -> u32;
    /// Whether some service is not of one address, port and protocol.
    fn has_prefixes(&self) -> bool;
    /// The number of the longest prefix that an address lies in.
    fn address_prefix(&self, key: &AddressPrefixKey) -> Option<u32>;
    /// The service of the longest prefix that a port lies in;
    /// [`NO_SERVICE`](service::NO_SERVICE) when it lies in none.
    fn port_prefix(&self, key: &PortPrefixKey) -> u32;
    /// A service's rules.
    fn service(&self, index: u32) -> Option<&Service>;
    /// A slot, in one read.
    fn slot(&self, index: u32) -> Option<Slot>;
    /// Where a pool's bits stand.
    fn pool(&self, index: u32) -> Option<Pool>;
    /// Set bits of [`Bitmap::TakesNew`] in a pool (low 32 bits), and
    /// [`POOL_PANICS`](crate::abi::POOL_PANICS).
    fn pool_count(&self, pool: u32) -> u64;
    /// Set bits of [`Bitmap::TakesNew`] in a group of words.
    fn group_count(&self, group: u32) -> u32;
    /// A word of a bitmap, in one read.
    fn word(&self, bitmap: Bitmap, index: u32) -> u64;
    /// The generation of a backend index's use; 0 when it is not in use.
    fn generation(&self, backend_index: u32) -> u32;
    /// Where a backend's packets go.
    fn next_hop(&self, backend_index: u32) -> NextHop;
    /// The same of a reference, in one look-up; unknown when it does not name the use that its index
    /// is in.
    #[inline(always)]
    fn next_hop_in_use(&self, backend: BackendRef) -> NextHop {
        if steer::in_use(self, backend) {
            self.next_hop(backend.index())
        } else {
            NextHop::default()
        }
    }
    /// When the shard that judges a backend last gave a sign of life, by the clock of
    /// [`Tables::now_ns`]; 0 when that is not known.
    fn sign_of_life_ns(&self, backend_index: u32) -> u64;
    /// A flow's entry in [`Store::Flows`]; one of [`BackendRef::NONE`] when it has none there.
    fn entry(&self, flow: &Flow) -> FlowEntry;
    /// A flow's entry in [`Store::Embryonic`] at `now_ns`; likewise.
    fn embryonic_entry(&self, flow: &Flow, now_ns: u64) -> FlowEntry;
    /// Whether a flow of this mark ([`flow_mark`](crate::hash::flow_mark)) may have an entry: one was
    /// given to it, or to another of the same mark.
    fn is_marked(&self, mark: u32) -> bool;
    /// When an entry was last put or stamped in [`Store::Embryonic`], in ns.
    fn embryonic_seen_ns(&self) -> u64;
    /// The entry of these bytes of a [`FragmentKey`](crate::abi::FragmentKey); one of
    /// [`BackendRef::NONE`] when there is none.
    fn fragment(&self, key: &[u32; FLOW_KEY_WORDS]) -> FragmentEntry;
    /// CLOCK_MONOTONIC_COARSE, in ns.
    fn now_ns(&self) -> u64;

    /// [`service::find_by_prefix`], called so that it is checked apart.
    ///
    /// The kernel's verifier follows a call of a global function no further than its arguments,
    /// but walks through every loop, and every rule that few packets need, again for every path
    /// that leads to it. This and what follows are such functions; what they compute is the same on
    /// the host and in the kernel.
    #[inline(always)]
    fn service_by_prefix(&self, high: u64, low: u64, last: u32) -> u32 {
        service::find_by_prefix(self, high, low, last)
    }

    /// [`select::divert`], called so that it is checked apart.
    #[inline(always)]
    fn divert(&self, service: u32, current: BackendRef, hash: u64, now_ns: u64) -> Choice {
        select::divert(self, service, current, hash, now_ns)
    }

    /// [`select::on_sick`], called so that it is checked apart.
    #[inline(always)]
    fn on_sick(&self, service: u32, backend: BackendRef, is_tcp: bool, now_ns: u64) -> u8 {
        select::on_sick(self, service, backend, is_tcp, now_ns)
    }

    /// [`steer::first_fragment`], called so that it is checked apart.
    #[inline(always)]
    fn first_fragment(&self, headers: &Headers, now_ns: u64) -> u64 {
        steer::first_fragment(self, headers, now_ns)
    }

    /// [`search::rehash_further`], called so that it is checked apart.
    #[inline(always)]
    fn rehash_further(&self, slot_first: u32, slot_count: u32, hash: u64) -> BackendRef {
        search::rehash_further(self, slot_first, slot_count, hash)
    }

    /// [`search::try_that_finds`], called so that it is checked apart.
    #[inline(always)]
    fn try_that_finds(&self, slot_first: u32, slot_count: u32, hash: u64) -> u32 {
        search::try_that_finds(self, slot_first, slot_count, hash)
    }

    /// [`search::kth_by_counts`], called so that it is checked apart.
    #[inline(always)]
    fn kth_by_counts(&self, pool_first: u32, pool_count: u32, k: u32) -> u32 {
        search::kth_by_counts(self, pool_first, pool_count, k)
    }

    /// [`search::ones_in_group`], called so that it is checked apart.
    #[inline(always)]
    fn ones_in_group(&self, bitmap: Bitmap, first: u32, pool_count: u32) -> u32 {
        search::ones_in_group(self, bitmap, first, pool_count)
    }

    /// [`search::any_by_scan`], called so that it is checked apart.
    #[inline(always)]
    fn any_by_scan(&self, bitmap: Bitmap, pool_first: u32, pool_count: u32, draw: u64) -> u32 {
        search::any_by_scan(self, bitmap, pool_first, pool_count, draw)
    }
}

/// What the decision leaves behind.
pub trait Memory: Sized {
    /// Writes a flow's entry; whether it could.
    fn write_entry(&self, flow: &Flow, store: Store, entry: &FlowEntry) -> bool;
    /// Writes a flow's entry to [`Store::Flows`], if there is none.
    fn add_lasting(&self, flow: &Flow, entry: &FlowEntry) -> Added;
    /// Says that flows of this mark may have entries; before one is written.
    fn mark(&self, mark: u32);
    /// Stamps a flow's entry, which [`Tables`] has just found.
    fn stamp_entry(&self, flow: &Flow, store: Store, now_ns: u64);
    /// Deletes a flow's entry, which [`Tables`] has just found.
    fn delete_entry(&self, flow: &Flow, store: Store);
    /// Notes that an entry was put or stamped in [`Store::Embryonic`].
    fn note_embryonic(&self, now_ns: u64);
    /// Writes the entry of a first fragment's datagram; whether it could.
    fn write_fragment(&self, headers: &Headers, entry: FragmentEntry) -> bool;
    /// [`budget::spend`](crate::budget::spend) on this CPU.
    fn spend(&self, purse: Purse, now_ns: u64) -> bool;
    /// Puts a record where samples of dropped packets are read; whether there was room.
    fn put_drop(&self, record: &DropRecord) -> bool;

    /// [`record`](crate::steer::record), called so that it is checked apart, and that its record
    /// does not stand on the stack of the decision. A number, as [`Record`](crate::steer::Record)
    /// has it.
    #[inline(always)]
    fn record(&self, key: &[u32; FLOW_KEY_WORDS], what: u64, whom: u64, now_ns: u64) -> u32 {
        record(self, key, what, whom, now_ns)
    }
}

/// Where entries stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Store {
    /// [`FLOWS_V4`](crate::abi::FLOWS_V4) and its like.
    Flows,
    /// [`EMBRYONIC`](crate::abi::EMBRYONIC).
    Embryonic,
}

/// What became of an entry that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// It is there.
    New,
    /// There was one, which stays.
    Present,
    /// There was no room.
    Refused,
}

/// The bitmaps over the backend index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bitmap {
    /// [`TAKES_NEW`](crate::abi::TAKES_NEW).
    TakesNew,
    /// [`SERVES_OLD`](crate::abi::SERVES_OLD).
    ServesOld,
    /// [`ALLOWED`](crate::abi::ALLOWED).
    Allowed,
}

/// Where a backend's packets go: the fields of [`Backend`](crate::abi::Backend), each in one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NextHop {
    /// See [`Backend::next_hop`](crate::abi::Backend::next_hop).
    pub next_hop: u64,
    /// See [`Backend::source_mac`](crate::abi::Backend::source_mac).
    pub source_mac: u64,
    /// The interface the packets leave by.
    pub interface_index: u32,
}

impl NextHop {
    /// Whether the next hop's MAC is known.
    #[inline(always)]
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.next_hop & NEXT_HOP_VALID != 0
    }

    /// The first twelve bytes of the frame that goes there, destination before source, as three
    /// little-endian words.
    #[inline(always)]
    #[must_use]
    pub const fn ethernet_addresses(&self) -> [u32; 3] {
        let middle = (self.next_hop >> 32 & 0xffff) | (self.source_mac & 0xffff) << 16;
        [self.next_hop as u32, middle as u32, (self.source_mac >> 16) as u32]
    }
}

/// A backend's bit.
#[inline(always)]
#[must_use]
pub fn bit<T: Tables>(tables: &T, bitmap: Bitmap, backend: BackendRef) -> bool {
    let index = backend.index();
    tables.word(bitmap, index / 64) >> (index % 64) & 1 == 1
}
