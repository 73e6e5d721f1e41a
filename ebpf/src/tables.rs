//! The maps as the decision's tables, memory and counters.
#![expect(unsafe_code, reason = "map values are shared memory; the helpers hand out pointers")]

/// What the verifier checks apart: global functions.
pub(crate) mod calls;
/// Counters.
mod counters;
/// Entries of SYNs.
mod embryonic;
/// Entries, budgets and records: what the decision leaves behind.
mod memory;

use core::ptr::{self, addr_of};

use aya_ebpf::btf_maps::Array;
use aya_ebpf::btf_maps::lpm_trie::Key;
use aya_ebpf::helpers::generated::bpf_ktime_get_coarse_ns;
use sickbay_shared::abi::{
    AddressPrefixKey, Backend, BackendRef, FlowEntry, FragmentEntry, HEADER_HAS_PREFIXES, Pool,
    PortPrefixKey, Service, ServiceKey, Slot,
};
use sickbay_shared::embryonic::said;
use sickbay_shared::packet::{FLOW_KEY_WORDS, Flow, Headers};
use sickbay_shared::select::Choice;
use sickbay_shared::service::NO_SERVICE;
use sickbay_shared::tables::{Bitmap, NextHop, Tables};

use crate::maps::{self, AddressPrefix, PortPrefix};

/// The maps of this object.
pub(crate) struct Maps;

impl Tables for Maps {
    #[inline(always)]
    fn service_by_key(&self, key: &[u32; 5]) -> u32 {
        // SAFETY: the words are the key's bytes.
        let key: &ServiceKey = unsafe { &*key.as_ptr().cast() };
        // SAFETY: the agent stores values whole, and a deleted one stays a number.
        unsafe { maps::SERVICE_KEYS.get(key) }.copied().unwrap_or(NO_SERVICE)
    }

    #[inline(always)]
    fn has_prefixes(&self) -> bool {
        match maps::HEADER.get_ptr(0) {
            // SAFETY: the map's element lives as long as the program; its field is aligned.
            Some(header) => unsafe {
                addr_of!((*header).flags).read_volatile() & HEADER_HAS_PREFIXES != 0
            },
            None => false,
        }
    }

    #[inline(always)]
    fn address_prefix(&self, key: &AddressPrefixKey) -> Option<u32> {
        // SAFETY: the map's key is a packed struct of the same length, whose first word is the
        // number of bits too.
        let key: &Key<AddressPrefix> = unsafe { &*ptr::from_ref(key).cast() };
        maps::ADDRESS_PREFIXES.get(key).copied()
    }

    #[inline(always)]
    fn port_prefix(&self, key: &PortPrefixKey) -> u32 {
        // SAFETY: as above.
        let key: &Key<PortPrefix> = unsafe { &*ptr::from_ref(key).cast() };
        maps::PORT_PREFIXES.get(key).copied().unwrap_or(NO_SERVICE)
    }

    #[inline(always)]
    fn service(&self, index: u32) -> Option<&Service> {
        maps::SERVICES.get(index)
    }

    #[inline(always)]
    fn slot(&self, index: u32) -> Option<Slot> {
        read(&maps::SLOTS, index)
    }

    #[inline(always)]
    fn pool(&self, index: u32) -> Option<Pool> {
        maps::POOLS.get(index).copied()
    }

    #[inline(always)]
    fn pool_count(&self, pool: u32) -> u64 {
        read(&maps::POOL_COUNTS, pool).unwrap_or_default()
    }

    #[inline(always)]
    fn group_count(&self, group: u32) -> u32 {
        read(&maps::GROUP_COUNTS, group).unwrap_or_default()
    }

    #[inline(always)]
    fn word(&self, bitmap: Bitmap, index: u32) -> u64 {
        if !crate::ASKS_FOR_HEALTH {
            return u64::MAX;
        }
        match bitmap {
            Bitmap::TakesNew => read(&maps::TAKES_NEW, index),
            Bitmap::ServesOld => read(&maps::SERVES_OLD, index),
            Bitmap::Allowed => read(&maps::ALLOWED, index),
        }
        .unwrap_or_default()
    }

    #[inline(always)]
    fn generation(&self, backend_index: u32) -> u32 {
        match maps::BACKENDS.get_ptr(backend_index) {
            // SAFETY: the map's element lives as long as the program; its field is aligned.
            Some(backend) => unsafe { addr_of!((*backend).generation).read_volatile() },
            None => 0,
        }
    }

    #[inline(always)]
    fn next_hop(&self, backend_index: u32) -> NextHop {
        match maps::BACKENDS.get_ptr(backend_index) {
            Some(backend) => next_hop_of(backend),
            None => NextHop::default(),
        }
    }

    #[inline(always)]
    fn next_hop_in_use(&self, backend: BackendRef) -> NextHop {
        let Some(record) = maps::BACKENDS.get_ptr(backend.index()) else {
            return NextHop::default();
        };
        // SAFETY: as above.
        let generation = unsafe { addr_of!((*record).generation).read_volatile() };
        if generation == 0 || generation != backend.generation() {
            return NextHop::default();
        }
        next_hop_of(record)
    }

    #[inline(always)]
    fn sign_of_life_ns(&self, backend_index: u32) -> u64 {
        let Some(backend): Option<*const Backend> = maps::BACKENDS.get_ptr(backend_index) else {
            return 0;
        };
        // SAFETY: the map's element lives as long as the program; its field is a byte.
        let shard = unsafe { addr_of!((*backend).shard).read_volatile() };
        match maps::HEARTBEATS.get_ptr(u32::from(shard)) {
            // SAFETY: as above; an aligned word that the shard stores whole.
            Some(heartbeat) => unsafe { addr_of!((*heartbeat).beat_ns).read_volatile() },
            None => 0,
        }
    }

    #[inline(always)]
    fn entry(&self, flow: &Flow) -> FlowEntry {
        memory::entry(flow)
    }

    #[inline(always)]
    fn embryonic_entry(&self, flow: &Flow, now_ns: u64) -> FlowEntry {
        said(embryonic::find(embryonic::tag(flow)), now_ns)
    }

    #[inline(always)]
    fn is_marked(&self, mark: u32) -> bool {
        match memory::mark_pointer(mark) {
            // SAFETY: a byte of a map's element, which lives as long as the program.
            Some(byte) => unsafe { byte.read_volatile() != 0 },
            None => true,
        }
    }

    #[inline(always)]
    fn embryonic_seen_ns(&self) -> u64 {
        read(&maps::EMBRYONIC_SEEN, 0).unwrap_or_default()
    }

    #[inline(always)]
    fn fragment(&self, key: &[u32; FLOW_KEY_WORDS]) -> FragmentEntry {
        memory::fragment(key)
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        // SAFETY: the helper takes nothing and reads a clock.
        unsafe { bpf_ktime_get_coarse_ns() }
    }

    #[inline(always)]
    fn service_by_prefix(&self, high: u64, low: u64, last: u32) -> u32 {
        calls::sickbay_service_by_prefix(high, low, last)
    }

    #[inline(always)]
    fn divert(&self, service: u32, current: BackendRef, hash: u64, now_ns: u64) -> Choice {
        Choice(calls::sickbay_divert(service, current.0, hash, now_ns))
    }

    #[inline(always)]
    fn on_sick(&self, service: u32, backend: BackendRef, is_tcp: bool, now_ns: u64) -> u8 {
        calls::sickbay_on_sick(service, backend.0, u32::from(is_tcp), now_ns) as u8
    }

    #[inline(always)]
    fn first_fragment(&self, headers: &Headers, now_ns: u64) -> u64 {
        calls::sickbay_first_fragment(headers, now_ns)
    }

    #[inline(always)]
    fn rehash_further(&self, slot_first: u32, slot_count: u32, hash: u64) -> BackendRef {
        BackendRef(calls::sickbay_rehash(slot_first, slot_count, hash))
    }

    #[inline(always)]
    fn try_that_finds(&self, slot_first: u32, slot_count: u32, hash: u64) -> u32 {
        calls::sickbay_try_that_finds(slot_first, slot_count, hash)
    }

    #[inline(always)]
    fn kth_by_counts(&self, pool_first: u32, pool_count: u32, k: u32) -> u32 {
        calls::sickbay_kth_by_counts(pool_first, pool_count, k)
    }

    #[inline(always)]
    fn ones_in_group(&self, bitmap: Bitmap, first: u32, pool_count: u32) -> u32 {
        calls::sickbay_ones_in_group(calls::number(bitmap), first, pool_count)
    }

    #[inline(always)]
    fn any_by_scan(&self, bitmap: Bitmap, pool_first: u32, pool_count: u32, draw: u64) -> u32 {
        calls::sickbay_any_by_scan(calls::number(bitmap), pool_first, pool_count, draw)
    }
}

/// The record is a map's element.
#[inline(always)]
fn next_hop_of(backend: *const Backend) -> NextHop {
    // SAFETY: the element lives as long as the program; its fields are aligned. The agent stores each
    // whole; next_hop last.
    unsafe {
        NextHop {
            next_hop: addr_of!((*backend).next_hop).read_volatile(),
            source_mac: addr_of!((*backend).source_mac).read_volatile(),
            interface_index: addr_of!((*backend).interface_index).read_volatile(),
        }
    }
}

/// One element in one load: the eBPF machine's generic level has no atomic load, and its loads of
/// aligned words are whole.
#[inline(always)]
fn read<T: Copy, const ENTRIES: usize, const FLAGS: usize>(
    map: &Array<T, ENTRIES, FLAGS>,
    index: u32,
) -> Option<T> {
    // SAFETY: the map's element lives as long as the program and is aligned to eight bytes.
    map.get_ptr(index).map(|element| unsafe { element.read_volatile() })
}
