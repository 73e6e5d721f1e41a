//! ICMP's echo reply: the request with addresses, type and hop limit changed.
//!
//! Its checksum is brought up to date, not made anew (RFC 1624), so that a request that was damaged
//! is a damaged reply; no stack leaves that of ICMP to a device.

use super::{HOPS, Link, Rewrite, from_single_host, sum, with_checksum};
use crate::packet::{Headers, Kind};

/// Type of ICMP's echo reply (RFC 792) ...
const REPLY: u8 = 0;
/// ... and of ICMPv6's (RFC 4443, 4.2).
const V6_REPLY: u8 = 129;

/// Whether a packet is an echo request that is answered here: whole, from a single host, and
/// without options or extension headers, which a reply would have to mind.
#[inline(always)]
#[must_use]
pub fn echo_answerable(headers: &Headers) -> bool {
    let ip_bytes = if headers.flow.family == 4 { 20 } else { 40 };
    headers.kind == Kind::EchoRequest
        && headers.layout.transport() - headers.layout.network() == ip_bytes
        && from_single_host(&headers.flow)
}

/// Turns an echo request, whose headers these are, into its reply; whether it could, else it is to be
/// dropped.
#[inline(always)]
pub fn answer_echo<P: Rewrite>(packet: &mut P, headers: &Headers) -> bool {
    let Some(link) = Link::back(packet) else {
        return false;
    };
    if !echo_answerable(headers) {
        return false;
    }
    packet.put_words(0, link.macs)
        && if headers.flow.family == 4 {
            answer_v4(packet, headers.layout.network())
        } else {
            answer_v6(packet, headers.layout.network())
        }
}

#[inline(always)]
fn answer_v4<P: Rewrite>(packet: &mut P, network: usize) -> bool {
    let header: Option<[u32; 5]> = packet.words(network);
    let Some([first, second, third, source, destination]) = header else {
        return false;
    };
    let [_, protocol, _, _] = third.to_ne_bytes();
    let third = u32::from_ne_bytes([HOPS, protocol, 0, 0]);
    packet.put_words(network, with_checksum([first, second, third, destination, source]))
        && put_type(packet, network + 20, REPLY)
}

#[inline(always)]
fn answer_v6<P: Rewrite>(packet: &mut P, network: usize) -> bool {
    let header: Option<[u32; 10]> = packet.words(network);
    let Some([first, second, a, b, c, d, e, f, g, h]) = header else {
        return false;
    };
    let [length_high, length_low, next, _] = second.to_ne_bytes();
    let second = u32::from_ne_bytes([length_high, length_low, next, HOPS]);
    packet.put_words(network, [first, second, e, f, g, h, a, b, c, d])
        && put_type(packet, network + 40, V6_REPLY)
}

/// Changes the message's type, and its checksum accordingly.
#[inline(always)]
fn put_type<P: Rewrite>(packet: &mut P, transport: usize, kind: u8) -> bool {
    let Some([word]) = packet.words::<1>(transport) else {
        return false;
    };
    let [old_kind, code, checksum_high, checksum_low] = word.to_ne_bytes();
    let checksum = u16::from_ne_bytes([checksum_high, checksum_low]);
    let old = u16::from_ne_bytes([old_kind, code]);
    let new = u16::from_ne_bytes([kind, code]);
    let sum = u64::from(!checksum) + u64::from(!old) + u64::from(new);
    let first_half = u32::from_ne_bytes([kind, code, 0, 0]);
    packet.put_words(transport, [first_half | sum::in_second_half(sum::checksum(sum))])
}
