//! The admin socket's server: a thread of its own on the tokio-uring runtime.
//!
//! Connections are tasks, so one that is slow or silent holds up nobody; answers are made on
//! tokio's blocking threads, because reading the counters of tens of thousands of backends takes
//! a while. It also drains the journal of transitions into the log and the history, and serves the
//! metrics port.

use std::io;
use std::net::SocketAddr;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::claim::Claim;
use super::history::writer::{HistoryError, Queue, Writer};
use super::history::{self, segments::Opened};
use super::host::Host;
use super::journal::{Journal, TransitionView};
use super::metrics;
use super::readers::{Readers, ReadersError};
use crate::fleet::{History, Observe};

use conversation::admit;

/// What is opened before anything is served.
mod bound;
/// One connection.
mod conversation;

pub use bound::Bound;

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
    /// Users that are answered whatever they ask.
    pub allowed_uids: Vec<u32>,
    /// A group whose members may look.
    pub readers: Option<Readers>,
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
    pub fn observed(observe: Observe, readers: Option<Readers>) -> Self {
        Self { observe, readers, ..Self::default() }
    }
}

impl Default for Options {
    /// Root and this process's own user, and nobody else; 1 MiB, some ten thousand backends to add; 5 s, a minute for
    /// a change; 64 connections; no metrics and no history.
    fn default() -> Self {
        Self {
            allowed_uids: vec![0, nix::unistd::geteuid().as_raw()],
            readers: None,
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
    /// Binds the admin socket in the claimed directory and serves it until stopped; the claim is
    /// let go then.
    ///
    /// # Errors
    ///
    /// As [`Bound::new`] and [`Bound::serve`].
    pub fn start(
        claim: Claim,
        host: Arc<dyn Host>,
        journal: Arc<Journal>,
        options: Options,
    ) -> Result<Self, ServerError> {
        Bound::new(claim, options)?.serve(host, journal)
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
    /// Nothing for the group that may look.
    #[error(transparent)]
    Readers(#[from] ReadersError),
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
