//! The keys as the kernel looks them up, beside the plainest reading of the services.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use sickbay_shared::limits::SERVICES_MAX;

use super::*;
use crate::fleet::{AllSick, HashBy, OnSick, Stale, Traffic};

fn service(network: &str, ports: Ports, protocol: Protocol) -> Service {
    let network = network.parse().expect("a network");
    of_traffic(Traffic { network, ports, protocol }, Mode::Dsr)
}

fn of_traffic(traffic: Traffic, mode: Mode) -> Service {
    Service {
        name: "s".to_owned(),
        traffic,
        pool: 0,
        backup: None,
        mode,
        hash: HashBy::Flow,
        all_sick: AllSick::Open,
        on_sick_tcp: OnSick::Keep,
        on_sick_udp: OnSick::Rehash,
        stale: Stale::Last,
        stale_after_ns: 0,
        udp_idle_ns: 0,
        seed: 0,
        slot_first: 0,
        slot_count: 1021,
        sized: false,
    }
}

fn of(ranges: &[(u16, u16)]) -> Ports {
    Ports::Of(ranges.iter().map(|&(first, last)| PortRange { first, last }).collect())
}

/// What a packet is looked up by.
type Packet = (IpAddr, u8, u16);

/// What the kernel does: the hash, the address trie, the port trie under the protocol, then under
/// any. Written after the ABI's words, over the keys' bytes.
fn looked_up(keys: &ServiceKeys, (address, protocol, port): Packet) -> Option<u32> {
    let (bytes, family) = address_bytes(address);
    let exact = ServiceKey { address: bytes, port: port.to_be_bytes(), protocol, family };
    if let Some((_, service)) = keys.service_keys().find(|(key, _)| *key == exact) {
        return Some(service);
    }
    let matched: Vec<u8> = [&[family, 0, 0, 0][..], &bytes[..]].concat();
    let network = longest(
        keys.address_prefixes().map(|(key, number)| {
            let bytes = [&[key.family][..], &key.reserved[..], &key.address[..]].concat();
            (key.bits, bytes, number)
        }),
        &matched,
    )?;
    let [high, low] = port.to_be_bytes();
    [protocol, 0].into_iter().find_map(|protocol| {
        let matched = [&network.to_be_bytes()[..], &[protocol, 0, high, low][..]].concat();
        longest(
            keys.ports.iter().map(|(key, service)| {
                let rest = [key.protocol, key.reserved, key.port[0], key.port[1]];
                (key.bits, [&key.address_prefix[..], &rest[..]].concat(), *service)
            }),
            &matched,
        )
    })
}

/// The value of the longest prefix of `wanted`.
fn longest(entries: impl Iterator<Item = (u32, Vec<u8>, u32)>, wanted: &[u8]) -> Option<u32> {
    let bit = |bytes: &[u8], at: u32| bytes[at as usize / 8] >> (7 - at % 8) & 1;
    entries
        .filter(|(bits, bytes, _)| (0..*bits).all(|at| bit(bytes, at) == bit(wanted, at)))
        .max_by_key(|(bits, ..)| *bits)
        .map(|(_, _, value)| value)
}

/// The plainest reading: of all services whose terms the packet suits, the best.
fn read_plainly(services: &[Service], (address, protocol, port): Packet) -> Option<u32> {
    let mut best: Option<((u8, u8, u8), u32)> = None;
    for (index, service) in (0_u32..).zip(services) {
        let Traffic { network, ports, protocol: wanted } = &service.traffic;
        let has_ports = protocol == 6 || protocol == 17;
        let ports_rank = match ports {
            Ports::Any => Some(0),
            Ports::Of(ranges) if has_ports => {
                let own = ranges.iter().find(|range| (range.first..=range.last).contains(&port));
                own.map(|range| if range.first == range.last { 2 } else { 1 })
            }
            Ports::Of(_) => None,
        };
        let protocol_rank = match wanted {
            Protocol::Any => Some(0),
            Protocol::Tcp => (protocol == 6).then_some(1),
            Protocol::Udp => (protocol == 17).then_some(1),
            Protocol::Number(number) => (protocol == *number).then_some(1),
        };
        let (Some(ports_rank), Some(protocol_rank), true) =
            (ports_rank, protocol_rank, network.contains(&address))
        else {
            continue;
        };
        let rank = (network.prefix_len(), ports_rank, protocol_rank);
        if best.is_none_or(|(other, _)| other < rank) {
            best = Some((rank, index));
        }
    }
    best.map(|(_, index)| index)
}

#[test]
fn single_ports_of_single_addresses_need_no_prefix() {
    let services = [
        service("198.51.100.1/32", of(&[(80, 80), (443, 443)]), Protocol::Tcp),
        service("198.51.100.1/32", of(&[(53, 53)]), Protocol::Any),
        service("2001:db8::1/128", Ports::Any, Protocol::Number(47)),
    ];
    let keys = ServiceKeys::of(&services);
    assert!(!keys.has_prefixes());
    assert_eq!(keys.ports, []);
    let v4: IpAddr = Ipv4Addr::new(198, 51, 100, 1).into();
    let v6: IpAddr = "2001:db8::1".parse::<Ipv6Addr>().expect("an address").into();
    let exact = |address, protocol, port| Exact { address, protocol, port };
    assert_eq!(
        keys.exact.into_iter().collect::<Vec<_>>(),
        [
            (exact(v4, 1, 0), SERVICE_ECHO),
            (exact(v4, 6, 53), 1),
            (exact(v4, 6, 80), 0),
            (exact(v4, 6, 443), 0),
            (exact(v4, 17, 53), 1),
            (exact(v6, 47, 0), 2),
            (exact(v6, 58, 0), SERVICE_ECHO),
        ]
    );
}

#[test]
fn keys_have_the_bytes_that_the_maps_want() {
    let services = [service("192.0.2.0/24", of(&[(8000, 8063)]), Protocol::Tcp)];
    let keys = ServiceKeys::of(&services);
    let mut address = [0; 16];
    address[..3].copy_from_slice(&[192, 0, 2]);
    let network = AddressPrefixKey { bits: 32 + 24, family: 4, reserved: [0; 3], address };
    assert_eq!(keys.address_prefixes().collect::<Vec<_>>(), [(network, 0)]);
    let ports = |protocol, port: u16, bits: u32| PortPrefixKey {
        bits: 48 + bits,
        address_prefix: [0; 4],
        protocol,
        reserved: 0,
        port: port.to_be_bytes(),
    };
    assert_eq!(keys.ports, [(ports(6, 8000, 10), 0), (ports(1, 0, 0), SERVICE_ECHO)]);
    assert_eq!(address_prefix("2001:db8::/48".parse().expect("a network")).bits, 32 + 48);
}

#[test]
fn longest_prefix_then_fewest_ports_then_the_protocol_of_its_own() {
    let services = [
        service("198.51.100.0/24", of(&[(80, 80)]), Protocol::Tcp),
        service("198.51.100.1/32", Ports::Any, Protocol::Any),
        service("198.51.100.1/32", of(&[(8000, 8999)]), Protocol::Any),
        service("198.51.100.1/32", of(&[(8080, 8080)]), Protocol::Tcp),
        service("198.51.100.0/24", Ports::Any, Protocol::Number(50)),
        service("198.51.100.1/32", Ports::Any, Protocol::Number(47)),
        service("198.51.100.0/24", Ports::Any, Protocol::Udp),
    ];
    let keys = ServiceKeys::of(&services);
    let vip: IpAddr = Ipv4Addr::new(198, 51, 100, 1).into();
    let next: IpAddr = Ipv4Addr::new(198, 51, 100, 2).into();
    for (packet, expected) in [
        ((vip, 6, 80), Some(1)),
        ((next, 6, 80), Some(0)),
        ((next, 6, 81), None),
        ((vip, 6, 8080), Some(3)),
        ((vip, 17, 8080), Some(2)),
        ((vip, 17, 7999), Some(1)),
        ((next, 17, 7999), Some(6)),
        ((next, 50, 0), Some(4)),
        ((vip, 50, 0), Some(1)),
        ((vip, 47, 0), Some(5)),
        ((next, 47, 0), None),
        ((vip, 1, 0), Some(SERVICE_ECHO)),
        ((next, 1, 0), Some(SERVICE_ECHO)),
    ] {
        assert_eq!(looked_up(&keys, packet), expected, "{packet:?}");
    }
}

#[test]
fn echo_is_answered_where_a_service_is_not_only_observed() {
    let traffic = |network: &str, ports| Traffic {
        network: network.parse().expect("a network"),
        ports,
        protocol: Protocol::Tcp,
    };
    let services = [
        of_traffic(traffic("198.51.100.1/32", of(&[(80, 80)])), Mode::Observe),
        of_traffic(traffic("198.51.100.2/32", of(&[(80, 80)])), Mode::Dsr),
        of_traffic(traffic("192.0.2.0/24", Ports::Any), Mode::Observe),
        of_traffic(traffic("192.0.2.0/25", Ports::Any), Mode::Dsr),
        of_traffic(traffic("192.0.2.0/26", Ports::Any), Mode::Observe),
    ];
    let keys = ServiceKeys::of(&services);
    let echo = |address: [u8; 4]| looked_up(&keys, (Ipv4Addr::from(address).into(), 1, 0));
    assert_eq!(echo([198, 51, 100, 1]), None);
    assert_eq!(echo([198, 51, 100, 2]), Some(SERVICE_ECHO));
    assert_eq!(echo([192, 0, 2, 200]), None);
    assert_eq!(echo([192, 0, 2, 100]), Some(SERVICE_ECHO));
    assert_eq!(echo([192, 0, 2, 1]), Some(SERVICE_ECHO), "it lies in the dsr service's prefix too");
}

#[test]
fn service_that_others_leave_nothing_is_not_named() {
    let services = [
        service("198.51.100.1/32", of(&[(80, 81)]), Protocol::Tcp),
        service("198.51.100.1/32", of(&[(80, 80), (81, 81)]), Protocol::Any),
        service("198.51.100.1/32", of(&[(80, 80), (81, 81)]), Protocol::Tcp),
    ];
    assert_eq!(
        ServiceKeys::of(&services).named().into_iter().collect::<Vec<_>>(),
        [1, 2, SERVICE_ECHO]
    );
}

#[test]
fn as_many_services_as_there_can_be_are_resolved() {
    let ports = u16::try_from(SERVICES_MAX).expect("it is 4096") - 100;
    let wide = |networks: u16| {
        let mut services: Vec<Service> = (0..ports)
            .map(|port| service("10.0.0.0/8", of(&[(1000 + port, 1000 + port)]), Protocol::Tcp))
            .collect();
        services.extend((0..networks).map(|network| {
            let network = format!("10.{}.{}.0/24", network >> 8, network & 255);
            service(&network, of(&[(1, 9)]), Protocol::Udp)
        }));
        ServiceKeys::of(&services)
    };
    let keys = wide(100);
    assert_eq!(keys.networks.len(), 101);
    // Each /24 has the /8's ports, and its own 1 to 9 in four pieces; and echo.
    let ports = usize::from(ports);
    assert_eq!(keys.ports.len(), ports + 1 + 100 * (ports + 4 + 1));
    assert!(!keys.are_too_many());
    assert!(wide(300).are_too_many(), "and what is beyond the limit is not worked out");
}

/// Few addresses, prefixes, ports and protocols, so that services meet.
fn any_service() -> impl Strategy<Value = Service> {
    let v4 =
        (0_u8..4, prop::sample::select(vec![22_u8, 24, 30, 31, 32])).prop_map(|(low, bits)| {
            IpNet::new(Ipv4Addr::new(198, 51, 100, low).into(), bits).expect("a prefix").trunc()
        });
    let v6 = (0_u16..4, prop::sample::select(vec![48_u8, 64, 127, 128])).prop_map(|(low, bits)| {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, low);
        IpNet::new(address.into(), bits).expect("a prefix").trunc()
    });
    let edge = prop::sample::select(vec![1_u16, 2, 79, 80, 81, 8000, 8063, 8099, 65_534, 65_535]);
    let range = prop_oneof![
        edge.clone().prop_map(PortRange::one),
        (edge.clone(), edge)
            .prop_map(|(one, other)| PortRange { first: one.min(other), last: one.max(other) }),
    ];
    let ports = prop_oneof![
        1 => Just(Ports::Any),
        3 => prop::collection::vec(range, 1..4).prop_map(apart),
    ];
    let protocol = prop_oneof![
        3 => Just(Protocol::Tcp),
        2 => Just(Protocol::Udp),
        2 => Just(Protocol::Any),
        1 => Just(Protocol::Number(47)),
        1 => Just(Protocol::Number(50)),
    ];
    (prop_oneof![3 => v4, 1 => v6], ports, protocol).prop_map(|(network, ports, protocol)| {
        let ports = if protocol.has_ports() { ports } else { Ports::Any };
        // Observed, so that no echo key stands beside those that are compared.
        of_traffic(Traffic { network, ports, protocol }, Mode::Observe)
    })
}

/// The ranges that overlap none before them.
fn apart(ranges: Vec<PortRange>) -> Ports {
    let mut kept: Vec<PortRange> = Vec::new();
    for range in ranges {
        if kept.iter().all(|other| other.last < range.first || range.last < other.first) {
            kept.push(range);
        }
    }
    kept.sort();
    Ports::Of(kept)
}

/// Whether a configuration would refuse the two beside each other.
fn clash(one: &Service, other: &Service) -> bool {
    let pieces = |service: &Service| match &service.traffic.ports {
        Ports::Any => vec![(0, (0, u16::MAX))],
        Ports::Of(ranges) => ranges
            .iter()
            .map(|range| (if range.first == range.last { 2 } else { 1 }, (range.first, range.last)))
            .collect(),
    };
    let (one_traffic, other_traffic) = (&one.traffic, &other.traffic);
    one_traffic.network == other_traffic.network
        && one_traffic.protocol == other_traffic.protocol
        && pieces(one).iter().any(|(rank, (first, last))| {
            pieces(other).iter().any(|(other_rank, (other_first, other_last))| {
                rank == other_rank && first <= other_last && other_first <= last
            })
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn kernel_finds_what_a_plain_reading_finds(
        drawn in prop::collection::vec(any_service(), 1..12),
        packets in prop::collection::vec(
            (
                prop_oneof![
                    3 => (0_u8..5).prop_map(|low| IpAddr::from([198, 51, 100, low])),
                    1 => (0_u16..5).prop_map(|low| {
                        IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, low])
                    }),
                ],
                prop::sample::select(vec![6_u8, 17, 47, 50, 132]),
                prop::sample::select(vec![
                    1_u16, 2, 3, 79, 80, 81, 82, 7999, 8000, 8001, 8063, 8064, 8099, 8100, 65_533,
                    65_534, 65_535,
                ]),
            ),
            64,
        ),
    ) {
        let mut services: Vec<Service> = Vec::new();
        for service in drawn {
            if !services.iter().any(|other| clash(other, &service)) {
                services.push(service);
            }
        }
        let keys = ServiceKeys::of(&services);
        for (address, protocol, port) in packets {
            // Ports are read of TCP and UDP alone.
            let port = if protocol == 6 || protocol == 17 { port } else { 0 };
            let packet = (address, protocol, port);
            prop_assert_eq!(looked_up(&keys, packet), read_plainly(&services, packet), "{:?}", packet);
        }
    }
}
