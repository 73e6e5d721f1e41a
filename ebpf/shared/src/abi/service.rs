//! Services: what they are looked up by, and their rules.
//!
//! A packet's service is that of its exact address, port and protocol ([`ServiceKey`]); failing
//! that, the longest address prefix it lies in gives a number ([`AddressPrefixKey`]), and that
//! number with protocol and port the service ([`PortPrefixKey`]): first under the packet's own
//! protocol, then under any. The agent resolves beforehand what a longer prefix leaves to a shorter
//! one, and cuts ranges of ports into prefixes, exact before range before any; so two look-ups in
//! tries are enough, whatever was configured.

use core::mem::{offset_of, size_of};

/// What a service of one address, port and protocol is looked up by.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ServiceKey {
    /// The VIP in network order; IPv4 in the first four bytes, the rest zero.
    pub address: [u8; 16],
    /// Destination port in network order; 0 for protocols without ports.
    pub port: [u8; 2],
    /// IP protocol: 6 TCP, 17 UDP, 1 or 58 for [`SERVICE_ECHO`].
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
}

/// Value of [`SERVICE_KEYS`](super::SERVICE_KEYS) and [`PORT_PREFIXES`](super::PORT_PREFIXES) that
/// is no service's index: echo requests to this address are answered.
pub const SERVICE_ECHO: u32 = u32::MAX;

/// A prefix of addresses, as a key of an LPM trie: its length first, in bits, then what is matched.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AddressPrefixKey {
    /// [`Self::BITS_BEFORE`] and the bits of the address that count.
    pub bits: u32,
    /// 4 or 6.
    pub family: u8,
    /// Zero.
    pub reserved: [u8; 3],
    /// Network order; IPv4 in the first four bytes, the rest zero.
    pub address: [u8; 16],
}

impl AddressPrefixKey {
    /// Bits that are matched before the address.
    pub const BITS_BEFORE: u32 = 32;
    /// Bits of a key that is looked up.
    pub const BITS_ALL: u32 = Self::BITS_BEFORE + 128;
}

/// A prefix of port numbers of one protocol within an address prefix, as a key of an LPM trie.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PortPrefixKey {
    /// [`Self::BITS_BEFORE`] and the bits of the port that count.
    pub bits: u32,
    /// The number that [`ADDRESS_PREFIXES`](super::ADDRESS_PREFIXES) gives, in network order.
    pub address_prefix: [u8; 4],
    /// IP protocol; 0 = any.
    pub protocol: u8,
    /// Zero.
    pub reserved: u8,
    /// Destination port in network order; 0 for protocols without ports.
    pub port: [u8; 2],
}

impl PortPrefixKey {
    /// Bits that are matched before the port.
    pub const BITS_BEFORE: u32 = 48;
    /// Bits of a key that is looked up.
    pub const BITS_ALL: u32 = Self::BITS_BEFORE + 16;
}

/// A service's rules and where its tables stand. All that a packet needs lies on the first of its
/// two cache lines.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Service {
    /// Mixed into every flow's hash.
    pub hash_seed: u64,
    /// Service index: its own place in [`SERVICES`](super::SERVICES), and the key of
    /// [`SERVICE_COUNTERS`](super::SERVICE_COUNTERS).
    pub index: u32,
    /// Pool index.
    pub pool: u32,
    /// First slot of its table in [`SLOTS`](super::SLOTS).
    pub slot_first: u32,
    /// Slots of its table (a prime); 0 = this index names no service.
    pub slot_count: u32,
    /// Pool index of the backup pool, which takes new flows when the pool takes none;
    /// [`POOL_NONE`] = there is none.
    pub backup_pool: u32,
    /// First slot of the backup pool's table.
    pub backup_slot_first: u32,
    /// Slots of the backup pool's table; 0 = there is none.
    pub backup_slot_count: u32,
    /// [`MODE_OBSERVE`] or [`MODE_DSR`].
    pub mode: u8,
    /// [`ALL_SICK_OPEN`], [`ALL_SICK_DROP`] or [`ALL_SICK_RESET`].
    pub all_sick: u8,
    /// What becomes of TCP's established flows when their backend turns sick: [`ON_SICK_KEEP`],
    /// [`ON_SICK_REHASH`] or [`ON_SICK_RESET`].
    pub on_sick_tcp: u8,
    /// The same for UDP and every other protocol.
    pub on_sick_udp: u8,
    /// [`STALE_LAST`] or [`STALE_OPEN`].
    pub stale: u8,
    /// [`HASH_BY_FLOW`] or [`HASH_BY_SOURCE`].
    pub hash_by: u8,
    /// Zero.
    pub reserved_bytes: [u8; 6],
    /// Entries of flows other than TCP's that are idle for longer are void, in ns.
    pub udp_idle_ns: u64,
    /// A verdict whose shard has given no sign of life for longer is stale, in ns.
    pub stale_after_ns: u64,
    /// Hash of its name: by this an agent finds the services of the one before it.
    pub identity: u64,
    /// Zero; room for what later versions add.
    pub reserved: [u64; 7],
}

/// No pool.
pub const POOL_NONE: u32 = u32::MAX;

/// Count what would be done; pass every packet.
pub const MODE_OBSERVE: u8 = 0;
/// Direct server return: the packet goes out with the backend's MAC, otherwise untouched.
pub const MODE_DSR: u8 = 1;

/// No backend takes new flows: choose from [`ALLOWED`](super::ALLOWED).
pub const ALL_SICK_OPEN: u8 = 0;
/// No backend takes new flows: drop the packet.
pub const ALL_SICK_DROP: u8 = 1;
/// No backend takes new flows: refuse it with a RST (TCP) or ICMP's port unreachable (UDP).
pub const ALL_SICK_RESET: u8 = 2;

/// A sick backend keeps the flows it has until they close.
pub const ON_SICK_KEEP: u8 = 0;
/// A sick backend's flows go to another one.
pub const ON_SICK_REHASH: u8 = 1;
/// The client of a sick backend's flow is told that it is over: a RST, or port unreachable.
pub const ON_SICK_RESET: u8 = 2;

/// Stale verdicts hold.
pub const STALE_LAST: u8 = 0;
/// A stale verdict condemns nobody: a backend that is allowed takes its flows.
pub const STALE_OPEN: u8 = 1;

/// A flow's slot is found by its addresses, ports and protocol.
pub const HASH_BY_FLOW: u8 = 0;
/// By its source address alone: a client's flows go to one backend.
pub const HASH_BY_SOURCE: u8 = 1;

const _: () = {
    assert!(size_of::<ServiceKey>() == 20);
    assert!(size_of::<AddressPrefixKey>() == 24);
    assert!(offset_of!(AddressPrefixKey, address) == 8);
    assert!(size_of::<PortPrefixKey>() == 12);
    assert!(offset_of!(PortPrefixKey, port) == 10);
    assert!(size_of::<Service>() == 128);
    assert!(offset_of!(Service, backup_pool) == 24);
    assert!(offset_of!(Service, mode) == 36);
    assert!(offset_of!(Service, udp_idle_ns) == 48);
    assert!(offset_of!(Service, identity) == 64);
};
