//! The program that explains: run on a crafted packet, never attached.
#![expect(unsafe_code, reason = "the explanation is written over the packet's bytes")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use aya_ebpf::bindings::xdp_action::{XDP_ABORTED, XDP_PASS};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use sickbay_shared::abi::{EXPLANATION_OFFSET, Facts, Verdict};
use sickbay_shared::explain::{facts, verdict};

use crate::packet::Bytes;
use crate::tables::Maps;

/// Decides of a packet over the live maps, and writes why into the packet.
#[xdp]
pub(crate) fn sickbay_explain(ctx: XdpContext) -> u32 {
    let (data, data_end) = (ctx.data(), ctx.data_end());
    let size_bytes = (data_end - data) as u32;
    let packet = Bytes { data, data_end, size_bytes, tags_taken_off: 0 };
    // The facts are put away first: the stack has no room for both.
    if !write(&packet, EXPLANATION_OFFSET, facts(&packet, &Maps)) {
        return XDP_ABORTED;
    }
    let verdict: Verdict = verdict(&packet, &Maps);
    if write(&packet, EXPLANATION_OFFSET + size_of::<Facts>(), verdict) {
        XDP_PASS
    } else {
        XDP_ABORTED
    }
}

#[inline(always)]
fn write<T>(packet: &Bytes, offset: usize, value: T) -> bool {
    let start = packet.data + offset;
    if packet.data_end < start + size_of::<T>() {
        return false;
    }
    // SAFETY: the bytes lie below data_end, as just checked; the verifier checks it again, and lets
    // unaligned stores into packets pass where the machine has them.
    unsafe { (start as *mut T).write_unaligned(value) };
    true
}
