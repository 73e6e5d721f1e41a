//! A scripted server: one backend per behaviour, each doing on a connection exactly what its script
//! says, for several clients that must not disturb each other.
//!
//! It listens on every address of its loopback, so it must run in a network namespace of its own.
//! Behaviour number n is at 127.0.1.n; each client has a port of its own, by which its connections
//! are told apart and counted: the n-th connection of a client gets the n-th turn of the script.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use nix::libc::linger;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, Backlog, Shutdown, SockFlag, SockType, SockaddrIn, SockaddrStorage, UnixAddr,
    bind, getpeername, listen, setsockopt, shutdown, socket, sockopt,
};
use nix::sys::time::TimeVal;

/// From a client's port to the one that nothing listens on.
const CLOSED_PORT_OFFSET: u16 = 500;
/// From a client's port to that of its full listeners: listening there excludes the wildcard.
const FULL_PORT_OFFSET: u16 = 600;
/// From a client's port to the first one of its IPv6 backends.
const IPV6_PORT_OFFSET: u16 = 1000;
/// No script waits longer for its client.
const PATIENCE_S: i64 = 8;
/// A connection's thread needs no more.
const STACK_BYTES: usize = 128 * 1024;
/// One write of a body.
const PIECE_BYTES: usize = 64 * 1024;

/// What a backend does on a connection, in this order; at the end it closes.
#[derive(Clone, Debug)]
pub enum Step {
    /// Reads a PROXY header of this version, as Varnish sends it before a probe's request: of
    /// version 1 with the client's own address twice. Any other ends the script.
    AwaitProxyHeader(u8),
    /// Reads the request to its empty line. A client that is gone ends the script.
    AwaitRequest,
    /// Waits until the request has come, and leaves it unread: closing now resets.
    AwaitUnread,
    /// Sends bytes, in one write.
    Send(Vec<u8>),
    /// Sends so many bytes of a body.
    Body(usize),
    /// Sends bytes one at a time, each after a pause.
    Drip(Vec<u8>, Duration),
    /// Sends without end, a piece a millisecond.
    Flood,
    /// Does nothing.
    Pause(Duration),
    /// Closes its own direction.
    HalfClose,
    /// Resets the connection. Nothing can follow.
    Reset,
    /// Reads until the client closes.
    Hold,
}

/// Where a behaviour's backend is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A unix socket.
    Unix,
    /// An IPv4 port that nothing listens on.
    Closed,
    /// An IPv4 listener whose queue is full: a SYN gets no answer.
    Full,
    /// A unix socket whose queue is full.
    UnixFull,
    /// A unix socket's path without a socket.
    UnixMissing,
}

/// A named behaviour: the scripts of its connections, which take turns.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Letters, digits and underscores: Varnish has to take it for a name.
    pub name: &'static str,
    /// Where it is met.
    pub place: Place,
    /// The first connection gets the first, and so on; after the last the first again.
    pub turns: Vec<Vec<Step>>,
}

/// Where a client finds a behaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Over IP.
    Inet(SocketAddr),
    /// A unix socket.
    Unix(PathBuf),
}

/// The running server. Its threads end with the process.
#[derive(Debug)]
pub struct Server {
    behaviours: Arc<[Behaviour]>,
    /// The first client's port; the next one's is one higher.
    port_first: u16,
    directory: PathBuf,
    /// What fills the queues of the full listeners; closing it would make room.
    fillers: Vec<OwnedFd>,
}

/// One client's turns.
#[derive(Debug)]
struct Turns {
    behaviours: Arc<[Behaviour]>,
    counts: Vec<AtomicUsize>,
}

impl Server {
    /// Serves `client_count` clients, on ports from `port_first` on; unix sockets stand in
    /// `directory`.
    ///
    /// # Panics
    /// If a port is taken, or there are more behaviours than addresses.
    #[must_use]
    pub fn start(
        behaviours: Vec<Behaviour>,
        port_first: u16,
        client_count: u16,
        directory: &Path,
    ) -> Self {
        assert!(behaviours.len() < 255, "one address each in 127.0.1.0/24");
        let mut server = Self {
            behaviours: behaviours.into(),
            port_first,
            directory: directory.to_owned(),
            fillers: Vec::new(),
        };
        for client in 0..client_count {
            let turns = Arc::new(Turns {
                behaviours: Arc::clone(&server.behaviours),
                counts: server.behaviours.iter().map(|_| AtomicUsize::new(0)).collect(),
            });
            server.listen(client, &turns);
        }
        server
    }

    /// Where client number `client` finds behaviour number `index`.
    #[must_use]
    pub fn address(&self, index: usize, client: u16) -> Address {
        let host = Ipv4Addr::new(127, 0, 1, u8::try_from(index + 1).expect("below 255"));
        let port = self.port_first + client;
        let number = u16::try_from(index).expect("below 255");
        match self.behaviours[index].place {
            Place::Ipv4 => Address::Inet((host, port).into()),
            Place::Full => Address::Inet((host, port + FULL_PORT_OFFSET).into()),
            Place::Closed => Address::Inet((host, port + CLOSED_PORT_OFFSET).into()),
            Place::Ipv6 => {
                let port = port + IPV6_PORT_OFFSET + 10 * number;
                Address::Inet((Ipv6Addr::LOCALHOST, port).into())
            }
            Place::Unix | Place::UnixFull | Place::UnixMissing => {
                let name = format!("{}-{client}.sock", self.behaviours[index].name);
                Address::Unix(self.directory.join(name))
            }
        }
    }

    fn listen(&mut self, client: u16, turns: &Arc<Turns>) {
        for index in 0..self.behaviours.len() {
            let address = self.address(index, client);
            match (self.behaviours[index].place, &address) {
                (Place::Full, Address::Inet(SocketAddr::V4(address))) => {
                    self.fillers.extend(full_inet(*address));
                }
                (Place::UnixFull, Address::Unix(path)) => self.fillers.extend(full_unix(path)),
                (Place::Unix, Address::Unix(path)) => {
                    serve(UnixListener::bind(path).expect("a path of its own"), index, turns);
                }
                (Place::Ipv6, Address::Inet(address)) => {
                    serve(TcpListener::bind(address).expect("a port of its own"), index, turns);
                }
                _ => {}
            }
        }
        let any = TcpListener::bind((Ipv4Addr::UNSPECIFIED, self.port_first + client))
            .expect("the port is free in this namespace");
        let turns = Arc::clone(turns);
        spawn(move || {
            while let Ok((stream, _)) = any.accept() {
                let Ok(SocketAddr::V4(local)) = stream.local_addr() else { continue };
                turns.take(usize::from(local.ip().octets()[3]) - 1, stream.into());
            }
        });
    }
}

impl Turns {
    /// Gives a connection its turn, on a thread of its own.
    fn take(self: &Arc<Self>, index: usize, connection: OwnedFd) {
        let count = self.counts[index].fetch_add(1, Ordering::Relaxed);
        let turns = Arc::clone(self);
        spawn(move || {
            let all = &turns.behaviours[index].turns;
            // A client that is gone ends the script; that is its own affair.
            let _gone = play(&mut File::from(connection), &all[count % all.len()]);
        });
    }
}

/// What accepts.
trait Listener: Send + 'static {
    fn accept_one(&self) -> io::Result<OwnedFd>;
}

impl Listener for TcpListener {
    fn accept_one(&self) -> io::Result<OwnedFd> {
        Ok(self.accept()?.0.into())
    }
}

impl Listener for UnixListener {
    fn accept_one(&self) -> io::Result<OwnedFd> {
        Ok(self.accept()?.0.into())
    }
}

fn serve(listener: impl Listener, index: usize, turns: &Arc<Turns>) {
    let turns = Arc::clone(turns);
    spawn(move || {
        while let Ok(connection) = listener.accept_one() {
            turns.take(index, connection);
        }
    });
}

fn spawn(work: impl FnOnce() + Send + 'static) {
    thread::Builder::new()
        .name("script".into())
        .stack_size(STACK_BYTES)
        .spawn(work)
        .expect("a thread can be started");
}

/// Does what a script says; the caller closes.
fn play(connection: &mut File, script: &[Step]) -> io::Result<()> {
    let patience = TimeVal::new(PATIENCE_S, 0);
    setsockopt(connection, sockopt::ReceiveTimeout, &patience)?;
    setsockopt(connection, sockopt::SendTimeout, &patience)?;
    for step in script {
        match step {
            Step::AwaitProxyHeader(version) => await_proxy_header(connection, *version)?,
            Step::AwaitRequest => await_request(connection)?,
            Step::AwaitUnread => {
                let timeout = PollTimeout::try_from(1000 * PATIENCE_S).expect("a few seconds");
                poll(&mut [PollFd::new(connection.as_fd(), PollFlags::POLLIN)], timeout)?;
            }
            Step::Send(bytes) => connection.write_all(bytes)?,
            Step::Body(length) => body(connection, *length)?,
            Step::Drip(bytes, pause) => {
                for byte in bytes {
                    thread::sleep(*pause);
                    connection.write_all(&[*byte])?;
                }
            }
            Step::Flood => loop {
                connection.write_all(&[b'x'; 4096])?;
                thread::sleep(Duration::from_millis(1));
            },
            Step::Pause(pause) => thread::sleep(*pause),
            Step::HalfClose => shutdown(connection.as_raw_fd(), Shutdown::Write)?,
            Step::Reset => {
                let at_once = linger { l_onoff: 1, l_linger: 0 };
                setsockopt(connection, sockopt::Linger, &at_once)?;
            }
            Step::Hold => {
                let mut rest = [0; 4096];
                while 0 < connection.read(&mut rest)? {}
            }
        }
    }
    Ok(())
}

fn await_proxy_header(connection: &mut File, version: u8) -> io::Result<()> {
    let expected = if version == 1 {
        let peer: SockaddrStorage = getpeername(connection.as_raw_fd())?;
        let inet = |family: &str, ip: IpAddr, port: u16| {
            format!("PROXY {family} {ip} {ip} {port} {port}\r\n").into_bytes()
        };
        match (peer.as_sockaddr_in(), peer.as_sockaddr_in6()) {
            (Some(at), _) => inet("TCP4", at.ip().into(), at.port()),
            (_, Some(at)) => inet("TCP6", at.ip().into(), at.port()),
            _ => b"PROXY UNKNOWN\r\n".to_vec(),
        }
    } else {
        b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a\x20\x00\x00\x00".to_vec()
    };
    let mut came = vec![0; expected.len()];
    connection.read_exact(&mut came)?;
    if came == expected { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

fn await_request(connection: &mut File) -> io::Result<()> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.ends_with(b"\r\n\r\n") {
        let length = connection.read(&mut piece)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        request.extend_from_slice(&piece[..length]);
    }
    Ok(())
}

fn body(connection: &mut File, length: usize) -> io::Result<()> {
    let piece = vec![b'x'; PIECE_BYTES];
    let mut left = length;
    while 0 < left {
        left -= connection.write(&piece[..left.min(PIECE_BYTES)])?;
    }
    Ok(())
}

/// A TCP listener whose queue is full, and the connection that fills it.
fn full_inet(address: std::net::SocketAddrV4) -> [OwnedFd; 2] {
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
    bind(listener.as_raw_fd(), &SockaddrIn::from(address)).expect("an address of its own");
    // A backlog of 0 takes one.
    listen(&listener, Backlog::new(0).expect("a backlog")).expect("a bound socket listens");
    let filler = TcpStream::connect(address).expect("the queue takes one");
    [listener, filler.into()]
}

/// As [`full_inet`], on a unix socket.
fn full_unix(path: &Path) -> [OwnedFd; 2] {
    let flags = SockFlag::SOCK_CLOEXEC;
    let listener = socket(AddressFamily::Unix, SockType::Stream, flags, None).expect("a socket");
    bind(listener.as_raw_fd(), &UnixAddr::new(path).expect("a short path")).expect("a new path");
    listen(&listener, Backlog::new(0).expect("a backlog")).expect("a bound socket listens");
    let filler = UnixStream::connect(path).expect("the queue takes one");
    [listener, filler.into()]
}
