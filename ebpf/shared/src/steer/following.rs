//! Packets that follow others: a datagram's later fragments their first, an ICMP error the flow that
//! it tells of. They are given no backend of their own, whatever the health of the one they go to,
//! and leave nothing behind: whoever has the rest must have them.

use super::affinity::recall;
use super::in_use;
use super::outcome::{Entry, Path, Record, Steered};
use crate::abi::{BackendRef, FragmentEntry, MODE_OBSERVE, Service, Slot};
use crate::budget::Purse;
use crate::limits::FRAGMENT_NS;
use crate::packet::{Headers, Kind, PROTOCOL_TCP};
use crate::tables::{Memory, Tables};

/// The service and the backend of the first fragment of a packet's datagram;
/// [`BackendRef::NONE`] when it was not steered here, or too long ago.
#[inline(always)]
pub(super) fn first<T: Tables>(tables: &T, headers: &Headers, now_ns: u64) -> (u32, BackendRef) {
    let first = tables.first_fragment(headers, now_ns);
    ((first >> 32) as u32, BackendRef(first as u32))
}

/// Where the first fragment of a packet's datagram went not long ago: service index << 32 | backend,
/// a number because it is asked for by a call that is checked apart.
#[inline(always)]
pub fn first_fragment<T: Tables>(tables: &T, headers: &Headers, now_ns: u64) -> u64 {
    let first = tables.fragment(&headers.fragment_key());
    if first.seen_ns.saturating_add(FRAGMENT_NS) <= now_ns {
        return 0;
    }
    u64::from(first.service) << 32 | u64::from(first.backend.0)
}

/// Remembers where a datagram's first fragment went, for the others; nothing of other packets.
#[inline(always)]
pub(super) fn remember_first<M: Memory>(
    memory: &M,
    headers: &Headers,
    steered: &Steered,
    now_ns: u64,
) -> Entry {
    if headers.kind != Kind::FirstFragment {
        return Entry::Untouched;
    }
    if !memory.spend(Purse::FlowInserts, now_ns) {
        return Entry::Refused;
    }
    let entry =
        FragmentEntry { seen_ns: now_ns, backend: steered.backend, service: steered.service };
    if memory.write_fragment(headers, entry) { Entry::Written } else { Entry::Refused }
}

/// Whom an ICMP error goes to: whom the client's packets of the flow go to. Without an entry that is
/// the slot's backend, which the packet it tells of came from; a sick one too, since only who sent
/// it can mend what the error is about.
#[inline(always)]
pub(super) fn backend_of_flow<T: Tables>(
    tables: &T,
    service: &Service,
    headers: &Headers,
    slot: Slot,
    hash: u64,
    now_ns: u64,
) -> BackendRef {
    let entry = recall(tables, headers, hash, now_ns).entry;
    let holds = headers.flow.protocol == PROTOCOL_TCP
        || now_ns < entry.seen_ns.saturating_add(service.udp_idle_ns);
    if holds && in_use(tables, entry.backend) { entry.backend } else { slot.previous() }
}

/// What becomes of a packet that follows another to this backend.
#[inline(always)]
pub(super) fn steered<T: Tables>(
    tables: &T,
    service: &Service,
    headers: &Headers,
    index: u32,
    backend: BackendRef,
    path: Path,
) -> Steered {
    Steered {
        service: index,
        observe: service.mode == MODE_OBSERVE,
        backend,
        left: backend,
        path,
        entry: Entry::Untouched,
        fragment: Entry::Untouched,
        kept_on_sick: false,
        next_hop: tables.next_hop(backend.index()),
        size_bytes: headers.size_bytes,
        record: Record::NotTaken,
    }
}
