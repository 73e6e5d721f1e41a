//! A backend whose listening ends and begins by one system call each: a process of nginx would take
//! much longer to start than what is measured.
//!
//! What comes to its machine's own address is a probe, and is answered 200. What comes to any other is
//! a connection of a client, and is closed at once by RST, which leaves nothing behind.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::socket::{Backlog, Shutdown, listen, setsockopt, shutdown, sockopt};
use sickbay_lab::clock::monotonic_ns;
use sickbay_lab::network::{Machine, PORT};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";
/// A probe sends its request at once, or is none.
const REQUEST_WAIT: Duration = Duration::from_millis(50);
/// Between two looks of a server that does not listen.
const DEAD_LOOK: Duration = Duration::from_micros(500);
/// Connections that wait for this server's one thread.
const BACKLOG: i32 = 1024;

/// A running server. Dropping it ends it.
pub(super) struct Server {
    listener: Arc<TcpListener>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// A server on `machine`, listening on every IPv4 address.
    ///
    /// # Errors
    /// When the port is taken.
    pub(super) fn start(machine: &Machine) -> Result<Self> {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let listener = machine.namespace.run(|| TcpListener::bind(any));
        let listener =
            Arc::new(listener.with_context(|| format!("{}: cannot listen", machine.name))?);
        let stopping = Arc::new(AtomicBool::new(false));
        let server = (Arc::clone(&listener), Arc::clone(&stopping), IpAddr::V4(machine.ipv4));
        let thread = thread::spawn(move || serve(&server.0, &server.1, server.2));
        let server = Self { listener, stopping, thread: Some(thread) };
        server.revive()?;
        Ok(server)
    }

    /// Stops to listen: from now on the machine refuses, and what waited is reset. Returns the moment
    /// just before (CLOCK_MONOTONIC, ns).
    ///
    /// # Errors
    /// When it did not listen.
    pub(super) fn die(&self) -> Result<u64> {
        let died_ns = monotonic_ns();
        shutdown(self.listener.as_raw_fd(), Shutdown::Both).context("cannot stop to listen")?;
        Ok(died_ns)
    }

    /// Listens again. Returns the moment just before.
    ///
    /// # Errors
    /// When the system refuses.
    pub(super) fn revive(&self) -> Result<u64> {
        let revived_ns = monotonic_ns();
        listen(&self.listener, Backlog::new(BACKLOG)?).context("cannot listen again")?;
        Ok(revived_ns)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        // Fails where it is dead already, and then the thread looks soon.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve(listener: &TcpListener, stopping: &AtomicBool, probed: IpAddr) {
    while !stopping.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
                let _ = setsockopt(&stream, sockopt::Linger, &at_once);
                if stream.local_addr().is_ok_and(|address| address.ip() == probed) {
                    // A probe that breaks off is its prober's matter.
                    let _ = answer(&stream);
                }
            }
            // EINVAL: it does not listen.
            Err(_) => thread::sleep(DEAD_LOOK),
        }
    }
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    // The prober closes first; a reset right after the answer could overtake it.
    setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 0, l_linger: 0 })?;
    stream.set_read_timeout(Some(REQUEST_WAIT))?;
    let mut request = [0; 1024];
    if stream.read(&mut request)? != 0 {
        stream.write_all(ANSWER)?;
    }
    Ok(())
}
