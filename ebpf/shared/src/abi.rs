//! The maps: their names, and the structs that stand in them.
//!
//! One definition for the agent, the kernel program, the tests and whoever reads the pinned maps.
//! Every struct is `repr(C)` with explicit padding, and its size and offsets are asserted. Numbers
//! are in host order unless a field says network order. [`ABI_VERSION`] changes with the layout,
//! and a reader checks it in [`Header`] before it believes anything else.

/// Backends and the pools they stand in.
mod backend;
/// Counters, per CPU.
mod counters;
/// Samples of dropped packets.
mod drops;
/// What the program that explains leaves.
mod explanation;
/// Flows and their entries.
mod flow;
/// What a reader checks first.
mod header;
/// Services and their keys.
mod service;
/// Backend references and slots.
mod slot;
/// Probe targets.
mod target;

pub use backend::*;
pub use counters::*;
pub use drops::*;
pub use explanation::*;
pub use flow::*;
pub use header::*;
pub use service::*;
pub use slot::*;
pub use target::*;

/// Version of this layout, major:16 | minor:16: 1.1. [`Header::abi_version`] carries it. What comes
/// later adds to it, or drops a map that the agent can begin anew, and raises the minor; a reader of
/// another major believes nothing. 1.1 has [`EMBRYONIC`] in place of two LRU hashes.
pub const ABI_VERSION: u32 = 1 << 16 | 1;
/// First word of [`Header`]: "sickbay" and a NUL, read as a little-endian number.
pub const MAGIC: u64 = u64::from_le_bytes(*b"sickbay\0");

/// ARRAY of one [`Header`], mmapable.
pub const HEADER: &str = "HEADER";
/// ARRAY of [`Heartbeat`], one per shard, mmapable.
pub const HEARTBEATS: &str = "HEARTBEATS";
/// ARRAY of u64 words, bit = backend index: takes new flows. mmapable.
pub const TAKES_NEW: &str = "TAKES_NEW";
/// ARRAY of u64 words: serves the flows it has (clear = sick or forced sick). mmapable.
pub const SERVES_OLD: &str = "SERVES_OLD";
/// ARRAY of u64 words: what fail-open may choose from (a member, not drained, not forced sick).
/// mmapable.
pub const ALLOWED: &str = "ALLOWED";
/// ARRAY of u32: set bits of [`TAKES_NEW`] per group of
/// [`GROUP_WORDS`](crate::limits::GROUP_WORDS) words, by word index / GROUP_WORDS. Meaningful for
/// pools larger than a group, which are aligned to groups. mmapable.
pub const GROUP_COUNTS: &str = "GROUP_COUNTS";
/// ARRAY of [`Pool`] by pool index.
pub const POOLS: &str = "POOLS";
/// ARRAY of u64 by pool index, mmapable: the set bits of [`TAKES_NEW`] in the whole pool (low 32
/// bits) and [`POOL_PANICS`], changed together.
pub const POOL_COUNTS: &str = "POOL_COUNTS";
/// HASH of [`ServiceKey`] to a service index (u32), or [`SERVICE_ECHO`].
pub const SERVICE_KEYS: &str = "SERVICE_KEYS";
/// LPM_TRIE of [`AddressPrefixKey`] to the number (u32) that stands for it in [`PORT_PREFIXES`].
pub const ADDRESS_PREFIXES: &str = "ADDRESS_PREFIXES";
/// LPM_TRIE of [`PortPrefixKey`] to a service index (u32), or [`SERVICE_ECHO`].
pub const PORT_PREFIXES: &str = "PORT_PREFIXES";
/// ARRAY of [`Service`] by service index, mmapable.
pub const SERVICES: &str = "SERVICES";
/// ARRAY of [`Slot`]: the Maglev tables of all services, one after the other. mmapable.
pub const SLOTS: &str = "SLOTS";
/// ARRAY of [`Backend`] by backend index, mmapable.
pub const BACKENDS: &str = "BACKENDS";
/// ARRAY of [`TargetRecord`] by target index, mmapable.
pub const TARGETS: &str = "TARGETS";
/// LRU_HASH of [`FlowKeyV4`] to [`FlowEntry`]: the flows that do not follow their slot.
pub const FLOWS_V4: &str = "FLOWS_V4";
/// LRU_HASH of [`FlowKeyV6`] to [`FlowEntry`].
pub const FLOWS_V6: &str = "FLOWS_V6";
/// ARRAY of [`EmbryonicLine`], mmapable: SYNs whose flow has sent nothing else yet, of both address families, so
/// that a flood of them flushes no flow that matters. Found by [`embryonic`](crate::embryonic).
pub const EMBRYONIC: &str = "EMBRYONIC";
/// ARRAY of one u64: when an entry was last put or stamped in [`EMBRYONIC`], by the
/// monotonic coarse clock, in ns. While that is longer ago than such an entry lives
/// ([`EMBRYONIC_LIFE_NS`](crate::limits::EMBRYONIC_LIFE_NS)), no packet looks there.
pub const EMBRYONIC_SEEN: &str = "EMBRYONIC_SEEN";
/// ARRAY of [`FlowMarks`], mmapable: a byte for each range of flow hashes
/// ([`flow_mark`](crate::hash::flow_mark)), not 0 when a flow of that range has been given an entry in
/// one of these maps. Of a flow whose byte is 0 no packet looks for an entry. Set before the entry is
/// written, and never cleared.
pub const FLOW_MARKS: &str = "FLOW_MARKS";
/// LRU_HASH of [`FragmentKey`] to [`FragmentEntry`].
pub const FRAGMENTS: &str = "FRAGMENTS";
/// PERCPU_ARRAY of one [`Budget`].
pub const BUDGETS: &str = "BUDGETS";
/// RINGBUF of [`DropRecord`].
pub const DROPS: &str = "DROPS";
/// PERCPU_ARRAY of [`ServiceCounters`] by service index.
pub const SERVICE_COUNTERS: &str = "SERVICE_COUNTERS";
/// PERCPU_ARRAY of [`BackendCounters`] by backend index.
pub const BACKEND_COUNTERS: &str = "BACKEND_COUNTERS";
/// PERCPU_ARRAY of one [`GlobalCounters`].
pub const GLOBAL_COUNTERS: &str = "GLOBAL_COUNTERS";

/// Every map.
pub const MAPS: [&str; 26] = [
    HEADER,
    HEARTBEATS,
    TAKES_NEW,
    SERVES_OLD,
    ALLOWED,
    GROUP_COUNTS,
    POOLS,
    POOL_COUNTS,
    SERVICE_KEYS,
    ADDRESS_PREFIXES,
    PORT_PREFIXES,
    SERVICES,
    SLOTS,
    BACKENDS,
    TARGETS,
    FLOWS_V4,
    FLOWS_V6,
    EMBRYONIC,
    EMBRYONIC_SEEN,
    FLOW_MARKS,
    FRAGMENTS,
    BUDGETS,
    DROPS,
    SERVICE_COUNTERS,
    BACKEND_COUNTERS,
    GLOBAL_COUNTERS,
];

/// The XDP program's name in the object.
pub const XDP_PROGRAM: &str = "sickbay_xdp";
/// The TC program's name in the object.
pub const TC_PROGRAM: &str = "sickbay_tc";
/// The name of the XDP program that explains, and is never attached; see [`Explanation`].
pub const EXPLAIN_PROGRAM: &str = "sickbay_explain";
