//! Answers and rare packets, end to end: what real clients and backends make of what the programs
//! send back, and of fragments, echo requests and ICMP errors, over IPv4 and IPv6.
//!
//! Without an agent: the tables are the test's, so that what is seen is the programs' doing.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// Clients that speak ICMP.
mod icmp;
/// The network, its tables, and a program on its host.
mod stage;

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use sickbay_lab::clock::wait_until;
use sickbay_lab::connection::{Connection, Failure, Stage as Progress};
use sickbay_lab::network::{Family, INTERFACE, Network, PORT};
use sickbay_lab::nginx::Nginx;
use sickbay_shared::abi::{ALL_SICK_RESET, MODE_OBSERVE, ON_SICK_RESET};
use sickbay_tests::figures;
use sickbay_tests::steering::Entrance;
use stage::{BACKENDS, DNS, Stage};

const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const PATIENCE: Duration = Duration::from_secs(10);
/// What comes at once is here before that; a timeout is not.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A test for each program.
macro_rules! with_each_program {
    ($($name:ident: $xdp:ident, $tc:ident;)*) => {
        $(
            #[test]
            fn $xdp() {
                $name(&mut Stage::new(Entrance::Xdp));
            }

            #[test]
            fn $tc() {
                $name(&mut Stage::new(Entrance::Tc));
            }
        )*
    };
}

with_each_program! {
    refuses_connections: connection_is_refused_at_once_with_xdp, connection_is_refused_at_once_with_tc;
    ends_connections: connection_of_a_sick_backend_ends_with_xdp, connection_of_a_sick_backend_ends_with_tc;
    refuses_datagrams: datagram_is_refused_at_once_with_xdp, datagram_is_refused_at_once_with_tc;
    keeps_fragments_together: fragments_reach_one_backend_with_xdp, fragments_reach_one_backend_with_tc;
    answers_echo: ping_is_answered_with_xdp, ping_is_answered_with_tc;
    leads_errors_home: path_mtu_reaches_the_flows_backend_with_xdp, path_mtu_reaches_the_flows_backend_with_tc;
}

fn refuses_connections(stage: &mut Stage) {
    stage.change(|tables| {
        tables.services.iter_mut().for_each(|service| service.all_sick = ALL_SICK_RESET);
        (0..BACKENDS).for_each(|index| tables.put_health(index, false));
    });
    for family in FAMILIES {
        let vip = Network::vip(family);
        let began = Instant::now();
        let curl = curl(stage, vip);
        let took = began.elapsed();
        // "Failed to connect": with a timeout it would be 28.
        assert_eq!(curl.status.code(), Some(7), "{curl:?}");
        assert!(took < AT_ONCE, "{took:?}");
        figures::show(&format!("{family:?}: curl is refused within {} ms", took.as_millis()));
        let connection = stage.network.client.namespace.run(|| Connection::open(vip, 0, PATIENCE));
        let refused = Failure { stage: Progress::Connect, kind: ErrorKind::ConnectionRefused };
        assert_eq!(connection.unwrap_err(), refused);
        assert_eq!(stage.service_counters(family, PORT).reset, 2);
    }
    // What only observes answers nobody: the host's own stack does, which has no server.
    stage.change(|tables| {
        tables.services.iter_mut().for_each(|service| service.mode = MODE_OBSERVE);
    });
    let host = &stage.network.host;
    let _server = Nginx::start(&host.namespace, &host.name, PORT).unwrap();
    for family in FAMILIES {
        assert_eq!(curl(stage, Network::vip(family)).status.code(), Some(0));
    }
}

fn curl(stage: &Stage, vip: SocketAddr) -> std::process::Output {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "10", &format!("http://{vip}/")]);
    stage.network.client.namespace.run(|| command.output()).unwrap()
}

fn ends_connections(stage: &mut Stage) {
    stage.change(|tables| {
        tables.services.iter_mut().for_each(|service| service.on_sick_tcp = ON_SICK_RESET);
    });
    let servers = stage.network.backends.iter();
    let _servers: Vec<Nginx> = servers
        .map(|machine| Nginx::start(&machine.namespace, &machine.name, PORT).unwrap())
        .collect();
    for family in FAMILIES {
        let vip = Network::vip(family);
        let open = || Connection::open(vip, 0, PATIENCE);
        let mut connection = stage.network.client.namespace.run(open).unwrap();
        let backend = connection.ask().unwrap().backend;
        assert_eq!(connection.ask().unwrap().backend, backend);
        let index = stage.network.backends.iter().position(|machine| machine.name == backend);
        let index = u32::try_from(index.unwrap()).unwrap();
        stage.change(|tables| tables.put_health(index, false));
        let began = Instant::now();
        let ended = Failure { stage: Progress::Answer, kind: ErrorKind::ConnectionReset };
        assert_eq!(connection.ask().unwrap_err(), ended);
        assert!(began.elapsed() < AT_ONCE);
        assert_eq!(stage.service_counters(family, PORT).reset, 1);
        stage.change(|tables| tables.put_health(index, true));
    }
}

fn refuses_datagrams(stage: &mut Stage) {
    stage.change(|tables| {
        tables.services.iter_mut().for_each(|service| service.all_sick = ALL_SICK_RESET);
        (0..BACKENDS).for_each(|index| tables.put_health(index, false));
    });
    for family in FAMILIES {
        // One that is quoted whole, and one that is not and comes in fragments.
        for payload_bytes in [1, 1_000, 4_000] {
            let socket = stage.client_socket(family, DNS);
            socket.send(&vec![0x5a; payload_bytes]).unwrap();
            let began = Instant::now();
            let error = socket.recv(&mut [0; 16]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{payload_bytes} bytes");
            assert!(began.elapsed() < AT_ONCE);
        }
    }
}

fn keeps_fragments_together(stage: &mut Stage) {
    const DATAGRAMS: usize = 40;
    const PAYLOAD_BYTES: usize = 8_000;
    for family in FAMILIES {
        stage.change(|_| {});
        let servers = stage.datagram_servers(family);
        let payload: Vec<u8> = (0..PAYLOAD_BYTES).map(|at| (at % 251) as u8).collect();
        let mut arrived = [0; BACKENDS as usize];
        for sent in 1..=DATAGRAMS {
            stage.client_socket(family, DNS).send(&payload).unwrap();
            arrived = wait_until("the datagram has arrived whole", PATIENCE, || {
                let arrived = servers.each_ref().map(|server| server.received(&payload));
                (sent <= arrived.iter().sum()).then_some(arrived)
            })
            .unwrap();
            assert_eq!(arrived.iter().sum::<usize>(), sent);
        }
        assert!(arrived.iter().all(|count| 0 < *count), "{arrived:?}");
        let counters = stage.service_counters(family, DNS);
        // 8,008 bytes are six fragments over Ethernet, the first of them not counted here.
        assert_eq!(counters.fragments, 5 * DATAGRAMS as u64);
        assert_eq!(stage.global_counters().fragment_unknown, 0);
    }
}

fn answers_echo(stage: &mut Stage) {
    // So that the host's own stack does not.
    stage.network.host.namespace.sysctl("ipv4/icmp_echo_ignore_all", "1").unwrap();
    stage.network.host.namespace.sysctl("ipv6/icmp/echo_ignore_all", "1").unwrap();
    for family in FAMILIES {
        for payload_bytes in [0, 1, 56, 1_400] {
            icmp::ping(stage, family, payload_bytes).unwrap();
        }
    }
    assert_eq!(stage.global_counters().echo_answered, 8);
    // Without the key that says so, nobody answers.
    stage.change(|tables| tables.service_keys.retain(|key, _| key.port != [0, 0]));
    for family in FAMILIES {
        let error = icmp::ping(stage, family, 56).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

fn leads_errors_home(stage: &mut Stage) {
    for family in FAMILIES {
        let servers = stage.datagram_servers(family);
        let socket = stage.client_socket(family, DNS);
        socket.send(b"which").unwrap();
        let owner = wait_until("the datagram has arrived", PATIENCE, || {
            servers.iter().position(|server| server.received(b"which") == 1)
        });
        let owner = owner.unwrap();
        icmp::too_big(stage, family, socket.local_addr().unwrap(), 1_400);
        let route = |index: usize| {
            let client = stage.network.client.address(family).to_string();
            let vip = Network::vip(family).ip().to_string();
            let machine = &stage.network.backends[index].namespace;
            machine.tool(&["ip", "route", "get", &client, "from", &vip]).unwrap()
        };
        wait_until("the flow's backend knows of the narrow path", PATIENCE, || {
            route(owner).contains("mtu 1400").then_some(())
        })
        .unwrap();
        assert!(!route(1 - owner).contains("mtu 1400"), "{INTERFACE} of the other backend");
        let counters = stage.service_counters(family, DNS);
        assert_eq!(counters.icmp_errors, 1);
    }
}
