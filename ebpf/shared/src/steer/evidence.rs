//! Samples of packets that reached no backend: as many a second as the budget allows.

use super::outcome::{Dropped, Reason, Record, Steered};
use crate::abi::{
    BackendRef, DROP_BACKEND_SICK_RESET, DROP_BROKEN_TABLE, DROP_NONE_TAKES_NEW,
    DROP_NONE_TAKES_NEW_REFUSED, DROP_REPLY_OVER_BUDGET, DROP_UNRESOLVED, DropRecord,
};
use crate::budget::Purse;
use crate::packet::{FLOW_KEY_WORDS, Headers};
use crate::tables::Memory;

/// Puts a record of a packet that is dropped or refused; what came of it.
#[inline(always)]
pub(super) fn of_dropped<M: Memory>(
    memory: &M,
    headers: &Headers,
    dropped: &Dropped,
    now_ns: u64,
) -> Record {
    let reason = match dropped.reason {
        Reason::BrokenTable => DROP_BROKEN_TABLE,
        Reason::NoneTakesNew => DROP_NONE_TAKES_NEW,
        Reason::NoneTakesNewRefused => DROP_NONE_TAKES_NEW_REFUSED,
        Reason::BackendSick => DROP_BACKEND_SICK_RESET,
        Reason::ReplyOverBudget => DROP_REPLY_OVER_BUDGET,
    };
    let what = What::of(headers, reason, dropped.observe, dropped.service);
    sample(memory, headers, &what, dropped.backend, now_ns)
}

/// Puts a record of a packet that is steered, if its next hop is not known; what came of it.
#[inline(always)]
pub(super) fn of_steered<M: Memory>(
    memory: &M,
    headers: &Headers,
    steered: &Steered,
    now_ns: u64,
) -> Record {
    if steered.next_hop.is_known() {
        return Record::NotTaken;
    }
    let what = What::of(headers, DROP_UNRESOLVED, steered.observe, steered.service);
    sample(memory, headers, &what, steered.backend, now_ns)
}

#[inline(always)]
fn sample<M: Memory>(
    memory: &M,
    headers: &Headers,
    what: &What,
    backend: BackendRef,
    now_ns: u64,
) -> Record {
    let whom = u64::from(backend.0) | u64::from(headers.size_bytes) << 32;
    Record::named(memory.record(&headers.flow.key, what.number(), whom, now_ns))
}

/// What a record says beside the flow's key, its backend and its size.
struct What {
    reason: u8,
    observe: bool,
    protocol: u8,
    family: u8,
    service: u32,
}

impl What {
    #[inline(always)]
    const fn of(headers: &Headers, reason: u8, observe: bool, service: u32) -> Self {
        let flow = &headers.flow;
        Self { reason, observe, protocol: flow.protocol, family: flow.family, service }
    }

    #[inline(always)]
    const fn number(&self) -> u64 {
        let [a, b, c, d] = self.service.to_le_bytes();
        let observe = self.observe as u8;
        u64::from_le_bytes([self.reason, observe, self.protocol, self.family, a, b, c, d])
    }

    #[inline(always)]
    const fn of_number(number: u64) -> Self {
        let [reason, observe, protocol, family, a, b, c, d] = number.to_le_bytes();
        let service = u32::from_le_bytes([a, b, c, d]);
        Self { reason, observe: observe != 0, protocol, family, service }
    }
}

/// Puts a record; see [`Memory::record`].
#[inline(always)]
pub fn record<M: Memory>(
    memory: &M,
    key: &[u32; FLOW_KEY_WORDS],
    what: u64,
    whom: u64,
    now_ns: u64,
) -> u32 {
    if !memory.spend(Purse::DropRecords, now_ns) {
        return Record::NotTaken as u32;
    }
    let what = What::of_number(what);
    let [a, b, c, d, e, f, g, h, v6_ports, _] = *key;
    let (source, destination, ports) = if what.family == 4 {
        ([a, 0, 0, 0], [b, 0, 0, 0], c)
    } else {
        ([a, b, c, d], [e, f, g, h], v6_ports)
    };
    let [source_high, source_low, destination_high, destination_low] = ports.to_ne_bytes();
    let record = DropRecord {
        at_ns: now_ns,
        source: octets(source),
        destination: octets(destination),
        source_port: [source_high, source_low],
        destination_port: [destination_high, destination_low],
        protocol: what.protocol,
        family: what.family,
        reason: what.reason,
        observe: u8::from(what.observe),
        service: what.service,
        backend: BackendRef(whom as u32),
        size_bytes: (whom >> 32) as u32,
        reserved: 0,
    };
    let kept = if memory.put_drop(&record) { Record::Put } else { Record::Lost };
    kept as u32
}

#[inline(always)]
const fn octets(words: [u32; 4]) -> [u8; 16] {
    let [[a, b, c, d], [e, f, g, h], [i, j, k, l], [m, n, o, p]] = [
        words[0].to_ne_bytes(),
        words[1].to_ne_bytes(),
        words[2].to_ne_bytes(),
        words[3].to_ne_bytes(),
    ];
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}
