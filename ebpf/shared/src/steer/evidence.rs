//! Samples of packets that reached no backend: as many a second as the budget allows.

use super::outcome::{Outcome, Reason, Record};
use crate::abi::{
    BackendRef, DROP_BACKEND_SICK_RESET, DROP_BROKEN_TABLE, DROP_NONE_TAKES_NEW,
    DROP_NONE_TAKES_NEW_REFUSED, DROP_REPLY_OVER_BUDGET, DROP_UNRESOLVED, DropRecord,
};
use crate::budget::Purse;
use crate::packet::Flow;
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
    if !memory.spend(Purse::DropRecords, now_ns) {
        return;
    }
    let mut record = described(flow);
    record.at_ns = now_ns;
    record.reason = reason;
    record.observe = u8::from(observe);
    record.service = service;
    record.backend = backend;
    record.size_bytes = size_bytes;
    let kept = if memory.put_drop(&record) { Record::Put } else { Record::Lost };
    match outcome {
        Outcome::Dropped(dropped) => dropped.record = kept,
        Outcome::Steered(steered) => steered.record = kept,
        _ => {}
    }
}

/// A record of nothing but the flow.
#[inline(always)]
fn described(flow: &Flow) -> DropRecord {
    let [a, b, c, d, e, f, g, h, v6_ports, _] = flow.key;
    let (source, destination, ports) = if flow.family == 4 {
        ([a, 0, 0, 0], [b, 0, 0, 0], c)
    } else {
        ([a, b, c, d], [e, f, g, h], v6_ports)
    };
    let [source_high, source_low, destination_high, destination_low] = ports.to_ne_bytes();
    DropRecord {
        at_ns: 0,
        source: octets(source),
        destination: octets(destination),
        source_port: [source_high, source_low],
        destination_port: [destination_high, destination_low],
        protocol: flow.protocol,
        family: flow.family,
        reason: 0,
        observe: 0,
        service: 0,
        backend: BackendRef::NONE,
        size_bytes: 0,
        reserved: 0,
    }
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
