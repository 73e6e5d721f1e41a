//! What a reader of the maps checks first, and the shards' signs of life.

use core::mem::{offset_of, size_of};

/// What a reader of the maps checks first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_VERSION`] of the writer.
    pub abi_version: u32,
    /// Shards that write heartbeats; at most [`SHARDS_MAX`](crate::limits::SHARDS_MAX).
    pub shard_count: u32,
    /// Grows by one with every configuration put into force.
    pub generation: u64,
    /// The kernel's boot id: monotonic stamps of another boot mean nothing. Also what tags are made
    /// with ([`seed`](crate::embryonic::seed)).
    pub boot_id: [u8; 16],
    /// Backend indices in use are below this.
    pub backend_count: u32,
    /// Target indices in use are below this.
    pub target_count: u32,
    /// A heartbeat older than this is stale, in ns.
    pub heartbeat_limit_ns: u64,
    /// Entries that one CPU may write into [`EMBRYONIC`](super::EMBRYONIC) in one second; 0 = none.
    pub embryonic_inserts_per_second: u32,
    /// Entries that one CPU may write into [`FLOWS_V4`](super::FLOWS_V4) and its like, and into
    /// [`FRAGMENTS`](super::FRAGMENTS), in one second; 0 = none.
    pub flow_inserts_per_second: u32,
    /// Answers in a backend's name (RST, ICMP) that one CPU may send in one second; 0 = none.
    pub replies_per_second: u32,
    /// Records that one CPU may put into [`DROPS`](super::DROPS) in one second; 0 = none.
    pub drop_records_per_second: u32,
    /// [`HEADER_HAS_PREFIXES`].
    pub flags: u32,
    /// Zero.
    pub reserved_word: u32,
    /// Zero; room for what later versions add.
    pub reserved: [u64; 6],
}

/// Flag in [`Header::flags`]: some service is not of one address, port and protocol, so that what
/// [`SERVICE_KEYS`](super::SERVICE_KEYS) does not know is looked for in
/// [`ADDRESS_PREFIXES`](super::ADDRESS_PREFIXES).
pub const HEADER_HAS_PREFIXES: u32 = 1;

/// One shard's sign of life, alone on its cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// CLOCK_MONOTONIC_COARSE in ns, the clock of `bpf_ktime_get_coarse_ns` (5.11).
    pub beat_ns: u64,
    /// Zero.
    pub reserved: [u64; 7],
}

const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(offset_of!(Header, generation) == 16);
    assert!(offset_of!(Header, boot_id) == 24);
    assert!(offset_of!(Header, heartbeat_limit_ns) == 48);
    assert!(offset_of!(Header, flags) == 72);
    assert!(size_of::<Heartbeat>() == 64);
};
