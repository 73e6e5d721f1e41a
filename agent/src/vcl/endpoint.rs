//! Where a backend of a VCL is: an address or a name with its port, a unix socket, or nowhere.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};

/// The services file is read so far.
const SERVICES_BYTES_MAX: u64 = 4 << 20;

/// Where a backend is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Over IP.
    Network(Network),
    /// At a unix socket: a path, or `@` and an abstract name.
    Unix(Vec<u8>),
    /// A `none` backend: nowhere.
    Nothing,
}

/// An address or a name, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// The address or the name, without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl Network {
    /// From `.host` and `.port`. As in Varnish, `.host` may have the port behind a colon or a
    /// blank when there is no `.port`; an IPv6 address may stand in brackets; the port may be a
    /// service's name; without any it is 80.
    ///
    /// # Errors
    ///
    /// Why it is neither an address nor a name with a port, in a few words.
    pub fn new(host: &[u8], port: Option<&[u8]>) -> Result<Self, String> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec());
        let whole = match port {
            Some(port) => [host, b" ", port].concat(),
            None => host.to_vec(),
        };
        let whole = text(&whole).map_err(|_| "it is not UTF-8".to_owned())?;
        let (host, port) = split(&whole)?;
        if host.is_empty() || host.contains(|c: char| c.is_control() || c.is_whitespace()) {
            return Err("Name or service not known".to_owned());
        }
        // What getaddrinfo(3) would look up as a name with a colon in it.
        if host.contains(':')
            && host
                .split('%')
                .next()
                .and_then(|ip| ip.parse().ok())
                .is_none_or(|ip: IpAddr| ip.is_ipv4())
        {
            return Err("Name or service not known".to_owned());
        }
        Ok(Self { host: host.to_owned(), port: port.map_or(Ok(80), port_number)? })
    }

    /// The address, when it is written as one.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.parse().ok().map(|ip: IpAddr| SocketAddr::new(ip, self.port))
    }

    /// The address that is meant, and that of the other family when there is one of each; a name is
    /// looked up. IPv4 goes before IPv6 unless `prefer_ipv6` turns it round.
    ///
    /// # Errors
    ///
    /// Varnish's: no address, or several of one family.
    pub fn resolve(&self, prefer_ipv6: bool) -> Result<(SocketAddr, Option<SocketAddr>), String> {
        if let Some(address) = self.address() {
            return Ok((address, None));
        }
        let host = self.host.escape_debug();
        let found = (self.host.as_str(), self.port).to_socket_addrs().map_err(|error| {
            format!("Backend host \"{host}\" could not be resolved to an IP address: {error}")
        })?;
        choose(&self.host, found.collect(), prefer_ipv6)
    }
}

/// Of what a name was looked up as: the address that is meant, and the other one.
fn choose(
    host: &str,
    mut found: Vec<SocketAddr>,
    prefer_ipv6: bool,
) -> Result<(SocketAddr, Option<SocketAddr>), String> {
    let host = host.escape_debug();
    found.sort_unstable();
    found.dedup();
    let of = |v4: bool| found.iter().filter(move |each| each.is_ipv4() == v4).copied();
    if 1 < of(true).count() || 1 < of(false).count() {
        let list: Vec<String> = found.iter().map(|each| each.ip().to_string()).collect();
        return Err(format!(
            "Backend host \"{host}\": resolves to too many addresses ({}); write the one that \
                 is meant",
            list.join(", ")
        ));
    }
    let mut in_order = of(!prefer_ipv6).chain(of(prefer_ipv6));
    let first = in_order.next().ok_or_else(|| {
        format!("Backend host \"{host}\": resolves to neither IPv4 nor IPv6 addresses")
    })?;
    Ok((first, in_order.next()))
}

/// Host and port of `HOST`, `HOST:PORT`, `HOST PORT`, `[HOST]:PORT` or `IPv6`.
fn split(whole: &str) -> Result<(&str, Option<&str>), String> {
    if let Some(rest) = whole.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("IPv6 address lacks ']'")?;
        return match rest.chars().next() {
            None => Ok((host, None)),
            Some(' ' | ':') => Ok((host, Some(&rest[1..]))),
            Some(_) => Err("IPv6 address has wrong port separator".to_owned()),
        };
    }
    if let Some((host, port)) = whole.split_once(' ') {
        return Ok((host, Some(port)));
    }
    match whole.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Ok((whole, None)),
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((whole, None)),
    }
}

/// A number from 1 to 65535, or a name of /etc/services. (Varnish takes any number, and its lower
/// 16 bits as the port; port 0 cannot be connected to.)
fn port_number(text: &str) -> Result<u16, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        let port = text.parse::<u16>().ok().filter(|port| *port != 0);
        return port.ok_or_else(|| format!("the port {text} is not from 1 to 65535"));
    }
    let unknown = || "Servname not supported for ai_socktype".to_owned();
    let file = std::fs::File::open("/etc/services").map_err(|_| unknown())?;
    let lines = BufReader::new(file.take(SERVICES_BYTES_MAX)).lines().map_while(Result::ok);
    lines.filter_map(|line| service_port(&line, text)).next().ok_or_else(unknown)
}

/// The port of a line `NAME PORT/tcp ALIAS…` if it is about `service`.
fn service_port(line: &str, service: &str) -> Option<u16> {
    let mut words = line.split('#').next()?.split_whitespace();
    let name = words.next()?;
    let port = words.next()?.strip_suffix("/tcp")?;
    let is_meant = name == service || words.any(|alias| alias == service);
    is_meant.then(|| port.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(host: &str, port: Option<&str>) -> String {
        match Network::new(host.as_bytes(), port.map(str::as_bytes)) {
            Ok(network) => format!("{} {}", network.host, network.port),
            Err(why) => format!("! {why}"),
        }
    }

    #[test]
    fn host_may_have_the_port() {
        assert_eq!(network("127.0.0.1", None), "127.0.0.1 80");
        assert_eq!(network("127.0.0.1:8081", None), "127.0.0.1 8081");
        assert_eq!(network("127.0.0.1 8081", None), "127.0.0.1 8081");
        assert_eq!(network("[::1]:8082", None), "::1 8082");
        assert_eq!(network("[::1]", Some("81")), "::1 81");
        assert_eq!(network("::1", Some("81")), "::1 81");
        assert_eq!(network("::1", None), "::1 80");
        assert_eq!(network("www.example.com", Some("8080")), "www.example.com 8080");
    }

    #[test]
    fn what_is_no_host_is_told() {
        assert_eq!(network("", None), "! Name or service not known");
        assert_eq!(network("127.0.0.1:8081", Some("80")), "! Name or service not known");
        assert_eq!(network("a b", None), "! Servname not supported for ai_socktype");
        assert_eq!(network("[::1", None), "! IPv6 address lacks ']'");
        assert_eq!(network("[::1]x80", None), "! IPv6 address has wrong port separator");
        assert_eq!(network("a", Some("0")), "! the port 0 is not from 1 to 65535");
        assert_eq!(network("a", Some("70000")), "! the port 70000 is not from 1 to 65535");
    }

    #[test]
    fn of_two_families_the_preferred_one_is_meant() {
        let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let (v4, v6) = (address("192.0.2.1:80"), address("[2001:db8::1]:80"));
        assert_eq!(choose("x", vec![v6, v4], false), Ok((v4, Some(v6))));
        assert_eq!(choose("x", vec![v4, v6, v4], true), Ok((v6, Some(v4))));
        assert_eq!(choose("x", vec![v6], false), Ok((v6, None)));
        let many = choose("x", vec![v4, address("192.0.2.2:80")], false).expect_err("too many");
        assert!(many.contains("resolves to too many addresses (192.0.2.1, 192.0.2.2)"), "{many}");
        let none = choose("x", Vec::new(), true).expect_err("none");
        assert!(none.contains("resolves to neither IPv4 nor IPv6 addresses"), "{none}");
    }

    #[test]
    fn services_are_found_by_name_and_alias() {
        assert_eq!(service_port("http\t80/tcp\twww # x", "http"), Some(80));
        assert_eq!(service_port("http\t80/tcp\twww # x", "www"), Some(80));
        assert_eq!(service_port("http\t80/tcp\twww # x", "x"), None);
        assert_eq!(service_port("http\t80/udp", "http"), None);
    }
}
