//! Addresses as an operator writes them: one with its port, a unix socket, or a range with one port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use sickbay_shared::limits::POOL_BACKENDS_MAX;

use super::problem::quoted;
use crate::address::{Address, UNIX_BYTES_MAX};

/// What is wrong, and how to mend it.
pub(crate) type Fault = (String, String);

/// `ADDRESS:PORT`, IPv6 in brackets, `unix:/FILE` or `unix:@NAME`, of something that can be probed.
pub(crate) fn endpoint(text: &str) -> Result<Address, Fault> {
    match text.strip_prefix("unix:") {
        Some(path) => unix(text, path),
        None => inet(text).map(Address::Inet),
    }
}

fn unix(text: &str, path: &str) -> Result<Address, Fault> {
    if path == "@" {
        // Varnish's words (vcc_backend.c).
        let problem = "The empty abstract socket name is not supported".to_owned();
        return Err((problem, "write a name behind the \"@\", such as \"unix:@app\"".to_owned()));
    }
    Address::unix(path).ok_or_else(|| {
        let mend = format!(
            "write it as \"unix:/run/app.sock\", an absolute path, or \"unix:@NAME\", of at most \
             {UNIX_BYTES_MAX} bytes"
        );
        (format!("{} is no unix socket", quoted(text)), mend)
    })
}

fn inet(text: &str) -> Result<SocketAddr, Fault> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        check(address.ip())?;
        if address.port() == 0 {
            return Err((format!("{} has port 0", quoted(text)), "write 1 to 65535".to_owned()));
        }
        return Ok(address);
    }
    let problem = format!("{} is not ADDRESS:PORT", quoted(text));
    let mend = match text.parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => format!("add the port, such as \"{address}:80\""),
        Ok(IpAddr::V6(address)) => {
            format!("put brackets around the address and add the port: \"[{address}]:80\"")
        }
        Err(_) if text.starts_with('/') => format!("write \"unix:{text}\" for a unix socket"),
        Err(_) => "write it as \"192.0.2.1:80\" or \"[2001:db8::1]:80\"; a host name \
                   belongs into backends_dns"
            .to_owned(),
    };
    Err((problem, mend))
}

/// An address that can be a backend or a VIP.
pub(crate) fn check(address: IpAddr) -> Result<(), Fault> {
    let kind = if address.is_unspecified() {
        "the unspecified address"
    } else if address.is_multicast() {
        "a multicast address"
    } else if matches!(address, IpAddr::V4(v4) if v4.is_broadcast()) {
        "the broadcast address"
    } else if matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some()) {
        "an IPv4 address written as IPv6"
    } else {
        return Ok(());
    };
    let mend = match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => "write it as IPv4",
        _ => "write a single host's address",
    };
    Err((format!("{address} is {kind}"), mend.to_owned()))
}

/// The endpoints of `FIRST-LAST:PORT` or `NETWORK/LENGTH:PORT`, IPv6 in brackets.
///
/// A network gives its hosts: for IPv4 without the network and the broadcast address.
pub(super) fn range(text: &str) -> Result<Vec<SocketAddr>, Fault> {
    let odd = || {
        let mend = "write it as \"127.0.0.1-127.0.39.16:80\", \"10.0.0.0/24:80\" or \
                    \"[fd00::/120]:80\"";
        (format!("{} is not a range", quoted(text)), mend.to_owned())
    };
    let (addresses, port) = text.rsplit_once(':').ok_or_else(odd)?;
    let port: u16 = port.parse().map_err(|_| odd())?;
    if port == 0 {
        return Err((format!("{} has port 0", quoted(text)), "write 1 to 65535".to_owned()));
    }
    let bracketed = addresses.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let inner = bracketed.unwrap_or(addresses);
    if bracketed.is_none() && inner.contains(':') {
        let problem = format!("{} has IPv6 addresses without brackets", quoted(text));
        return Err((problem, format!("write \"[{inner}]:{port}\"")));
    }
    let (first, last) = match inner.split_once('-') {
        Some((first, last)) => {
            let first: IpAddr = first.trim().parse().map_err(|_| odd())?;
            (first, last.trim().parse().map_err(|_| odd())?)
        }
        None => hosts(inner.parse().map_err(|_| odd())?),
    };
    check(first)?;
    check(last)?;
    let numbers = numbers(first, last).ok_or_else(|| {
        let problem = format!("{} goes down or changes its family", quoted(text));
        (problem, "write the lower address first, both of one family".to_owned())
    })?;
    if u128::from(POOL_BACKENDS_MAX) <= numbers.1 - numbers.0 {
        let problem = format!("{} has more than {POOL_BACKENDS_MAX} addresses", quoted(text));
        return Err((problem, "write a smaller range; split it over several pools".to_owned()));
    }
    let address = |number: u128| match first {
        // The numbers came from 32 bits.
        #[expect(clippy::cast_possible_truncation, reason = "an IPv4 address is 32 bits")]
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from_bits(number as u32)),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from_bits(number)),
    };
    Ok((numbers.0..=numbers.1).map(|number| SocketAddr::new(address(number), port)).collect())
}

/// First and last host of a network.
fn hosts(network: IpNet) -> (IpAddr, IpAddr) {
    match network {
        IpNet::V4(v4) if v4.prefix_len() < 31 => {
            let first = v4.network().to_bits() + 1;
            let last = v4.broadcast().to_bits() - 1;
            (Ipv4Addr::from_bits(first).into(), Ipv4Addr::from_bits(last).into())
        }
        _ => (network.network(), network.broadcast()),
    }
}

fn numbers(first: IpAddr, last: IpAddr) -> Option<(u128, u128)> {
    let (first, last) = match (first, last) {
        (IpAddr::V4(first), IpAddr::V4(last)) => {
            (u128::from(first.to_bits()), u128::from(last.to_bits()))
        }
        (IpAddr::V6(first), IpAddr::V6(last)) => (first.to_bits(), last.to_bits()),
        _ => return None,
    };
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        range(text).expect("is a range").iter().map(ToString::to_string).collect()
    }

    #[test]
    fn network_gives_its_hosts() {
        assert_eq!(texts("192.0.2.0/30:80"), ["192.0.2.1:80", "192.0.2.2:80"]);
        assert_eq!(texts("192.0.2.7/32:80"), ["192.0.2.7:80"]);
        assert_eq!(texts("192.0.2.6/31:80"), ["192.0.2.6:80", "192.0.2.7:80"]);
        assert_eq!(texts("[fd00::4/127]:8080"), ["[fd00::4]:8080", "[fd00::5]:8080"]);
        assert_eq!(range("10.0.0.0/24:80").expect("is a range").len(), 254);
    }

    #[test]
    fn range_includes_both_ends_and_crosses_bytes() {
        let addresses = range("127.0.0.1-127.0.39.16:80").expect("is a range");
        assert_eq!(addresses.len(), 10_000);
        assert_eq!(addresses[255].to_string(), "127.0.1.0:80");
        assert_eq!(texts("[fd00::ff-fd00::100]:1"), ["[fd00::ff]:1", "[fd00::100]:1"]);
    }

    #[test]
    fn largest_pool_is_a_range_and_one_more_is_not() {
        assert_eq!(range("10.0.0.0-10.0.255.255:80").expect("is a range").len(), 65_536);
        let (problem, _) = range("10.0.0.0-10.1.0.0:80").expect_err("too many");
        assert_eq!(problem, "\"10.0.0.0-10.1.0.0:80\" has more than 65536 addresses");
        range("[::1:0/0]:80").expect_err("the whole of IPv6");
    }

    #[test]
    fn mistakes_in_ranges_are_named() {
        let problem = |text: &str| range(text).expect_err("is no range").0;
        assert_eq!(
            problem("10.0.0.9-10.0.0.1:80"),
            "\"10.0.0.9-10.0.0.1:80\" goes down or changes its family"
        );
        assert_eq!(
            problem("10.0.0.1-fd00::1:80"),
            "\"10.0.0.1-fd00::1:80\" has IPv6 addresses without brackets"
        );
        assert_eq!(problem("10.0.0.0/33:80"), "\"10.0.0.0/33:80\" is not a range");
        assert_eq!(problem("10.0.0.0/24"), "\"10.0.0.0/24\" is not a range");
        assert_eq!(problem("10.0.0.0/24:0"), "\"10.0.0.0/24:0\" has port 0");
        assert_eq!(problem("224.0.0.0/24:80"), "224.0.0.1 is a multicast address");
    }

    #[test]
    fn mistakes_in_endpoints_say_how_to_mend_them() {
        let mend = |text: &str| endpoint(text).expect_err("is no endpoint").1;
        assert_eq!(mend("192.0.2.1"), "add the port, such as \"192.0.2.1:80\"");
        assert_eq!(
            mend("fd00::1"),
            "put brackets around the address and add the port: \"[fd00::1]:80\""
        );
        assert!(mend("web.example.com:80").contains("a host name belongs into backends_dns"));
        assert_eq!(mend("192.0.2.1:0"), "write 1 to 65535");
        assert_eq!(mend("[::ffff:1.2.3.4]:80"), "write it as IPv4");
    }

    #[test]
    fn unix_sockets_are_files_and_abstract_names() {
        let shown = |text: &str| match endpoint(text) {
            Ok(address) => address.to_string(),
            Err((problem, _)) => format!("! {problem}"),
        };
        assert_eq!(shown("unix:/run/a.sock"), "unix:/run/a.sock");
        assert_eq!(shown("unix:@app"), "unix:@app");
        assert_eq!(shown("unix:@"), "! The empty abstract socket name is not supported");
        assert_eq!(shown("unix:a.sock"), "! \"unix:a.sock\" is no unix socket");
        assert_eq!(shown("/run/a.sock"), "! \"/run/a.sock\" is not ADDRESS:PORT");
    }
}
