//! The wire format of the admin socket: one JSON request a line, one JSON response a line.
//!
//! ```text
//! → {"protocol":1,"request":{"backends":{"pattern":"web.*"}}}
//! ← {"protocol":1,"reply":{"backends":[…]}}
//! → {"protocol":1,"request":"status"}
//! ← {"protocol":1,"error":{"kind":"busy","message":"…"}}
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::drops::DropView;
use super::host::{ControlError, Host};
use super::journal::{Journal, TransitionView};
use super::members::{MemberChange, MembersChanged, Reloaded};
use super::pattern::Pattern;
use super::polls::PollView;
use super::said::{Terms, user_name};
use super::view::{BackendView, FlowView, ServiceView, StatusView};
use crate::engine::monotonic_now;
use crate::guard::GuardView;

/// What can be asked, and by whom.
mod request;

pub use request::{Asker, Request, RequestLine};

/// Version of this format. Fields may join it; what changes a meaning raises it.
pub const PROTOCOL: u32 = 1;

/// A response as it is sent: exactly one of `reply` and `error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResponseLine {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<Reply>,
    /// Why there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorReply>,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// To [`Request::Status`].
    Status(Box<StatusView>),
    /// To [`Request::Services`].
    Services(Vec<ServiceView>),
    /// To [`Request::Backends`].
    Backends(Vec<BackendView>),
    /// To [`Request::SetHealth`]: the names of the backends that it was set for.
    Set(Vec<String>),
    /// To [`Request::AddBackends`] and the other changes of members.
    Members(MembersChanged),
    /// To [`Request::Reload`].
    Reloaded(Reloaded),
    /// To [`Request::Transitions`].
    Transitions {
        /// Oldest first.
        transitions: Vec<TransitionView>,
        /// Dropped since the start because the queue was full.
        dropped: u64,
    },
    /// To [`Request::Guards`].
    Guards(Vec<GuardView>),
    /// To [`Request::ReleaseGuard`]: the pools that were held.
    Released(Vec<String>),
    /// To [`Request::ExplainFlow`].
    Flow(Box<FlowView>),
    /// To [`Request::Drops`], oldest first.
    Drops(Vec<DropView>),
    /// To [`Request::Polls`], oldest first.
    Polls(Vec<PollView>),
}

/// Why a request was not answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorReply {
    /// For programs.
    pub kind: ErrorKind,
    /// For people, one line.
    pub message: String,
}

/// Why a request was not answered, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// Not a request.
    Malformed,
    /// A request longer than the limit.
    TooLarge,
    /// A request that took too long to arrive, or to answer.
    TooSlow,
    /// More connections than the limit.
    TooManyConnections,
    /// A user who may not ask.
    NotAllowed,
    /// Another version of this format.
    Protocol,
    /// Not a pattern.
    Pattern,
    /// The pattern names nothing here.
    NoMatch,
    /// What is asked cannot be.
    Refused,
    /// Not now.
    Busy,
    /// The agent failed at it.
    Failed,
}

/// The response to one request line of `asker`, LF included.
#[must_use]
pub fn respond(line: &[u8], asker: Asker, host: &dyn Host, journal: &Journal) -> Vec<u8> {
    match parse(line).and_then(|request| answer(request, asker, host, journal)) {
        Ok(reply) => encode(&ResponseLine { protocol: PROTOCOL, reply: Some(reply), error: None }),
        Err(error) => refusal(error.kind, error.message),
    }
}

/// A response that is an error, LF included.
#[must_use]
pub fn refusal(kind: ErrorKind, message: impl Into<String>) -> Vec<u8> {
    let error = ErrorReply { kind, message: message.into() };
    encode(&ResponseLine { protocol: PROTOCOL, reply: None, error: Some(error) })
}

/// A line of the format, LF included. JSON escapes every LF inside it.
pub(super) fn encode<T: Serialize>(line: &T) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("these types have string keys and no readers");
    bytes.push(b'\n');
    bytes
}

/// Whether a request line is one that [changes](Request::is_change).
pub(super) fn is_change(line: &[u8]) -> bool {
    parse(line).is_ok_and(|request| request.is_change())
}

fn parse(line: &[u8]) -> Result<Request, ErrorReply> {
    /// What every version has.
    #[derive(Deserialize)]
    struct AnyVersion {
        protocol: u32,
    }
    let malformed = |error: serde_json::Error| ErrorReply {
        kind: ErrorKind::Malformed,
        // It repeats words of the request.
        message: format!("not a request: {error}").replace(char::is_control, " "),
    };
    let AnyVersion { protocol } = serde_json::from_slice(line).map_err(malformed)?;
    if protocol != PROTOCOL {
        return Err(ErrorReply {
            kind: ErrorKind::Protocol,
            message: format!(
                "this agent ({}) speaks protocol {PROTOCOL} and the client {protocol}: use the \
                 sickbay of the agent's version",
                env!("CARGO_PKG_VERSION")
            ),
        });
    }
    let RequestLine { protocol: _, request } = serde_json::from_slice(line).map_err(malformed)?;
    Ok(request)
}

fn answer(
    request: Request,
    Asker { uid, may_change }: Asker,
    host: &dyn Host,
    journal: &Journal,
) -> Result<Reply, ErrorReply> {
    if !may_change && !request.only_looks() {
        return Err(ErrorReply {
            kind: ErrorKind::NotAllowed,
            message: format!("uid {uid} may look at this agent and change nothing: run as root"),
        });
    }
    let terms = |limit_ms: Option<u64>, reason: Option<String>| Terms {
        by: user_name(uid),
        reason,
        limit: limit_ms.map(Duration::from_millis),
    };
    Ok(match request {
        Request::Status => Reply::Status(Box::new(host.status())),
        Request::Services => Reply::Services(host.services()),
        Request::Backends { pattern } => {
            let pattern = pattern.as_deref().map(read_pattern).transpose()?;
            Reply::Backends(host.backends(pattern.as_ref()))
        }
        Request::SetHealth { pattern, health, limit_ms, reason } => {
            let (pattern, terms) = (read_pattern(&pattern)?, terms(limit_ms, reason));
            let names = host.set_health(&pattern, health.into(), &terms)?;
            Reply::Set(names)
        }
        Request::Guards => Reply::Guards(host.guards()),
        Request::ReleaseGuard { pool } => Reply::Released(host.release_guard(pool.as_deref())?),
        Request::ExplainFlow(question) => Reply::Flow(Box::new(host.explain_flow(&question)?)),
        Request::Drops { after } => Reply::Drops(host.drops(after)),
        Request::AddBackends { pool, backends } => {
            change(host, &MemberChange::Add { pool, backends })?
        }
        Request::RemoveBackends { pattern } => {
            change(host, &MemberChange::Remove { pattern: read_pattern(&pattern)? })?
        }
        Request::SetWeight { pattern, weight } => {
            change(host, &MemberChange::Weigh { pattern: read_pattern(&pattern)?, weight })?
        }
        Request::Drain { pattern, limit_ms, reason } => {
            let (pattern, terms) = (read_pattern(&pattern)?, terms(limit_ms, reason));
            change(host, &MemberChange::Drain { pattern, terms })?
        }
        Request::Maintain { pattern, limit_ms, reason } => {
            let (pattern, terms) = (read_pattern(&pattern)?, terms(limit_ms, reason));
            change(host, &MemberChange::Maintain { pattern, terms })?
        }
        Request::Undrain { pattern } => {
            change(host, &MemberChange::Undrain { pattern: read_pattern(&pattern)? })?
        }
        Request::Reload { dry_run } => Reply::Reloaded(host.reload(dry_run)?),
        Request::Transitions { after } => {
            Reply::Transitions { transitions: journal.since(after), dropped: journal.dropped() }
        }
        Request::Polls { after } => Reply::Polls(journal.polls().since(after, monotonic_now())),
    })
}

fn change(host: &dyn Host, change: &MemberChange) -> Result<Reply, ErrorReply> {
    Ok(Reply::Members(host.change_members(change)?))
}

fn read_pattern(text: &str) -> Result<Pattern, ErrorReply> {
    Pattern::new(text)
        .map_err(|error| ErrorReply { kind: ErrorKind::Pattern, message: error.to_string() })
}

impl From<ControlError> for ErrorReply {
    fn from(error: ControlError) -> Self {
        let kind = match error {
            ControlError::NoBackendMatches { .. } => ErrorKind::NoMatch,
            ControlError::Refused { .. } => ErrorKind::Refused,
            ControlError::Busy { .. } => ErrorKind::Busy,
            ControlError::Failed { .. } => ErrorKind::Failed,
        };
        Self { kind, message: error.to_string() }
    }
}
