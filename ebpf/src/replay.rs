//! The bench's own programs around a steering program: one that makes each run of a test-run a
//! packet of the next flow, one that notices whom the packet of the run before was sent to, and what
//! is subtracted from the time of both.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(unsafe_code, reason = "map values are shared memory, packet bytes lie between pointers")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

/// Licence and panic handler.
mod object;

use aya_ebpf::bindings::{BPF_ANY, BPF_F_MMAPABLE, xdp_action};
use aya_ebpf::btf_maps::{Array, LruHashMap, ProgramArray};
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use sickbay_shared::abi::{FlowEntry, FlowKeyV4};

/// Which packet is next.
#[repr(C)]
pub(crate) struct Turn {
    /// The flow whose packet it is.
    position: u64,
    /// Flows that take turns.
    count: u64,
    /// 4 or 6.
    family: u64,
}

/// Words of [`WITNESSED`], each on a cache line of its own: bytes of the destination MAC that the
/// packet was sent to last ...
const SEEN: u32 = 0;
/// ... when it was noticed that they are others, bpf_ktime_get_ns ...
const SEEN_NS: u32 = 8;
/// ... and, not 0: runs are to end at once.
const STOP: u32 = 16;

/// The last word of a source address (low half), then source port and zeros, as the packet has them.
#[btf_map]
static REPLAYED: Array<u64, 64, { BPF_F_MMAPABLE as usize }> = Array::new();
#[btf_map]
static TURN: Array<Turn, 1> = Array::new();
#[btf_map]
static WITNESSED: Array<u64, 32, { BPF_F_MMAPABLE as usize }> = Array::new();
/// The program that is measured.
#[btf_map]
static MEASURED: ProgramArray<1> = ProgramArray::new();
/// What the usual way would keep SYNs' entries in.
#[btf_map]
static INSERTED: LruHashMap<FlowKeyV4, FlowEntry, 64> = LruHashMap::new();

const MACS: [u32; 3] = [
    u32::from_ne_bytes([2, 0, 0, 0]),
    u32::from_ne_bytes([0, 0xfe, 2, 0]),
    u32::from_ne_bytes([0, 0, 0, 0xfd]),
];
/// Where an IPv4 source address, the second half of an IPv6 one, and the ports behind each stand.
const V4_ADDRESS: usize = 14 + 12;
const V4_PORT: usize = 14 + 20;
const V6_ADDRESS: usize = 14 + 8 + 8;
const V6_PORT: usize = 14 + 40;

/// Makes the packet one of the next flow, as it came in, and hands it to the measured program.
#[xdp]
pub(crate) fn sickbay_replay(ctx: XdpContext) -> u32 {
    if !make_next(&ctx) {
        return xdp_action::XDP_ABORTED;
    }
    // SAFETY: nothing here is to be dropped.
    unsafe { MEASURED.tail_call(&ctx, 0) };
    xdp_action::XDP_ABORTED
}

/// Notices whom the measured program sent the packet to in the run before, and lets it run again.
#[xdp]
pub(crate) fn sickbay_witness(ctx: XdpContext) -> u32 {
    let (Some(seen), Some(seen_ns), Some(stop)) =
        (WITNESSED.get_ptr_mut(SEEN), WITNESSED.get_ptr_mut(SEEN_NS), WITNESSED.get_ptr_mut(STOP))
    else {
        return xdp_action::XDP_ABORTED;
    };
    // SAFETY: elements live as long as the map and are aligned; the other side reads and writes
    // them as whole words too. So for the last block below.
    if unsafe { stop.read_volatile() } != 0 {
        return xdp_action::XDP_DROP;
    }
    if ctx.data_end() < ctx.data() + 14 {
        return xdp_action::XDP_ABORTED;
    }
    // SAFETY: the bytes lie before the packet's end, as just checked.
    let sent_to = u64::from(unsafe { ((ctx.data() + 2) as *const u32).read_unaligned() });
    // SAFETY: see above.
    unsafe {
        if seen.read_volatile() != sent_to {
            seen_ns.write_volatile(bpf_ktime_get_ns());
            seen.write_volatile(sent_to);
        }
        MEASURED.tail_call(&ctx, 0);
    }
    xdp_action::XDP_ABORTED
}

/// Does nothing: in the measured program's place, what is subtracted.
#[xdp]
pub(crate) fn sickbay_nothing(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_TX
}

/// Writes an entry of the packet's flow, and does nothing else.
#[xdp]
pub(crate) fn sickbay_insert(ctx: XdpContext) -> u32 {
    if ctx.data_end() < ctx.data() + V4_PORT + 4 {
        return xdp_action::XDP_ABORTED;
    }
    // SAFETY: the bytes lie before the packet's end, as just checked.
    let (addresses, ports) = unsafe {
        (
            ((ctx.data() + V4_ADDRESS) as *const [u8; 8]).read_unaligned(),
            ((ctx.data() + V4_PORT) as *const [u8; 4]).read_unaligned(),
        )
    };
    let [a, b, c, d, e, f, g, h] = addresses;
    let [i, j, k, l] = ports;
    let key = FlowKeyV4 {
        source: [a, b, c, d],
        destination: [e, f, g, h],
        source_port: [i, j],
        destination_port: [k, l],
        protocol: 6,
        reserved: [0; 3],
    };
    let entry = FlowEntry { seen_ns: 1, ..FlowEntry::default() };
    match INSERTED.insert(key, entry, u64::from(BPF_ANY)) {
        Ok(()) => xdp_action::XDP_TX,
        Err(_) => xdp_action::XDP_ABORTED,
    }
}

/// Whether it could: the packet has the room, and there is a next flow.
#[inline(always)]
fn make_next(ctx: &XdpContext) -> bool {
    let Some(turn) = TURN.get_ptr_mut(0) else {
        return false;
    };
    // SAFETY: aligned fields of a map's element; nobody else writes them during a run.
    let (position, count, family) = unsafe { ((*turn).position, (*turn).count, (*turn).family) };
    let Some(&flow) = REPLAYED.get(position as u32) else {
        return false;
    };
    let next = if position + 1 < count { position + 1 } else { 0 };
    // SAFETY: see above.
    unsafe { (*turn).position = next };
    let (data, end) = (ctx.data(), ctx.data_end());
    if end < data + V4_PORT + 4 {
        return false;
    }
    // SAFETY: the bytes lie before the packet's end, as just checked, and below too.
    unsafe { (data as *mut [u32; 3]).write_unaligned(MACS) };
    if family == 4 {
        // SAFETY: see above.
        unsafe {
            ((data + V4_ADDRESS) as *mut u32).write_unaligned(flow as u32);
            put_port(data + V4_PORT, flow);
        }
        return true;
    }
    if end < data + V6_PORT + 4 {
        return false;
    }
    // SAFETY: see above.
    unsafe {
        let half = (data + V6_ADDRESS) as *mut u64;
        half.write_unaligned(second_word(half.read_unaligned(), flow as u32));
        put_port(data + V6_PORT, flow);
    }
    true
}

/// Writes the source port of a flow, together with the destination port that is there.
///
/// What is written here is as wide as what is read of it next. Of a narrower store the CPU could not
/// hand on what is read, and would wait for it: 5 ns of a packet's 80, which none has that came from a
/// wire.
///
/// # Safety
/// Both ports lie within the packet.
#[inline(always)]
unsafe fn put_port(at: usize, flow: u64) {
    let ports = at as *mut u32;
    let port = (flow >> 32) as u16;
    // SAFETY: the caller's promise.
    unsafe { ports.write_unaligned(first_half(ports.read_unaligned(), port)) };
}

/// The two ports with another first one, all as in the packet.
#[inline(always)]
const fn first_half(ports: u32, first: u16) -> u32 {
    if cfg!(target_endian = "little") {
        ports & 0xffff_0000 | first as u32
    } else {
        ports & 0xffff | (first as u32) << 16
    }
}

/// Half an address with another second word, all as in the packet.
#[inline(always)]
const fn second_word(half: u64, second: u32) -> u64 {
    if cfg!(target_endian = "little") {
        half & 0xffff_ffff | (second as u64) << 32
    } else {
        half >> 32 << 32 | second as u64
    }
}

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
