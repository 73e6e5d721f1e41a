//! The decision: what becomes of a packet. Compiled twice, for the host and for the kernel.
//!
//! Established flows follow their slot, and only the exceptions are remembered: flows that went
//! elsewhere at their SYN, and those of slots that drain (JET, CoNEXT'20). So a change of health
//! moves no flow of a living backend, and costs no table.
//!
//! In `observe` everything is decided, counted and remembered as in the other modes, so that the
//! counters tell what would be done and a later change of mode finds the entries; only the packet
//! passes.

use crate::abi::{BackendRef, FlowEntry, MODE_OBSERVE, SERVICE_ECHO, Service, Slot};
use crate::hash::flow_hash;
use crate::limits::SYN_RETRANSMIT_NS;
use crate::packet::{Flow, Headers, PROTOCOL_TCP, Packet, Unread, parse};
use crate::select::{self, BROKEN, choose};
use crate::service::{self, NO_SERVICE};
use crate::tables::{Bitmap, NextHop, Tables, bit};

/// What was decided of a packet, with all that is counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Passed without being read through.
    Unread(Unread),
    /// Passed: to no service.
    NotService,
    /// Dropped, or passed in `observe`: the service has no usable slot, pool or backend record.
    BrokenTable {
        /// The service only observes.
        observe: bool,
    },
    /// Dropped, or passed in `observe`: a new flow, and no backend takes any.
    NoneTakesNew {
        /// Service index.
        service: u32,
        /// The service only observes.
        observe: bool,
    },
    /// Sent to a backend, or passed in `observe`, or dropped when its next hop is not known.
    Steered(Steered),
}

/// A packet's backend, and how it came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steered {
    /// Service index.
    pub service: u32,
    /// The service only observes.
    pub observe: bool,
    /// The backend.
    pub backend: BackendRef,
    /// The backend of its slot, which a new flow would have gone to.
    pub slot_backend: BackendRef,
    /// How it came to the backend.
    pub path: Path,
    /// What became of the flow's entry.
    pub entry: Entry,
    /// The backend is sick and keeps the flow.
    pub kept_on_sick: bool,
    /// Where the packet goes.
    pub next_hop: NextHop,
    /// Bytes of the packet, link layer included.
    pub size_bytes: u32,
}

/// How a packet came to its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// A new flow: its slot's backend, which takes new flows.
    Current,
    /// A new flow: another of the table, by re-hashing.
    Rehashed,
    /// A new flow: the k-th of those that take new flows.
    Searched,
    /// A new flow, though none takes new flows: one that is allowed (`all_sick = open`).
    Open,
    /// A new flow, by the entry that the same SYN left a moment ago.
    SynAgain,
    /// An established flow, by its entry.
    Entry,
    /// An established flow without an entry, by its slot.
    Slot,
}

/// What became of a flow's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// There was none and there is none, or it stays (its stamp apart).
    Untouched,
    /// Written.
    Written,
    /// Could not be written.
    Refused,
    /// Deleted: the tuple's new flow follows its slot.
    Deleted,
}

/// What the entry point does with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand it on as if the program were not there.
    Pass,
    /// Drop it.
    Drop,
    /// Send it to this next hop; nothing but the two MACs changes. The TTL stays: the packet does
    /// not leave its link, and the backend sees what the client sent.
    Forward(NextHop),
}

impl Outcome {
    /// What the entry point does.
    #[inline(always)]
    #[must_use]
    pub const fn action(&self) -> Action {
        match self {
            Self::Unread(_) | Self::NotService => Action::Pass,
            Self::BrokenTable { observe } | Self::NoneTakesNew { observe, .. } => {
                if *observe {
                    Action::Pass
                } else {
                    Action::Drop
                }
            }
            Self::Steered(steered) => {
                if steered.observe {
                    Action::Pass
                } else if steered.next_hop.is_known() {
                    Action::Forward(steered.next_hop)
                } else {
                    Action::Drop
                }
            }
        }
    }
}

/// Decides what becomes of a packet, and writes what is to be remembered of its flow.
#[inline(always)]
pub fn decide<P: Packet, T: Tables>(packet: &P, tables: &T) -> Outcome {
    let headers = match parse(packet) {
        Ok(headers) => headers,
        Err(reason) => return Outcome::Unread(reason),
    };
    let flow = &headers.flow;
    let index = service::find(tables, flow);
    if index == NO_SERVICE || index == SERVICE_ECHO {
        return Outcome::NotService;
    }
    let Some(service) = tables.service(index) else {
        return Outcome::BrokenTable { observe: false };
    };
    let observe = service.mode == MODE_OBSERVE;
    let hash = flow_hash(flow, service.hash_seed);
    let Some(slot) = select::slot(tables, service.slot_first, service.slot_count, hash) else {
        return Outcome::BrokenTable { observe };
    };
    let route = route(tables, service, &headers, slot, hash);
    let backend = route.backend;
    if backend == BackendRef::NONE {
        return Outcome::NoneTakesNew { service: service.index, observe };
    }
    if !in_use(tables, backend) {
        return Outcome::BrokenTable { observe };
    }
    let established = matches!(route.path, Path::Entry | Path::Slot);
    Outcome::Steered(Steered {
        service: service.index,
        observe,
        backend,
        slot_backend: slot.current(),
        path: route.path,
        entry: remember(tables, flow, &route),
        kept_on_sick: established && !bit(tables, Bitmap::ServesOld, backend),
        next_hop: tables.next_hop(backend.index()),
        size_bytes: packet.size_bytes(),
    })
}

/// Where a packet goes, and what is to be remembered.
struct Route {
    /// [`BackendRef::NONE`]: not found, or yet to be chosen.
    backend: BackendRef,
    path: Path,
    memory: Memory,
    now_ns: u64,
}

#[derive(Clone, Copy)]
enum Memory {
    Nothing,
    Write,
    Stamp,
    Delete,
}

#[inline(always)]
fn route<T: Tables>(
    tables: &T,
    service: &Service,
    headers: &Headers,
    slot: Slot,
    hash: u64,
) -> Route {
    let flow = &headers.flow;
    let entry = tables.entry(flow);
    let now_ns = tables.now_ns();
    let kept = if flow.protocol != PROTOCOL_TCP {
        udp_kept(tables, slot, &entry, now_ns, service.udp_idle_ns)
    } else if headers.opens {
        syn_kept(tables, &entry, now_ns)
    } else {
        tcp_kept(tables, slot, &entry, now_ns)
    };
    if kept.backend != BackendRef::NONE {
        return kept;
    }
    let (backend, path) = choose(tables, service, slot, hash);
    let memory = if backend != slot.current() || slot.drains() {
        Memory::Write
    } else if entry.backend != BackendRef::NONE {
        Memory::Delete
    } else {
        Memory::Nothing
    };
    Route { backend, path, memory, now_ns }
}

/// A SYN keeps the backend that the same SYN got, while that one takes new flows.
#[inline(always)]
fn syn_kept<T: Tables>(tables: &T, entry: &FlowEntry, now_ns: u64) -> Route {
    let again = now_ns < entry.seen_ns.saturating_add(SYN_RETRANSMIT_NS)
        && in_use(tables, entry.backend)
        && bit(tables, Bitmap::TakesNew, entry.backend);
    let backend = if again { entry.backend } else { BackendRef::NONE };
    Route { backend, path: Path::SynAgain, memory: Memory::Stamp, now_ns }
}

/// An established connection keeps its backend, whatever its health (`on_sick = keep`).
#[inline(always)]
fn tcp_kept<T: Tables>(tables: &T, slot: Slot, entry: &FlowEntry, now_ns: u64) -> Route {
    if in_use(tables, entry.backend) {
        let (backend, path, memory) = (entry.backend, Path::Entry, Memory::Nothing);
        return Route { backend, path, memory, now_ns };
    }
    let memory = if slot.drains() { Memory::Write } else { Memory::Nothing };
    // A slot of no backend is a broken table, not a flow to choose for.
    let backend = if slot.previous() == BackendRef::NONE { BROKEN } else { slot.previous() };
    Route { backend, path: Path::Slot, memory, now_ns }
}

/// A UDP flow keeps its backend while that one serves and the flow is not idle; UDP has no end by
/// which a flow would leave a sick backend.
#[inline(always)]
fn udp_kept<T: Tables>(
    tables: &T,
    slot: Slot,
    entry: &FlowEntry,
    now_ns: u64,
    udp_idle_ns: u64,
) -> Route {
    let fresh = now_ns < entry.seen_ns.saturating_add(udp_idle_ns);
    if fresh && in_use(tables, entry.backend) {
        let serves = bit(tables, Bitmap::ServesOld, entry.backend);
        let backend = if serves { entry.backend } else { BackendRef::NONE };
        let memory = if entry.seen_ns == now_ns { Memory::Nothing } else { Memory::Stamp };
        return Route { backend, path: Path::Entry, memory, now_ns };
    }
    let serves = bit(tables, Bitmap::ServesOld, slot.previous());
    let backend = if serves { slot.previous() } else { BackendRef::NONE };
    let memory = if slot.drains() {
        Memory::Write
    } else if entry.backend != BackendRef::NONE {
        Memory::Delete
    } else {
        Memory::Nothing
    };
    Route { backend, path: Path::Slot, memory, now_ns }
}

#[inline(always)]
fn remember<T: Tables>(tables: &T, flow: &Flow, route: &Route) -> Entry {
    match route.memory {
        Memory::Nothing => Entry::Untouched,
        Memory::Stamp => {
            tables.stamp_entry(flow, route.now_ns);
            Entry::Untouched
        }
        Memory::Write => {
            let entry = FlowEntry { seen_ns: route.now_ns, backend: route.backend, reserved: 0 };
            if tables.write_entry(flow, &entry) { Entry::Written } else { Entry::Refused }
        }
        Memory::Delete => {
            tables.delete_entry(flow);
            Entry::Deleted
        }
    }
}

/// Whether the reference names the use that its index is in now.
#[inline(always)]
fn in_use<T: Tables>(tables: &T, backend: BackendRef) -> bool {
    backend.generation() != 0 && tables.generation(backend.index()) == backend.generation()
}
