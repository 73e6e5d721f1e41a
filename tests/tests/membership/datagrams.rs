//! Datagrams of a drained backend: flows that are under way stay, new ones go elsewhere.

use std::net::UdpSocket;
use std::thread;
use std::time::Duration;

use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::Configuration;
use sickbay_lab::datagram::{answer_with_names, receive};
use sickbay_lab::network::VIP_V4;
use sickbay_lab::stage::{PATIENCE, Stage};

use crate::say;

const UDP_PORT: u16 = 5300;
const UDP_IDLE_NS: u64 = 2_000_000_000;

/// A client's flow: a port of its own.
fn flow(stage: &Stage) -> UdpSocket {
    let client = &stage.network.client;
    let socket = client.namespace.run(|| UdpSocket::bind((client.ipv4, 0))).unwrap();
    socket.connect((VIP_V4, UDP_PORT)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Who answers the next datagram of a flow.
fn ask(flow: &UdpSocket) -> String {
    flow.send(b"who?").unwrap();
    let mut name = [0; 32];
    let length = receive(flow, &mut name).unwrap();
    String::from_utf8_lossy(&name[..length]).into_owned()
}

#[test]
fn datagrams_of_a_drained_backend_stay_and_new_ones_go_elsewhere_after_udp_idle() {
    let more = format!(
        "\n[service.datagrams]\naddress = \"{VIP_V4}\"\nport = {UDP_PORT}\nprotocol = \"udp\"\n\
         pool = \"web\"\nmode = \"dsr\"\nudp_idle = \"2s\"\n"
    );
    let stage = Stage::new(4, &Configuration { more, ..Configuration::usual() }).unwrap();
    answer_with_names(&stage.network, (VIP_V4, UDP_PORT).into()).unwrap();
    let flows: Vec<UdpSocket> = (0..60).map(|_| flow(&stage)).collect();
    let owners: Vec<String> = flows.iter().map(ask).collect();
    let own = owners.iter().filter(|owner| *owner == "backend-2").count();
    assert!(3 < own, "backend-2 has {own} flows: nothing is shown");
    say(&stage, &["backend", "drain", "backend-2"]);
    let drained_ns = monotonic_ns();
    // The flows go on, each never idle for so long; then those that begin are told apart.
    while monotonic_ns() < drained_ns + UDP_IDLE_NS + 500_000_000 {
        assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners);
        thread::sleep(Duration::from_millis(50));
    }
    let new: Vec<UdpSocket> = (0..60).map(|_| flow(&stage)).collect();
    assert!(new.iter().map(ask).all(|owner| owner != "backend-2"));
    assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners);
    say(&stage, &["backend", "undrain", "backend-2"]);
    // Its slots drain back: what begins now may be of those before, for udp_idle.
    wait_until("it gets new flows again", PATIENCE, || {
        (0..10).map(|_| ask(&flow(&stage))).any(|owner| owner == "backend-2").then_some(())
    })
    .unwrap();
    assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners);
}
