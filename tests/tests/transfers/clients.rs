//! Real clients in the client's network, and the servers that only they need.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use serde_json::Value;
use sickbay_lab::clock::wait_until;
use sickbay_lab::datagram::receive;
use sickbay_lab::network::{Family, Network};
use sickbay_lab::nginx::DOWNLOAD;
use sickbay_lab::stage::{PATIENCE, Stage};

use crate::{ECHO_PORT, IPERF_PORT};

/// Downloads from the VIP with curl; the bytes of its body, and who sent them.
pub(crate) fn download(stage: &Stage, family: Family) -> JoinHandle<(u64, String)> {
    let client = stage.network.client.namespace.clone();
    let url = format!("http://{}{DOWNLOAD}", Network::vip(family));
    thread::spawn(move || {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--globoff", "--max-time", "120"]);
        command.args(["--output", "/dev/null", "--write-out"]);
        command.arg("%{size_download} %header{x-backend}").arg(&url);
        let output = client.run(|| command.output()).unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        let said = String::from_utf8(output.stdout).unwrap();
        let (bytes, backend) = said.split_once(' ').unwrap();
        (bytes.parse().unwrap(), backend.to_owned())
    })
}

/// iperf3's servers, one a backend. Dropping them ends them.
pub(crate) struct IperfServers(Vec<Child>);

impl Drop for IperfServers {
    fn drop(&mut self) {
        for server in &mut self.0 {
            let _ended_by_itself = server.kill();
            let _waited = server.wait();
        }
    }
}

pub(crate) fn serve_iperf(stage: &Stage) -> IperfServers {
    let servers = IperfServers(
        stage
            .network
            .backends
            .iter()
            .map(|backend| {
                let mut command = Command::new("iperf3");
                command.args(["--server", "--port", &IPERF_PORT.to_string()]);
                command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
                backend.namespace.spawn(&mut command).unwrap()
            })
            .collect(),
    );
    for backend in &stage.network.backends {
        wait_until("iperf3 listens", PATIENCE, || {
            let listening = backend.namespace.tool(&["ss", "--listening", "--numeric", "--tcp"]);
            listening.ok()?.contains(&format!(":{IPERF_PORT}")).then_some(())
        })
        .unwrap();
    }
    servers
}

/// What iperf3 said at its end.
pub(crate) struct Measured {
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
}

/// Sends to the VIP with iperf3, slowly, for as long as a test's changes take.
pub(crate) fn measure(stage: &Stage, family: Family) -> JoinHandle<Measured> {
    let client = stage.network.client.namespace.clone();
    thread::spawn(move || {
        let mut command = Command::new("iperf3");
        command.args(["--json", "--bitrate", "20M", "--time", "15"]);
        command.args(["--port", &IPERF_PORT.to_string()]);
        command.args(["--client", &Network::vip(family).ip().to_string()]);
        let output = client.run(|| command.output()).unwrap();
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(output.status.success(), "{}", said["error"]);
        let sum = |which: &str| said["end"][which]["bytes"].as_u64().unwrap();
        Measured { sent_bytes: sum("sum_sent"), received_bytes: sum("sum_received") }
    })
}

/// Flows of datagrams, each from a port of its own, and who answered them.
pub(crate) struct Echoes {
    flows: Vec<UdpSocket>,
    answered: Vec<Vec<String>>,
}

impl Echoes {
    /// So many flows, each asked once.
    pub(crate) fn start(stage: &Stage, family: Family, count: usize) -> Self {
        let client = &stage.network.client;
        let to = SocketAddr::new(Network::vip(family).ip(), ECHO_PORT);
        let flow = || {
            let socket = UdpSocket::bind((client.address(family), 0)).unwrap();
            socket.connect(to).unwrap();
            socket.set_read_timeout(Some(PATIENCE)).unwrap();
            socket
        };
        let flows = client.namespace.run(|| (0..count).map(|_| flow()).collect());
        let mut echoes = Self { flows, answered: vec![Vec::new(); count] };
        echoes.ask_all();
        echoes
    }

    /// Asks each once more.
    pub(crate) fn ask_all(&mut self) {
        for (flow, answered) in self.flows.iter().zip(&mut self.answered) {
            flow.send(b"who?").unwrap();
            let mut name = [0; 32];
            let length = receive(flow, &mut name).unwrap();
            answered.push(String::from_utf8_lossy(&name[..length]).into_owned());
        }
    }

    /// Who answered each flow first.
    pub(crate) fn owners(&self) -> Vec<&str> {
        self.answered.iter().map(|answered| answered[0].as_str()).collect()
    }

    /// How many datagrams were answered.
    pub(crate) fn asked(&self) -> usize {
        self.answered.iter().map(Vec::len).sum()
    }

    #[track_caller]
    pub(crate) fn assert_stayed(&self) {
        for answered in &self.answered {
            assert!(answered.iter().all(|by| *by == answered[0]), "moved: {answered:?}");
        }
    }
}
