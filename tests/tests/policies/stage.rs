//! Network, servers, agent; clients that ask once and are gone.

use std::collections::HashMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sickbay_lab::agent::{Agent, PIN_DIRECTORY, RUN_DIRECTORY, STATE_DIRECTORY};
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::Program;
use sickbay_lab::connection::Connection;
use sickbay_lab::datagram::receive;
use sickbay_lab::network::{Family, INTERFACE, Machine, Network, PORT};
use sickbay_lab::nginx::Nginx;
use sickbay_lab::private;
use sickbay_shared::abi::ServiceCounters;

/// What has not come by then does not come, busy as the machine may be.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// The first source port; below the range the system chooses from (32768 and up).
pub(crate) const PORT_FIRST: u16 = 10_000;
/// An answer that takes longer is none.
const ANSWER_LIMIT: Duration = Duration::from_millis(1500);

/// A network whose backends serve, without an agent.
pub(crate) struct Town {
    pub(crate) network: Network,
    /// By backend; `None` where it was stopped.
    pub(crate) servers: Vec<Option<Nginx>>,
    next_port: AtomicU16,
}

/// What clients were answered.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// By backend.
    pub(crate) by: HashMap<String, u32>,
    pub(crate) failed: u32,
}

impl Answers {
    pub(crate) fn of(&self, backend: &str) -> u32 {
        self.by.get(backend).copied().unwrap_or(0)
    }
}

impl Town {
    pub(crate) fn new(backend_count: usize) -> Self {
        private::require();
        let network = Network::new(backend_count).unwrap();
        let servers = network.backends.iter().map(serve).map(Some).collect();
        Self { network, servers, next_port: AtomicU16::new(PORT_FIRST) }
    }

    pub(crate) fn kill(&mut self, backend: usize) {
        self.servers[backend].take().unwrap().stop().unwrap();
    }

    pub(crate) fn revive(&mut self, backend: usize) {
        self.servers[backend] = Some(serve(&self.network.backends[backend]));
    }

    /// An agent over backends in pools, a line of keys for each of its services.
    ///
    /// `pools` are tables as the file has them, without probe and backends, each with the places of
    /// its backends.
    pub(crate) fn agent(
        &self,
        program: Program,
        pools: &[(&str, &str, std::ops::Range<usize>)],
        service: &str,
    ) -> Agent {
        self.try_agent(program, pools, service).unwrap()
    }

    /// The same, when it may refuse.
    pub(crate) fn try_agent(
        &self,
        program: Program,
        pools: &[(&str, &str, std::ops::Range<usize>)],
        service: &str,
    ) -> anyhow::Result<Agent> {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        let instance = format!("policy-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let mut text = format!(
            "[agent]\ninstance = \"{instance}\"\npin_directory = \"{PIN_DIRECTORY}\"\n\
             run_directory = \"{RUN_DIRECTORY}\"\n\
             state_directory = \"{STATE_DIRECTORY}\"\nshards = 1\n\
             [probe.web]\nurl = \"/healthz\"\ninterval = \"200ms\"\ntimeout = \"150ms\"\n\
             window = 4\nthreshold = 3\n\
             [service.web]\npool = \"web\"\nmode = \"dsr\"\n{service}\n\
             [[attach]]\ninterface = \"{INTERFACE}\"\n"
        );
        text.push_str(match program {
            Program::Xdp => "program = \"xdp\"\nxdp_mode = \"native\"\n",
            Program::Tc => "program = \"tc\"\n",
        });
        for (name, keys, members) in pools {
            text.push_str(&format!("[pool.{name}]\nprobe = \"web\"\n{keys}\nbackends = [\n"));
            for machine in &self.network.backends[members.clone()] {
                let address = SocketAddr::new(machine.address(Family::V4), PORT);
                let name = &machine.name;
                text.push_str(&format!("{{ name = \"{name}\", address = \"{address}\" }},\n"));
            }
            text.push_str("]\n");
        }
        std::fs::write(configuration_of(&instance), &text).unwrap();
        Agent::start(&self.network.host.namespace, &instance, &text)
    }

    /// Source ports that were not asked from before: what an entry remembers of another round must
    /// not answer for this one.
    fn source_ports(&self, count: u16) -> std::ops::Range<u16> {
        let first = self.next_port.fetch_add(count, Ordering::Relaxed);
        first..first + count
    }

    /// One connection each from so many source ports.
    pub(crate) fn ask_tcp(&self, count: u16) -> Answers {
        self.network.client.namespace.run(|| {
            let mut answers = Answers::default();
            for source_port in self.source_ports(count) {
                let opened = Connection::open(Network::vip(Family::V4), source_port, ANSWER_LIMIT);
                match opened.and_then(|mut connection| connection.ask()) {
                    Ok(answer) => *answers.by.entry(answer.backend).or_default() += 1,
                    Err(_) => answers.failed += 1,
                }
            }
            answers
        })
    }

    /// Connects from so many source ports; how each attempt failed.
    pub(crate) fn connect(&self, count: u16) -> Vec<std::io::ErrorKind> {
        self.network.client.namespace.run(|| {
            let opened = self.source_ports(count).map(|source_port| {
                Connection::open(Network::vip(Family::V4), source_port, ANSWER_LIMIT)
            });
            opened.filter_map(|opened| Some(opened.err()?.kind)).collect()
        })
    }

    /// One datagram each from so many source ports.
    pub(crate) fn ask_udp(&self, count: u16) -> Answers {
        self.network.client.namespace.run(|| {
            let mut answers = Answers::default();
            for source_port in self.source_ports(count) {
                let socket = UdpSocket::bind(("0.0.0.0", source_port)).unwrap();
                socket.set_read_timeout(Some(ANSWER_LIMIT)).unwrap();
                socket.connect(Network::vip(Family::V4)).unwrap();
                socket.send(b"who?").unwrap();
                let mut name = [0; 64];
                match receive(&socket, &mut name) {
                    Ok(length) => {
                        let name = String::from_utf8_lossy(&name[..length]).into_owned();
                        *answers.by.entry(name).or_default() += 1;
                    }
                    Err(_) => answers.failed += 1,
                }
            }
            answers
        })
    }
}

/// Where the configuration of an instance stands.
pub(crate) fn configuration_of(instance: &str) -> PathBuf {
    private::scratch().join(format!("{instance}.toml"))
}

fn serve(machine: &Machine) -> Nginx {
    Nginx::start(&machine.namespace, &machine.name, PORT).unwrap()
}

/// Waits until that many backends take new flows.
pub(crate) fn wait_for_healthy(agent: &Agent, count: u64) {
    wait_until(&format!("{count} backends are healthy"), PATIENCE, || {
        let status = agent.ask_json(&["status"]).ok()?;
        (status["healthy_count"] == count).then_some(())
    })
    .unwrap();
}

/// The counters of the one service.
pub(crate) fn counters(agent: &Agent) -> ServiceCounters {
    agent.board().unwrap().service_counters(0).unwrap()
}

/// A server on UDP that answers every datagram with its machine's name. Dropping it stops it.
pub(crate) struct UdpServer {
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl UdpServer {
    pub(crate) fn start(machine: &Machine) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let (namespace, name) = (machine.namespace.clone(), machine.name.clone());
        let stop = Arc::clone(&stopping);
        let socket = namespace.run(|| UdpSocket::bind(Network::vip(Family::V4)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let thread = std::thread::spawn(move || {
            let mut question = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut question) {
                    // A client that is gone asks no more.
                    let _gone = socket.send_to(name.as_bytes(), from);
                }
            }
        });
        Self { stopping, thread: Some(thread) }
    }
}

impl Drop for UdpServer {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there; here is no place for another.
            let _printed = thread.join();
        }
    }
}
