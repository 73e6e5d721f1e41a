//! TCP's RST, as a host answers a segment of a connection it does not know (RFC 9293, 3.10.7.1):
//! its numbers are those that the client must believe (RFC 5961, 3.2).

use super::{Link, Rewrite, ipv4_header, ipv6_header, sum};
use crate::packet::{Headers, PROTOCOL_TCP, Packet};

const TCP_BYTES: usize = 20;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Whether the packet is no RST itself.
#[inline(always)]
pub(super) const fn may_answer(headers: &Headers) -> bool {
    headers.tcp_flags & RST == 0
}

#[inline(always)]
pub(super) fn answer_v4<P: Rewrite>(packet: &mut P, headers: &Headers, link: &Link) -> bool {
    let [source, destination, ..] = headers.flow.key;
    let addresses = sum::total([source, destination]);
    let Some(header) = tcp_header(packet, headers, addresses) else {
        return false;
    };
    let network = headers.layout.network();
    let ip = ipv4_header(20 + TCP_BYTES, PROTOCOL_TCP, destination, source);
    packet.put_words(0, link.macs)
        && packet.put_words(network, ip)
        && packet.put_words(network + 20, header)
        && packet.trim(network + 20 + TCP_BYTES)
}

#[inline(always)]
pub(super) fn answer_v6<P: Rewrite>(packet: &mut P, headers: &Headers, link: &Link) -> bool {
    let [a, b, c, d, e, f, g, h, _, _] = headers.flow.key;
    let addresses = sum::total([a, b, c, d, e, f, g, h]);
    let Some(header) = tcp_header(packet, headers, addresses) else {
        return false;
    };
    let network = headers.layout.network();
    let ip = ipv6_header(TCP_BYTES, PROTOCOL_TCP, [e, f, g, h], [a, b, c, d]);
    packet.put_words(0, link.macs)
        && packet.put_words(network, ip)
        && packet.put_words(network + 40, header)
        && packet.trim(network + 40 + TCP_BYTES)
}

/// The RST's header, from the segment it answers and the sum of both addresses.
#[inline(always)]
fn tcp_header<P: Packet>(packet: &P, headers: &Headers, addresses: u64) -> Option<[u32; 5]> {
    let segment: [u32; TCP_BYTES / 4] = packet.words(headers.layout.transport())?;
    let [length, flags, _, _] = segment[3].to_ne_bytes();
    let (sequence, acknowledgement, flags) = if flags & ACK != 0 {
        (segment[2], 0, RST)
    } else {
        let header_bytes = usize::from(length >> 4) << 2;
        let text_bytes = (headers.layout.end() - headers.layout.transport()) - header_bytes;
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        let next = u32::from_be(segment[1]).wrapping_add(text_bytes as u32).wrapping_add(controls);
        (0, next.to_be(), RST | ACK)
    };
    let ports = segment[0].rotate_left(16);
    let length_and_flags = u32::from_ne_bytes([(TCP_BYTES as u8 / 4) << 4, flags, 0, 0]);
    let pseudo = u32::from_ne_bytes([0, PROTOCOL_TCP, 0, TCP_BYTES as u8]);
    let sum = addresses + sum::total([pseudo, ports, sequence, acknowledgement, length_and_flags]);
    let checksum = sum::in_first_half(sum::checksum(sum));
    Some([ports, sequence, acknowledgement, length_and_flags, checksum])
}
