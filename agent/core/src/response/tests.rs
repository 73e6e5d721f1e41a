use proptest::prelude::*;

use super::*;
use crate::limits::RESPONSE_BYTES_MAX;

/// What a response comes to when it arrives whole and the peer then closes.
fn whole(input: &[u8]) -> End {
    let mut response = Response::new(false);
    response.on_bytes(input).unwrap_or_else(|| response.on_close())
}

/// What it comes to without a close; `None` when more is awaited.
fn open(input: &[u8], head: bool) -> Option<End> {
    Response::new(head).on_bytes(input)
}

const fn complete(status: u16) -> End {
    End::Complete { status }
}

const STATUS_LINE: End = End::Malformed(Malformed::StatusLine);
const HEADER: End = End::Malformed(Malformed::Header);
const CHUNK: End = End::Malformed(Malformed::Chunk);

#[test]
fn status_lines() {
    let table: &[(&[u8], End)] = &[
        (b"HTTP/1.1 200 OK\r\n\r\n", complete(200)),
        (b"HTTP/1.0 200 OK\r\n\r\n", complete(200)),
        (b"HTTP/1.9 200 OK\r\n\r\n", complete(200)),
        (b"HTTP/1.1 200 OK\n\n", complete(200)),
        // r02069: no reason.
        (b"HTTP/1.1 200\r\n\r\n", complete(200)),
        (b"HTTP/1.1 200 \r\n\r\n", complete(200)),
        (b"HTTP/1.1 999 \xff\x1b odd\r\n\r\n", complete(999)),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", complete(404)),
        (b"HTTP/1.1 200x\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.1 2000 OK\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.1 0200 OK\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.1 099 OK\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.1 20\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.1  200 OK\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.1 +20 OK\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.11 200 OK\r\n\r\n", STATUS_LINE),
        (b"HTTP/2 200\r\n\r\n", STATUS_LINE),
        (b"HTTP/inf 200 OK\r\n\r\n", STATUS_LINE),
        (b"http/1.1 200 OK\r\n\r\n", STATUS_LINE),
        (b"FROBOZ 200 OK\r\n\r\n", STATUS_LINE),
        (b"\r\nHTTP/1.1 200 OK\r\n\r\n", STATUS_LINE),
        (b"HTTP/1.1 200 O\rK\r\n\r\n", STATUS_LINE),
        (b"\x16\x03\x01", STATUS_LINE),
        (b"", End::Empty),
        (b"H", End::Truncated),
        (b"HTTP/1.1 200 OK", End::Truncated),
        (b"HTTP/1.1 200 OK\r\n", End::Truncated),
    ];
    for (input, expected) in table {
        assert_eq!(whole(input), *expected, "{}", input.escape_ascii());
    }
}

#[test]
fn framing_is_found_without_a_close() {
    let table: &[(&[u8], Option<End>)] = &[
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", Some(complete(200))),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\no", None),
        (b"HTTP/1.1 200 OK\r\ncontent-LENGTH:0\r\n\r\n", Some(complete(200))),
        (b"HTTP/1.1 200 OK\r\n\r\nbody", None),
        (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", Some(complete(204))),
        (b"HTTP/1.1 304 Not Modified\r\nTransfer-Encoding: chunked\r\n\r\n", Some(complete(304))),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", Some(complete(101))),
        // More than was announced is the next message, not ours.
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/9", Some(complete(200))),
        // Obsolete line folding goes on with the value (RFC 9112, section 5.2).
        (b"HTTP/1.1 200 OK\r\nContent-Length:\r\n 1\r\n\r\nx", Some(complete(200))),
        (b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length-Not: 0\r\nXContent-Length: 0\r\n\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n", Some(complete(200))),
    ];
    for (input, expected) in table {
        assert_eq!(open(input, false), *expected, "{}", input.escape_ascii());
    }
}

#[test]
fn answer_to_head_ends_with_its_headers() {
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    assert_eq!(open(input, true), Some(complete(200)));
    let input = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(open(input, true), Some(complete(200)));
}

#[test]
fn lengths() {
    let table: &[(&[u8], End)] = &[
        (b"7\r\nContent-Length: 7\r\n\r\n1234567", complete(200)),
        (b"7, 7\r\n\r\n1234567", complete(200)),
        (b" 7\t \r\n\r\n1234567", complete(200)),
        (b"18446744073709551615\r\n\r\n", End::Truncated),
        (b"7\r\nContent-Length: 8\r\n\r\n12345678", HEADER),
        (b"7, 8\r\n\r\n12345678", HEADER),
        (b"18446744073709551616\r\n\r\n", HEADER),
        (b"99999999999999999999999999999999\r\n\r\n", HEADER),
        (b"-1\r\n\r\n", HEADER),
        (b"+1\r\n\r\nx", HEADER),
        (b"0x1\r\n\r\nx", HEADER),
        (b"1 1\r\n\r\nx", HEADER),
        (b"7,\r\n\r\n1234567", HEADER),
        (b"\r\n\r\n", HEADER),
        (b"abc\r\n\r\n", HEADER),
    ];
    for (rest, expected) in table {
        let input = [b"HTTP/1.1 200 OK\r\nContent-Length: ", *rest].concat();
        assert_eq!(whole(&input), *expected, "{}", input.escape_ascii());
    }
}

#[test]
fn transfer_codings() {
    let table: &[(&str, bool)] = &[
        ("chunked", true),
        ("Chunked", true),
        ("gzip, chunked", true),
        ("gzip\r\nTransfer-Encoding: chunked", true),
        ("chunked ,", true),
        (" \t chunked \t", true),
        // Wins over a length, before or after it (RFC 9112, section 6.3, rule 3).
        ("chunked\r\nContent-Length: 1", true),
        ("chunked\r\nContent-Length: 999", true),
        ("chunked, gzip", false),
        ("identity", false),
        ("chunkedx", false),
        ("chunke", false),
        ("xchunked", false),
        ("chunked;q=1", false),
        ("chunked x", false),
        ("", false),
        ("gzip\r\nContent-Length: 0", false),
    ];
    for &(codings, chunked) in table {
        let input = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {codings}\r\n\r\n0\r\n\r\n");
        // As chunks it is over; otherwise it lasts until the close.
        let expected = chunked.then_some(complete(200));
        assert_eq!(open(input.as_bytes(), false), expected, "{codings}");
        assert_eq!(whole(input.as_bytes()), complete(200), "{codings}");
    }
}

#[test]
fn chunks() {
    let table: &[(&[u8], End)] = &[
        (b"5\r\nhello\r\n0\r\n\r\n", complete(200)),
        (b"5\nhello\n0\n\n", complete(200)),
        (b"A;name=\"v\"\r\n0123456789\r\n1 ;x\r\n.\r\n000\r\n\r\n", complete(200)),
        (b"0\r\nTrailer: x\r\nOther: y\r\n\r\n", complete(200)),
        (b"5\r\nhel", End::Truncated),
        (b"5\r\nhello\r\n", End::Truncated),
        (b"0\r\n", End::Truncated),
        (b"0\r\nTrailer: x\r\n", End::Truncated),
        (b"", End::Truncated),
        (b"ffffffffffffffff\r\nx", End::Truncated),
        (b"10000000000000000\r\nx", CHUNK),
        (b"\r\n", CHUNK),
        (b"g\r\n", CHUNK),
        (b"-1\r\n", CHUNK),
        (b"0x5\r\nhello\r\n0\r\n\r\n", CHUNK),
        (b"5\r\nhelloworld\r\n0\r\n\r\n", CHUNK),
        (b"5\rhello", CHUNK),
        (b"0\r\n\rx", CHUNK),
    ];
    for (body, expected) in table {
        let input = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *body].concat();
        assert_eq!(whole(&input), *expected, "{}", input.escape_ascii());
    }
}

#[test]
fn headers_that_are_none() {
    let table: &[(&[u8], End)] = &[
        (b"no colon\r\n\r\n", HEADER),
        (b": nameless\r\n\r\n", HEADER),
        (b" folded: at once\r\n\r\n", HEADER),
        (b"na me: x\r\n\r\n", HEADER),
        (b"na\x00me: x\r\n\r\n", HEADER),
        (b"na\rme: x\r\n\r\n", HEADER),
        (b"odd: \x00\xff\"\r\n\r\n", complete(200)),
        (b"odd: a\rb\r\n\r\n", complete(200)),
        (b"odd: a\r\r\n\r\n", complete(200)),
        (b"odd:\r\n folded\r\n\tand again\r\n\r\n", complete(200)),
    ];
    for (rest, expected) in table {
        let input = [b"HTTP/1.1 200 OK\r\n", *rest].concat();
        assert_eq!(whole(&input), *expected, "{}", input.escape_ascii());
    }
}

#[test]
fn informational_responses_are_passed_over() {
    let input = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let mut response = Response::new(false);
    assert_eq!(response.on_bytes(input), Some(complete(200)));
    assert_eq!(response.line().as_bytes(), b"HTTP/1.1 200 OK");

    let informational = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(8);
    assert_eq!(whole(&[&informational[..], b"HTTP/1.1 204 x\r\n\r\n"].concat()), complete(204));
    let informational = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(9);
    assert_eq!(whole(&informational), End::Malformed(Malformed::TooManyInformational));
}

#[test]
fn shorter_answer_is_not_completed_by_an_older_one() {
    // Varnish's stale buffer: one byte after an earlier good reply is taken for that reply.
    assert_eq!(whole(b"HTTP/1.1 200 OK\r\n\r\n"), complete(200));
    assert_eq!(whole(b"H"), End::Truncated);
}

#[test]
fn c00017_needs_the_headers_end_where_varnish_does_not() {
    // Varnish judges a bare status line followed by a close; framing says that it was cut.
    assert_eq!(whole(b"HTTP/1.1 200 \r\n"), End::Truncated);
    assert_eq!(whole(b"HTTP/1.1 200 \r\n\r\n"), complete(200));
}

#[test]
fn lines_have_a_limit() {
    let long = |length: usize| vec![b'x'; length];
    let reason = [b"HTTP/1.1 200 ", &long(8000)[..], b"\r\n\r\n"].concat();
    assert_eq!(whole(&reason), complete(200));
    let reason = [b"HTTP/1.1 200 ", &long(8192)[..], b"\r\n\r\n"].concat();
    assert_eq!(whole(&reason), STATUS_LINE);
    let header = |length| [b"HTTP/1.1 200 OK\r\nx: ", &long(length)[..], b"\r\n\r\n"].concat();
    // With "x: ", CR and LF the whole line has 8192 bytes.
    assert_eq!(whole(&header(8187)), complete(200));
    assert_eq!(whole(&header(8188)), HEADER);
    let chunk = |length| {
        let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0;";
        [head, &long(length)[..], b"\r\n\r\n"].concat()
    };
    // The same with "0;".
    assert_eq!(whole(&chunk(8188)), complete(200));
    assert_eq!(whole(&chunk(8189)), CHUNK);
}

#[test]
fn body_is_cut_and_stands_headers_are_cut_and_do_not() {
    let length = RESPONSE_BYTES_MAX as usize;
    let input = |head: &[u8]| [head, &vec![b'1'; length - head.len()]].concat();
    let table: &[(&[u8], End)] = &[
        (b"HTTP/1.1 200 OK\r\n\r\n", complete(200)),
        (b"HTTP/1.1 503 OK\r\nContent-Length: 9999999\r\n\r\n", complete(503)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffff\r\n", complete(200)),
    ];
    for (head, expected) in table {
        let input = input(head);
        assert_eq!(open(&input[..length - 1], false), None);
        assert_eq!(open(&input, false), Some(*expected));
    }
    let endless = b"HTTP/1.1 200 OK\r\n".iter().chain(b"x: y\r\n".iter().cycle());
    let endless: Vec<u8> = endless.copied().take(length).collect();
    assert_eq!(open(&endless, false), Some(HEADER));
}

#[test]
fn line_that_is_no_status_line_is_kept_to_its_end() {
    let mut response = Response::new(false);
    assert_eq!(response.on_bytes(b"SSH-2.0-Open"), None);
    assert_eq!(response.on_bytes(b"SSH_9.2\r\n"), Some(STATUS_LINE));
    assert_eq!(response.line().as_bytes(), b"SSH-2.0-OpenSSH_9.2");
    // Not awaited for ever: past what is kept it is refused.
    assert_eq!(open(&[b'z'; 126], false), None);
    assert_eq!(open(&[b'z'; 127], false), Some(STATUS_LINE));
}

/// Bytes that come near to responses: pieces of them, in any order, and noise.
fn input() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => Just(b"HTTP/1.1 200 OK\r\n".to_vec()),
        1 => Just(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
        1 => Just(b"HTTP/1.0 404\n".to_vec()),
        2 => Just(b"Content-Length: 7\r\n".to_vec()),
        2 => Just(b"transfer-encoding: gzip, chunked\r\n".to_vec()),
        1 => Just(b"X: y\r\n z\r\n".to_vec()),
        3 => Just(b"\r\n".to_vec()),
        1 => Just(b"\n".to_vec()),
        1 => Just(b"5\r\nhello\r\n".to_vec()),
        1 => Just(b"0\r\n\r\n".to_vec()),
        1 => Just(vec![b'x'; 9000]),
        1 => proptest::collection::vec(any::<u8>(), 0..12),
    ];
    let mixed = proptest::collection::vec(piece, 0..10).prop_map(|pieces| pieces.concat());
    let started = mixed.prop_map(|rest| [b"HTTP/1.1 200 OK\r\n", &rest[..]].concat());
    prop_oneof![3 => started, 1 => proptest::collection::vec(any::<u8>(), 0..300)]
}

proptest! {
    #[test]
    fn any_split_of_any_input_gives_the_same_end_and_line(
        input in input(),
        head in any::<bool>(),
        cuts in proptest::collection::vec(any::<proptest::sample::Index>(), 0..20),
    ) {
        let mut once = Response::new(head);
        let expected = once.on_bytes(&input).unwrap_or_else(|| once.on_close());

        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        places.extend([0, input.len()]);
        places.sort_unstable();
        let mut split = Response::new(head);
        let pieces = places.windows(2).map(|pair| &input[pair[0]..pair[1]]);
        let end = pieces.filter(|piece| !piece.is_empty()).find_map(|piece| split.on_bytes(piece));
        prop_assert_eq!(end.unwrap_or_else(|| split.on_close()), expected);
        prop_assert_eq!(split.line(), once.line());

        let mut bytes = Response::new(head);
        let end = input.iter().find_map(|&byte| bytes.on_bytes(&[byte]));
        prop_assert_eq!(end.unwrap_or_else(|| bytes.on_close()), expected);
    }
}

/// What is wanted of a response in the tests below.
fn wanting(body: &str, body_bytes_max: u64) -> Content {
    let body = crate::pattern::Pattern::new(body.as_bytes());
    Content { header: None, body, body_bytes_max }
}

/// Fed in pieces of `size` bytes, then closed.
fn fed(input: &[u8], size: usize, content: &Content) -> (End, Option<Lack>) {
    let mut response = Response::new(false);
    let mut pieces = input.chunks(size);
    let end = pieces.find_map(|piece| response.on_bytes_with(piece, content));
    (end.unwrap_or_else(|| response.on_close()), response.lack(content))
}

#[test]
fn text_is_looked_for_in_the_body_alone_however_it_is_framed_and_split() {
    let content = wanting("ready", 1000);
    let table: &[(&[u8], bool)] = &[
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nis ready.", true),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nis red...", false),
        (b"HTTP/1.1 200 OK\r\n\r\nready", true),
        (b"HTTP/1.1 200 ready\r\nX: ready\r\nContent-Length: 0\r\n\r\n", false),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
              3\r\nrea\r\n2\r\ndy\r\n0\r\n\r\n",
            true,
        ),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
              1;ready\r\nx\r\n0\r\nT: ready\r\n\r\n",
            false,
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", false),
    ];
    for (input, there) in table {
        for size in [1, 2, 7, input.len()] {
            let (end, lack) = fed(input, size, &content);
            assert!(matches!(end, End::Complete { .. }), "{}: {end:?}", input.escape_ascii());
            assert_eq!(lack.is_none(), *there, "{} by {size}", input.escape_ascii());
        }
    }
}

#[test]
fn body_is_read_no_further_than_its_limit() {
    let mut input = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n".to_vec();
    input.extend([b'.'; 95]);
    input.extend(b"ready");
    assert_eq!(fed(&input, 13, &wanting("ready", 100)), (complete(200), None));
    assert_eq!(fed(&input, 13, &wanting("ready", 99)), (complete(200), Some(Lack::Body)));
    // Not even a whole body of another server's is awaited.
    assert_eq!(open(&input, false), None);
}

#[test]
fn header_of_an_informational_response_is_not_the_final_ones() {
    let header = crate::content::WantedHeader { name: b"a".as_slice().into(), value: None };
    let content = Content { header: Some(header), ..Content::ANY };
    let early = b"HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n";
    let bare = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let has = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\r\n\r\n";
    let early_then = |last: &[u8]| fed(&[early, last].concat(), 5, &content);
    assert_eq!(early_then(bare), (complete(200), Some(Lack::Header)));
    assert_eq!(early_then(has), (complete(200), None));
}
