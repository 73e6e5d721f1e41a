//! Probes of a VCL: the fields, the compiler's rules about them, and what holds at run time.

use super::number;
use super::stream::{Fault, Stream};
use super::token::{Kind, Token};
use super::{Place, Reading};

/// Bits of Varnish's register.
const WINDOW_MAX: u32 = 64;
/// Varnish's mark of an `initial` that is not given.
const INITIAL_UNSET: u32 = u32::MAX;
/// Every field, in the order of Varnish's manual.
const FIELDS: [&str; 9] = [
    "url",
    "request",
    "expected_response",
    "timeout",
    "interval",
    "window",
    "threshold",
    "initial",
    "expect_close",
];

/// A `probe` definition, or one that stands in a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Its name; `None` for one that stands in a backend. `default` is a name.
    pub name: Option<String>,
    /// Where it stands.
    pub place: Place,
    /// What holds when it runs.
    pub parameters: Parameters,
}

/// What a probe does, with Varnish's run-time defaults where nothing, or 0, is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// What is sent.
    pub question: Question,
    /// The one good status, 100 ..= 999.
    pub expected_response: u16,
    /// One deadline for the whole poll, in seconds.
    pub timeout_s: f64,
    /// From the end of a poll to the next, in seconds.
    pub interval_s: f64,
    /// Results that are looked at. 65 for a threshold of 64 alone; only 64 are kept.
    pub window: u32,
    /// Good results that make a backend healthy. More than the window when one of them is given
    /// as 0: such a backend is never healthy.
    pub threshold: u32,
    /// Good results assumed at the start; at most the threshold.
    pub initial: u32,
    /// Whether the server has to close the connection.
    pub expect_close: bool,
}

/// What a probe sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// A GET of this path and query.
    Url(Vec<u8>),
    /// These bytes: the strings of `.request`, each with CRLF behind it, and a CRLF.
    Request(Vec<u8>),
}

impl Default for Parameters {
    /// Varnish's: GET / every 5 s, 3 of 8.
    fn default() -> Self {
        Written::default().effective(0, 0)
    }
}

impl Parameters {
    /// The bytes that are sent to a backend whose Host header is `host_header`.
    #[must_use]
    pub fn request(&self, host_header: &[u8]) -> Vec<u8> {
        match &self.question {
            Question::Request(bytes) => bytes.clone(),
            Question::Url(url) => {
                let parts: [&[u8]; 5] = [
                    b"GET ",
                    url,
                    b" HTTP/1.1\r\nHost: ",
                    host_header,
                    b"\r\nConnection: close\r\n\r\n",
                ];
                parts.concat()
            }
        }
    }
}

/// The fields as they are written, each with its value's place where a rule speaks of it.
#[derive(Debug, Default)]
struct Written {
    url: Option<Vec<u8>>,
    request: Option<Vec<u8>>,
    expected_response: Option<u32>,
    timeout_s: f64,
    interval_s: f64,
    window: Option<(u32, Token)>,
    threshold: Option<(u32, Token)>,
    initial: Option<u32>,
    expect_close: Option<bool>,
}

/// The definition from its opening brace to behind the closing one.
pub(super) fn parse(reading: &mut Reading) -> Result<Parameters, Fault> {
    reading.stream.expect_mark(b'{')?;
    let mut written = Written::default();
    let mut seen = Vec::new();
    while reading.stream.peek().kind != Kind::Mark(b'}') {
        let field = reading.field(&FIELDS, &mut seen)?;
        written.field(FIELDS[field], seen[seen.len() - 1].1, reading)?;
        reading.stream.expect_mark(b';')?;
    }
    reading.stream.expect_mark(b'}')?;
    let (window, threshold) = written.window_and_threshold(reading);
    Ok(written.effective(window, threshold))
}

impl Written {
    fn field(&mut self, name: &str, field: Token, reading: &mut Reading) -> Result<(), Fault> {
        let stream = &mut reading.stream;
        match name {
            "url" | "request" if self.url.is_some() || self.request.is_some() => {
                let mend = "give .url or .request, not both";
                return Err(stream.fault(field, "Probe request redefinition at:", mend));
            }
            "url" => {
                let text = stream.expect_text()?;
                self.url = Some(stream.content(text));
            }
            "request" => self.request = Some(request(stream)?),
            "timeout" => self.timeout_s = number::duration(stream)?,
            "interval" => self.interval_s = number::duration(stream)?,
            "window" => self.window = Some(placed(stream)?),
            "threshold" => self.threshold = Some(placed(stream)?),
            "initial" => self.initial = Some(number::whole(stream)?),
            "expect_close" => self.expect_close = Some(boolean(stream)?),
            _ => self.expected_response = Some(status(reading)?),
        }
        Ok(())
    }

    /// The rules about both; the values that the compiler passes on, 0 for none.
    fn window_and_threshold(&self, reading: &mut Reading) -> (u32, u32) {
        let (window, threshold) = match (self.window, self.threshold) {
            (None, None) => return (0, 0),
            (Some((window, at)), None) => {
                let mend = "add .threshold: the good results in the window that make a backend \
                            healthy";
                reading.problem(at, "Must specify .threshold with .window", mend);
                return (window, 0);
            }
            (None, Some((threshold, at))) => {
                if WINDOW_MAX < threshold {
                    let problem = "Threshold must be 64 or less.";
                    reading.problem(at, problem, format!("write 64 or less, not {threshold}"));
                    return (0, 0);
                }
                return (threshold + 1, threshold);
            }
            (Some(window), Some(threshold)) => (window, threshold),
        };
        if WINDOW_MAX < window.0 {
            let mend = format!("write 64 or less, not {}", window.0);
            reading.problem(window.1, "Window must be 64 or less.", mend);
        } else if window.0 < threshold.0 {
            let mend = format!("lower it to {} or less, or raise .window", window.0);
            reading.problem(threshold.1, "Threshold can not be greater than window.", mend);
        }
        (window.0, threshold.0)
    }

    /// Varnish's defaults, which are applied when the VCL is loaded: there 0 means "not given".
    fn effective(self, window: u32, threshold: u32) -> Parameters {
        let or = |given: u32, default| if given == 0 { default } else { given };
        let seconds = |given: f64, default| if given == 0.0 { default } else { given };
        let threshold = or(threshold, 3);
        let initial = self.initial.filter(|initial| *initial != INITIAL_UNSET);
        let question = match (self.request, self.url) {
            (Some(request), _) => Question::Request(request),
            (None, url) => Question::Url(url.unwrap_or_else(|| b"/".to_vec())),
        };
        Parameters {
            question,
            expected_response: self
                .expected_response
                .and_then(|status| u16::try_from(status).ok())
                .unwrap_or(200),
            timeout_s: seconds(self.timeout_s, 2.0),
            interval_s: seconds(self.interval_s, 5.0),
            window: or(window, 8),
            threshold,
            initial: initial.unwrap_or(threshold - 1).min(threshold),
            expect_close: self.expect_close.unwrap_or(true),
        }
    }
}

/// Strings that stand side by side, each a line of the request.
fn request(stream: &mut Stream) -> Result<Vec<u8>, Fault> {
    let first = stream.expect_text()?;
    let mut bytes = stream.content(first);
    bytes.extend(b"\r\n");
    while matches!(stream.peek().kind, Kind::Text(_)) {
        let line = stream.take()?;
        bytes.extend(stream.content(line));
        bytes.extend(b"\r\n");
    }
    bytes.extend(b"\r\n");
    Ok(bytes)
}

fn placed(stream: &mut Stream) -> Result<(u32, Token), Fault> {
    let at = stream.peek();
    Ok((number::whole(stream)?, at))
}

fn status(reading: &mut Reading) -> Result<u32, Fault> {
    let (status, at) = placed(&mut reading.stream)?;
    if !(100..=999).contains(&status) {
        let problem = "Must specify .expected_response with exactly three digits (100 <= x <= 999)";
        reading.problem(at, problem, format!("write a status, not {status}"));
    }
    Ok(status)
}

/// Since Varnish 7.3.
fn boolean(stream: &mut Stream) -> Result<bool, Fault> {
    let token = stream.peek();
    for (name, value) in [("true", true), ("false", false)] {
        if stream.is_name(token, name) {
            stream.take()?;
            return Ok(value);
        }
    }
    Err(stream.fault(token, "Expected \"true\" or \"false\"", "write true or false, unquoted"))
}
