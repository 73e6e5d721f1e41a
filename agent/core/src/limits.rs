//! The bounds that the core obeys; validated configuration never exceeds them.

/// Bits of a register, so the largest window, threshold, fall and rise.
pub const WINDOW_MAX: u8 = 64;
/// Bytes of a status line that are kept for texts (Varnish keeps 127 and a NUL).
pub const STATUS_LINE_BYTES_MAX: usize = 127;
/// Bytes of one header line, and of one chunk-size line, that are read, LF included; longer ones are
/// a failure.
pub const LINE_BYTES_MAX: usize = 8192;
/// Bytes of a response that are read at most; a longer body is cut by closing, and judged by its
/// status.
pub const RESPONSE_BYTES_MAX: u64 = 65_536;
/// Informational (1xx) responses passed over before the final one.
pub const INFORMATIONAL_MAX: u32 = 8;
/// Longest interval.
pub const INTERVAL_NS_MAX: u64 = 24 * 3600 * 1_000_000_000;
/// Shortest interval.
pub const INTERVAL_NS_MIN: u64 = 10_000_000;
/// Longest timeout.
pub const TIMEOUT_NS_MAX: u64 = 3600 * 1_000_000_000;
/// Shortest timeout.
pub const TIMEOUT_NS_MIN: u64 = 1_000_000;
/// The first probe of a target starts within the lesser of its interval and this.
pub const FIRST_PROBE_NS_MAX: u64 = 2_000_000_000;
/// A target without a determinate result for the greater of this many intervals and
/// [`UNKNOWN_NS_MIN`] is unknown.
pub const UNKNOWN_INTERVALS: u64 = 10;
/// See [`UNKNOWN_INTERVALS`].
pub const UNKNOWN_NS_MIN: u64 = 30_000_000_000;

/// How long a target that is probed at this interval may be without a determinate result before it
/// is unknown, in ns.
#[must_use]
pub const fn unknown_after_ns(interval_ns: u64) -> u64 {
    let span_ns = interval_ns.saturating_mul(UNKNOWN_INTERVALS);
    if span_ns < UNKNOWN_NS_MIN { UNKNOWN_NS_MIN } else { span_ns }
}
