//! The fleet: validated configuration, with every index given out. Parsed once, never re-checked;
//! its members may change while it runs, by a fleet that takes the place of the one before.
//!
//! Made by [`crate::config`]; read by whoever probes, publishes, steers or shows.

use std::net::IpAddr;
use std::ops::Range;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sickbay_core::plan::{Nanos, OnUnknown, ProbeSpec, Rule};
use sickbay_shared::limits::{self, BACKENDS_MAX, WORD_BACKENDS};

use crate::confine::Privilege;
use crate::discovery::Sourced;
use crate::kernel::Sizes;
use crate::service_keys::ServiceKeys;

/// Where members come from besides the configuration.
mod found;
/// What operators look at.
mod observe;
/// Services and their policies.
mod service;
/// Which packets a service takes.
mod traffic;

pub use self::found::{Dns, Origin};
pub use self::observe::{History, Observe};
pub use self::service::{AllSick, BackupTable, HashBy, Mode, OnSick, Service, Stale};
pub use self::traffic::{PortRange, Ports, Protocol, Traffic, shown_network};

use crate::address::Address;

/// Pairs of a backend and a probe that judges it, all pools together: each may be a target.
pub(crate) const JUDGES_MAX: usize = 2 * BACKENDS_MAX as usize;

/// Everything one instance works on.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Instance name: letters, digits, `-`, `_`; part of paths.
    pub instance: String,
    /// Where this instance's maps and links are pinned (the instance name included); 0700.
    pub pin_directory: PathBuf,
    /// Where its admin socket stands (the instance name included); 0700.
    pub run_directory: PathBuf,
    /// Where what outlives the agent stands besides its maps (the instance name included); 0700.
    pub state_directory: PathBuf,
    /// Probing threads; 0 = one per CPU this process may use.
    pub shards: u32,
    /// Probes in flight per shard.
    pub in_flight: u32,
    /// Steering attaches when every target has a first verdict, or after this.
    pub start_timeout_ns: Nanos,
    /// How to probe, by [`Target::probe`].
    pub probes: Vec<Probe>,
    /// What to probe.
    pub targets: Vec<Target>,
    /// Pools, by [`Backend::pool`] and [`Service::pool`].
    pub pools: Vec<Pool>,
    /// All backends, pool after pool.
    pub backends: Vec<Backend>,
    /// Services.
    pub services: Vec<Service>,
    /// What finds them.
    pub service_keys: ServiceKeys,
    /// Interfaces to attach to.
    pub attachments: Vec<Attachment>,
    /// What the kernel program may spend.
    pub steering: Steering,
    /// When verdicts that condemn many at once are held; `None` = never.
    pub guard: Option<Guard>,
    /// What the agent gives up when it has started.
    pub privilege: Privilege,
    /// Whether a change of the configuration file is followed.
    pub watch_config: bool,
    /// How names are looked up.
    pub dns: Dns,
    /// Where it tells what it does.
    pub observe: Observe,
    /// The group whose members may look at it; `None` = nobody but root.
    pub read_group: Option<String>,
}

/// What the kernel program may spend, per CPU and second, and the room it has for flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Entries of flows that do not follow their slot, per address family.
    pub flow_entries: u32,
    /// Entries it may write for SYNs; 0 = none.
    pub syn_entries_per_second: u32,
    /// Entries it may write for flows past their SYN, and for fragments; 0 = none.
    pub flow_entries_per_second: u32,
    /// Answers (RST, ICMP) it may send in a backend's name; 0 = none.
    pub answers_per_second: u32,
    /// Dropped packets it may tell of; 0 = none.
    pub drop_samples_per_second: u32,
}

impl Default for Steering {
    fn default() -> Self {
        Self {
            flow_entries: Sizes::FLOWS_DEFAULT,
            syn_entries_per_second: limits::EMBRYONIC_INSERTS_PER_SECOND,
            flow_entries_per_second: limits::FLOW_INSERTS_PER_SECOND,
            answers_per_second: limits::REPLIES_PER_SECOND,
            drop_samples_per_second: limits::DROP_RECORDS_PER_SECOND,
        }
    }
}

/// When verdicts that condemn many of a pool at once are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// When more than so many of a hundred backends of a pool turn sick, 1 ..= 100 …
    pub share_percent: u8,
    /// … within this time, and something points to this host …
    pub within_ns: Nanos,
    /// … their verdicts are held for this long at most.
    pub hold_ns: Nanos,
}

impl Fleet {
    /// Targets that can be added while it runs: as many as the backends need that its pools have
    /// reserved indices for, but no more than [`JUDGES_MAX`].
    #[must_use]
    pub fn target_room(&self) -> usize {
        let room = |pool: &Pool| {
            let reserved = (pool.word_count * WORD_BACKENDS) as usize;
            let probes = pool.own_probes.as_ref().map_or(0, Vec::len);
            reserved.saturating_sub(pool.backends.len()) * probes
        };
        self.pools.iter().map(room).sum::<usize>().min(JUDGES_MAX)
    }

    /// Adds backends of `pool` behind those it has.
    pub(crate) fn insert(&mut self, pool: usize, backends: Vec<Backend>) {
        let (at, count) = (self.pools[pool].backends.end, backends.len());
        for judged in backends.iter().flat_map(|backend| &backend.judged) {
            if !self.pools[pool].probes.contains(&judged.probe) {
                self.pools[pool].probes.push(judged.probe);
            }
        }
        self.backends.splice(at..at, backends);
        self.pools[pool].backends.end += count;
        for later in &mut self.pools[pool + 1..] {
            later.backends = later.backends.start + count..later.backends.end + count;
        }
    }

    /// Takes out the backends with these indices. Their targets stay in the list, unused, until
    /// others take their places.
    pub(crate) fn remove(&mut self, indices: &[u32]) {
        self.backends.retain(|backend| !indices.contains(&backend.index));
        let mut first = 0;
        for (index, pool) in self.pools.iter_mut().enumerate() {
            let count = self.backends[first..].iter().take_while(|it| it.pool == index).count();
            pool.backends = first..first + count;
            let judged = || self.backends[first..first + count].iter().flat_map(|it| &it.judged);
            pool.probes.retain(|probe| judged().any(|judged| judged.probe == *probe));
            first += count;
        }
    }
}

/// How to probe, with the bytes that are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name in the configuration.
    pub name: String,
    /// Times and what is good.
    pub spec: ProbeSpec,
    /// The rule its pools judge by.
    pub rule: Rule,
    /// Good results assumed at the start.
    pub initial: u8,
    /// Policy for targets that are unknown.
    pub on_unknown: OnUnknown,
    /// How the connection is closed.
    pub close: CloseMode,
    /// Request template; see [`Request`]. `None` for TCP.
    pub request: Option<Request>,
    /// What a TCP probe sends once it is connected; empty for HTTP.
    pub send: Vec<u8>,
    /// The PROXY header before the request.
    pub proxy_header: Option<ProxyHeader>,
    /// What its sockets are told before they connect.
    pub socket: SocketOptions,
}

/// Which PROXY header stands before a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProxyHeader {
    /// Version 1, with the connection's own address on both sides, as Varnish sends it; not part
    /// of [`Target::request`], since only the open connection knows it.
    V1Own,
    /// Version 2, LOCAL: the proxy's own connection, without addresses.
    V2Local,
}

impl ProxyHeader {
    /// Its bytes as far as they are the same on every connection.
    #[must_use]
    pub const fn fixed_bytes(self) -> &'static [u8] {
        match self {
            Self::V1Own => b"",
            // Signature, version 2 and LOCAL, no family, no length (PROXY protocol, section 2.2).
            Self::V2Local => b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",
        }
    }
}

/// What a probe's sockets are told before they connect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SocketOptions {
    /// The address it comes from.
    pub source: Option<IpAddr>,
    /// The interface it leaves by (SO_BINDTODEVICE).
    pub interface: Option<String>,
    /// Its mark (SO_MARK).
    pub mark: Option<u32>,
}

/// The HTTP request of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    /// `GET`, `HEAD` or another.
    pub method: String,
    /// Path and query.
    pub url: String,
    /// The Host header; `None` = the target's address as it is written.
    pub host: Option<String>,
    /// Header lines to add.
    pub headers: Vec<String>,
    /// The body, and with it a Content-Length.
    pub body: Option<String>,
    /// The lines of the whole request instead of all these; empty = those hold.
    pub raw: Vec<String>,
}

/// How a probe's connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CloseMode {
    /// By RST: leaves no TIME_WAIT behind.
    #[default]
    Rst,
    /// By FIN.
    Fin,
}

/// What is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Hash of address, port and request.
    pub identity: u128,
    /// Where to.
    pub address: Address,
    /// The whole request, ready to send; empty for TCP.
    pub request: Vec<u8>,
    /// Index into [`Fleet::probes`]; of several that only differ in their rule, the first.
    pub probe: usize,
    /// Good results assumed at the start: the lowest of the pools' that share the target.
    pub initial: u8,
}

/// A set of backends with its rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name in the configuration.
    pub name: String,
    /// The probes that judge any of its backends: indices into [`Fleet::probes`], each once. Empty
    /// when all of them are healthy without being probed.
    pub probes: Vec<usize>,
    /// The probes of a backend that names none of its own, so of those that are added while it runs;
    /// empty = they are healthy without being probed. `None` = the pool names none: each backend has
    /// its own.
    pub own_probes: Option<Vec<usize>>,
    /// The port to probe instead of each backend's own.
    pub probe_port: Option<u16>,
    /// How long a change of members leaves its mark: see `drain` in the configuration.
    pub drain_ns: Nanos,
    /// Its members in [`Fleet::backends`].
    pub backends: Range<usize>,
    /// First bitmap word; a multiple of `word_count`.
    pub first_word: u32,
    /// Bitmap words reserved, a power of two.
    pub word_count: u32,
    /// When too few of it take new flows; `None` = only when none does.
    pub panic: Option<Panic>,
    /// Whether it may have no members.
    pub may_be_empty: bool,
    /// What its members come from besides the configuration, with what each source said of those it
    /// has; several may name one member.
    pub sources: Vec<Sourced>,
}

/// When so few of a pool take new flows that a service with `all_sick = open` rather uses all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Panic {
    /// It begins when less than so many of a hundred take new flows, 1 ..= 100.
    pub below_percent: u8,
    /// It ends when at least so many do, `below_percent` ..= 100.
    pub end_percent: u8,
}

/// A member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// `pool.name`-unique name; the address as written when none is given.
    pub name: String,
    /// Index into [`Fleet::pools`].
    pub pool: usize,
    /// Where its flows go (port used by later modes and by the probe). A unix socket gets none: no
    /// service is over its pool.
    pub address: Address,
    /// Share of new flows relative to the others, 1 ..= 1000.
    pub weight: u32,
    /// What is probed of it; all of it must be healthy. Empty = it is healthy without being probed.
    pub judged: Box<[Judged]>,
    /// Its bit in the bitmaps and its place in the backend map.
    pub index: u32,
    /// Who named it.
    pub origin: Origin,
}

/// A target of a backend, and the probe by whose rule it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judged {
    /// Index into [`Fleet::targets`].
    pub target: usize,
    /// Index into [`Fleet::probes`].
    pub probe: usize,
}

/// An interface to attach to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Interface name.
    pub interface: String,
    /// Which program.
    pub program: Program,
}

/// Which program is attached, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Program {
    /// XDP in this mode.
    Xdp(XdpMode),
    /// TC ingress.
    Tc,
}

/// How an XDP program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum XdpMode {
    /// Native if the driver can, else generic; which one is shown.
    #[default]
    Auto,
    /// In the driver, or refuse.
    Native,
    /// In the stack, for drivers without XDP.
    Generic,
}
