//! The maps: their names, and the structs that stand in them.
//!
//! One definition for the agent, the kernel program, the tests and whoever reads the pinned maps.
//! Every struct is `repr(C)` with explicit padding, and its size and offsets are asserted. Numbers
//! are in host order unless a field says network order. [`ABI_VERSION`] changes with the layout,
//! and a reader checks it in [`Header`] before it believes anything else.

use core::mem::{offset_of, size_of};

use crate::limits::{BACKEND_INDEX_BITS, BACKENDS_MAX};

/// Version of this layout; [`Header::abi_version`] carries it.
pub const ABI_VERSION: u32 = 1;
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
/// ARRAY of u64 by pool index: set bits of [`TAKES_NEW`] in the whole pool. mmapable.
pub const POOL_COUNTS: &str = "POOL_COUNTS";
/// HASH of [`ServiceKey`] to [`Service`].
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
/// PERCPU_ARRAY of [`ServiceCounters`] by service index.
pub const SERVICE_COUNTERS: &str = "SERVICE_COUNTERS";
/// PERCPU_ARRAY of [`BackendCounters`] by backend index.
pub const BACKEND_COUNTERS: &str = "BACKEND_COUNTERS";
/// PERCPU_ARRAY of one [`GlobalCounters`].
pub const GLOBAL_COUNTERS: &str = "GLOBAL_COUNTERS";

/// Every map.
pub const MAPS: [&str; 17] = [
    HEADER,
    HEARTBEATS,
    TAKES_NEW,
    SERVES_OLD,
    ALLOWED,
    GROUP_COUNTS,
    POOLS,
    POOL_COUNTS,
    SERVICES,
    SLOTS,
    BACKENDS,
    TARGETS,
    FLOWS_V4,
    FLOWS_V6,
    SERVICE_COUNTERS,
    BACKEND_COUNTERS,
    GLOBAL_COUNTERS,
];

/// The XDP program's name in the object.
pub const XDP_PROGRAM: &str = "sickbay_xdp";
/// The TC program's name in the object.
pub const TC_PROGRAM: &str = "sickbay_tc";

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
    /// The kernel's boot id: monotonic stamps of another boot mean nothing.
    pub boot_id: [u8; 16],
    /// Backend indices in use are below this.
    pub backend_count: u32,
    /// Target indices in use are below this.
    pub target_count: u32,
    /// A heartbeat older than this is stale, in ns.
    pub heartbeat_limit_ns: u64,
    /// Zero; room for what later versions add.
    pub reserved: [u64; 9],
}

/// One shard's sign of life, alone on its cache line.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Heartbeat {
    /// CLOCK_MONOTONIC_COARSE in ns, the clock of `bpf_ktime_get_coarse_ns` (5.11).
    pub beat_ns: u64,
    /// Zero.
    pub reserved: [u64; 7],
}

/// A backend index with the generation of its use: index:20 | generation:12.
///
/// Generation 0 is never given out, so the zero value names no backend.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct BackendRef(pub u32);

impl BackendRef {
    /// Names no backend.
    pub const NONE: Self = Self(0);
    /// Largest generation; the next one is 1 again.
    pub const GENERATION_MAX: u32 = (1 << (32 - BACKEND_INDEX_BITS)) - 1;

    /// The reference to `index` in its use `generation` (1 ..= [`Self::GENERATION_MAX`]).
    #[inline(always)]
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((index & (BACKENDS_MAX - 1)) | (generation << BACKEND_INDEX_BITS))
    }

    /// The backend index.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 & (BACKENDS_MAX - 1)
    }

    /// The generation of the index's use; 0 = no backend.
    #[inline(always)]
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.0 >> BACKEND_INDEX_BITS
    }
}

/// One Maglev slot, read and written as one u64. `current` ≠ `previous` means that it drains.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slot(pub u64);

impl Slot {
    /// A slot whose flows all belong to `backend`.
    #[inline(always)]
    #[must_use]
    pub const fn settled(backend: BackendRef) -> Self {
        Self::new(backend, backend)
    }

    /// A slot of `current` whose older flows still belong to `previous`.
    #[inline(always)]
    #[must_use]
    pub const fn new(current: BackendRef, previous: BackendRef) -> Self {
        Self((previous.0 as u64) << 32 | current.0 as u64)
    }

    /// Whom new flows belong to.
    #[inline(always)]
    #[must_use]
    pub const fn current(self) -> BackendRef {
        BackendRef(self.0 as u32)
    }

    /// Whom flows without an entry belong to.
    #[inline(always)]
    #[must_use]
    pub const fn previous(self) -> BackendRef {
        BackendRef((self.0 >> 32) as u32)
    }

    /// Whether flows of `previous` may still live.
    #[inline(always)]
    #[must_use]
    pub const fn drains(self) -> bool {
        self.current().0 != self.previous().0
    }
}

/// Where a pool's bits stand in the bitmaps.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pool {
    /// First word; a multiple of `word_count`, so that a pool lies within a group or on whole ones.
    pub first_word: u32,
    /// Words reserved: a power of two, at most
    /// [`POOL_WORDS_MAX`](crate::limits::POOL_WORDS_MAX).
    pub word_count: u32,
    /// Zero.
    pub reserved: [u32; 6],
}

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

/// Where a backend's packets go.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backend {
    /// The next hop's MAC in the low six bytes (first byte of the MAC lowest), [`NEXT_HOP_VALID`]
    /// set when it is known. One u64, so that a change is one store.
    pub next_hop: u64,
    /// The MAC of the interface it leaves by, in the low six bytes.
    pub source_mac: u64,
    /// The interface it leaves by.
    pub interface_index: u32,
    /// Generation of this index's use; see [`BackendRef`].
    pub generation: u32,
    /// Network order; IPv4 in the first four bytes.
    pub address: [u8; 16],
    /// Network order.
    pub port: [u8; 2],
    /// 4 or 6.
    pub family: u8,
    /// The shard that owns this backend's bits.
    pub shard: u8,
    /// Pool index.
    pub pool: u32,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Flag in [`Backend::next_hop`]: the MAC is known.
pub const NEXT_HOP_VALID: u64 = 1 << 48;

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

/// Index of each of Varnish's registers in [`TargetRecord::registers`], in Varnish's order.
pub mod register {
    /// `4`: connected over IPv4.
    pub const GOOD_IPV4: usize = 0;
    /// `6`: connected over IPv6.
    pub const GOOD_IPV6: usize = 1;
    /// `U`: connected over a unix socket.
    pub const GOOD_UNIX: usize = 2;
    /// `x`: sending failed.
    pub const ERR_XMIT: usize = 3;
    /// `X`: sent.
    pub const GOOD_XMIT: usize = 4;
    /// `r`: receiving failed.
    pub const ERR_RECV: usize = 5;
    /// `R`: received.
    pub const GOOD_RECV: usize = 6;
    /// `H`: the result was good.
    pub const HAPPY: usize = 7;
}

/// One target's history: two cache lines, the eight registers and who they belong to.
///
/// Written by the target's shard alone: `sequence` is odd while it writes, `happy` is stored last;
/// a reader that finds it odd, or changed after reading, reads again.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct TargetRecord {
    /// The Varnish registers, newest result in bit 0; see [`register`].
    pub registers: [u64; 8],
    /// Hash of address, port and request: whose history this is.
    pub identity: [u8; 16],
    /// Odd while being written.
    pub sequence: u64,
    /// CLOCK_MONOTONIC of the last determinate result, in ns; 0 = none yet.
    pub last_result_ns: u64,
    /// CLOCK_MONOTONIC of the last change of the verdict, in ns; 0 = none yet.
    pub changed_ns: u64,
    /// Varnish's moving average over happy probes, in seconds.
    pub average_s: f64,
    /// Time of the last complete reception, in µs.
    pub last_us: u32,
    /// HTTP status, or errno, as `cause` says.
    pub detail: u16,
    /// What the last probe came to: the number of the core's outcome.
    pub cause: u8,
    /// The verdict: see [`STATE_WARMING`] and its like.
    pub state: u8,
    /// Probes that ended indeterminate since the last determinate one (saturating).
    pub indeterminate: u32,
    /// Zero.
    pub reserved: u32,
}

/// No verdict yet: not enough results.
pub const STATE_WARMING: u8 = 0;
/// Healthy.
pub const STATE_HEALTHY: u8 = 1;
/// Sick.
pub const STATE_SICK: u8 = 2;
/// No determinate result for too long; keeps the last verdict.
pub const STATE_UNKNOWN: u8 = 3;

/// What happened to a service's packets, per CPU. Never reset.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ServiceCounters {
    /// Packets sent to a backend (in `observe`: that would have been).
    pub steered_packets: u64,
    /// Their bytes, link layer included.
    pub steered_bytes: u64,
    /// New flows given a backend. TCP: SYNs. UDP: packets for which a backend was chosen, their
    /// slot's being sick; a UDP flow that follows its slot is never seen to begin.
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
    /// Entries written.
    pub entries_written: u64,
    /// Entries that could not be written.
    pub entries_refused: u64,
    /// Packets dropped because the backend's next hop is not known.
    pub unresolved: u64,
    /// Packets of flows kept on a backend that is sick.
    pub kept_on_sick: u64,
    /// Zero.
    pub reserved: [u64; 3],
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
    /// Zero.
    pub reserved: [u64; 2],
}

/// What happened to packets that belong to no service, per CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct GlobalCounters {
    /// Passed: neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// Passed: neither TCP nor UDP.
    pub not_tcp_udp: u64,
    /// Passed: to no service's address, port and protocol.
    pub not_service: u64,
    /// Passed: a fragment, extension headers or a second VLAN tag, which this version does not read
    /// through; a header that contradicts itself; a frame to a group of stations.
    pub not_read: u64,
    /// Passed: shorter than its headers say.
    pub truncated: u64,
    /// Dropped (in `observe`: passed): a service without a usable table or backend record; a bug if
    /// it ever moves.
    pub broken_table: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(offset_of!(Header, generation) == 16);
    assert!(offset_of!(Header, boot_id) == 24);
    assert!(offset_of!(Header, heartbeat_limit_ns) == 48);
    assert!(size_of::<Heartbeat>() == 64);
    assert!(size_of::<Pool>() == 32);
    assert!(size_of::<ServiceKey>() == 20);
    assert!(size_of::<Service>() == 64);
    assert!(offset_of!(Service, mode) == 24);
    assert!(offset_of!(Service, udp_idle_ns) == 32);
    assert!(size_of::<Backend>() == 64);
    assert!(offset_of!(Backend, address) == 24);
    assert!(offset_of!(Backend, pool) == 44);
    assert!(size_of::<FlowKeyV4>() == 16);
    assert!(size_of::<FlowKeyV6>() == 40);
    assert!(size_of::<FlowEntry>() == 16);
    assert!(size_of::<TargetRecord>() == 128);
    assert!(offset_of!(TargetRecord, identity) == 64);
    assert!(offset_of!(TargetRecord, sequence) == 80);
    assert!(offset_of!(TargetRecord, average_s) == 104);
    assert!(offset_of!(TargetRecord, state) == 119);
    assert!(size_of::<ServiceCounters>() == 128);
    assert!(size_of::<BackendCounters>() == 64);
    assert!(size_of::<GlobalCounters>() == 64);
};
