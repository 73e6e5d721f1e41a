//! A network, its servers and an agent: what an end-to-end test is played on.

use std::time::Duration;

use anyhow::Result;

use crate::agent::Agent;
use crate::clock::{monotonic_ns, wait_until};
use crate::configuration::Configuration;
use crate::load::{Load, Plan};
use crate::network::{Family, Network, PORT};
use crate::nginx::Nginx;
use crate::private;

/// What has not come by then does not come, busy as the machine may be.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server on every backend of a network; `None` where it could not start.
#[must_use]
pub fn serve(network: &Network) -> Vec<Option<Nginx>> {
    let backends = network.backends.iter();
    backends.map(|it| Nginx::start(&it.namespace, &it.name, PORT).ok()).collect()
}

/// A network, its servers, an agent.
pub struct Stage {
    /// The network.
    pub network: Network,
    /// By backend; `None` where it could not start, or was stopped.
    pub servers: Vec<Option<Nginx>>,
    /// The agent, ready.
    pub agent: Agent,
}

impl Stage {
    /// A stage with so many backends, each with a server.
    ///
    /// # Errors
    /// When the network cannot be made or the agent is not ready in time.
    pub fn new(backend_count: usize, configuration: &Configuration) -> Result<Self> {
        Self::prepared(backend_count, |_| Ok(configuration.clone()))
    }

    /// The same, its configuration made when the network is there.
    ///
    /// # Errors
    /// As [`Self::new`], and what `prepare` fails with.
    pub fn prepared(
        backend_count: usize,
        prepare: impl FnOnce(&Network) -> Result<Configuration>,
    ) -> Result<Self> {
        private::require();
        let network = Network::new(backend_count)?;
        let servers = serve(&network);
        let configuration = prepare(&network)?;
        let text = configuration.text(&network);
        let host = &network.host.namespace;
        let agent = Agent::start(host, &configuration.instance, &text)?;
        Ok(Self { network, servers, agent })
    }

    /// Starts a backend's server again; when it listened.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&mut self, backend: usize) -> Result<u64> {
        let machine = &self.network.backends[backend];
        self.servers[backend] = Some(Nginx::start(&machine.namespace, &machine.name, PORT)?);
        Ok(monotonic_ns())
    }

    /// The usual load on the VIP of a family.
    #[must_use]
    pub fn load(&self, family: Family) -> Load {
        Load::start(&self.network.client.namespace, &Plan::usual(Network::vip(family)))
    }

    /// Waits until that many backends take new flows.
    ///
    /// # Errors
    /// When that does not come.
    pub fn wait_for_healthy(&self, count: u64) -> Result<()> {
        wait_until(&format!("{count} backends are healthy"), PATIENCE, || {
            let status = self.agent.ask_json(&["status"]).ok()?;
            (status["healthy_count"] == count).then_some(())
        })
    }
}
