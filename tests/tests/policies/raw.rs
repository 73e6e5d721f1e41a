//! Packets of protocols without ports: sent from addresses of the client's own, seen as they arrive.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto, socket,
};
use sickbay_lab::network::{INTERFACE, Machine, VIP_V4};

use super::stage::{Answers, Town};

/// The first of the client's further addresses.
const SOURCE_FIRST: u8 = 30;
/// What has not arrived by then was dropped.
const ARRIVAL_LIMIT: Duration = Duration::from_millis(1500);
const HEADER_BYTES: usize = 20;

/// Gives the client so many further addresses.
pub(crate) fn add_sources(town: &Town, count: u8) {
    let lines: String =
        sources(count).map(|source| format!("addr add {source}/32 dev {INTERFACE}\n")).collect();
    town.network.client.namespace.ip(&lines).unwrap();
}

fn sources(count: u8) -> impl Iterator<Item = Ipv4Addr> {
    (SOURCE_FIRST..).take(usize::from(count)).map(|last| Ipv4Addr::new(192, 0, 2, last))
}

/// One packet of `protocol` to the VIP from each of so many sources; whom it reached.
pub(crate) fn ask_protocol(town: &Town, protocol: u8, count: u8) -> Answers {
    let listening: Vec<(&Machine, OwnedFd)> =
        town.network.backends.iter().map(|machine| (machine, listen(machine))).collect();
    town.network.client.namespace.run(|| {
        let flags = SockFlag::SOCK_CLOEXEC;
        let sender = socket(AddressFamily::Inet, SockType::Raw, flags, SockProtocol::Raw).unwrap();
        for source in sources(count) {
            let to = SockaddrIn::from(SocketAddrV4::new(VIP_V4, 0));
            let packet = packet(source, protocol);
            sendto(sender.as_raw_fd(), &packet, &to, MsgFlags::empty()).unwrap();
        }
    });
    let mut answers = Answers::default();
    let mut missing = u32::from(count);
    let limit = Instant::now() + ARRIVAL_LIMIT;
    while 0 < missing && Instant::now() < limit {
        for (machine, socket) in &listening {
            let arrived = arrived(socket, protocol);
            *answers.by.entry(machine.name.clone()).or_default() += arrived;
            missing = missing.saturating_sub(arrived);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    answers.failed = missing;
    answers
}

/// Sees every packet that comes to a machine, without its link's header.
fn listen(machine: &Machine) -> OwnedFd {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    machine.namespace.run(|| {
        socket(AddressFamily::Packet, SockType::Datagram, flags, SockProtocol::EthAll).unwrap()
    })
}

/// Packets of `protocol` to the VIP that have come since the last look.
fn arrived(socket: &OwnedFd, protocol: u8) -> u32 {
    let mut packet = [0; 2048];
    let mut count = 0;
    loop {
        match recv(socket.as_raw_fd(), &mut packet, MsgFlags::empty()) {
            Ok(length) if HEADER_BYTES <= length => {
                let is_ours = packet[0] >> 4 == 4
                    && packet[9] == protocol
                    && packet[16..20] == VIP_V4.octets();
                count += u32::from(is_ours);
            }
            Ok(_) => {}
            Err(Errno::EAGAIN) => return count,
            Err(errno) => panic!("a packet socket: {errno}"),
        }
    }
}

/// An IPv4 packet without options and with eight bytes behind its header (RFC 791); the kernel
/// fills in length, identification and checksum (raw(7)).
fn packet(source: Ipv4Addr, protocol: u8) -> [u8; HEADER_BYTES + 8] {
    let mut packet = [0; HEADER_BYTES + 8];
    packet[0] = 0x45;
    packet[8] = 64;
    packet[9] = protocol;
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&VIP_V4.octets());
    packet
}
