//! What the service manager is told: sd_notify(3)'s datagrams to the socket in `NOTIFY_SOCKET`.
//!
//! The watchdog is fed by the probing threads: a ping is passed on when each of them has beaten
//! since the one before, and lately. The main thread only looks; alone it feeds nothing. Without
//! `NOTIFY_SOCKET` nobody is told, and nothing is opened.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use crate::board::{Board, coarse_now_ns};
use crate::engine::monotonic_now;

use super::layout::HEARTBEAT_LIMIT_NS;
use super::parts::Parts;

/// Pings per watchdog time, when all is well: sd_watchdog_enabled(3) advises two; one that comes
/// late leaves time for another.
const PINGS_PER_LIMIT: u64 = 4;
/// Between two looks at whether the status has changed.
const STATUS_INTERVAL_NS: u64 = 1_000_000_000;
/// What a start may take besides waiting for the first verdicts.
const START_MARGIN: Duration = Duration::from_secs(30);

/// Tells the service manager; nobody, when there is none.
#[derive(Debug, Default)]
pub(super) struct Notifier(Option<Manager>);

#[derive(Debug)]
struct Manager {
    socket: UnixDatagram,
    address: SocketAddr,
    watchdog: Option<Watchdog>,
    ready_is_told: bool,
    status: String,
    status_due_ns: u64,
}

/// What the environment says (sd_notify(3), sd_watchdog_enabled(3)).
#[derive(Debug, Default)]
struct Environment<'a> {
    socket: Option<&'a OsStr>,
    watchdog_us: Option<&'a str>,
    watchdog_process: Option<&'a str>,
}

impl Notifier {
    /// As the environment says. A socket that cannot be told anything is warned of once.
    pub(super) fn from_environment() -> Self {
        let (socket, limit, process) = (
            std::env::var_os("NOTIFY_SOCKET"),
            std::env::var("WATCHDOG_USEC").ok(),
            std::env::var("WATCHDOG_PID").ok(),
        );
        Self::new(&Environment {
            socket: socket.as_deref(),
            watchdog_us: limit.as_deref(),
            watchdog_process: process.as_deref(),
        })
    }

    fn new(environment: &Environment<'_>) -> Self {
        let Some(name) = environment.socket.filter(|name| !name.is_empty()) else {
            return Self(None);
        };
        match Manager::new(name, environment) {
            Ok(manager) => Self(Some(manager)),
            Err(error) => {
                tracing::warn!("cannot notify {}: {error}", name.display());
                Self(None)
            }
        }
    }

    /// The agent starts, and waits this long at most for the first verdicts.
    pub(super) fn starting(&mut self, wait_ns: u64) {
        let limit = Duration::from_nanos(wait_ns).saturating_add(START_MARGIN);
        self.tell(&format!("EXTEND_TIMEOUT_USEC={}", limit.as_micros()));
    }

    /// Looks at what there is to tell. `attached`: the agent does what it is there for.
    pub(super) fn look(&mut self, parts: &Parts, attached: bool) {
        if self.0.is_some() {
            self.look_at(&parts.board, attached, coarse_now_ns(), || status(parts, attached));
        }
    }

    fn look_at(
        &mut self,
        board: &Board,
        attached: bool,
        now_ns: u64,
        status: impl FnOnce() -> String,
    ) {
        let Some(manager) = &mut self.0 else { return };
        if attached && !manager.ready_is_told {
            // What the socket has no room for is told at the next look.
            manager.ready_is_told = manager.tell("READY=1");
        }
        if manager.watchdog.as_mut().is_some_and(|watchdog| watchdog.is_due(board, now_ns)) {
            manager.tell("WATCHDOG=1");
        }
        if manager.status_due_ns <= now_ns {
            manager.status_due_ns = now_ns + STATUS_INTERVAL_NS;
            let status = status();
            if status != manager.status && manager.tell(&format!("STATUS={status}")) {
                manager.status = status;
            }
        }
    }

    /// The configuration is being read again; the next look says that this is over.
    pub(super) fn reloading(&mut self) {
        if let Some(manager) = self.0.as_mut().filter(|manager| manager.ready_is_told) {
            let now_us = monotonic_now() / 1000;
            manager.ready_is_told = !manager.tell(&format!("RELOADING=1\nMONOTONIC_USEC={now_us}"));
        }
    }

    /// The agent stops.
    pub(super) fn stopping(&mut self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, text: &str) {
        if let Some(manager) = &self.0 {
            manager.tell(text);
        }
    }
}

impl Manager {
    fn new(name: &OsStr, environment: &Environment<'_>) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        // A manager that reads nothing holds up no agent.
        socket.set_nonblocking(true)?;
        let address = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name)?,
            [b'/', ..] => SocketAddr::from_pathname(name)?,
            _ => return Err(io::Error::other("neither an absolute path nor an abstract name")),
        };
        let watchdog = environment.watchdog_limit().map(Watchdog::new);
        let (ready_is_told, status, status_due_ns) = (false, String::new(), 0);
        Ok(Self { socket, address, watchdog, ready_is_told, status, status_due_ns })
    }

    /// Whether it was sent. Addressed each time: a manager that restarts binds its socket anew.
    fn tell(&self, text: &str) -> bool {
        match self.socket.send_to_addr(text.as_bytes(), &self.address) {
            Ok(_) => true,
            Err(error) => {
                tracing::debug!("cannot notify the service manager of {text:?}: {error}");
                false
            }
        }
    }
}

impl Environment<'_> {
    /// The watchdog's time, when there is one and it is this process's.
    fn watchdog_limit(&self) -> Option<Duration> {
        let own = std::process::id().to_string();
        if self.watchdog_process.is_some_and(|process| process != own) {
            return None;
        }
        let limit_us = self.watchdog_us?.parse().ok().filter(|&limit_us| 0 < limit_us)?;
        Some(Duration::from_micros(limit_us))
    }
}

/// When a ping is due: a while after the last one, and when every probing thread has beaten since.
#[derive(Debug)]
struct Watchdog {
    interval_ns: u64,
    next_ns: u64,
    /// By shard: its heartbeat at the last ping.
    beats: Vec<u64>,
}

impl Watchdog {
    fn new(limit: Duration) -> Self {
        let limit_ns = u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Self { interval_ns: limit_ns / PINGS_PER_LIMIT, next_ns: 0, beats: Vec::new() }
    }

    /// Whether one is due at `now_ns` of the coarse monotonic clock; it is then taken as sent.
    fn is_due(&mut self, board: &Board, now_ns: u64) -> bool {
        if now_ns < self.next_ns {
            return false;
        }
        let shards = board.header().shard_count;
        let beats: Vec<u64> = (0..shards).map(|shard| board.last_beat_ns(shard)).collect();
        self.beats.resize(beats.len(), 0);
        let fresh = |(beat, before): (&u64, &u64)| {
            before < beat && now_ns < beat.saturating_add(HEARTBEAT_LIMIT_NS)
        };
        // Who probes nothing at all feeds no watchdog.
        if beats.is_empty() || !beats.iter().zip(&self.beats).all(fresh) {
            return false;
        }
        self.beats = beats;
        self.next_ns = now_ns.saturating_add(self.interval_ns);
        true
    }
}

/// One line for `systemctl status`.
fn status(parts: &Parts, attached: bool) -> String {
    let fleet = parts.fleet();
    let backends = fleet.backends.len();
    let services = fleet.services.len();
    let services = format!("{services} {}", if services == 1 { "service" } else { "services" });
    let healthy = parts.healthy_count();
    if attached {
        return format!("{healthy} of {backends} backends take new flows; {services}");
    }
    let warming = parts.with_shards(|shards| shards.warming_count()).unwrap_or(0);
    format!("waiting for first verdicts: {warming} of {backends} backends have none; {services}")
}

#[cfg(test)]
mod tests;
