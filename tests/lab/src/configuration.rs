//! Configurations of agents in the usual network, as text: the agent reads them from a file.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::agent::{PIN_DIRECTORY, RUN_DIRECTORY, STATE_DIRECTORY};
use crate::network::{Family, INTERFACE, Machine, Network, PORT};

/// Bad results in a row after which [`Configuration::usual`] condemns a healthy backend: with 4 of
/// 4 good, two bad ones leave 2, which is below 3.
pub const FAILURES_NEEDED: u64 = 2;
/// From one probe to the next.
pub const INTERVAL_MS: u64 = 200;
/// The deadline of a probe.
pub const TIMEOUT_MS: u64 = 150;
/// What that promises: a backend that dies just after a good probe is condemned within this.
pub const BOUND_MS: u64 = FAILURES_NEEDED * INTERVAL_MS + TIMEOUT_MS;

/// Which program steers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// XDP, native.
    Xdp,
    /// TC ingress.
    Tc,
}

/// The configuration of one agent on the usual network's host.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// Its instance.
    pub instance: String,
    /// Which VIP, and by which addresses the backends are reached.
    pub family: Family,
    /// Which program steers.
    pub program: Program,
    /// `dsr` or `observe`.
    pub mode: &'static str,
    /// `open` or `drop`.
    pub all_sick: &'static str,
    /// The pool's members as the file has them, a line each; the network's backends when empty.
    pub members: String,
    /// The pool's drain.
    pub drain: &'static str,
    /// The pool's probe: `web` or `none`.
    pub pool_probe: &'static str,
    /// The status that the probe `web` wants.
    pub expected_response: u16,
    /// Further keys of `[agent]`, a line each.
    pub agent: String,
    /// Further tables, as text.
    pub more: String,
}

impl Configuration {
    /// An instance of its own; DSR with XDP over IPv4: probes of `/healthz` every 200 ms, 150 ms each, 3 of the last 4.
    #[must_use]
    pub fn usual() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(1);
        Self {
            instance: format!("lab-{}", COUNT.fetch_add(1, Ordering::Relaxed)),
            family: Family::V4,
            program: Program::Xdp,
            mode: "dsr",
            all_sick: "drop",
            members: String::new(),
            drain: "5m",
            pool_probe: "web",
            expected_response: 200,
            agent: String::new(),
            more: String::new(),
        }
    }

    /// What it says, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        let program = match self.program {
            Program::Xdp => "XDP",
            Program::Tc => "TC",
        };
        format!(
            "{program}, mode {}; a probe of /healthz every {INTERVAL_MS} ms, {TIMEOUT_MS} ms each; \
             healthy = 3 good of the last 4",
            self.mode
        )
    }

    /// The file's text for this network.
    #[must_use]
    pub fn text(&self, network: &Network) -> String {
        let all = || members(&network.backends, self.family);
        let backends = if self.members.is_empty() { all() } else { self.members.clone() };
        let program = match self.program {
            Program::Xdp => "xdp\"\nxdp_mode = \"native",
            Program::Tc => "tc",
        };
        format!(
            "[agent]
instance = \"{instance}\"
pin_directory = \"{PIN_DIRECTORY}\"
run_directory = \"{RUN_DIRECTORY}\"
state_directory = \"{STATE_DIRECTORY}\"
shards = 1
{agent}
[probe.web]
url = \"/healthz\"
interval = \"{INTERVAL_MS}ms\"
timeout = \"{TIMEOUT_MS}ms\"
expected_response = {expected_response}
window = 4
threshold = 3

[pool.web]
probe = \"{pool_probe}\"
drain = \"{drain}\"
backends = [
{backends}]

[service.web]
address = \"{vip}\"
port = {PORT}
pool = \"web\"
mode = \"{mode}\"
all_sick = \"{all_sick}\"

[[attach]]
interface = \"{INTERFACE}\"
program = \"{program}\"
{more}",
            more = self.more,
            agent = self.agent,
            instance = self.instance,
            drain = self.drain,
            pool_probe = self.pool_probe,
            expected_response = self.expected_response,
            vip = Network::vip(self.family).ip(),
            mode = self.mode,
            all_sick = self.all_sick,
        )
    }
}

/// Machines as members of a pool, a line each: [`Configuration::members`].
#[must_use]
pub fn members(machines: &[Machine], family: Family) -> String {
    let mut lines = String::new();
    for machine in machines {
        let address = SocketAddr::new(machine.address(family), PORT);
        let _ = writeln!(lines, "    {{ name = \"{}\", address = \"{address}\" }},", machine.name);
    }
    lines
}
