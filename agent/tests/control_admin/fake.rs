//! An agent of a few backends that is none, and a served admin socket in a directory of its own.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sickbay::control::claim::Claim;
use sickbay::control::client::Client;
use sickbay::control::drops::DropView;
use sickbay::control::figures::{Figures, PoolFigures};
use sickbay::control::host::{ControlError, Host};
use sickbay::control::journal::Journal;
use sickbay::control::members::{MemberChange, MembersChanged, NewBackend, Reloaded, StandingView};
use sickbay::control::pattern::Pattern;
use sickbay::control::protocol::{Reply, ResponseLine};
use sickbay::control::said::Terms;
use sickbay::control::server::{ControlServer, Options};
use sickbay::control::view::{
    Admin, AttachedView, BackendCountersView, BackendView, FlowView, ProbeState, RuleView,
    ServiceCountersView, ServiceView, ShardView, StatusView,
};
use sickbay::flow::FlowQuestion;
use sickbay::guard::GuardView;
use sickbay_core::command::Override;
use tempfile::TempDir;

/// A request that every agent answers.
pub(crate) const STATUS: &[u8] = b"{\"protocol\":1,\"request\":\"status\"}\n";
/// Longest wait for something that should come at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A host of `web.b1`, `web.b2`, `api.b1` and as many `bulk.N` as one likes.
pub(crate) struct Fake {
    backends: Mutex<Vec<BackendView>>,
    delay: Duration,
}

impl Fake {
    pub(crate) fn new() -> Self {
        Self::with_bulk(0)
    }

    pub(crate) fn with_bulk(count: u32) -> Self {
        let mut backends =
            vec![backend("web", "b1", 0), backend("web", "b2", 1), backend("api", "b1", 2)];
        backends.extend((0..count).map(|index| backend("bulk", &index.to_string(), 3 + index)));
        Self { backends: Mutex::new(backends), delay: Duration::ZERO }
    }

    /// Takes this long for its status, and for a change of members.
    pub(crate) fn slow(delay: Duration) -> Self {
        Self { delay, ..Self::new() }
    }
}

impl Host for Fake {
    fn backends(&self, pattern: Option<&Pattern>) -> Vec<BackendView> {
        let all = self.backends.lock().expect("no test panics inside");
        all.iter().filter(|view| pattern.is_none_or(|it| is_meant(it, view))).cloned().collect()
    }

    fn services(&self) -> Vec<ServiceView> {
        vec![ServiceView {
            name: "www".to_owned(),
            address: "198.51.100.1".to_owned(),
            ports: "80".to_owned(),
            protocol: "tcp".to_owned(),
            pool: "web".to_owned(),
            backup: None,
            mode: "dsr".to_owned(),
            all_sick: "open".to_owned(),
            healthy: 1,
            total: 2,
            panics: false,
            backup_healthy: 0,
            backup_total: 0,
            slots: 1021,
            attached: vec![attached()],
            counters: Some(ServiceCountersView { new_flows: 31, ..Default::default() }),
        }]
    }

    fn status(&self) -> StatusView {
        std::thread::sleep(self.delay);
        StatusView {
            instance: "fake".to_owned(),
            pid: std::process::id(),
            version: "0.1.0".to_owned(),
            uptime_s: 1.5,
            generation: 1,
            shards: vec![ShardView {
                shard: 0,
                heartbeat_age_ms: Some(3),
                targets: 3,
                in_flight: 0,
                probes: 99,
                ring_restricted: true,
            }],
            attached: vec![attached()],
            warming_count: 0,
            healthy_count: 2,
            backend_count: 3,
            transitions_dropped: 0,
            verdict_to_kernel_ns: None,
            lateness_us: None,
            packets: None,
            flow_entries: Vec::new(),
            privilege: None,
            sources: Vec::new(),
        }
    }

    fn figures(&self, _: bool) -> Figures {
        std::thread::sleep(self.delay);
        let pool = PoolFigures { name: "web".to_owned(), takes_new: 2, ..Default::default() };
        Figures { pools: vec![pool], ..Figures::default() }
    }

    fn set_health(
        &self,
        pattern: &Pattern,
        word: Override,
        terms: &Terms,
    ) -> Result<Vec<String>, ControlError> {
        let mut all = self.backends.lock().expect("no test panics inside");
        let mut names = Vec::new();
        for view in all.iter_mut().filter(|view| is_meant(pattern, view)) {
            view.admin = word.into();
            view.health_said = Some(terms.said());
            names.push(view.name.clone());
        }
        if names.is_empty() {
            return Err(ControlError::NoBackendMatches { pattern: pattern.as_str().to_owned() });
        }
        Ok(names)
    }

    fn guards(&self) -> Vec<GuardView> {
        let evidence = "this host probed late".to_owned();
        vec![GuardView { pool: "web".to_owned(), evidence, fallen: 2, left_ms: 5_000 }]
    }

    fn release_guard(&self, pool: Option<&str>) -> Result<Vec<String>, ControlError> {
        match pool {
            None | Some("web") => Ok(vec!["web".to_owned()]),
            Some(other) => Err(ControlError::Failed { what: format!("no pool {other:?}") }),
        }
    }

    fn explain_flow(&self, question: &FlowQuestion) -> Result<FlowView, ControlError> {
        let because = format!("port {} was asked for", question.destination.port);
        let outcome = "passed".to_owned();
        Ok(FlowView { outcome, because, ..FlowView::default() })
    }

    fn drops(&self, after: u64) -> Vec<DropView> {
        let view = |sequence, service: &str| DropView {
            sequence,
            at_unix_ms: 1_795_973_428_250,
            source: "192.0.2.1:40000".to_owned(),
            destination: "198.51.100.1:80".to_owned(),
            protocol: "tcp".to_owned(),
            size_bytes: 74,
            service: service.to_owned(),
            backend: None,
            reason: "none_takes_new".to_owned(),
            observe: false,
        };
        let all = [view(1, "www"), view(2, "other"), view(3, "www")];
        all.into_iter().filter(|view| after < view.sequence).collect()
    }

    /// Adds and removes; the rest is refused with what was asked.
    fn change_members(&self, change: &MemberChange) -> Result<MembersChanged, ControlError> {
        std::thread::sleep(self.delay);
        let mut all = self.backends.lock().expect("no test panics inside");
        let names: Vec<String> = match change {
            MemberChange::Add { pool, backends } => {
                let first = u32::try_from(all.len()).expect("few");
                let name = |new: &NewBackend| new.name.clone().unwrap_or(new.address.clone());
                let added = (first..).zip(backends);
                all.extend(added.map(|(index, new)| backend(pool, &name(new), index)));
                backends.iter().map(|new| format!("{pool}.{}", name(new))).collect()
            }
            MemberChange::Remove { pattern } => {
                all.extract_if(.., |view| is_meant(pattern, view)).map(|view| view.name).collect()
            }
            other => return Err(ControlError::Refused { what: format!("{other:?}") }),
        };
        Ok(MembersChanged { names, notes: vec!["a note".to_owned()] })
    }

    fn reload(&self, _dry_run: bool) -> Result<Reloaded, ControlError> {
        Err(ControlError::Refused { what: "line 7 is wrong".to_owned() })
    }
}

/// A fake host behind a real socket.
pub(crate) struct Served {
    pub(crate) root: TempDir,
    pub(crate) journal: Arc<Journal>,
    server: Option<ControlServer>,
}

impl Served {
    /// Where its metrics are.
    pub(crate) fn metrics(&self) -> SocketAddr {
        self.server.as_ref().and_then(ControlServer::metrics_address).expect("it has them")
    }
}

impl Served {
    pub(crate) fn new(host: Fake, options: Options) -> Self {
        let root = TempDir::new().expect("a directory");
        let journal = Arc::new(Journal::default());
        let claim = Claim::new(&root.path().join("fake"), "fake").expect("a claim");
        let server = ControlServer::start(claim, Arc::new(host), Arc::clone(&journal), options)
            .expect("a server");
        Self { root, journal, server: Some(server) }
    }

    /// The run directory.
    pub(crate) fn directory(&self) -> PathBuf {
        self.root.path().join("fake")
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.directory()).expect("an agent")
    }

    pub(crate) fn connect(&self) -> Raw {
        let stream = UnixStream::connect(self.directory().join("admin.sock")).expect("a socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        Raw(BufReader::new(stream))
    }

    pub(crate) fn stop(&mut self) {
        self.server.take().expect("it runs").stop();
    }
}

/// A connection without manners.
pub(crate) struct Raw(BufReader<UnixStream>);

impl Raw {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the socket takes it");
    }

    /// The next response; `None` when the server has closed.
    pub(crate) fn response(&mut self) -> Option<ResponseLine> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).expect("an answer or an end in time");
        if line.is_empty() {
            return None;
        }
        assert_eq!(line.pop(), Some(b'\n'), "a whole line");
        Some(serde_json::from_slice(&line).expect("a response"))
    }

    /// Asks for the status and gets it.
    #[track_caller]
    pub(crate) fn is_answered(&mut self) {
        self.send(STATUS);
        let response = self.response().expect("an answer");
        assert!(matches!(response.reply, Some(Reply::Status(_))), "{response:?}");
    }

    /// Says that nothing more will be sent.
    pub(crate) fn close_sending(&self) {
        self.0.get_ref().shutdown(Shutdown::Write).expect("an open socket");
    }

    /// Reads what there is; whether it ends before the end of a line.
    pub(crate) fn unread_is_cut(&mut self) -> bool {
        let mut line = Vec::new();
        let end = self.0.read_until(b'\n', &mut line);
        end.is_ok() && !line.is_empty() && !line.ends_with(b"\n")
    }
}

/// Options of the real agent but for the time that a request may take.
pub(crate) fn hurried(milliseconds: u64) -> Options {
    Options { request_time: Duration::from_millis(milliseconds), ..Options::default() }
}

#[track_caller]
pub(crate) fn wait_until(what: &str, mut predicate: impl FnMut() -> bool) {
    let start = Instant::now();
    while !predicate() {
        assert!(start.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_meant(pattern: &Pattern, view: &BackendView) -> bool {
    let backend = &view.name[view.pool.len() + 1..];
    pattern.matches(&view.pool, backend)
}

fn backend(pool: &str, name: &str, index: u32) -> BackendView {
    BackendView {
        name: format!("{pool}.{name}"),
        pool: pool.to_owned(),
        address: "192.0.2.1:80".to_owned(),
        weight: 1,
        index,
        admin: Admin::Auto,
        standing: StandingView::Member,
        standing_until_unix_ms: None,
        health_said: None,
        drain_said: None,
        state: ProbeState::Healthy,
        takes_new: true,
        good: 8,
        rule: Some(RuleView::Window { threshold: 3, window: 8 }),
        registers: [u64::MAX, 0, 0, 0, u64::MAX, 0, u64::MAX - 1, (1 << 53) + 1].into(),
        average_s: 0.001_25,
        last_s: 0.001,
        last_change_unix_ms: Some(1_795_973_428_000),
        last_change_ns: 1_000_000_000,
        cause: r"HTTP/1.1 200 \x1b[31mOK".to_owned(),
        origin: "configuration".to_owned(),
        counters: Some(BackendCountersView { new_flows: 17, skipped: 5, ..Default::default() }),
    }
}

fn attached() -> AttachedView {
    AttachedView {
        interface: "eth0".to_owned(),
        program: "xdp".to_owned(),
        mode: "native".to_owned(),
    }
}
