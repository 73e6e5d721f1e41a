//! What servers do: when they write, how they close, one connection after the other, and where.

use std::time::Duration;

use sickbay_tests::script::{Place, Step};

use super::{CUT, FRAMED, Noise, OK, Row, WORDED, pause, scripted, send};

const GOOD: &[(&str, &str)] = &[("4---X-RH", "HTTP/1.1 200 OK")];
const SILENT: &[(&str, &str)] = &[("4---Xr--", "Read timeout 1.000s exceeded by Ns: no byte came")];
const DRIPPED: &[(&str, &str)] =
    &[("4---Xr--", "Read timeout 1.000s exceeded by Ns: N bytes came, the last Ns ago")];
const RESET_LATE: &str = "an error says after how much of the response it came";
const SPLIT: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// When servers write.
pub(super) fn timing() -> Vec<Row> {
    let tenth = Duration::from_millis(100);
    vec![
        scripted("byte_by_byte", [Step::AwaitRequest, Step::Drip(OK.to_vec(), tenth / 50)]),
        scripted(
            "split_status",
            [Step::AwaitRequest, send(&SPLIT[..10]), pause(50), send(&SPLIT[10..])],
        ),
        scripted(
            "split_line_end",
            [Step::AwaitRequest, send(&SPLIT[..16]), pause(50), send(&SPLIT[16..])],
        ),
        scripted(
            "split_body",
            [Step::AwaitRequest, send(&SPLIT[..40]), pause(50), send(&SPLIT[40..])],
        ),
        scripted("slow", [Step::AwaitRequest, pause(300), send(OK)]),
        scripted("slow_to_close", [Step::AwaitRequest, send(OK), pause(300)]),
        scripted("too_late", [Step::AwaitRequest, pause(1500), send(OK)]).default(SILENT, WORDED),
        scripted("silent", [Step::AwaitRequest, Step::Hold]).default(SILENT, WORDED),
        scripted("never_reads", [pause(1500)]).default(SILENT, WORDED),
        scripted("drips_too_long", [Step::AwaitRequest, Step::Drip(OK.to_vec(), tenth)])
            .default(DRIPPED, WORDED)
            .noise(Noise::Endless),
        scripted(
            "drips_headers",
            [
                Step::AwaitRequest,
                send(b"HTTP/1.1 200 OK\r\n"),
                Step::Drip(b"X-Drip: 0123456789\r\n\r\n".to_vec(), tenth),
            ],
        )
        .default(DRIPPED, WORDED)
        .noise(Noise::Endless),
        scripted(
            "status_then_silence",
            [Step::AwaitRequest, send(b"HTTP/1.1 200 OK\r\n"), Step::Hold],
        )
        .default(DRIPPED, WORDED),
        scripted(
            "body_then_silence",
            [
                Step::AwaitRequest,
                send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
                Step::Hold,
            ],
        )
        .default(DRIPPED, WORDED),
    ]
}

/// How servers close.
pub(super) fn breaking() -> Vec<Row> {
    vec![
        scripted("empty", [Step::AwaitRequest]),
        scripted("reset", [Step::AwaitRequest, Step::Reset]),
        scripted("reset_at_once", [Step::Reset]).noise(Noise::Reset),
        scripted("closed_unread", [Step::AwaitUnread]),
        scripted("early_answer", [Step::AwaitUnread, send(OK)]).default(GOOD, FRAMED),
        scripted(
            "reset_after_status",
            [Step::AwaitRequest, send(b"HTTP/1.1 200 OK\r\n"), pause(50), Step::Reset],
        )
        .default(
            &[("4---Xr--", "Read error 104 (Connection reset by peer) after 17 bytes")],
            RESET_LATE,
        ),
        scripted(
            "reset_in_status",
            [Step::AwaitRequest, send(b"HTTP/1.1 2"), pause(50), Step::Reset],
        )
        .default(
            &[("4---Xr--", "Read error 104 (Connection reset by peer) after 10 bytes")],
            RESET_LATE,
        ),
        scripted(
            "reset_in_body",
            [
                Step::AwaitRequest,
                send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello"),
                pause(50),
                Step::Reset,
            ],
        )
        .default(
            &[("4---Xr--", "Read error 104 (Connection reset by peer) after 44 bytes")],
            RESET_LATE,
        ),
        scripted("reset_after_answer", [Step::AwaitRequest, send(OK), pause(50), Step::Reset])
            .default(GOOD, FRAMED),
        scripted("half_close", [Step::AwaitRequest, send(OK), Step::HalfClose, Step::Hold]),
        scripted("half_close_empty", [Step::AwaitRequest, Step::HalfClose, Step::Hold]),
        scripted(
            "half_close_in_status",
            [Step::AwaitRequest, send(b"HTTP/1.1 200"), Step::HalfClose, Step::Hold],
        )
        .default(&[("4---Xr--", "Truncated response after: HTTP/1.1 200")], CUT),
    ]
}

/// One connection after the other.
pub(super) fn sequences() -> Vec<Row> {
    const OWN_BYTES: &str = "a reply is judged by its own bytes, not completed by an older one's";
    let reply = |bytes: &[u8]| vec![Step::AwaitRequest, send(bytes)];
    let bad = || reply(b"HTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n");
    let turns = |name, turns: Vec<Vec<Step>>| Row::new(name, Place::Ipv4, turns);
    vec![
        turns("flips", vec![reply(OK), bad()]),
        turns("recovers", vec![bad(), bad(), bad(), reply(OK), reply(OK), reply(OK)]),
        turns("dies", vec![reply(OK), reply(OK), bad(), bad(), vec![Step::AwaitRequest], bad()]),
        turns(
            "wanders",
            vec![
                reply(OK),
                vec![Step::AwaitRequest, Step::Reset],
                vec![Step::AwaitRequest],
                vec![Step::AwaitUnread],
                reply(b"HTTP/1.1 404 Not Found\r\n\r\n"),
                reply(b"SSH-2.0-OpenSSH_9.2\r\n"),
            ],
        ),
        turns("stale_byte", vec![reply(OK), reply(b"H")])
            .bug(&[("4---X-RH", "HTTP/1.1 200 OK"), ("4---X-R-", "H")], OWN_BYTES)
            .default(
                &[("4---X-RH", "HTTP/1.1 200 OK"), ("4---Xr--", "Truncated response after: H")],
                CUT,
            ),
        turns(
            "stale_reason",
            vec![reply(b"HTTP/1.1 200 All is well\r\n\r\n"), reply(b"HTTP/1.1 200 Up")],
        )
        .bug(
            &[("4---X-RH", "HTTP/1.1 200 All is well"), ("4---X-RH", "HTTP/1.1 200 Up")],
            OWN_BYTES,
        )
        .default(
            &[
                ("4---X-RH", "HTTP/1.1 200 All is well"),
                ("4---Xr--", "Truncated response after: HTTP/1.1 200 Up"),
            ],
            CUT,
        ),
        turns("stale_status", vec![reply(b"HTTP/1.1 2000 X\r\n\r\n"), reply(b"HTTP/1.1 200")])
            .bug(&[("4---X-R-", "HTTP/1.1 2000 X"), ("4---X-RH", "HTTP/1.1 200")], OWN_BYTES)
            .default(
                &[
                    ("4---X-R-", "HTTP/1.1 2000 X"),
                    ("4---Xr--", "Truncated response after: HTTP/1.1 200"),
                ],
                CUT,
            ),
    ]
}

/// Where servers are, and whether they are at all.
pub(super) fn places() -> Vec<Row> {
    let at = |name, place, bytes: &[u8]| {
        Row::new(name, place, vec![vec![Step::AwaitRequest, send(bytes)]])
    };
    let nowhere = |name, place| Row::new(name, place, vec![Vec::new()]);
    vec![
        at("ipv6_ok", Place::Ipv6, OK),
        at("ipv6_sick", Place::Ipv6, b"HTTP/1.1 503 X\r\n\r\n"),
        at("ipv6_empty", Place::Ipv6, b""),
        nowhere("refused", Place::Closed),
        nowhere("black_hole", Place::Full)
            .default(&[("--------", "Open timeout 1.000s exceeded by Ns")], WORDED),
        at("unix_ok", Place::Unix, OK),
        at("unix_sick", Place::Unix, b"HTTP/1.1 503 X\r\n\r\n"),
        at("unix_empty", Place::Unix, b""),
        at("unix_cut", Place::Unix, b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
            .default(&[("--U-Xr--", "Truncated response after: HTTP/1.1 200 OK")], CUT),
        Row::new("unix_silent", Place::Unix, vec![vec![Step::AwaitRequest, Step::Hold]])
            .default(&[("--U-Xr--", "Read timeout 1.000s exceeded by Ns: no byte came")], WORDED),
        Row::new("unix_closed_unread", Place::Unix, vec![vec![Step::AwaitUnread]]),
        nowhere("unix_missing", Place::UnixMissing),
        nowhere("unix_full", Place::UnixFull).default(
            &[("--------", "Open timeout 1.000s exceeded by Ns")],
            "room in its queue is waited for until the deadline",
        ),
    ]
}
