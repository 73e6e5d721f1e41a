//! Packets with the kernel's own stamps: SYNs at a backend, and messages of a log.

use std::io::IoSliceMut;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use anyhow::{Context as _, Result, ensure};
use nix::cmsg_space;
use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::{TimeSpec, TimeVal};
use sickbay_lab::namespace::Namespace;

use super::samples::Syn;
use super::stamps::{Offsets, nanoseconds};

/// Room for what comes while the reader does not run.
const BUFFER_BYTES: usize = 32 << 20;
/// The longest that a reader does not look whether it is to stop.
const LOOK_INTERVAL_US: i64 = 100_000;
const ETHERNET_BYTES: usize = 14;
const TCP: u8 = 6;
const SYN_AND_ACK: u8 = 0x12;
const SYN: u8 = 0x02;

/// What one reading has.
struct Received<'bytes> {
    bytes: &'bytes [u8],
    at_ns: u64,
    /// Packets that the system had no room for, since the socket was opened.
    dropped: Option<u32>,
}

/// Reads one socket until it is told to stop; what `keep` makes of the packets, in order.
struct Reader<T> {
    kept: Arc<Mutex<Vec<T>>>,
    stopping: Arc<AtomicBool>,
    dropped: Arc<AtomicU32>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Copy + Send + 'static> Reader<T> {
    fn start(
        socket: OwnedFd,
        keep: impl Fn(&[u8], u64) -> Option<T> + Send + 'static,
    ) -> Result<Self> {
        setsockopt(&socket, sockopt::RcvBufForce, &BUFFER_BYTES)?;
        setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
        setsockopt(&socket, sockopt::RxqOvfl, &1)?;
        setsockopt(&socket, sockopt::ReceiveTimeout, &TimeVal::new(0, LOOK_INTERVAL_US))?;
        let mut reader = Self {
            kept: Arc::default(),
            stopping: Arc::default(),
            dropped: Arc::default(),
            thread: None,
        };
        let kept = Arc::clone(&reader.kept);
        let (stopping, dropped) = (Arc::clone(&reader.stopping), Arc::clone(&reader.dropped));
        let mut offsets = Offsets::new();
        reader.thread = Some(thread::spawn(move || {
            let mut room = [0; 2048];
            while !stopping.load(Ordering::Relaxed) {
                let Some(received) = receive(socket.as_raw_fd(), &mut room, &mut offsets) else {
                    continue;
                };
                if let Some(count) = received.dropped {
                    dropped.store(count, Ordering::Relaxed);
                }
                if let Some(value) = keep(received.bytes, received.at_ns) {
                    lock(&kept).push(value);
                }
            }
        }));
        Ok(reader)
    }

    fn last(&self) -> Option<T> {
        lock(&self.kept).last().copied()
    }

    fn stop(mut self) -> Result<Vec<T>> {
        self.join();
        let dropped = self.dropped.load(Ordering::Relaxed);
        ensure!(dropped == 0, "{dropped} packets were not seen: the machine is too busy");
        Ok(std::mem::take(&mut lock(&self.kept)))
    }
}

impl<T> Reader<T> {
    fn join(&mut self) {
        self.stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        self.join();
    }
}

/// The SYNs of a service at a backend.
pub(super) struct Tap {
    reader: Reader<Syn>,
}

impl Tap {
    /// Looks at what arrives in `namespace` for `destination`.
    ///
    /// # Errors
    /// Without the privilege (CAP_NET_RAW).
    pub(super) fn start(namespace: &Namespace, destination: Ipv4Addr) -> Result<Self> {
        let flags = SockFlag::SOCK_CLOEXEC;
        let open = || socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthIp);
        let socket = namespace.run(open).context("cannot open a packet socket")?;
        let keep = move |frame: &[u8], arrived_ns| {
            Some(Syn { arrived_ns, sequence: syn_sequence(frame, destination)? })
        };
        Ok(Self { reader: Reader::start(socket, keep)? })
    }

    /// The last one so far.
    pub(super) fn last(&self) -> Option<Syn> {
        self.reader.last()
    }

    /// All of them, in order of arrival.
    ///
    /// # Errors
    /// When some were missed.
    pub(super) fn stop(self) -> Result<Vec<Syn>> {
        let mut syns = self.reader.stop()?;
        // Two CPUs stamp and deliver, not always in the same order.
        syns.sort_unstable_by_key(|syn| syn.arrived_ns);
        Ok(syns)
    }
}

/// The messages of a log that comes by UDP, as far as they say that a server is up or down.
pub(super) struct Log {
    reader: Reader<(bool, u64)>,
}

impl Log {
    /// Listens on loopback inside `namespace` for what is said of `server` (`pool/name`).
    ///
    /// # Errors
    /// When the port is taken.
    pub(super) fn start(namespace: &Namespace, port: u16, server: &str) -> Result<Self> {
        let socket = namespace.run(|| UdpSocket::bind((Ipv4Addr::LOCALHOST, port)))?;
        let (up, down) = (format!("Server {server} is UP"), format!("Server {server} is DOWN"));
        let keep = move |message: &[u8], sent_ns| {
            let text = String::from_utf8_lossy(message);
            let is_up = text.contains(&up);
            (is_up || text.contains(&down)).then_some((is_up, sent_ns))
        };
        Ok(Self { reader: Reader::start(socket.into(), keep)? })
    }

    /// Whether the server is up, and since when (CLOCK_MONOTONIC, ns); `None` before any message.
    pub(super) fn last(&self) -> Option<(bool, u64)> {
        self.reader.last()
    }
}

fn receive<'room>(
    socket: RawFd,
    room: &'room mut [u8],
    offsets: &mut Offsets,
) -> Option<Received<'room>> {
    let mut space = cmsg_space!(TimeSpec, u32);
    let (mut at_ns, mut dropped) = (None, None);
    let count = {
        let mut slices = [IoSliceMut::new(room)];
        // Nothing came in time, or a signal did: the caller asks again.
        let message: Result<_, Errno> =
            recvmsg::<()>(socket, &mut slices, Some(&mut space), MsgFlags::empty());
        let message = message.ok()?;
        for control in message.cmsgs().ok()? {
            match control {
                ControlMessageOwned::ScmTimestampns(stamp) => at_ns = Some(nanoseconds(stamp)),
                ControlMessageOwned::RxqOvfl(count) => dropped = Some(count),
                _ => {}
            }
        }
        message.bytes
    };
    Some(Received { bytes: &room[..count], at_ns: offsets.moment_ns(at_ns?), dropped })
}

/// The sequence number of a SYN to that address; `None` for any other frame.
fn syn_sequence(frame: &[u8], destination: Ipv4Addr) -> Option<u32> {
    let packet = frame.get(ETHERNET_BYTES..)?;
    let header_bytes = usize::from(packet.first()? & 0x0f) * 4;
    let is_it = *packet.get(9)? == TCP && packet.get(16..20)? == destination.octets();
    let segment = packet.get(header_bytes..)?;
    let is_syn = segment.get(13)? & SYN_AND_ACK == SYN;
    let sequence = segment.get(4..8)?.try_into().expect("four bytes");
    (is_it && is_syn).then(|| u32::from_be_bytes(sequence))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use sickbay_lab::clock::monotonic_ns;

    use super::super::clients::syn;
    use super::*;

    fn frame(packet: &[u8]) -> Vec<u8> {
        [&[0; ETHERNET_BYTES], packet].concat()
    }

    #[test]
    fn syn_to_the_service_gives_its_sequence_number() {
        let (from, to) = (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 51, 100, 1));
        let frame = frame(&syn((from, 1025), (to, 80), 0xdead_beef));
        assert_eq!(syn_sequence(&frame, to), Some(0xdead_beef));
        assert_eq!(syn_sequence(&frame, from), None);
    }

    #[test]
    fn what_is_no_syn_is_none() {
        let to = Ipv4Addr::new(198, 51, 100, 1);
        let mut frame = frame(&syn((to, 1025), (to, 80), 7));
        frame[ETHERNET_BYTES + 20 + 13] = SYN_AND_ACK;
        assert_eq!(syn_sequence(&frame, to), None);
        assert_eq!(syn_sequence(&frame[..30], to), None);
        assert_eq!(syn_sequence(&[], to), None);
    }

    #[test]
    fn datagram_is_stamped_between_its_sending_and_its_reading() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = receiver.local_addr().unwrap();
        setsockopt(&receiver, sockopt::ReceiveTimestampns, &true).unwrap();
        let mut offsets = Offsets::new();
        // The kernel begins to stamp a moment after it is asked to.
        thread::sleep(std::time::Duration::from_millis(50));
        let before_ns = monotonic_ns();
        UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().send_to(b"x", address).unwrap();
        let mut room = [0; 16];
        let received = receive(receiver.as_raw_fd(), &mut room, &mut offsets).unwrap();
        assert_eq!(received.bytes, b"x");
        // The offset itself is known to about a microsecond.
        assert!(before_ns < received.at_ns + 100_000 && received.at_ns < monotonic_ns() + 100_000);
    }
}
