//! What both sides stand on: the network, its two backends, and what sickbay promises there.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use sickbay_lab::agent::{self, PIN_DIRECTORY, RUN_DIRECTORY};
use sickbay_lab::network::{INTERFACE, Machine, Network, PORT, VIP_V4};
use sickbay_lab::private;

use super::server::Server;

/// From one probe to the next.
pub(super) const INTERVAL_MS: u64 = 100;
/// The deadline of a probe.
pub(super) const TIMEOUT_MS: u64 = 50;
/// Bad results in a row that condemn.
pub(super) const FALL: u64 = 2;
/// Good results in a row that acquit.
pub(super) const RISE: u64 = 2;
/// Who dies, of the network's backends.
pub(super) const VICTIM: usize = 0;
/// sickbay's instance.
pub(super) const INSTANCE: &str = "converge";
/// Where the bare SYNs come from: nobody answers there.
const SOURCE_NETWORK: &str = "198.18.0.0/15";
/// A proxy's connections go to these addresses of the backends (TEST-NET-3, RFC 5737), its probes
/// to the usual ones, so that they can be told apart.
const SERVED_NETWORK: [u8; 3] = [203, 0, 113];

/// The network and its servers.
pub(super) struct Ground {
    pub(super) network: Network,
    servers: Vec<Server>,
}

impl Ground {
    /// A network with two backends that answer probes and take connections.
    ///
    /// # Errors
    /// When the network cannot be made or a port is taken.
    pub(super) fn new() -> Result<Self> {
        let network = Network::new(2)?;
        let host = network.host.namespace.clone();
        let [a, b, c] = SERVED_NETWORK;
        host.ip(&format!("route add {a}.{b}.{c}.0/24 dev {INTERFACE}\n"))?;
        let mut servers = Vec::new();
        for backend in &network.backends {
            let lines = format!(
                "addr add {}/32 dev {INTERFACE}\nroute add blackhole {SOURCE_NETWORK}\n",
                served(backend)
            );
            backend.namespace.ip(&lines)?;
            servers.push(Server::start(backend)?);
        }
        Ok(Self { network, servers })
    }

    /// Who dies.
    pub(super) fn victim(&self) -> (&Machine, &Server) {
        (&self.network.backends[VICTIM], &self.servers[VICTIM])
    }
}

/// The address of a backend to which a proxy's connections go.
pub(super) fn served(backend: &Machine) -> Ipv4Addr {
    let [a, b, c] = SERVED_NETWORK;
    Ipv4Addr::new(a, b, c, backend.ipv4.octets()[3])
}

/// What `sickbay explain` promises for the time from a death to the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Promise {
    /// At worst, for a backend that refuses.
    pub(super) refused_ns: i64,
    /// At worst, whatever it does.
    pub(super) worst_ns: i64,
}

/// Asks `sickbay explain`.
///
/// # Errors
/// When it cannot be run or does not say it.
pub(super) fn promise(configuration: &str) -> Result<Promise> {
    let file = private::scratch().join("converge.toml");
    fs::write(&file, configuration)?;
    let mut command = Command::new(agent::binary()?);
    let output = command.arg("explain").arg("-c").arg(&file).args(["-o", "json"]).output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`sickbay explain`: {}", error.trim());
    of_explanation(&serde_json::from_slice(&output.stdout)?)
}

fn of_explanation(explanation: &Value) -> Result<Promise> {
    let full = &explanation["probes"][0]["time_to_sick_s"]["full"];
    let worst = |how: &str| -> Result<i64> {
        let seconds = full[how]["worst"].as_f64();
        let seconds = seconds.with_context(|| format!("`sickbay explain` has no worst {how}"))?;
        Ok((seconds * 1e9).round() as i64)
    };
    let refused_ns = worst("refused")?;
    Ok(Promise { refused_ns, worst_ns: refused_ns.max(worst("timed_out")?) })
}

/// sickbay's configuration on this ground.
pub(super) fn configuration(backends: &[Machine]) -> String {
    let members: Vec<String> = backends
        .iter()
        .map(|backend| {
            format!("{{ name = \"{}\", address = \"{}:{PORT}\" }}", backend.name, backend.ipv4)
        })
        .collect();
    format!(
        "[agent]
instance = \"{INSTANCE}\"
pin_directory = \"{PIN_DIRECTORY}\"
run_directory = \"{RUN_DIRECTORY}\"
shards = 1

[probe.web]
url = \"/healthz\"
interval = \"{INTERVAL_MS}ms\"
timeout = \"{TIMEOUT_MS}ms\"
fall = {FALL}
rise = {RISE}

[pool.web]
probe = \"web\"
backends = [{members}]

[service.web]
address = \"{VIP_V4}\"
port = {PORT}
pool = \"web\"
mode = \"dsr\"

[[attach]]
interface = \"{INTERFACE}\"
program = \"xdp\"
xdp_mode = \"native\"
",
        members = members.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn promise_is_read_from_the_explanation() {
        let full = json!({ "refused": { "worst": 0.2 }, "timed_out": { "worst": 0.25 } });
        let explanation = json!({ "probes": [{ "time_to_sick_s": { "full": full } }] });
        let promise = of_explanation(&explanation).unwrap();
        assert_eq!(promise, Promise { refused_ns: 200_000_000, worst_ns: 250_000_000 });
    }

    #[test]
    fn explanation_without_a_promise_is_refused() {
        let error = of_explanation(&json!({ "probes": [] })).unwrap_err();
        assert_eq!(error.to_string(), "`sickbay explain` has no worst refused");
    }
}
