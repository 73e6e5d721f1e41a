//! What happens in the demo, and what was seen of it.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use sickbay_lab::agent::Agent;
use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::{BOUND_MS, Configuration, Program};
use sickbay_lab::load::{Load, Plan};
use sickbay_lab::meter::{self, Percentiles};
use sickbay_lab::network::{Family, Network, PORT};
use sickbay_lab::nginx::{Nginx, Stopped};
use sickbay_lab::record::Record;
use sickbay_lab::watch::Watch;

/// Backends of the demo.
const BACKEND_COUNT: usize = 8;
/// Which of them dies, counted from 0.
const VICTIM: usize = 2;
/// Load before the death, after the verdict, and after the return.
const CALM: Duration = Duration::from_millis(1500);
/// Nothing in the demo takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What was seen. Moments are CLOCK_MONOTONIC in ns.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    /// Backends, the victim included.
    pub(crate) backend_count: usize,
    /// Who died.
    pub(crate) victim: String,
    /// When.
    pub(crate) died: Stopped,
    /// When the register condemned it.
    pub(crate) condemned_ns: u64,
    /// When the kernel was first seen to have skipped it.
    pub(crate) skipped_ns: u64,
    /// New flows that were its own and went elsewhere.
    pub(crate) skipped_count: u64,
    /// When it listened again.
    pub(crate) returned_ns: u64,
    /// When the register acquitted it.
    pub(crate) acquitted_ns: u64,
    /// When the first connection that it answered again began.
    pub(crate) first_answer_ns: u64,
    /// What the configuration promises for the time from death to verdict.
    pub(crate) bound_ms: u64,
    /// From the store of a verdict to a program that sees it on another CPU, in ns.
    pub(crate) verdict_to_kernel_ns: Percentiles,
    /// Everything the client did.
    pub(crate) record: Record,
}

impl Facts {
    /// Connections that failed before the verdict.
    pub(crate) fn failed_before_verdict(&self) -> usize {
        self.record.failed_count(0, self.condemned_ns)
    }

    /// Connections begun after the verdict that failed.
    pub(crate) fn failed_after_verdict(&self) -> usize {
        self.record.failed_count(self.condemned_ns, u64::MAX)
    }

    /// Flows of living backends that changed their backend or broke.
    pub(crate) fn moved_flow_count(&self) -> usize {
        self.record.moved_flows(&self.victim).count()
    }

    /// From the victim's end to its verdict.
    pub(crate) fn detected_ms(&self) -> f64 {
        milliseconds(self.died.gone_ns, self.condemned_ns)
    }

    /// Whether nothing happened that must not.
    pub(crate) fn as_promised(&self) -> bool {
        self.failed_after_verdict() == 0 && self.moved_flow_count() == 0
    }
}

/// From one moment to another, in ms.
pub(crate) fn milliseconds(from_ns: u64, until_ns: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let span = |ns: u64| ns as f64 / 1e6;
    if from_ns <= until_ns { span(until_ns - from_ns) } else { -span(from_ns - until_ns) }
}

/// Builds the network, lets one backend die and return under load, and says what was seen.
pub(crate) fn play(family: Family, program: Program) -> Result<Facts> {
    println!("\nA private network: a client, this host, {BACKEND_COUNT} backends (nginx) ...");
    let network = Network::new(BACKEND_COUNT)?;
    let mut servers = Vec::with_capacity(BACKEND_COUNT);
    for backend in &network.backends {
        servers.push(Nginx::start(&backend.namespace, &backend.name, PORT)?);
    }
    let verdict_to_kernel_ns = meter::measure()?;
    let configuration = Configuration { family, program, ..Configuration::usual() };
    println!("sickbay run: {}", configuration.summary());
    let text = configuration.text(&network);
    let agent = Agent::start(&network.host.namespace, &configuration.instance, &text)?;
    let plan = Plan::usual(Network::vip(family));
    println!("The client opens connections to {} ...", plan.to);
    let load = Load::start(&network.client.namespace, &plan);
    thread::sleep(CALM);

    let victim = network.backends[VICTIM].name.clone();
    let mut watch = Watch::new(&agent, &victim)?;
    println!("{victim} is stopped ...");
    let died = servers.remove(VICTIM).stop()?;
    let seen = watch.until_skipped(PATIENCE)?;
    thread::sleep(CALM);

    println!("{victim} is started again ...");
    servers.push(Nginx::start(&network.backends[VICTIM].namespace, &victim, PORT)?);
    let returned_ns = monotonic_ns();
    let acquitted_ns = watch.until_healthy(PATIENCE)?;
    let first_answer_ns = wait_until("the backend answers a connection again", PATIENCE, || {
        load.look(|record| Some(record.first_answer(&victim, acquitted_ns)?.started_ns))
    })?;
    thread::sleep(CALM);
    let record = load.stop();
    let skipped_count = watch.skipped_count()?;
    agent.stop().context("after the demo")?;
    Ok(Facts {
        backend_count: BACKEND_COUNT,
        victim,
        died,
        condemned_ns: seen.condemned_ns,
        skipped_ns: seen.skipped_ns,
        skipped_count,
        returned_ns,
        acquitted_ns,
        first_answer_ns,
        bound_ms: BOUND_MS,
        verdict_to_kernel_ns,
        record,
    })
}
