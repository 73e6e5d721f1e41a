//! Affinity: whom a flow's packets have gone to, and what is remembered of it.
//!
//! A flow has an entry in one store at most. A SYN's goes to the embryonic one; the flow's first
//! other packet moves it to the lasting one, which a flood of SYNs can therefore not flush.

use super::in_use;
use super::outcome::{Entry, Path};
use crate::abi::{BackendRef, FlowEntry, ON_SICK_REHASH, Service, Slot};
use crate::budget::Purse;
use crate::hash::flow_mark;
use crate::limits::{EMBRYONIC_LIFE_NS, SYN_RETRANSMIT_NS};
use crate::packet::{Headers, PROTOCOL_TCP};
use crate::select::BROKEN;
use crate::tables::{Added, Bitmap, Memory, Store, Tables, bit};

/// A flow's entry, and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// One of [`BackendRef::NONE`] when the flow has none.
    pub entry: FlowEntry,
    /// Where it was found; where it was looked for last, when there is none.
    pub store: Store,
}

/// Looks for the flow of a packet with this hash, first where it is likely to be. An embryonic entry that has outlived
/// its time is none.
#[inline(always)]
pub fn recall<T: Tables>(tables: &T, headers: &Headers, hash: u64, now_ns: u64) -> Found {
    if !tables.is_marked(flow_mark(hash)) {
        return Found { entry: FlowEntry::default(), store: Store::Flows };
    }
    let flow = &headers.flow;
    let is_young = |seen_ns: u64| now_ns < seen_ns.saturating_add(EMBRYONIC_LIFE_NS);
    let may_be_embryonic = flow.protocol == PROTOCOL_TCP && is_young(tables.embryonic_seen_ns());
    if may_be_embryonic && headers.opens {
        let entry = tables.embryonic_entry(flow, now_ns);
        if entry.backend != BackendRef::NONE && is_young(entry.seen_ns) {
            return Found { entry, store: Store::Embryonic };
        }
    }
    let mut entry = tables.entry(flow);
    if may_be_embryonic && !headers.opens && entry.backend == BackendRef::NONE {
        let embryonic = tables.embryonic_entry(flow, now_ns);
        if embryonic.backend != BackendRef::NONE && is_young(embryonic.seen_ns) {
            return Found { entry: embryonic, store: Store::Embryonic };
        }
        // Between the two looks another CPU may have moved it: it writes there before it deletes here.
        entry = tables.entry(flow);
    }
    Found { entry, store: Store::Flows }
}

/// Whom a packet's flow has had so far.
pub(super) struct Kept {
    /// [`BackendRef::NONE`]: nobody, one is yet to be chosen.
    pub(super) backend: BackendRef,
    pub(super) path: Path,
    pub(super) change: Change,
}

/// What is to be done with a flow's entry.
#[derive(Clone, Copy)]
pub(super) enum Change {
    Nothing,
    Write,
    Stamp,
    Promote,
    Delete,
}

#[inline(always)]
pub(super) fn kept<T: Tables>(
    tables: &T,
    service: &Service,
    headers: &Headers,
    slot: Slot,
    found: &Found,
    now_ns: u64,
) -> Kept {
    if headers.flow.protocol != PROTOCOL_TCP {
        udp_kept(tables, service, slot, &found.entry, now_ns)
    } else if headers.opens {
        syn_kept(tables, &found.entry, now_ns)
    } else {
        tcp_kept(tables, slot, found)
    }
}

/// A SYN keeps the backend that the same SYN got, while that one takes new flows.
#[inline(always)]
fn syn_kept<T: Tables>(tables: &T, entry: &FlowEntry, now_ns: u64) -> Kept {
    let again = now_ns < entry.seen_ns.saturating_add(SYN_RETRANSMIT_NS)
        && in_use(tables, entry.backend)
        && bit(tables, Bitmap::TakesNew, entry.backend);
    let backend = if again { entry.backend } else { BackendRef::NONE };
    Kept { backend, path: Path::SynAgain, change: Change::Stamp }
}

/// An established connection has the backend of its entry, or else of its slot.
#[inline(always)]
fn tcp_kept<T: Tables>(tables: &T, slot: Slot, found: &Found) -> Kept {
    if in_use(tables, found.entry.backend) {
        let change = match found.store {
            Store::Flows => Change::Nothing,
            Store::Embryonic => Change::Promote,
        };
        return Kept { backend: found.entry.backend, path: Path::Entry, change };
    }
    let change = if slot.drains() { Change::Write } else { Change::Nothing };
    // A slot of no backend is a broken table, not a flow to choose for.
    let backend = if slot.previous() == BackendRef::NONE { BROKEN } else { slot.previous() };
    Kept { backend, path: Path::Slot, change }
}

/// A UDP flow has the backend of its entry while it is not idle; else its slot's while that serves.
///
/// UDP has no SYN: who follows his slot cannot be told from who has just come. A service that is to
/// treat the flows of a sick backend otherwise than new ones therefore enters every flow, and takes
/// one without an entry for new.
#[inline(always)]
fn udp_kept<T: Tables>(
    tables: &T,
    service: &Service,
    slot: Slot,
    entry: &FlowEntry,
    now_ns: u64,
) -> Kept {
    let fresh = now_ns < entry.seen_ns.saturating_add(service.udp_idle_ns);
    if fresh && in_use(tables, entry.backend) {
        let change = if entry.seen_ns == now_ns { Change::Nothing } else { Change::Stamp };
        return Kept { backend: entry.backend, path: Path::Entry, change };
    }
    let follows =
        service.on_sick_udp == ON_SICK_REHASH && bit(tables, Bitmap::ServesOld, slot.previous());
    let backend = if follows { slot.previous() } else { BackendRef::NONE };
    let change = if slot.drains() {
        Change::Write
    } else if entry.backend != BackendRef::NONE {
        Change::Delete
    } else {
        Change::Nothing
    };
    Kept { backend, path: Path::Slot, change }
}

/// Deletes the entry of a flow that is over: what comes next is a new one.
#[inline(always)]
pub(super) fn forget<M: Memory>(memory: &M, headers: &Headers, found: &Found) {
    if found.entry.backend != BackendRef::NONE {
        memory.delete_entry(&headers.flow, found.store);
    }
}

/// Does with the flow's entry what is to be done, and says what became of it.
#[inline(always)]
pub(super) fn remember<M: Memory>(
    memory: &M,
    headers: &Headers,
    found: &Found,
    backend: BackendRef,
    change: Change,
    hash: u64,
    now_ns: u64,
) -> Entry {
    let flow = &headers.flow;
    match change {
        Change::Nothing => Entry::Untouched,
        Change::Stamp => {
            memory.stamp_entry(flow, found.store, now_ns);
            if found.store == Store::Embryonic {
                memory.note_embryonic(now_ns);
            }
            Entry::Untouched
        }
        Change::Write => write(memory, headers, found, backend, hash, now_ns),
        Change::Promote => {
            // A copy of its own: were it the one that was found, that would be memory for every
            // packet, zeroed by a loop over bytes where nothing is found.
            let FlowEntry { seen_ns, backend, reserved } = found.entry;
            let lasting = FlowEntry { seen_ns, backend, reserved };
            if !memory.spend(Purse::FlowInserts, now_ns) {
                return Entry::Refused;
            }
            match memory.add_lasting(flow, &lasting) {
                Added::New => {
                    memory.delete_entry(flow, Store::Embryonic);
                    Entry::Promoted
                }
                // Another CPU is doing it, for a packet of the same moment.
                Added::Present => Entry::Untouched,
                Added::Refused => Entry::Refused,
            }
        }
        Change::Delete => {
            memory.delete_entry(flow, found.store);
            Entry::Deleted
        }
    }
}

#[inline(always)]
fn write<M: Memory>(
    memory: &M,
    headers: &Headers,
    found: &Found,
    backend: BackendRef,
    hash: u64,
    now_ns: u64,
) -> Entry {
    let flow = &headers.flow;
    let (store, purse) = if headers.opens {
        (Store::Embryonic, Purse::EmbryonicInserts)
    } else {
        (Store::Flows, Purse::FlowInserts)
    };
    let entry = FlowEntry { seen_ns: now_ns, backend, reserved: 0 };
    let affordable = memory.spend(purse, now_ns);
    if affordable {
        memory.mark(flow_mark(hash));
    }
    let written = affordable && memory.write_entry(flow, store, &entry);
    if headers.opens {
        memory.note_embryonic(now_ns);
    }
    // The entry of the tuple's former connection would draw the new one's packets.
    let stays_behind = if written { found.store != store } else { headers.opens };
    if stays_behind && found.entry.backend != BackendRef::NONE {
        memory.delete_entry(flow, found.store);
    }
    if written { Entry::Written } else { Entry::Refused }
}
