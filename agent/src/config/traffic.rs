//! Which packets a service takes: address or prefix, ports, protocol.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::endpoint::{self, Fault};
use super::problem::{nearest, quoted};
use super::settings::{PortEntry, PortSetting, ProtocolSetting};
use crate::fleet::{PortRange, Ports, Protocol, shown_network};

/// IP protocols that no service can have, and why: what is no transport of its own to sickbay.
const NO_SERVICE: [(u8, &str); 8] = [
    (0, "an IPv6 extension header"),
    (1, "answered or passed on by rule"),
    (43, "an IPv6 extension header"),
    (44, "an IPv6 extension header"),
    (51, "read through as a header"),
    (58, "answered or passed on by rule"),
    (59, "no protocol at all"),
    (60, "an IPv6 extension header"),
];

/// An address or a prefix of them, none of which is no host's.
pub(super) fn network(text: &str) -> Result<IpNet, Fault> {
    if let Ok(address) = text.parse::<IpAddr>() {
        endpoint::check(address)?;
        return Ok(IpNet::from(address));
    }
    let network = text.parse::<IpNet>().map_err(|_| {
        let mend = "write an IP address without a port, or a prefix of them, such as \
                    \"198.51.100.1\" or \"192.0.2.0/24\"";
        (format!("{} is not an IP address", quoted(text)), mend.to_owned())
    })?;
    let whole = network.trunc();
    if whole != network {
        let problem = format!("{} has bits set behind its prefix", quoted(text));
        let one = network.addr();
        return Err((problem, format!("write \"{whole}\", or \"{one}\" for that address alone")));
    }
    let odd: [(IpNet, &str); 5] = [
        (IpNet::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), "the unspecified address"),
        (prefix(Ipv4Addr::new(224, 0, 0, 0).into(), 4), "multicast addresses"),
        (IpNet::from(IpAddr::V4(Ipv4Addr::BROADCAST)), "the broadcast address"),
        (IpNet::from(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), "the unspecified address"),
        (prefix(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0).into(), 8), "multicast addresses"),
    ];
    let overlap = |other: &IpNet| other.contains(&network) || network.contains(other);
    if let Some((_, kind)) = odd.iter().find(|(other, _)| overlap(other)) {
        let problem = format!("{} has {kind} in it", shown_network(network));
        return Err((problem, "write a longer prefix, of hosts' addresses alone".to_owned()));
    }
    Ok(network)
}

/// The ports as they are written.
pub(super) fn ports(setting: &PortSetting) -> Result<Ports, Fault> {
    let mut ranges = match setting {
        PortSetting::Text(text) if text == "any" => return Ok(Ports::Any),
        PortSetting::One(port) => vec![one(*port)?],
        PortSetting::Text(text) => vec![range(text)?],
        PortSetting::Several(entries) => entries.iter().map(entry).collect::<Result<_, _>>()?,
    };
    if ranges.is_empty() {
        return Err(("no port is named".to_owned(), "write at least one, or \"any\"".to_owned()));
    }
    ranges.sort();
    if let Some(pair) = ranges.windows(2).find(|pair| pair[1].first <= pair[0].last) {
        let problem = format!("{} and {} overlap", pair[0], pair[1]);
        return Err((problem, "name each port once".to_owned()));
    }
    Ok(Ports::Of(ranges))
}

/// The protocol as it is written.
pub(super) fn protocol(setting: &ProtocolSetting) -> Result<Protocol, Fault> {
    let protocol = match setting {
        ProtocolSetting::Number(number) => {
            u8::try_from(*number).map(Protocol::of_number).map_err(|_| {
                let problem = format!("{number} is no protocol number");
                (problem, "write 1 to 255, or a name".to_owned())
            })?
        }
        ProtocolSetting::Name(name) => match (name.as_str(), name.parse::<u8>()) {
            (name, Ok(number)) => {
                let problem = format!("{} is a number in quotes", quoted(name));
                return Err((problem, format!("leave out the quotes: {number}")));
            }
            ("icmp", _) => Protocol::Number(1),
            ("icmpv6" | "ipv6-icmp", _) => Protocol::Number(58),
            (name, _) => Protocol::of_name(name).ok_or_else(|| {
                let mend = format!("{}; others by their number", nearest(name, Protocol::names()));
                (format!("{} is no protocol that has a name here", quoted(name)), mend)
            })?,
        },
    };
    match NO_SERVICE.iter().find(|(odd, _)| protocol.number() == Some(*odd)) {
        Some((number, why)) => {
            let problem = format!("protocol {number} cannot be a service's: it is {why}");
            Err((problem, "write another protocol, or \"any\"".to_owned()))
        }
        None => Ok(protocol),
    }
}

fn entry(entry: &PortEntry) -> Result<PortRange, Fault> {
    match entry {
        PortEntry::One(port) => one(*port),
        PortEntry::Range(text) if text == "any" => {
            let mend = "write port = \"any\" without brackets";
            Err((
                "\"any\" stands for every port and cannot be one of several".to_owned(),
                mend.to_owned(),
            ))
        }
        PortEntry::Range(text) => range(text),
    }
}

fn one(port: i64) -> Result<PortRange, Fault> {
    match u16::try_from(port) {
        Ok(port @ 1..) => Ok(PortRange::one(port)),
        _ => {
            let mend = "write a whole number from 1 to 65535".to_owned();
            Err((format!("{port} is out of range"), mend))
        }
    }
}

fn range(text: &str) -> Result<PortRange, Fault> {
    if let Ok(port) = text.trim().parse::<i64>() {
        let problem = format!("{} is a number in quotes", quoted(text));
        return Err((problem, format!("leave out the quotes: {port}")));
    }
    let bounds = text.split_once('-').and_then(|(first, last)| {
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(PortRange { first, last })
    });
    bounds.filter(|range| 1 <= range.first && range.first <= range.last).ok_or_else(|| {
        let mend = "write it as \"8000-8099\", 1 to 65535, the lower one first; or \"any\"";
        (format!("{} is no range of ports", quoted(text)), mend.to_owned())
    })
}

fn prefix(address: IpAddr, bits: u8) -> IpNet {
    IpNet::new(address, bits).expect("the prefixes above are short enough")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_prefixes_are_read() {
        let shown = |text| network(text).map(shown_network);
        assert_eq!(shown("198.51.100.1"), Ok("198.51.100.1".to_owned()));
        assert_eq!(shown("192.0.2.0/24"), Ok("192.0.2.0/24".to_owned()));
        assert_eq!(shown("192.0.2.7/32"), Ok("192.0.2.7".to_owned()));
        assert_eq!(shown("2001:db8::/48"), Ok("2001:db8::/48".to_owned()));
    }

    #[test]
    fn prefixes_that_are_none_say_what_to_write() {
        let fault = |text| network(text).expect_err("is none");
        let (problem, mend) = fault("192.0.2.1/24");
        assert_eq!(problem, "\"192.0.2.1/24\" has bits set behind its prefix");
        assert_eq!(mend, "write \"192.0.2.0/24\", or \"192.0.2.1\" for that address alone");
        assert_eq!(fault("0.0.0.0/0").0, "0.0.0.0/0 has the unspecified address in it");
        assert_eq!(fault("224.1.0.0/16").0, "224.1.0.0/16 has multicast addresses in it");
        assert_eq!(fault("192.0.0.0/2").0, "192.0.0.0/2 has multicast addresses in it");
        assert_eq!(fault("::/3").0, "::/3 has the unspecified address in it");
        assert_eq!(fault("192.0.2.0/33").0, "\"192.0.2.0/33\" is not an IP address");
        assert_eq!(fault("198.51.100.1:80").0, "\"198.51.100.1:80\" is not an IP address");
    }

    #[test]
    fn ports_are_sorted_and_none_is_named_twice() {
        let several = |entries: Vec<PortEntry>| ports(&PortSetting::Several(entries));
        let range = |text: &str| PortEntry::Range(text.to_owned());
        let read = several(vec![range("8000-8099"), PortEntry::One(443), PortEntry::One(80)]);
        assert_eq!(read.map(|ports| ports.to_string()), Ok("80,443,8000-8099".to_owned()));
        assert_eq!(ports(&PortSetting::Text("any".to_owned())), Ok(Ports::Any));
        let fault = several(vec![PortEntry::One(80), range("70-90")]).expect_err("80 twice");
        assert_eq!(fault.0, "70-90 and 80 overlap");
        assert_eq!(several(vec![]).expect_err("none").0, "no port is named");
        assert_eq!(several(vec![PortEntry::One(0)]).expect_err("none").0, "0 is out of range");
        for odd in ["80-", "-", "90-80", "0-5", "1-65536", "all"] {
            let fault = ports(&PortSetting::Text(odd.to_owned())).expect_err("is none");
            assert_eq!(fault.0, format!("\"{odd}\" is no range of ports"));
        }
        let fault = ports(&PortSetting::Text("80".to_owned())).expect_err("is in quotes");
        assert_eq!(fault.1, "leave out the quotes: 80");
    }

    #[test]
    fn protocols_are_read_by_name_and_number() {
        let name = |text: &str| protocol(&ProtocolSetting::Name(text.to_owned()));
        assert_eq!(name("udp"), Ok(Protocol::Udp));
        assert_eq!(name("gre"), Ok(Protocol::Number(47)));
        assert_eq!(name("any"), Ok(Protocol::Any));
        assert_eq!(protocol(&ProtocolSetting::Number(6)), Ok(Protocol::Tcp));
        assert_eq!(protocol(&ProtocolSetting::Number(255)), Ok(Protocol::Number(255)));
        let fault = protocol(&ProtocolSetting::Number(256)).expect_err("is none");
        assert_eq!(fault.0, "256 is no protocol number");
        assert!(name("icmp").expect_err("by rule").0.starts_with("protocol 1 cannot be"));
        assert!(name("tpc").expect_err("is none").1.contains("did you mean \"tcp\"?"));
    }
}
