//! Questions to the kernel's routing netlink: interfaces, XDP in force, routes, neighbours.
//!
//! This file and its folder are the only ones that name the netlink crates. Sockets belong to the
//! network namespace of the thread that opens them; every receive has a time limit.

/// Reading the kernel's messages.
mod read;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::link::{LinkAttribute, LinkMessage, LinkXdp};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage,
};
use netlink_packet_route::route::{RouteAttribute, RouteFlags, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use nix::sys::socket::{setsockopt, sockopt};
use nix::sys::time::{TimeVal, TimeValLike as _};
use thiserror::Error;

use self::read::{interface, messages, neighbour, notice, received_packets, route_of};

/// Longest wait for an answer of the kernel.
const ANSWER_MS_MAX: i64 = 2_000;
/// Receive buffer for notices: a burst of some 10,000 neighbour changes.
const NOTICE_BUFFER_BYTES: usize = 8 << 20;
/// Multicast groups: include/uapi/linux/rtnetlink.h, `enum rtnetlink_groups`.
const GROUPS: [u32; 6] = [
    1,  // RTNLGRP_LINK
    3,  // RTNLGRP_NEIGH
    5,  // RTNLGRP_IPV4_IFADDR
    7,  // RTNLGRP_IPV4_ROUTE
    9,  // RTNLGRP_IPV6_IFADDR
    11, // RTNLGRP_IPV6_ROUTE
];

/// A question to the kernel that got no good answer.
#[derive(Debug, Error)]
#[error("cannot {action} over netlink: {source}")]
pub struct NetlinkError {
    /// What was asked.
    action: &'static str,
    /// What came back.
    source: io::Error,
}

impl NetlinkError {
    /// An error of `action`, which reads after "cannot".
    pub(crate) const fn new(action: &'static str, source: io::Error) -> Self {
        Self { action, source }
    }
}

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index in this namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its MAC; `None` when it has none of six bytes, or all zero (loopback, tunnels).
    pub mac: Option<[u8; 6]>,
    /// Whether it is set up.
    pub up: bool,
    /// Whether it can carry packets: set up, and with a carrier.
    pub running: bool,
    /// The XDP program it runs.
    pub xdp: Option<XdpInForce>,
}

/// An XDP program that an interface runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XdpInForce {
    /// How it runs.
    pub mode: XdpModeInForce,
    /// The program's id.
    pub program_id: u32,
}

/// How an XDP program runs, as the kernel tells (`IFLA_XDP_ATTACHED`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpModeInForce {
    /// In the driver.
    Native,
    /// In the stack.
    Generic,
    /// In the hardware.
    Hardware,
    /// Several programs at once; the first one is named.
    Several,
}

/// An entry of the neighbour table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// The interface it is reached by.
    pub interface_index: u32,
    /// Its address.
    pub address: IpAddr,
    /// Its MAC, when the entry has a usable one.
    pub mac: Option<[u8; 6]>,
    /// Whether the kernel has confirmed it of late, or never needs to.
    pub fresh: bool,
}

/// Where packets to an address go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Route {
    /// Out of an interface, to a neighbour: the address itself, or the gateway to it.
    Via {
        /// The interface.
        interface_index: u32,
        /// The neighbour.
        neighbour: IpAddr,
    },
    /// To this host itself.
    Local,
    /// Nowhere: no route, or one that says unreachable, prohibited or black hole.
    None,
}

/// What the kernel reported by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A neighbour entry is new or changed.
    Neighbour(Neighbour),
    /// An interface is new or changed.
    Interface(Interface),
    /// An interface is gone.
    InterfaceGone(u32),
    /// Routes or addresses changed.
    Routes,
    /// Reports were lost: ask anew for everything.
    Lost,
}

/// All interfaces of this thread's network namespace.
///
/// # Errors
///
/// The kernel does not answer.
pub fn interfaces() -> Result<Vec<Interface>, NetlinkError> {
    Netlink::open()?.interfaces()
}

/// The XDP program that interface `index` runs; `None`: none.
///
/// # Errors
///
/// The kernel does not answer, or there is no such interface.
pub fn xdp_attached(index: u32) -> Result<Option<XdpInForce>, NetlinkError> {
    Ok(Netlink::open()?.interface(index)?.xdp)
}

/// A socket for questions.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// No descriptor left.
    pub fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let socket = Socket::new(NETLINK_ROUTE)?;
            socket.connect(&SocketAddr::new(0, 0))?;
            let limit = TimeVal::milliseconds(ANSWER_MS_MAX);
            setsockopt(&socket, sockopt::ReceiveTimeout, &limit)?;
            Ok(Self { socket, sequence: 0 })
        };
        open().map_err(failed("open a socket"))
    }

    /// All interfaces.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, NetlinkError> {
        let question = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers = self.ask(question, NLM_F_DUMP).map_err(failed("list interfaces"))?;
        Ok(answers
            .into_iter()
            .filter_map(|answer| match answer {
                RouteNetlinkMessage::NewLink(link) => Some(interface(&link)),
                _ => None,
            })
            .collect())
    }

    /// Interface `index`.
    ///
    /// # Errors
    ///
    /// The kernel does not answer, or there is no such interface.
    pub fn interface(&mut self, index: u32) -> Result<Interface, NetlinkError> {
        self.link(index).map(|link| interface(&link))
    }

    /// How many packets interface `index` has received.
    ///
    /// # Errors
    ///
    /// The kernel does not answer, or there is no such interface.
    pub fn received_packets(&mut self, index: u32) -> Result<u64, NetlinkError> {
        self.link(index).map(|link| received_packets(&link))
    }

    fn link(&mut self, index: u32) -> Result<LinkMessage, NetlinkError> {
        let mut question = LinkMessage::default();
        question.header.index = index;
        self.ask(RouteNetlinkMessage::GetLink(question), NLM_F_ACK)
            .and_then(|answers| {
                let link = answers.into_iter().find_map(|answer| match answer {
                    RouteNetlinkMessage::NewLink(link) => Some(link),
                    _ => None,
                });
                link.ok_or_else(|| io::Error::other("the answer holds no interface"))
            })
            .map_err(failed("look an interface up"))
    }

    /// All neighbour entries of both families.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
    pub fn neighbours(&mut self) -> Result<Vec<Neighbour>, NetlinkError> {
        let mut all = Vec::new();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = NeighbourMessage::default();
            question.header.family = family;
            let question = RouteNetlinkMessage::GetNeighbour(question);
            let answers = self.ask(question, NLM_F_DUMP).map_err(failed("list neighbours"))?;
            all.extend(answers.into_iter().filter_map(|answer| match answer {
                RouteNetlinkMessage::NewNeighbour(entry) => neighbour(&entry),
                _ => None,
            }));
        }
        Ok(all)
    }

    /// Where packets to `address` go.
    ///
    /// # Errors
    ///
    /// The kernel does not answer.
    pub fn route(&mut self, address: IpAddr) -> Result<Route, NetlinkError> {
        let mut question = RouteMessage::default();
        question.header.address_family = family(address);
        question.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        question.header.flags = RouteFlags::LookupTable;
        question.attributes.push(RouteAttribute::Destination(address.into()));
        match self.ask(RouteNetlinkMessage::GetRoute(question), NLM_F_ACK) {
            Ok(answers) => Ok(answers
                .iter()
                .find_map(|answer| match answer {
                    RouteNetlinkMessage::NewRoute(route) => Some(route_of(route, address)),
                    _ => None,
                })
                .unwrap_or(Route::None)),
            // A route that says unreachable, black hole or prohibited answers with its error.
            Err(error) => match error.raw_os_error() {
                Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EINVAL | libc::EACCES) => {
                    Ok(Route::None)
                }
                _ => Err(failed("look a route up")(error)),
            },
        }
    }

    /// Has the kernel resolve or confirm a neighbour now, as if a packet were sent to it.
    ///
    /// # Errors
    ///
    /// The kernel refuses: the interface is down or gone, or the neighbour table is full.
    pub fn resolve(&mut self, interface_index: u32, address: IpAddr) -> Result<(), NetlinkError> {
        let mut entry = NeighbourMessage::default();
        entry.header.family = family(address);
        entry.header.ifindex = interface_index;
        entry.header.flags = NeighbourFlags::Use;
        entry.attributes.push(NeighbourAttribute::Destination(match address {
            IpAddr::V4(address) => NeighbourAddress::Inet(address),
            IpAddr::V6(address) => NeighbourAddress::Inet6(address),
        }));
        self.ask(RouteNetlinkMessage::NewNeighbour(entry), NLM_F_ACK | NLM_F_CREATE)
            .map(drop)
            .map_err(failed("resolve a neighbour"))
    }

    /// Takes a XDP program off an interface that was put on it without a link.
    ///
    /// # Errors
    ///
    /// The kernel refuses: a link holds the program.
    pub fn remove_xdp(&mut self, index: u32, generic: bool) -> Result<(), NetlinkError> {
        // XDP_FLAGS_SKB_MODE, XDP_FLAGS_DRV_MODE: include/uapi/linux/if_link.h.
        let mode = if generic { 1 << 1 } else { 1 << 2 };
        let mut change = LinkMessage::default();
        change.header.index = index;
        change.attributes.push(LinkAttribute::Xdp(vec![LinkXdp::Fd(-1), LinkXdp::Flags(mode)]));
        self.ask(RouteNetlinkMessage::SetLink(change), NLM_F_ACK)
            .map(drop)
            .map_err(failed("take an XDP program off"))
    }

    /// Sends one question and collects its answers: those of a dump up to its end, those of
    /// another up to the kernel's acknowledgement.
    fn ask(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, NetlinkPayload::from(question));
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;
        let mut answers = Vec::new();
        loop {
            let (bytes, _) = self.socket.recv_from_full().map_err(|error| match error.kind() {
                io::ErrorKind::WouldBlock => io::Error::other("the kernel does not answer"),
                _ => error,
            })?;
            for message in messages(&bytes) {
                let message = message?;
                if message.header.sequence_number != self.sequence {
                    continue;
                }
                match message.payload {
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(answers),
                        Some(code) => return Err(io::Error::from_raw_os_error(code.get().abs())),
                    },
                    NetlinkPayload::InnerMessage(answer) => answers.push(answer),
                    _ => {}
                }
            }
        }
    }
}

/// A socket that reports changes of interfaces, neighbours, addresses and routes.
#[derive(Debug)]
pub struct Notices {
    socket: Socket,
}

impl Notices {
    /// Opens a socket in this thread's network namespace.
    ///
    /// # Errors
    ///
    /// No descriptor left.
    pub fn open() -> Result<Self, NetlinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            for group in GROUPS {
                socket.add_membership(group)?;
            }
            // Beyond the system's limit (net.core.rmem_max) only with CAP_NET_ADMIN; without it a
            // burst shows as `Notice::Lost`, which costs a round of questions.
            if setsockopt(&socket, sockopt::RcvBufForce, &NOTICE_BUFFER_BYTES).is_err() {
                socket.set_rx_buf_sz(NOTICE_BUFFER_BYTES)?;
            }
            socket.set_non_blocking(true)?;
            Ok(Self { socket })
        };
        open().map_err(failed("listen for changes"))
    }

    /// What was reported since the last call; never waits.
    ///
    /// # Errors
    ///
    /// The socket is broken.
    pub fn drain(&self) -> Result<Vec<Notice>, NetlinkError> {
        let mut notices = Vec::new();
        loop {
            let bytes = match self.socket.recv_from_full() {
                Ok((bytes, _)) => bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(notices),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {
                    notices.push(Notice::Lost);
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed("read changes")(error)),
            };
            notices.extend(messages(&bytes).filter_map(|message| match message.ok()?.payload {
                NetlinkPayload::InnerMessage(inner) => notice(&inner),
                NetlinkPayload::Overrun(_) => Some(Notice::Lost),
                _ => None,
            }));
        }
    }
}

impl AsFd for Notices {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> NetlinkError {
    move |source| NetlinkError { action, source }
}
