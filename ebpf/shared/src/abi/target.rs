//! What is known of a probe target: its registers, and whose they are.

use core::mem::{offset_of, size_of};

/// Index of each of Varnish's registers in [`TargetRecord::registers`], in Varnish's order.
pub mod register {
    /// `4`: connected over IPv4.
    pub const GOOD_IPV4: usize = 0;
    /// `6`: connected over IPv6.
    pub const GOOD_IPV6: usize = 1;
    /// `U`: connected over a unix socket.
    pub const GOOD_UNIX: usize = 2;
    /// `x`: sending failed.
    pub const ERR_XMIT: usize = 3;
    /// `X`: sent.
    pub const GOOD_XMIT: usize = 4;
    /// `r`: receiving failed.
    pub const ERR_RECV: usize = 5;
    /// `R`: received.
    pub const GOOD_RECV: usize = 6;
    /// `H`: the result was good.
    pub const HAPPY: usize = 7;
}

/// One target's history: two cache lines, the eight registers and who they belong to.
///
/// Written by the target's shard alone: `sequence` is odd while it writes, `happy` is stored last;
/// a reader that finds it odd, or changed after reading, reads again.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct TargetRecord {
    /// The Varnish registers, newest result in bit 0; see [`register`].
    pub registers: [u64; 8],
    /// Hash of address, port and request: whose history this is.
    pub identity: [u8; 16],
    /// Odd while being written.
    pub sequence: u64,
    /// CLOCK_MONOTONIC of the last determinate result, in ns; 0 = none yet.
    pub last_result_ns: u64,
    /// CLOCK_MONOTONIC of the last change of the verdict, in ns; 0 = none yet.
    pub changed_ns: u64,
    /// Varnish's moving average over happy probes, in seconds.
    pub average_s: f64,
    /// Time of the last complete reception, in µs.
    pub last_us: u32,
    /// HTTP status, or errno, as `cause` says.
    pub detail: u16,
    /// What the last probe came to: the number of the core's outcome.
    pub cause: u8,
    /// The verdict: see [`STATE_WARMING`] and its like.
    pub state: u8,
    /// Probes that ended indeterminate since the last determinate one (saturating).
    pub indeterminate: u32,
    /// Zero.
    pub reserved: u32,
}

/// No verdict yet: not enough results.
pub const STATE_WARMING: u8 = 0;
/// Healthy.
pub const STATE_HEALTHY: u8 = 1;
/// Sick.
pub const STATE_SICK: u8 = 2;
/// No determinate result for too long; keeps the last verdict.
pub const STATE_UNKNOWN: u8 = 3;

const _: () = {
    assert!(size_of::<TargetRecord>() == 128);
    assert!(offset_of!(TargetRecord, identity) == 64);
    assert!(offset_of!(TargetRecord, sequence) == 80);
    assert!(offset_of!(TargetRecord, average_s) == 104);
    assert!(offset_of!(TargetRecord, state) == 119);
};
