//! Ten thousand backends in one thread: a server that answers every address of its loopback.
//!
//! It listens on the unspecified address, so it must run in a network namespace of its own. Each
//! connection gets one good answer and is closed. It counts requests by address, so that a test
//! need not take the prober's word for them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrIn, bind, listen, setsockopt, socket,
    sockopt,
};
use nix::unistd::Pid;

const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
/// Addresses of one /24 that are used: 127.0.x.1 to 127.0.x.250.
const ADDRESSES_PER_NET: u32 = 250;
const LISTENER: u64 = u64::MAX;
const EVENTS_MAX: usize = 256;
/// How often the thread looks whether it is to stop.
const LOOK_MS: u16 = 50;

/// The running server. Dropping it stops it.
#[derive(Debug)]
pub struct Farm {
    port: u16,
    requests: Arc<[AtomicU32]>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Farm {
    /// Serves `count` addresses of this thread's network namespace, on a thread that keeps to
    /// `cpu`.
    ///
    /// # Panics
    /// If the port is taken, or there is no such CPU.
    #[must_use]
    pub fn start(port: u16, count: u32, cpu: usize) -> Self {
        let requests: Arc<[AtomicU32]> = (0..count).map(|_| AtomicU32::new(0)).collect();
        let stopping = Arc::new(AtomicBool::new(false));
        let listener = listener(port);
        let (counts, stop) = (Arc::clone(&requests), Arc::clone(&stopping));
        let thread = std::thread::Builder::new()
            .name("farm".into())
            .spawn(move || {
                let mut cpus = CpuSet::new();
                cpus.set(cpu).expect("the kernel knows that many CPUs");
                sched_setaffinity(Pid::from_raw(0), &cpus).expect("the CPU may be used");
                Barn::new(listener, counts).run(&stop);
            })
            .expect("a thread can be started");
        Self { port, requests, stopping, thread: Some(thread) }
    }

    /// Where backend `index` is.
    #[must_use]
    pub fn address(&self, index: u32) -> SocketAddr {
        let (net, host) = (index / ADDRESSES_PER_NET, index % ADDRESSES_PER_NET);
        let net = u8::try_from(net + 1).expect("at most 63,750 addresses");
        let host = u8::try_from(host + 1).expect("at most 250");
        SocketAddr::from((Ipv4Addr::new(127, 0, net, host), self.port))
    }

    /// Requests that backend `index` got.
    #[must_use]
    pub fn requests(&self, index: u32) -> u32 {
        self.requests[index as usize].load(Ordering::Relaxed)
    }
}

impl Drop for Farm {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic there was printed there; here is no place for another.
            let _printed = thread.join();
        }
    }
}

/// The thread's own part.
struct Barn {
    epoll: Epoll,
    listener: TcpListener,
    /// By descriptor.
    streams: Vec<Option<TcpStream>>,
    requests: Arc<[AtomicU32]>,
}

impl Barn {
    fn new(listener: TcpListener, requests: Arc<[AtomicU32]>) -> Self {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).expect("epoll");
        let event = EpollEvent::new(EpollFlags::EPOLLIN, LISTENER);
        epoll.add(&listener, event).expect("a listener can be waited for");
        Self { epoll, listener, streams: Vec::new(), requests }
    }

    fn run(&mut self, stopping: &AtomicBool) {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        while !stopping.load(Ordering::Relaxed) {
            let count = self.epoll.wait(&mut events, LOOK_MS).unwrap_or(0);
            for event in &events[..count] {
                match event.data() {
                    LISTENER => self.accept(),
                    descriptor => self.answer(descriptor as usize),
                }
            }
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true).expect("a socket can be made so");
            let descriptor = stream.as_raw_fd() as usize;
            if self.streams.len() <= descriptor {
                self.streams.resize_with(descriptor + 1, || None);
            }
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
            let event = EpollEvent::new(flags, descriptor as u64);
            self.epoll.add(&stream, event).expect("a socket can be waited for");
            self.streams[descriptor] = Some(stream);
        }
    }

    /// A request is small: it comes in one piece.
    fn answer(&mut self, descriptor: usize) {
        let Some(stream) = &mut self.streams[descriptor] else {
            return;
        };
        let mut request = [0; 1024];
        match stream.read(&mut request) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Ok(length) if request[..length].ends_with(b"\r\n\r\n") => {
                // The prober may be gone: its deadline is its own affair.
                let _gone = stream.write_all(RESPONSE);
                if let Ok(SocketAddr::V4(local)) = stream.local_addr() {
                    self.count(*local.ip());
                }
            }
            _ => {}
        }
        self.streams[descriptor] = None;
    }

    fn count(&self, address: Ipv4Addr) {
        let [_, _, net, host] = address.octets().map(u32::from);
        let index = net.wrapping_sub(1).wrapping_mul(ADDRESSES_PER_NET) + host.wrapping_sub(1);
        if let Some(counter) = self.requests.get(index as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn listener(port: u16) -> TcpListener {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Inet, SockType::Stream, flags, None).expect("a socket");
    setsockopt(&socket, sockopt::ReuseAddr, &true).expect("TCP has the option");
    let address = SockaddrIn::new(0, 0, 0, 0, port);
    bind(socket.as_raw_fd(), &address).expect("the port is free in this namespace");
    listen(&socket, Backlog::MAXALLOWABLE).expect("a bound socket listens");
    TcpListener::from(socket)
}
