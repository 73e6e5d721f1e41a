//! A response as Varnish's probe reads it: its first line, and then nothing but its end.
//!
//! Varnish keeps the first 127 bytes, cuts them at the first CR, LF or NUL, and gives the rest to
//! C's `sscanf` with `HTTP/%f %u`; good is a number that is the expected status. Whatever follows
//! is read until the peer closes, whatever headers say of it. Its buffer keeps the bytes of the
//! reply before, which a shorter reply is then judged by; here each reply has its own.

use crate::command::StatusLine;
use crate::limits::STATUS_LINE_BYTES_MAX;

/// How C's `sscanf` reads a number.
mod scan;

pub use scan::scanned_status;

/// A response being received.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    line: StatusLine,
    begun: bool,
    line_over: bool,
}

/// What a response came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judged {
    /// No byte came.
    Empty,
    /// The number where the status stands: any number, not three digits alone.
    Status(u32),
    /// There is none.
    NoStatus,
}

impl Reply {
    /// Before the first byte.
    pub const NEW: Self = Self { line: StatusLine::EMPTY, begun: false, line_over: false };

    /// Takes in bytes, as they come.
    pub fn on_bytes(&mut self, bytes: &[u8]) {
        self.begun |= !bytes.is_empty();
        for &byte in bytes {
            if self.line_over {
                return;
            }
            self.line_over = matches!(byte, b'\r' | b'\n' | 0);
            if !self.line_over {
                self.line.push(byte);
                self.line_over = self.line.as_bytes().len() == STATUS_LINE_BYTES_MAX;
            }
        }
    }

    /// Whether a byte came.
    #[must_use]
    pub const fn is_begun(&self) -> bool {
        self.begun
    }

    /// Whether all that is kept of it has come.
    #[must_use]
    pub const fn is_line_over(&self) -> bool {
        self.line_over
    }

    /// What it came to, judged by what came so far.
    #[must_use]
    pub fn judged(&self) -> Judged {
        match scanned_status(self.line.as_bytes()) {
            _ if !self.is_begun() => Judged::Empty,
            Some(status) => Judged::Status(status),
            None => Judged::NoStatus,
        }
    }

    /// The first line, as far as it is kept.
    #[must_use]
    pub const fn line(&self) -> StatusLine {
        self.line
    }
}

#[cfg(test)]
mod tests;
