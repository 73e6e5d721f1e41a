//! IPv4, with its options.

use super::{
    Flow, Headers, Kind, Layout, PROTOCOL_ICMP, PROTOCOL_TCP, PROTOCOL_UDP, Packet, Unread, icmp,
    transport,
};

pub(super) const BYTES_MIN: usize = 20;
pub(super) const BYTES_MAX: usize = 60;
/// Where the header names what stands behind it.
pub(super) const PROTOCOL_OFFSET: usize = 9;
/// Flags and offset of a fragment: the offset, in units of eight bytes ...
const FRAGMENT_OFFSET: u16 = 0x1fff;
/// ... and that another one follows.
const FRAGMENT_MORE: u16 = 0x2000;

#[inline(always)]
pub(super) fn parse<P: Packet>(
    packet: &P,
    start: usize,
    headers: &mut Headers,
) -> Result<(), Unread> {
    let header: [u32; BYTES_MIN / 4] = packet.words(start).ok_or(Unread::Truncated)?;
    parse_behind(packet, header, start, headers)
}

/// [`parse`] of a packet without options, of TCP or UDP, that is no fragment.
#[inline(always)]
pub(super) fn parse_usual<P: Packet>(
    packet: &P,
    start: usize,
    headers: &mut Headers,
) -> Option<Result<(), Unread>> {
    const VERSION_AND_LENGTH: u8 = 0x45;
    let header: [u32; BYTES_MIN / 4] = packet.words(start)?;
    let [version_and_length, _, _, _] = header[0].to_ne_bytes();
    let whole = fragment(header[1]) & (FRAGMENT_OFFSET | FRAGMENT_MORE) == 0;
    let has_ports = matches!(protocol(header[2]), PROTOCOL_TCP | PROTOCOL_UDP);
    let usual = version_and_length == VERSION_AND_LENGTH && whole && has_ports;
    usual.then(|| parse_behind(packet, header, start, headers))
}

/// [`parse`] behind this header.
#[inline(always)]
fn parse_behind<P: Packet>(
    packet: &P,
    header: [u32; BYTES_MIN / 4],
    start: usize,
    headers: &mut Headers,
) -> Result<(), Unread> {
    let [_, _, total_high, total_low] = header[0].to_ne_bytes();
    let header_bytes = header_bytes(header[0])?;
    let total_bytes = usize::from(u16::from_be_bytes([total_high, total_low]));
    let (transport, end) = (start + header_bytes, start + total_bytes);
    if end < transport || (packet.size_bytes() as usize) < end {
        return Err(Unread::Truncated);
    }
    headers.layout = Layout::new(start, transport, end);
    let protocol = protocol(header[2]);
    headers.flow.name_v4(header[3], header[4], protocol);
    let fragment = fragment(header[1]);
    if fragment & (FRAGMENT_OFFSET | FRAGMENT_MORE) != 0 {
        let [identification_high, identification_low, _, _] = header[1].to_ne_bytes();
        headers.identification =
            u32::from_ne_bytes([identification_high, identification_low, 0, 0]);
        headers.kind = Kind::FirstFragment;
    }
    if fragment & FRAGMENT_OFFSET != 0 {
        headers.kind = Kind::LaterFragment;
        return Ok(());
    }
    let whole = fragment & FRAGMENT_MORE == 0;
    if protocol == PROTOCOL_ICMP {
        return icmp::parse_v4(packet, header[4], whole, headers);
    }
    let (ports, tcp_flags) = transport::parse(packet, protocol, transport, end, whole)?;
    headers.flow.key[2] = ports;
    headers.tcp_flags = tcp_flags;
    headers.opens = transport::opens(tcp_flags);
    Ok(())
}

/// The flow of a packet that stands within another, its sender for the client: turned round. `None`
/// when it is not `sender`'s, or names no flow.
#[inline(always)]
pub(super) fn flow_of_quoted<P: Packet>(packet: &P, start: usize, sender: u32) -> Option<Flow> {
    let header: [u32; BYTES_MIN / 4] = packet.words(start)?;
    let header_bytes = header_bytes(header[0]).ok()?;
    if fragment(header[1]) & FRAGMENT_OFFSET != 0 || header[3] != sender {
        return None;
    }
    let protocol = protocol(header[2]);
    let ports = transport::ports_of_quoted(packet, protocol, start + header_bytes)?;
    Some(Flow::v4(header[4], header[3], ports.rotate_left(16), protocol))
}

#[inline(always)]
fn header_bytes(first_word: u32) -> Result<usize, Unread> {
    let [version_and_length, _, _, _] = first_word.to_ne_bytes();
    let header_bytes = usize::from(version_and_length & 0x0f) << 2;
    if version_and_length >> 4 != 4 || header_bytes < BYTES_MIN {
        return Err(Unread::NotRead);
    }
    Ok(header_bytes)
}

#[inline(always)]
const fn fragment(second_word: u32) -> u16 {
    let [_, _, high, low] = second_word.to_ne_bytes();
    u16::from_be_bytes([high, low])
}

#[inline(always)]
const fn protocol(third_word: u32) -> u8 {
    let [_, protocol, _, _] = third_word.to_ne_bytes();
    protocol
}
