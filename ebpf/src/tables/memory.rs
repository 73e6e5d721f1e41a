//! Entries, budgets and records: what the decision leaves behind.
#![expect(unsafe_code, reason = "map values are shared memory; the helpers hand out pointers")]

use core::ptr::addr_of;

use aya_ebpf::bindings::{BPF_ANY, BPF_NOEXIST};
use sickbay_shared::abi::{
    BackendRef, DropRecord, FlowEntry, FlowKeyV4, FlowKeyV6, FragmentEntry, FragmentKey,
};
use sickbay_shared::budget::{self, Purse};
use sickbay_shared::limits::FLOW_MARKS_BYTES;
use sickbay_shared::packet::{FLOW_KEY_WORDS, Flow, Headers};
use sickbay_shared::tables::{Added, Memory, Store};

use super::{Maps, calls, embryonic};
use crate::maps;

/// -EEXIST.
const ALREADY_THERE: i32 = -17;

impl Memory for Maps {
    #[inline(always)]
    fn write_entry(&self, flow: &Flow, store: Store, entry: &FlowEntry) -> bool {
        if store == Store::Embryonic {
            return calls::sickbay_put_embryonic(
                embryonic::tag(flow),
                entry.backend.0,
                entry.seen_ns,
            ) != 0;
        }
        insert(flow, entry, BPF_ANY).is_ok()
    }

    #[inline(always)]
    fn add_lasting(&self, flow: &Flow, entry: &FlowEntry) -> Added {
        match insert(flow, entry, BPF_NOEXIST) {
            Ok(()) => Added::New,
            Err(ALREADY_THERE) => Added::Present,
            Err(_) => Added::Refused,
        }
    }

    #[inline(always)]
    fn mark(&self, mark: u32) {
        if let Some(byte) = mark_pointer(mark) {
            // SAFETY: a byte of a map's element, stored whole, and only when that is new: the CPUs
            // share its line.
            unsafe {
                if byte.read_volatile() == 0 {
                    byte.write_volatile(1);
                }
            }
        }
    }

    #[inline(always)]
    fn stamp_entry(&self, flow: &Flow, store: Store, now_ns: u64) {
        if store == Store::Embryonic {
            calls::sickbay_put_embryonic(embryonic::tag(flow), BackendRef::NONE.0, now_ns);
        } else if let Some(entry) = entry_pointer(flow) {
            // SAFETY: an aligned field of a map's element, stored whole.
            unsafe { (&raw mut (*entry).seen_ns).write_volatile(now_ns) }
        }
    }

    #[inline(always)]
    fn delete_entry(&self, flow: &Flow, store: Store) {
        if store == Store::Embryonic {
            calls::sickbay_delete_embryonic(embryonic::tag(flow));
            return;
        }
        // Gone already, by eviction: as wished.
        let _gone = match flow.family {
            4 => maps::FLOWS_V4.remove(key_v4(flow)),
            _ => maps::FLOWS_V6.remove(key_v6(flow)),
        };
    }

    #[inline(always)]
    fn note_embryonic(&self, now_ns: u64) {
        if let Some(seen_ns) = maps::EMBRYONIC_SEEN.get_ptr_mut(0) {
            // SAFETY: an aligned word of a map's element. Stored only when the clock has moved on:
            // the CPUs share it.
            unsafe {
                if seen_ns.read_volatile() != now_ns {
                    seen_ns.write_volatile(now_ns);
                }
            }
        }
    }

    #[inline(always)]
    fn write_fragment(&self, headers: &Headers, entry: FragmentEntry) -> bool {
        let FragmentEntry { seen_ns, backend, service } = entry;
        calls::sickbay_write_fragment(headers, seen_ns, backend.0, service) != 0
    }

    #[inline(always)]
    fn spend(&self, purse: Purse, now_ns: u64) -> bool {
        // Every diverted SYN asks for this one, and a call would cost it more than the answer.
        if matches!(purse, Purse::EmbryonicInserts) {
            return spend(Purse::EmbryonicInserts, now_ns);
        }
        calls::sickbay_spend(purse.number(), now_ns) != 0
    }

    #[inline(always)]
    fn put_drop(&self, record: &DropRecord) -> bool {
        let Some(mut room) = maps::DROPS.reserve_untyped::<DropRecord>(0) else {
            return false;
        };
        room.write(*record);
        room.submit(0);
        true
    }

    #[inline(always)]
    fn record(&self, key: &[u32; FLOW_KEY_WORDS], what: u64, whom: u64, now_ns: u64) -> u32 {
        calls::sickbay_record(key, what, whom, now_ns)
    }
}

#[inline(always)]
fn insert(flow: &Flow, entry: &FlowEntry, flags: u32) -> Result<(), i32> {
    match flow.family {
        4 => maps::FLOWS_V4.insert(key_v4(flow), entry, flags.into()),
        _ => maps::FLOWS_V6.insert(key_v6(flow), entry, flags.into()),
    }
}

/// The byte of a mark.
#[inline(always)]
pub(super) fn mark_pointer(mark: u32) -> Option<*mut u8> {
    let line = maps::FLOW_MARKS.get_ptr_mut(mark / FLOW_MARKS_BYTES)?;
    // SAFETY: within the line, which has as many bytes.
    Some(unsafe { line.cast::<u8>().add((mark % FLOW_MARKS_BYTES) as usize) })
}

/// A flow's lasting entry; one of no backend when it has none.
#[inline(always)]
pub(super) fn entry(flow: &Flow) -> FlowEntry {
    let Some(entry) = entry_pointer(flow) else {
        return FlowEntry::default();
    };
    // SAFETY: an evicted entry's memory stays a FlowEntry; a torn one fails its generation or is
    // another flow's for one packet, as an eviction at that moment would be.
    unsafe {
        FlowEntry {
            seen_ns: addr_of!((*entry).seen_ns).read_volatile(),
            backend: addr_of!((*entry).backend).read_volatile(),
            reserved: 0,
        }
    }
}

/// Writes the entry of a datagram's first fragment; whether it could.
#[inline(always)]
pub(super) fn write_fragment(key: &[u32; FLOW_KEY_WORDS], entry: &FragmentEntry) -> bool {
    maps::FRAGMENTS.insert(fragment_key(key), entry, u64::from(BPF_ANY)).is_ok()
}

/// The entry of a datagram's first fragment; one of no backend when there is none.
#[inline(always)]
pub(super) fn fragment(key: &[u32; FLOW_KEY_WORDS]) -> FragmentEntry {
    let Some(entry) = maps::FRAGMENTS.get_ptr(fragment_key(key)) else {
        return FragmentEntry::default();
    };
    // SAFETY: as for a flow's entry.
    unsafe {
        FragmentEntry {
            seen_ns: addr_of!((*entry).seen_ns).read_volatile(),
            backend: addr_of!((*entry).backend).read_volatile(),
            service: addr_of!((*entry).service).read_volatile(),
        }
    }
}

/// Takes one out of this CPU's purse; whether there was one left.
#[inline(always)]
pub(super) fn spend(purse: Purse, now_ns: u64) -> bool {
    let (Some(budget), Some(header)) = (maps::BUDGETS.get_ptr_mut(0), maps::HEADER.get(0)) else {
        return false;
    };
    // SAFETY: this CPU's own element; programs of one CPU do not run inside one another.
    budget::spend(unsafe { &mut *budget }, header, purse, now_ns)
}

#[inline(always)]
fn entry_pointer(flow: &Flow) -> Option<*mut FlowEntry> {
    match flow.family {
        4 => maps::FLOWS_V4.get_ptr_mut(key_v4(flow)),
        _ => maps::FLOWS_V6.get_ptr_mut(key_v6(flow)),
    }
}

#[inline(always)]
fn fragment_key(words: &[u32; FLOW_KEY_WORDS]) -> &FragmentKey {
    // SAFETY: the words are the key's bytes.
    unsafe { &*words.as_ptr().cast() }
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
