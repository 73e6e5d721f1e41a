//! Counters, per CPU; never reset.

use core::mem::size_of;

/// What happened to a service's packets, per CPU. Never reset.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ServiceCounters {
    /// Packets sent to a backend (in `observe`: that would have been).
    pub steered_packets: u64,
    /// Their bytes, link layer included.
    pub steered_bytes: u64,
    /// New flows given a backend. TCP: SYNs. UDP: packets for which a backend was chosen; where
    /// `on_sick` is rehash, only those whose slot's was sick, for a UDP flow that follows its slot
    /// is not seen to begin.
    pub new_flows: u64,
    /// New flows whose slot's backend does not take new flows, so another was looked for.
    pub skipped: u64,
    /// Of these, flows that needed the k-th bit search after the re-hashed tries.
    pub fell_back: u64,
    /// New flows given a backend although none takes new flows (`all_sick = open`).
    pub all_sick_open: u64,
    /// New flows dropped because none takes new flows (`all_sick = drop`, or `open` when no backend
    /// is allowed either).
    pub all_sick_dropped: u64,
    /// Packets that followed an entry, retransmitted SYNs included.
    pub affinity_hit: u64,
    /// Packets of established flows that followed their slot, having no entry.
    pub affinity_miss: u64,
    /// Entries written, those of datagrams' first fragments included.
    pub entries_written: u64,
    /// Entries that could not be written, most often because the budget for them was spent.
    pub entries_refused: u64,
    /// Packets dropped because the backend's next hop is not known.
    pub unresolved: u64,
    /// Packets of flows kept on a backend that is sick.
    pub kept_on_sick: u64,
    /// New flows given to the backup pool.
    pub backup: u64,
    /// New flows given to a backend that is allowed because too few of the pool take new flows
    /// (`panic_threshold`).
    pub panic_open: u64,
    /// New flows given to a backend that is allowed because the verdict against it is stale
    /// (`stale = open`).
    pub stale_open: u64,
    /// Established flows that left a sick backend for another (`on_sick = rehash`).
    pub moved_off_sick: u64,
    /// Packets answered in a backend's name: RST, or port unreachable.
    pub reset: u64,
    /// Packets dropped because an answer was due and the budget for them was spent.
    pub reset_over_budget: u64,
    /// Entries that moved from the embryonic map to the lasting one: the flow's second packet.
    pub promoted: u64,
    /// Later fragments that followed their first.
    pub fragments: u64,
    /// ICMP errors that followed the flow they tell of.
    pub icmp_errors: u64,
    /// Zero.
    pub reserved: [u64; 10],
}

/// What happened to a backend's packets, per CPU. Never reset.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BackendCounters {
    /// Packets sent to it (in `observe`: that would have been).
    pub steered_packets: u64,
    /// Their bytes, link layer included.
    pub steered_bytes: u64,
    /// New flows given to it.
    pub new_flows: u64,
    /// New flows that its slots would have brought, and that went elsewhere because it is sick.
    pub skipped: u64,
    /// New flows given to it in place of another.
    pub diverted_in: u64,
    /// Packets dropped because its next hop is not known.
    pub unresolved: u64,
    /// Packets of its flows answered in its name because it is sick.
    pub reset: u64,
    /// Established flows that left it because it is sick.
    pub moved_away: u64,
}

/// What happened to packets that belong to no service, per CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GlobalCounters {
    /// Passed: neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// Passed: to no service, and neither TCP nor UDP.
    pub not_tcp_udp: u64,
    /// Passed: TCP or UDP, to no service's address, port and protocol.
    pub not_service: u64,
    /// Passed: a third VLAN tag, more or longer IPv6 extension headers than are read through, a
    /// header that contradicts itself; a frame to or from a group of stations.
    pub not_read: u64,
    /// Passed: shorter than its headers say.
    pub truncated: u64,
    /// Dropped (in `observe`: passed): a service without a usable table or backend record; a bug if
    /// it ever moves.
    pub broken_table: u64,
    /// Answered: echo requests to a service's address.
    pub echo_answered: u64,
    /// Passed: later fragments whose first was not steered here within five seconds.
    pub fragment_unknown: u64,
    /// Passed: ICMP that concerns no service's flow, and is no echo request that is answered.
    pub icmp_unrelated: u64,
    /// Records that found no room in [`DROPS`](super::DROPS).
    pub drop_records_lost: u64,
    /// Zero.
    pub reserved: [u64; 6],
}

const _: () = {
    assert!(size_of::<ServiceCounters>() == 256);
    assert!(size_of::<BackendCounters>() == 64);
    assert!(size_of::<GlobalCounters>() == 128);
};
