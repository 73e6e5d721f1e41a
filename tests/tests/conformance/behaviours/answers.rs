//! What servers write: well-formed answers, line ends and odd bytes, framing.

use sickbay_tests::script::Step;

use super::{CUT, FRAMED, Noise, OK, Row, answer, scripted, send};

/// Well-formed answers, as any server gives them.
pub(super) fn well_formed() -> Vec<Row> {
    vec![
        answer("ok", OK),
        answer("ok_http10", b"HTTP/1.0 200 OK\r\n\r\n"),
        answer("no_reason", b"HTTP/1.1 200\r\n\r\n"),
        answer("empty_reason", b"HTTP/1.1 200 \r\n\r\n"),
        answer("not_found", b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
        answer("moved", b"HTTP/1.1 301 Moved Permanently\r\nLocation: /x\r\n\r\n"),
        answer("server_error", b"HTTP/1.1 500 X\r\n\r\n"),
        answer("unavailable", b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\nno"),
        answer("no_content", b"HTTP/1.1 204 No Content\r\n\r\n"),
        answer("not_modified", b"HTTP/1.1 304 Not Modified\r\n\r\n"),
        answer("other_success", b"HTTP/1.1 201 Created\r\n\r\n"),
        answer("switching", b"HTTP/1.1 101 Switching Protocols\r\n\r\n"),
        answer("continue_then_ok", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
            .default(
                &[("4---X-RH", "HTTP/1.1 200 OK")],
                "informational responses are passed over (RFC 9110, section 15.2)",
            ),
        answer(
            "hints_then_ok",
            b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        )
        .default(
            &[("4---X-RH", "HTTP/1.1 200 OK")],
            "informational responses are passed over (RFC 9110, section 15.2)",
        ),
        answer("continue_alone", b"HTTP/1.1 100 Continue\r\n\r\n")
            .default(&[("4---Xr--", "Truncated response")], CUT),
    ]
}

/// Line ends, lengths of lines, odd bytes.
pub(super) fn lines() -> Vec<Row> {
    const WHOLE: &str = "a NUL does not end the line";
    const UNENDED: &str = "the line, or the header, never ended (RFC 9112, section 8)";
    let line = |length: usize| {
        let mut bytes = b"HTTP/1.1 200 ".to_vec();
        bytes.resize(length, b'r');
        bytes.extend(b"\r\n\r\n");
        bytes
    };
    let zeros = [&b"HTTP/1."[..], &[b'0'; 130], b" 200 OK\r\n\r\n"].concat();
    vec![
        answer("bare_line_feeds", b"HTTP/1.1 200 OK\n\n"),
        answer("bare_carriage_return", b"HTTP/1.1 200 OK\rX\r\n\r\n").default(
            &[("4---X-R-", "HTTP/1.1 200 OK")],
            "a CR amid the line is no line end (RFC 9112, section 2.2)",
        ),
        answer("empty_line_first", b"\r\nHTTP/1.1 200 OK\r\n\r\n")
            .default(&[("4---X-R-", "Malformed status line")], "it says what is wrong"),
        answer("line_feed_first", b"\nHTTP/1.1 200 OK\n\n")
            .default(&[("4---X-R-", "Malformed status line")], "it says what is wrong"),
        answer("nul_in_reason", b"HTTP/1.1 200 O\0K\r\n\r\n")
            .default(&[("4---X-RH", r"HTTP/1.1 200 O\x00K")], WHOLE),
        answer("nul_after_status", b"HTTP/1.1 200\0OK\r\n\r\n")
            .default(&[("4---X-R-", r"HTTP/1.1 200\x00OK")], WHOLE),
        answer("nul_first", b"\0HTTP/1.1 200 OK\r\n\r\n")
            .default(&[("4---X-R-", r"\x00HTTP/1.1 200 OK")], WHOLE),
        answer("nul_in_version", b"HTTP/1.\x001 200 OK\r\n\r\n")
            .default(&[("4---X-R-", r"HTTP/1.\x001 200 OK")], WHOLE),
        answer("terminal_codes", b"HTTP/1.1 200 \x1b[2J\x07OK\r\n\r\n"),
        answer("high_bytes", b"HTTP/1.1 200 \xc3\xa9\xff\r\n\r\n"),
        answer("tab_in_reason", b"HTTP/1.1 200 O\tK\r\n\r\n"),
        answer("quotes", b"HTTP/1.1 200 \"OK\" 'x' \\y\r\n\r\n").default(
            &[("4---X-RH", r"HTTP/1.1 200 \x22OK\x22 \x27x\x27 \x5cy")],
            "quotes and backslashes are escaped too, so that the field can be taken apart",
        ),
        answer("line_of_126_bytes", &line(126)),
        answer("line_of_127_bytes", &line(127)),
        answer("line_of_128_bytes", &line(128)),
        answer("line_of_300_bytes", &line(300)),
        answer("status_past_what_is_kept", &zeros),
        answer("no_line_end", b"HTTP/1.1 200 OK")
            .default(&[("4---Xr--", "Truncated response after: HTTP/1.1 200 OK")], UNENDED),
        answer("nothing_but_status", b"HTTP/1.1 200")
            .default(&[("4---Xr--", "Truncated response after: HTTP/1.1 200")], UNENDED),
        answer("bare_status_line", b"HTTP/1.1 200 \r\n")
            .default(&[("4---Xr--", "Truncated response after: HTTP/1.1 200 ")], UNENDED),
        answer("one_byte", b"H").default(&[("4---Xr--", "Truncated response after: H")], UNENDED),
    ]
}

/// Headers and bodies.
pub(super) fn framing() -> Vec<Row> {
    const BROKEN: &str = "a response that breaks its framing is not good (RFC 9112, section 6.3)";
    const HEADER: &[(&str, &str)] = &[("4---X-R-", "Malformed header after: HTTP/1.1 200 OK")];
    const TRUNCATED: &[(&str, &str)] = &[("4---Xr--", "Truncated response after: HTTP/1.1 200 OK")];
    const GOOD: &[(&str, &str)] = &[("4---X-RH", "HTTP/1.1 200 OK")];
    let body = |name, headers: &str, body: &str| {
        answer(name, format!("HTTP/1.1 200 OK\r\n{headers}\r\n{body}").as_bytes())
    };
    let big = 50_000_000;
    let big_head = format!("HTTP/1.1 200 OK\r\nContent-Length: {big}\r\n\r\n");
    vec![
        body("body", "Content-Length: 5\r\n", "hello"),
        body("body_to_close", "", "hello"),
        body("body_too_long", "Content-Length: 2\r\n", "hello"),
        body("two_answers", "Content-Length: 0\r\n", "HTTP/1.1 500 X\r\n\r\n"),
        body("body_cut", "Content-Length: 10\r\n", "hello").default(TRUNCATED, CUT),
        body("chunks", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        body("chunks_cut", "Transfer-Encoding: chunked\r\n", "5\r\nhel").default(TRUNCATED, CUT),
        body("chunks_broken", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\nzz\r\n")
            .default(&[("4---X-R-", "Malformed chunk after: HTTP/1.1 200 OK")], BROKEN),
        body("header_without_colon", "nonsense\r\n", "").default(HEADER, BROKEN),
        body("length_of_letters", "Content-Length: x\r\n", "").default(HEADER, BROKEN),
        body("two_lengths", "Content-Length: 1\r\nContent-Length: 2\r\n", "ab")
            .default(HEADER, BROKEN),
        body("many_headers", &"X-Filler: 0123456789\r\n".repeat(1000), ""),
        body("header_of_100_kb", &format!("X: {}\r\n", "x".repeat(100_000)), "")
            .default(HEADER, "a header line has 8 KiB at most"),
        scripted(
            "body_of_1_mb_to_close",
            [Step::AwaitRequest, send(b"HTTP/1.1 200 OK\r\n\r\n"), Step::Body(1_000_000)],
        ),
        scripted("body_of_50_mb", [Step::AwaitRequest, send(big_head.as_bytes()), Step::Body(big)]),
        scripted("kept_alive", [Step::AwaitRequest, send(OK), Step::Hold]).default(GOOD, FRAMED),
        scripted(
            "kept_alive_sick",
            [
                Step::AwaitRequest,
                send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
                Step::Hold,
            ],
        )
        .default(&[("4---X-R-", "HTTP/1.1 404 Not Found")], FRAMED),
        scripted(
            "endless_body",
            [Step::AwaitRequest, send(b"HTTP/1.1 200 OK\r\n\r\n"), Step::Flood],
        )
        .noise(Noise::Endless)
        .default(GOOD, "64 KiB of a body are read; then the status stands"),
    ]
}
