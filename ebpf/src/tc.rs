//! The entry point of traffic control: for interfaces whose driver has no XDP.
#![expect(unsafe_code, reason = "the context's fields and the redirect belong to the kernel")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use aya_ebpf::bindings::{TC_ACT_OK, TC_ACT_SHOT};
use aya_ebpf::helpers::generated::{bpf_redirect, bpf_skb_pull_data};
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use sickbay_shared::counters::count;
use sickbay_shared::packet::HEADERS_BYTES_MAX;
use sickbay_shared::steer::{Action, decide};
use sickbay_shared::tables::NextHop;

use crate::packet::Bytes;
use crate::tables::Maps;

/// Steers a packet at an interface's ingress, after the stack made it an skb.
#[classifier]
pub(crate) fn sickbay_tc(ctx: TcContext) -> i32 {
    make_headers_readable(&ctx);
    let packet = bytes(&ctx);
    let outcome = decide(&packet, &Maps, &Maps);
    count(&outcome, &Maps);
    match outcome.action() {
        Action::Pass => TC_ACT_OK,
        Action::Drop | Action::Refuse => TC_ACT_SHOT,
        Action::Forward(next_hop) => forward(&packet, next_hop),
    }
}

/// An skb may keep its bytes in pieces, of which only the first can be read and written directly.
#[inline(always)]
fn make_headers_readable(ctx: &TcContext) {
    let wanted =
        if (ctx.len() as usize) < HEADERS_BYTES_MAX { ctx.len() } else { HEADERS_BYTES_MAX as u32 };
    if ctx.data() + wanted as usize <= ctx.data_end() {
        return;
    }
    // What cannot be pulled in is found truncated, and passes.
    // SAFETY: the context is the program's own; pointers into the packet are taken afterwards.
    let _readable = unsafe { bpf_skb_pull_data(ctx.skb.skb, wanted) };
}

#[inline(always)]
fn bytes(ctx: &TcContext) -> Bytes {
    // SAFETY: a field of the program's own context.
    let tag_taken_off = unsafe { (*ctx.skb.skb).vlan_present } != 0;
    Bytes {
        data: ctx.data(),
        data_end: ctx.data_end(),
        size_bytes: ctx.len(),
        tags_taken_off: usize::from(tag_taken_off),
    }
}

#[inline(always)]
fn forward(packet: &Bytes, next_hop: NextHop) -> i32 {
    if !packet.write_addresses(next_hop.ethernet_addresses()) {
        return TC_ACT_SHOT;
    }
    // SAFETY: the helper takes two numbers; an interface that is gone drops the packet.
    unsafe { bpf_redirect(next_hop.interface_index, 0) as i32 }
}
