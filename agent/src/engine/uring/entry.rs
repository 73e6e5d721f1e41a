//! The entries that a probe's chain is made of. What they point to is a static, or its caller's.

use io_uring::types::{DestinationSlot, Fixed};
use io_uring::{opcode, squeue};

use super::super::endpoint::{RawAddress, RawOption};
use super::super::op::{Step, Tag};

/// For TCP_DEFER_ACCEPT, which has its use on a client too: the handshake's last ACK goes with the
/// request, and that of the response with what follows. Of a probe's five segments two are saved
/// (`tcp_rcv_synsent_state_process`). It outlives a reset, as TCP_QUICKACK = 0 does not.
static DEFER: i32 = 1;
/// Once a response goes on: its sender may hold the rest back until the first part is acknowledged
/// (Nagle), and without this that takes 40 ms.
static QUICK_ACK: i32 = 1;
/// Where a connection is connected to that is to be reset: nowhere (`man 2 connect`: AF_UNSPEC).
static NOWHERE: libc::sockaddr =
    libc::sockaddr { sa_family: libc::AF_UNSPEC as libc::sa_family_t, sa_data: [0; 14] };

/// An operation of a chain that ends with `last`.
pub(super) fn linked(
    entry: squeue::Entry,
    step: Step,
    last: Step,
    tag: impl Fn(Step) -> Tag,
) -> squeue::Entry {
    let entry = entry.user_data(tag(step).pack());
    if step == last {
        return entry;
    }
    entry.flags(squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS)
}

/// A socket in the slot, in place of one that may be there.
pub(super) fn socket(slot: u32, address: &RawAddress) -> squeue::Entry {
    let place = DestinationSlot::try_from_slot_target(slot).expect("slots are below 2^31");
    opcode::Socket::new(address.domain(), libc::SOCK_STREAM, address.protocol())
        .file_index(Some(place))
        .build()
}

/// What the slot's socket is told.
pub(super) fn set_option(slot: u32, option: &RawOption) -> squeue::Entry {
    let (pointer, length) = (option.value.as_ptr(), option.value.len() as u32);
    let (level, name) = (option.level as u32, option.name as u32);
    opcode::SetSockOpt::new(Fixed(slot), level, name, pointer.cast(), length).build()
}

/// That its ACKs go with something, if anything goes soon.
pub(super) fn defer_ack(slot: u32) -> squeue::Entry {
    set_tcp(slot, libc::TCP_DEFER_ACCEPT, &DEFER)
}

/// That what is not acknowledged yet is to be, at once.
pub(super) fn quick_ack(slot: u32) -> squeue::Entry {
    set_tcp(slot, libc::TCP_QUICKACK, &QUICK_ACK)
}

/// The end of its connection, by RST if the peer may believe in it; the socket can connect again.
pub(super) fn reset(slot: u32) -> squeue::Entry {
    let length = size_of_val(&NOWHERE) as libc::socklen_t;
    opcode::Connect::new(Fixed(slot), std::ptr::from_ref(&NOWHERE), length).build()
}

fn set_tcp(slot: u32, name: i32, value: &'static i32) -> squeue::Entry {
    let (pointer, length) = (std::ptr::from_ref(value).cast(), size_of::<i32>() as u32);
    let (level, name) = (libc::IPPROTO_TCP as u32, name as u32);
    opcode::SetSockOpt::new(Fixed(slot), level, name, pointer, length).build()
}
