//! The entry point of a network interface's driver.

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;

use crate::maps;

/// Steers a packet that an interface's driver received.
#[xdp]
pub(crate) fn sickbay_xdp(_ctx: XdpContext) -> u32 {
    touch();
    xdp_action::XDP_PASS
}

#[inline(never)]
fn touch() {
    let _ = maps::HEADER.get(0);
    let _ = maps::HEARTBEATS.get(0);
    let _ = maps::TAKES_NEW.get(0);
}
