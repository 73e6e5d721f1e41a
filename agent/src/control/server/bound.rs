//! What the server opens before it serves: the admin socket, the metrics port, the history. This
//! may need rights that a running agent has given up, and starts no thread.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};

use tokio::sync::{Semaphore, oneshot};

use super::{ANSWERS_MAX, ControlServer, Observed, Options, ServerError, Service, run};
use crate::control::claim::Claim;
use crate::control::history::segments::Opened;
use crate::control::history::{
    self,
    writer::{self, HistoryError},
};
use crate::control::host::Host;
use crate::control::journal::Journal;
use crate::control::metrics;
use crate::control::readers::close_history;
use crate::fleet::{History, Observe};

/// A server that is ready to serve. Dropped, it leaves nothing behind.
pub struct Bound {
    claim: Claim,
    listener: UnixListener,
    port: Option<metrics::Port>,
    opened: Option<Option<Opened>>,
    options: Options,
}

impl Bound {
    /// Binds the admin socket in the claimed directory, and the metrics port; opens the history.
    /// Socket and history are their owner's alone (0600), or their readers' too (0660, 0640).
    ///
    /// # Errors
    ///
    /// The socket or the metrics port cannot be bound, the history cannot be kept where it should,
    /// or something cannot be given to the readers' group.
    pub fn new(claim: Claim, options: Options) -> Result<Self, ServerError> {
        let listener = bind(&claim)?;
        if let Some(readers) = &options.readers {
            readers.let_ask(&claim.socket_path())?;
        }
        let Observe { metrics, history, .. } = &options.observe;
        let port = metrics.map(bind_metrics).transpose()?;
        let opened = history.as_ref().map(writer::prepare).transpose()?;
        if let (Some(History { directory, .. }), Some(Some(_))) = (history, &opened) {
            match &options.readers {
                Some(readers) => readers.let_read_history(directory)?,
                None => close_history(directory)
                    .map_err(|source| HistoryError { directory: directory.clone(), source })?,
            }
        }
        Ok(Self { claim, listener, port, opened, options })
    }

    /// Serves until stopped, on a thread of its own; the claim is let go then.
    ///
    /// # Errors
    ///
    /// This host has no io_uring, or no thread.
    pub fn serve(
        self,
        host: Arc<dyn Host>,
        journal: Arc<Journal>,
    ) -> Result<ControlServer, ServerError> {
        let Self { claim, listener, port, opened, options } = self;
        let Observe { metrics_per_target, history, .. } = options.observe.clone();
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
        let server = ControlServer { metrics, stop: Some(stop), thread: Some(thread) };
        match start.recv() {
            Ok(Ok(())) => Ok(server),
            Ok(Err(source)) => Err(ServerError::Runtime { source }),
            Err(mpsc::RecvError) => {
                Err(ServerError::Runtime { source: io::Error::other("its thread ended at once") })
            }
        }
    }
}

fn bind(claim: &Claim) -> Result<UnixListener, ServerError> {
    let path = claim.socket_path();
    // The directory is 0700: nobody reaches the socket between bind and chmod.
    UnixListener::bind(&path)
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
