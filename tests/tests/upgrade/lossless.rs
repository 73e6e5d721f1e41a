//! Versions change under iperf3: every datagram arrives, the links stay, their programs change.

use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::{Configuration, Program};
use sickbay_lab::network::{Family, Network};
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures;

use super::{earlier_object, keeping, links};

/// Of the datagrams' server, and of the stream's.
const PORTS: [u16; 2] = [5201, 5202];
/// How long iperf3 sends, in seconds; as many changes as fit are made meanwhile.
const SECONDS: &str = "15";
/// There and back: fewer would be no test, however slow the machine is.
const CHANGES_MIN: usize = 2;
/// Small datagrams, slowly: half a second of them fits into a receiver's buffer, so that a receiver
/// that is held up on a busy machine loses none by itself.
const DATAGRAMS: [&str; 5] = ["--udp", "--length", "200", "--bitrate", "800K"];
const STREAM: [&str; 2] = ["--bitrate", "20M"];

/// Every protocol and port of the virtual address to one backend for each client; web is apart.
fn configuration(family: Family, program: Program) -> Configuration {
    let vip = Network::vip(family).ip();
    let more = format!(
        "\n[service.iperf]\naddress = \"{vip}\"\nprotocol = \"any\"\nport = \"any\"\npool = \"web\"\nmode = \"dsr\"\n\
         hash = \"source\"\n"
    );
    Configuration { family, program, more, ..Configuration::usual() }
}

/// iperf3's servers, two a backend. Dropping them ends them.
struct Servers(Vec<Child>);

impl Drop for Servers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            let _ended_by_itself = server.kill();
            let _waited = server.wait();
        }
    }
}

fn serve(stage: &Stage, vip: IpAddr) -> Servers {
    let mut servers = Servers(Vec::new());
    for backend in &stage.network.backends {
        for port in PORTS {
            let mut command = Command::new("iperf3");
            // Bound, so that it answers datagrams as whom they were sent to.
            command.args(["--server", "--bind", &vip.to_string(), "--port", &port.to_string()]);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            servers.0.push(backend.namespace.spawn(&mut command).unwrap());
            wait_until("iperf3 listens", PATIENCE, || {
                let listening = backend.namespace.tool(&["ss", "-lnt"]).ok()?;
                listening.contains(&format!(":{port} ")).then_some(())
            })
            .unwrap();
        }
    }
    servers
}

/// Sends to the virtual address; what iperf3 said at its end.
fn send(stage: &Stage, vip: IpAddr, port: u16, how: &'static [&str]) -> JoinHandle<Value> {
    let client = stage.network.client.namespace.clone();
    thread::spawn(move || {
        let mut command = Command::new("iperf3");
        command.args(["--json", "--time", SECONDS, "--port", &port.to_string()]);
        command.args(how).args(["--client", &vip.to_string()]);
        let output = client.run(|| command.output()).unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success() && said["error"].is_null(), "{port}: {}", said["error"]);
        said["end"].clone()
    })
}

/// A number of what iperf3 said at its end.
#[track_caller]
fn number(end: &Value, sum: &str, key: &str) -> u64 {
    end[sum][key].as_u64().unwrap_or_else(|| panic!("no {sum}.{key}: {end}"))
}

/// What the receiver of the datagrams lost itself, for want of room.
fn receive_errors(stage: &Stage) -> u64 {
    let of = |backend: &sickbay_lab::network::Machine| {
        let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
        let text = backend.namespace.run(read);
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp: "));
        let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
        let mut columns = names.split(' ').zip(values.split(' '));
        let (_, value) = columns.find(|(name, _)| *name == "RcvbufErrors").unwrap();
        value.parse::<u64>().unwrap()
    };
    stage.network.backends.iter().map(of).sum()
}

fn versions_change_and_nothing_is_lost(family: Family, program: Program) {
    let mut stage = Stage::new(2, &configuration(family, program)).unwrap();
    stage.agent.set_launch(keeping(None));
    stage.agent.crash().unwrap();
    stage.agent.start_again().unwrap();
    let vip = Network::vip(family).ip();
    let _servers = serve(&stage, vip);
    let datagrams = send(&stage, vip, PORTS[0], &DATAGRAMS);
    let stream = send(&stage, vip, PORTS[1], &STREAM);
    wait_until("both send", PATIENCE, || {
        let board = stage.agent.board().ok()?;
        let steered = |service| board.service_counters(service).unwrap().steered_packets;
        (2000 < steered(0) + steered(1)).then_some(())
    })
    .unwrap();

    let mut changes = 0;
    loop {
        let before = links(&stage);
        // Today's, the earlier one, and again; by a package's upgrade, and by a crash.
        let object = changes % 2 == 0;
        stage.agent.set_launch(keeping(object.then(earlier_object)));
        if changes % 4 < 2 {
            assert!(stage.agent.end().unwrap().success(), "{}", stage.agent.said());
        } else {
            stage.agent.crash().unwrap();
        }
        stage.agent.start_again().unwrap();
        let after = links(&stage);
        if datagrams.is_finished() || stream.is_finished() {
            break;
        }
        changes += 1;
        assert_eq!(before.len(), 1);
        for (name, (link, program)) in &before {
            let (link_after, program_after) = after[name];
            assert_eq!(link_after, *link, "the link stays");
            assert_ne!(program_after, *program, "another program");
        }
    }
    assert!(CHANGES_MIN <= changes, "{changes} changes while iperf3 sent");

    let (datagrams, stream) = (datagrams.join().unwrap(), stream.join().unwrap());
    let (sent, lost) =
        (number(&datagrams, "sum", "packets"), number(&datagrams, "sum", "lost_packets"));
    let retransmits = number(&stream, "sum_sent", "retransmits");
    let bytes = ["sum_sent", "sum_received"].map(|sum| number(&stream, sum, "bytes"));
    figures::show(&format!(
        "{changes} changes of version over {family:?} with {program:?}: {lost} of {sent} datagrams \
         lost, {retransmits} retransmits in {} MB of TCP",
        bytes[1] / 1_000_000
    ));
    assert_eq!((lost, receive_errors(&stage)), (0, 0), "lost, and lost by the receiver itself");
    assert!(5_000 < sent, "{datagrams}");
    assert!(0 < bytes[1] && bytes[1] <= bytes[0], "the stream was never broken: {stream}");
    let said = stage.agent.said();
    assert_eq!(said.matches("went sick").count(), 0, "{said}");
}

#[test]
fn upgrade_loses_no_packet_over_ipv4_with_xdp() {
    versions_change_and_nothing_is_lost(Family::V4, Program::Xdp);
}

#[test]
fn upgrade_loses_no_packet_over_ipv6_with_xdp() {
    versions_change_and_nothing_is_lost(Family::V6, Program::Xdp);
}

#[test]
fn upgrade_loses_no_packet_over_ipv4_with_tc() {
    versions_change_and_nothing_is_lost(Family::V4, Program::Tc);
}
