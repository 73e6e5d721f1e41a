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
/// Packets that follow others: fragments, ICMP errors.
mod following;
/// What was decided of a packet, and what the entry point does with it.
mod outcome;
/// Most packets: to the backend of their slot, by no other rule.
mod plain;

pub use self::affinity::{Found, recall};
pub use self::evidence::record;
pub use self::following::first_fragment;
pub use self::outcome::{Action, Dropped, Entry, Outcome, Path, Reason, Record, Steered, Step};

use self::affinity::{Change, Kept};
use crate::abi::{
    ALL_SICK_RESET, BackendRef, HASH_BY_SOURCE, MODE_OBSERVE, ON_SICK_REHASH, ON_SICK_RESET,
    SERVICE_ECHO, Service, Slot,
};
use crate::budget::Purse;
use crate::hash::{flow_hash, source_hash};
use crate::packet::{self, Flow, Headers, Kind, PROTOCOL_TCP, PROTOCOL_UDP, Packet, Unread};
use crate::reply::{echo_answerable, refusable};
use crate::search;
use crate::select::choose;
use crate::service::{self, NO_SERVICE};
use crate::tables::{Bitmap, Memory, Tables, bit};

/// What is made of an outcome, at each place that comes to one.
///
/// Handed back and made something of in one place, outcomes of several variants would be merged: LLVM
/// leaves unset what one of them lacks, and moves it all the same, which the kernel's verifier refuses.
pub trait End {
    /// What it is made into.
    type Made;
    /// Makes it.
    fn end(&self, outcome: Outcome) -> Self::Made;
}

/// Leaves the outcome as it is.
pub struct AsItIs;

impl End for AsItIs {
    type Made = Outcome;

    #[inline(always)]
    fn end(&self, outcome: Outcome) -> Outcome {
        outcome
    }
}

/// Decides what becomes of a packet, and writes what is to be remembered of its flow.
#[inline(always)]
pub fn decide<P: Packet, T: Tables, M: Memory>(packet: &P, tables: &T, memory: &M) -> Outcome {
    let mut headers = Headers::EMPTY;
    let unread = packet::read(packet, &mut headers);
    if unread != 0 {
        return Outcome::Unread(Unread::of_number(unread));
    }
    let rest = |index, hash| decide_rest(&headers, index, hash, tables, memory, &AsItIs);
    decide_read(&headers, tables, &AsItIs, rest)
}

/// [`decide`] of a packet whose headers were read, to this end. What most packets need is here; the
/// others are left to `rest`, which is [`decide_rest`] with the two numbers that it is given.
#[inline(always)]
pub fn decide_read<T: Tables, E: End>(
    headers: &Headers,
    tables: &T,
    end: &E,
    rest: impl FnOnce(u32, u64) -> E::Made,
) -> E::Made {
    let (mut index, mut hash) = (NO_SERVICE, 0);
    if headers.kind != Kind::LaterFragment {
        index = service::find(tables, &headers.flow);
        if index == NO_SERVICE || index == SERVICE_ECHO || headers.kind == Kind::EchoRequest {
            return not_steered(headers, index, end);
        }
        if let Some(service) = tables.service(index) {
            hash = self::hash(service, &headers.flow);
            if let Some(slot) = search::slot(tables, service.slot_first, service.slot_count, hash)
                && let Some(plain) = plain::steered(tables, service, index, headers, slot, hash)
            {
                return end.end(Outcome::Steered(plain));
            }
        }
    }
    rest(index, hash)
}

/// The rest of [`decide_read`]: of a packet to this service (index) whose flow has this hash by its
/// rule; of later fragments neither is known.
#[inline(always)]
pub fn decide_rest<T: Tables, M: Memory, E: End>(
    headers: &Headers,
    index: u32,
    hash: u64,
    tables: &T,
    memory: &M,
    end: &E,
) -> E::Made {
    if headers.kind == Kind::LaterFragment {
        return follow_first(tables, memory, headers, end);
    }
    steer(tables, memory, headers, index, hash, end)
}

/// What becomes of a packet that is for no service, or for the address of one and not for it.
#[inline(always)]
fn not_steered<E: End>(headers: &Headers, index: u32, end: &E) -> E::Made {
    if index == SERVICE_ECHO && echo_answerable(headers) {
        return end.end(Outcome::EchoAnswered);
    }
    match headers.kind {
        Kind::EchoRequest | Kind::IcmpError => end.end(Outcome::Unread(Unread::IcmpUnrelated)),
        _ if matches!(headers.flow.protocol, PROTOCOL_TCP | PROTOCOL_UDP) => {
            end.end(Outcome::NotService)
        }
        _ => end.end(Outcome::Unread(Unread::NotTcpUdp)),
    }
}

/// What becomes of a fragment that is not the first of its datagram.
#[inline(always)]
fn follow_first<T: Tables, M: Memory, E: End>(
    tables: &T,
    memory: &M,
    headers: &Headers,
    end: &E,
) -> E::Made {
    let now_ns = tables.now_ns();
    let (index, backend) = following::first(tables, headers, now_ns);
    match tables.service(index) {
        Some(service) if in_use(tables, backend) => {
            let steered =
                following::steered(tables, service, headers, index, backend, Path::Fragment);
            end_steered(memory, headers, steered, now_ns, end)
        }
        _ => end.end(Outcome::Unread(Unread::FragmentUnknown)),
    }
}

#[inline(always)]
fn steer<T: Tables, M: Memory, E: End>(
    tables: &T,
    memory: &M,
    headers: &Headers,
    index: u32,
    hash: u64,
    end: &E,
) -> E::Made {
    let now_ns = tables.now_ns();
    let dropped = |reason, backend, observe| {
        let record = Record::NotTaken;
        Dropped { reason, service: index, backend, observe, record }
    };
    let broken = |observe| dropped(Reason::BrokenTable, BackendRef::NONE, observe);
    let Some(service) = tables.service(index) else {
        return end_dropped(memory, headers, broken(false), now_ns, end);
    };
    let observe = service.mode == MODE_OBSERVE;
    let Some(slot) = search::slot(tables, service.slot_first, service.slot_count, hash) else {
        return end_dropped(memory, headers, broken(observe), now_ns, end);
    };
    if headers.kind == Kind::IcmpError {
        let backend = following::backend_of_flow(tables, service, headers, slot, hash, now_ns);
        if !in_use(tables, backend) {
            return end_dropped(memory, headers, broken(observe), now_ns, end);
        }
        let steered = following::steered(tables, service, headers, index, backend, Path::IcmpError);
        return end_steered(memory, headers, steered, now_ns, end);
    }
    let found = recall(tables, headers, hash, now_ns);
    let route = route(tables, service, index, headers, slot, &found, hash, now_ns);
    let backend = route.backend;
    if backend == BackendRef::NONE || route.resets {
        let reason = refusal(headers, memory, service, &route, now_ns);
        if reason == Reason::BackendSick {
            affinity::forget(memory, headers, &found);
        }
        return end_dropped(memory, headers, dropped(reason, backend, observe), now_ns, end);
    }
    if !in_use(tables, backend) {
        return end_dropped(memory, headers, broken(observe), now_ns, end);
    }
    let mut steered = Steered {
        service: index,
        observe,
        backend,
        left: route.left,
        path: route.path,
        entry: affinity::remember(memory, headers, &found, backend, route.change, hash, now_ns),
        fragment: Entry::Untouched,
        kept_on_sick: route.kept_on_sick,
        next_hop: tables.next_hop(backend.index()),
        size_bytes: headers.size_bytes,
        record: Record::NotTaken,
    };
    steered.fragment = following::remember_first(memory, headers, &steered, now_ns);
    end_steered(memory, headers, steered, now_ns, end)
}

#[inline(always)]
fn end_dropped<M: Memory, E: End>(
    memory: &M,
    headers: &Headers,
    mut dropped: Dropped,
    now_ns: u64,
    end: &E,
) -> E::Made {
    dropped.record = evidence::of_dropped(memory, headers, &dropped, now_ns);
    end.end(Outcome::Dropped(dropped))
}

#[inline(always)]
fn end_steered<M: Memory, E: End>(
    memory: &M,
    headers: &Headers,
    mut steered: Steered,
    now_ns: u64,
    end: &E,
) -> E::Made {
    steered.record = evidence::of_steered(memory, headers, &steered, now_ns);
    end.end(Outcome::Steered(steered))
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
        // What may not be answered, the client's own RST above all, stays as it was.
        stays.resets = policy == ON_SICK_RESET && refusable(headers);
        stays.kept_on_sick = !stays.resets;
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
fn refusal<M: Memory>(
    headers: &Headers,
    memory: &M,
    service: &Service,
    route: &Route,
    now_ns: u64,
) -> Reason {
    let refuses = service.all_sick == ALL_SICK_RESET && refusable(headers);
    if !route.resets && !refuses {
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
pub(crate) fn in_use<T: Tables>(tables: &T, backend: BackendRef) -> bool {
    backend.generation() != 0 && tables.generation(backend.index()) == backend.generation()
}
