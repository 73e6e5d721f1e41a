//! The packets of the self-check, and what is to come of them.

use std::net::IpAddr;

use super::world::{
    DIVERTING, FORLORN, NEXT_HOP_MAC, SERVICE_PORT_FIRST, SOURCE_MAC, VIP_V4, VIP_V6, WELL,
};
use crate::flow::{Endpoint, FlowQuestion};
use crate::kernel::aya::Entrance;

const TCP: u8 = 6;
/// Of include/uapi/linux/bpf.h, `enum xdp_action`.
const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
/// Of include/uapi/linux/pkt_cls.h.
const TC_ACT_OK: u32 = 0;
const TC_ACT_SHOT: u32 = 2;
const TC_ACT_REDIRECT: u32 = 7;
/// IEEE 802: for experiments of one's own.
const ETHER_TYPE_LOCAL: [u8; 2] = [0x88, 0xb5];
/// Ethernet, IPv4 without options, and half of a TCP header.
const CUT_SHORT_BYTES: usize = 14 + 20 + 10;

/// One packet.
pub(super) struct Case {
    /// What it is, for a text.
    pub(super) name: &'static str,
    pub(super) frame: Vec<u8>,
    pub(super) end: End,
}

/// What comes of a packet.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// The host's own stack has it, untouched.
    Passed,
    /// It goes to the healthy backend, untouched but for its Ethernet addresses.
    Sent,
    Dropped,
}

impl End {
    /// The number that the program returns.
    pub(super) const fn action(self, entrance: Entrance) -> u32 {
        match (self, entrance) {
            (Self::Passed, Entrance::Xdp) => XDP_PASS,
            (Self::Passed, Entrance::Tc) => TC_ACT_OK,
            // It goes out where it came in: by loopback, where the kernel has a trial's packets come.
            (Self::Sent, Entrance::Xdp) => XDP_TX,
            (Self::Sent, Entrance::Tc) => TC_ACT_REDIRECT,
            (Self::Dropped, Entrance::Xdp) => XDP_DROP,
            (Self::Dropped, Entrance::Tc) => TC_ACT_SHOT,
        }
    }

    /// The packet afterwards.
    pub(super) fn frame(self, before: &[u8]) -> Vec<u8> {
        let mut frame = before.to_vec();
        if let Self::Sent = self {
            frame[..6].copy_from_slice(&NEXT_HOP_MAC);
            frame[6..12].copy_from_slice(&SOURCE_MAC);
        }
        frame
    }
}

/// All of them, from this port of the client's.
pub(super) fn cases(client_port: u16) -> Vec<Case> {
    let (v4, v6) = (IpAddr::from(VIP_V4), IpAddr::from(VIP_V6));
    let to = |name, address, service: u32, end| Case {
        name,
        frame: syn(client_port, address, SERVICE_PORT_FIRST + service as u16),
        end,
    };
    let mut no_ip = syn(client_port, v4, SERVICE_PORT_FIRST);
    no_ip[12..14].copy_from_slice(&ETHER_TYPE_LOCAL);
    let mut cut_short = syn(client_port, v4, SERVICE_PORT_FIRST);
    cut_short.truncate(CUT_SHORT_BYTES);
    vec![
        Case { name: "a frame that is no IP", frame: no_ip, end: End::Passed },
        Case { name: "a packet cut short", frame: cut_short, end: End::Passed },
        to("a SYN to nobody's port", v4, 99, End::Passed),
        to("a SYN to a healthy backend", v4, WELL, End::Sent),
        to("a SYN of IPv6 to a healthy backend", v6, WELL, End::Sent),
        to("a SYN past a sick backend", v4, DIVERTING, End::Sent),
        to("a SYN of IPv6 past a sick backend", v6, DIVERTING, End::Sent),
        to("a SYN where all are sick", v4, FORLORN, End::Dropped),
        to("a SYN of IPv6 where all are sick", v6, FORLORN, End::Dropped),
    ]
}

/// A client's SYN to a port of the virtual address.
fn syn(client_port: u16, to: IpAddr, port: u16) -> Vec<u8> {
    let client = match to {
        IpAddr::V4(_) => IpAddr::from([192, 0, 2, 1]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 1, 0, 0, 0, 0, 1]),
    };
    let question = FlowQuestion {
        source: Endpoint { address: client, port: client_port },
        destination: Endpoint { address: to, port },
        protocol: TCP,
        established: false,
    };
    question.frame().expect("both ends are of one family and have ports")
}
