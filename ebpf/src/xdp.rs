//! The entry point of a network interface's driver.
#![expect(unsafe_code, reason = "the context's fields and the helpers belong to the kernel")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use core::mem::MaybeUninit;
use core::ptr::addr_of;

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_TX};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::helpers::generated::{
    bpf_redirect, bpf_xdp_adjust_head, bpf_xdp_adjust_tail, bpf_xdp_get_buff_len,
};
use aya_ebpf::macros::xdp;
use aya_ebpf::programs::XdpContext;
use sickbay_shared::counters::count_unread;
use sickbay_shared::packet::{Headers, Unread, read};
use sickbay_shared::steer::{Step, decide_read};
use sickbay_shared::tables::{NextHop, Tables};

use crate::packet::{Bytes, Context, empty};
use crate::tables::Maps;
use crate::tables::calls::{CountedStep, decide};

/// The index of a network namespace's loopback, by which the packets of a test-run come.
const LOOPBACK: usize = 1;

/// Steers a packet that an interface's driver received.
#[xdp]
pub(crate) fn sickbay_xdp(ctx: XdpContext) -> u32 {
    if !crate::STEERS_EVERYWHERE && ctx.ingress_ifindex() != LOOPBACK {
        return XDP_PASS;
    }
    let mut room = MaybeUninit::uninit();
    let headers = empty(&mut room);
    let unread = read(&Bytes::of(ctx.ctx), headers);
    if unread != 0 {
        // At once, and not as an outcome: its absent parts would be registers that nothing sets.
        count_unread(Unread::of_number(unread), &Maps);
        return XDP_PASS;
    }
    let step =
        Step(decide_read(headers, &Maps, &CountedStep, |index, hash| decide(headers, index, hash)));
    if let Some(backend_index) = step.backend_index() {
        return forward(&ctx, Maps.next_hop(backend_index));
    }
    match step {
        Step::PASS => XDP_PASS,
        Step::REFUSE => checked_apart::sickbay_xdp_refuse(ctx.ctx, headers),
        Step::ANSWER_ECHO => checked_apart::sickbay_xdp_answer_echo(ctx.ctx, headers),
        _ => XDP_DROP,
    }
}

#[inline(always)]
fn forward(ctx: &XdpContext, next_hop: NextHop) -> u32 {
    // It was known a moment ago.
    if !next_hop.is_known() || !Bytes::of(ctx.ctx).put(0, next_hop.ethernet_addresses()) {
        return XDP_DROP;
    }
    if next_hop.interface_index == ctx.ingress_ifindex() as u32 {
        return XDP_TX;
    }
    // SAFETY: the helper takes two numbers; an interface that is gone drops the packet.
    unsafe { bpf_redirect(next_hop.interface_index, 0) as u32 }
}

impl Context for *mut xdp_md {
    #[inline(always)]
    fn data(self) -> usize {
        // Volatile: a pointer that is asked for anew is another one, of which nothing is known.
        // SAFETY: a field of the program's own context; the same holds for the others below.
        unsafe { addr_of!((*self).data).read_volatile() as usize }
    }

    #[inline(always)]
    fn data_end(self) -> usize {
        // SAFETY: see above.
        unsafe { addr_of!((*self).data_end).read_volatile() as usize }
    }

    #[inline(always)]
    fn size_bytes(self) -> u32 {
        (self.data_end() - self.data()) as u32
    }

    #[inline(always)]
    fn tags_taken_off(self) -> usize {
        0
    }

    #[inline(always)]
    fn trim(self, size_bytes: u32) -> bool {
        // The difference of the pointers would be reordered into sums that the verifier refuses.
        // SAFETY: the helpers take the context and a number, and refuse what they cannot do.
        unsafe {
            let change = size_bytes as i32 - bpf_xdp_get_buff_len(self) as i32;
            bpf_xdp_adjust_tail(self, change) == 0
        }
    }

    #[inline(always)]
    fn grow_front(self, bytes: u32) -> bool {
        // SAFETY: see above.
        unsafe { bpf_xdp_adjust_head(self, -(bytes as i32)) == 0 }
    }

    #[inline(always)]
    fn read_into(self, headers: &mut Headers) -> u32 {
        checked_apart::sickbay_xdp_read(self, headers)
    }

    #[inline(always)]
    fn walk_extensions(self, start: usize, next: u8) -> u64 {
        checked_apart::sickbay_xdp_walk_extensions(self, start as u32, u32::from(next))
    }

    #[inline(always)]
    fn sum_words(self, start: usize, end: usize) -> u64 {
        checked_apart::sickbay_xdp_sum_words(self, start as u32, end as u32)
    }
}

/// Global functions, for the reasons that `tables::calls` gives. Those that answer are rare, and
/// apart for another one too: the verifier would walk through them anew for every path of the
/// decision that leads to them.
mod checked_apart {
    use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_TX};
    use aya_ebpf::bindings::xdp_md;
    use sickbay_shared::packet::{Headers, read_into, walk_extensions};
    use sickbay_shared::reply::{answer_echo, refuse, sum_words};

    use crate::packet::Bytes;

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_xdp_read(ctx: *mut xdp_md, headers: *mut Headers) -> u32 {
        // SAFETY: the caller's own, and nobody else's meanwhile; the verifier wants it not null.
        match unsafe { headers.as_mut() } {
            Some(headers) => read_into(&Bytes::of(ctx), headers),
            None => u32::MAX,
        }
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_xdp_walk_extensions(
        ctx: *mut xdp_md,
        start: u32,
        next: u32,
    ) -> u64 {
        walk_extensions(&Bytes::of(ctx), start as usize, next as u8)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_xdp_sum_words(ctx: *mut xdp_md, start: u32, end: u32) -> u64 {
        sum_words(&Bytes::of(ctx), start as usize, end as usize)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_xdp_refuse(ctx: *mut xdp_md, headers: *const Headers) -> u32 {
        // SAFETY: the caller's own, for the time of the call; the verifier wants it not null.
        match unsafe { headers.as_ref() } {
            Some(headers) if refuse(&mut Bytes::of(ctx), headers) => XDP_TX,
            _ => XDP_DROP,
        }
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_xdp_answer_echo(
        ctx: *mut xdp_md,
        headers: *const Headers,
    ) -> u32 {
        // SAFETY: the caller's own, for the time of the call; the verifier wants it not null.
        match unsafe { headers.as_ref() } {
            Some(headers) if answer_echo(&mut Bytes::of(ctx), headers) => XDP_TX,
            _ => XDP_DROP,
        }
    }
}
