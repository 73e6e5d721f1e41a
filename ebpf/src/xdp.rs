//! The entry point of a network interface's driver.
#![expect(unsafe_code, reason = "the redirect is a helper of the kernel")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_TX};
use aya_ebpf::helpers::generated::bpf_redirect;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use sickbay_shared::counters::count;
use sickbay_shared::steer::{Action, decide};
use sickbay_shared::tables::NextHop;

use crate::packet::Bytes;
use crate::tables::Maps;

/// Steers a packet that an interface's driver received.
#[xdp]
pub(crate) fn sickbay_xdp(ctx: XdpContext) -> u32 {
    let (data, data_end) = (ctx.data(), ctx.data_end());
    let size_bytes = (data_end - data) as u32;
    let packet = Bytes { data, data_end, size_bytes, tags_taken_off: 0 };
    let outcome = decide(&packet, &Maps, &Maps);
    count(&outcome, &Maps);
    match outcome.action() {
        Action::Pass => XDP_PASS,
        Action::Drop | Action::Refuse => XDP_DROP,
        Action::Forward(next_hop) => forward(&ctx, &packet, next_hop),
    }
}

#[inline(always)]
fn forward(ctx: &XdpContext, packet: &Bytes, next_hop: NextHop) -> u32 {
    if !packet.write_addresses(next_hop.ethernet_addresses()) {
        return XDP_DROP;
    }
    if next_hop.interface_index == ctx.ingress_ifindex() as u32 {
        return XDP_TX;
    }
    // SAFETY: the helper takes two numbers; an interface that is gone drops the packet.
    unsafe { bpf_redirect(next_hop.interface_index, 0) as u32 }
}
