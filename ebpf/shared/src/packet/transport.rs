//! TCP, UDP, and protocols without ports.

use super::{PROTOCOL_TCP, PROTOCOL_UDP, Packet, Unread};

/// Bytes of TCP's header without options.
pub(super) const TCP_BYTES: usize = 20;
/// Bytes of both ports, with which TCP's and UDP's headers begin.
pub(super) const PORTS_BYTES: usize = 4;
const UDP_BYTES: usize = 8;
/// Where TCP's header has its length and its flags.
const TCP_LENGTH_AND_FLAGS: usize = 12;
/// Where UDP's header has the datagram's length.
const UDP_LENGTH: usize = 4;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;

/// Both ports (0 of protocols without), and TCP's flags (0 of others).
#[inline(always)]
pub(super) fn parse<P: Packet>(
    packet: &P,
    protocol: u8,
    start: usize,
    end: usize,
    whole: bool,
) -> Result<(u32, u8), Unread> {
    match protocol {
        PROTOCOL_TCP => parse_tcp(packet, start, end),
        PROTOCOL_UDP => parse_udp(packet, start, end, whole).map(|ports| (ports, 0)),
        _ => Ok((0, 0)),
    }
}

/// Whether a segment with these flags opens a connection.
#[inline(always)]
pub(super) const fn opens(tcp_flags: u8) -> bool {
    tcp_flags & (TCP_SYN | TCP_ACK) == TCP_SYN
}

#[inline(always)]
fn parse_tcp<P: Packet>(packet: &P, start: usize, end: usize) -> Result<(u32, u8), Unread> {
    if end < start + TCP_BYTES {
        return Err(Unread::Truncated);
    }
    let [ports] = packet.words(start).ok_or(Unread::Truncated)?;
    let [length, flags] = packet.bytes(start + TCP_LENGTH_AND_FLAGS).ok_or(Unread::Truncated)?;
    let header_bytes = usize::from(length >> 4) << 2;
    if header_bytes < TCP_BYTES || end < start + header_bytes {
        return Err(Unread::NotRead);
    }
    Ok((ports, flags))
}

#[inline(always)]
fn parse_udp<P: Packet>(packet: &P, start: usize, end: usize, whole: bool) -> Result<u32, Unread> {
    if end < start + UDP_BYTES {
        return Err(Unread::Truncated);
    }
    let [ports] = packet.words(start).ok_or(Unread::Truncated)?;
    let length = packet.bytes(start + UDP_LENGTH).ok_or(Unread::Truncated)?;
    let datagram_bytes = usize::from(u16::from_be_bytes(length));
    if datagram_bytes < UDP_BYTES {
        return Err(Unread::NotRead);
    }
    if whole && end < start + datagram_bytes {
        return Err(Unread::Truncated);
    }
    Ok(ports)
}

/// Both ports of a packet that stands within another, which may end behind them.
#[inline(always)]
pub(super) fn ports_of_quoted<P: Packet>(packet: &P, protocol: u8, start: usize) -> Option<u32> {
    if matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP) {
        let [ports] = packet.words(start)?;
        return Some(ports);
    }
    Some(0)
}
