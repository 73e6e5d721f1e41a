//! Flows: how their packets name them, and what is remembered of those that left their slot.

use core::mem::size_of;

use super::BackendRef;

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

const _: () = {
    assert!(size_of::<FlowKeyV4>() == 16);
    assert!(size_of::<FlowKeyV6>() == 40);
    assert!(size_of::<FlowEntry>() == 16);
};
