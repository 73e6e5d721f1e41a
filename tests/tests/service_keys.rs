//! What the agent resolves beforehand, looked up in the kernel's own hash and tries.

use std::path::Path;

use sickbay::config::{Overrides, parse};
use sickbay::fleet::{Fleet, Protocol};
use sickbay::flow::FlowQuestion;
use sickbay::kernel::{Datapath, Explainer, Sizes, object};
use sickbay_shared::abi::{HEADER_HAS_PREFIXES, Header, Service};
use sickbay_tests::datapath::PrivateHost;

/// Services by name, with what they take.
const SERVICES: [(&str, &str); 10] = [
    ("a-net", "address = \"198.51.0.0/16\"\nport = \"any\"\nprotocol = \"any\""),
    ("b-net-web", "address = \"198.51.100.0/24\"\nport = [80, 443]"),
    ("c-net-range", "address = \"198.51.100.0/24\"\nport = \"8000-8099\"\nprotocol = \"any\""),
    ("d-half", "address = \"198.51.100.128/25\"\nport = \"8050-9000\""),
    ("e-vip", "address = \"198.51.100.1\"\nport = 80"),
    ("f-vip-any", "address = \"198.51.100.1\"\nport = \"any\"\nprotocol = \"udp\""),
    ("g-vip-range", "address = \"198.51.100.1\"\nport = \"53-54\"\nprotocol = \"any\""),
    ("h-v6", "address = \"2001:db8::/48\"\nport = \"1000-1999\""),
    ("i-v6-vip", "address = \"2001:db8::1\"\nport = [1500, 80]\nprotocol = \"any\""),
    ("j-other", "address = \"203.0.113.1\"\nport = \"1-65535\""),
];

/// Whose a packet to this address, protocol and port is, worked out by hand.
const EXPECTED: [(&str, &str, u16, Option<&str>); 32] = [
    // A longer prefix that says nothing of a port leaves it to the shorter one.
    ("198.51.7.7", "tcp", 80, Some("a-net")),
    ("198.51.7.7", "udp", 65_535, Some("a-net")),
    ("198.52.0.0", "tcp", 80, None),
    ("198.51.100.7", "tcp", 80, Some("b-net-web")),
    ("198.51.100.7", "tcp", 443, Some("b-net-web")),
    ("198.51.100.7", "udp", 443, Some("a-net")),
    ("198.51.100.7", "tcp", 81, Some("a-net")),
    ("198.51.100.7", "tcp", 7999, Some("a-net")),
    ("198.51.100.7", "tcp", 8000, Some("c-net-range")),
    ("198.51.100.7", "udp", 8099, Some("c-net-range")),
    ("198.51.100.7", "tcp", 8100, Some("a-net")),
    // The longer prefix goes before whatever the shorter one says of its ports.
    ("198.51.100.200", "tcp", 8049, Some("c-net-range")),
    ("198.51.100.200", "tcp", 8050, Some("d-half")),
    ("198.51.100.200", "udp", 8050, Some("c-net-range")),
    ("198.51.100.200", "tcp", 9000, Some("d-half")),
    ("198.51.100.200", "tcp", 9001, Some("a-net")),
    ("198.51.100.200", "tcp", 80, Some("b-net-web")),
    // A single address: one port in the hash, the rest in the tries.
    ("198.51.100.1", "tcp", 80, Some("e-vip")),
    ("198.51.100.1", "udp", 80, Some("f-vip-any")),
    ("198.51.100.1", "tcp", 443, Some("b-net-web")),
    ("198.51.100.1", "tcp", 53, Some("g-vip-range")),
    ("198.51.100.1", "udp", 54, Some("g-vip-range")),
    ("198.51.100.1", "udp", 8000, Some("f-vip-any")),
    ("198.51.100.1", "tcp", 55, Some("a-net")),
    ("2001:db8::2", "tcp", 1000, Some("h-v6")),
    ("2001:db8::2", "udp", 1000, None),
    ("2001:db8:0:1::", "tcp", 1999, Some("h-v6")),
    ("2001:db8:1::", "tcp", 1999, None),
    ("2001:db8::1", "tcp", 1500, Some("i-v6-vip")),
    ("2001:db8::1", "udp", 80, Some("i-v6-vip")),
    ("2001:db8::1", "tcp", 1501, Some("h-v6")),
    ("203.0.113.1", "tcp", 65_535, Some("j-other")),
];

fn fleet() -> Fleet {
    let mut text = "[probe.p]\nurl = \"/p\"\n[pool.web]\nprobe = \"p\"\n\
                    backends = [\"192.0.2.1:80\"]\n"
        .to_owned();
    for (name, keys) in SERVICES {
        text.push_str(&format!("[service.{name}]\npool = \"web\"\n{keys}\n"));
    }
    parse(&text, Path::new("t.toml"), &Overrides::default()).expect("it is right").fleet
}

#[test]
fn kernel_finds_the_service_that_the_rules_give_a_packet() {
    let host = PrivateHost::new();
    let (fleet, object) = (fleet(), object().unwrap());
    let pins = host.pins("main");
    let mut datapath = Datapath::load(object, &Sizes::of(&fleet, 1), &pins, &[]).unwrap();
    let board = datapath.board().unwrap();
    board.write_header(&Header { flags: HEADER_HAS_PREFIXES, ..Header::default() }).unwrap();
    for index in 0..10 {
        datapath.set_service(&Service { index, slot_count: 1, ..Service::default() }).unwrap();
    }
    let keys = &fleet.service_keys;
    for (key, service) in &keys.ports {
        datapath.insert_port_prefix(key, *service).unwrap();
    }
    for (key, number) in keys.address_prefixes() {
        datapath.insert_address_prefix(&key, number).unwrap();
    }
    for (key, service) in keys.service_keys() {
        datapath.insert_service_key(&key, service).unwrap();
    }

    let mut explainer = Explainer::load(object, &pins).unwrap();
    for (address, protocol, port, expected) in EXPECTED {
        let source = if address.contains(':') { "[2001:db8:9::9]:4711" } else { "192.0.2.9:4711" };
        let brackets = if address.contains(':') { ("[", "]") } else { ("", "") };
        let destination = format!("{}{address}{}:{port}", brackets.0, brackets.1);
        let question = FlowQuestion {
            source: source.parse().unwrap(),
            destination: destination.parse().unwrap(),
            protocol: Protocol::of_name(protocol).and_then(Protocol::number).unwrap(),
            established: false,
        };
        let explanation = explainer.explain(&question.frame().unwrap()).unwrap();
        let found = fleet.services.get(explanation.facts.service as usize);
        let name = found.map(|service| service.name.as_str());
        assert_eq!(name, expected, "{address} {protocol} {port}");
    }
}

#[test]
fn without_pinned_maps_nothing_is_explained_and_nothing_is_made() {
    let host = PrivateHost::new();
    let error = Explainer::load(object().unwrap(), &host.pins("main")).unwrap_err().to_string();
    assert!(error.contains("HEADER: it is not pinned"), "{error}");
    assert_eq!(host.pinned(), [""; 0]);
}
