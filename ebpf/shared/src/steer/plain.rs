//! Most packets: to the backend of their slot, or of their entry, which is well and known, and
//! nothing to be remembered.
//!
//! A short cut through the rules that [`route`](super::route) has, and no rule of its own: left out,
//! every packet fares the same. It reads no clock; and where no flow was given an entry, it looks for
//! none.

use super::outcome::{Entry, Path, Record, Steered};
use crate::abi::{MODE_OBSERVE, ON_SICK_REHASH, Service, Slot};
use crate::hash::flow_mark;
use crate::packet::{Headers, Kind, PROTOCOL_TCP};
use crate::tables::{Bitmap, Tables, bit};

/// What becomes of the packet, if it is such a one.
#[inline(always)]
pub(super) fn steered<T: Tables>(
    tables: &T,
    service: &Service,
    index: u32,
    headers: &Headers,
    slot: Slot,
    hash: u64,
) -> Option<Steered> {
    if headers.kind != Kind::Whole {
        return None;
    }
    let is_tcp = headers.flow.protocol == PROTOCOL_TCP;
    let (mut backend, mut path) = (slot.current(), Path::Slot);
    if headers.opens {
        path = Path::Current;
    }
    if tables.is_marked(flow_mark(hash)) {
        // A SYN's entry, and a datagram's, is one for as long as its time says.
        if !is_tcp || headers.opens {
            return None;
        }
        backend = tables.entry(&headers.flow).backend;
        path = Path::Entry;
    } else if slot.drains() || !(is_tcp || service.on_sick_udp == ON_SICK_REHASH) {
        // Who follows such a slot is to have an entry.
        return None;
    }
    let bitmap = if headers.opens { Bitmap::TakesNew } else { Bitmap::ServesOld };
    if !bit(tables, bitmap, backend) {
        return None;
    }
    let next_hop = tables.next_hop_in_use(backend);
    if !next_hop.is_known() {
        return None;
    }
    Some(Steered {
        service: index,
        observe: service.mode == MODE_OBSERVE,
        backend,
        left: slot.current(),
        path,
        entry: Entry::Untouched,
        fragment: Entry::Untouched,
        kept_on_sick: false,
        next_hop,
        size_bytes: headers.size_bytes,
        record: Record::NotTaken,
    })
}
