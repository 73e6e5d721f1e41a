//! Samples of packets that reached no backend: as many a second as the budget allows.

use super::outcome::{Outcome, Reason, Record};
use crate::abi::{
    BackendRef, DROP_BACKEND_SICK_RESET, DROP_BROKEN_TABLE, DROP_NONE_TAKES_NEW,
    DROP_NONE_TAKES_NEW_REFUSED, DROP_REPLY_OVER_BUDGET, DROP_UNRESOLVED, DropRecord,
};
use crate::budget::Purse;
use crate::packet::{FLOW_KEY_WORDS, Flow};
use crate::tables::Memory;

/// Puts a record of the packet, if it reached no backend, and notes in the outcome what came of it.
#[inline(always)]
pub(super) fn sample<M: Memory>(
    memory: &M,
    flow: &Flow,
    outcome: &mut Outcome,
    size_bytes: u32,
    now_ns: u64,
) {
    let (reason, service, backend, observe) = match outcome {
        Outcome::Dropped(dropped) => {
            let reason = match dropped.reason {
                Reason::BrokenTable => DROP_BROKEN_TABLE,
                Reason::NoneTakesNew => DROP_NONE_TAKES_NEW,
                Reason::NoneTakesNewRefused => DROP_NONE_TAKES_NEW_REFUSED,
                Reason::BackendSick => DROP_BACKEND_SICK_RESET,
                Reason::ReplyOverBudget => DROP_REPLY_OVER_BUDGET,
            };
            (reason, dropped.service, dropped.backend, dropped.observe)
        }
        Outcome::Steered(steered) if !steered.next_hop.is_known() => {
            (DROP_UNRESOLVED, steered.service, steered.backend, steered.observe)
        }
        _ => return,
    };
    let what = What { reason, observe, protocol: flow.protocol, family: flow.family, service };
    let whom = u64::from(backend.0) | u64::from(size_bytes) << 32;
    let record = Record::named(memory.record(&flow.key, what.number(), whom, now_ns));
    match outcome {
        Outcome::Dropped(dropped) => dropped.record = record,
        Outcome::Steered(steered) => steered.record = record,
        _ => {}
    }
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
