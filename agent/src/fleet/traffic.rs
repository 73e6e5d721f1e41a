//! Which packets a service takes: addresses, ports, protocol.

use std::fmt;

use ipnet::IpNet;

/// Which packets are a service's own, by their destination.
///
/// Of several services that a packet would suit, the one with the longest address prefix has it;
/// of these the one that names its port, then the one whose range has it, then the one of any port;
/// of these the one that names its protocol before the one of any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Destination addresses; a single one is a prefix of full length.
    pub network: IpNet,
    /// Destination ports; any for a protocol without ports.
    pub ports: Ports,
    /// The protocol.
    pub protocol: Protocol,
}

/// Destination ports.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ports {
    /// Every port; for protocols without ports, every packet.
    Any,
    /// These, ascending, none in two of them; at least one.
    Of(Vec<PortRange>),
}

/// Ports from `first` to `last`, both included; a single one when they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PortRange {
    /// The lowest, at least 1.
    pub first: u16,
    /// The highest, at least `first`.
    pub last: u16,
}

/// Which protocol a service's packets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// TCP, IP protocol 6.
    Tcp,
    /// UDP, IP protocol 17.
    Udp,
    /// Another one by its number, without ports: flows are told apart by their addresses.
    Number(u8),
    /// Any, those without ports included.
    Any,
}

/// Protocols that have a name in a configuration besides "tcp", "udp" and "any": IANA's keywords in
/// lower case.
const NAMES: [(&str, u8); 12] = [
    ("igmp", 2),
    ("ipip", 4),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

impl Traffic {
    /// Whether only one address is meant.
    #[must_use]
    pub fn is_of_one_address(&self) -> bool {
        self.network.prefix_len() == self.network.max_prefix_len()
    }
}

impl Ports {
    /// Whether `port` is one of them.
    #[must_use]
    pub fn contain(&self, port: u16) -> bool {
        match self {
            Self::Any => true,
            Self::Of(ranges) => ranges.iter().any(|range| range.contains(port)),
        }
    }
}

impl PortRange {
    /// The range of one port.
    #[must_use]
    pub const fn one(port: u16) -> Self {
        Self { first: port, last: port }
    }

    /// Whether it is a single port.
    #[must_use]
    pub const fn is_one(self) -> bool {
        self.first == self.last
    }

    /// Whether `port` lies in it.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl Protocol {
    /// Its IP protocol number; `None` for any.
    #[must_use]
    pub const fn number(self) -> Option<u8> {
        match self {
            Self::Tcp => Some(6),
            Self::Udp => Some(17),
            Self::Number(number) => Some(number),
            Self::Any => None,
        }
    }

    /// The protocol of this number.
    #[must_use]
    pub const fn of_number(number: u8) -> Self {
        match number {
            6 => Self::Tcp,
            17 => Self::Udp,
            other => Self::Number(other),
        }
    }

    /// The protocol that a configuration calls so; `None` when there is none.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        match name {
            "tcp" => Some(Self::Tcp),
            "udp" => Some(Self::Udp),
            "any" => Some(Self::Any),
            _ => NAMES
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, number)| Self::Number(*number)),
        }
    }

    /// Every name that [`Self::of_name`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ["tcp", "udp", "any"].into_iter().chain(NAMES.iter().map(|(name, _)| *name))
    }

    /// Whether its packets have ports that services can tell apart.
    #[must_use]
    pub const fn has_ports(self) -> bool {
        !matches!(self, Self::Number(_))
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp => f.write_str("tcp"),
            Self::Udp => f.write_str("udp"),
            Self::Any => f.write_str("any"),
            Self::Number(number) => match NAMES.iter().find(|(_, known)| known == number) {
                Some((name, _)) => f.write_str(name),
                None => write!(f, "{number}"),
            },
        }
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_one() {
            return write!(f, "{}", self.first);
        }
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Of(ranges) = self else {
            return f.write_str("any");
        };
        for (index, range) in ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

/// `198.51.100.1`, or `192.0.2.0/24`.
#[must_use]
pub fn shown_network(network: IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() {
        return network.addr().to_string();
    }
    network.to_string()
}

/// `198.51.100.1 port 80 tcp`; without the port for a protocol that has none.
impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let network = shown_network(self.network);
        match &self.ports {
            _ if !self.protocol.has_ports() => write!(f, "{network} {}", self.protocol),
            Ports::Any => write!(f, "{network} any port {}", self.protocol),
            Ports::Of(ranges) => {
                let several = 1 < ranges.len() || ranges.iter().any(|range| !range.is_one());
                let plural = if several { "s" } else { "" };
                write!(f, "{network} port{plural} {} {}", self.ports, self.protocol)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_is_shown_as_an_operator_would_say_it() {
        let shown = |network: &str, ports, protocol| {
            let network = network.parse().expect("a network");
            Traffic { network, ports, protocol }.to_string()
        };
        let of = |ranges: &[(u16, u16)]| {
            Ports::Of(ranges.iter().map(|&(first, last)| PortRange { first, last }).collect())
        };
        let web = of(&[(80, 80)]);
        assert_eq!(shown("192.0.2.1/32", web, Protocol::Tcp), "192.0.2.1 port 80 tcp");
        let several = of(&[(80, 80), (8000, 8099)]);
        let text = "192.0.2.0/24 ports 80,8000-8099 any";
        assert_eq!(shown("192.0.2.0/24", several, Protocol::Any), text);
        let text = "2001:db8::/48 any port udp";
        assert_eq!(shown("2001:db8::/48", Ports::Any, Protocol::Udp), text);
        assert_eq!(shown("192.0.2.1/32", Ports::Any, Protocol::Number(47)), "192.0.2.1 gre");
        assert_eq!(shown("192.0.2.1/32", Ports::Any, Protocol::Number(200)), "192.0.2.1 200");
    }

    #[test]
    fn every_name_of_a_protocol_is_read_back() {
        for name in Protocol::names() {
            assert_eq!(Protocol::of_name(name).map(|known| known.to_string()), Some(name.into()));
        }
        assert_eq!(Protocol::of_name("icmp"), None);
        assert_eq!(Protocol::of_number(17), Protocol::Udp);
    }
}
