//! The program that explains: run on a crafted packet, never attached.
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
    let mut packet = Bytes::of(ctx.ctx);
    // The facts are put away first: the stack has no room for both.
    if !packet.put(EXPLANATION_OFFSET, facts(&packet, &Maps)) {
        return XDP_ABORTED;
    }
    let verdict: Verdict = verdict(&packet, &Maps);
    if packet.put(EXPLANATION_OFFSET + size_of::<Facts>(), verdict) {
        XDP_PASS
    } else {
        XDP_ABORTED
    }
}
