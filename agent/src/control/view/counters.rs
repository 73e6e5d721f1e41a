//! The kernel's counters, summed over CPUs, as they are shown.

use serde::{Deserialize, Serialize};
use sickbay_shared::abi;

/// [`abi::BackendCounters`], summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field is the counter of that name, documented in the ABI")]
pub struct BackendCountersView {
    pub steered_packets: u64,
    pub steered_bytes: u64,
    pub new_flows: u64,
    pub skipped: u64,
    pub diverted_in: u64,
    pub unresolved: u64,
}

impl From<abi::BackendCounters> for BackendCountersView {
    fn from(counters: abi::BackendCounters) -> Self {
        // Without `..`: a counter that joins the ABI must be shown to compile.
        let abi::BackendCounters {
            steered_packets,
            steered_bytes,
            new_flows,
            skipped,
            diverted_in,
            unresolved,
            reserved: _,
        } = counters;
        Self { steered_packets, steered_bytes, new_flows, skipped, diverted_in, unresolved }
    }
}

/// [`abi::ServiceCounters`], summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field is the counter of that name, documented in the ABI")]
pub struct ServiceCountersView {
    pub steered_packets: u64,
    pub steered_bytes: u64,
    pub new_flows: u64,
    pub skipped: u64,
    pub fell_back: u64,
    pub all_sick_open: u64,
    pub all_sick_dropped: u64,
    pub affinity_hit: u64,
    pub affinity_miss: u64,
    pub entries_written: u64,
    pub entries_refused: u64,
    pub unresolved: u64,
    pub kept_on_sick: u64,
}

impl From<abi::ServiceCounters> for ServiceCountersView {
    fn from(counters: abi::ServiceCounters) -> Self {
        // Without `..`: a counter that joins the ABI must be shown to compile.
        let abi::ServiceCounters {
            steered_packets,
            steered_bytes,
            new_flows,
            skipped,
            fell_back,
            all_sick_open,
            all_sick_dropped,
            affinity_hit,
            affinity_miss,
            entries_written,
            entries_refused,
            unresolved,
            kept_on_sick,
            reserved: _,
        } = counters;
        Self {
            steered_packets,
            steered_bytes,
            new_flows,
            skipped,
            fell_back,
            all_sick_open,
            all_sick_dropped,
            affinity_hit,
            affinity_miss,
            entries_written,
            entries_refused,
            unresolved,
            kept_on_sick,
        }
    }
}

/// [`abi::GlobalCounters`], summed over CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "each field is the counter of that name, documented in the ABI")]
pub struct GlobalCountersView {
    pub not_ip: u64,
    pub not_tcp_udp: u64,
    pub not_service: u64,
    pub not_read: u64,
    pub truncated: u64,
    pub broken_table: u64,
}

impl From<abi::GlobalCounters> for GlobalCountersView {
    fn from(counters: abi::GlobalCounters) -> Self {
        // Without `..`: a counter that joins the ABI must be shown to compile.
        let abi::GlobalCounters {
            not_ip,
            not_tcp_udp,
            not_service,
            not_read,
            truncated,
            broken_table,
            reserved: _,
        } = counters;
        Self { not_ip, not_tcp_udp, not_service, not_read, truncated, broken_table }
    }
}
