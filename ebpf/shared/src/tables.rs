//! Tables: what the decision looks up, wherever it stands.
//!
//! In the kernel they are the maps of [`abi`](crate::abi); on the host the model of the tests.

use crate::abi::{
    AddressPrefixKey, BackendRef, FlowEntry, NEXT_HOP_VALID, Pool, PortPrefixKey, Service, Slot,
};
use crate::packet::Flow;
use crate::{select, service};

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
    /// A flow's entry; one of [`BackendRef::NONE`] when it has none.
    fn entry(&self, flow: &Flow) -> FlowEntry;
    /// Writes a flow's entry; whether it could.
    fn write_entry(&self, flow: &Flow, entry: &FlowEntry) -> bool;
    /// Stamps a flow's entry, which [`Tables::entry`] has just found.
    fn stamp_entry(&self, flow: &Flow, now_ns: u64);
    /// Deletes a flow's entry, which [`Tables::entry`] has just found.
    fn delete_entry(&self, flow: &Flow);
    /// CLOCK_MONOTONIC_COARSE, in ns.
    fn now_ns(&self) -> u64;

    /// [`service::find_by_prefix`], called so that it is checked apart.
    #[inline(always)]
    fn service_by_prefix(&self, high: u64, low: u64, last: u32) -> u32 {
        service::find_by_prefix(self, high, low, last)
    }

    /// [`select::rehash`], called so that it is checked apart.
    ///
    /// The kernel's verifier follows a call of a global function no further than its arguments,
    /// but walks through every loop again for every path that leads to it. These four are the
    /// loops; what they compute is the same on the host and in the kernel.
    #[inline(always)]
    fn rehash(&self, slot_first: u32, slot_count: u32, hash: u64) -> BackendRef {
        select::rehash(self, slot_first, slot_count, hash)
    }

    /// [`select::kth_by_counts`], called so that it is checked apart.
    #[inline(always)]
    fn kth_by_counts(&self, pool_first: u32, pool_count: u32, k: u32) -> u32 {
        select::kth_by_counts(self, pool_first, pool_count, k)
    }

    /// [`select::ones_in_group`], called so that it is checked apart.
    #[inline(always)]
    fn ones_in_group(&self, bitmap: Bitmap, first: u32, pool_count: u32) -> u32 {
        select::ones_in_group(self, bitmap, first, pool_count)
    }

    /// [`select::any_by_scan`], called so that it is checked apart.
    #[inline(always)]
    fn any_by_scan(&self, bitmap: Bitmap, pool_first: u32, pool_count: u32, draw: u64) -> u32 {
        select::any_by_scan(self, bitmap, pool_first, pool_count, draw)
    }
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
