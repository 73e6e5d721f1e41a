//! ICMP: errors, which concern another packet's flow, and echo requests.
//!
//! An error is believed to concern a flow when it comes to the address that sent the packet it
//! quotes: the VIP, in whose name a backend answered. Whether the flow's service, its state and its
//! sequence numbers bear it out is for the backend to see, which has them.

use super::{Headers, Kind, Layout, Packet, Unread, ipv4, ipv6};

/// Bytes of every ICMP header; an error quotes the packet it tells of behind it.
pub(super) const BYTES: usize = 8;

// RFC 792. Source quench (4) is obsolete (RFC 6633), and a redirect (5) is about the next hop,
// which the backend does not share with whom the redirect reached.
const UNREACHABLE: u8 = 3;
const ECHO_REQUEST: u8 = 8;
const TIME_EXCEEDED: u8 = 11;
const PARAMETER_PROBLEM: u8 = 12;

// RFC 4443.
const V6_UNREACHABLE: u8 = 1;
const V6_PARAMETER_PROBLEM: u8 = 4;
const V6_ECHO_REQUEST: u8 = 128;

/// `own` is the packet's destination, whose flow `headers` name as yet.
#[inline(always)]
pub(super) fn parse_v4<P: Packet>(
    packet: &P,
    own: u32,
    whole: bool,
    headers: &mut Headers,
) -> Result<(), Unread> {
    match message(packet, whole, &headers.layout)? {
        ECHO_REQUEST => {
            headers.kind = Kind::EchoRequest;
            return Ok(());
        }
        UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM => {}
        _ => return Err(Unread::IcmpUnrelated),
    }
    let quoted = ipv4::flow_of_quoted(packet, headers.layout.transport() + BYTES, own);
    headers.flow = quoted.ok_or(Unread::IcmpUnrelated)?;
    headers.kind = Kind::IcmpError;
    Ok(())
}

/// `own` is the packet's destination, whose flow `headers` name as yet.
#[inline(always)]
pub(super) fn parse_v6<P: Packet>(
    packet: &P,
    own: [u32; 4],
    whole: bool,
    headers: &mut Headers,
) -> Result<(), Unread> {
    match message(packet, whole, &headers.layout)? {
        V6_ECHO_REQUEST => {
            headers.kind = Kind::EchoRequest;
            return Ok(());
        }
        V6_UNREACHABLE..=V6_PARAMETER_PROBLEM => {}
        _ => return Err(Unread::IcmpUnrelated),
    }
    let quoted = ipv6::flow_of_quoted(packet, headers.layout.transport() + BYTES, own);
    headers.flow = quoted.ok_or(Unread::IcmpUnrelated)?;
    headers.kind = Kind::IcmpError;
    Ok(())
}

/// The message's type.
#[inline(always)]
fn message<P: Packet>(packet: &P, whole: bool, layout: &Layout) -> Result<u8, Unread> {
    if !whole {
        return Err(Unread::IcmpUnrelated);
    }
    if layout.end() < layout.transport() + BYTES {
        return Err(Unread::Truncated);
    }
    // With its code, because the verifier takes no proof that a single byte is there.
    let [message, _] = packet.bytes(layout.transport()).ok_or(Unread::Truncated)?;
    Ok(message)
}
