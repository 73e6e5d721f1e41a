//! The maps as the decision's tables and counters.
#![expect(unsafe_code, reason = "map values are shared memory; the helpers hand out pointers")]

use core::ptr::{self, addr_of};

use aya_ebpf::bindings::BPF_ANY;
use aya_ebpf::btf_maps::lpm_trie::Key;
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::helpers::generated::bpf_ktime_get_coarse_ns;
use sickbay_shared::abi::{
    AddressPrefixKey, Backend, BackendCounters, BackendRef, FlowEntry, FlowKeyV4, FlowKeyV6,
    GlobalCounters, HEADER_HAS_PREFIXES, Pool, PortPrefixKey, Service, ServiceCounters, ServiceKey,
    Slot,
};
use sickbay_shared::counters::Counters;
use sickbay_shared::packet::Flow;
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
        let Some(backend): Option<*const Backend> = maps::BACKENDS.get_ptr(backend_index) else {
            return NextHop::default();
        };
        // SAFETY: as above. The agent stores each field whole; next_hop last.
        unsafe {
            NextHop {
                next_hop: addr_of!((*backend).next_hop).read_volatile(),
                source_mac: addr_of!((*backend).source_mac).read_volatile(),
                interface_index: addr_of!((*backend).interface_index).read_volatile(),
            }
        }
    }

    #[inline(always)]
    fn entry(&self, flow: &Flow) -> FlowEntry {
        let Some(entry) = entry_pointer(flow) else {
            return FlowEntry::default();
        };
        // SAFETY: an evicted entry's memory stays a FlowEntry; a torn one fails its generation or
        // is another flow's for one packet, as an eviction at that moment would be.
        unsafe {
            FlowEntry {
                seen_ns: addr_of!((*entry).seen_ns).read_volatile(),
                backend: addr_of!((*entry).backend).read_volatile(),
                reserved: 0,
            }
        }
    }

    #[inline(always)]
    fn write_entry(&self, flow: &Flow, entry: &FlowEntry) -> bool {
        if flow.family == 4 {
            maps::FLOWS_V4.insert(key_v4(flow), entry, u64::from(BPF_ANY)).is_ok()
        } else {
            maps::FLOWS_V6.insert(key_v6(flow), entry, u64::from(BPF_ANY)).is_ok()
        }
    }

    #[inline(always)]
    fn stamp_entry(&self, flow: &Flow, now_ns: u64) {
        if let Some(entry) = entry_pointer(flow) {
            // SAFETY: an aligned field of a map's element, stored whole.
            unsafe { (&raw mut (*entry).seen_ns).write_volatile(now_ns) }
        }
    }

    #[inline(always)]
    fn delete_entry(&self, flow: &Flow) {
        // Gone already, by eviction: as wished.
        let _gone = if flow.family == 4 {
            maps::FLOWS_V4.remove(key_v4(flow))
        } else {
            maps::FLOWS_V6.remove(key_v6(flow))
        };
    }

    #[inline(always)]
    fn now_ns(&self) -> u64 {
        // SAFETY: the helper takes nothing and reads a clock.
        unsafe { bpf_ktime_get_coarse_ns() }
    }

    #[inline(always)]
    fn service_by_prefix(&self, high: u64, low: u64, last: u32) -> u32 {
        searches::sickbay_service_by_prefix(high, low, last)
    }

    #[inline(always)]
    fn rehash(&self, slot_first: u32, slot_count: u32, hash: u64) -> BackendRef {
        BackendRef(searches::sickbay_rehash(slot_first, slot_count, hash))
    }

    #[inline(always)]
    fn kth_by_counts(&self, pool_first: u32, pool_count: u32, k: u32) -> u32 {
        searches::sickbay_kth_by_counts(pool_first, pool_count, k)
    }

    #[inline(always)]
    fn ones_in_group(&self, bitmap: Bitmap, first: u32, pool_count: u32) -> u32 {
        searches::sickbay_ones_in_group(searches::number(bitmap), first, pool_count)
    }

    #[inline(always)]
    fn any_by_scan(&self, bitmap: Bitmap, pool_first: u32, pool_count: u32, draw: u64) -> u32 {
        searches::sickbay_any_by_scan(searches::number(bitmap), pool_first, pool_count, draw)
    }
}

/// The searches as global functions: exported, so that their linkage says so, and of numbers only,
/// which is all that the verifier takes for granted of them.
mod searches {
    use sickbay_shared::tables::Bitmap;
    use sickbay_shared::{select, service};

    use super::Maps;

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_service_by_prefix(high: u64, low: u64, last: u32) -> u32 {
        service::find_by_prefix(&Maps, high, low, last)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_rehash(slot_first: u32, slot_count: u32, hash: u64) -> u32 {
        select::rehash(&Maps, slot_first, slot_count, hash).0
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_kth_by_counts(first: u32, count: u32, k: u32) -> u32 {
        select::kth_by_counts(&Maps, first, count, k)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_ones_in_group(bitmap: u32, first: u32, count: u32) -> u32 {
        select::ones_in_group(&Maps, named(bitmap), first, count)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_any_by_scan(
        bitmap: u32,
        first: u32,
        count: u32,
        draw: u64,
    ) -> u32 {
        select::any_by_scan(&Maps, named(bitmap), first, count, draw)
    }

    /// A bitmap that is searched, as the number that stands for it in these calls.
    #[inline(always)]
    pub(super) fn number(bitmap: Bitmap) -> u32 {
        u32::from(bitmap == Bitmap::Allowed)
    }

    #[inline(always)]
    fn named(number: u32) -> Bitmap {
        if number == 0 { Bitmap::TakesNew } else { Bitmap::Allowed }
    }
}

impl Counters for Maps {
    #[inline(always)]
    fn global(&self, count: impl FnOnce(&mut GlobalCounters)) {
        move_counters(&maps::GLOBAL_COUNTERS, 0, count);
    }

    #[inline(always)]
    fn service(&self, index: u32, count: impl FnOnce(&mut ServiceCounters)) {
        move_counters(&maps::SERVICE_COUNTERS, index, count);
    }

    #[inline(always)]
    fn backend(&self, index: u32, count: impl FnOnce(&mut BackendCounters)) {
        move_counters(&maps::BACKEND_COUNTERS, index, count);
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

#[inline(always)]
fn move_counters<T, const ENTRIES: usize>(
    map: &PerCpuArray<T, ENTRIES>,
    index: u32,
    count: impl FnOnce(&mut T),
) {
    if let Some(counters) = map.get_ptr_mut(index) {
        // SAFETY: this CPU's own element; programs of one CPU do not run inside one another.
        count(unsafe { &mut *counters });
    }
}

#[inline(always)]
fn entry_pointer(flow: &Flow) -> Option<*mut FlowEntry> {
    if flow.family == 4 {
        maps::FLOWS_V4.get_ptr_mut(key_v4(flow))
    } else {
        maps::FLOWS_V6.get_ptr_mut(key_v6(flow))
    }
}

#[inline(always)]
fn key_v4(flow: &Flow) -> &FlowKeyV4 {
    // SAFETY: the first words of an IPv4 flow's key are this key's bytes.
    unsafe { &*flow.key.as_ptr().cast() }
}

#[inline(always)]
fn key_v6(flow: &Flow) -> &FlowKeyV6 {
    // SAFETY: the words of an IPv6 flow's key are this key's bytes.
    unsafe { &*flow.key.as_ptr().cast() }
}
