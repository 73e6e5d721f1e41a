//! The entry point of traffic control.

use aya_ebpf::bindings::TC_ACT_OK;
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;

/// Steers a packet at an interface's ingress, after the stack made it an skb.
#[classifier]
pub(crate) fn sickbay_tc(_ctx: TcContext) -> i32 {
    TC_ACT_OK
}
