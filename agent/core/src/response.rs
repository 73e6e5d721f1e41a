//! Where an HTTP/1 response ends, and with which status.
//!
//! Fed the bytes as they come, however they are split; keeps no more of them than the status line.
//! The end is found by the message's framing (RFC 9112, section 6.3), so a probe need not wait for
//! the peer to close. Informational responses are passed over (101 is final). A bare LF ends a line
//! as CRLF does (section 2.2).
//!
//! Strict in the status line and in what the framing hangs on; the rest of the headers is only
//! read for shape.

use crate::command::{Malformed, StatusLine};
use crate::limits::{INFORMATIONAL_MAX, RESPONSE_BYTES_MAX};

use chunk::{Chunk, ChunkStep};
use header::{Header, HeaderStep};
use status::{Status, StatusStep};

mod chunk;
mod header;
mod status;

/// How a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// By its framing, or by being cut at [`RESPONSE_BYTES_MAX`].
    Complete {
        /// The status, 100 ..= 999.
        status: u16,
    },
    /// It is not HTTP/1, or breaks its framing.
    Malformed(Malformed),
    /// The peer closed without a byte.
    Empty,
    /// The peer closed before the framing was complete.
    Truncated,
}

/// A response being received.
#[derive(Clone, Debug)]
pub struct Response {
    part: Part,
    /// Whether it answers a HEAD request: it has no body whatever its headers say.
    head: bool,
    status: u16,
    informational_count: u32,
    byte_count: u64,
    line: StatusLine,
}

#[derive(Clone, Copy, Debug)]
enum Part {
    Status(Status),
    Headers(Header),
    /// This many bytes of the body are still to come.
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

impl Response {
    /// Before the first byte; `head` when the request's method is HEAD.
    #[must_use]
    pub const fn new(head: bool) -> Self {
        Self {
            part: Part::Status(Status::NEW),
            head,
            status: 0,
            informational_count: 0,
            byte_count: 0,
            line: StatusLine::EMPTY,
        }
    }

    /// Takes in bytes; some end when the response is over. Bytes after its end are not looked at.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Option<End> {
        let room = RESPONSE_BYTES_MAX - self.byte_count;
        let taken = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let mut rest = &bytes[..taken];
        self.byte_count += taken as u64;
        while !rest.is_empty() {
            let (end, used) = match &mut self.part {
                Part::Status(status) => {
                    let step = status.on_byte(rest[0], &mut self.line);
                    (self.after_status(step), 1)
                }
                Part::Headers(header) => {
                    let (step, used) = header.on_bytes(rest);
                    (self.after_header(step), used)
                }
                Part::Length(left) => {
                    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= used as u64;
                    let over = *left == 0;
                    (over.then(|| self.complete()), used)
                }
                Part::Chunked(chunk) => {
                    let (step, used) = chunk.on_bytes(rest);
                    (self.after_chunk(step), used)
                }
                Part::UntilClose => (None, rest.len()),
            };
            if end.is_some() {
                return end;
            }
            rest = &rest[used..];
        }
        (self.byte_count == RESPONSE_BYTES_MAX).then(|| self.cut())
    }

    /// The peer closed.
    #[must_use]
    pub fn on_close(&self) -> End {
        match &self.part {
            _ if self.byte_count == 0 => End::Empty,
            Part::Status(status) if status.is_bad() => End::Malformed(Malformed::StatusLine),
            Part::UntilClose => self.complete(),
            _ => End::Truncated,
        }
    }

    /// The first line as far as it came; of the final response once an informational one is over.
    #[must_use]
    pub const fn line(&self) -> StatusLine {
        self.line
    }

    fn after_status(&mut self, step: StatusStep) -> Option<End> {
        match step {
            StatusStep::More => None,
            StatusStep::Malformed => Some(End::Malformed(Malformed::StatusLine)),
            StatusStep::Over { status } => {
                self.status = status;
                self.part = Part::Headers(Header::NEW);
                None
            }
        }
    }

    fn after_header(&mut self, step: HeaderStep) -> Option<End> {
        let framing = match step {
            HeaderStep::More => return None,
            HeaderStep::Malformed => return Some(End::Malformed(Malformed::Header)),
            HeaderStep::Over(framing) => framing,
        };
        if (100..200).contains(&self.status) && self.status != 101 {
            return self.after_informational();
        }
        // RFC 9112, section 6.3, rules 1 to 8 as far as they concern a response to GET or HEAD.
        let bodiless = self.head || matches!(self.status, 101 | 204 | 304);
        self.part = match (framing.chunked, framing.length) {
            _ if bodiless => return Some(self.complete()),
            (Some(true), _) => Part::Chunked(Chunk::NEW),
            (Some(false), _) => Part::UntilClose,
            (None, Some(0)) => return Some(self.complete()),
            (None, Some(length)) => Part::Length(length),
            (None, None) => Part::UntilClose,
        };
        None
    }

    const fn after_chunk(&self, step: ChunkStep) -> Option<End> {
        match step {
            ChunkStep::More => None,
            ChunkStep::Over => Some(self.complete()),
            ChunkStep::Malformed => Some(End::Malformed(Malformed::Chunk)),
        }
    }

    fn after_informational(&mut self) -> Option<End> {
        self.informational_count += 1;
        if self.informational_count > INFORMATIONAL_MAX {
            return Some(End::Malformed(Malformed::TooManyInformational));
        }
        self.part = Part::Status(Status::NEW);
        self.line = StatusLine::EMPTY;
        None
    }

    /// As many bytes came as are read at most. Within the body the status stands.
    fn cut(&self) -> End {
        match self.part {
            Part::Status(_) => End::Malformed(Malformed::StatusLine),
            Part::Headers(_) => End::Malformed(Malformed::Header),
            Part::Length(_) | Part::Chunked(_) | Part::UntilClose => self.complete(),
        }
    }

    const fn complete(&self) -> End {
        End::Complete { status: self.status }
    }
}

#[cfg(test)]
mod tests;
