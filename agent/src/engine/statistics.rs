//! What a ring did: counters that anyone may read, histograms that its shard hands out on request.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crossbeam::utils::CachePadded;
use hdrhistogram::Histogram;
use sickbay_core::command::{LocalFault, Outcome, Report};

/// Probes that start later than this after their moment are counted as late.
pub const LATE_NS: u64 = 20_000_000;
/// Longest time a histogram tells apart; longer ones are counted as this.
const HISTOGRAM_NS_MAX: u64 = 3_600_000_000_000;

/// What probes come to, as far as it is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum OutcomeKind {
    /// A TCP connection opened.
    Connected,
    /// The expected response.
    Good,
    /// Another status.
    OtherStatus,
    /// A good status, or other bytes, without what must be there.
    Lacking,
    /// No HTTP/1.
    Malformed,
    /// Closed without a byte.
    Empty,
    /// Closed inside the response.
    Truncated,
    /// Nobody listens.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// No way to it.
    Unreachable,
    /// Another error of peer or network.
    Failed,
    /// The deadline passed.
    TimedOut,
    /// This host had no descriptor left.
    NoDescriptor,
    /// It had no memory left.
    NoMemory,
    /// It had no port left.
    NoPort,
    /// It may not (a firewall, a security module).
    NotPermitted,
    /// Another errno of this host.
    LocalErrno,
    /// No slot was free.
    NoSlot,
    /// The deadline passed while the loop was late.
    LoopLate,
}

impl OutcomeKind {
    /// Every kind, in the order of its counter.
    pub const ALL: [Self; 19] = [
        Self::Connected,
        Self::Good,
        Self::OtherStatus,
        Self::Lacking,
        Self::Malformed,
        Self::Empty,
        Self::Truncated,
        Self::Refused,
        Self::Reset,
        Self::Unreachable,
        Self::Failed,
        Self::TimedOut,
        Self::NoDescriptor,
        Self::NoMemory,
        Self::NoPort,
        Self::NotPermitted,
        Self::LocalErrno,
        Self::NoSlot,
        Self::LoopLate,
    ];

    /// The kind's name where it is shown or exported.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Good => "good",
            Self::OtherStatus => "other_status",
            Self::Lacking => "lacking",
            Self::Malformed => "malformed",
            Self::Empty => "empty",
            Self::Truncated => "truncated",
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Unreachable => "unreachable",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::NoDescriptor => "no_descriptor",
            Self::NoMemory => "no_memory",
            Self::NoPort => "no_port",
            Self::NotPermitted => "not_permitted",
            Self::LocalErrno => "local_errno",
            Self::NoSlot => "no_slot",
            Self::LoopLate => "loop_late",
        }
    }
}

impl OutcomeKind {
    /// What it says of the backend: good, bad, or nothing.
    #[must_use]
    pub const fn verdict(self) -> &'static str {
        match self {
            Self::Connected | Self::Good => "good",
            Self::NoDescriptor
            | Self::NoMemory
            | Self::NoPort
            | Self::NotPermitted
            | Self::LocalErrno
            | Self::NoSlot
            | Self::LoopLate => "indeterminate",
            _ => "bad",
        }
    }

    /// Of an errno that peer or network are to blame for.
    const fn of_failure(errno: i32) -> Self {
        match errno {
            // A refused connection may come back as either.
            libc::ECONNREFUSED | libc::ECONNABORTED => Self::Refused,
            libc::ECONNRESET | libc::EPIPE => Self::Reset,
            libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EHOSTDOWN => Self::Unreachable,
            _ => Self::Failed,
        }
    }

    /// Of an errno that this host is to blame for.
    const fn of_fault(errno: i32) -> Self {
        match errno {
            libc::EMFILE | libc::ENFILE => Self::NoDescriptor,
            libc::ENOMEM | libc::ENOBUFS => Self::NoMemory,
            libc::EADDRNOTAVAIL | libc::EADDRINUSE => Self::NoPort,
            libc::EACCES | libc::EPERM => Self::NotPermitted,
            _ => Self::LocalErrno,
        }
    }
}

impl From<Outcome> for OutcomeKind {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Connected => Self::Connected,
            Outcome::Answered { good: true, .. } | Outcome::Matched => Self::Good,
            Outcome::Answered { good: false, .. } => Self::OtherStatus,
            Outcome::Lacking { .. } | Outcome::Mismatched => Self::Lacking,
            Outcome::Malformed(_) => Self::Malformed,
            Outcome::Empty => Self::Empty,
            Outcome::Truncated => Self::Truncated,
            Outcome::Failed { errno, .. } => Self::of_failure(errno),
            Outcome::TimedOut { .. } | Outcome::OpenedLate => Self::TimedOut,
            Outcome::Indeterminate(LocalFault::Errno { errno }) => Self::of_fault(errno),
            Outcome::Indeterminate(LocalFault::NoSlot) => Self::NoSlot,
            Outcome::Indeterminate(LocalFault::LoopLate) => Self::LoopLate,
        }
    }
}

/// Counters of one ring. Its thread alone writes; anyone may read.
#[derive(Debug, Default)]
pub struct Counters {
    cell: CachePadded<CounterCells>,
}

#[derive(Debug, Default)]
struct CounterCells {
    outcomes: [AtomicU64; OutcomeKind::ALL.len()],
    late: AtomicU64,
    stray: AtomicU64,
    ring_full: AtomicU64,
    enters: AtomicU64,
    warming: AtomicU32,
    in_flight: AtomicU32,
    ring_restricted: AtomicBool,
}

impl Counters {
    /// Whether the ring refuses every operation that no probe needs.
    #[must_use]
    pub fn ring_restricted(&self) -> bool {
        self.cell.ring_restricted.load(Ordering::Relaxed)
    }

    pub(super) fn set_ring_restricted(&self, restricted: bool) {
        self.cell.ring_restricted.store(restricted, Ordering::Relaxed);
    }

    /// Probes that came to `kind`.
    #[must_use]
    pub fn outcomes(&self, kind: OutcomeKind) -> u64 {
        self.cell.outcomes[kind as usize].load(Ordering::Relaxed)
    }

    /// Probes that were begun and ended: all but those that found no slot.
    #[must_use]
    pub fn probes(&self) -> u64 {
        let begun = OutcomeKind::ALL.iter().filter(|kind| **kind != OutcomeKind::NoSlot);
        begun.map(|kind| self.outcomes(*kind)).sum()
    }

    /// Probes that started more than [`LATE_NS`] after their moment.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.cell.late.load(Ordering::Relaxed)
    }

    /// Completions that belonged to nobody; anything but 0 is a bug here or in the kernel.
    #[must_use]
    pub fn stray(&self) -> u64 {
        self.cell.stray.load(Ordering::Relaxed)
    }

    /// Times the ring was full, so that a submission came before its turn. Nothing is lost by it.
    #[must_use]
    pub fn ring_full(&self) -> u64 {
        self.cell.ring_full.load(Ordering::Relaxed)
    }

    /// System calls made to submit and to wait.
    #[must_use]
    pub fn enters(&self) -> u64 {
        self.cell.enters.load(Ordering::Relaxed)
    }

    /// Judges without a first verdict.
    #[must_use]
    pub fn warming(&self) -> u32 {
        self.cell.warming.load(Ordering::Acquire)
    }

    /// Probes in flight.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.cell.in_flight.load(Ordering::Relaxed)
    }

    /// Said before the ring's thread starts, so that nobody takes its absence for a verdict.
    pub(crate) fn set_warming(&self, count: u32) {
        // Release: who sees the last verdict counted here also sees what the sink did with it.
        self.cell.warming.store(count, Ordering::Release);
    }

    pub(super) fn set_in_flight(&self, count: u32) {
        self.cell.in_flight.store(count, Ordering::Relaxed);
    }

    pub(super) fn set_enters(&self, count: u64) {
        self.cell.enters.store(count, Ordering::Relaxed);
    }

    pub(super) fn on_stray(&self) {
        add(&self.cell.stray);
    }

    pub(super) fn on_ring_full(&self) {
        add(&self.cell.ring_full);
    }

    pub(super) fn on_report(&self, report: &Report) {
        add(&self.cell.outcomes[OutcomeKind::from(report.outcome) as usize]);
        if LATE_NS < report.started_ns.saturating_sub(report.scheduled_ns) {
            add(&self.cell.late);
        }
    }
}

/// One writer: a load and a store, without the lock prefix of an atomic addition.
fn add(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Times of one ring's probes, in ns, to 2 significant digits.
#[derive(Clone, Debug)]
pub struct Histograms {
    /// From the moment a probe was due to its start.
    pub lateness_ns: Histogram<u64>,
    /// From a probe's start to its end; determinate outcomes only.
    pub probe_ns: Histogram<u64>,
}

impl Histograms {
    pub(super) fn new() -> Self {
        let histogram =
            || Histogram::new_with_bounds(1, HISTOGRAM_NS_MAX, 2).expect("the bounds are in order");
        Self { lateness_ns: histogram(), probe_ns: histogram() }
    }

    pub(super) fn on_report(&mut self, report: &Report) {
        let lateness_ns = report.started_ns.saturating_sub(report.scheduled_ns);
        self.lateness_ns.saturating_record(lateness_ns);
        if report.outcome.good().is_some() {
            self.probe_ns.saturating_record(report.duration_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sickbay_core::command::{Arrival, Phase, StatusLine};
    use sickbay_core::content::Lack;
    use sickbay_core::plan::TargetIndex;

    fn report(outcome: Outcome, lateness_ns: u64) -> Report {
        Report {
            target: TargetIndex(0),
            outcome,
            line: StatusLine::EMPTY,
            arrival: Arrival::default(),
            scheduled_ns: 1_000,
            started_ns: 1_000 + lateness_ns,
            duration_ns: 5_000_000,
        }
    }

    #[test]
    fn every_kind_has_a_counter_of_its_own() {
        for (index, kind) in OutcomeKind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index);
        }
    }

    #[test]
    fn report_is_counted_once_and_under_its_outcome() {
        let counters = Counters::default();
        counters.on_report(&report(Outcome::Answered { status: 500, good: false }, 0));
        assert_eq!(counters.outcomes(OutcomeKind::OtherStatus), 1);
        assert_eq!(counters.probes(), 1);
        assert_eq!(counters.late(), 0);
    }

    #[test]
    fn cause_of_a_failure_and_whose_it_is_are_told_apart() {
        let failed = |errno| Outcome::Failed { phase: Phase::Connect, errno };
        let fault = |errno| Outcome::Indeterminate(LocalFault::Errno { errno });
        for (outcome, name, verdict) in [
            (failed(libc::ECONNREFUSED), "refused", "bad"),
            (failed(libc::EHOSTUNREACH), "unreachable", "bad"),
            (failed(libc::ECONNRESET), "reset", "bad"),
            (failed(libc::EPROTO), "failed", "bad"),
            (fault(libc::EMFILE), "no_descriptor", "indeterminate"),
            (fault(libc::EADDRNOTAVAIL), "no_port", "indeterminate"),
            (fault(libc::ENETDOWN), "local_errno", "indeterminate"),
            (Outcome::Connected, "connected", "good"),
            (Outcome::Lacking { status: 200, what: Lack::Body }, "lacking", "bad"),
        ] {
            let kind = OutcomeKind::from(outcome);
            assert_eq!((kind.name(), kind.verdict()), (name, verdict), "{outcome:?}");
        }
    }

    #[test]
    fn probe_without_a_slot_is_none_that_ended() {
        let counters = Counters::default();
        counters.on_report(&report(Outcome::Indeterminate(LocalFault::NoSlot), 0));
        assert_eq!(counters.outcomes(OutcomeKind::NoSlot), 1);
        assert_eq!(counters.probes(), 0);
    }

    #[test]
    fn late_start_is_counted_as_late() {
        let counters = Counters::default();
        counters.on_report(&report(Outcome::Connected, 20_000_000));
        assert_eq!(counters.late(), 0);
        counters.on_report(&report(Outcome::Connected, 20_000_001));
        assert_eq!(counters.late(), 1);
    }

    #[test]
    fn indeterminate_probe_tells_nothing_of_probe_times() {
        let mut histograms = Histograms::new();
        histograms.on_report(&report(Outcome::Indeterminate(LocalFault::NoSlot), 7));
        assert_eq!(histograms.probe_ns.len(), 0);
        assert_eq!(histograms.lateness_ns.len(), 1);
        histograms.on_report(&report(Outcome::Connected, 7));
        assert_eq!(histograms.probe_ns.len(), 1);
    }
}
