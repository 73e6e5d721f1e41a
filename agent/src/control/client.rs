//! The admin socket's client, blocking: for the subcommands, the demo and tests.
//!
//! Each request has a connection of its own, so that a client may be kept for as long as one likes
//! and an agent that was restarted meanwhile is simply found.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::SOCKET_NAME;
use super::drops::DropView;
use super::journal::TransitionView;
use super::members::{MembersChanged, Reloaded};
use super::polls::PollView;
use super::protocol::{
    self, ErrorKind, ErrorReply, PROTOCOL, Reply, Request, RequestLine, ResponseLine,
};
use super::view::{Admin, BackendView, FlowView, ServiceView, StatusView};
use crate::flow::FlowQuestion;
use crate::guard::GuardView;

/// Longest response that is read: some 200,000 backends.
const RESPONSE_BYTES_MAX: u64 = 256 << 20;
/// Longest silence of the agent: its own limit for an answer, twice.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// The same while members are changed.
const CHANGE_SILENCE_MAX: Duration = Duration::from_secs(120);

/// A running agent, as its clients see it.
#[derive(Clone, Debug)]
pub struct Client {
    directory: PathBuf,
}

impl Client {
    /// The agent of this run directory.
    ///
    /// # Errors
    ///
    /// None runs there, or this user may not ask it.
    pub fn connect(run_directory: &Path) -> Result<Self, ClientError> {
        let client = Self { directory: run_directory.to_owned() };
        client.open()?;
        Ok(client)
    }

    /// The agent itself.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses.
    pub fn status(&self) -> Result<StatusView, ClientError> {
        match self.ask(Request::Status)? {
            Reply::Status(status) => Ok(*status),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// Its services, in the order of its configuration.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses.
    pub fn services(&self) -> Result<Vec<ServiceView>, ClientError> {
        match self.ask(Request::Services)? {
            Reply::Services(services) => Ok(services),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// Its backends that `pattern` matches, or all, in the order of its configuration.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses; the pattern is none.
    pub fn backends(&self, pattern: Option<&str>) -> Result<Vec<BackendView>, ClientError> {
        match self.ask(Request::Backends { pattern: pattern.map(str::to_owned) })? {
            Reply::Backends(backends) => Ok(backends),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// Sets the operator's word for the backends that `pattern` matches, for a time or until it is
    /// taken back; their names.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses; the pattern is none, or matches nothing.
    pub fn set_health(
        &self,
        pattern: &str,
        health: Admin,
        limit: Option<Duration>,
        reason: Option<&str>,
    ) -> Result<Vec<String>, ClientError> {
        let (pattern, reason) = (pattern.to_owned(), reason.map(str::to_owned));
        let limit_ms = limit.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
        match self.ask(Request::SetHealth { pattern, health, limit_ms, reason })? {
            Reply::Set(names) => Ok(names),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// Asks for a change of members.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses; then nothing was changed.
    pub fn change_members(&self, request: Request) -> Result<MembersChanged, ClientError> {
        match self.ask(request)? {
            Reply::Members(changed) => Ok(changed),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// Has the agent read its configuration again; with `dry_run`, only say what that would change.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses; then nothing was changed.
    pub fn reload(&self, dry_run: bool) -> Result<Reloaded, ClientError> {
        match self.ask(Request::Reload { dry_run })? {
            Reply::Reloaded(reloaded) => Ok(reloaded),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// The newest transitions with a sequence above `after`, oldest first.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses.
    pub fn transitions(&self, after: u64) -> Result<Vec<TransitionView>, ClientError> {
        match self.ask(Request::Transitions { after })? {
            Reply::Transitions { transitions, dropped: _ } => Ok(transitions),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// The newest polls with a sequence above `after`, oldest first. The agent keeps them from the
    /// first question on, and while one follows another.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses.
    pub fn polls(&self, after: u64) -> Result<Vec<PollView>, ClientError> {
        match self.ask(Request::Polls { after })? {
            Reply::Polls(polls) => Ok(polls),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// The pools whose last verdicts are held.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses.
    pub fn guards(&self) -> Result<Vec<GuardView>, ClientError> {
        match self.ask(Request::Guards)? {
            Reply::Guards(guards) => Ok(guards),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// Ends the hold over `pool`, or over all; the pools that were held.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses; it has no such pool, or no guard.
    pub fn release_guard(&self, pool: Option<&str>) -> Result<Vec<String>, ClientError> {
        match self.ask(Request::ReleaseGuard { pool: pool.map(str::to_owned) })? {
            Reply::Released(pools) => Ok(pools),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// What would become of a flow's packet now.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses; no such packet can be made.
    pub fn explain_flow(&self, question: FlowQuestion) -> Result<FlowView, ClientError> {
        match self.ask(Request::ExplainFlow(question))? {
            Reply::Flow(view) => Ok(*view),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    /// The newest samples of dropped packets with a sequence above `after`, oldest first.
    ///
    /// # Errors
    ///
    /// The agent is gone or refuses.
    pub fn drops(&self, after: u64) -> Result<Vec<DropView>, ClientError> {
        match self.ask(Request::Drops { after })? {
            Reply::Drops(drops) => Ok(drops),
            other => Err(ClientError::unexpected(&other)),
        }
    }

    fn open(&self) -> Result<UnixStream, ClientError> {
        let socket = self.directory.join(SOCKET_NAME);
        let stream = UnixStream::connect(&socket).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => ClientError::NoAgent {
                directory: self.directory.clone(),
                others: Others(instances_beside(&self.directory)),
            },
            io::ErrorKind::PermissionDenied => {
                ClientError::NotPermitted { directory: self.directory.clone() }
            }
            _ => ClientError::Io { what: "connect to", source },
        })?;
        stream
            .set_read_timeout(Some(SILENCE_MAX))
            .and_then(|()| stream.set_write_timeout(Some(SILENCE_MAX)))
            .map_err(|source| ClientError::Io { what: "connect to", source })?;
        Ok(stream)
    }

    fn ask(&self, request: Request) -> Result<Reply, ClientError> {
        let mut stream = self.open()?;
        if request.is_change() {
            let limit = Some(CHANGE_SILENCE_MAX);
            let set = stream.set_read_timeout(limit);
            set.map_err(|source| ClientError::Io { what: "connect to", source })?;
        }
        let line = protocol::encode(&RequestLine { protocol: PROTOCOL, request });
        match stream.write_all(&line) {
            Ok(()) => {}
            // An agent that refuses closes at once, after saying why: that is still to be read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(source) => {
                return Err(ClientError::Io { what: "write to", source });
            }
        }
        let mut line = Vec::new();
        BufReader::new(stream)
            .take(RESPONSE_BYTES_MAX)
            .read_until(b'\n', &mut line)
            .map_err(|source| ClientError::Io { what: "read from", source })?;
        read_response(&line)
    }
}

/// What the agent's line says, LF included.
///
/// # Errors
///
/// It refuses, or the line is cut or no answer.
pub fn read_response(line: &[u8]) -> Result<Reply, ClientError> {
    if !line.ends_with(b"\n") {
        return Err(ClientError::Cut { bytes: line.len() });
    }
    let response: ResponseLine = serde_json::from_slice(line)
        .map_err(|error| ClientError::Malformed { why: error.to_string() })?;
    match response {
        ResponseLine { error: Some(ErrorReply { kind, message }), .. } => {
            Err(ClientError::Refused { kind, message })
        }
        ResponseLine { reply: Some(reply), .. } => Ok(reply),
        ResponseLine { protocol, .. } => Err(ClientError::Malformed {
            why: format!("neither reply nor error (protocol {protocol})"),
        }),
    }
}

/// The names of other run directories beside this one that have an admin socket.
fn instances_beside(directory: &Path) -> Vec<String> {
    let Some(entries) = directory.parent().and_then(|parent| std::fs::read_dir(parent).ok()) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path() != directory && entry.path().join(SOCKET_NAME).exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}

/// Why the agent did not answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// None runs there.
    #[error(
        "no agent runs at {}{others}: start one with `sickbay run -c FILE`, or name another with \
         --instance NAME and --run-directory DIRECTORY", directory.display()
    )]
    NoAgent {
        /// Where it was looked for.
        directory: PathBuf,
        /// Which run beside it.
        others: Others,
    },
    /// This user may not look there.
    #[error(
        "not permitted to ask the agent at {}: run as root, or join the group of its read_group",
        directory.display()
    )]
    NotPermitted {
        /// Where.
        directory: PathBuf,
    },
    /// The agent says no.
    #[error("{message}")]
    Refused {
        /// For programs.
        kind: ErrorKind,
        /// For people.
        message: String,
    },
    /// The connection failed.
    #[error("cannot {what} the agent: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The agent ended in the middle.
    #[error("the agent closed the connection after {bytes} bytes: see its log")]
    Cut {
        /// What had come.
        bytes: usize,
    },
    /// Not an answer.
    #[error("the agent's answer cannot be read ({why}): use the sickbay of the agent's version")]
    Malformed {
        /// What is wrong with it.
        why: String,
    },
}

impl ClientError {
    fn unexpected(reply: &Reply) -> Self {
        let name = match reply {
            Reply::Status(_) => "status",
            Reply::Services(_) => "services",
            Reply::Backends(_) => "backends",
            Reply::Set(_) => "set",
            Reply::Members(_) => "members",
            Reply::Reloaded(_) => "reloaded",
            Reply::Transitions { .. } => "transitions",
            Reply::Guards(_) => "guards",
            Reply::Released(_) => "released",
            Reply::Flow(_) => "flow",
            Reply::Drops(_) => "drops",
            Reply::Polls(_) => "polls",
        };
        Self::Malformed { why: format!("{name} was not asked for") }
    }
}

/// Instances that run beside the one that was looked for; shown as a hint, or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Others(pub Vec<String>);

impl std::fmt::Display for Others {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        write!(formatter, " (found there: {})", self.0.join(", "))
    }
}
