//! One HTTP connection of a client: opened from a chosen port, closed by RST.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

/// Longest response head and body that are read; the lab's servers answer with a few bytes.
const RESPONSE_BYTES_MAX: usize = 16 * 1024;

/// An open connection. Dropping it closes it by RST, so that its ports are free at once and a
/// later connection may use the very same ones.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    to: SocketAddr,
}

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The header `X-Backend`: which server this was.
    pub backend: String,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// How far it came.
    pub stage: Stage,
    /// What the system said.
    pub kind: io::ErrorKind,
}

/// How far a connection came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It did not open.
    Connect,
    /// It opened, and no whole answer came.
    Answer,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::Connect => "connecting",
            Stage::Answer => "waiting for the answer",
        };
        write!(formatter, "{stage}: {}", self.kind)
    }
}

impl Connection {
    /// Opens a connection in the calling thread's network namespace; `source_port` 0 lets the
    /// system choose. `timeout` holds for opening and for each later receive and send.
    ///
    /// # Errors
    /// Refused, timed out, or the ports are taken.
    pub fn open(to: SocketAddr, source_port: u16, timeout: Duration) -> Result<Self, Failure> {
        let failed = |errno: Errno| Failure {
            stage: Stage::Connect,
            kind: io::Error::from_raw_os_error(errno as i32).kind(),
        };
        let stream = open_stream(to, source_port, timeout).map_err(failed)?;
        let set = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_nodelay(true))
            .and_then(|()| stream.set_read_timeout(Some(timeout)))
            .and_then(|()| stream.set_write_timeout(Some(timeout)));
        set.map_err(|error| Failure { stage: Stage::Connect, kind: error.kind() })?;
        Ok(Self { stream, to })
    }

    /// Sends one request and reads its whole answer; the connection stays open.
    ///
    /// # Errors
    /// The connection broke, the answer did not come in time, or it is none.
    pub fn ask(&mut self) -> Result<Answer, Failure> {
        let failed = |error: io::Error| Failure { stage: Stage::Answer, kind: error.kind() };
        let request = format!("GET / HTTP/1.1\r\nHost: {}\r\n\r\n", self.to);
        self.stream.write_all(request.as_bytes()).map_err(failed)?;
        self.read_answer().map_err(failed)
    }

    /// The port it was opened from.
    ///
    /// # Errors
    /// None in practice; the system is asked.
    pub fn source_port(&self) -> io::Result<u16> {
        Ok(self.stream.local_addr()?.port())
    }

    fn read_answer(&mut self) -> io::Result<Answer> {
        let mut received = Vec::with_capacity(512);
        let mut part = [0; 1024];
        loop {
            // With a timeout the kernel gives a receive up for any signal, and does not begin it
            // again (signal(7)): that says nothing of the connection.
            let count = match self.stream.read(&mut part) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            received.extend_from_slice(&part[..count]);
            if let Some(answer) = whole_answer(&received) {
                return answer.ok_or_else(|| io::ErrorKind::InvalidData.into());
            }
            if RESPONSE_BYTES_MAX < received.len() {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }
}

fn open_stream(to: SocketAddr, source_port: u16, timeout: Duration) -> Result<TcpStream, Errno> {
    let (family, any) = match to {
        SocketAddr::V4(_) => (AddressFamily::Inet, IpAddr::from(Ipv4Addr::UNSPECIFIED)),
        SocketAddr::V6(_) => (AddressFamily::Inet6, IpAddr::from(Ipv6Addr::UNSPECIFIED)),
    };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let descriptor = socket(family, SockType::Stream, flags, None)?;
    let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&descriptor, sockopt::Linger, &at_once)?;
    if source_port != 0 {
        setsockopt(&descriptor, sockopt::ReuseAddr, &true)?;
        let source = SockaddrStorage::from(SocketAddr::new(any, source_port));
        bind(descriptor.as_raw_fd(), &source)?;
    }
    match connect(descriptor.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) => return Ok(descriptor.into()),
        Err(Errno::EINPROGRESS) => {}
        Err(errno) => return Err(errno),
    }
    let deadline = Instant::now() + timeout;
    let mut descriptors = [PollFd::new(descriptor.as_fd(), PollFlags::POLLOUT)];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut descriptors, limit) {
            Ok(0) => return Err(Errno::ETIMEDOUT),
            Ok(_) => break,
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    match nix::sys::socket::getsockopt(&descriptor, sockopt::SocketError)? {
        0 => Ok(descriptor.into()),
        errno => Err(Errno::from_raw(errno)),
    }
}

/// `None` while bytes are missing; `Some(None)` when it is no answer of a lab server.
fn whole_answer(received: &[u8]) -> Option<Option<Answer>> {
    let head_end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let Ok(head) = std::str::from_utf8(&received[..head_end]) else {
        return Some(None);
    };
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    let header = |wanted: &str| {
        head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(wanted).then(|| value.trim())
        })
    };
    let length = header("content-length").and_then(|value| value.parse::<usize>().ok());
    let (Some(status), Some(length), Some(backend)) = (status, length, header("x-backend")) else {
        return Some(None);
    };
    let complete = head_end + length <= received.len();
    complete.then(|| Some(Answer { status, backend: backend.to_owned() }))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::clock::wait_until;

    const ANSWER: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nX-Backend: backend-7\r\n\r\nabc";

    #[test]
    fn answer_is_whole_only_with_its_last_byte() {
        assert_eq!(whole_answer(&ANSWER[..ANSWER.len() - 1]), None);
        let answer = Answer { status: 200, backend: "backend-7".to_owned() };
        assert_eq!(whole_answer(ANSWER), Some(Some(answer)));
    }

    #[test]
    fn answer_without_a_name_is_none_of_ours() {
        assert_eq!(whole_answer(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Some(None));
    }

    #[test]
    fn same_port_opens_again_right_after() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 256];
                assert_ne!(stream.read(&mut request).unwrap(), 0);
                stream.write_all(ANSWER).unwrap();
                // Held until the client is done, so that the client closes first.
                let _ = stream.read(&mut request);
            }
        });
        let timeout = Duration::from_secs(5);
        // Below those that the system chooses from: nobody is given it between two of ours.
        let port = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
        for _ in 0..3 {
            // A process that a test beside this one starts holds the last connection until it has
            // begun its program.
            let mut connection = wait_until("the port is free", timeout, || {
                Connection::open(to, port, timeout).ok()
            })
            .unwrap();
            assert_eq!(connection.ask().unwrap().backend, "backend-7");
            assert_eq!(connection.source_port().unwrap(), port);
        }
        server.join().unwrap();
    }

    #[test]
    fn closed_port_is_refused_while_connecting() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let failure = Connection::open(closed, 0, Duration::from_secs(5)).unwrap_err();
        assert_eq!(failure.stage, Stage::Connect);
        assert_eq!(failure.kind, io::ErrorKind::ConnectionRefused);
    }
}
