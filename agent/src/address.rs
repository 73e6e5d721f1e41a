//! Where something is that can be connected to: an IP address with its port, or a unix socket.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use sickbay_core::hash;
use sickbay_core::plan::Family;

/// Bytes of a unix socket's path or abstract name: `sun_path` has 108, one of them for the NUL.
pub const UNIX_BYTES_MAX: usize = 107;
/// What stands before a unix socket where addresses of both kinds may stand.
const UNIX: &str = "unix:";

/// Where a backend or a target is. As small as a [`SocketAddr`] with its tag: fleets are large.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// A TCP port.
    Inet(SocketAddr),
    /// A unix socket.
    Unix(UnixPath),
}

/// The file of a unix socket, or `@` and its abstract name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixPath(Box<str>);

/// What several addresses may have in common: the host whose load their probes are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// All ports of an IP address.
    Ip(IpAddr),
    /// A unix socket: what stands behind it is not known.
    Unix(UnixPath),
}

impl UnixPath {
    /// From `/FILE` or `@NAME`; `None` when the path is relative, has a NUL, or either is empty or
    /// longer than [`UNIX_BYTES_MAX`].
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let name = text.strip_prefix('@');
        let fits = match name {
            Some(name) => (1..=UNIX_BYTES_MAX).contains(&name.len()),
            None => text.starts_with('/') && (2..=UNIX_BYTES_MAX).contains(&text.len()),
        };
        (fits && !text.contains('\0')).then(|| Self(text.into()))
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The abstract name; `None` for a file.
    #[must_use]
    pub fn abstract_name(&self) -> Option<&str> {
        self.0.strip_prefix('@')
    }
}

impl Address {
    /// The unix socket of `/FILE` or `@NAME`; `None` as [`UnixPath::new`].
    #[must_use]
    pub fn unix(text: &str) -> Option<Self> {
        UnixPath::new(text).map(Self::Unix)
    }

    /// The IP address and port; `None` for a unix socket.
    #[must_use]
    pub const fn inet(&self) -> Option<SocketAddr> {
        match self {
            Self::Inet(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// What a backend there is called in the tables of slots and on the board: a hash of its address
    /// and port, so that every host with one configuration agrees; of a unix socket's path.
    #[must_use]
    pub fn identity(&self) -> u64 {
        let identity = match self {
            Self::Inet(inet) => {
                let ip = match inet.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                hash::identity(&ip.octets(), inet.port(), b"")
            }
            Self::Unix(path) => hash::identity(path.as_str().as_bytes(), 0, b""),
        };
        hash::seeded(identity, 0)
    }

    /// As [`FromStr`] reads it back, whatever its characters: for files and requests.
    #[must_use]
    pub fn written(&self) -> String {
        match self {
            Self::Inet(address) => address.to_string(),
            Self::Unix(path) => format!("{UNIX}{}", path.as_str()),
        }
    }

    /// Whose load it is.
    #[must_use]
    pub fn host(&self) -> Host {
        match self {
            Self::Inet(address) => Host::Ip(address.ip()),
            Self::Unix(path) => Host::Unix(path.clone()),
        }
    }

    /// Which of the registers a connection moves.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self {
            Self::Inet(SocketAddr::V4(_)) => Family::Ipv4,
            Self::Inet(SocketAddr::V6(_)) => Family::Ipv6,
            Self::Unix(_) => Family::Unix,
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Inet(address)
    }
}

/// `ADDRESS:PORT`, `unix:/FILE` or `unix:@NAME`; what a terminal would obey is escaped.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inet(address) => address.fmt(f),
            Self::Unix(path) => path.fmt(f),
        }
    }
}

impl fmt::Display for UnixPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(UNIX)?;
        self.0.escape_debug().fmt(f)
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Unix(path) => path.fmt(f),
        }
    }
}

/// What [`Address`]'s text may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("neither ADDRESS:PORT nor unix:/FILE nor unix:@NAME")]
pub struct NoAddress;

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Self, NoAddress> {
        match text.strip_prefix(UNIX) {
            Some(path) => Self::unix(path).ok_or(NoAddress),
            None => text.parse().map(Self::Inet).map_err(|_| NoAddress),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_socket_is_a_file_or_an_abstract_name() {
        let shown = |text: &str| Address::unix(text).map(|address| address.to_string());
        assert_eq!(shown("/run/a.sock").as_deref(), Some("unix:/run/a.sock"));
        assert_eq!(shown("@name").as_deref(), Some("unix:@name"));
        for text in ["", "@", "/", "run/a.sock", "/a\0b", &format!("/{}", "x".repeat(107))] {
            assert_eq!(shown(text), None, "{text}");
        }
        assert!(Address::unix(&format!("/{}", "x".repeat(106))).is_some());
        assert_eq!(Address::unix("@name").map(|it| it.family()), Some(Family::Unix));
    }

    #[test]
    fn text_is_read_back_as_it_is_shown() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:443", "unix:/run/a b.sock", "unix:@x"] {
            let address: Address = text.parse().expect(text);
            assert_eq!(address.to_string(), text);
        }
        assert_eq!("unix:run/x".parse::<Address>(), Err(NoAddress));
        let odd = Address::unix("/run/\u{1b}[2J").expect("a path may have any character but NUL");
        assert_eq!(odd.to_string(), r"unix:/run/\u{1b}[2J");
        assert_eq!(odd.written().parse(), Ok(odd));
    }

    #[test]
    fn address_is_no_larger_than_a_socket_address_needs() {
        assert!(size_of::<Address>() <= 32, "{}", size_of::<Address>());
    }
}
