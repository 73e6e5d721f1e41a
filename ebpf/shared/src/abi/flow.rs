//! Flows: how their packets name them, and what is remembered of those that left their slot.

use core::mem::size_of;

use super::BackendRef;
use crate::limits::EMBRYONIC_WAYS;

/// An IPv4 flow as its packets name it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FlowKeyV4 {
    /// Client address, network order.
    pub source: [u8; 4],
    /// VIP, network order.
    pub destination: [u8; 4],
    /// Network order.
    pub source_port: [u8; 2],
    /// Network order.
    pub destination_port: [u8; 2],
    /// IP protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

/// An IPv6 flow as its packets name it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FlowKeyV6 {
    /// Client address, network order.
    pub source: [u8; 16],
    /// VIP, network order.
    pub destination: [u8; 16],
    /// Network order.
    pub source_port: [u8; 2],
    /// Network order.
    pub destination_port: [u8; 2],
    /// IP protocol.
    pub protocol: u8,
    /// Zero.
    pub reserved: [u8; 3],
}

/// Whom a flow belongs to that does not follow its slot.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowEntry {
    /// Monotonic coarse time of the flow's last SYN (TCP) or packet (UDP), in ns.
    pub seen_ns: u64,
    /// The backend.
    pub backend: BackendRef,
    /// Zero.
    pub reserved: u32,
}

/// A SYN's entry. What names its flow is its [`tag`](crate::embryonic::tag), which is
/// [`Self::check`] ^ [`Self::whom`]: two words of two different stores have another one, so that a
/// reader sees both of one or none (Hyatt and Mann, "A lockless transposition-table implementation
/// for parallel search", ICGA 25(1), 2002).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EmbryonicEntry {
    /// The tag ^ [`Self::whom`].
    pub check: u64,
    /// The backend (low 32 bits), and when the SYN came, in
    /// [`TICK_BITS`](crate::embryonic::TICK_BITS); 0 = no entry.
    pub whom: u64,
}

/// The entries of flows whose tags lead here: one cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EmbryonicLine {
    /// In no order.
    pub ways: [EmbryonicEntry; EMBRYONIC_WAYS],
}

/// Whether flows of some hashes have been given entries: a cache line of bytes, one for each range.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FlowMarks {
    /// The bytes, eight to a word, in memory's order.
    pub words: [u64; 8],
}

/// What the fragments of one datagram have in common (RFC 791, 3.2; RFC 8200, 4.5).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct FragmentKey {
    /// Client address, network order; IPv4 in the first four bytes, the rest zero.
    pub source: [u8; 16],
    /// VIP, likewise.
    pub destination: [u8; 16],
    /// As the packet has it; IPv4's 16 bits in the first two bytes, the rest zero.
    pub identification: [u8; 4],
    /// IP protocol in IPv4. Zero in IPv6, where a datagram's fragments need not name the same.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// Zero.
    pub reserved: [u8; 2],
}

/// Whom a datagram's fragments follow: the first one, which has the ports.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FragmentEntry {
    /// Monotonic coarse time of the first fragment, in ns.
    pub seen_ns: u64,
    /// The backend.
    pub backend: BackendRef,
    /// Service index.
    pub service: u32,
}

/// What one CPU has spent of its budgets in a second; the kernel program's own.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Budget {
    /// The second, by the monotonic coarse clock.
    pub second: u64,
    /// Entries written, by [`Header::embryonic_inserts_per_second`](super::Header).
    pub embryonic_inserts: u32,
    /// Entries written, by [`Header::flow_inserts_per_second`](super::Header).
    pub flow_inserts: u32,
    /// Answers sent, by [`Header::replies_per_second`](super::Header).
    pub replies: u32,
    /// Records put, by [`Header::drop_records_per_second`](super::Header).
    pub drop_records: u32,
}

const _: () = {
    assert!(size_of::<FlowKeyV4>() == 16);
    assert!(size_of::<FlowKeyV6>() == 40);
    assert!(size_of::<FlowEntry>() == 16);
    assert!(size_of::<EmbryonicEntry>() == 16);
    assert!(size_of::<EmbryonicLine>() == 64);
    assert!(size_of::<FlowMarks>() == 64);
    assert!(size_of::<FragmentKey>() == 40);
    assert!(size_of::<FragmentEntry>() == 16);
    assert!(size_of::<Budget>() == 24);
};
