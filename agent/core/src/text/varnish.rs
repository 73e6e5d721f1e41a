//! Varnish's own words for an outcome (7.1.1, `cache_backend_probe.c`), to the letter.

use core::fmt;

use super::{Errno, OutcomeText};
use crate::command::{Outcome, Phase};

/// Linux's number.
const ETIMEDOUT: i32 = 110;

/// Untrusted bytes as Varnish logs them, but for those that a terminal or a reader of lines would
/// obey: control bytes and bytes past ASCII become `\xNN`. Quotes and backslashes stand, so this
/// is for reading and comparing, not for taking apart.
#[derive(Clone, Copy, Debug)]
pub struct Legible<'a>(pub &'a [u8]);

impl fmt::Display for Legible<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b' '..=b'~' => fmt::Write::write_char(formatter, char::from(byte))?,
                _ => write!(formatter, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

/// The peer's bytes where they are all that Varnish says.
pub(crate) fn line(text: &OutcomeText) -> Option<&[u8]> {
    match text.outcome {
        Outcome::Answered { .. } | Outcome::Malformed(_) => Some(text.line.as_bytes()),
        _ => None,
    }
}

/// Writes Varnish's words; `None` where it has none of its own: for the peer's bytes, for a fault
/// of this host, and for a TCP probe.
///
/// One text is shorter than Varnish's: `Short write` tells how many bytes of how many were taken,
/// which depends on the sizes of socket buffers and is not known here.
pub(super) fn words(text: &OutcomeText, formatter: &mut fmt::Formatter<'_>) -> Option<fmt::Result> {
    let (verb, errno) = match text.outcome {
        Outcome::Failed { phase: Phase::Socket | Phase::Connect, errno } => ("Open", errno),
        Outcome::Failed { phase: Phase::Send, errno } => ("Write", errno),
        Outcome::Failed { phase: Phase::Receive, errno } => ("Read", errno),
        Outcome::TimedOut { phase: Phase::Socket | Phase::Connect } => ("Open", ETIMEDOUT),
        Outcome::TimedOut { phase: Phase::Receive } => ("Poll", ETIMEDOUT),
        Outcome::TimedOut { phase: Phase::Send } => {
            return Some(formatter.write_str("Short write error 0 (Success)"));
        }
        Outcome::Truncated | Outcome::OpenedLate => {
            let verb = if text.outcome == Outcome::OpenedLate { "Open" } else { "Poll" };
            let seconds = |span_ns| span_ns as f64 / 1e9;
            let timeout_s = seconds(text.timeout_ns);
            let exceeded_s = seconds(text.duration_ns.saturating_sub(text.timeout_ns));
            return Some(write!(
                formatter,
                "{verb} timeout {timeout_s:.3}s exceeded by {exceeded_s:.3}s"
            ));
        }
        Outcome::Empty => return Some(formatter.write_str("Empty response")),
        Outcome::Connected
        | Outcome::Matched
        | Outcome::Mismatched
        | Outcome::Lacking { .. }
        | Outcome::Answered { .. }
        | Outcome::Malformed(_)
        | Outcome::Indeterminate(_) => return None,
    };
    Some(write!(formatter, "{verb} error {}", Errno(errno)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Arrival, LocalFault, Malformed, StatusLine};
    use crate::plan::Compat;

    fn text(outcome: Outcome, line: &[u8]) -> String {
        let mut kept = StatusLine::EMPTY;
        line.iter().for_each(|&byte| kept.push(byte));
        let (timeout_ns, duration_ns) = (2_000_000_000, 2_001_600_000);
        let arrival = Arrival { byte_count: line.len() as u64, last_ns: 1 };
        let compat = Compat::VARNISH;
        OutcomeText { outcome, line: kept, arrival, timeout_ns, duration_ns, compat }.to_string()
    }

    #[test]
    fn words_are_varnishs_to_the_letter() {
        let failed = |phase, errno| Outcome::Failed { phase, errno };
        let timed_out = |phase| Outcome::TimedOut { phase };
        let good = Outcome::Answered { status: 200, good: true };
        let malformed = Outcome::Malformed(Malformed::StatusLine);
        let table: [(Outcome, &[u8], &str); 13] = [
            (good, b"HTTP/1.1 200 \"OK\"", "HTTP/1.1 200 \"OK\""),
            (malformed, b"FROBOZ 200 OK", "FROBOZ 200 OK"),
            (malformed, b"", ""),
            (Outcome::Empty, b"", "Empty response"),
            (failed(Phase::Connect, 111), b"", "Open error 111 (Connection refused)"),
            (failed(Phase::Send, 32), b"", "Write error 32 (Broken pipe)"),
            (failed(Phase::Receive, 104), b"H", "Read error 104 (Connection reset by peer)"),
            (timed_out(Phase::Connect), b"", "Open error 110 (Connection timed out)"),
            (timed_out(Phase::Receive), b"H", "Poll error 110 (Connection timed out)"),
            (timed_out(Phase::Send), b"", "Short write error 0 (Success)"),
            (Outcome::Truncated, b"H", "Poll timeout 2.000s exceeded by 0.002s"),
            (Outcome::OpenedLate, b"", "Open timeout 2.000s exceeded by 0.002s"),
            (
                Outcome::Indeterminate(LocalFault::Errno { errno: 99 }),
                b"",
                "Local error 99 (Cannot assign requested address)",
            ),
        ];
        for (outcome, line, expected) in table {
            assert_eq!(text(outcome, line), expected);
        }
    }

    #[test]
    fn bytes_that_a_terminal_obeys_are_escaped_and_no_others() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let shown = Legible(&every_byte).to_string();
        assert!(shown.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        assert_eq!(
            Legible(b"\x1b]0;a\x07\"b\\\xc2\x9b").to_string(),
            "\\x1b]0;a\\x07\"b\\\\xc2\\x9b"
        );
    }
}
