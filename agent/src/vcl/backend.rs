//! Backends of a VCL: where they are, what their Host header is, which probe judges them.

use super::number;
use super::probe;
use super::stream::{Fault, Stream};
use super::token::{Kind, Token};
use super::{Endpoint, Network, Place, Reading};

/// Every field: Varnish 7.1's, then what later versions added.
const FIELDS: [&str; 15] = [
    "host",
    "port",
    "path",
    "host_header",
    "connect_timeout",
    "first_byte_timeout",
    "between_bytes_timeout",
    "probe",
    "max_connections",
    "proxy_header",
    "preamble",
    "via",
    "authority",
    "wait_limit",
    "wait_timeout",
];

/// A `backend` definition.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub place: Place,
    /// Where it is reached.
    pub endpoint: Endpoint,
    /// The Host header of its probe: `.host_header`, else `.host` as written, else `0.0.0.0`.
    pub host_header: Vec<u8>,
    /// The version of the PROXY header that is sent first; 0 = none.
    pub proxy_header: u8,
    /// Index into the VCL's probes; `None` = it is healthy without being probed.
    pub probe: Option<usize>,
    /// Fields that have no meaning for a probe, in the order of the file.
    pub unused_fields: Vec<&'static str>,
}

/// What `.probe` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeChoice {
    /// The default probe, if there is one at the end of the VCL; also when nothing is said.
    Default,
    /// This one.
    Probe(usize),
    /// There is nothing to probe.
    Nothing,
}

#[derive(Debug, Default)]
struct Written {
    host: Option<Token>,
    port: Option<Token>,
    path: Option<Token>,
    host_header: Option<Token>,
    proxy_header: u8,
    probe: Option<ProbeChoice>,
    unused_fields: Vec<&'static str>,
}

/// The definition behind its name, which is `name`.
pub(super) fn parse(reading: &mut Reading, name: Token) -> Result<(Backend, ProbeChoice), Fault> {
    let first = reading.stream.peek();
    if reading.stream.is_name(first, "none") || reading.stream.is_name(first, "None") {
        reading.stream.take()?;
        reading.stream.expect_mark(b';')?;
        let backend = backend(reading, name, Endpoint::Nothing, Vec::new(), Written::default());
        return Ok((backend, ProbeChoice::Nothing));
    }
    reading.stream.expect_mark(b'{')?;
    let mut written = Written::default();
    let mut seen = Vec::new();
    while reading.stream.peek().kind != Kind::Mark(b'}') {
        let field = reading.field(&FIELDS, &mut seen)?;
        written.field(FIELDS[field], seen[seen.len() - 1].1, reading)?;
    }
    let (endpoint, host_header) = written.endpoint(reading, name)?;
    reading.stream.expect_mark(b'}')?;
    let choice = written.probe.unwrap_or(ProbeChoice::Default);
    Ok((backend(reading, name, endpoint, host_header, written), choice))
}

fn backend(
    reading: &Reading,
    name: Token,
    endpoint: Endpoint,
    host_header: Vec<u8>,
    written: Written,
) -> Backend {
    Backend {
        name: String::from_utf8_lossy(reading.stream.text(name)).into_owned(),
        place: reading.place(name),
        endpoint,
        host_header,
        proxy_header: written.proxy_header,
        probe: None,
        unused_fields: written.unused_fields,
    }
}

impl Written {
    fn field(
        &mut self,
        name: &'static str,
        field: Token,
        reading: &mut Reading,
    ) -> Result<(), Fault> {
        let stream = &mut reading.stream;
        match name {
            "host" | "path" => {
                if name == "path" && reading.is_4_0 {
                    let problem = "Unix socket backends only supported in VCL4.1 and higher.";
                    return Err(stream.fault(field, problem, "begin the file with vcl 4.1;"));
                }
                if self.host.is_some() || self.path.is_some() {
                    let mend = "give .host or .path, not both";
                    return Err(stream.fault(field, "Address redefinition at:", mend));
                }
                let text = Some(stream.expect_text()?);
                if name == "host" { self.host = text } else { self.path = text }
            }
            "port" => self.port = Some(stream.expect_text()?),
            "host_header" => self.host_header = Some(stream.expect_text()?),
            "probe" => return self.probe(reading),
            "proxy_header" => self.proxy_header = proxy_header(stream)?,
            _ => {
                skip_value(name, stream)?;
                self.unused_fields.push(name);
            }
        }
        reading.stream.expect_mark(b';').map(|_| ())
    }

    /// `.probe`: a definition, without a semicolon behind it, or a name with one.
    fn probe(&mut self, reading: &mut Reading) -> Result<(), Fault> {
        let value = reading.stream.peek();
        match value.kind {
            Kind::Mark(b'{') => {
                let place = reading.place(value);
                let parameters = probe::parse(reading)?;
                let inline = probe::Probe { name: None, place, parameters };
                self.probe = Some(ProbeChoice::Probe(reading.add_probe(inline)));
                return Ok(());
            }
            Kind::Name if reading.stream.is_name(value, "default") => {
                reading.stream.take()?;
                if !reading.has_default_probe() {
                    let mend = "define probe default { … } before this backend";
                    return Err(reading.stream.fault(value, "No default probe defined", mend));
                }
                self.probe = Some(ProbeChoice::Default);
            }
            Kind::Name => {
                let probe = reading.probe_named(value)?;
                reading.stream.take()?;
                self.probe = Some(ProbeChoice::Probe(probe));
            }
            _ => {
                let shown = reading.stream.shown(value);
                let problem = format!("Expected '{{' or name of probe, got {shown} at");
                let mend = "write the name of a probe without quotes";
                return Err(reading.stream.fault(value, problem, mend));
            }
        }
        reading.stream.expect_mark(b';').map(|_| ())
    }

    /// Where the backend is, and the Host header that follows from it.
    fn endpoint(&self, reading: &mut Reading, name: Token) -> Result<(Endpoint, Vec<u8>), Fault> {
        let header = self.host_header.map(|text| reading.stream.content(text));
        let (endpoint, fallback) = match (self.host, self.path) {
            (Some(host), _) => {
                let written = reading.stream.content(host);
                let port = self.port.map(|port| reading.stream.content(port));
                let network = Network::new(&written, port.as_deref());
                let network = network.unwrap_or_else(|why| {
                    let shown = reading.stream.shown(host);
                    let problem = format!(
                        "Backend host {shown} could not be resolved to an IP address: {why}"
                    );
                    let mend = "write an address or a name, and a port from 1 to 65535";
                    reading.problem(host, problem, mend);
                    Network { host: String::new(), port: 0 }
                });
                (Endpoint::Network(network), written)
            }
            (None, Some(path)) => (unix(reading, path), b"0.0.0.0".to_vec()),
            (None, None) => {
                let mend = "add .host = \"ADDRESS\";";
                return Err(reading.stream.fault(name, "Expected .host or .path.", mend));
            }
        };
        Ok((endpoint, header.unwrap_or(fallback)))
    }
}

/// Varnish 7.1 takes absolute paths only, later ones an abstract name behind `@` as well. That
/// nothing stands there yet is no error in either.
fn unix(reading: &mut Reading, path: Token) -> Endpoint {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::FileTypeExt as _;
    let written = reading.stream.content(path);
    if written.first() == Some(&b'@') && 1 < written.len() {
        return Endpoint::Unix(written);
    }
    if written.first() != Some(&b'/') {
        let mend = "write one that begins with \"/\", or \"@NAME\" (Backend path: The empty \
                    abstract socket name is not supported)";
        reading.problem(path, "Backend path: Must be an absolute path:", mend);
        return Endpoint::Unix(written);
    }
    match std::fs::metadata(std::ffi::OsStr::from_bytes(&written)) {
        Ok(found) if found.file_type().is_socket() => {}
        Ok(_) => {
            let mend = "name the path of a unix socket that a server listens on";
            reading.problem(path, "Backend path: Not a socket:", mend);
        }
        Err(error) => {
            let waits = matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied
            );
            let problem = format!("Backend path: Cannot stat: {error}");
            if waits {
                reading.warning(path, problem, "start the server before it is probed");
            } else {
                reading.problem(path, problem, "name the path of a unix socket");
            }
        }
    }
    Endpoint::Unix(written)
}

fn proxy_header(stream: &mut Stream) -> Result<u8, Fault> {
    let at = stream.peek();
    match number::whole(stream)? {
        1 => Ok(1),
        2 => Ok(2),
        _ => {
            let mend = "write 1 or 2, or leave it out";
            Err(stream.fault(at, ".proxy_header must be 1 or 2", mend))
        }
    }
}

/// The value of a field that no probe depends on; its form is checked all the same.
fn skip_value(name: &str, stream: &mut Stream) -> Result<(), Fault> {
    match name {
        "max_connections" | "wait_limit" => number::whole(stream).map(|_| ()),
        "preamble" if stream.peek().kind == Kind::Blob => stream.take().map(|_| ()),
        "preamble" => {
            let mend = "write base64 between colons, such as :Zm9v:";
            Err(stream.unexpected("CBLOB", mend))
        }
        "via" => stream.expect_name().map(|_| ()),
        "authority" => stream.expect_text().map(|_| ()),
        _ => number::duration(stream).map(|_| ()),
    }
}
