//! Counters: which of them a packet moves, as a function of what was decided of it.

use crate::abi::{BackendCounters, GlobalCounters, ServiceCounters};
use crate::packet::Unread;
use crate::steer::{Entry, Outcome, Path, Steered};

/// Where the counters stand. One that does not exist is not moved.
pub trait Counters {
    /// The counters of packets that belong to no service.
    fn global(&self, count: impl FnOnce(&mut GlobalCounters));
    /// A service's.
    fn service(&self, index: u32, count: impl FnOnce(&mut ServiceCounters));
    /// A backend's.
    fn backend(&self, index: u32, count: impl FnOnce(&mut BackendCounters));
}

/// Moves the counters of one packet.
#[inline(always)]
pub fn count<C: Counters>(outcome: &Outcome, counters: &C) {
    match outcome {
        Outcome::Unread(reason) => counters.global(|all| match reason {
            Unread::NotIp => all.not_ip += 1,
            Unread::NotTcpUdp => all.not_tcp_udp += 1,
            Unread::NotRead => all.not_read += 1,
            Unread::Truncated => all.truncated += 1,
        }),
        Outcome::NotService => counters.global(|all| all.not_service += 1),
        Outcome::BrokenTable { .. } => counters.global(|all| all.broken_table += 1),
        Outcome::NoneTakesNew { service, .. } => counters.service(*service, |service| {
            service.skipped += 1;
            service.all_sick_dropped += 1;
        }),
        Outcome::Steered(steered) => count_steered(steered, counters),
    }
}

#[inline(always)]
fn count_steered<C: Counters>(steered: &Steered, counters: &C) {
    let known = steered.next_hop.is_known();
    let bytes = u64::from(steered.size_bytes);
    counters.service(steered.service, |service| {
        count_path(steered.path, service);
        match steered.entry {
            Entry::Untouched | Entry::Deleted => {}
            Entry::Written => service.entries_written += 1,
            Entry::Refused => service.entries_refused += 1,
        }
        service.kept_on_sick += u64::from(steered.kept_on_sick);
        if known {
            service.steered_packets += 1;
            service.steered_bytes += bytes;
        } else {
            service.unresolved += 1;
        }
    });
    let opens = !matches!(steered.path, Path::Entry | Path::Slot);
    let chosen = opens && steered.path != Path::SynAgain;
    let diverted = chosen && steered.backend != steered.slot_backend;
    counters.backend(steered.backend.index(), |backend| {
        backend.new_flows += u64::from(opens);
        backend.diverted_in += u64::from(diverted);
        if known {
            backend.steered_packets += 1;
            backend.steered_bytes += bytes;
        } else {
            backend.unresolved += 1;
        }
    });
    if diverted {
        counters.backend(steered.slot_backend.index(), |backend| backend.skipped += 1);
    }
}

#[inline(always)]
const fn count_path(path: Path, service: &mut ServiceCounters) {
    match path {
        Path::Current => service.new_flows += 1,
        Path::Rehashed => {
            service.new_flows += 1;
            service.skipped += 1;
        }
        Path::Searched => {
            service.new_flows += 1;
            service.skipped += 1;
            service.fell_back += 1;
        }
        Path::Open => {
            service.new_flows += 1;
            service.skipped += 1;
            service.all_sick_open += 1;
        }
        Path::SynAgain => {
            service.new_flows += 1;
            service.affinity_hit += 1;
        }
        Path::Entry => service.affinity_hit += 1,
        Path::Slot => service.affinity_miss += 1,
    }
}
