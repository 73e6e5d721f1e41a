//! `flow_entries` changes: the entries go along to the new map, and no flow moves.

use std::net::{SocketAddr, UdpSocket};

use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::{Configuration, Program};
use sickbay_lab::datagram::{answer_with_names, receive};
use sickbay_lab::network::{Family, Network};
use sickbay_lab::stage::{PATIENCE, Stage};

use super::keeping;

const ECHO_PORT: u16 = 7;
const FLOWS: usize = 200;

/// Every UDP flow of `keep` is entered, and stays with its entry alone once its slot is back.
fn configuration(family: Family, program: Program, entries: u32) -> Configuration {
    let vip = Network::vip(family).ip();
    let more = format!(
        "\n[steering]\nflow_entries = {entries}\n\n[service.echo]\naddress = \"{vip}\"\n\
         port = {ECHO_PORT}\nprotocol = \"udp\"\npool = \"web\"\nmode = \"dsr\"\n\
         on_sick_udp = \"keep\"\n"
    );
    Configuration { family, program, more, ..Configuration::usual() }
}

fn ask(flow: &UdpSocket) -> String {
    flow.send(b"who?").unwrap();
    let mut name = [0; 32];
    let length = receive(flow, &mut name).unwrap();
    String::from_utf8_lossy(&name[..length]).into_owned()
}

fn room(stage: &Stage, family: Family) -> u64 {
    let status = stage.agent.ask_json(&["status"]).unwrap();
    status["flow_entries"][usize::from(family == Family::V6)]["room"].as_u64().unwrap()
}

fn flows_stay_when_their_map_changes_its_size(family: Family, program: Program) {
    let mut stage = Stage::new(3, &configuration(family, program, 4096)).unwrap();
    let echo = SocketAddr::new(Network::vip(family).ip(), ECHO_PORT);
    answer_with_names(&stage.network, echo).unwrap();
    stage.agent.set_launch(keeping(None));
    let said = stage.agent.ask(&["backend", "set-health", "backend-1", "sick"]).unwrap();
    assert!(said.status.success());
    stage.wait_for_healthy(2).unwrap();
    let client = &stage.network.client;
    let to = SocketAddr::new(Network::vip(family).ip(), ECHO_PORT);
    let flow = || {
        let socket = UdpSocket::bind((client.address(family), 0)).unwrap();
        socket.connect(to).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let flows: Vec<UdpSocket> = client.namespace.run(|| (0..FLOWS).map(|_| flow()).collect());
    let owners: Vec<String> = flows.iter().map(ask).collect();
    assert!(owners.iter().all(|owner| owner != "backend-1"), "it is sick");
    let said = stage.agent.ask(&["backend", "set-health", "backend-1", "auto"]).unwrap();
    assert!(said.status.success());
    stage.wait_for_healthy(3).unwrap();
    assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners, "with their entries they stay");

    for entries in [65_536_u32, 2048] {
        let text = stage.agent.configuration().unwrap();
        let line = text.lines().find(|line| line.starts_with("flow_entries = ")).unwrap();
        let text = text.replace(line, &format!("flow_entries = {entries}"));
        stage.agent.rewrite(&text).unwrap();
        stage.agent.crash().unwrap();
        stage.agent.start_again().unwrap();
        assert_eq!(room(&stage, family), u64::from(entries));
        let moved = format!("entries moved to a map with room for {entries}");
        wait_until("it is told", PATIENCE, || stage.agent.said().contains(&moved).then_some(()))
            .unwrap();
        assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners, "{entries} entries");
    }
    // The same by a reload, which puts a new configuration in the place of the old one.
    let text = stage.agent.configuration().unwrap();
    stage.agent.rewrite(&text.replace("flow_entries = 2048", "flow_entries = 8192")).unwrap();
    let said = stage.agent.ask(&["reload"]).unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    assert_eq!(room(&stage, family), 8192);
    assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners);
}

#[test]
fn flows_stay_when_their_map_changes_its_size_over_ipv4_with_xdp() {
    flows_stay_when_their_map_changes_its_size(Family::V4, Program::Xdp);
}

#[test]
fn flows_stay_when_their_map_changes_its_size_over_ipv6_with_tc() {
    flows_stay_when_their_map_changes_its_size(Family::V6, Program::Tc);
}
