//! What a VCL amounts to, for people and for programs: every probe and backend with its effective
//! parameters.

use std::borrow::Cow;
use std::fmt;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::Number;

use super::{Backend, Endpoint, Parameters, Place, Probe, Question, Vcl};
use crate::config::quoted;

/// Every probe and backend of a VCL. Bytes that are not UTF-8 are shown as U+FFFD.
///
/// Each backend is shown with all of its probe, so the text can be far longer than the VCL: an entry
/// is made when it is written, and none is kept.
#[derive(Clone, Debug)]
pub struct Listing<'v> {
    vcl: &'v Vcl,
    /// Of each probe, the backends it judges.
    judged: Vec<Vec<usize>>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct ProbeEntry<'v> {
    /// `null` for a probe that stands in a backend.
    name: Option<&'v str>,
    #[serde(flatten)]
    place: &'v Place,
    #[serde(flatten)]
    parameters: ParameterEntry<'v>,
    /// The backends it judges.
    backends: Vec<&'v str>,
}

/// Times are whole milliseconds when they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct ParameterEntry<'v> {
    /// `null` when there is a request.
    url: Option<Cow<'v, str>>,
    /// The raw request; `null` when it is made from the URL.
    request: Option<Cow<'v, str>>,
    expected_response: u16,
    timeout_ms: Number,
    interval_ms: Number,
    window: u32,
    threshold: u32,
    initial: u32,
    expect_close: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct BackendEntry<'v> {
    name: &'v str,
    #[serde(flatten)]
    place: &'v Place,
    /// `network`, `unix` or `none`.
    kind: &'static str,
    /// The address or the name.
    host: Option<&'v str>,
    /// The address; `null` for a name, which is looked up where it is probed.
    address: Option<String>,
    port: Option<u16>,
    /// Of a unix socket.
    path: Option<Cow<'v, str>>,
    host_header: Option<Cow<'v, str>>,
    proxy_header: u8,
    /// `null` when it is healthy without being probed.
    probe: Option<BackendProbe<'v>>,
    /// Fields that have no meaning for a probe.
    unused_fields: &'v [&'static str],
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct BackendProbe<'v> {
    name: Option<&'v str>,
    #[serde(flatten)]
    parameters: ParameterEntry<'v>,
    /// The bytes that are sent.
    request_text: String,
}

impl<'v> Listing<'v> {
    /// Of this VCL.
    #[must_use]
    pub fn of(vcl: &'v Vcl) -> Self {
        let mut judged = vec![Vec::new(); vcl.probes.len()];
        for (index, backend) in vcl.backends.iter().enumerate() {
            if let Some(probe) = backend.probe {
                judged[probe].push(index);
            }
        }
        Self { vcl, judged }
    }

    /// Probes in the order of the files.
    fn probes(&self) -> impl Iterator<Item = ProbeEntry<'v>> {
        let Self { vcl, judged } = self;
        vcl.probes.iter().zip(judged).map(|(probe, backends)| ProbeEntry {
            name: probe.name.as_deref(),
            place: &probe.place,
            parameters: ParameterEntry::of(&probe.parameters),
            backends: backends.iter().map(|index| vcl.backends[*index].name.as_str()).collect(),
        })
    }

    /// Backends in the order of the files.
    fn backends(&self) -> impl Iterator<Item = BackendEntry<'v>> {
        self.vcl.backends.iter().map(|each| BackendEntry::of(each, &self.vcl.probes))
    }
}

impl Serialize for Listing<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entries = serializer.serialize_struct("Listing", 2)?;
        entries.serialize_field("probes", &Entries(|| self.probes()))?;
        entries.serialize_field("backends", &Entries(|| self.backends()))?;
        entries.end()
    }
}

/// A list whose entries are made as they are written.
struct Entries<F>(F);

impl<F: Fn() -> I, I: Iterator<Item: Serialize>> Serialize for Entries<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0())
    }
}

impl<'v> ParameterEntry<'v> {
    fn of(parameters: &'v Parameters) -> Self {
        let (url, request) = match &parameters.question {
            Question::Url(url) => (Some(text(url)), None),
            Question::Request(request) => (None, Some(text(request))),
        };
        Self {
            url,
            request,
            expected_response: parameters.expected_response,
            timeout_ms: milliseconds(parameters.timeout_s),
            interval_ms: milliseconds(parameters.interval_s),
            window: parameters.window,
            threshold: parameters.threshold,
            initial: parameters.initial,
            expect_close: parameters.expect_close,
        }
    }
}

impl<'v> BackendEntry<'v> {
    fn of(backend: &'v Backend, probes: &'v [Probe]) -> Self {
        let (kind, network, path) = match &backend.endpoint {
            Endpoint::Network(network) => ("network", Some(network), None),
            Endpoint::Unix(path) => ("unix", None, Some(text(path))),
            Endpoint::Nothing => ("none", None, None),
        };
        Self {
            name: &backend.name,
            place: &backend.place,
            kind,
            host: network.map(|network| network.host.as_str()),
            address: network.and_then(|network| Some(network.address()?.ip().to_string())),
            port: network.map(|network| network.port),
            path,
            host_header: (kind != "none").then(|| text(&backend.host_header)),
            proxy_header: backend.proxy_header,
            probe: backend.probe.map(|probe| BackendProbe {
                name: probes[probe].name.as_deref(),
                parameters: ParameterEntry::of(&probes[probe].parameters),
                request_text: text(&probes[probe].parameters.request(&backend.host_header))
                    .into_owned(),
            }),
            unused_fields: &backend.unused_fields,
        }
    }
}

/// One line per probe and per backend; everything that came from the file is escaped.
impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for probe in self.probes() {
            match probe.name {
                Some(name) => write!(f, "probe {name}: ")?,
                None => write!(f, "probe in {}: ", probe.backends.join(", "))?,
            }
            writeln!(f, "{}", probe.parameters)?;
        }
        for backend in self.backends() {
            writeln!(f, "{backend}")?;
        }
        Ok(())
    }
}

impl fmt::Display for ParameterEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.url, &self.request) {
            (Some(url), _) => write!(f, "url {}", quoted(url))?,
            (None, request) => write!(f, "request {}", quoted(request.as_deref().unwrap_or("")))?,
        }
        write!(
            f,
            ", expects {}, timeout {} ms, interval {} ms, {} of {}, initial {}",
            self.expected_response,
            self.timeout_ms,
            self.interval_ms,
            self.threshold,
            self.window,
            self.initial
        )?;
        if !self.expect_close {
            f.write_str(", need not close")?;
        }
        Ok(())
    }
}

impl fmt::Display for BackendEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "backend {}: ", self.name)?;
        match (&self.host, &self.path, self.port) {
            (Some(host), _, Some(port)) if host.contains(':') => write!(f, "[{host}]:{port}")?,
            (Some(host), _, Some(port)) => write!(f, "{}:{port}", host.escape_debug())?,
            (_, Some(path), _) => write!(f, "unix socket {}", quoted(path))?,
            _ => return f.write_str("none"),
        }
        if let Some(header) = &self.host_header {
            write!(f, ", Host {}", quoted(header))?;
        }
        if self.proxy_header != 0 {
            write!(f, ", PROXY {}", self.proxy_header)?;
        }
        match &self.probe {
            Some(BackendProbe { name: Some(name), .. }) => write!(f, ", probe {name}")?,
            Some(_) => f.write_str(", probe of its own")?,
            None => f.write_str(", no probe: always healthy")?,
        }
        if !self.unused_fields.is_empty() {
            write!(f, "; not used here: {}", self.unused_fields.join(", "))?;
        }
        Ok(())
    }
}

/// Whole when it is whole, to the nanosecond otherwise.
fn milliseconds(seconds: f64) -> Number {
    let thousandths = (seconds * 1e9).round() / 1e6;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "durations have no sign, and fewer than 2^63 ms are whole numbers of it"
    )]
    let whole = thousandths as u64;
    if thousandths.fract() == 0.0 && thousandths < 9e15 {
        return whole.into();
    }
    Number::from_f64(thousandths).unwrap_or_else(|| whole.into())
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}
