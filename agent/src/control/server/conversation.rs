//! One connection's conversation: who the peer is, its requests, its limits.

use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::rc::Rc;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{Options, Service};
use crate::control::peer::supplementary_groups;
use crate::control::protocol::{self, Asker, ErrorKind};
use crate::control::readers::Readers;

/// Starts a conversation with a peer who may have one.
pub(super) fn admit(stream: UnixStream, service: &Rc<Service>) {
    let asker = match asker(&stream, &service.options) {
        Ok(Ok(asker)) => asker,
        Ok(Err(uid)) => {
            tracing::warn!("uid {uid} tried the admin socket and was refused");
            let readers = service.options.readers.as_ref();
            let or = readers.map_or_else(String::new, |it| format!(", or join group {}", it.name));
            let message = format!("uid {uid} may not ask this agent: run as root{or}");
            return refuse(stream, &protocol::refusal(ErrorKind::NotAllowed, message));
        }
        Err(error) => {
            tracing::warn!("the admin socket cannot tell who its peer is: {error}");
            return;
        }
    };
    let Ok(place) = Arc::clone(&service.connections).try_acquire_owned() else {
        let message = format!(
            "all {} connections to this agent are taken: try again",
            service.options.connections_max
        );
        return refuse(stream, &protocol::refusal(ErrorKind::TooManyConnections, message));
    };
    tokio_uring::spawn(converse((stream, asker), Rc::clone(service), place));
}

/// Who the peer is, by what the kernel saw when it connected; else the user who may not ask.
fn asker(stream: &UnixStream, options: &Options) -> io::Result<Result<Asker, u32>> {
    let peer = stream.peer_cred()?;
    let uid = peer.uid();
    if options.allowed_uids.contains(&uid) {
        return Ok(Ok(Asker { uid, may_change: true }));
    }
    let Some(Readers { gid, .. }) = options.readers else {
        return Ok(Err(uid));
    };
    let reads = peer.gid() == gid || supplementary_groups(stream.as_fd())?.contains(&gid);
    Ok(if reads { Ok(Asker { uid, may_change: false }) } else { Err(uid) })
}

/// Tells the peer why not, without waiting for it: a fresh socket's buffer takes one line.
fn refuse(stream: UnixStream, line: &[u8]) {
    if let Err(error) = stream.into_std().and_then(|mut stream| stream.write_all(line)) {
        tracing::debug!("a refused client did not hear why: {error}");
    }
}

/// Answers one connection's requests until it ends, breaks a limit or stops reading.
async fn converse(
    (stream, asker): (UnixStream, Asker),
    service: Rc<Service>,
    _place: OwnedSemaphorePermit,
) {
    let limit = service.options.request_time;
    let mut stream = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let (response, go_on) = match read(&mut stream, &mut line, &service.options).await {
            Received::Line => (answer(std::mem::take(&mut line), asker, &service).await, true),
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

async fn answer(line: Vec<u8>, asker: Asker, service: &Service) -> Vec<u8> {
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
            let response = protocol::respond(&line, asker, &*host, &journal);
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
