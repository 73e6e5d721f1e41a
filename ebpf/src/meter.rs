//! The meter: how soon a store into a mapped map is seen by a program on another CPU.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

/// Licence and panic handler.
mod object;

use aya_ebpf::bindings::xdp_action;
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;

/// Passes every packet.
#[xdp]
pub(crate) fn sickbay_meter(_ctx: XdpContext) -> u32 {
    xdp_action::XDP_PASS
}

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
