//! The admin socket: any bytes as a request's line, and as an answer that a client reads.

use sickbay::config;
use sickbay::control::client;
use sickbay::control::drops::DropView;
use sickbay::control::figures::Figures;
use sickbay::control::host::{ControlError, Host};
use sickbay::control::journal::Journal;
use sickbay::control::members::{MemberChange, MembersChanged, NewBackend, Reloaded};
use sickbay::control::pattern::Pattern;
use sickbay::control::protocol::{self, Asker, ErrorReply, PROTOCOL, ResponseLine};
use sickbay::control::said::Terms;
use sickbay::control::view::{BackendView, FlowView, ServiceView, StatusView};
use sickbay::flow::FlowQuestion;
use sickbay::guard::GuardView;
use sickbay_core::command::Override;

use crate::memory::measured;

/// Held at most for a request, however long the line: the largest is that of a pattern, compiled.
const REQUEST_PEAK_BYTES: u64 = 4 << 20;
/// Bytes held at most for each byte of an answer: an empty text in a list, `"",`, is kept in 24,
/// and a list's room is doubled as it grows.
const ANSWER_PEAK_PER_BYTE: u64 = 64;
/// And for an empty one.
const ANSWER_PEAK_BYTES: u64 = 16 << 10;

/// Who may ask everything, so that everything is reached.
const ASKER: Asker = Asker { uid: 0, may_change: true };

/// Any bytes.
pub fn check(bytes: &[u8]) {
    check_request(bytes);
    check_answer(bytes);
}

/// Whatever is asked, one line that a client can read is answered.
fn check_request(line: &[u8]) {
    let (host, journal) = (Fixed::new(), Journal::new(1));
    let (answer, spent) = measured(|| protocol::respond(line, ASKER, &host, &journal));
    assert!(spent.peak_bytes <= REQUEST_PEAK_BYTES, "{} bytes held", spent.peak_bytes);
    assert_eq!(answer.iter().position(|byte| *byte == b'\n'), Some(answer.len() - 1), "one line");
    let response: ResponseLine = serde_json::from_slice(&answer).expect("a response");
    assert_eq!(response.protocol, PROTOCOL);
    assert!(response.reply.is_some() != response.error.is_some(), "{response:?}");
    if let Some(ErrorReply { message, .. }) = response.error {
        assert!(!message.is_empty() && !message.contains(char::is_control), "{message:?}");
    }
}

/// An answer that a client takes means what its own line would mean.
fn check_answer(bytes: &[u8]) {
    let line = [bytes, b"\n"].concat();
    let (read, spent) = measured(|| client::read_response(&line));
    let most = ANSWER_PEAK_PER_BYTE * line.len() as u64 + ANSWER_PEAK_BYTES;
    assert!(spent.peak_bytes <= most, "{} bytes held for {}", spent.peak_bytes, line.len());
    let Ok(reply) = read else { return };
    let again = ResponseLine { protocol: PROTOCOL, reply: Some(reply), error: None };
    let mut line = serde_json::to_vec(&again).expect("it came as JSON");
    line.push(b'\n');
    assert_eq!(client::read_response(&line).ok(), again.reply, "written and read again");
}

/// An agent of one backend.
struct Fixed {
    backend: BackendView,
}

impl Fixed {
    fn new() -> Self {
        Self { backend: serde_json::from_str(BACKEND).expect("a backend") }
    }

    fn names(&self, pattern: &Pattern) -> Vec<String> {
        let is_meant = pattern.matches(&self.backend.pool, "b1");
        if is_meant { vec![self.backend.name.clone()] } else { Vec::new() }
    }
}

impl Fixed {
    /// Reads them as the agent does, and keeps none.
    fn add(&self, pool: &str, backends: &[NewBackend]) -> Result<MembersChanged, ControlError> {
        if pool != self.backend.pool {
            let what = format!("there is no pool {pool:?}");
            return Err(ControlError::Refused { what });
        }
        let mut names = Vec::new();
        for new in backends {
            let newcomer = config::newcomer(&new.address, new.name.as_deref(), new.weight)
                .map_err(|what| ControlError::Refused { what })?;
            names.push(format!("{pool}.{}", newcomer.called()));
        }
        Ok(MembersChanged { names, notes: Vec::new() })
    }
}

const BACKEND: &str = r#"{"name":"web.b1","pool":"web","address":"192.0.2.1:80","weight":1,
    "index":0,"admin":"auto","state":"healthy","takes_new":true,"good":8,"threshold":3,"window":8,
    "registers":{"bits_4":"1","bits_6":"0","bits_U":"0","bits_x":"0","bits_X":"1","bits_r":"0",
    "bits_R":"1","bits_H":"18446744073709551615"},"average_s":0.00125,"last_s":0.001,
    "last_change_unix_ms":1795973428000,"last_change_ns":"1000000000","cause":"200 OK",
    "counters":null}"#;

impl Host for Fixed {
    fn backends(&self, pattern: Option<&Pattern>) -> Vec<BackendView> {
        let is_meant = pattern.is_none_or(|pattern| !self.names(pattern).is_empty());
        if is_meant { vec![self.backend.clone()] } else { Vec::new() }
    }

    fn services(&self) -> Vec<ServiceView> {
        Vec::new()
    }

    fn figures(&self, _: bool) -> Figures {
        Figures::default()
    }

    fn status(&self) -> StatusView {
        StatusView {
            instance: "fuzz".to_owned(),
            pid: 1,
            version: "0".to_owned(),
            uptime_s: 1.5,
            generation: 1,
            shards: Vec::new(),
            attached: Vec::new(),
            warming_count: 0,
            healthy_count: 1,
            backend_count: 1,
            transitions_dropped: 0,
            verdict_to_kernel_ns: None,
            lateness_us: None,
            packets: None,
            flow_entries: Vec::new(),
            privilege: None,
            sources: Vec::new(),
        }
    }

    fn set_health(
        &self,
        pattern: &Pattern,
        _: Override,
        _: &Terms,
    ) -> Result<Vec<String>, ControlError> {
        let names = self.names(pattern);
        if names.is_empty() {
            return Err(ControlError::NoBackendMatches { pattern: pattern.as_str().to_owned() });
        }
        Ok(names)
    }

    fn guards(&self) -> Vec<GuardView> {
        Vec::new()
    }

    fn release_guard(&self, pool: Option<&str>) -> Result<Vec<String>, ControlError> {
        match pool {
            None | Some("web") => Ok(Vec::new()),
            Some(other) => Err(ControlError::Failed { what: format!("no pool {other:?}") }),
        }
    }

    fn explain_flow(&self, question: &FlowQuestion) -> Result<FlowView, ControlError> {
        let because = format!("port {} was asked for", question.destination.port);
        Ok(FlowView { because, ..FlowView::default() })
    }

    fn drops(&self, _: u64) -> Vec<DropView> {
        Vec::new()
    }

    fn change_members(&self, change: &MemberChange) -> Result<MembersChanged, ControlError> {
        let pattern = match change {
            MemberChange::Add { pool, backends } => return self.add(pool, backends),
            MemberChange::Remove { pattern }
            | MemberChange::Weigh { pattern, .. }
            | MemberChange::Drain { pattern, .. }
            | MemberChange::Maintain { pattern, .. }
            | MemberChange::Undrain { pattern } => pattern,
        };
        let names = self.set_health(pattern, Override::Auto, &Terms::default())?;
        Ok(MembersChanged { names, notes: Vec::new() })
    }

    fn reload(&self, _dry_run: bool) -> Result<Reloaded, ControlError> {
        Ok(Reloaded::default())
    }
}
