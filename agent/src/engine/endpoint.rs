//! Where a target is and what its sockets are told, for people and as the kernel reads it.

use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::{SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage, UnixAddr};

use crate::address::{Address, UnixPath};
use crate::fleet::{CloseMode, SocketOptions};

/// Where a target is and what it is sent; by the plan's target index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Where to connect.
    pub address: Address,
    /// Where else, when that fails; of probes that behave as Varnish's.
    pub second: Option<Address>,
    /// The whole request; empty when nothing is sent.
    pub request: Vec<u8>,
    /// Whether a PROXY header of version 1, which names the connection's own address, is sent
    /// before the request. Nothing is sent to a target that only has to connect.
    pub proxy_v1: bool,
    /// How its connection is closed.
    pub close: CloseMode,
    /// What its sockets are told before they connect.
    pub socket: SocketOptions,
}

/// The PROXY header of version 1 of a connection from `local`: as Varnish sends it before a probe's
/// request, with its own address on both sides; `None` = not an IP address.
pub(super) fn proxy_v1(local: Option<SocketAddr>) -> String {
    let Some(local) = local else {
        return "PROXY UNKNOWN\r\n".to_owned();
    };
    let family = if local.is_ipv4() { "TCP4" } else { "TCP6" };
    // A mapped address is written as the IPv4 address that it is, its family as it was opened.
    let (ip, port) = (local.ip().to_canonical(), local.port());
    format!("PROXY {family} {ip} {ip} {port} {port}\r\n")
}

/// The IP address that getsockname(2) gave; `None` when it is none.
pub(super) fn inet(local: &SockaddrStorage) -> Option<SocketAddr> {
    let ipv4 = local.as_sockaddr_in().map(|it| SocketAddr::V4((*it).into()));
    ipv4.or_else(|| local.as_sockaddr_in6().map(|it| SocketAddr::V6((*it).into())))
}

/// An address as connect(2) and bind(2) want it.
#[derive(Debug)]
pub(super) enum RawAddress {
    Ipv4(SockaddrIn),
    Ipv6(SockaddrIn6),
    /// Boxed: four times as long as the others, and rare.
    Unix(Box<UnixAddr>),
}

impl RawAddress {
    pub(super) const fn domain(&self) -> i32 {
        match self {
            Self::Ipv4(_) => libc::AF_INET,
            Self::Ipv6(_) => libc::AF_INET6,
            Self::Unix(_) => libc::AF_UNIX,
        }
    }

    /// Whether it is TCP that speaks to it.
    pub(super) const fn is_inet(&self) -> bool {
        !matches!(self, Self::Unix(_))
    }

    /// Whether a socket that was connected to it is, once reset, as good as new, and of AF_INET6;
    /// `None` = it is not. Of a mapped address the kernel's choice of protocol remains, of a
    /// link-local one the interface (`tcp_v6_connect`).
    pub(super) fn leaves_nothing(&self) -> Option<bool> {
        match self {
            Self::Ipv4(_) => Some(false),
            Self::Ipv6(address) => {
                let ip = address.ip();
                let plain = ip.to_ipv4_mapped().is_none() && !ip.is_unicast_link_local();
                (plain && address.scope_id() == 0).then_some(true)
            }
            Self::Unix(_) => None,
        }
    }

    pub(super) const fn protocol(&self) -> i32 {
        match self {
            Self::Ipv4(_) | Self::Ipv6(_) => libc::IPPROTO_TCP,
            Self::Unix(_) => 0,
        }
    }

    /// Its bytes and their number. The pointer is good while `self` is not moved.
    pub(super) fn parts(&self) -> (*const libc::sockaddr, libc::socklen_t) {
        match self {
            Self::Ipv4(address) => (address.as_ptr(), address.len()),
            Self::Ipv6(address) => (address.as_ptr(), address.len()),
            Self::Unix(address) => (SockaddrLike::as_ptr(&**address), address.len()),
        }
    }
}

impl From<&Address> for RawAddress {
    fn from(address: &Address) -> Self {
        match address {
            Address::Inet(SocketAddr::V4(address)) => Self::Ipv4(SockaddrIn::from(*address)),
            Address::Inet(SocketAddr::V6(address)) => Self::Ipv6(SockaddrIn6::from(*address)),
            Address::Unix(path) => Self::Unix(Box::new(raw_unix(path))),
        }
    }
}

fn raw_unix(path: &UnixPath) -> UnixAddr {
    let raw = match path.abstract_name() {
        Some(name) => UnixAddr::new_abstract(name.as_bytes()),
        None => UnixAddr::new(path.as_str()),
    };
    raw.expect("a path is made of what fits into a sockaddr_un, without a NUL")
}

/// A socket option as setsockopt(2) wants it.
#[derive(Debug)]
pub(super) struct RawOption {
    pub(super) level: i32,
    pub(super) name: i32,
    pub(super) value: Box<[u8]>,
}

/// What a socket is told before it connects, in that order, its linger aside.
pub(super) fn raw_options(options: &SocketOptions) -> Box<[RawOption]> {
    let SocketOptions { source, interface, mark } = options;
    let option = |level, name, value: &[u8]| RawOption { level, name, value: value.into() };
    let mut raw = Vec::new();
    if let Some(mark) = mark {
        raw.push(option(libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes()));
    }
    if let Some(interface) = interface {
        raw.push(option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes()));
    }
    if source.is_some() {
        // The port is chosen when the peer is known too: sources then share the ports (Linux 4.2).
        let on = 1_i32.to_ne_bytes();
        raw.push(option(libc::SOL_IP, libc::IP_BIND_ADDRESS_NO_PORT, &on));
    }
    raw.into()
}

/// The address to bind to: any port of the source.
pub(super) fn raw_source(source: IpAddr) -> RawAddress {
    RawAddress::from(&Address::Inet(SocketAddr::new(source, 0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_socket_of_the_greatest_length_is_one_to_the_kernel() {
        // 2 of the family and 107 of the path; an abstract name has a NUL before it: unix(7).
        let file = format!("/{}", "x".repeat(106));
        for (text, expected) in [(file, 109), (format!("@{}", "x".repeat(107)), 110)] {
            let address = Address::unix(&text).expect("it fits");
            let (_, length) = RawAddress::from(&address).parts();
            assert_eq!(length, expected, "{text}");
        }
    }

    #[test]
    fn proxy_header_is_as_varnish_711_writes_it() {
        for (local, expected) in [
            ("127.0.0.1:40001", "PROXY TCP4 127.0.0.1 127.0.0.1 40001 40001\r\n"),
            ("[2001:db8::1]:9", "PROXY TCP6 2001:db8::1 2001:db8::1 9 9\r\n"),
            ("[::ffff:127.0.0.1]:9", "PROXY TCP6 127.0.0.1 127.0.0.1 9 9\r\n"),
        ] {
            assert_eq!(proxy_v1(Some(local.parse().expect("an address"))), expected);
        }
        assert_eq!(proxy_v1(None), "PROXY UNKNOWN\r\n");
    }

    #[test]
    fn socket_is_told_what_was_asked_for_and_nothing_else() {
        assert!(raw_options(&SocketOptions::default()).is_empty());
        let options = SocketOptions {
            source: Some([127, 0, 0, 2].into()),
            interface: Some("lo".into()),
            mark: Some(7),
        };
        let told: Vec<_> = raw_options(&options).iter().map(|it| (it.level, it.name)).collect();
        // SO_MARK, SO_BINDTODEVICE, IP_BIND_ADDRESS_NO_PORT: <asm-generic/socket.h>, <linux/in.h>.
        assert_eq!(told, [(1, 36), (1, 25), (0, 24)]);
    }
}
