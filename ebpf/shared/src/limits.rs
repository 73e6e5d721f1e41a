//! The bounds that the maps, the loops in the kernel and the agent obey.
//!
//! Each limit stands here once; those that depend on another are related by a const assertion, so
//! that a change of one that breaks the other does not compile.

/// Bits of a [`BackendRef`](crate::abi::BackendRef) that carry the backend index.
pub const BACKEND_INDEX_BITS: u32 = 20;
/// Backends one instance can hold, all pools together.
pub const BACKENDS_MAX: u32 = 1 << BACKEND_INDEX_BITS;
/// Backends in one bitmap word.
pub const WORD_BACKENDS: u32 = 64;
/// Bitmap words in one group of [`GROUP_COUNTS`](crate::abi::GROUP_COUNTS).
pub const GROUP_WORDS: u32 = 32;
/// Groups one pool can span; with [`GROUP_WORDS`] it bounds the loops of the k-th bit search.
pub const POOL_GROUPS_MAX: u32 = 32;
/// Bitmap words one pool can span.
pub const POOL_WORDS_MAX: u32 = GROUP_WORDS * POOL_GROUPS_MAX;
/// Backends one pool can hold.
pub const POOL_BACKENDS_MAX: u32 = POOL_WORDS_MAX * WORD_BACKENDS;
/// Re-hashed tries at finding a living backend through the table before the k-th bit search.
pub const REHASH_TRIES: u32 = 32;
/// Services one instance can hold.
pub const SERVICES_MAX: u32 = 4096;
/// Entries of [`PORT_PREFIXES`](crate::abi::PORT_PREFIXES): what the services' ports may come to.
pub const PORT_PREFIXES_MAX: u32 = 1 << 20;
/// Shards (probing threads, one per core) one instance can have.
pub const SHARDS_MAX: u32 = 256;
/// Slots in the smallest Maglev table.
pub const TABLE_SLOTS_MIN: u32 = 1021;
/// Table slots per backend below which the evenness of Maglev is lost (NSDI'16, section 5.3).
pub const TABLE_SLOTS_PER_BACKEND: u32 = 100;
/// VLAN tags that are read through.
pub const VLAN_TAGS_MAX: usize = 2;
/// Extension headers of one IPv6 packet that are read through.
pub const EXTENSION_HEADERS_MAX: u32 = 8;
/// TCP's, UDP's or ICMP's header begins this many bytes from a packet's first, or before.
pub const TRANSPORT_OFFSET_MAX: usize = 512;
/// Bytes of a refused packet that ICMP quotes: the answer is at most the 576 bytes that any host
/// takes (RFC 1812, 4.3.2.3) ...
pub const QUOTED_V4_BYTES_MAX: usize = 576 - 20 - 8;
/// ... or the 1,280 that any IPv6 link carries (RFC 4443, 2.4 c).
pub const QUOTED_V6_BYTES_MAX: usize = 1280 - 40 - 8;
/// A SYN within this time of the entry its predecessor left is a retransmission of it.
pub const SYN_RETRANSMIT_NS: u64 = 8_000_000_000;
/// A SYN's entry is void when its flow has sent nothing else for this long: the handshake has
/// failed, or has begun anew.
pub const EMBRYONIC_LIFE_NS: u64 = 60_000_000_000;
/// A fragment that comes this much later than its datagram's first is another datagram's: the rest
/// of one follows at once, and identifications come round again.
pub const FRAGMENT_NS: u64 = 5_000_000_000;
/// Bits of a flow's tag that find its line in [`EMBRYONIC`](crate::abi::EMBRYONIC).
pub const EMBRYONIC_LINE_BITS: u32 = 14;
/// Elements of [`EMBRYONIC`](crate::abi::EMBRYONIC): 1 MiB.
pub const EMBRYONIC_LINES: u32 = 1 << EMBRYONIC_LINE_BITS;
/// Entries in one line of it, which give way to each other and to nobody else. Of 10,000 diverted
/// SYNs a second whose next packet comes after 100 ms, one in two million loses its entry to four
/// younger ones.
pub const EMBRYONIC_WAYS: usize = 4;
/// Bits of a flow's hash that find its byte in [`FLOW_MARKS`](crate::abi::FLOW_MARKS). The first
/// ones, as those that find its slot: so flows of one slot have few bytes among them, and a flood
/// that is diverted marks no more than the sick ones' share of all.
pub const FLOW_MARK_BITS: u32 = 18;
/// Bytes in one [`FlowMarks`](crate::abi::FlowMarks).
pub const FLOW_MARKS_BYTES: u32 = 64;
/// Elements of [`FLOW_MARKS`](crate::abi::FLOW_MARKS).
pub const FLOW_MARKS_LINES: u32 = (1 << FLOW_MARK_BITS) / FLOW_MARKS_BYTES;
/// Bytes of the ring buffer [`DROPS`](crate::abi::DROPS): a power of two, whole pages of any size
/// up to 64 KiB.
pub const DROPS_BYTES: u32 = 1 << 18;
/// [`Header::embryonic_inserts_per_second`](crate::abi::Header) unless configured otherwise: a SYN
/// flood on a sick slot costs a CPU at most a thirtieth of its time (0.3 µs for each entry).
pub const EMBRYONIC_INSERTS_PER_SECOND: u32 = 100_000;
/// [`Header::flow_inserts_per_second`](crate::abi::Header) unless configured otherwise.
pub const FLOW_INSERTS_PER_SECOND: u32 = 100_000;
/// [`Header::replies_per_second`](crate::abi::Header) unless configured otherwise.
pub const REPLIES_PER_SECOND: u32 = 1_000;
/// [`Header::drop_records_per_second`](crate::abi::Header) unless configured otherwise.
pub const DROP_RECORDS_PER_SECOND: u32 = 100;

const _: () = assert!(SYN_RETRANSMIT_NS <= EMBRYONIC_LIFE_NS);
const _: () = assert!(DROPS_BYTES.is_power_of_two() && (1 << 16) <= DROPS_BYTES);
const _: () = assert!(POOL_BACKENDS_MAX <= BACKENDS_MAX);
const _: () = assert!(POOL_BACKENDS_MAX == 65_536);
const _: () = assert!(GROUP_WORDS.is_power_of_two() && POOL_GROUPS_MAX.is_power_of_two());
const _: () = assert!(TRANSPORT_OFFSET_MAX.is_power_of_two());
// A quotation that was cut off ends on a word.
const _: () =
    assert!(QUOTED_V4_BYTES_MAX.is_multiple_of(4) && QUOTED_V6_BYTES_MAX.is_multiple_of(4));
