//! The lab's own programs: the meter, which shows how soon a store into a mapped map is seen on
//! another CPU, and one that passes every packet.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(unsafe_code, reason = "map values are shared memory; the helpers hand out pointers")]

/// Licence and panic handler.
mod object;

use aya_ebpf::bindings::{BPF_F_MMAPABLE, xdp_action};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;

/// Looks at the word in one run: some 10 µs.
const LOOKS: u32 = 8192;
/// Words of [`METER`], each on a cache line of its own: what the other CPU stores ...
const STORED: u32 = 0;
/// ... the value seen last ...
const SEEN: u32 = 8;
/// ... when it was seen, bpf_ktime_get_ns ...
const SEEN_NS: u32 = 16;
/// ... and, not 0: runs are to end at once.
const STOP: u32 = 24;

#[btf_map]
static METER: Array<u64, 32, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Looks at the word again and again, and stamps the first change it sees.
#[xdp]
pub(crate) fn sickbay_meter(_ctx: XdpContext) -> u32 {
    let (Some(stored), Some(seen), Some(seen_ns), Some(stop)) = (
        METER.get_ptr_mut(STORED),
        METER.get_ptr_mut(SEEN),
        METER.get_ptr_mut(SEEN_NS),
        METER.get_ptr_mut(STOP),
    ) else {
        return xdp_action::XDP_ABORTED;
    };
    // SAFETY: elements live as long as the map and are aligned; the other side reads and writes
    // them as whole words too. So for the three blocks below.
    let last = unsafe { seen.read_volatile() };
    // SAFETY: see above.
    if unsafe { stop.read_volatile() } != 0 {
        return xdp_action::XDP_DROP;
    }
    for _ in 0..LOOKS {
        // SAFETY: see above.
        let value = unsafe { stored.read_volatile() };
        if value != last {
            // SAFETY: the helper has no conditions; for the rest see above.
            unsafe {
                seen_ns.write_volatile(bpf_ktime_get_ns());
                seen.write_volatile(value);
            }
            // The next run goes on looking. Going on here would double the verifier's work with
            // every turn.
            return xdp_action::XDP_TX;
        }
    }
    xdp_action::XDP_PASS
}

/// Passes every packet. A veth hands what its peer's XDP_TX sent to the stack at once only when it
/// has a program itself (veth_xdp_flush in veth.c).
#[xdp]
pub(crate) fn sickbay_pass(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
