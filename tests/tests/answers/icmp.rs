//! Clients that speak ICMP.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use nix::sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket};
use sickbay_lab::network::{Family, Network};
use sickbay_shared::model::frame::{Frame, checksum};

use crate::stage::{DNS, Stage};

const RECEIVE_LIMIT: Duration = Duration::from_secs(1);

/// Pings the VIP as `ping` does, through the kernel's own sockets for it, and takes the reply.
pub(crate) fn ping(stage: &Stage, family: Family, payload_bytes: usize) -> io::Result<()> {
    let client = &stage.network.client.namespace;
    client.sysctl("ipv4/ping_group_range", "0 0").unwrap();
    let (kind, reply) = match family {
        Family::V4 => (8, 0),
        Family::V6 => (128, 129),
    };
    let socket = client.run(|| icmp_socket(family, SockType::Datagram));
    socket.set_read_timeout(Some(RECEIVE_LIMIT)).unwrap();
    socket.connect((Network::vip(family).ip(), 0)).unwrap();
    // The kernel puts checksum and identifier.
    let mut request = vec![kind, 0, 0, 0, 0, 0, 0, 77];
    request.resize(8 + payload_bytes, 0x5a);
    socket.send(&request).unwrap();
    let mut answer = vec![0; 8 + payload_bytes + 1];
    let length = socket.recv(&mut answer)?;
    assert_eq!(length, request.len());
    assert_eq!(answer[..2], [reply, 0]);
    assert_eq!(answer[6..length], request[6..]);
    Ok(())
}

/// Tells the VIP, as a router on the way to the client does, that what the service over UDP sent to
/// `client_port` was too big.
pub(crate) fn too_big(stage: &Stage, family: Family, client: SocketAddr, mtu: u16) {
    let (vip, own) = (Network::vip(family).ip(), stage.network.client.address(family));
    let datagram = Frame::udp((vip, DNS), (own, client.port()));
    let quoted = Frame { payload_bytes: 1_460, ..datagram }.quoted();
    let [high, low] = mtu.to_be_bytes();
    let (start, rest) = match family {
        Family::V4 => ([3, 4], [0, 0, high, low]),
        Family::V6 => ([2, 0], [0, 0, high, low]),
    };
    let mut message = [&start[..], &[0, 0], &rest, &quoted[..500]].concat();
    if family == Family::V4 {
        let sum = checksum(&message);
        message[2..4].copy_from_slice(&sum);
    }
    // The kernel puts ICMPv6's checksum itself.
    let socket = stage.network.client.namespace.run(|| icmp_socket(family, SockType::Raw));
    socket.send_to(&message, SocketAddr::new(vip, 0)).unwrap();
}

fn icmp_socket(family: Family, kind: SockType) -> UdpSocket {
    let (family, protocol) = match family {
        Family::V4 => (AddressFamily::Inet, SockProtocol::Icmp),
        Family::V6 => (AddressFamily::Inet6, SockProtocol::IcmpV6),
    };
    socket(family, kind, SockFlag::SOCK_CLOEXEC, protocol).expect("ICMP sockets").into()
}
