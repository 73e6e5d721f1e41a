//! The status line, strictly: the whole of it in any pieces, and what is kept for texts.
//!
//! An input is: two lengths of pieces, and the stream ([`pieces`]), which may go on to the body.

use sickbay_core::command::{Malformed, StatusLine};
use sickbay_core::limits::STATUS_LINE_BYTES_MAX;
use sickbay_core::response::{End, Response};

use crate::memory::without_allocating;
use crate::pieces;
use crate::reference::{self, Line};

/// Any bytes.
pub fn check(bytes: &[u8]) {
    let (first, rest) = pieces::first(bytes);
    let (second, rest) = pieces::first(rest);
    let stream = pieces::unrolled(rest);
    let whole = without_allocating(|| read([stream.as_slice()]));
    assert_eq!(whole, without_allocating(|| read(stream.chunks(1))), "by bytes");
    let cut = without_allocating(|| read(pieces::cut(&stream, [first, second])));
    assert_eq!(whole, cut, "in pieces of {first} and {second}");
    check_end(&stream, &whole);
    check_line(&stream, &whole);
}

/// How it ended, and the line that is kept.
type Answer = (End, StatusLine);

fn read<'s>(pieces: impl IntoIterator<Item = &'s [u8]>) -> Answer {
    let mut response = Response::new(false);
    let end = pieces.into_iter().find_map(|piece| response.on_bytes(piece));
    (end.unwrap_or_else(|| response.on_close()), response.line())
}

fn check_end(stream: &[u8], (end, _): &Answer) {
    let is_bad_line = *end == End::Malformed(Malformed::StatusLine);
    match reference::status_line(stream) {
        // Behind an informational one another line comes.
        Line::Whole(100 | 102..200, _) => {}
        Line::Whole(status, _) => {
            assert!(!is_bad_line, "the line is right");
            if let End::Complete { status: told } = end {
                assert_eq!(*told, status);
            }
        }
        Line::Wrong => assert!(is_bad_line, "{end:?}"),
        Line::Open if stream.is_empty() => assert_eq!(*end, End::Empty),
        Line::Open => assert_eq!(*end, End::Truncated),
    }
}

/// The line that is kept is the first one, or that behind an informational response.
fn check_line(stream: &[u8], (end, line): &Answer) {
    let kept = line.as_bytes();
    let first = stream.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
    let is_first = kept == &first[..first.len().min(STATUS_LINE_BYTES_MAX)];
    let is_informational = matches!(reference::status_line(stream), Line::Whole(100 | 102..200, _));
    assert!(is_first || is_informational, "{} in {end:?}", kept.escape_ascii());
    assert!(!kept.contains(&b'\r') && !kept.contains(&b'\n'));
}
