//! The bench's peer: the same work as it is usually done. Every flow has an entry, every packet reads
//! the clock, and asks the routing table for its next hop. IPv4 and TCP alone, no options, no health.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(unsafe_code, reason = "map values are shared memory, packet bytes lie between pointers")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

/// Licence and panic handler.
mod object;

use aya_ebpf::EbpfContext as _;
use aya_ebpf::bindings::{
    BPF_ANY, BPF_F_MMAPABLE, bpf_fib_lookup as FibLookup, bpf_fib_lookup__bindgen_ty_3,
    bpf_fib_lookup__bindgen_ty_4, xdp_action,
};
use aya_ebpf::btf_maps::{Array, HashMap, LruHashMap, PerCpuArray};
use aya_ebpf::helpers::generated::{bpf_fib_lookup, bpf_ktime_get_ns};
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use sickbay_shared::hash::{below, flow_hash};
use sickbay_shared::packet::Flow;

/// Packets and bytes.
#[repr(C)]
pub(crate) struct Counted {
    packets: u64,
    bytes: u64,
}

/// Whose a flow is.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    seen_ns: u64,
    backend: u64,
}

/// Address (low half), port and protocol of a service, to its index.
#[btf_map]
static PEER_SERVICES: HashMap<u64, u32, 64> = HashMap::new();
/// The table that names a backend for each hash.
#[btf_map]
static PEER_SLOTS: Array<u32, 65537, { BPF_F_MMAPABLE as usize }> = Array::new();
/// Addresses as packets have them.
#[btf_map]
static PEER_BACKENDS: Array<u32, 65536> = Array::new();
#[btf_map]
static PEER_FLOWS: LruHashMap<[u32; 4], Entry, 64> = LruHashMap::new();
#[btf_map]
static PEER_SERVICE_COUNTERS: PerCpuArray<Counted, 64> = PerCpuArray::new();
#[btf_map]
static PEER_BACKEND_COUNTERS: PerCpuArray<Counted, 65536> = PerCpuArray::new();

const SLOT_COUNT: u32 = 65_537;
const NETWORK: usize = 14;
const TRANSPORT: usize = NETWORK + 20;
const TCP: u32 = 6;
const FLAGS: usize = TRANSPORT + 13;
const SYN: u8 = 2;
/// AF_INET
const FAMILY: u8 = 2;

/// Sends a packet of a service to its flow's backend.
#[xdp]
pub(crate) fn sickbay_peer(ctx: XdpContext) -> u32 {
    let (data, end) = (ctx.data(), ctx.data_end());
    if end < data + TRANSPORT + 20 {
        return xdp_action::XDP_PASS;
    }
    // SAFETY: the bytes lie before the packet's end, as just checked; so below.
    let (kind, header, ports, flags) = unsafe {
        (
            ((data + 12) as *const u16).read_unaligned(),
            ((data + NETWORK) as *const [u32; 5]).read_unaligned(),
            ((data + TRANSPORT) as *const u32).read_unaligned(),
            ((data + FLAGS) as *const u8).read_unaligned(),
        )
    };
    let is_tcp = header[2].to_ne_bytes()[1] == 6;
    if u16::from_be(kind) != 0x0800 || header[0].to_ne_bytes()[0] != 0x45 || !is_tcp {
        return xdp_action::XDP_PASS;
    }
    let service_key = u64::from(header[4]) | u64::from(ports >> 16) << 32 | 6 << 48;
    // SAFETY: values are numbers, stored whole.
    let Some(&service) = (unsafe { PEER_SERVICES.get(service_key) }) else {
        return xdp_action::XDP_PASS;
    };
    let key = [header[3], header[4], ports, TCP];
    let Some(backend) = backend_of(&key, flags & SYN != 0) else {
        return xdp_action::XDP_DROP;
    };
    let Some(&address) = PEER_BACKENDS.get(backend) else {
        return xdp_action::XDP_DROP;
    };
    count(&PEER_SERVICE_COUNTERS, service, end - data);
    count(&PEER_BACKEND_COUNTERS, backend, end - data);
    send(&ctx, header[3], address)
}

/// Whom the flow's entry names, or else, and for every SYN, the table.
#[inline(always)]
fn backend_of(key: &[u32; 4], opens: bool) -> Option<u32> {
    // SAFETY: the helper takes nothing and reads a clock.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if !opens && let Some(entry) = PEER_FLOWS.get_ptr_mut(key) {
        // SAFETY: an evicted entry's memory stays an entry.
        unsafe {
            (*entry).seen_ns = now_ns;
            return Some((*entry).backend as u32);
        }
    }
    let [source, destination, ports, _] = *key;
    let hash = flow_hash(&Flow::v4(source, destination, ports, 6), 7);
    let backend = *PEER_SLOTS.get(below(hash, SLOT_COUNT))?;
    let entry = Entry { seen_ns: now_ns, backend: u64::from(backend) };
    let _full = PEER_FLOWS.insert(key, entry, u64::from(BPF_ANY));
    Some(backend)
}

#[inline(always)]
fn count<const ENTRIES: usize>(map: &PerCpuArray<Counted, ENTRIES>, index: u32, bytes: usize) {
    if let Some(counted) = map.get_ptr_mut(index) {
        // SAFETY: this CPU's own element; programs of one CPU do not run inside one another.
        unsafe {
            (*counted).packets += 1;
            (*counted).bytes += bytes as u64;
        }
    }
}

#[inline(always)]
fn send(ctx: &XdpContext, source: u32, address: u32) -> u32 {
    // SAFETY: integers and arrays of them, for all of which zero is a value.
    let mut fib: FibLookup = unsafe { core::mem::zeroed() };
    fib.family = FAMILY;
    fib.ifindex = ctx.ingress_ifindex() as u32;
    fib.__bindgen_anon_3 = bpf_fib_lookup__bindgen_ty_3 { ipv4_src: source };
    fib.__bindgen_anon_4 = bpf_fib_lookup__bindgen_ty_4 { ipv4_dst: address };
    // SAFETY: the parameters are this function's own.
    let found =
        unsafe { bpf_fib_lookup(ctx.as_ptr(), &raw mut fib, size_of::<FibLookup>() as i32, 0) };
    let data = ctx.data();
    if found != 0 || ctx.data_end() < data + 12 {
        return xdp_action::XDP_ABORTED;
    }
    // SAFETY: the bytes lie before the packet's end, as just checked.
    unsafe {
        (data as *mut [u8; 6]).write(fib.dmac);
        ((data + 6) as *mut [u8; 6]).write(fib.smac);
    }
    xdp_action::XDP_TX
}

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
