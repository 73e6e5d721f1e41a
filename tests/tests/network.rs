//! The lab itself: what the other tests stand on must carry packets before it proves anything.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::net::SocketAddr;
use std::time::Duration;

use sickbay_lab::connection::{Answer, Connection, Failure};
use sickbay_lab::load::{Load, Plan};
use sickbay_lab::network::{Family, INTERFACE, Machine, Network, PORT};
use sickbay_lab::nginx::Nginx;
use sickbay_lab::private;

const TIMEOUT: Duration = Duration::from_secs(2);

fn ask(from: &Machine, to: SocketAddr) -> Result<Answer, Failure> {
    from.namespace.run(|| Connection::open(to, 0, TIMEOUT)?.ask())
}

/// What steering in mode `dsr` does to a packet, done once and for all on the client: the VIP's
/// packets go to this machine's MAC.
fn point_vip_at(network: &Network, backend: &Machine) {
    let mac = backend.mac().unwrap();
    for family in [Family::V4, Family::V6] {
        let vip = Network::vip(family).ip();
        let line = format!("neigh replace {vip} lladdr {mac} dev {INTERFACE}\n");
        network.client.namespace.ip(&line).unwrap();
    }
}

#[test]
fn host_answers_for_the_vip_until_somebody_steers() {
    private::require();
    let network = Network::new(2).unwrap();
    let _servers: Vec<Nginx> = [&network.host, &network.backends[0], &network.backends[1]]
        .map(|machine| Nginx::start(&machine.namespace, &machine.name, PORT).unwrap())
        .into();
    for family in [Family::V4, Family::V6] {
        for _ in 0..5 {
            let answer = ask(&network.client, Network::vip(family)).unwrap();
            assert_eq!(answer, Answer { status: 200, backend: "host".to_owned() });
        }
    }
}

#[test]
fn host_reaches_each_backend_by_its_own_address() {
    private::require();
    let network = Network::new(3).unwrap();
    for backend in &network.backends {
        let server = Nginx::start(&backend.namespace, &backend.name, PORT).unwrap();
        for family in [Family::V4, Family::V6] {
            let to = SocketAddr::new(backend.address(family), PORT);
            assert_eq!(ask(&network.host, to).unwrap().backend, backend.name);
        }
        let stopped = server.stop().unwrap();
        assert!(stopped.asked_ns < stopped.gone_ns);
        let to = SocketAddr::new(backend.address(Family::V4), PORT);
        let failure = ask(&network.host, to).unwrap_err();
        assert_eq!(failure.kind, std::io::ErrorKind::ConnectionRefused);
    }
}

#[test]
fn backend_answers_the_client_for_the_vip_when_packets_come_by_mac() {
    private::require();
    let network = Network::new(2).unwrap();
    let _servers: Vec<Nginx> = network
        .backends
        .iter()
        .map(|backend| Nginx::start(&backend.namespace, &backend.name, PORT).unwrap())
        .collect();
    for backend in &network.backends {
        point_vip_at(&network, backend);
        for family in [Family::V4, Family::V6] {
            let answer = ask(&network.client, Network::vip(family)).unwrap();
            assert_eq!(answer.backend, backend.name);
        }
    }
}

#[test]
fn load_records_a_death_as_failures_and_moved_flows() {
    private::require();
    let network = Network::new(2).unwrap();
    let mut servers: Vec<Nginx> = network
        .backends
        .iter()
        .map(|backend| Nginx::start(&backend.namespace, &backend.name, PORT).unwrap())
        .collect();
    point_vip_at(&network, &network.backends[0]);
    let plan = Plan { kept: 4, fixed: 4, ..Plan::usual(Network::vip(Family::V4)) };
    let load = Load::start(&network.client.namespace, &plan);
    wait_for_answers(&load, "backend-1");
    let stopped = servers.remove(0).stop().unwrap();
    point_vip_at(&network, &network.backends[1]);
    wait_for_answers(&load, "backend-2");
    let record = load.stop();
    assert!(record.short.iter().any(|attempt| attempt.finished_ns < stopped.asked_ns));
    assert!(
        record
            .connections()
            .all(|attempt| { attempt.result.is_ok() || stopped.asked_ns < attempt.finished_ns })
    );
    assert_eq!(record.kept.len(), 4);
    assert_eq!(record.fixed.len(), 4);
    // All flows were backend-1's, and all had to leave it.
    assert_eq!(record.moved_flows("backend-1").count(), 0);
    assert_eq!(record.moved_flows("nobody").count(), 8);
}

fn wait_for_answers(load: &Load, backend: &str) {
    sickbay_lab::clock::wait_until(&format!("{backend} answers"), Duration::from_secs(10), || {
        let short = load.look(|record| record.answered_count(backend, 0, u64::MAX));
        let fixed = load.look(|record| record.fixed.iter().all(|flow| 2 < flow.attempts.len()));
        (20 < short && fixed).then_some(())
    })
    .unwrap();
}
