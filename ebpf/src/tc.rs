//! The entry point of traffic control: for interfaces whose driver has no XDP.
#![expect(unsafe_code, reason = "the context's fields and the helpers belong to the kernel")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

use core::mem::MaybeUninit;
use core::ptr::addr_of;

use aya_ebpf::bindings::{__sk_buff, TC_ACT_OK, TC_ACT_SHOT};
use aya_ebpf::helpers::generated::{
    bpf_redirect, bpf_skb_change_head, bpf_skb_change_tail, bpf_skb_pull_data,
};
use aya_ebpf::macros::classifier;
use aya_ebpf::programs::TcContext;
use sickbay_shared::counters::count_unread;
use sickbay_shared::packet::{HEADERS_BYTES_USUAL, Headers, Unread, headers_bytes, read};
use sickbay_shared::steer::{Step, decide_read};
use sickbay_shared::tables::{NextHop, Tables};

use crate::packet::{Bytes, Context, empty};
use crate::tables::Maps;
use crate::tables::calls::{CountedStep, decide};

/// Steers a packet at an interface's ingress, after the stack made it an skb.
#[classifier]
pub(crate) fn sickbay_tc(ctx: TcContext) -> i32 {
    let skb = ctx.skb.skb;
    make_headers_readable(skb);
    let mut room = MaybeUninit::uninit();
    let headers = empty(&mut room);
    let unread = read(&Bytes::of(skb), headers);
    if unread != 0 {
        // At once, and not as an outcome: its absent parts would be registers that nothing sets.
        count_unread(Unread::of_number(unread), &Maps);
        return TC_ACT_OK;
    }
    let step =
        Step(decide_read(headers, &Maps, &CountedStep, |index, hash| decide(headers, index, hash)));
    if let Some(backend_index) = step.backend_index() {
        return forward(skb, Maps.next_hop(backend_index));
    }
    match step {
        Step::PASS => TC_ACT_OK,
        Step::REFUSE => checked_apart::sickbay_tc_refuse(skb, headers) as i32,
        Step::ANSWER_ECHO => checked_apart::sickbay_tc_answer_echo(skb, headers) as i32,
        _ => TC_ACT_SHOT,
    }
}

/// An skb may keep its bytes in pieces, of which only the first can be read and written directly.
#[inline(always)]
fn make_headers_readable(skb: *mut __sk_buff) {
    make_readable(skb, HEADERS_BYTES_USUAL);
    if skb.data() + (skb.size_bytes() as usize) <= skb.data_end() {
        return;
    }
    make_readable(skb, headers_bytes(&Bytes::of(skb)));
}

#[inline(always)]
fn make_readable(skb: *mut __sk_buff, bytes: usize) {
    let size_bytes = skb.size_bytes();
    let wanted = if (size_bytes as usize) < bytes { size_bytes } else { bytes as u32 };
    if skb.data() + wanted as usize <= skb.data_end() {
        return;
    }
    // What cannot be pulled in is found truncated, and passes.
    // SAFETY: the context is the program's own; pointers into the packet are taken afterwards.
    let _readable = unsafe { bpf_skb_pull_data(skb, wanted) };
}

#[inline(always)]
fn forward(skb: *mut __sk_buff, next_hop: NextHop) -> i32 {
    // It was known a moment ago.
    if !next_hop.is_known() || !Bytes::of(skb).put(0, next_hop.ethernet_addresses()) {
        return TC_ACT_SHOT;
    }
    // SAFETY: the helper takes two numbers; an interface that is gone drops the packet.
    unsafe { bpf_redirect(next_hop.interface_index, 0) as i32 }
}

impl Context for *mut __sk_buff {
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
        // SAFETY: see above.
        unsafe { (*self).len }
    }

    #[inline(always)]
    fn tags_taken_off(self) -> usize {
        // SAFETY: see above.
        usize::from(unsafe { (*self).vlan_present } != 0)
    }

    #[inline(always)]
    fn trim(self, size_bytes: u32) -> bool {
        // SAFETY: the helper takes the context and a number, and refuses what it cannot do. It
        // makes one writable piece of the packet, and none of several segments.
        unsafe { bpf_skb_change_tail(self, size_bytes, 0) == 0 }
    }

    #[inline(always)]
    fn grow_front(self, bytes: u32) -> bool {
        // SAFETY: see above.
        unsafe { bpf_skb_change_head(self, bytes, 0) == 0 }
    }

    #[inline(always)]
    fn read_into(self, headers: &mut Headers) -> u32 {
        checked_apart::sickbay_tc_read(self, headers)
    }

    #[inline(always)]
    fn walk_extensions(self, start: usize, next: u8) -> u64 {
        checked_apart::sickbay_tc_walk_extensions(self, start as u32, u32::from(next))
    }

    #[inline(always)]
    fn sum_words(self, start: usize, end: usize) -> u64 {
        checked_apart::sickbay_tc_sum_words(self, start as u32, end as u32)
    }
}

/// Global functions; see its namesake in `xdp`.
mod checked_apart {
    use aya_ebpf::bindings::{__sk_buff, TC_ACT_SHOT};
    use aya_ebpf::helpers::generated::{bpf_redirect, bpf_skb_pull_data};
    use sickbay_shared::packet::{Headers, read_into, walk_extensions};
    use sickbay_shared::reply::{answer_echo, refuse, sum_words};

    use crate::packet::Bytes;

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_tc_read(skb: *mut __sk_buff, headers: *mut Headers) -> u32 {
        // SAFETY: the caller's own, and nobody else's meanwhile; the verifier wants it not null.
        match unsafe { headers.as_mut() } {
            Some(headers) => read_into(&Bytes::of(skb), headers),
            None => u32::MAX,
        }
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_tc_walk_extensions(
        skb: *mut __sk_buff,
        start: u32,
        next: u32,
    ) -> u64 {
        walk_extensions(&Bytes::of(skb), start as usize, next as u8)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_tc_sum_words(
        skb: *mut __sk_buff,
        start: u32,
        end: u32,
    ) -> u64 {
        sum_words(&Bytes::of(skb), start as usize, end as usize)
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_tc_refuse(
        skb: *mut __sk_buff,
        headers: *const Headers,
    ) -> u32 {
        // What is quoted must be readable, as well as what is read.
        // SAFETY: the context is the program's own; 0 asks for all that the packet has.
        let readable = unsafe { bpf_skb_pull_data(skb, 0) } == 0;
        // SAFETY: the caller's own, for the time of the call; the verifier wants it not null.
        match unsafe { headers.as_ref() } {
            Some(headers) if readable && refuse(&mut Bytes::of(skb), headers) => send_back(skb),
            _ => TC_ACT_SHOT as u32,
        }
    }

    #[unsafe(no_mangle)]
    #[inline(never)]
    pub(super) extern "C" fn sickbay_tc_answer_echo(
        skb: *mut __sk_buff,
        headers: *const Headers,
    ) -> u32 {
        // SAFETY: see above.
        match unsafe { headers.as_ref() } {
            Some(headers) if answer_echo(&mut Bytes::of(skb), headers) => send_back(skb),
            _ => TC_ACT_SHOT as u32,
        }
    }

    /// Out by the interface that it came in by.
    #[inline(always)]
    fn send_back(skb: *mut __sk_buff) -> u32 {
        // SAFETY: a field of the program's own context, and a helper that takes two numbers.
        unsafe { bpf_redirect((*skb).ifindex, 0) as u32 }
    }
}
