//! The maps, by the names that `sickbay_shared::abi` gives them.
//!
//! The sizes here are the least that load; the loader sets the real ones.

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::btf_maps::{Array, HashMap, LpmTrie, LruHashMap, PerCpuArray, RingBuf};
use aya_ebpf::macros::btf_map;
use sickbay_shared::abi::{
    Backend, BackendCounters, Budget, EmbryonicLine, FlowEntry, FlowKeyV4, FlowKeyV6, FlowMarks,
    FragmentEntry, FragmentKey, GlobalCounters, Header, Heartbeat, Pool, Service, ServiceCounters,
    ServiceKey, Slot, TargetRecord,
};
use sickbay_shared::limits::EMBRYONIC_LINES;

/// An array that the agent maps into its memory.
type Mapped<T> = Array<T, 64, { BPF_F_MMAPABLE as usize }>;
/// What follows the length in an [`AddressPrefixKey`](sickbay_shared::abi::AddressPrefixKey): the
/// map's own type of key begins with that length.
pub(crate) type AddressPrefix = [u8; 20];
/// The same of a [`PortPrefixKey`](sickbay_shared::abi::PortPrefixKey).
pub(crate) type PortPrefix = [u8; 8];

#[btf_map]
pub(crate) static HEADER: Array<Header, 1, { BPF_F_MMAPABLE as usize }> = Array::new();
#[btf_map]
pub(crate) static HEARTBEATS: Mapped<Heartbeat> = Mapped::new();
#[btf_map]
pub(crate) static TAKES_NEW: Mapped<u64> = Mapped::new();
#[btf_map]
pub(crate) static SERVES_OLD: Mapped<u64> = Mapped::new();
#[btf_map]
pub(crate) static ALLOWED: Mapped<u64> = Mapped::new();
#[btf_map]
pub(crate) static GROUP_COUNTS: Mapped<u32> = Mapped::new();
#[btf_map]
pub(crate) static POOLS: Array<Pool, 64> = Array::new();
#[btf_map]
pub(crate) static POOL_COUNTS: Mapped<u64> = Mapped::new();
#[btf_map]
pub(crate) static SERVICE_KEYS: HashMap<ServiceKey, u32, 64> = HashMap::new();
#[btf_map]
pub(crate) static ADDRESS_PREFIXES: LpmTrie<AddressPrefix, u32, 64> = LpmTrie::new();
#[btf_map]
pub(crate) static PORT_PREFIXES: LpmTrie<PortPrefix, u32, 64> = LpmTrie::new();
#[btf_map]
pub(crate) static SERVICES: Mapped<Service> = Mapped::new();
#[btf_map]
pub(crate) static SLOTS: Mapped<Slot> = Mapped::new();
#[btf_map]
pub(crate) static BACKENDS: Mapped<Backend> = Mapped::new();
#[btf_map]
pub(crate) static TARGETS: Mapped<TargetRecord> = Mapped::new();
#[btf_map]
pub(crate) static FLOWS_V4: LruHashMap<FlowKeyV4, FlowEntry, 64> = LruHashMap::new();
#[btf_map]
pub(crate) static FLOWS_V6: LruHashMap<FlowKeyV6, FlowEntry, 64> = LruHashMap::new();
/// Of its real size: what finds a line counts on that.
#[btf_map]
pub(crate) static EMBRYONIC: Array<
    EmbryonicLine,
    { EMBRYONIC_LINES as usize },
    { BPF_F_MMAPABLE as usize },
> = Array::new();
#[btf_map]
pub(crate) static EMBRYONIC_SEEN: Array<u64, 1> = Array::new();
#[btf_map]
pub(crate) static FLOW_MARKS: Mapped<FlowMarks> = Mapped::new();
#[btf_map]
pub(crate) static FRAGMENTS: LruHashMap<FragmentKey, FragmentEntry, 64> = LruHashMap::new();
#[btf_map]
pub(crate) static BUDGETS: PerCpuArray<Budget, 1> = PerCpuArray::new();
/// Of no type: a ring buffer's values have no size, and libbpf refuses one whose type has.
#[btf_map]
pub(crate) static DROPS: RingBuf<(), 4096> = RingBuf::new();
#[btf_map]
pub(crate) static SERVICE_COUNTERS: PerCpuArray<ServiceCounters, 64> = PerCpuArray::new();
#[btf_map]
pub(crate) static BACKEND_COUNTERS: PerCpuArray<BackendCounters, 64> = PerCpuArray::new();
#[btf_map]
pub(crate) static GLOBAL_COUNTERS: PerCpuArray<GlobalCounters, 1> = PerCpuArray::new();
