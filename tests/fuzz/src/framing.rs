//! Headers, lengths and chunks: where a response ends, behind a status line that is right.
//!
//! An input is: what is asked and wanted, two lengths of pieces, and the stream ([`pieces`]).

use sickbay_core::content::{Content, Lack, WantedHeader};
use sickbay_core::pattern::Pattern;
use sickbay_core::response::{End, Response};

use crate::memory::without_allocating;
use crate::{pieces, reference};

/// One for each of the ways that a status has with the body.
const STATUSES: [&str; 8] = ["200", "503", "204", "304", "101", "100", "103", "999"];

/// Any bytes.
pub fn check(bytes: &[u8]) {
    let (what, rest) = pieces::first(bytes);
    let (first, rest) = pieces::first(rest);
    let (second, rest) = pieces::first(rest);
    let status = STATUSES[usize::from(what & 7)];
    let mut stream = format!("HTTP/1.1 {status} X\r\n").into_bytes();
    stream.extend(pieces::unrolled(rest));
    let head = what & 8 != 0;
    let content = content(what >> 4);
    let whole = without_allocating(|| read([stream.as_slice()], head, &content));
    assert_eq!(whole, without_allocating(|| read(stream.chunks(1), head, &content)), "by bytes");
    let cut = without_allocating(|| read(pieces::cut(&stream, [first, second]), head, &content));
    assert_eq!(whole, cut, "in pieces of {first} and {second}");
    match content.header.is_some() || content.body.is_some() {
        true => check_found(&stream, whole, &content),
        false => check_end(whole.0, reference::response(&stream, head)),
    }
}

/// How it ended, and what it lacked when it was complete.
type Answer = (End, Option<Lack>);

fn read<'s>(pieces: impl IntoIterator<Item = &'s [u8]>, head: bool, content: &Content) -> Answer {
    let mut response = Response::new(head);
    let end = pieces.into_iter().find_map(|piece| response.on_bytes_with(piece, content));
    let end = end.unwrap_or_else(|| response.on_close());
    let is_complete = matches!(end, End::Complete { .. });
    (end, response.lack(content).filter(|_| is_complete))
}

fn content(kind: u8) -> Content {
    let pattern = |text: &str| Pattern::new(text.as_bytes());
    let header = |value| Some(WantedHeader { name: (*b"x-a").into(), value: pattern(value) });
    let (header, body, body_bytes_max) = match kind {
        1 => (header(""), None, 0),
        2 => (header("aab"), None, 0),
        3 => (None, pattern("aab"), 1),
        4 => (None, pattern("aab"), 7),
        5 => (None, pattern("aab"), 65_536),
        6 => (header("aab"), pattern("0\r\n"), 70_000),
        _ => return Content::ANY,
    };
    Content { header, body, body_bytes_max }
}

fn check_end(end: End, expected: Option<End>) {
    use sickbay_core::command::Malformed;
    match expected {
        Some(expected) => assert_eq!(end, expected, "as the whole message is read"),
        None => {
            assert!(matches!(end, End::Truncated | End::Malformed(Malformed::Header)), "{end:?}");
        }
    }
}

/// What is said to be there is there.
fn check_found(stream: &[u8], (end, lack): Answer, content: &Content) {
    if !matches!(end, End::Complete { .. }) || lack.is_some() {
        return;
    }
    let has = |text: &[u8]| stream.windows(text.len()).any(|part| part.eq_ignore_ascii_case(text));
    if let Some(header) = &content.header {
        assert!(has(&header.name), "the wanted header");
        assert!(header.value.as_ref().is_none_or(|value| has(value.as_bytes())), "and its value");
    }
    // The text may stand across chunks: its first byte is somewhere at least.
    assert!(content.body.as_ref().is_none_or(|body| has(&body.as_bytes()[..1])), "the body's text");
}
