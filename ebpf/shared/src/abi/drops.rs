//! Evidence of packets that were not steered: samples with their tuple.

use core::mem::{offset_of, size_of};

use super::BackendRef;

/// One packet that was dropped or refused (in `observe`: that would have been).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DropRecord {
    /// CLOCK_MONOTONIC_COARSE, in ns.
    pub at_ns: u64,
    /// Client address, network order; IPv4 in the first four bytes, the rest zero.
    pub source: [u8; 16],
    /// VIP, likewise.
    pub destination: [u8; 16],
    /// Network order.
    pub source_port: [u8; 2],
    /// Network order.
    pub destination_port: [u8; 2],
    /// IP protocol.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
    /// [`DROP_NONE_TAKES_NEW`] and its like.
    pub reason: u8,
    /// The service only observes.
    pub observe: u8,
    /// Service index.
    pub service: u32,
    /// The backend, where one was found.
    pub backend: BackendRef,
    /// Bytes of the packet, link layer included.
    pub size_bytes: u32,
    /// Zero.
    pub reserved: u32,
}

/// A new flow, and no backend takes any: dropped.
pub const DROP_NONE_TAKES_NEW: u8 = 1;
/// A new flow, and no backend takes any: refused by an answer.
pub const DROP_NONE_TAKES_NEW_REFUSED: u8 = 2;
/// An established flow of a sick backend: ended by an answer.
pub const DROP_BACKEND_SICK_RESET: u8 = 3;
/// The backend's next hop is not known.
pub const DROP_UNRESOLVED: u8 = 4;
/// The service has no usable table, pool or backend record.
pub const DROP_BROKEN_TABLE: u8 = 5;
/// An answer was due, and the budget for them is spent.
pub const DROP_REPLY_OVER_BUDGET: u8 = 6;

const _: () = {
    assert!(size_of::<DropRecord>() == 64);
    assert!(offset_of!(DropRecord, source_port) == 40);
    assert!(offset_of!(DropRecord, service) == 48);
};
