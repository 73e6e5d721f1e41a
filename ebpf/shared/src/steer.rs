//! The decision: what becomes of a packet. Compiled twice, for the host and for the kernel.
//!
//! Established flows follow their slot, and only the exceptions are remembered: flows that went
//! elsewhere at their SYN, and those of slots that drain (JET, CoNEXT'20). So a change of health
//! moves no flow of a living backend, and costs no table.
//!
//! In `observe` everything is decided, counted and remembered as in the other modes, so that the
//! counters tell what would be done and a later change of mode finds the entries; only the packet
//! passes.

/// Affinity: whom a flow's packets have gone to, and what is remembered of it.
mod affinity;
/// Samples of packets that reached no backend.
mod evidence;
/// What was decided of a packet, and what the entry point does with it.
mod outcome;

pub use self::affinity::{Found, recall};
pub use self::evidence::record;
pub use self::outcome::{Action, Dropped, Entry, Outcome, Path, Reason, Record, Steered};

use self::affinity::{Change, Kept};
use crate::abi::{
    ALL_SICK_RESET, BackendRef, HASH_BY_SOURCE, MODE_OBSERVE, ON_SICK_REHASH, ON_SICK_RESET,
    SERVICE_ECHO, Service, Slot,
};
use crate::budget::Purse;
use crate::hash::{flow_hash, source_hash};
use crate::packet::{Flow, Headers, PROTOCOL_TCP, Packet, parse};
use crate::search;
use crate::select::choose;
use crate::service::{self, NO_SERVICE};
use crate::tables::{Bitmap, Memory, Tables, bit};

/// Decides what becomes of a packet, and writes what is to be remembered of its flow.
#[inline(always)]
pub fn decide<P: Packet, T: Tables, M: Memory>(packet: &P, tables: &T, memory: &M) -> Outcome {
    let headers = match parse(packet) {
        Ok(headers) => headers,
        Err(reason) => return Outcome::Unread(reason),
    };
    let index = service::find(tables, &headers.flow);
    if index == NO_SERVICE || index == SERVICE_ECHO {
        return Outcome::NotService;
    }
    let now_ns = tables.now_ns();
    let size_bytes = packet.size_bytes();
    let mut outcome = steer(tables, memory, &headers, index, size_bytes, now_ns);
    evidence::sample(memory, &headers.flow, &mut outcome, size_bytes, now_ns);
    outcome
}

#[inline(always)]
fn steer<T: Tables, M: Memory>(
    tables: &T,
    memory: &M,
    headers: &Headers,
    index: u32,
    size_bytes: u32,
    now_ns: u64,
) -> Outcome {
    let broken = |observe| {
        let (reason, backend) = (Reason::BrokenTable, BackendRef::NONE);
        let record = Record::NotTaken;
        Outcome::Dropped(Dropped { reason, service: index, backend, observe, record })
    };
    let Some(service) = tables.service(index) else {
        return broken(false);
    };
    let observe = service.mode == MODE_OBSERVE;
    let hash = hash(service, &headers.flow);
    let Some(slot) = search::slot(tables, service.slot_first, service.slot_count, hash) else {
        return broken(observe);
    };
    let found = recall(tables, headers, now_ns);
    let route = route(tables, service, index, headers, slot, &found, hash, now_ns);
    let backend = route.backend;
    if backend == BackendRef::NONE || route.resets {
        let reason = refusal(memory, service, &route, now_ns);
        if reason == Reason::BackendSick {
            affinity::forget(memory, headers, &found);
        }
        let record = Record::NotTaken;
        let dropped = Dropped { reason, service: index, backend, observe, record };
        return Outcome::Dropped(dropped);
    }
    if !in_use(tables, backend) {
        return broken(observe);
    }
    Outcome::Steered(Steered {
        service: index,
        observe,
        backend,
        left: route.left,
        path: route.path,
        entry: affinity::remember(memory, headers, &found, backend, route.change, now_ns),
        kept_on_sick: route.kept_on_sick,
        next_hop: tables.next_hop(backend.index()),
        size_bytes,
        record: Record::NotTaken,
    })
}

/// A flow's hash by the service's rule.
#[inline(always)]
pub fn hash(service: &Service, flow: &Flow) -> u64 {
    if service.hash_by == HASH_BY_SOURCE {
        source_hash(flow, service.hash_seed)
    } else {
        flow_hash(flow, service.hash_seed)
    }
}

/// Where a packet goes, and what is to be remembered.
struct Route {
    /// [`BackendRef::NONE`]: nowhere.
    backend: BackendRef,
    /// See [`Steered::left`].
    left: BackendRef,
    path: Path,
    change: Change,
    kept_on_sick: bool,
    /// The flow is to be ended: its backend is sick.
    resets: bool,
}

#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "inlined: what one packet's decision knows")]
fn route<T: Tables>(
    tables: &T,
    service: &Service,
    index: u32,
    headers: &Headers,
    slot: Slot,
    found: &Found,
    hash: u64,
    now_ns: u64,
) -> Route {
    let is_tcp = headers.flow.protocol == PROTOCOL_TCP;
    let kept = affinity::kept(tables, service, headers, slot, found, now_ns);
    let mut stays = Route {
        backend: kept.backend,
        left: slot.current(),
        path: kept.path,
        change: kept.change,
        kept_on_sick: false,
        resets: false,
    };
    if kept.backend != BackendRef::NONE {
        if !is_sick(tables, &kept) {
            return stays;
        }
        let policy = tables.on_sick(index, kept.backend, is_tcp, now_ns);
        stays.kept_on_sick = policy != ON_SICK_RESET;
        stays.resets = policy == ON_SICK_RESET;
        if policy != ON_SICK_REHASH {
            return stays;
        }
    }
    let (backend, path) = choose(tables, index, slot, hash, now_ns);
    let moves = kept.backend != BackendRef::NONE;
    if moves && (!path.takes_new() || !in_use(tables, backend) || backend == kept.backend) {
        // Nobody takes it: all_sick is for new flows only.
        return stays;
    }
    let remembers_all = !is_tcp && service.on_sick_udp != ON_SICK_REHASH;
    let change = if backend != slot.current() || slot.drains() || remembers_all {
        Change::Write
    } else if found.entry.backend != BackendRef::NONE {
        Change::Delete
    } else {
        Change::Nothing
    };
    let (left, path) = if moves { (kept.backend, Path::Moved) } else { (slot.current(), path) };
    Route { backend, left, path, change, kept_on_sick: false, resets: false }
}

/// Whether an established flow's backend is sick. A SYN asks elsewhere; a reference that names no
/// backend is a broken table.
#[inline(always)]
fn is_sick<T: Tables>(tables: &T, kept: &Kept) -> bool {
    !matches!(kept.path, Path::SynAgain)
        && !bit(tables, Bitmap::ServesOld, kept.backend)
        && in_use(tables, kept.backend)
}

/// Why a packet with a route to nowhere is dropped, or by what right it is answered.
#[inline(always)]
fn refusal<M: Memory>(memory: &M, service: &Service, route: &Route, now_ns: u64) -> Reason {
    if !route.resets && service.all_sick != ALL_SICK_RESET {
        Reason::NoneTakesNew
    } else if !memory.spend(Purse::Replies, now_ns) {
        Reason::ReplyOverBudget
    } else if route.resets {
        Reason::BackendSick
    } else {
        Reason::NoneTakesNewRefused
    }
}

/// Whether the reference names the use that its index is in now.
#[inline(always)]
fn in_use<T: Tables>(tables: &T, backend: BackendRef) -> bool {
    backend.generation() != 0 && tables.generation(backend.index()) == backend.generation()
}
