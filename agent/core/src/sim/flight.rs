//! One simulated probe in flight.

use std::borrow::Cow;

use super::peer::{Behaviour, OK, Peer};
use super::random::Random;
use crate::command::Phase;
use crate::plan::Nanos;

const SECOND_NS: Nanos = 1_000_000_000;
const ECONNRESET: i32 = 104;
const ECONNREFUSED: i32 = 111;
const ECANCELED: i32 = 125;
/// Bytes that one receive takes at most.
const RECEIVE_BYTES_MAX: usize = 4096;
/// Bytes that one discard takes at most: fewer than the engine's, so that runs see several.
const DISCARD_BYTES_MAX: usize = 65_536;

/// What comes back for a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Connected,
    /// This part of the flight's response; empty = the peer closed.
    Bytes {
        first: usize,
        end: usize,
    },
    /// As many bytes of it are thrown away; none = the peer closed.
    Discarded {
        first: usize,
        end: usize,
    },
    Failed {
        phase: Phase,
        errno: i32,
    },
    Closed,
}

/// What becomes of a probe, drawn up when it starts.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// Of the command whose answer is awaited.
    pub(super) serial: u64,
    pub(super) answer: Answer,
    /// When it is there; MAX = never.
    pub(super) answer_ns: Nanos,
    pub(super) response: Cow<'static, [u8]>,
    /// Bytes of it that were received.
    pub(super) had: usize,
    http: bool,
    /// When the connection is open; MAX = never.
    open_ns: Nanos,
    /// What happens instead of the connection's opening.
    failure: Option<(Phase, i32)>,
    /// When the first byte is there; from one byte to the next, 0 = all at once.
    first_ns: Nanos,
    gap_ns: Nanos,
    last: Last,
}

/// What follows the last byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Close,
    Silence,
    Reset,
}

impl Default for Flight {
    fn default() -> Self {
        Self {
            serial: 0,
            answer: Answer::Closed,
            answer_ns: Nanos::MAX,
            response: Cow::Borrowed(b""),
            had: 0,
            http: false,
            open_ns: Nanos::MAX,
            failure: None,
            first_ns: Nanos::MAX,
            gap_ns: 0,
            last: Last::Silence,
        }
    }
}

impl Flight {
    pub(super) fn start(&mut self, peer: &Peer, http: bool, random: &mut Random, now: Nanos) {
        let jitter_ns = if peer.jitter_ns == 0 { 0 } else { random.below(peer.jitter_ns + 1) };
        let mut lost_ns = 0;
        let mut again_ns = SECOND_NS;
        while lost_ns < 60 * SECOND_NS && random.below(1000) < u64::from(peer.loss_permille) {
            lost_ns += again_ns;
            again_ns *= 2;
        }
        let delay_ns = peer.delay_ns + jitter_ns;
        *self = Self {
            http,
            open_ns: now + lost_ns + delay_ns / 2,
            first_ns: now + lost_ns + delay_ns,
            ..Self::default()
        };
        self.behave(&peer.behaviour, now);
        self.answer_start(now);
    }

    /// The answer to a receive.
    pub(super) fn receive(&mut self, now: Nanos) {
        self.read(RECEIVE_BYTES_MAX, |first, end| Answer::Bytes { first, end }, now);
    }

    /// The answer to a discard.
    pub(super) fn discard(&mut self, now: Nanos) {
        self.read(DISCARD_BYTES_MAX, |first, end| Answer::Discarded { first, end }, now);
    }

    fn read(&mut self, bytes_max: usize, answer: fn(usize, usize) -> Answer, now: Nanos) {
        let first = self.had;
        let there_ns = (self.first_ns + self.gap_ns * first as Nanos).max(now);
        (self.answer_ns, self.answer) = if first < self.response.len() {
            let most = if self.gap_ns == 0 { bytes_max } else { 1 };
            let end = self.response.len().min(first + most);
            (there_ns, answer(first, end))
        } else {
            match self.last {
                Last::Close => (there_ns, answer(first, first)),
                Last::Silence => (Nanos::MAX, Answer::Closed),
                Last::Reset => {
                    (there_ns, Answer::Failed { phase: Phase::Receive, errno: ECONNRESET })
                }
            }
        };
    }

    /// Cancels what is in flight: it fails as far as it had come. False when its answer is there
    /// already, as a receive's is whose bytes wait in the socket.
    pub(super) fn cancel(&mut self, now: Nanos) -> bool {
        if self.answer_ns <= now {
            return false;
        }
        let phase = if self.open_ns <= now { Phase::Receive } else { Phase::Connect };
        (self.answer_ns, self.answer) = (now, Answer::Failed { phase, errno: ECANCELED });
        true
    }

    pub(super) fn close(&mut self, now: Nanos) {
        (self.answer_ns, self.answer) = (now, Answer::Closed);
    }

    /// The answer to the start.
    fn answer_start(&mut self, now: Nanos) {
        (self.answer_ns, self.answer) = match self.failure {
            Some((Phase::Socket, errno)) => (now, Answer::Failed { phase: Phase::Socket, errno }),
            Some((phase, errno)) => (self.open_ns, Answer::Failed { phase, errno }),
            None if self.open_ns == Nanos::MAX => (Nanos::MAX, Answer::Closed),
            // A TCP probe's answer is the handshake.
            None if !self.http => (self.first_ns, Answer::Connected),
            None => return self.receive(now),
        };
    }

    fn behave(&mut self, behaviour: &Behaviour, now: Nanos) {
        match behaviour {
            Behaviour::Answers(response) => self.send(response.clone(), Last::Close),
            Behaviour::KeepsOpen(response) => self.send(response.clone(), Last::Silence),
            Behaviour::Hangs => self.send(Cow::Borrowed(b""), Last::Silence),
            Behaviour::Resets(response) => self.send(response.clone(), Last::Reset),
            Behaviour::Drips { response, gap_ns } => {
                self.send(response.clone(), Last::Close);
                self.gap_ns = *gap_ns;
            }
            Behaviour::Refuses => self.failure = Some((Phase::Connect, ECONNREFUSED)),
            Behaviour::BlackHole => self.open_ns = Nanos::MAX,
            Behaviour::Flaps { period_ns, up_ns } if now % period_ns < *up_ns => {
                self.send(Cow::Borrowed(OK), Last::Close);
            }
            Behaviour::Flaps { .. } => self.failure = Some((Phase::Connect, ECONNREFUSED)),
            Behaviour::NoSocket { errno } => self.failure = Some((Phase::Socket, *errno)),
            Behaviour::NoConnect { errno } => self.failure = Some((Phase::Connect, *errno)),
        }
    }

    fn send(&mut self, response: Cow<'static, [u8]>, last: Last) {
        self.response = response;
        self.last = last;
    }
}
