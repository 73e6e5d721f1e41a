//! Varnish's log record of a probe, `Backend_health`, as `varnishlog` prints it behind its tag.
//!
//! `<backend> <Went|Still> <healthy|sick> <bits> <good> <threshold> <window> <last> <average>
//! "<text>"`, cut after [`RECORD_BYTES_MAX`] bytes as Varnish cuts it. Varnish logs the peer's
//! bytes raw, so that a server can write lines of its own into the log; here control bytes and
//! bytes past ASCII are escaped ([`Legible`]), after the cut, and a record is always one line.

use core::fmt::{self, Write};

use crate::plan::Nanos;
use crate::register::{Registers, good_count};
use crate::text::varnish::line;
use crate::text::{Bits, Legible, OutcomeText};

/// Bytes of a record that Varnish logs (`vsl_reclen` of 255, less the NUL).
pub const RECORD_BYTES_MAX: usize = 254;

/// One record.
#[derive(Clone, Copy, Debug)]
pub struct VarnishRecord<'a> {
    /// The backend's name.
    pub name: &'a str,
    /// Whether the verdict is another one than in the record before. Varnish knows no warming: such
    /// a backend is sick, and was.
    pub changed: bool,
    /// What the probes say now, whatever an override says.
    pub healthy: bool,
    /// The target's registers after the probe.
    pub registers: &'a Registers,
    /// Good results that are needed.
    pub threshold: u8,
    /// Of so many.
    pub window: u8,
    /// Time of the last complete reception, 0 when the last probe had none:
    /// [`History::last_ns`](crate::prober::History::last_ns).
    pub last_ns: Nanos,
    /// Moving average of happy probes' times, in seconds.
    pub average_s: f64,
    /// What the probe came to; `None` in the records before the first one.
    pub text: Option<OutcomeText>,
}

impl fmt::Display for VarnishRecord<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cut = Cut { formatter, left: RECORD_BYTES_MAX };
        write!(
            cut,
            "{} {} {} {} {} {} {} {:.6} {:.6} \"",
            self.name,
            if self.changed { "Went" } else { "Still" },
            if self.healthy { "healthy" } else { "sick" },
            Bits(self.registers),
            good_count(self.registers, self.window),
            self.threshold,
            self.window,
            self.last_ns as f64 / 1e9,
            self.average_s,
        )?;
        match &self.text {
            Some(text) if text.compat.is_varnish() => match line(text) {
                Some(line) => cut.write_bytes(line)?,
                None => write!(cut, "{text}")?,
            },
            Some(text) => write!(cut, "{text}")?,
            None => {}
        }
        cut.write_char('"')
    }
}

/// Passes on as many bytes as are left, and escapes them.
struct Cut<'a, 'b> {
    formatter: &'a mut fmt::Formatter<'b>,
    left: usize,
}

impl Cut<'_, '_> {
    fn write_bytes(&mut self, bytes: &[u8]) -> fmt::Result {
        let kept = &bytes[..bytes.len().min(self.left)];
        self.left -= kept.len();
        write!(self.formatter, "{}", Legible(kept))
    }
}

impl Write for Cut<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_bytes(text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Arrival, Outcome, StatusLine};
    use crate::plan::Compat;
    use crate::register;

    fn text(outcome: Outcome, line: &[u8]) -> Option<OutcomeText> {
        let mut kept = StatusLine::EMPTY;
        line.iter().for_each(|&byte| kept.push(byte));
        let compat = Compat::VARNISH;
        let (timeout_ns, duration_ns) = (1_000_000_000, 4_102_000);
        let arrival = Arrival::default();
        Some(OutcomeText { outcome, line: kept, arrival, timeout_ns, duration_ns, compat })
    }

    fn record<'a>(
        name: &'a str,
        registers: &'a Registers,
        text: Option<OutcomeText>,
    ) -> VarnishRecord<'a> {
        let (last_ns, average_s) = (4_102_000, 0.004_102 / 3.0);
        VarnishRecord {
            name,
            changed: true,
            healthy: true,
            registers,
            threshold: 3,
            window: 4,
            last_ns,
            average_s,
            text,
        }
    }

    const GOOD: Outcome = Outcome::Answered { status: 200, good: true };

    #[test]
    fn record_is_the_line_that_varnishlog_printed() {
        // The golden lines of a run of 7.1.1, window 4, threshold 3, initial 2.
        let happy = [1, 0, 0, 0, 1, 0, 1, 0b111];
        assert_eq!(
            record("okclose", &happy, text(GOOD, b"HTTP/1.1 200 OK")).to_string(),
            r#"okclose Went healthy 4---X-RH 3 3 4 0.004102 0.001367 "HTTP/1.1 200 OK""#
        );
        let fresh = register::prefilled(2, 3);
        let sick = VarnishRecord {
            healthy: false,
            last_ns: 0,
            average_s: 0.0,
            ..record("okclose", &fresh, None)
        };
        assert_eq!(sick.to_string(), r#"okclose Went sick -------H 2 3 4 0.000000 0.000000 """#);
        let refused = [0, 0, 0, 0, 0, 0, 0, 0b110];
        let words =
            text(Outcome::Failed { phase: crate::command::Phase::Connect, errno: 111 }, b"");
        let sick = VarnishRecord { changed: false, registers: &refused, text: words, ..sick };
        assert_eq!(
            VarnishRecord { name: "refused", ..sick }.to_string(),
            "refused Still sick -------- 2 3 4 0.000000 0.000000 \
             \"Open error 111 (Connection refused)\""
        );
    }

    #[test]
    fn server_cannot_write_a_line_of_its_own() {
        let happy = [1, 0, 0, 0, 1, 0, 1, 1];
        let shown =
            record("b", &happy, text(GOOD, b"HTTP/1.1 200 \x0bx\" y\x1b[2J\xff")).to_string();
        assert!(shown.ends_with(r#" "HTTP/1.1 200 \x0bx" y\x1b[2J\xff""#), "{shown}");
        assert_eq!(shown.lines().count(), 1);
    }

    #[test]
    fn record_is_cut_where_varnish_cuts_it_counting_bytes_before_they_are_escaped() {
        let happy = [1, 0, 0, 0, 1, 0, 1, 1];
        // 200 bytes of name, 47 of fields with the first quote, and so 7 of text.
        let name = "n".repeat(200);
        let shown =
            record(&name, &happy, text(GOOD, b"\x01\x02\x03\x04\x05\x06\x07\x08")).to_string();
        let fields = " Went healthy 4---X-RH 1 3 4 0.004102 0.001367 \"";
        assert_eq!(fields.len(), 48);
        assert_eq!(shown, format!("{name}{fields}{}", r"\x01\x02\x03\x04\x05\x06"));
    }
}
