//! A response as Varnish's probe reads it: its first line as C's `sscanf` scans it.
//!
//! An input is: two lengths of pieces, and the stream ([`pieces`]).
#![expect(unsafe_code, reason = "sscanf is called in the C library")]

use std::ffi::CString;

use sickbay_core::command::StatusLine;
use sickbay_core::limits::STATUS_LINE_BYTES_MAX;
use sickbay_core::reply::{Judged, Reply};

use crate::memory::without_allocating;
use crate::pieces;

/// Any bytes.
pub fn check(bytes: &[u8]) {
    let (first, rest) = pieces::first(bytes);
    let (second, rest) = pieces::first(rest);
    let stream = pieces::unrolled(rest);
    let whole = without_allocating(|| read([stream.as_slice()]));
    assert_eq!(whole, without_allocating(|| read(stream.chunks(1))), "by bytes");
    let cut = without_allocating(|| read(pieces::cut(&stream, [first, second])));
    assert_eq!(whole, cut, "in pieces of {first} and {second}");
    let (judged, kept) = whole;
    assert_eq!(judged, expected(&stream), "as the C library scans it");
    assert_eq!(kept.as_bytes(), line(&stream), "the line");
}

/// What it came to, and the line that is kept.
type Answer = (Judged, StatusLine);

fn read<'s>(pieces: impl IntoIterator<Item = &'s [u8]>) -> Answer {
    let mut reply = Reply::NEW;
    pieces.into_iter().for_each(|piece| reply.on_bytes(piece));
    (reply.judged(), reply.line())
}

/// The first 127 bytes as far as Varnish looks at them.
fn line(stream: &[u8]) -> &[u8] {
    let kept = &stream[..stream.len().min(STATUS_LINE_BYTES_MAX)];
    kept.split(|byte| matches!(byte, b'\r' | b'\n' | 0)).next().unwrap_or_default()
}

fn expected(stream: &[u8]) -> Judged {
    match scanned(line(stream)) {
        _ if stream.is_empty() => Judged::Empty,
        Some(status) => Judged::Status(status),
        None => Judged::NoStatus,
    }
}

/// What Varnish has as its status; `None` when the line does not match.
///
/// # Panics
///
/// When the line has a NUL.
#[must_use]
pub fn scanned(line: &[u8]) -> Option<u32> {
    let line = CString::new(line).expect("lines have no NUL");
    let mut status: libc::c_uint = 0;
    // SAFETY: both strings end with a NUL, and the format stores one unsigned int, for which there
    // is room.
    let count = unsafe { libc::sscanf(line.as_ptr(), c"HTTP/%*f %u".as_ptr(), &raw mut status) };
    (count == 1).then_some(status)
}
