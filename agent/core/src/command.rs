//! What a prober asks for, what it is told, and what it reports.

use crate::content::Lack;
use crate::limits::STATUS_LINE_BYTES_MAX;
use crate::plan::{JudgeIndex, Nanos, SlotIndex, TargetIndex};

/// What the prober wants done. Taken by `Prober::poll_command`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Open a connection to the target in this slot; unless that is all that is asked, send its
    /// request and receive once.
    ///
    /// Answered by exactly one [`Event`]: `Connected` (TCP), `Received` (HTTP, banner) or `Failed`.
    Start {
        /// The place, free until now.
        slot: SlotIndex,
        /// What to probe.
        target: TargetIndex,
    },
    /// As `Start`, in the same place, to the target's second address: the first could not be
    /// connected to, and is closed.
    StartSecond {
        /// The place.
        slot: SlotIndex,
        /// What to probe.
        target: TargetIndex,
        /// The timeout has been spent on the first one: a connection is all that is asked, and it
        /// is answered by `Connected` or `Failed`.
        connect_only: bool,
    },
    /// Receive once more. Answered by exactly one `Received` or `Failed`.
    Receive {
        /// The place.
        slot: SlotIndex,
    },
    /// Receive once more, and throw away what comes: as much as is there. Answered by exactly one
    /// `Discarded` or `Failed`.
    Discard {
        /// The place.
        slot: SlotIndex,
    },
    /// The deadline passed: cancel what the slot has in flight. The `Start`, `Receive` or `Discard`
    /// that it cancels is still answered: `Failed` with ECANCELED, or what it had come to by then.
    Cancel {
        /// The place.
        slot: SlotIndex,
    },
    /// Close the slot's connection. Answered by exactly one `Closed`; then the slot is free.
    Close {
        /// The place.
        slot: SlotIndex,
    },
}

/// What became of a command. Given to `Prober::on_event`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The TCP connection is open.
    Connected,
    /// Bytes came; none means that the peer closed.
    Received(&'a [u8]),
    /// Bytes came and were thrown away; none means that the peer closed.
    Discarded {
        /// How many.
        byte_count: u64,
    },
    /// The operation of this phase failed. In [`Phase::Socket`] there is nothing to close: the slot
    /// is free, and no [`Command::Close`] follows.
    Failed {
        /// How far the probe had come.
        phase: Phase,
        /// The errno, positive.
        errno: i32,
    },
    /// The connection is closed and the descriptor free.
    Closed,
}

/// How far a probe had come when it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Making the socket: no packet was sent.
    Socket,
    /// Connecting.
    Connect,
    /// Sending the request; the connection is open.
    Send,
    /// Receiving; the request is sent.
    Receive,
}

/// What one probe came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The TCP connection opened.
    Connected,
    /// A complete response; good iff its status is the expected one.
    Answered {
        /// The status.
        status: u16,
        /// Whether it is the expected one.
        good: bool,
    },
    /// A complete response with a status that is good, but without what it must hold.
    Lacking {
        /// The status.
        status: u16,
        /// What is not there.
        what: Lack,
    },
    /// The bytes came that a TCP probe waits for.
    Matched,
    /// Others came instead, until the peer closed or enough were read.
    Mismatched,
    /// A response that is not HTTP/1, or breaks its framing.
    Malformed(Malformed),
    /// The peer closed without a byte.
    Empty,
    /// The response was cut short: the peer closed before its framing was complete, or, of a probe
    /// that behaves as Varnish's, bytes still came when the deadline passed.
    Truncated,
    /// The operation failed, and the peer or the network is to blame.
    Failed {
        /// How far it had come.
        phase: Phase,
        /// The errno, positive.
        errno: i32,
    },
    /// The connection opened, but the timeout had been spent on another address.
    OpenedLate,
    /// The deadline passed.
    TimedOut {
        /// How far it had come.
        phase: Phase,
    },
    /// This host is to blame: shifts nothing.
    Indeterminate(LocalFault),
}

impl Outcome {
    /// Whether a good result is shifted in; `None` when nothing is (indeterminate).
    #[must_use]
    pub const fn good(self) -> Option<bool> {
        match self {
            Self::Connected | Self::Matched => Some(true),
            Self::Answered { good, .. } => Some(good),
            Self::Indeterminate(_) => None,
            _ => Some(false),
        }
    }
}

impl Outcome {
    /// Its number in pinned maps and in metrics; never given another meaning. 0 = no probe yet.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Connected => 1,
            Self::Answered { good: true, .. } => 2,
            Self::Answered { good: false, .. } => 3,
            Self::Malformed(Malformed::StatusLine) => 4,
            Self::Malformed(Malformed::Header) => 5,
            Self::Malformed(Malformed::Chunk) => 6,
            Self::Malformed(Malformed::TooManyInformational) => 7,
            Self::Empty => 8,
            Self::Truncated => 9,
            Self::Failed { phase: Phase::Socket | Phase::Connect, .. } => 10,
            Self::Failed { phase: Phase::Send, .. } => 11,
            Self::Failed { phase: Phase::Receive, .. } => 12,
            Self::TimedOut { phase: Phase::Socket | Phase::Connect } => 13,
            Self::TimedOut { phase: Phase::Send } => 14,
            Self::TimedOut { phase: Phase::Receive } => 15,
            Self::Indeterminate(LocalFault::Errno { .. }) => 16,
            Self::Indeterminate(LocalFault::NoSlot) => 17,
            Self::Indeterminate(LocalFault::LoopLate) => 18,
            Self::Lacking { what: Lack::Header, .. } => 19,
            Self::Lacking { what: Lack::Body, .. } => 20,
            Self::Matched => 21,
            Self::Mismatched => 22,
            Self::OpenedLate => 23,
        }
    }

    /// The HTTP status or the errno that goes with it; 0 when neither does.
    #[must_use]
    pub const fn detail(self) -> u16 {
        match self {
            Self::Answered { status, .. } | Self::Lacking { status, .. } => status,
            Self::Failed { errno, .. } | Self::Indeterminate(LocalFault::Errno { errno }) => {
                errno as u16
            }
            _ => 0,
        }
    }

    /// The outcome that [`Self::number`] and [`Self::detail`] stand for; `None` for 0 (no probe
    /// yet) and for numbers of a later version. Failing to connect is told as such, whether the
    /// socket or the connection failed.
    #[must_use]
    pub const fn from_number(number: u8, detail: u16) -> Option<Self> {
        let errno = detail as i32;
        Some(match number {
            1 => Self::Connected,
            2 => Self::Answered { status: detail, good: true },
            3 => Self::Answered { status: detail, good: false },
            4 => Self::Malformed(Malformed::StatusLine),
            5 => Self::Malformed(Malformed::Header),
            6 => Self::Malformed(Malformed::Chunk),
            7 => Self::Malformed(Malformed::TooManyInformational),
            8 => Self::Empty,
            9 => Self::Truncated,
            10 => Self::Failed { phase: Phase::Connect, errno },
            11 => Self::Failed { phase: Phase::Send, errno },
            12 => Self::Failed { phase: Phase::Receive, errno },
            13 => Self::TimedOut { phase: Phase::Connect },
            14 => Self::TimedOut { phase: Phase::Send },
            15 => Self::TimedOut { phase: Phase::Receive },
            16 => Self::Indeterminate(LocalFault::Errno { errno }),
            17 => Self::Indeterminate(LocalFault::NoSlot),
            18 => Self::Indeterminate(LocalFault::LoopLate),
            19 => Self::Lacking { status: detail, what: Lack::Header },
            20 => Self::Lacking { status: detail, what: Lack::Body },
            21 => Self::Matched,
            22 => Self::Mismatched,
            23 => Self::OpenedLate,
            _ => return None,
        })
    }
}

/// How a response broke HTTP/1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Malformed {
    /// The first line is not `HTTP/1.x SP 3DIGIT`.
    StatusLine,
    /// A header line that is none, too long, or a length that is none.
    Header,
    /// A chunk size that is none.
    Chunk,
    /// More informational responses than any server sends.
    TooManyInformational,
}

/// Why a probe says nothing about its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LocalFault {
    /// A local errno (descriptors, memory, ports, permission, no such family or device).
    Errno {
        /// The errno, positive.
        errno: i32,
    },
    /// No slot was free until the next one was due.
    NoSlot,
    /// The deadline passed while this loop itself was late by more than half the timeout.
    LoopLate,
}

/// The first line of a response as far as it came, up to CR or LF: untrusted bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct StatusLine {
    bytes: [u8; STATUS_LINE_BYTES_MAX],
    length: u8,
}

impl StatusLine {
    /// No byte came.
    pub const EMPTY: Self = Self { bytes: [0; STATUS_LINE_BYTES_MAX], length: 0 };

    /// Adds one byte; those past the limit are not kept.
    pub fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(usize::from(self.length)) {
            *place = byte;
            self.length += 1;
        }
    }

    /// The bytes kept. Escape them before they are shown.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl core::fmt::Debug for StatusLine {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "\"{}\"", self.as_bytes().escape_ascii())
    }
}

/// What had come of a response when its probe was over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes.
    pub byte_count: u64,
    /// From the probe's start to the last of them; 0 when none came.
    pub last_ns: Nanos,
}

/// One probe is over. Taken by `Prober::poll_report`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    /// Whose.
    pub target: TargetIndex,
    /// What it came to.
    pub outcome: Outcome,
    /// The response's first line; empty unless bytes came.
    pub line: StatusLine,
    /// How much of a response came, and until when.
    pub arrival: Arrival,
    /// When it was due.
    pub scheduled_ns: Nanos,
    /// When its [`Command::Start`] was taken.
    pub started_ns: Nanos,
    /// From start to its end, whatever it came to.
    pub duration_ns: Nanos,
}

/// A verdict or what is known of it changed. Taken by `Prober::poll_change`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Which.
    pub judge: JudgeIndex,
    /// What it is now, the override included.
    pub verdict: Verdict,
    /// What it was.
    pub before: Verdict,
    /// Whether its target is unknown now.
    pub unknown: bool,
    /// Why.
    pub cause: ChangeCause,
}

/// Why a verdict changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeCause {
    /// The results assumed at the start are enough: healthy before the first probe.
    Initial,
    /// It had been said of the history that was taken up; [`Change::before`] is the same.
    TakenUp,
    /// The history that was taken up is judged by another rule now.
    Rule,
    /// A probe's result.
    Probe,
    /// Nothing determinate came for too long.
    Silence,
    /// An operator's override was set or taken back.
    Override,
}

/// What a judge says of its backend, the override included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Too few results so far; takes no traffic.
    Warming,
    /// Takes new flows.
    Healthy,
    /// Takes none.
    Sick,
}

/// An operator's word over the probed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Override {
    /// As probed.
    #[default]
    Auto,
    /// Healthy whatever the probes say.
    Healthy,
    /// Sick whatever the probes say.
    Sick,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written out: these numbers stand in pinned maps that another version may read.
    #[test]
    fn each_outcome_keeps_its_number_and_comes_back_from_it() {
        let failed = |phase, errno| Outcome::Failed { phase, errno };
        let timed_out = |phase| Outcome::TimedOut { phase };
        let table = [
            (Outcome::Connected, 1, 0),
            (Outcome::Answered { status: 200, good: true }, 2, 200),
            (Outcome::Answered { status: 503, good: false }, 3, 503),
            (Outcome::Malformed(Malformed::StatusLine), 4, 0),
            (Outcome::Malformed(Malformed::Header), 5, 0),
            (Outcome::Malformed(Malformed::Chunk), 6, 0),
            (Outcome::Malformed(Malformed::TooManyInformational), 7, 0),
            (Outcome::Empty, 8, 0),
            (Outcome::Truncated, 9, 0),
            (failed(Phase::Connect, 111), 10, 111),
            (failed(Phase::Send, 32), 11, 32),
            (failed(Phase::Receive, 104), 12, 104),
            (timed_out(Phase::Connect), 13, 0),
            (timed_out(Phase::Send), 14, 0),
            (timed_out(Phase::Receive), 15, 0),
            (Outcome::Indeterminate(LocalFault::Errno { errno: 24 }), 16, 24),
            (Outcome::Indeterminate(LocalFault::NoSlot), 17, 0),
            (Outcome::Indeterminate(LocalFault::LoopLate), 18, 0),
            (Outcome::Lacking { status: 200, what: Lack::Header }, 19, 200),
            (Outcome::Lacking { status: 200, what: Lack::Body }, 20, 200),
            (Outcome::Matched, 21, 0),
            (Outcome::Mismatched, 22, 0),
            (Outcome::OpenedLate, 23, 0),
        ];
        for (outcome, number, detail) in table {
            assert_eq!((outcome.number(), outcome.detail()), (number, detail));
            assert_eq!(Outcome::from_number(number, detail), Some(outcome));
        }
        for number in [0, 24, 255] {
            assert_eq!(Outcome::from_number(number, 0), None);
        }
    }
}
