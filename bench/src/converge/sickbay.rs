//! sickbay on the ground: its own agent, XDP, bare SYNs.

use std::net::SocketAddrV4;

use anyhow::{Context as _, Result, ensure};
use sickbay_lab::agent::Agent;
use sickbay_lab::board::Board;
use sickbay_lab::network::{PORT, VIP_V4};
use sickbay_shared::abi::STATE_HEALTHY;

use super::clients::Clients;
use super::deaths::deaths;
use super::ground::{Ground, INSTANCE, VICTIM, configuration};
use super::samples;
use super::tap::Tap;
use super::{Found, Lateness};

/// Measures so many deaths; also how late the agent's latest probe was.
///
/// # Errors
/// When the agent does not run, judge or steer.
pub(super) fn measure(ground: &Ground, count: usize) -> Result<(Found, Lateness)> {
    let network = &ground.network;
    let text = configuration(&network.backends);
    let agent = Agent::start(&network.host.namespace, INSTANCE, &text)?;
    let board = agent.board()?;
    let (victim, server) = ground.victim();
    let target = target(&agent, &victim.name)?;
    let tap = Tap::start(&victim.namespace, VIP_V4)?;
    let clients = Clients::bare(&network.client.namespace, SocketAddrV4::new(VIP_V4, PORT))?;
    let deaths = deaths(count, server, &tap, || verdict(&board, target))
        .with_context(|| format!("the agent said:\n{}", agent.said()))?;
    drop(clients);
    let status = agent.ask_json(&["status"])?;
    let late = &status["lateness_us"];
    let lateness = Lateness {
        p99_us: late["p99"].as_u64().context("no lateness in the status")?,
        max_us: late["max"].as_u64().context("no lateness in the status")?,
    };
    agent.stop()?;
    let syns = tap.stop()?;
    let found = Found {
        name: "sickbay",
        samples: samples::samples(&deaths, &syns)?,
        gap_ns: samples::gap_ns(&deaths, &syns),
        sent_after_verdict: Some(samples::sent_after(&deaths, &syns)),
    };
    Ok((found, lateness))
}

fn verdict(board: &Board, target: u32) -> Option<(bool, u64)> {
    let record = board.target(target).ok()?;
    Some((record.state == STATE_HEALTHY, record.changed_ns))
}

/// The victim's place among the targets, which is its place in the configuration.
fn target(agent: &Agent, victim: &str) -> Result<u32> {
    let list = agent.ask_json(&["backend", "list"])?;
    let all = list.as_array().or_else(|| list["backends"].as_array());
    let name = all.and_then(|all| all.get(VICTIM)?["name"].as_str()).unwrap_or_default();
    ensure!(name.ends_with(victim), "backend {VICTIM} of the list is {name:?}, not {victim}");
    Ok(u32::try_from(VICTIM)?)
}
