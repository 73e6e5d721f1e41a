//! What the program [`EXPLAIN_PROGRAM`](super::EXPLAIN_PROGRAM) leaves in the packet it is run on.
//!
//! It is run by test-run on a frame of at least [`EXPLANATION_OFFSET`] + 120 bytes whose headers end
//! before the offset, and returns `XDP_PASS`; `XDP_ABORTED` on a shorter one. It decides over the
//! live maps, and changes nothing in them.

use core::mem::{offset_of, size_of};

use super::{BackendRef, FlowEntry, Slot};

/// Where the [`Explanation`] stands in the frame afterwards.
pub const EXPLANATION_OFFSET: usize = 256;

/// What is known of a flow, and what was decided of its packet.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Explanation {
    /// What the decision found.
    pub facts: Facts,
    /// What it came to.
    pub verdict: Verdict,
}

/// What the decision found. All zero, but for the service, where there is none.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Facts {
    /// CLOCK_MONOTONIC_COARSE, in ns.
    pub at_ns: u64,
    /// The flow's hash.
    pub hash: u64,
    /// Its slot, as it stands.
    pub slot: Slot,
    /// Its entry; one of [`BackendRef::NONE`] when it has none.
    pub entry: FlowEntry,
    /// The pool's word of [`POOL_COUNTS`](super::POOL_COUNTS).
    pub pool_count: u64,
    /// The backup pool's; 0 when there is none.
    pub backup_pool_count: u64,
    /// When the shard that judges the slot's backend last gave a sign of life, in ns.
    pub sign_of_life_ns: u64,
    /// Service index; [`SERVICE_ECHO`](super::SERVICE_ECHO), or `u32::MAX - 1`: no service.
    pub service: u32,
    /// Number of the slot in the service's table.
    pub slot_index: u32,
    /// Which of the re-hashed tries finds somebody who takes new flows, from 1; 0 = none of them.
    pub try_that_finds: u32,
    /// The slot's backend: [`BIT_TAKES_NEW`] and its like.
    pub slot_backend_bits: u8,
    /// The entry's backend, likewise.
    pub entry_backend_bits: u8,
    /// 1 = the entry is embryonic.
    pub entry_is_embryonic: u8,
    /// 1 = the packet opens a connection.
    pub opens: u8,
}

/// What the decision came to.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verdict {
    /// See [`Backend::next_hop`](super::Backend::next_hop).
    pub next_hop: u64,
    /// See [`Backend::source_mac`](super::Backend::source_mac).
    pub source_mac: u64,
    /// The interface the packet leaves by.
    pub interface_index: u32,
    /// The backend it goes to; the sick one of a flow that is ended.
    pub backend: BackendRef,
    /// Whom it might have gone to.
    pub left: BackendRef,
    /// [`VERDICT_UNREAD`] and its like.
    pub outcome: u8,
    /// Number of the path, or of the reason why it is unread or dropped, in the order of their lists.
    pub why: u8,
    /// Number of what would become of the entry.
    pub entry: u8,
    /// 1 = the backend is sick and keeps the flow.
    pub kept_on_sick: u8,
    /// 1 = the service only observes: the packet passes.
    pub observe: u8,
    /// The backend: [`BIT_TAKES_NEW`] and its like.
    pub backend_bits: u8,
    /// Zero.
    pub reserved: [u8; 6],
}

/// A backend's bit in [`TAKES_NEW`](super::TAKES_NEW).
pub const BIT_TAKES_NEW: u8 = 1;
/// A backend's bit in [`SERVES_OLD`](super::SERVES_OLD).
pub const BIT_SERVES_OLD: u8 = 2;
/// A backend's bit in [`ALLOWED`](super::ALLOWED).
pub const BIT_ALLOWED: u8 = 4;

/// Passed, for the reason that is given.
pub const VERDICT_UNREAD: u8 = 0;
/// Passed: to no service.
pub const VERDICT_NOT_SERVICE: u8 = 1;
/// Dropped or refused.
pub const VERDICT_DROPPED: u8 = 2;
/// Sent to a backend.
pub const VERDICT_STEERED: u8 = 3;
/// Answered: an echo request to the address of a service.
pub const VERDICT_ECHO_ANSWERED: u8 = 4;

const _: () = {
    assert!(size_of::<Facts>() == 80);
    assert!(offset_of!(Facts, service) == 64);
    assert!(size_of::<Verdict>() == 40);
    assert!(offset_of!(Verdict, outcome) == 28);
    assert!(size_of::<Explanation>() == 120);
};
