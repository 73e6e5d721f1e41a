//! HAProxy on the ground: a TCP proxy in the host's place, whole connections.

use std::fmt::Write as _;
use std::net::SocketAddrV4;

use anyhow::Result;
use sickbay_lab::haproxy::Haproxy;
use sickbay_lab::network::{Machine, PORT, VIP_V4};

use super::Found;
use super::clients::Clients;
use super::deaths::deaths;
use super::ground::{FALL, Ground, INTERVAL_MS, RISE, TIMEOUT_MS, served};
use super::samples;
use super::tap::{Log, Tap};

/// Where its log goes, on loopback.
const LOG_PORT: u16 = 5140;
const POOL: &str = "pool";

/// Measures so many deaths.
///
/// # Errors
/// When HAProxy does not run or judge.
pub(super) fn measure(ground: &Ground, count: usize) -> Result<Found> {
    let network = &ground.network;
    let host = &network.host.namespace;
    let (victim, server) = ground.victim();
    let log = Log::start(host, LOG_PORT, &format!("{POOL}/{}", victim.name))?;
    let text = configuration(&network.backends);
    let haproxy = Haproxy::start_with(host, "converge", PORT, &text)?;
    let tap = Tap::start(&victim.namespace, served(victim))?;
    let clients = Clients::whole(&network.client.namespace, SocketAddrV4::new(VIP_V4, PORT));
    // Before its first message, the victim is up.
    let deaths = deaths(count, server, &tap, || log.last())?;
    drop(clients);
    haproxy.stop()?;
    let syns = tap.stop()?;
    Ok(Found {
        name: "haproxy",
        samples: samples::samples(&deaths, &syns)?,
        gap_ns: samples::gap_ns(&deaths, &syns),
        sent_after_verdict: None,
    })
}

/// A connection that was under way to the dead backend when it was condemned waits for a second or
/// `timeout connect`, whichever is less, before it is tried elsewhere: kept short here, so that the
/// clients are not all waiting when the backend returns.
fn configuration(backends: &[Machine]) -> String {
    let mut servers = String::new();
    for backend in backends {
        let (name, served, probed) = (&backend.name, served(backend), backend.ipv4);
        let _ =
            writeln!(servers, "    server {name} {served}:{PORT} check addr {probed} port {PORT}");
    }
    format!(
        "global
    maxconn 4000
    log 127.0.0.1:{LOG_PORT} local0 notice
defaults
    mode tcp
    timeout connect {TIMEOUT_MS}ms
    timeout client 10s
    timeout server 10s
    timeout check {TIMEOUT_MS}ms
    option redispatch 1
frontend service
    bind 0.0.0.0:{PORT}
    default_backend {POOL}
backend {POOL}
    log global
    balance roundrobin
    option httpchk GET /healthz
    default-server inter {INTERVAL_MS}ms fall {FALL} rise {RISE}
{servers}"
    )
}
