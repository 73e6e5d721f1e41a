//! What the command line's targets mean: addresses, requests, and the plan that probes them.

use std::net::{SocketAddr, ToSocketAddrs};

use sickbay_core::hash;
use sickbay_core::limits::{INTERVAL_NS_MAX, INTERVAL_NS_MIN, TIMEOUT_NS_MAX, TIMEOUT_NS_MIN};
use sickbay_core::plan::{
    Compat, JudgeSpec, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind, ProbeSpec, Room, Rule,
    TargetIndex, TargetSpec,
};

use super::ProbeArgs;
use crate::address::Address;
use crate::engine::Endpoint;
use crate::fleet::{CloseMode, ProxyHeader, SocketOptions};
use crate::shard::ShardPlan;
use crate::vcl::Probing;

/// Probes in flight at most.
const IN_FLIGHT_MAX: usize = 4096;
const TCP: ProbeIndex = ProbeIndex(0);
const HTTP: ProbeIndex = ProbeIndex(1);

/// Wrong usage, and how to mend it.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub(super) struct UsageError {
    what: String,
}

/// The command line, resolved.
#[derive(Debug)]
pub(super) struct Settings {
    /// The targets as they were written.
    pub(super) names: Vec<String>,
    /// What is worth knowing before the first probe.
    pub(super) notes: Vec<String>,
    /// What holds for every target that has nothing of its own.
    common: Own,
    /// What each target has of its own, when it comes from a VCL; else empty.
    own: Vec<Own>,
    endpoints: Vec<(ProbeIndex, Endpoint)>,
}

/// A target's own settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Own {
    pub(super) probing: Probing,
    pub(super) expected_status: u16,
    pub(super) compat: Compat,
}

impl Settings {
    /// Targets with settings of their own, each with its name and endpoint.
    pub(super) fn of_each(targets: Vec<(String, Endpoint, Own)>, notes: Vec<String>) -> Self {
        let common = targets.first().map(|(_, _, own)| *own).expect("there is a target");
        let (mut names, mut endpoints, mut each) = (Vec::new(), Vec::new(), Vec::new());
        for (index, (name, endpoint, own)) in targets.into_iter().enumerate() {
            names.push(name);
            endpoints.push((ProbeIndex(u32::try_from(index).expect("a VCL is short")), endpoint));
            each.push(own);
        }
        Self { names, notes, common, own: each, endpoints }
    }

    /// The settings of one target.
    pub(super) fn of(&self, target: usize) -> Own {
        let own = self.own.get(target).copied().unwrap_or(self.common);
        // Varnish has no probe over TCP alone.
        let is_tcp = self.own.is_empty() && self.endpoints[target].0 == TCP;
        if is_tcp { Own { compat: Compat::Off, ..own } } else { own }
    }

    /// Checks the arguments and resolves the names in them, once.
    pub(super) fn resolve(arguments: &ProbeArgs) -> Result<Self, UsageError> {
        if arguments.window < arguments.threshold {
            return refuse(format!(
                "--threshold {} is greater than --window {}; a target could never be healthy",
                arguments.threshold, arguments.window
            ));
        }
        let bounds = (INTERVAL_NS_MIN, INTERVAL_NS_MAX);
        let interval_ns = span("--interval", arguments.interval, bounds)?;
        let bounds = (TIMEOUT_NS_MIN, TIMEOUT_NS_MAX);
        let timeout_ns = span("--timeout", arguments.timeout, bounds)?;
        if arguments.host.as_deref().is_some_and(|host| !is_header_value(host)) {
            return refuse("--host has characters that no Host header may have".to_owned());
        }
        let mut notes = Vec::new();
        let mut endpoints = Vec::with_capacity(arguments.targets.len());
        for text in &arguments.targets {
            if let Some(place) = text.strip_prefix("unix:") {
                endpoints.push(unix_endpoint(text, place, arguments.host.as_deref())?);
                continue;
            }
            let place = Place::parse(text)?;
            let address = place.resolve(text, &mut notes)?;
            endpoints.push(place.endpoint(address, arguments.host.as_deref()));
        }
        if let Some(version) = arguments.proxy_header {
            let header = if version == 1 { ProxyHeader::V1Own } else { ProxyHeader::V2Local };
            for (text, (probe, endpoint)) in arguments.targets.iter().zip(&mut endpoints) {
                if *probe == TCP {
                    let text = text.escape_debug();
                    return refuse(format!(
                        "{text}: --proxy-header has no meaning for a TCP probe"
                    ));
                }
                endpoint.proxy_v1 = header == ProxyHeader::V1Own;
                endpoint.request.splice(0..0, header.fixed_bytes().iter().copied());
            }
        }
        let initial = arguments.initial.unwrap_or(arguments.threshold.saturating_sub(1));
        Ok(Self {
            names: arguments.targets.clone(),
            notes,
            common: Own {
                probing: Probing {
                    interval_ns,
                    timeout_ns,
                    window: arguments.window,
                    threshold: arguments.threshold,
                    initial,
                },
                expected_status: arguments.expect,
                compat: arguments.compat(),
            },
            own: Vec::new(),
            endpoints,
        })
    }

    /// Whether the results assumed at a target's start are enough.
    pub(super) fn begins_healthy(&self, target: usize) -> bool {
        let Probing { threshold, initial, .. } = self.of(target).probing;
        threshold <= initial
    }

    /// The one shard's plan: a judge for each target, in their order.
    pub(super) fn plan(&self) -> ShardPlan {
        let probes = if self.own.is_empty() {
            vec![probe_spec(&self.common, true), probe_spec(&self.common, false)]
        } else {
            self.own.iter().map(|own| probe_spec(own, false)).collect()
        };
        let judge = |target: usize| {
            let Probing { window, threshold, .. } = self.of(target).probing;
            JudgeSpec {
                target: TargetIndex(u32::try_from(target).expect("a command line is short")),
                rule: Rule::Window { window, threshold },
                on_unknown: OnUnknown::Keep,
            }
        };
        let plan = Plan {
            probes,
            targets: (0..self.names.len()).map(|target| self.target_spec(target)).collect(),
            judges: (0..self.names.len()).map(judge).collect(),
            // Targets under suspicion hold at most half: with two a target, all can be in flight.
            slot_count: u32::try_from((2 * self.names.len()).min(IN_FLIGHT_MAX))
                .expect("bounded just now"),
            phase_seed: 0,
            past: Vec::new(),
            room: Room::NONE,
        };
        ShardPlan {
            plan,
            endpoints: self.endpoints.iter().map(|(_, endpoint)| endpoint.clone()).collect(),
            targets: (0..self.names.len()).collect(),
            judges: (0..self.names.len()).collect(),
            owned: (0..).take(self.names.len()).collect(),
        }
    }

    fn target_spec(&self, target: usize) -> TargetSpec {
        let (probe, endpoint) = &self.endpoints[target];
        let (text, port) = match &endpoint.address {
            Address::Inet(address) => (address.ip().to_string(), address.port()),
            Address::Unix(path) => (path.to_string(), 0),
        };
        TargetSpec {
            identity: hash::identity(text.as_bytes(), port, &endpoint.request),
            probe: *probe,
            family: endpoint.address.family(),
            second: endpoint.second.as_ref().map(Address::family),
            initial: self.of(target).probing.initial,
        }
    }
}

fn probe_spec(own: &Own, tcp: bool) -> ProbeSpec {
    let http = ProbeKind::http(own.expected_status);
    ProbeSpec {
        interval_ns: own.probing.interval_ns,
        timeout_ns: own.probing.timeout_ns,
        kind: if tcp { ProbeKind::Tcp } else { http },
        pace: Pace::STEADY,
        compat: if tcp { Compat::Off } else { own.compat },
    }
}

/// A target's text, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Place<'a> {
    /// With a port, an IPv6 address in brackets: what the standard library resolves.
    authority: String,
    /// The host and port as they were written, for the Host header.
    written: &'a str,
    /// `None` = TCP.
    path: Option<&'a str>,
}

impl<'a> Place<'a> {
    fn parse(text: &'a str) -> Result<Self, UsageError> {
        if let Some(rest) = text.strip_prefix("http://") {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            let (written, path) = rest.split_at(end);
            if !path.bytes().all(|byte| (b'!'..=b'~').contains(&byte)) {
                return refuse(format!(
                    "{}: write spaces and special characters of the path as %XX",
                    text.escape_debug()
                ));
            }
            let authority = with_port(text, written, Some("80"))?;
            return Ok(Self { authority, written, path: Some(path) });
        }
        let written = text.strip_prefix("tcp://").unwrap_or(text);
        if let Some((scheme, _)) = written.split_once("://") {
            return refuse(format!(
                "{}: {}:// is not probed; http:// and tcp:// are",
                text.escape_debug(),
                scheme.escape_debug()
            ));
        }
        if written.contains('/') {
            return refuse(format!(
                "{}: a TCP probe has no path; write http:// before it to probe HTTP",
                text.escape_debug()
            ));
        }
        Ok(Self { authority: with_port(text, written, None)?, written, path: None })
    }

    fn resolve(&self, text: &str, notes: &mut Vec<String>) -> Result<SocketAddr, UsageError> {
        let text = text.escape_debug();
        let mut addresses = match self.authority.to_socket_addrs() {
            Ok(addresses) => addresses,
            Err(error) => return refuse(format!("{text}: cannot be resolved: {error}")),
        };
        let Some(first) = addresses.next() else {
            return refuse(format!("{text}: the name has no address"));
        };
        let others = addresses.filter(|other| other.ip() != first.ip()).count();
        if 0 < others {
            let all = others + 1;
            notes.push(format!("{text}: probing {first}, the first of {all} addresses"));
        } else if self.authority.parse::<SocketAddr>().is_err() {
            notes.push(format!("{text}: probing {first}"));
        }
        Ok(first)
    }

    fn endpoint(&self, address: SocketAddr, host: Option<&str>) -> (ProbeIndex, Endpoint) {
        endpoint(address.into(), self.path, host.unwrap_or(self.written))
    }
}

/// `/FILE[:/URL]` or `@NAME[:/URL]`: the unix socket that is meant, and HTTP on it if there is a
/// URL. The Host is Varnish's, unless one is given.
fn unix_endpoint(
    text: &str,
    place: &str,
    host: Option<&str>,
) -> Result<(ProbeIndex, Endpoint), UsageError> {
    let (socket, url) = match place.find(":/") {
        Some(end) => (&place[..end], Some(&place[end + 1..])),
        None => (place, None),
    };
    let Some(address) = Address::unix(socket) else {
        return refuse(format!(
            "{}: write unix:/PATH or unix:@NAME, of at most 107 bytes, and :/URL behind it to \
             probe HTTP",
            text.escape_debug()
        ));
    };
    Ok(endpoint(address, url, host.unwrap_or("0.0.0.0")))
}

fn endpoint(address: Address, path: Option<&str>, host: &str) -> (ProbeIndex, Endpoint) {
    let request = path.map_or_else(Vec::new, |path| {
        let slash = if path.starts_with('/') { "" } else { "/" };
        // The bytes that Varnish sends.
        format!("GET {slash}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .into_bytes()
    });
    let probe = if path.is_some() { HTTP } else { TCP };
    // By FIN: at this rate TIME_WAIT costs nothing, and no server logs a reset.
    let (close, socket) = (CloseMode::Fin, SocketOptions::default());
    (probe, Endpoint { address, second: None, request, proxy_v1: false, close, socket })
}

/// `HOST:PORT` from what was written, with `port` when it has none.
fn with_port(text: &str, written: &str, port: Option<&str>) -> Result<String, UsageError> {
    let text = text.escape_debug();
    if !is_header_value(written) || written.contains('@') {
        return refuse(format!("{text}: this is no host"));
    }
    // Behind the bracket of an IPv6 address, or anywhere in a name.
    let (host, rest) = match written.rfind(']') {
        Some(end) => written.split_at(end + 1),
        None => written.split_at(written.find(':').unwrap_or(written.len())),
    };
    if rest.matches(':').count() > 1 {
        return refuse(format!("{text}: put the IPv6 address in brackets: [ADDRESS]:PORT"));
    }
    if host.is_empty() {
        return refuse(format!("{text}: the host is missing"));
    }
    match (rest.strip_prefix(':'), port) {
        (Some(port), _) if matches!(port.parse::<u16>(), Ok(1..)) => Ok(written.to_owned()),
        (Some(_), _) => refuse(format!("{text}: the port is not a number from 1 to 65535")),
        (None, Some(port)) if rest.is_empty() => Ok(format!("{host}:{port}")),
        (None, None) if rest.is_empty() => {
            refuse(format!("{text}: a port is missing: HOST:PORT, or http://HOST"))
        }
        (None, _) => refuse(format!("{text}: only a port may follow the address")),
    }
}

fn span(
    option: &str,
    value: std::time::Duration,
    (shortest, longest): (u64, u64),
) -> Result<u64, UsageError> {
    let value_ns = u64::try_from(value.as_nanos()).unwrap_or(u64::MAX);
    if (shortest..=longest).contains(&value_ns) {
        return Ok(value_ns);
    }
    let shown = |ns| humantime::format_duration(std::time::Duration::from_nanos(ns));
    refuse(format!("{option} must be from {} to {}", shown(shortest), shown(longest)))
}

fn is_header_value(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b'!'..=b'~').contains(&byte))
}

pub(super) fn refuse<T>(what: String) -> Result<T, UsageError> {
    Err(UsageError { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(text: &str) -> String {
        Place::parse(text).map_or_else(|error| format!("! {error}"), |place| place.authority)
    }

    #[test]
    fn targets_are_read_as_they_are_written() {
        assert_eq!(authority("http://example.com"), "example.com:80");
        assert_eq!(authority("http://example.com:8080/health?x=1"), "example.com:8080");
        assert_eq!(authority("http://[2001:db8::1]/"), "[2001:db8::1]:80");
        assert_eq!(authority("tcp://10.0.0.1:5432"), "10.0.0.1:5432");
        assert_eq!(authority("[::1]:22"), "[::1]:22");
    }

    #[test]
    fn what_is_no_target_is_refused_with_the_remedy() {
        for (text, part) in [
            ("example.com", "a port is missing"),
            ("::1:22", "in brackets"),
            ("http://", "this is no host"),
            ("http://:80", "the host is missing"),
            ("tcp://x:0", "from 1 to 65535"),
            ("tcp://x:70000", "from 1 to 65535"),
            ("https://x/", "https:// is not probed"),
            ("x:80/health", "write http:// before it"),
            ("http://x/a b", "%XX"),
            ("[::1]22", "only a port may follow"),
            ("http://user@x/", "this is no host"),
        ] {
            let said = authority(text);
            assert!(said.starts_with("! ") && said.contains(part), "{text}: {said}");
        }
    }

    #[test]
    fn request_is_what_varnish_sends() {
        let place = Place::parse("http://127.0.0.1:8080/health").unwrap();
        let (probe, endpoint) = place.endpoint("127.0.0.1:8080".parse().unwrap(), None);
        assert_eq!(probe, HTTP);
        assert_eq!(
            endpoint.request,
            b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn unix_socket_is_probed_over_http_when_a_url_follows() {
        let read = |text: &str| unix_endpoint(text, text.strip_prefix("unix:").unwrap(), None);
        let (probe, endpoint) = read("unix:/run/a.sock:/health").unwrap();
        assert_eq!((probe, endpoint.address), (HTTP, Address::unix("/run/a.sock").unwrap()));
        assert_eq!(
            endpoint.request,
            b"GET /health HTTP/1.1\r\nHost: 0.0.0.0\r\nConnection: close\r\n\r\n"
        );
        let (probe, endpoint) = read("unix:@name").unwrap();
        assert_eq!((probe, endpoint.request), (TCP, Vec::new()));
        assert!(read("unix:a.sock").unwrap_err().to_string().contains("write unix:/PATH"));
    }

    #[test]
    fn empty_path_is_the_root() {
        let place = Place::parse("http://a?b").unwrap();
        let (_, endpoint) = place.endpoint("127.0.0.1:80".parse().unwrap(), Some("c"));
        assert_eq!(endpoint.request, b"GET /?b HTTP/1.1\r\nHost: c\r\nConnection: close\r\n\r\n");
    }
}
