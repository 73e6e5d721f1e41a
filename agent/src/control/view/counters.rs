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
    pub reset: u64,
    pub moved_away: u64,
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
            reset,
            moved_away,
        } = counters;
        Self {
            steered_packets,
            steered_bytes,
            new_flows,
            skipped,
            diverted_in,
            unresolved,
            reset,
            moved_away,
        }
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
    pub backup: u64,
    pub panic_open: u64,
    pub stale_open: u64,
    pub moved_off_sick: u64,
    pub reset: u64,
    pub reset_over_budget: u64,
    pub promoted: u64,
    pub fragments: u64,
    pub icmp_errors: u64,
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
            backup,
            panic_open,
            stale_open,
            moved_off_sick,
            reset,
            reset_over_budget,
            promoted,
            fragments,
            icmp_errors,
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
            backup,
            panic_open,
            stale_open,
            moved_off_sick,
            reset,
            reset_over_budget,
            promoted,
            fragments,
            icmp_errors,
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
    pub echo_answered: u64,
    pub fragment_unknown: u64,
    pub icmp_unrelated: u64,
    pub drop_records_lost: u64,
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
            echo_answered,
            fragment_unknown,
            icmp_unrelated,
            drop_records_lost,
            reserved: _,
        } = counters;
        Self {
            not_ip,
            not_tcp_udp,
            not_service,
            not_read,
            truncated,
            broken_table,
            echo_answered,
            fragment_unknown,
            icmp_unrelated,
            drop_records_lost,
        }
    }
}
