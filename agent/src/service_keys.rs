//! From services to the keys that the kernel looks them up by.
//!
//! What a longer prefix leaves to a shorter one, a range to "any port" and a protocol to "any
//! protocol" is resolved here beforehand, so that the kernel does one look-up in a hash and at most
//! three in tries, whatever was configured:
//!
//! - A single port (or a protocol without ports) of a single address is a [`ServiceKey`].
//! - Every other address or prefix gets a number ([`AddressPrefixKey`]). Under it stands, for TCP
//!   and for UDP, whose every port is, cut into prefixes of port numbers ([`PortPrefixKey`]); then
//!   what any other protocol's packets are.
//! - Echo requests to an address of a service that is not only observed are answered.
//!
//! Pure; the caller puts the result into the maps.

/// Ports of one protocol, as prefixes of their numbers.
mod ports;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use sickbay_shared::abi::{AddressPrefixKey, PortPrefixKey, SERVICE_ECHO, ServiceKey};
use sickbay_shared::limits::PORT_PREFIXES_MAX;

use self::ports::{PortMap, PortPrefix};
use crate::fleet::{Mode, PortRange, Ports, Protocol, Service};

/// IP protocols of echo requests.
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// The protocols whose ports are read.
const WITH_PORTS: [Protocol; 2] = [Protocol::Tcp, Protocol::Udp];

/// The keys of every service, each with its service's index or [`SERVICE_ECHO`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceKeys {
    /// For [`SERVICE_KEYS`](sickbay_shared::abi::SERVICE_KEYS).
    pub exact: BTreeMap<Exact, u32>,
    /// For [`ADDRESS_PREFIXES`](sickbay_shared::abi::ADDRESS_PREFIXES): the index is the number.
    pub networks: Vec<IpNet>,
    /// For [`PORT_PREFIXES`](sickbay_shared::abi::PORT_PREFIXES).
    pub ports: Vec<(PortPrefixKey, u32)>,
}

/// A single port of a single address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Exact {
    /// The address.
    pub address: IpAddr,
    /// IP protocol.
    pub protocol: u8,
    /// Port; 0 for protocols without ports.
    pub port: u16,
}

impl ServiceKeys {
    /// The keys of `services`, each of which is named by its place.
    #[must_use]
    pub fn of(services: &[Service]) -> Self {
        let mut keys = Self::default();
        let ranked = ranked(services);
        for claim in ranked.iter().filter(|claim| claim.is_exact()) {
            keys.insert_exact(claim);
        }
        let mut networks: BTreeSet<IpNet> = BTreeSet::new();
        networks.extend(ranked.iter().filter(|claim| !claim.is_exact()).map(Claim::network));
        for network in networks {
            keys.insert_network(network, &ranked);
            if keys.are_too_many() {
                return keys;
            }
        }
        for service in services.iter().filter(|service| service.mode != Mode::Observe) {
            if service.traffic.is_of_one_address() {
                let address = service.traffic.network.addr();
                let echo = Exact { address, protocol: icmp(service.traffic.network), port: 0 };
                keys.exact.insert(echo, SERVICE_ECHO);
            }
        }
        keys
    }

    /// Whether [`HEADER_HAS_PREFIXES`](sickbay_shared::abi::HEADER_HAS_PREFIXES) is to be set.
    #[must_use]
    pub fn has_prefixes(&self) -> bool {
        !self.networks.is_empty()
    }

    /// Whether the port prefixes are more than the map takes; then some keys are missing here.
    #[must_use]
    pub fn are_too_many(&self) -> bool {
        PORT_PREFIXES_MAX as usize <= self.ports.len().saturating_sub(1)
    }

    /// Services that some key names; the others never get a packet.
    #[must_use]
    pub fn named(&self) -> BTreeSet<u32> {
        let exact = self.exact.values().copied();
        exact.chain(self.ports.iter().map(|(_, service)| *service)).collect()
    }

    /// The entries of the address trie.
    pub fn address_prefixes(&self) -> impl Iterator<Item = (AddressPrefixKey, u32)> {
        (0..).zip(&self.networks).map(|(number, network)| (address_prefix(*network), number))
    }

    /// The entries of the hash.
    pub fn service_keys(&self) -> impl Iterator<Item = (ServiceKey, u32)> {
        self.exact.iter().map(|(exact, service)| (exact.key(), *service))
    }

    /// Claims come from the least to the most specific: later ones take what earlier ones had.
    fn insert_exact(&mut self, claim: &Claim<'_>) {
        let address = claim.network().addr();
        let service = claim.service;
        let mut insert = |protocol, port| {
            self.exact.insert(Exact { address, protocol, port }, service);
        };
        let protocol = claim.of.traffic.protocol;
        match (protocol, claim.ports) {
            (Protocol::Number(number), _) => insert(number, 0),
            (_, None) => unreachable!("of protocols with ports only a single port is exact"),
            (Protocol::Any, Some(range)) => {
                for each in WITH_PORTS.iter().filter_map(|each| each.number()) {
                    insert(each, range.first);
                }
            }
            (one, Some(range)) => insert(one.number().expect("is not any"), range.first),
        }
    }

    /// Everything that packets to an address can be for, of which `network` is the longest prefix.
    fn insert_network(&mut self, network: IpNet, ranked: &[Claim<'_>]) {
        let number = u32::try_from(self.networks.len()).expect("services are counted in u32");
        self.networks.push(network);
        // What the hash has is found there first. It is said here all the same, so that a service
        // of which nothing is left is seen to have no key.
        let here = |claim: &&Claim<'_>| claim.network().contains(&network);
        let chain: Vec<&Claim<'_>> = ranked.iter().filter(here).collect();

        let of_all = chain.iter().rev().find(|claim| claim.takes_every_protocol());
        let fallback = of_all.map(|claim| claim.service);
        if let Some(service) = fallback {
            self.insert_ports(number, 0, PortPrefix::ALL, service);
        }
        for protocol in WITH_PORTS {
            let mut map = PortMap::default();
            for claim in chain.iter().filter(|claim| claim.takes(protocol)) {
                map.paint(claim.ports, claim.service);
            }
            let protocol = protocol.number().expect("it has one");
            for (prefix, service) in map.prefixes(fallback) {
                self.insert_ports(number, protocol, prefix, service);
            }
        }
        self.insert_others(number, &chain, fallback);
        if chain.iter().any(|claim| claim.of.mode != Mode::Observe) {
            self.insert_ports(number, icmp(network), PortPrefix::ALL, SERVICE_ECHO);
        }
    }

    /// Protocols without ports that are named.
    fn insert_others(&mut self, number: u32, chain: &[&Claim<'_>], fallback: Option<u32>) {
        let mut others: BTreeMap<u8, u32> = BTreeMap::new();
        for claim in chain {
            if let Protocol::Number(protocol) = claim.of.traffic.protocol {
                others.insert(protocol, claim.service);
            } else if claim.takes_every_protocol() {
                // A longer prefix's "any" goes before a shorter one's name.
                others.values_mut().for_each(|service| *service = claim.service);
            }
        }
        for (protocol, service) in others {
            if Some(service) != fallback {
                self.insert_ports(number, protocol, PortPrefix::ALL, service);
            }
        }
    }

    fn insert_ports(&mut self, number: u32, protocol: u8, prefix: PortPrefix, service: u32) {
        let key = PortPrefixKey {
            bits: PortPrefixKey::BITS_BEFORE + prefix.bits,
            address_prefix: number.to_be_bytes(),
            protocol,
            reserved: 0,
            port: prefix.port.to_be_bytes(),
        };
        self.ports.push((key, service));
    }
}

impl Exact {
    fn key(&self) -> ServiceKey {
        let (address, family) = address_bytes(self.address);
        ServiceKey { address, port: self.port.to_be_bytes(), protocol: self.protocol, family }
    }
}

/// One range of ports of a service, or all that it has when it names none.
#[derive(Clone, Copy, Debug)]
struct Claim<'a> {
    /// Its place among the services.
    service: u32,
    of: &'a Service,
    /// `None` = any port.
    ports: Option<PortRange>,
}

impl Claim<'_> {
    fn network(&self) -> IpNet {
        self.of.traffic.network
    }

    /// Whether the hash of exact keys can say it.
    fn is_exact(&self) -> bool {
        let is_one = self.ports.is_some_and(PortRange::is_one);
        self.of.traffic.is_of_one_address() && (is_one || !self.of.traffic.protocol.has_ports())
    }

    fn takes(&self, protocol: Protocol) -> bool {
        self.of.traffic.protocol == protocol || self.of.traffic.protocol == Protocol::Any
    }

    /// Also those without ports.
    fn takes_every_protocol(&self) -> bool {
        self.of.traffic.protocol == Protocol::Any && self.ports.is_none()
    }

    /// What goes before what: a longer prefix, then fewer ports (one, a range, any), then a
    /// protocol's own.
    fn rank(&self) -> (u8, u8, bool) {
        let ports = self.ports.map_or(0, |range| if range.is_one() { 2 } else { 1 });
        (self.network().prefix_len(), ports, self.of.traffic.protocol != Protocol::Any)
    }
}

/// Every claim, the most specific last.
fn ranked(services: &[Service]) -> Vec<Claim<'_>> {
    let mut claims = Vec::with_capacity(services.len());
    for (service, of) in (0..).zip(services) {
        match &of.traffic.ports {
            Ports::Any => claims.push(Claim { service, of, ports: None }),
            Ports::Of(ranges) => {
                claims.extend(ranges.iter().map(|range| Claim {
                    service,
                    of,
                    ports: Some(*range),
                }));
            }
        }
    }
    claims.sort_by_key(Claim::rank);
    claims
}

fn icmp(network: IpNet) -> u8 {
    if network.addr().is_ipv4() { ICMP } else { ICMPV6 }
}

fn address_prefix(network: IpNet) -> AddressPrefixKey {
    let (address, family) = address_bytes(network.addr());
    let bits = AddressPrefixKey::BITS_BEFORE + u32::from(network.prefix_len());
    AddressPrefixKey { bits, family, reserved: [0; 3], address }
}

/// Sixteen bytes and the family, as the maps want them.
#[must_use]
pub fn address_bytes(ip: IpAddr) -> ([u8; 16], u8) {
    match ip {
        IpAddr::V4(ip) => {
            let mut bytes = [0; 16];
            bytes[..4].copy_from_slice(&ip.octets());
            (bytes, 4)
        }
        IpAddr::V6(ip) => (ip.octets(), 6),
    }
}

#[cfg(test)]
mod tests;
