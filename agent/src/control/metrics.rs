//! What Prometheus reads: text on a loopback port, by HTTP.
//!
//! axum on a listener of tokio's, inside the control plane's runtime. A connection is one scrape: a
//! task of its own, closed after the response, or when its time is over. The figures are gathered
//! by one blocking thread at a time and at most once a second, and everybody who asks meanwhile
//! gets the same bytes. So a scraper that is slow, stuck, or one of many costs connections and
//! nothing else.

use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::history;
use super::host::Host;
use super::journal::Journal;

/// From the figures to families.
mod families;
/// The process itself, as every Prometheus client tells it.
mod process;
/// Families as text.
mod text;

/// Where it is read.
pub const PATH: &str = "/metrics";
/// Connections at once; one more is told so and closed.
pub const CONNECTIONS_MAX: usize = 32;
/// From a connection's beginning to its end, response included, unless it is told otherwise. A scrape
/// takes a moment; Prometheus gives up after 10 s itself.
pub const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// Bytes of a request: a scrape's has some 300.
const REQUEST_BYTES_MAX: usize = 16 * 1024;
/// Bytes of a response; more is refused, with the remedy.
const RESPONSE_BYTES_MAX: usize = 256 << 20;
/// How old figures may be that are handed out once more.
const FIGURES_AGE_MAX: Duration = Duration::from_secs(1);
/// After a failed accept (no descriptors), before the next.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// What is told, and of what.
#[derive(Clone)]
pub(super) struct Source {
    pub(super) host: Arc<dyn Host>,
    pub(super) journal: Arc<Journal>,
    /// `None` = no history is kept.
    pub(super) history: Option<Arc<history::Status>>,
    /// Whether each backend has series of its own.
    pub(super) per_backend: bool,
    /// See [`CONNECTION_TIME`].
    pub(super) time: Duration,
}

/// A bound port that is not served yet.
pub(super) struct Port(StdTcpListener);

impl Port {
    /// Binds it.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Self> {
        let listener = StdTcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self(listener))
    }

    /// Where it is.
    pub(super) fn address(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves it for ever.
    pub(super) async fn serve(self, source: Source) {
        let listener = match TcpListener::from_std(self.0) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!("the metrics port cannot be served: {error}"),
        };
        let time = source.time;
        let scrapes = Arc::new(Scrapes {
            source,
            gathering: Arc::new(Semaphore::new(1)),
            newest: Mutex::default(),
        });
        let router = Router::new().route(PATH, get(answer)).fallback(elsewhere).with_state(scrapes);
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let router = Rc::new(router);
        loop {
            match listener.accept().await {
                Ok((stream, _)) => match Arc::clone(&places).try_acquire_owned() {
                    Ok(place) => {
                        tokio_uring::spawn(converse(stream, Rc::clone(&router), time, place));
                    }
                    Err(_) => refuse(stream),
                },
                Err(error) => {
                    tracing::warn!("the metrics port cannot accept: {error}");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// One request, one response, within the time.
async fn converse(
    stream: TcpStream,
    router: Rc<Router>,
    time: Duration,
    _place: OwnedSemaphorePermit,
) {
    let service = TowerToHyperService::new(Router::clone(&router));
    let mut connection = http1::Builder::new();
    connection.keep_alive(false).max_buf_size(REQUEST_BYTES_MAX);
    let connection = connection.serve_connection(TokioIo::new(stream), service);
    match timeout(time, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("a scrape broke off: {error}"),
        Err(_) => tracing::debug!("a scrape that took too long was dropped"),
    }
}

/// Tells one that is too many, without waiting for it: a fresh socket's buffer takes this.
fn refuse(stream: TcpStream) {
    const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\
        Content-Length: 45\r\n\r\nall connections to this port are taken: later";
    if let Err(error) = stream.into_std().and_then(|mut stream| stream.write_all(BUSY)) {
        tracing::debug!("a refused scraper did not hear why: {error}");
    }
}

/// What stands at other paths.
async fn elsewhere() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "sickbay: the metrics are at /metrics\n")
}

async fn answer(State(scrapes): State<Arc<Scrapes>>) -> Response {
    match scrapes.text().await {
        Ok(text) => ([(header::CONTENT_TYPE, text::CONTENT_TYPE)], text).into_response(),
        Err(why) => (StatusCode::INTERNAL_SERVER_ERROR, why).into_response(),
    }
}

struct Scrapes {
    source: Source,
    /// Held by the thread that gathers, even when nobody waits for it any more.
    gathering: Arc<Semaphore>,
    newest: Mutex<Option<(Instant, Bytes)>>,
}

impl Scrapes {
    /// The newest figures as text.
    async fn text(&self) -> Result<Bytes, String> {
        // Whoever comes while they are gathered waits here, and finds them then.
        let mut newest = self.newest.lock().await;
        if let Some((gathered, text)) = &*newest
            && gathered.elapsed() < FIGURES_AGE_MAX
        {
            return Ok(text.clone());
        }
        let turn = Arc::clone(&self.gathering).acquire_owned().await;
        let source = self.source.clone();
        let gathered = tokio::task::spawn_blocking(move || {
            let text = source.text();
            drop(turn);
            text
        });
        let text = gathered.await.map_err(|error| {
            tracing::error!("the metrics could not be gathered: {error}");
            "the agent failed at it: see its log\n".to_owned()
        })??;
        *newest = Some((Instant::now(), text.clone()));
        Ok(text)
    }
}

impl Source {
    /// Gathers the figures and writes them out.
    fn text(&self) -> Result<Bytes, String> {
        let figures = self.host.figures(self.per_backend);
        let mut text = text::Text::default();
        families::agent(&mut text, &figures);
        families::journal(&mut text, &self.journal);
        if let Some(history) = &self.history {
            families::history(&mut text, history.view());
        }
        families::process(&mut text, &process::read());
        let text = text.finish();
        if RESPONSE_BYTES_MAX < text.len() {
            return Err(format!(
                "these are {} MiB: set metrics_per_target = false\n",
                text.len() >> 20
            ));
        }
        Ok(text.into())
    }
}
