//! What a prober counts.

/// What a prober has counted since it was made; nothing is ever reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Probes started.
    pub started: u64,
    /// Probes ended, [`Self::no_slot`] not among them.
    pub ended: u64,
    /// Grid slots skipped because the target's probe was still in flight.
    pub overlapped: u64,
    /// Grid slots skipped because the loop came more than an interval late.
    pub slept_through: u64,
    /// Probes given up because no slot was free until the next was due.
    pub no_slot: u64,
    /// Probes whose deadline passed and was looked at.
    pub expired: u64,
    /// Events that fit no command: a fault of the caller's.
    pub unexpected_events: u64,
}
