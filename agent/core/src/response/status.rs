//! The status line: `HTTP/1.DIGIT SP 3DIGIT`, then the line's end or SP and a reason.
//!
//! A line that is none is kept up to its end, or as far as texts are kept, before it is refused:
//! the operator sees what the server says of itself.

use crate::command::StatusLine;
use crate::limits::{LINE_BYTES_MAX, STATUS_LINE_BYTES_MAX};

const PREFIX: &[u8] = b"HTTP/1.";
/// Bytes before the status: the prefix, a digit, a space.
const CODE_FIRST: u32 = PREFIX.len() as u32 + 2;
const CODE_LAST: u32 = CODE_FIRST + 2;

/// A status line being received.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    /// Bytes had.
    length: u32,
    code: u16,
    bad: bool,
    /// The last byte was a CR.
    carriage: bool,
}

/// What a byte came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StatusStep {
    More,
    Over { status: u16 },
    Malformed,
}

impl Status {
    pub(super) const NEW: Self = Self { length: 0, code: 0, bad: false, carriage: false };

    /// Whether it is no status line already, whatever comes.
    pub(super) const fn is_bad(self) -> bool {
        self.bad
    }

    pub(super) fn on_byte(&mut self, byte: u8, line: &mut StatusLine) -> StatusStep {
        if byte == b'\n' {
            // 100 and up: a status has three digits and none starts with 0.
            return if !self.bad && CODE_LAST < self.length && 100 <= self.code {
                StatusStep::Over { status: self.code }
            } else {
                StatusStep::Malformed
            };
        }
        if self.carriage {
            // A CR amid the line; the text ends there.
            return StatusStep::Malformed;
        }
        if byte == b'\r' {
            self.carriage = true;
            return StatusStep::More;
        }
        line.push(byte);
        self.bad |= !self.fits(byte);
        self.length += 1;
        if (self.bad && STATUS_LINE_BYTES_MAX as u32 <= self.length)
            || LINE_BYTES_MAX as u32 <= self.length
        {
            return StatusStep::Malformed;
        }
        StatusStep::More
    }

    /// Whether the byte may stand here; takes in the status's digits.
    fn fits(&mut self, byte: u8) -> bool {
        const DIGIT: u32 = PREFIX.len() as u32;
        const SPACE: u32 = DIGIT + 1;
        const REASON: u32 = CODE_LAST + 1;
        match self.length {
            at @ 0..DIGIT => byte == PREFIX[at as usize],
            DIGIT => byte.is_ascii_digit(),
            SPACE | REASON => byte == b' ',
            CODE_FIRST..=CODE_LAST => {
                self.code = self.code.wrapping_mul(10).wrapping_add(u16::from(byte & 15));
                byte.is_ascii_digit()
            }
            _ => true,
        }
    }
}
