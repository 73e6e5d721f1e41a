//! The meter: how soon a store into a mapped map is seen by a program on another CPU.
//!
//! Run by test-run while another CPU stores: it spins on one word until its bit differs from what
//! it was, and stamps that. The other CPU stamps its store with the same clock, CLOCK_MONOTONIC.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(
    unsafe_code,
    reason = "map values are shared memory; the clock is a helper"
)]

/// Licence and panic handler.
mod object;

use aya_ebpf::bindings::BPF_F_MMAPABLE;
use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_PASS};
use aya_ebpf::btf_maps::Array;
use aya_ebpf::helpers::generated::bpf_ktime_get_ns;
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;

/// Looks at the word in one call of [`sickbay_look`], and calls in one run: some 0.1 ms together.
/// The caller runs the program until it has seen.
const LOOKS: u32 = 2_000;
const CALLS: u32 = 100;

/// One u64 whose bit 0 the measuring side flips.
#[btf_map]
static METER_WORD: Array<u64, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// One u64: CLOCK_MONOTONIC in ns when the last flip was seen.
#[btf_map]
static METER_SEEN: Array<u64, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// One u64: bit 0 as it was when last seen. The program's own.
#[btf_map]
static METER_LAST: Array<u64, 1, { BPF_F_MMAPABLE as usize }> = Array::new();

/// Waits for a flip and stamps it: `XDP_PASS` when it was seen, `XDP_ABORTED` when not yet.
#[xdp]
pub(crate) fn sickbay_meter(_ctx: XdpContext) -> u32 {
    for _ in 0..CALLS {
        if sickbay_look() != 0 {
            return XDP_PASS;
        }
    }
    XDP_ABORTED
}

/// Whether a flip was seen and stamped. Global: the verifier checks its loop once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn sickbay_look() -> u32 {
    look().map_or(0, |()| 1)
}

#[inline(always)]
fn look() -> Option<()> {
    let word = METER_WORD.get_ptr(0)?;
    let seen = METER_SEEN.get_ptr_mut(0)?;
    let last = METER_LAST.get_ptr_mut(0)?;
    // SAFETY: elements of the maps live as long as the program; whole aligned loads and stores.
    unsafe {
        let before = last.read_volatile() & 1;
        for _ in 0..LOOKS {
            let now = word.read_volatile() & 1;
            if now != before {
                seen.write_volatile(bpf_ktime_get_ns());
                last.write_volatile(now);
                return Some(());
            }
        }
    }
    None
}

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
