//! How a simulated target behaves.

use std::borrow::Cow;

use crate::plan::Nanos;

/// A target as the network shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What it does.
    pub behaviour: Behaviour,
    /// From the start of a probe to its answer's first byte; half of it to the open connection.
    pub delay_ns: Nanos,
    /// Up to this much more, at random.
    pub jitter_ns: Nanos,
    /// Of a thousand connection attempts, how many lose their SYN and try again after 1, 3, 7 … s,
    /// as Linux does.
    pub loss_permille: u32,
}

/// What a target does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Opens, sends these bytes at once, and closes. TCP: opens.
    Answers(Cow<'static, [u8]>),
    /// The same, and never closes.
    KeepsOpen(Cow<'static, [u8]>),
    /// Opens and never sends.
    Hangs,
    /// Opens, and resets the connection after these bytes.
    Resets(Cow<'static, [u8]>),
    /// Opens, and sends a byte at a time.
    Drips {
        /// The bytes.
        response: Cow<'static, [u8]>,
        /// From one byte to the next.
        gap_ns: Nanos,
    },
    /// Refuses the connection.
    Refuses,
    /// Nothing comes back.
    BlackHole,
    /// Answers well in the first part of each period of the clock, refuses in the rest.
    Flaps {
        /// Length of a period.
        period_ns: Nanos,
        /// Length of its first part.
        up_ns: Nanos,
    },
    /// This host cannot make the socket.
    NoSocket {
        /// The errno.
        errno: i32,
    },
    /// This host cannot connect, for a reason of its own.
    NoConnect {
        /// The errno.
        errno: i32,
    },
}

/// A small complete response.
pub const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

impl Peer {
    /// Answers well, at once.
    pub const HEALTHY: Self = Self::new(Behaviour::Answers(Cow::Borrowed(OK)));

    /// Behaves so, without delay or loss.
    #[must_use]
    pub const fn new(behaviour: Behaviour) -> Self {
        Self { behaviour, delay_ns: 0, jitter_ns: 0, loss_permille: 0 }
    }

    /// The same after `delay_ns`.
    #[must_use]
    pub fn with_delay_ns(self, delay_ns: Nanos) -> Self {
        Self { delay_ns, ..self }
    }
}
