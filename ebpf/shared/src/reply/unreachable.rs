//! ICMP's port unreachable, for protocols that cannot refuse by themselves: UDP, whose client is
//! told by its socket, and any other.
//!
//! It quotes as much of the packet as its rules let it, behind headers of its own that are put
//! before: the packet grows at its front, where both XDP and TC have room.

use super::{Link, Rewrite, ipv4_header, ipv6_header, sum};
use crate::limits::{QUOTED_V4_BYTES_MAX, QUOTED_V6_BYTES_MAX};
use crate::packet::{Headers, PROTOCOL_ICMP, PROTOCOL_ICMPV6};

const ICMP_BYTES: usize = 8;
/// Type and code of ICMP (RFC 792) ...
const UNREACHABLE_PORT: [u8; 2] = [3, 3];
/// ... and of ICMPv6 (RFC 4443, 3.1).
const V6_UNREACHABLE_PORT: [u8; 2] = [1, 4];

#[inline(always)]
pub(super) fn answer_v4<P: Rewrite>(packet: &mut P, headers: &Headers, link: &Link) -> bool {
    let [source, destination, ..] = headers.flow.key;
    let network = headers.layout.network();
    let quoted_bytes = quoted_bytes(headers, QUOTED_V4_BYTES_MAX);
    let quoted = packet.sum_words(network, network + quoted_bytes);
    if !put_link(packet, link, network + quoted_bytes, 20 + ICMP_BYTES) {
        return false;
    }
    let total_bytes = 20 + ICMP_BYTES + quoted_bytes;
    let ip = ipv4_header(total_bytes, PROTOCOL_ICMP, destination, source);
    packet.put_words(network, ip)
        && packet.put_words(network + 20, icmp_header(UNREACHABLE_PORT, quoted))
}

#[inline(always)]
pub(super) fn answer_v6<P: Rewrite>(packet: &mut P, headers: &Headers, link: &Link) -> bool {
    let [a, b, c, d, e, f, g, h, _, _] = headers.flow.key;
    let network = headers.layout.network();
    let quoted_bytes = quoted_bytes(headers, QUOTED_V6_BYTES_MAX);
    let quoted = packet.sum_words(network, network + quoted_bytes);
    if !put_link(packet, link, network + quoted_bytes, 40 + ICMP_BYTES) {
        return false;
    }
    let payload_bytes = ICMP_BYTES + quoted_bytes;
    let [high, low] = (payload_bytes as u16).to_be_bytes();
    let length = u32::from_ne_bytes([0, 0, high, low]);
    let next = u32::from_ne_bytes([0, 0, 0, PROTOCOL_ICMPV6]);
    let pseudo = sum::total([a, b, c, d, e, f, g, h, length, next]);
    let ip = ipv6_header(payload_bytes, PROTOCOL_ICMPV6, [e, f, g, h], [a, b, c, d]);
    packet.put_words(network, ip)
        && packet.put_words(network + 40, icmp_header(V6_UNREACHABLE_PORT, pseudo + quoted))
}

/// Bytes of the IP packet that are quoted.
#[inline(always)]
fn quoted_bytes(headers: &Headers, max: usize) -> usize {
    let bytes = headers.layout.end() - headers.layout.network();
    if bytes < max { bytes } else { max }
}

/// Leaves the first `size_bytes` of the packet, puts `front_bytes` before them, and there the
/// Ethernet header with its tags, MACs swapped.
#[inline(always)]
fn put_link<P: Rewrite>(
    packet: &mut P,
    link: &Link,
    size_bytes: usize,
    front_bytes: usize,
) -> bool {
    packet.trim(size_bytes)
        && packet.grow_front(front_bytes)
        && packet.put_words(0, link.macs)
        // The IP header comes to stand over what of it these words hold.
        && packet.put_words(size_of_val(&link.macs), link.types)
}

/// The ICMP header, from the sum of all that its checksum covers besides.
#[inline(always)]
fn icmp_header([kind, code]: [u8; 2], rest: u64) -> [u32; 2] {
    let first = u32::from_ne_bytes([kind, code, 0, 0]);
    let checksum = sum::checksum(u64::from(first) + rest);
    [first | sum::in_second_half(checksum), 0]
}
