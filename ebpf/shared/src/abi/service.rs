//! Services: what they are looked up by, and their rules.

use core::mem::{offset_of, size_of};

/// What a service is looked up by. Exact match only in this version.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ServiceKey {
    /// The VIP in network order; IPv4 in the first four bytes, the rest zero.
    pub address: [u8; 16],
    /// Destination port in network order.
    pub port: [u8; 2],
    /// IP protocol: 6 TCP, 17 UDP.
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
}

/// A service's rules and where its table stands.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Service {
    /// Mixed into every flow's hash.
    pub hash_seed: u64,
    /// Service index, the key of [`SERVICE_COUNTERS`].
    pub index: u32,
    /// Pool index.
    pub pool: u32,
    /// First slot of its table in [`SLOTS`].
    pub slot_first: u32,
    /// Slots of its table (a prime).
    pub slot_count: u32,
    /// [`MODE_OBSERVE`] or [`MODE_DSR`].
    pub mode: u8,
    /// [`ALL_SICK_OPEN`] or [`ALL_SICK_DROP`].
    pub all_sick: u8,
    /// [`ON_SICK_KEEP`]; what becomes of established flows.
    pub on_sick: u8,
    /// Zero.
    pub reserved_bytes: [u8; 5],
    /// UDP entries idle for longer are void, in ns.
    pub udp_idle_ns: u64,
    /// Zero; room for what later versions add.
    pub reserved: [u64; 3],
}

/// Count what would be done; pass every packet.
pub const MODE_OBSERVE: u8 = 0;
/// Direct server return: the packet goes out with the backend's MAC, otherwise untouched.
pub const MODE_DSR: u8 = 1;
/// No backend takes new flows: choose from [`ALLOWED`].
pub const ALL_SICK_OPEN: u8 = 0;
/// No backend takes new flows: drop the packet.
pub const ALL_SICK_DROP: u8 = 1;
/// A sick backend keeps the flows it has until they close.
pub const ON_SICK_KEEP: u8 = 0;

const _: () = {
    assert!(size_of::<ServiceKey>() == 20);
    assert!(size_of::<Service>() == 64);
    assert!(offset_of!(Service, mode) == 24);
    assert!(offset_of!(Service, udp_idle_ns) == 32);
};
