//! Reading the kernel's messages into what this agent knows of interfaces, neighbours, routes.

use std::io;
use std::net::IpAddr;

use netlink_packet_core::NetlinkMessage;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage, LinkXdp, XdpAttached};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};

use super::{Interface, Neighbour, Notice, Route, XdpInForce, XdpModeInForce};

/// The messages in what one receive gave.
pub(super) fn messages(
    bytes: &[u8],
) -> impl Iterator<Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        if length < 16 || rest.len() < length {
            return None;
        }
        let message = NetlinkMessage::deserialize(&rest[..length]);
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(message.map_err(|error| io::Error::other(format!("message not understood: {error}"))))
    })
}

pub(super) fn notice(message: &RouteNetlinkMessage) -> Option<Notice> {
    match message {
        RouteNetlinkMessage::NewNeighbour(entry) => neighbour(entry).map(Notice::Neighbour),
        RouteNetlinkMessage::DelNeighbour(entry) => neighbour(entry)
            .map(|gone| Notice::Neighbour(Neighbour { mac: None, fresh: false, ..gone })),
        RouteNetlinkMessage::NewLink(link) => Some(Notice::Interface(interface(link))),
        RouteNetlinkMessage::DelLink(link) => Some(Notice::InterfaceGone(link.header.index)),
        RouteNetlinkMessage::NewRoute(_)
        | RouteNetlinkMessage::DelRoute(_)
        | RouteNetlinkMessage::NewAddress(_)
        | RouteNetlinkMessage::DelAddress(_) => Some(Notice::Routes),
        _ => None,
    }
}

pub(super) fn interface(link: &LinkMessage) -> Interface {
    let mut found = Interface {
        index: link.header.index,
        name: String::new(),
        mac: None,
        up: link.header.flags.contains(LinkFlags::Up),
        running: link.header.flags.contains(LinkFlags::Running),
        xdp: None,
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => found.name.clone_from(name),
            LinkAttribute::Address(bytes) => found.mac = mac(bytes),
            LinkAttribute::Xdp(xdp) => found.xdp = xdp_in_force(xdp),
            _ => {}
        }
    }
    found
}

/// 0 where the kernel tells none.
pub(super) fn received_packets(link: &LinkMessage) -> u64 {
    let told = link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::Stats64(statistics) => Some(statistics.rx_packets),
        _ => None,
    });
    told.unwrap_or(0)
}

fn xdp_in_force(attributes: &[LinkXdp]) -> Option<XdpInForce> {
    let mode = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::Attached(attached) => Some(*attached),
        _ => None,
    })?;
    let mode = match mode {
        XdpAttached::Driver => XdpModeInForce::Native,
        XdpAttached::SocketBuffer => XdpModeInForce::Generic,
        XdpAttached::Hardware => XdpModeInForce::Hardware,
        XdpAttached::Multiple => XdpModeInForce::Several,
        _ => return None,
    };
    let program_id = attributes.iter().find_map(|attribute| match attribute {
        LinkXdp::ProgId(id)
        | LinkXdp::DrvProgId(id)
        | LinkXdp::SkbProgId(id)
        | LinkXdp::HwProgId(id) => Some(*id),
        _ => None,
    })?;
    Some(XdpInForce { mode, program_id })
}

pub(super) fn neighbour(entry: &NeighbourMessage) -> Option<Neighbour> {
    let address = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
            Some(IpAddr::V4(*address))
        }
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
            Some(IpAddr::V6(*address))
        }
        _ => None,
    })?;
    let (usable, fresh) = match entry.header.state {
        NeighbourState::Reachable | NeighbourState::Permanent | NeighbourState::Noarp => {
            (true, true)
        }
        NeighbourState::Stale | NeighbourState::Delay | NeighbourState::Probe => (true, false),
        _ => (false, false),
    };
    let mac = entry.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => mac(bytes),
        _ => None,
    });
    Some(Neighbour {
        interface_index: entry.header.ifindex,
        address,
        mac: mac.filter(|_| usable),
        fresh,
    })
}

pub(super) fn route_of(route: &RouteMessage, address: IpAddr) -> Route {
    match route.header.kind {
        RouteType::Local => return Route::Local,
        RouteType::Unicast => {}
        _ => return Route::None,
    }
    let mut interface_index = None;
    let mut neighbour = address;
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface_index = Some(*index),
            RouteAttribute::Gateway(RouteAddress::Inet(gateway))
            | RouteAttribute::Via(RouteVia::Inet(gateway)) => neighbour = (*gateway).into(),
            RouteAttribute::Gateway(RouteAddress::Inet6(gateway))
            | RouteAttribute::Via(RouteVia::Inet6(gateway)) => neighbour = (*gateway).into(),
            _ => {}
        }
    }
    interface_index.map_or(Route::None, |interface_index| Route::Via { interface_index, neighbour })
}

/// A MAC of six bytes that is not all zero.
fn mac(bytes: &[u8]) -> Option<[u8; 6]> {
    bytes.try_into().ok().filter(|mac| *mac != [0; 6])
}
