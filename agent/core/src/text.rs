//! What is said of a probe: Varnish's words where Varnish has them, and nothing raw from the peer.

use core::fmt;

use crate::command::{Arrival, LocalFault, Malformed, Outcome, Phase, Report, StatusLine};
use crate::content::Lack;
use crate::plan::{Compat, Nanos};
use crate::register::Registers;

pub use varnish::Legible;

/// Varnish's own words.
pub(crate) mod varnish;

/// The newest bit of each register as Varnish logs them, `4---X-RH`.
#[derive(Clone, Copy, Debug)]
pub struct Bits<'a>(pub &'a Registers);

impl fmt::Display for Bits<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (register, letter) in self.0.iter().zip(LETTERS) {
            fmt::Write::write_char(formatter, if register & 1 == 1 { letter } else { '-' })?;
        }
        Ok(())
    }
}

/// Varnish's letters for the registers, in their order.
pub const LETTERS: [char; 8] = ['4', '6', 'U', 'x', 'X', 'r', 'R', 'H'];

/// What a probe came to, in one line.
///
/// With [`Compat::Varnish`] the texts are Varnish's to the letter, the peer's bytes
/// [legible](Legible). Otherwise they are Varnish's with four differences: a timeout names the phase
/// and by how much it was exceeded in every phase; it, or an error, after a part of the response
/// tells how much came, and a timeout how long ago; a response that broke off or broke its framing
/// says so; and local faults, which Varnish holds against the backend, have texts of their own.
#[derive(Clone, Copy, Debug)]
pub struct OutcomeText {
    /// What it came to.
    pub outcome: Outcome,
    /// The response's first line, empty when there is none.
    pub line: StatusLine,
    /// How much of a response came, and until when.
    pub arrival: Arrival,
    /// The probe's timeout.
    pub timeout_ns: Nanos,
    /// From its start to its end.
    pub duration_ns: Nanos,
    /// Whose behaviour the probe has.
    pub compat: Compat,
}

impl fmt::Display for OutcomeText {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.compat.is_varnish() {
            if let Some(line) = varnish::line(self) {
                return Legible(line).fmt(formatter);
            }
            if let Some(written) = varnish::words(self, formatter) {
                return written;
            }
        }
        let line = Escaped(self.line.as_bytes());
        match self.outcome {
            Outcome::Connected => formatter.write_str("Connected"),
            Outcome::Answered { status, .. } if self.line.as_bytes().is_empty() => {
                write!(formatter, "Status {status}")
            }
            Outcome::Answered { .. } => line.fmt(formatter),
            Outcome::Lacking { what, .. } => {
                let part = match what {
                    Lack::Header => "header",
                    Lack::Body => "body",
                };
                write!(formatter, "Expected {part} missing")?;
                self.after(formatter)
            }
            Outcome::Matched => formatter.write_str("Expected bytes received"),
            Outcome::Mismatched => formatter.write_str("Expected bytes missing"),
            Outcome::Malformed(Malformed::StatusLine) if !self.line.as_bytes().is_empty() => {
                line.fmt(formatter)
            }
            Outcome::Malformed(how) => {
                formatter.write_str(match how {
                    Malformed::StatusLine => "Malformed status line",
                    Malformed::Header => "Malformed header",
                    Malformed::Chunk => "Malformed chunk",
                    Malformed::TooManyInformational => "Too many informational responses",
                })?;
                self.after(formatter)
            }
            Outcome::Empty => formatter.write_str("Empty response"),
            Outcome::Truncated => {
                formatter.write_str("Truncated response")?;
                self.after(formatter)
            }
            Outcome::Failed { phase, errno } => {
                write!(formatter, "{} error {}", verb(phase), Errno(errno))?;
                match self.arrival.byte_count {
                    0 => Ok(()),
                    count => write!(formatter, " after {}", Bytes(count)),
                }
            }
            Outcome::TimedOut { phase } => self.timed_out(phase, formatter),
            Outcome::OpenedLate => self.timed_out(Phase::Connect, formatter),
            Outcome::Indeterminate(LocalFault::Errno { errno }) => {
                write!(formatter, "Local error {}", Errno(errno))
            }
            Outcome::Indeterminate(LocalFault::NoSlot) => {
                formatter.write_str("No slot was free until the next probe was due")
            }
            Outcome::Indeterminate(LocalFault::LoopLate) => write!(
                formatter,
                "Timeout {}s not judged: the probing loop itself was late",
                Seconds(self.timeout_ns),
            ),
        }
    }
}

impl OutcomeText {
    /// What `report` says of a probe with this timeout.
    #[must_use]
    pub const fn of(report: &Report, timeout_ns: Nanos, compat: Compat) -> Self {
        let Report { outcome, line, arrival, duration_ns, .. } = *report;
        Self { outcome, line, arrival, timeout_ns, duration_ns, compat }
    }

    fn timed_out(&self, phase: Phase, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (timeout_ns, duration_ns) = (self.timeout_ns, self.duration_ns);
        let (timeout, over) =
            (Seconds(timeout_ns), Seconds(duration_ns.saturating_sub(timeout_ns)));
        write!(formatter, "{} timeout {timeout}s exceeded by {over}s", verb(phase))?;
        match self.arrival {
            _ if phase != Phase::Receive => Ok(()),
            Arrival { byte_count: 0, .. } => formatter.write_str(": no byte came"),
            Arrival { byte_count, last_ns } => {
                let ago = Seconds(duration_ns.saturating_sub(last_ns));
                write!(formatter, ": {} came, the last {ago}s ago", Bytes(byte_count))
            }
        }
    }

    fn after(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line.as_bytes() {
            [] => Ok(()),
            line => write!(formatter, " after: {}", Escaped(line)),
        }
    }
}

/// Untrusted bytes made fit for a terminal and for a quoted field: printable ASCII stands, the
/// rest, quotes and backslashes become `\xNN`. One to one, so two texts never look the same.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in self.0 {
            match byte {
                b'\\' | b'"' | b'\'' => write!(formatter, "\\x{byte:02x}")?,
                b' '..=b'~' => fmt::Write::write_char(formatter, char::from(byte))?,
                _ => write!(formatter, "\\x{byte:02x}")?,
            }
        }
        Ok(())
    }
}

/// An errno as `111 (Connection refused)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match errno_text(self.0) {
            Some(text) => write!(formatter, "{} ({text})", self.0),
            None => write!(formatter, "{} (Unknown error {})", self.0, self.0),
        }
    }
}

/// The C library's text for the errnos that socket calls give, Linux's numbers.
#[must_use]
pub const fn errno_text(errno: i32) -> Option<&'static str> {
    Some(match errno {
        0 => "Success",
        1 => "Operation not permitted",
        2 => "No such file or directory",
        4 => "Interrupted system call",
        5 => "Input/output error",
        6 => "No such device or address",
        9 => "Bad file descriptor",
        11 => "Resource temporarily unavailable",
        12 => "Cannot allocate memory",
        13 => "Permission denied",
        14 => "Bad address",
        16 => "Device or resource busy",
        19 => "No such device",
        22 => "Invalid argument",
        23 => "Too many open files in system",
        24 => "Too many open files",
        32 => "Broken pipe",
        71 => "Protocol error",
        90 => "Message too long",
        91 => "Protocol wrong type for socket",
        92 => "Protocol not available",
        93 => "Protocol not supported",
        95 => "Operation not supported",
        97 => "Address family not supported by protocol",
        98 => "Address already in use",
        99 => "Cannot assign requested address",
        100 => "Network is down",
        101 => "Network is unreachable",
        102 => "Network dropped connection on reset",
        103 => "Software caused connection abort",
        104 => "Connection reset by peer",
        105 => "No buffer space available",
        106 => "Transport endpoint is already connected",
        107 => "Transport endpoint is not connected",
        108 => "Cannot send after transport endpoint shutdown",
        110 => "Connection timed out",
        111 => "Connection refused",
        112 => "Host is down",
        113 => "No route to host",
        114 => "Operation already in progress",
        115 => "Operation now in progress",
        125 => "Operation canceled",
        _ => return None,
    })
}

/// Varnish's word for a phase.
const fn verb(phase: Phase) -> &'static str {
    match phase {
        Phase::Socket | Phase::Connect => "Open",
        Phase::Send => "Write",
        Phase::Receive => "Read",
    }
}

/// A number of bytes, `1 byte` or `2 bytes`.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// A span as seconds with three digits, rounded down.
struct Seconds(Nanos);

impl fmt::Display for Seconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:03}", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Family;
    use crate::register;

    fn text(outcome: Outcome, line: &[u8]) -> String {
        let mut kept = StatusLine::EMPTY;
        line.iter().for_each(|&byte| kept.push(byte));
        let (timeout_ns, duration_ns) = (2_000_000_000, 2_001_999_999);
        let last_ns = if line.is_empty() { 0 } else { 1_500_000_000 };
        let arrival = Arrival { byte_count: line.len() as u64, last_ns };
        let compat = Compat::Off;
        OutcomeText { outcome, line: kept, arrival, timeout_ns, duration_ns, compat }.to_string()
    }

    #[test]
    fn texts_are_varnishs() {
        let answered = |status| Outcome::Answered { status, good: status == 200 };
        let failed = |phase, errno| Outcome::Failed { phase, errno };
        let timed_out = |phase| Outcome::TimedOut { phase };
        let table: [(Outcome, &[u8], &str); 16] = [
            (answered(200), b"HTTP/1.1 200 OK", "HTTP/1.1 200 OK"),
            (answered(404), b"HTTP/1.1 404 Not Found", "HTTP/1.1 404 Not Found"),
            (Outcome::Malformed(Malformed::StatusLine), b"FROBOZ 200 OK", "FROBOZ 200 OK"),
            (Outcome::Empty, b"", "Empty response"),
            (failed(Phase::Connect, 111), b"", "Open error 111 (Connection refused)"),
            (failed(Phase::Send, 32), b"", "Write error 32 (Broken pipe)"),
            (failed(Phase::Receive, 104), b"", "Read error 104 (Connection reset by peer)"),
            (failed(Phase::Connect, 4242), b"", "Open error 4242 (Unknown error 4242)"),
            (
                failed(Phase::Receive, 104),
                b"HTTP/1.1 200 OK",
                "Read error 104 (Connection reset by peer) after 15 bytes",
            ),
            (timed_out(Phase::Connect), b"", "Open timeout 2.000s exceeded by 0.001s"),
            (timed_out(Phase::Send), b"", "Write timeout 2.000s exceeded by 0.001s"),
            (
                timed_out(Phase::Receive),
                b"",
                "Read timeout 2.000s exceeded by 0.001s: no byte came",
            ),
            (
                timed_out(Phase::Receive),
                b"H",
                "Read timeout 2.000s exceeded by 0.001s: 1 byte came, the last 0.501s ago",
            ),
            (
                timed_out(Phase::Receive),
                b"HTTP/1.1 200 OK",
                "Read timeout 2.000s exceeded by 0.001s: 15 bytes came, the last 0.501s ago",
            ),
            (Outcome::Truncated, b"HTTP/1.1 2", "Truncated response after: HTTP/1.1 2"),
            (
                Outcome::Malformed(Malformed::Chunk),
                b"HTTP/1.1 200 OK",
                "Malformed chunk after: HTTP/1.1 200 OK",
            ),
        ];
        for (outcome, line, expected) in table {
            assert_eq!(text(outcome, line), expected);
        }
    }

    #[test]
    fn local_faults_have_texts_of_their_own() {
        let text = |fault| text(Outcome::Indeterminate(fault), b"");
        assert_eq!(text(LocalFault::Errno { errno: 24 }), "Local error 24 (Too many open files)");
        assert_eq!(text(LocalFault::NoSlot), "No slot was free until the next probe was due");
        assert_eq!(
            text(LocalFault::LoopLate),
            "Timeout 2.000s not judged: the probing loop itself was late"
        );
    }

    #[test]
    fn texts_of_errnos_are_the_c_librarys() {
        let known: Vec<i32> = (0..200).filter(|&errno| errno_text(errno).is_some()).collect();
        assert_eq!(known.len(), 42);
        for errno in known {
            // std appends " (os error N)" to strerror_r's text.
            let standard = std::io::Error::from_raw_os_error(errno).to_string();
            let expected = format!("{} (os error {errno})", errno_text(errno).unwrap());
            assert_eq!(standard, expected);
        }
    }

    #[test]
    fn bits_read_as_in_varnishs_log() {
        let mut registers = register::prefilled(2, 3);
        assert_eq!(Bits(&registers).to_string(), "-------H");
        let good = Outcome::Answered { status: 200, good: true };
        register::record(&mut registers, good, Family::Ipv4, Compat::Off);
        assert_eq!(Bits(&registers).to_string(), "4---X-RH");
        register::record(&mut registers, good, Family::Unix, Compat::Off);
        assert_eq!(Bits(&registers).to_string(), "--U-X-RH");
        let reset = Outcome::Failed { phase: Phase::Receive, errno: 104 };
        register::record(&mut registers, reset, Family::Ipv4, Compat::Off);
        assert_eq!(Bits(&registers).to_string(), "4---Xr--");
        let refused = Outcome::Failed { phase: Phase::Connect, errno: 111 };
        register::record(&mut registers, refused, Family::Ipv6, Compat::Off);
        assert_eq!(Bits(&registers).to_string(), "--------");
    }

    #[test]
    fn nothing_of_the_peers_reaches_a_terminal_raw() {
        let every_byte: Vec<u8> = (0..=255).collect();
        let shown = Escaped(&every_byte).to_string();
        assert!(shown.bytes().all(|byte| (0x20..0x7f).contains(&byte)));
        assert_eq!(
            Escaped(b"\x1b[31m\"a\\b'\xff\r\n").to_string(),
            r"\x1b[31m\x22a\x5cb\x27\xff\x0d\x0a"
        );
        assert_eq!(
            text(Outcome::Answered { status: 200, good: true }, b"HTTP/1.1 200 \x1b]0;x\x07"),
            r"HTTP/1.1 200 \x1b]0;x\x07"
        );
    }
}
