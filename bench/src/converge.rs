//! From a backend's death, and from its verdict, to the last new connection that is sent to it: for
//! sickbay, and for HAProxy with the same probes and rules.
//!
//! Method: a private network with two backends, which answer probes and take connections by the same
//! socket. One of them dies again and again: its socket stops to listen, so probes and connections
//! are refused from that moment on. A packet socket in its namespace stamps every SYN of the
//! service that arrives there (the kernel's stamp, CLOCK_REALTIME brought to CLOCK_MONOTONIC).
//! sickbay's load is bare SYNs from ever new flows, each with its own sending time as its sequence
//! number; HAProxy's is whole connections, since a proxy connects on for no less. sickbay's verdict
//! is the record in its maps, stamped after the store. HAProxy's is its own log message, stamped by
//! the kernel as it is sent over loopback, which is just after its servers' states have changed.

use anyhow::Result;

use crate::report::Report;
use findings::Limits;
use ground::Ground;
use samples::Sample;

/// Who connects: bare SYNs, and whole connections.
mod clients;
/// One backend dies and returns, as often as is wanted.
mod deaths;
/// The report: what was found, held against what must hold.
mod findings;
/// The network, its two backends, and what sickbay promises there.
mod ground;
/// HAProxy on the ground.
mod haproxy;
/// From deaths and SYNs to what took how long.
mod samples;
/// A server whose listening ends and begins by a call.
mod server;
/// sickbay on the ground.
mod sickbay;
/// The kernel's stamps, brought to one clock.
mod stamps;
/// Packets with the kernel's stamps.
mod tap;

/// Deaths of each side, and in the quick form.
const DEATH_COUNT: usize = 200;
const DEATH_COUNT_QUICK: usize = 20;
const METHOD: &str = "\
two backends on a private network; one stops to listen and listens again by one system call, at \
moments spread evenly over the probes' interval. Both sides probe it alike over HTTP and condemn and \
acquit by the same number of results in a row. New connections are the service's SYNs at the \
backend's interface, stamped by the kernel there (about 1 µs); probes go to another address. \
sickbay (XDP, dsr): SYNs of ever new flows, sent bare; its verdict is its own stamp, read after the \
store. HAProxy: whole connections in TCP mode, `option redispatch 1`; its verdict is its log message, \
stamped by the kernel when it is sent, just after the change. From the verdict to the last \
connection: below 0 when that came before, and no finer than the gap between two SYNs";

/// One product's part.
struct Found {
    name: &'static str,
    samples: Vec<Sample>,
    /// Between two SYNs at the backend, the median, in ns: how fine an end can be seen.
    gap_ns: i64,
    /// SYNs that were sent after a verdict and came all the same; `None` where they do not tell.
    sent_after_verdict: Option<usize>,
}

/// How late the agent's probes began, by its own account, in µs.
#[derive(Clone, Copy)]
struct Lateness {
    p99_us: u64,
    max_us: u64,
}

/// Runs the workload.
///
/// # Errors
/// When the network, a server, the agent or HAProxy does not do what it should.
pub(crate) fn run(quick: bool) -> Result<Report> {
    let count = if quick { DEATH_COUNT_QUICK } else { DEATH_COUNT };
    let ground = Ground::new()?;
    let promise = ground::promise(&ground::configuration(&ground.network.backends))?;
    let (sickbay, lateness) = sickbay::measure(&ground, count)?;
    let haproxy = haproxy::measure(&ground, count)?;
    let limits = if quick { Limits::QUICK } else { Limits::FULL };
    findings::report(METHOD, &[sickbay, haproxy], promise, lateness, limits)
}
