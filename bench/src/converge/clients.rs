//! Who connects to the service: bare SYNs of ever new flows, or whole connections.

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use nix::sys::prctl;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, sendto, setsockopt,
    socket, sockopt,
};
use sickbay_lab::clock::monotonic_ns;
use sickbay_lab::namespace::Namespace;

/// Between two bare SYNs.
const SYN_INTERVAL: Duration = Duration::from_micros(50);
/// Who opens whole connections, one after the other each, and how often at most.
const CONNECTING_THREADS: usize = 4;
const CONNECTION_INTERVAL: Duration = Duration::from_micros(400);
/// A connection that is not over by then is given up.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Bare SYNs come from 198.18.0.0/15 (RFC 2544), which nobody has.
const SOURCE_NETWORK: u32 = 0xc612_0000;
const SOURCE_COUNT: u64 = 1 << 17;
const SOURCE_PORT_FIRST: u16 = 1024;
const HEADER_BYTES: usize = 20;
const TIME_TO_LIVE: u8 = 64;
const TCP: u8 = 6;
const SYN: u8 = 2;

/// Clients at work. Dropping them ends them.
pub(super) struct Clients {
    stopping: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Clients {
    /// Bare SYNs to `to` out of `namespace`, 20,000 a second at most, each of a flow of its own.
    ///
    /// # Errors
    /// Without the privilege (CAP_NET_RAW).
    pub(super) fn bare(namespace: &Namespace, to: SocketAddrV4) -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let open = || socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw);
        let socket = namespace.run(open).context("cannot open a raw socket")?;
        let mut clients = Self { stopping: Arc::default(), threads: Vec::new() };
        let stopping = Arc::clone(&clients.stopping);
        clients.threads.push(thread::spawn(move || {
            let address = SockaddrIn::from(to);
            at_a_pace(SYN_INTERVAL, &stopping, |number| {
                // The sequence number tells when it was sent.
                let sent = monotonic_ns() as u32;
                let packet = syn(source(number), (*to.ip(), to.port()), sent);
                // A full queue loses one of many.
                let _ = sendto(socket.as_raw_fd(), &packet, &address, MsgFlags::empty());
            });
        }));
        Ok(clients)
    }

    /// Whole connections to `to` out of `namespace`, 10,000 a second at most; each is closed when
    /// the other side closes it.
    pub(super) fn whole(namespace: &Namespace, to: SocketAddrV4) -> Self {
        let mut clients = Self { stopping: Arc::default(), threads: Vec::new() };
        for _ in 0..CONNECTING_THREADS {
            let (namespace, stopping) = (namespace.clone(), Arc::clone(&clients.stopping));
            clients.threads.push(thread::spawn(move || {
                namespace.enter();
                at_a_pace(CONNECTION_INTERVAL, &stopping, |_| connect(to.into()));
            }));
        }
        clients
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Even steps; one that is late is not caught up.
fn at_a_pace(interval: Duration, stopping: &AtomicBool, mut step: impl FnMut(u64)) {
    // Sleeps of this thread end when they should, not up to 50 µs later.
    let _ = prctl::set_timerslack(1);
    let mut next = Instant::now();
    for number in 0.. {
        if stopping.load(Ordering::Relaxed) {
            return;
        }
        let now = Instant::now();
        thread::sleep(next.saturating_duration_since(now));
        next = (next + interval).max(now);
        step(number);
    }
}

fn connect(to: SocketAddr) {
    // What fails is the balancer's matter: what it sends on is seen at the backend.
    let Ok(mut stream) = TcpStream::connect_timeout(&to, CONNECTION_TIMEOUT) else { return };
    let _ = setsockopt(&stream, sockopt::Linger, &libc::linger { l_onoff: 1, l_linger: 0 });
    let _ = stream.set_read_timeout(Some(CONNECTION_TIMEOUT));
    let _ = stream.read(&mut [0]);
}

/// The source of the flow with that number: all addresses once, then all again with the next port.
fn source(number: u64) -> (Ipv4Addr, u16) {
    let host = u32::try_from(number % SOURCE_COUNT).expect("less than 2^17");
    let round = number / SOURCE_COUNT % u64::from(u16::MAX - SOURCE_PORT_FIRST);
    let port = SOURCE_PORT_FIRST + u16::try_from(round).expect("less than 2^16");
    (Ipv4Addr::from(SOURCE_NETWORK | host), port)
}

/// A SYN as an IPv4 packet.
pub(super) fn syn(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), sequence: u32) -> [u8; 40] {
    let mut packet = [0; 2 * HEADER_BYTES];
    let (ip, tcp) = packet.split_at_mut(HEADER_BYTES);
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&40_u16.to_be_bytes());
    ip[8] = TIME_TO_LIVE;
    ip[9] = TCP;
    ip[12..16].copy_from_slice(&from.0.octets());
    ip[16..20].copy_from_slice(&to.0.octets());
    tcp[0..2].copy_from_slice(&from.1.to_be_bytes());
    tcp[2..4].copy_from_slice(&to.1.to_be_bytes());
    tcp[4..8].copy_from_slice(&sequence.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = SYN;
    tcp[14..16].copy_from_slice(&u16::MAX.to_be_bytes());
    // The pseudo header (RFC 9293, section 3.1): both addresses, the protocol, the length.
    let pseudo = sum(&ip[12..20]) + u32::from(TCP) + 20;
    let (header_sum, segment_sum) = (checksum(sum(ip)), checksum(sum(tcp) + pseudo));
    ip[10..12].copy_from_slice(&header_sum.to_be_bytes());
    tcp[16..18].copy_from_slice(&segment_sum.to_be_bytes());
    packet
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum()
}

/// RFC 1071.
fn checksum(mut sum: u32) -> u16 {
    while 0xffff < sum {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it is folded")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_a_syn_are_whole() {
        let from = (Ipv4Addr::new(198, 19, 255, 254), 65_535);
        let packet = syn(from, (Ipv4Addr::new(198, 51, 100, 1), 80), 0x0102_0304);
        // A receiver's sum over what is covered, checksum included, is all ones.
        assert_eq!(checksum(sum(&packet[..20])), 0);
        assert_eq!(checksum(sum(&packet[12..]) + 6 + 20), 0);
        assert_eq!(packet[24..28], [1, 2, 3, 4]);
    }

    #[test]
    fn flows_do_not_come_again_soon() {
        let flows: std::collections::HashSet<_> = (0..300_000).map(source).collect();
        assert_eq!(flows.len(), 300_000);
        assert_eq!(source(0), (Ipv4Addr::new(198, 18, 0, 0), 1024));
        assert_eq!(source((1 << 17) - 1), (Ipv4Addr::new(198, 19, 255, 255), 1024));
        assert_eq!(source(1 << 17), (Ipv4Addr::new(198, 18, 0, 0), 1025));
    }
}
