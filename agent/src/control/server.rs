//! The admin socket's server: a thread of its own on the tokio-uring runtime.
//!
//! Connections are tasks, so one that is slow or silent holds up nobody; answers are made on
//! tokio's blocking threads, because reading the counters of tens of thousands of backends takes
//! a while. It also drains the journal of transitions into the log and the history, and serves the
//! metrics port.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use super::claim::Claim;
use super::history::writer::{HistoryError, Queue, Writer, prepare};
use super::history::{self, segments::Opened};
use super::host::Host;
use super::journal::{Journal, TransitionView};
use super::metrics;
use super::protocol::{self, ErrorKind};
use crate::fleet::{History, Observe};

/// Answers made at once; each may hold some tens of megabytes for the largest fleets.
const ANSWERS_MAX: usize = 4;
/// Between two looks into the journal. A timer, because waking this thread would cost a shard a
/// system call at each transition.
const DRAIN_INTERVAL: Duration = Duration::from_millis(50);
/// When it stops, what the history still lacks is waited for so long.
const HISTORY_STOP: Duration = Duration::from_secs(2);
/// After a failed accept (no descriptors), before the next.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Who may ask, and how much.
#[derive(Clone, Debug)]
pub struct Options {
    /// Users that are answered.
    pub allowed_uids: Vec<u32>,
    /// Longest request line, LF not counted.
    pub request_bytes_max: usize,
    /// Time for a request to arrive, again for it to be answered, and again to take the response.
    pub request_time: Duration,
    /// Time for a change of members to be answered: the tables of a large pool take a while.
    pub change_time: Duration,
    /// Connections at once; one more is told so and closed.
    pub connections_max: usize,
    /// Where the agent tells what it does.
    pub observe: Observe,
    /// Time for a scrape of the metrics, from its connection to its end.
    pub scrape_time: Duration,
}

impl Options {
    /// The usual ones, with these.
    #[must_use]
    pub fn observed(observe: Observe) -> Self {
        Self { observe, ..Self::default() }
    }
}

impl Default for Options {
    /// Root and this process's own user; 1 MiB, some ten thousand backends to add; 5 s, a minute for
    /// a change; 64 connections; no metrics and no history.
    fn default() -> Self {
        Self {
            allowed_uids: vec![0, nix::unistd::geteuid().as_raw()],
            request_bytes_max: 1024 * 1024,
            request_time: Duration::from_secs(5),
            change_time: Duration::from_secs(60),
            connections_max: 64,
            observe: Observe::default(),
            scrape_time: metrics::CONNECTION_TIME,
        }
    }
}

/// A running server. Dropped, it stops.
#[derive(Debug)]
pub struct ControlServer {
    metrics: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ControlServer {
    /// Binds the admin socket (0600) in the claimed directory and serves it until stopped; the
    /// claim is let go then.
    ///
    /// # Errors
    ///
    /// The socket or the metrics port cannot be bound, the history cannot be kept where it should, or
    /// this host has no io_uring.
    pub fn start(
        claim: Claim,
        host: Arc<dyn Host>,
        journal: Arc<Journal>,
        options: Options,
    ) -> Result<Self, ServerError> {
        let listener = bind(&claim)?;
        let Observe { metrics, metrics_per_target, history, .. } = options.observe.clone();
        let port = metrics.map(bind_metrics).transpose()?;
        let opened = history.as_ref().map(prepare).transpose()?;
        let status = history.is_some().then(|| Arc::new(history::Status::default()));
        let source = metrics::Source {
            host: Arc::clone(&host),
            journal: Arc::clone(&journal),
            history: status.clone(),
            per_backend: metrics_per_target,
            time: options.scrape_time,
        };
        let metrics = port.as_ref().and_then(|port| port.address().ok());
        let history = history.zip(opened).zip(status);
        let observed = Observed {
            metrics: port.map(|port| (port, source)),
            history: history.map(|((history, opened), status)| (history, opened, status)),
        };
        let (stop, stopped) = oneshot::channel();
        let (started, start) = mpsc::sync_channel(1);
        let service = Service {
            host,
            journal,
            connections: Arc::new(Semaphore::new(options.connections_max)),
            answers: Arc::new(Semaphore::new(ANSWERS_MAX)),
            options,
        };
        let thread = std::thread::Builder::new()
            .name("sickbay-control".to_owned())
            .spawn(move || {
                run(listener, service, observed, &started, stopped);
                drop(claim);
            })
            .map_err(|source| ServerError::Thread { source })?;
        let server = Self { metrics, stop: Some(stop), thread: Some(thread) };
        match start.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(source)) => Err(ServerError::Runtime { source }),
            Err(mpsc::RecvError) => {
                Err(ServerError::Runtime { source: io::Error::other("its thread ended at once") })
            }
        }
    }

    /// Where the metrics are read.
    #[must_use]
    pub const fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// Stops serving, logs what the journal still holds, removes the socket and the lock.
    pub fn stop(mut self) {
        self.finish();
    }

    fn finish(&mut self) {
        if let Some(stop) = self.stop.take()
            && stop.send(()).is_err()
        {
            tracing::debug!("the control thread had ended before it was stopped");
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the control thread panicked");
        }
    }
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Why the server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No socket.
    #[error("cannot bind the admin socket {path}: {source}")]
    Bind {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// No metrics port.
    #[error(
        "cannot listen on {address} for metrics: {source}; choose another port for metrics in \
         [agent], or stop who has it (`ss -ltnp` shows it)"
    )]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// No history.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// No runtime.
    #[error(
        "cannot start the control plane's io_uring runtime: {source}; sysctl \
         kernel.io_uring_disabled must be 0, and no seccomp filter may forbid io_uring_setup"
    )]
    Runtime {
        /// Why.
        source: io::Error,
    },
    /// No thread.
    #[error("cannot start the control thread: {source}")]
    Thread {
        /// Why.
        source: io::Error,
    },
}

/// What every connection needs.
struct Service {
    host: Arc<dyn Host>,
    journal: Arc<Journal>,
    connections: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    options: Options,
}

fn bind(claim: &Claim) -> Result<StdUnixListener, ServerError> {
    let path = claim.socket_path();
    // The directory is 0700: nobody reaches the socket between bind and chmod.
    StdUnixListener::bind(&path)
        .and_then(|listener| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        })
        .map_err(|source| ServerError::Bind { path, source })
}

fn bind_metrics(address: SocketAddr) -> Result<metrics::Port, ServerError> {
    metrics::Port::bind(address).map_err(|source| ServerError::Metrics { address, source })
}

/// What is told besides the answers.
struct Observed {
    metrics: Option<(metrics::Port, metrics::Source)>,
    history: Option<(History, Option<Opened>, Arc<history::Status>)>,
}

/// The control thread.
fn run(
    listener: StdUnixListener,
    service: Service,
    observed: Observed,
    started: &mpsc::SyncSender<io::Result<()>>,
    stopped: oneshot::Receiver<()>,
) {
    let report = |result| {
        started.send(result).expect("`start` waits for exactly one");
    };
    let runtime = match tokio_uring::Runtime::new(&tokio_uring::builder()) {
        Ok(runtime) => runtime,
        Err(error) => return report(Err(error)),
    };
    let service = Rc::new(service);
    runtime.block_on(async {
        let listener = match UnixListener::from_std(listener) {
            Ok(listener) => listener,
            Err(error) => return report(Err(error)),
        };
        report(Ok(()));
        let queue = observed.history.map(|(history, opened, status)| {
            let queue = Rc::new(Queue::new(status));
            let writer = Writer::new(history, opened, Rc::clone(&queue));
            (queue, tokio_uring::spawn(writer.run()))
        });
        if let Some((port, source)) = observed.metrics {
            tokio_uring::spawn(port.serve(source));
        }
        let keep = |view: &TransitionView| {
            if let Some((queue, _)) = &queue {
                queue.push(view);
            }
        };
        tokio::select! {
            () = accept(listener, &service) => {}
            () = drain(&service.journal, keep) => {}
            _ = stopped => {}
        }
        while service.journal.drain_to(keep) {}
        if let Some((queue, writer)) = queue {
            queue.close();
            if timeout(HISTORY_STOP, writer).await.is_err() {
                tracing::warn!("the history was not written to its end: its disk is too slow");
            }
        }
    });
}

async fn drain(journal: &Journal, keep: impl Fn(&TransitionView)) {
    loop {
        if journal.drain_to(&keep) {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(DRAIN_INTERVAL).await;
        }
    }
}

async fn accept(listener: UnixListener, service: &Rc<Service>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => admit(stream, service),
            Err(error) => {
                tracing::warn!("the admin socket cannot accept: {error}");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Starts a conversation with a peer who may have one.
fn admit(stream: UnixStream, service: &Rc<Service>) {
    let uid = match stream.peer_cred() {
        Ok(peer) => peer.uid(),
        Err(error) => {
            tracing::warn!("the admin socket cannot tell who its peer is: {error}");
            return;
        }
    };
    if !service.options.allowed_uids.contains(&uid) {
        tracing::warn!("uid {uid} tried the admin socket and was refused");
        let message = format!("uid {uid} may not ask this agent: run as root");
        return refuse(stream, &protocol::refusal(ErrorKind::NotAllowed, message));
    }
    let Ok(place) = Arc::clone(&service.connections).try_acquire_owned() else {
        let message = format!(
            "all {} connections to this agent are taken: try again",
            service.options.connections_max
        );
        return refuse(stream, &protocol::refusal(ErrorKind::TooManyConnections, message));
    };
    tokio_uring::spawn(converse((stream, uid), Rc::clone(service), place));
}

/// Tells the peer why not, without waiting for it: a fresh socket's buffer takes one line.
fn refuse(stream: UnixStream, line: &[u8]) {
    if let Err(error) = stream.into_std().and_then(|mut stream| stream.write_all(line)) {
        tracing::debug!("a refused client did not hear why: {error}");
    }
}

/// Answers one connection's requests until it ends, breaks a limit or stops reading.
async fn converse(
    (stream, uid): (UnixStream, u32),
    service: Rc<Service>,
    _place: OwnedSemaphorePermit,
) {
    let limit = service.options.request_time;
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let (response, go_on) = match read(&mut stream, &mut line, &service.options).await {
            Received::Line => (answer(std::mem::take(&mut line), uid, &service).await, true),
            Received::TooLong => {
                let most = service.options.request_bytes_max;
                let message = format!("the request is longer than {most} bytes");
                (protocol::refusal(ErrorKind::TooLarge, message), false)
            }
            Received::TooLate if line.is_empty() => return,
            Received::TooLate => {
                let message = format!("the request did not arrive within {limit:?}");
                (protocol::refusal(ErrorKind::TooSlow, message), false)
            }
            Received::End => return,
        };
        match timeout(limit, stream.get_mut().write_all(&response)).await {
            Ok(Ok(())) if go_on => {}
            Ok(Ok(())) => return,
            Ok(Err(error)) => return tracing::debug!("a client went away: {error}"),
            Err(_) => return tracing::debug!("a client that does not read was dropped"),
        }
    }
}

/// What came of waiting for a request.
enum Received {
    /// One line, or what stood before the end.
    Line,
    /// More than the limit.
    TooLong,
    /// Nothing whole in time.
    TooLate,
    /// The peer is gone.
    End,
}

async fn read(
    stream: &mut BufReader<UnixStream>,
    line: &mut Vec<u8>,
    options: &Options,
) -> Received {
    let most = options.request_bytes_max;
    let mut bounded = stream.take(u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1));
    match timeout(options.request_time, bounded.read_until(b'\n', line)).await {
        Err(_) => Received::TooLate,
        Ok(Err(_)) => Received::End,
        Ok(Ok(_)) if line.is_empty() => Received::End,
        Ok(Ok(_)) if most < line.len() && !line.ends_with(b"\n") => Received::TooLong,
        Ok(Ok(_)) => Received::Line,
    }
}

async fn answer(line: Vec<u8>, uid: u32, service: &Service) -> Vec<u8> {
    let host = Arc::clone(&service.host);
    let journal = Arc::clone(&service.journal);
    let answers = Arc::clone(&service.answers);
    let limit = if protocol::is_change(&line) {
        service.options.change_time
    } else {
        service.options.request_time
    };
    let made = timeout(limit, async move {
        let turn = answers.acquire_owned().await;
        tokio::task::spawn_blocking(move || {
            let response = protocol::respond(&line, uid, &*host, &journal);
            drop(turn);
            response
        })
        .await
    });
    match made.await {
        Ok(Ok(response)) => response,
        Ok(Err(error)) => {
            tracing::error!("an answer could not be made: {error}");
            protocol::refusal(ErrorKind::Failed, "the agent failed at it: see its log")
        }
        Err(_) => protocol::refusal(ErrorKind::TooSlow, "the agent is busy: try again"),
    }
}
