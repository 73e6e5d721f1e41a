//! How much memory the kernel needs for the maps: from the types that stand in them.
//!
//! After what `map_mem_usage` reports in 6.x (kernel/bpf/arraymap.c, hashtab.c, lpm_trie.c,
//! ringbuf.c), which is what `bpftool map` and a map's fdinfo show as `memlock`.

use std::mem::size_of;

use sickbay_shared::abi;

use super::sizes::Sizes;

/// `struct htab_elem` before the key.
const HASH_ELEMENT_BYTES: u64 = 48;
/// `struct bucket` of a hash.
const HASH_BUCKET_BYTES: u64 = 16;
/// `struct lpm_trie_node` before the key's bytes.
const TRIE_NODE_BYTES: u64 = 40;
/// A pointer for each element of a per-CPU array.
const POINTER_BYTES: u64 = 8;

/// What kind of map it is, with the bytes of its key and its value.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Array { value: usize },
    PerCpuArray { value: usize },
    Hash { key: usize, value: usize },
    Trie { key: usize, value: usize },
    RingBuffer,
}

/// Bytes of kernel memory that the maps of `sizes` take on a machine of `cpu_count` CPUs, when they
/// are full.
#[must_use]
pub fn map_bytes(sizes: &Sizes, cpu_count: u32) -> u64 {
    sizes.maps().map(|(name, entries)| one_map_bytes(name, entries, cpu_count)).sum()
}

/// The same of one map, by its name in the ABI.
#[must_use]
pub fn one_map_bytes(name: &str, entries: u32, cpu_count: u32) -> u64 {
    let entries = u64::from(entries);
    let words = |bytes: usize| (bytes as u64).next_multiple_of(8);
    match kind(name) {
        Kind::Array { value } => (entries * words(value)).next_multiple_of(4096),
        Kind::PerCpuArray { value } => {
            entries * (POINTER_BYTES + words(value) * u64::from(cpu_count))
        }
        Kind::Hash { key, value } => {
            let element = HASH_ELEMENT_BYTES + words(key) + words(value);
            entries * element + entries.next_power_of_two() * HASH_BUCKET_BYTES
        }
        // A trie of n keys has up to n - 1 nodes between them.
        Kind::Trie { key, value } => 2 * entries * (TRIE_NODE_BYTES + words(key - 4 + value)),
        Kind::RingBuffer => entries + 3 * 4096,
    }
}

fn kind(name: &str) -> Kind {
    let array = |value| Kind::Array { value };
    let index = size_of::<u32>();
    let flow = size_of::<abi::FlowEntry>();
    match name {
        abi::HEADER => array(size_of::<abi::Header>()),
        abi::HEARTBEATS => array(size_of::<abi::Heartbeat>()),
        abi::GROUP_COUNTS => array(size_of::<u32>()),
        abi::POOLS => array(size_of::<abi::Pool>()),
        abi::SERVICES => array(size_of::<abi::Service>()),
        abi::SLOTS => array(size_of::<abi::Slot>()),
        abi::BACKENDS => array(size_of::<abi::Backend>()),
        abi::TARGETS => array(size_of::<abi::TargetRecord>()),
        abi::SERVICE_KEYS => Kind::Hash { key: size_of::<abi::ServiceKey>(), value: index },
        abi::ADDRESS_PREFIXES => {
            Kind::Trie { key: size_of::<abi::AddressPrefixKey>(), value: index }
        }
        abi::PORT_PREFIXES => Kind::Trie { key: size_of::<abi::PortPrefixKey>(), value: index },
        abi::FLOWS_V4 => Kind::Hash { key: size_of::<abi::FlowKeyV4>(), value: flow },
        abi::FLOWS_V6 => Kind::Hash { key: size_of::<abi::FlowKeyV6>(), value: flow },
        abi::EMBRYONIC => array(size_of::<abi::EmbryonicLine>()),
        abi::FLOW_MARKS => array(size_of::<abi::FlowMarks>()),
        abi::FRAGMENTS => Kind::Hash {
            key: size_of::<abi::FragmentKey>(),
            value: size_of::<abi::FragmentEntry>(),
        },
        abi::BUDGETS => Kind::PerCpuArray { value: size_of::<abi::Budget>() },
        abi::SERVICE_COUNTERS => Kind::PerCpuArray { value: size_of::<abi::ServiceCounters>() },
        abi::BACKEND_COUNTERS => Kind::PerCpuArray { value: size_of::<abi::BackendCounters>() },
        abi::GLOBAL_COUNTERS => Kind::PerCpuArray { value: size_of::<abi::GlobalCounters>() },
        abi::DROPS => Kind::RingBuffer,
        // Bitmaps, and the pools' counts.
        _ => array(size_of::<u64>()),
    }
}

#[cfg(test)]
mod tests {
    use sickbay_core::maglev::{Member, table_size};

    use super::*;

    /// 64 services of pools of 1,024 backends each, with default entry maps.
    #[test]
    fn sixty_four_services_and_65536_backends_take_less_than_200_mb() {
        let members = vec![Member { identity: 0, weight: 1 }; 1024];
        let slots = table_size(&members).slot_count;
        let sizes = Sizes {
            shards: 8,
            backends: 65_536,
            targets: 65_536,
            services: 64,
            slots: 64 * slots,
            pools: 64,
            service_keys: 64,
            ..Sizes::default()
        };
        let of = |cpu_count| map_bytes(&sizes, cpu_count);
        assert!(of(8) < 200_000_000, "{} bytes", of(8));
        // By hand, with 16 + 16 + 48 and 40 + 16 + 48 bytes an entry and 16 a bucket.
        let flows = 262_144 * (96 + 120);
        assert!(flows + u64::from(64 * slots * 8) < of(1), "{} bytes", of(1));
    }

    /// Beside what was measured: 1,048,576 LRU entries take 101 MB (v4) and 126 MB (v6).
    #[test]
    fn a_million_entries_take_what_was_measured() {
        assert_eq!(one_map_bytes("FLOWS_V4", 1 << 20, 2), 100_663_296);
        assert_eq!(one_map_bytes("FLOWS_V6", 1 << 20, 2), 125_829_120);
    }
}
