//! Explaining: the decision over the live tables, with what it found, and without leaving a trace.

use crate::abi::{
    BIT_ALLOWED, BIT_SERVES_OLD, BIT_TAKES_NEW, BackendRef, DropRecord, Facts, FlowEntry,
    FragmentEntry, SERVICE_ECHO, VERDICT_DROPPED, VERDICT_ECHO_ANSWERED, VERDICT_NOT_SERVICE,
    VERDICT_STEERED, VERDICT_UNREAD, Verdict,
};
use crate::budget::Purse;
use crate::hash::below;
use crate::packet::{Flow, Headers, Packet};
use crate::search;
use crate::service::{self, NO_SERVICE};
use crate::steer::{self, Outcome, decide, recall};
use crate::tables::{Added, Bitmap, Memory, Store, Tables, bit};

/// What the decision of a packet would find.
#[inline(always)]
pub fn facts<P: Packet, T: Tables>(packet: &P, tables: &T) -> Facts {
    let nothing = Facts { service: NO_SERVICE, ..Facts::default() };
    let mut headers = Headers::EMPTY;
    if packet.read_into(&mut headers) != 0 {
        return nothing;
    }
    let index = service::find(tables, &headers.flow);
    if index == NO_SERVICE || index == SERVICE_ECHO {
        return Facts { service: index, ..nothing };
    }
    let Some(service) = tables.service(index) else {
        return Facts { service: index, ..nothing };
    };
    let at_ns = tables.now_ns();
    let hash = steer::hash(service, &headers.flow);
    let slot = search::slot(tables, service.slot_first, service.slot_count, hash);
    let slot = slot.unwrap_or_default();
    let current = slot.current();
    let found = recall(tables, &headers, hash, at_ns);
    let has_backup = service.backup_slot_count != 0;
    Facts {
        at_ns,
        hash,
        slot,
        entry: found.entry,
        pool_count: tables.pool_count(service.pool),
        backup_pool_count: if has_backup { tables.pool_count(service.backup_pool) } else { 0 },
        sign_of_life_ns: tables.sign_of_life_ns(current.index()),
        service: index,
        slot_index: below(hash, service.slot_count),
        try_that_finds: tables.try_that_finds(service.slot_first, service.slot_count, hash),
        slot_backend_bits: bits(tables, current),
        entry_backend_bits: bits(tables, found.entry.backend),
        entry_is_embryonic: u8::from(
            found.entry.backend != BackendRef::NONE && found.store == Store::Embryonic,
        ),
        opens: u8::from(headers.opens),
    }
}

/// What is decided of a packet; what would be left behind is not.
#[inline(always)]
pub fn verdict<P: Packet, T: Tables>(packet: &P, tables: &T) -> Verdict {
    match decide(packet, tables, &Forgetful) {
        Outcome::Unread(reason) => {
            Verdict { outcome: VERDICT_UNREAD, why: reason as u8, ..Verdict::default() }
        }
        Outcome::NotService => Verdict { outcome: VERDICT_NOT_SERVICE, ..Verdict::default() },
        Outcome::EchoAnswered => Verdict { outcome: VERDICT_ECHO_ANSWERED, ..Verdict::default() },
        Outcome::Dropped(dropped) => Verdict {
            outcome: VERDICT_DROPPED,
            why: dropped.reason as u8,
            backend: dropped.backend,
            observe: u8::from(dropped.observe),
            backend_bits: bits(tables, dropped.backend),
            ..Verdict::default()
        },
        Outcome::Steered(steered) => Verdict {
            next_hop: steered.next_hop.next_hop,
            source_mac: steered.next_hop.source_mac,
            interface_index: steered.next_hop.interface_index,
            backend: steered.backend,
            left: steered.left,
            outcome: VERDICT_STEERED,
            why: steered.path as u8,
            entry: steered.entry as u8,
            kept_on_sick: u8::from(steered.kept_on_sick),
            observe: u8::from(steered.observe),
            backend_bits: bits(tables, steered.backend),
            reserved: [0; 6],
        },
    }
}

/// A backend's bits; none for [`BackendRef::NONE`].
#[inline(always)]
fn bits<T: Tables>(tables: &T, backend: BackendRef) -> u8 {
    if backend == BackendRef::NONE {
        return 0;
    }
    let or_none = |set: bool, flag: u8| flag * u8::from(set);
    or_none(bit(tables, Bitmap::TakesNew, backend), BIT_TAKES_NEW)
        | or_none(bit(tables, Bitmap::ServesOld, backend), BIT_SERVES_OLD)
        | or_none(bit(tables, Bitmap::Allowed, backend), BIT_ALLOWED)
}

/// A memory that takes everything and keeps nothing. Every purse is full.
struct Forgetful;

impl Memory for Forgetful {
    #[inline(always)]
    fn write_entry(&self, _: &Flow, _: Store, _: &FlowEntry) -> bool {
        true
    }

    #[inline(always)]
    fn add_lasting(&self, _: &Flow, _: &FlowEntry) -> Added {
        Added::New
    }

    #[inline(always)]
    fn mark(&self, _: u32) {}

    #[inline(always)]
    fn stamp_entry(&self, _: &Flow, _: Store, _: u64) {}

    #[inline(always)]
    fn delete_entry(&self, _: &Flow, _: Store) {}

    #[inline(always)]
    fn note_embryonic(&self, _: u64) {}

    #[inline(always)]
    fn write_fragment(&self, _: &Headers, _: FragmentEntry) -> bool {
        true
    }

    #[inline(always)]
    fn spend(&self, purse: Purse, _: u64) -> bool {
        // A record of this packet would be one of a packet that never was.
        purse != Purse::DropRecords
    }

    #[inline(always)]
    fn put_drop(&self, _: &DropRecord) -> bool {
        true
    }
}
