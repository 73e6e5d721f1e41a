//! Answers that are made of the packet they answer, byte by byte: the same on the host and in the
//! kernel. They go back where the packet came from, in the name of whom it was for.
//!
//! A refusal is a RST (RFC 9293, 3.10.7.1) or ICMP's port unreachable (RFC 1812, 4.3.2; RFC 4443,
//! 3.1), an echo request's answer its reply. All checksums are whole: what a local stack sends may
//! have left its own to be completed by a device that never sees the answer.

/// ICMP's echo reply.
mod echo;
/// TCP's RST.
mod reset;
/// One's complement sums (RFC 1071).
mod sum;
/// ICMP's port unreachable.
mod unreachable;

pub use echo::{answer_echo, echo_answerable};
pub use sum::sum_words;

use crate::packet::{Flow, Headers, Kind, PROTOCOL_TCP, Packet};

/// A packet that can be written, and whose ends can be moved.
pub trait Rewrite: Packet {
    /// Writes words at `offset`, their bytes in the packet's order; whether it has as many there.
    fn put_words<const N: usize>(&mut self, offset: usize, words: [u32; N]) -> bool;
    /// Cuts off what stands behind the first `size_bytes`; whether it could.
    fn trim(&mut self, size_bytes: usize) -> bool;
    /// Puts as many bytes before the packet's first, whatever they are; whether it could.
    fn grow_front(&mut self, bytes: usize) -> bool;

    /// [`sum_words`], called so that the verifier checks its loop apart.
    #[inline(always)]
    fn sum_words(&self, start: usize, end: usize) -> u64 {
        sum_words(self, start, end)
    }
}

/// Hop limit of answers.
const HOPS: u8 = 64;

/// Whether a packet may be answered by a refusal: it is no answer itself, has the ports, and comes
/// from a single host (RFC 1122, 3.2.2 and 4.2.3.10).
#[inline(always)]
#[must_use]
pub fn refusable(headers: &Headers) -> bool {
    matches!(headers.kind, Kind::Whole | Kind::FirstFragment)
        && from_single_host(&headers.flow)
        && reset::may_answer(headers)
}

/// Turns a packet, whose headers these are, into the refusal of itself; whether it could, else it is
/// to be dropped.
#[inline(always)]
pub fn refuse<P: Rewrite>(packet: &mut P, headers: &Headers) -> bool {
    let Some(link) = Link::back(packet) else {
        return false;
    };
    if !refusable(headers) {
        return false;
    }
    match (headers.flow.protocol, headers.flow.family) {
        (PROTOCOL_TCP, 4) => reset::answer_v4(packet, headers, &link),
        (PROTOCOL_TCP, _) => reset::answer_v6(packet, headers, &link),
        (_, 4) => unreachable::answer_v4(packet, headers, &link),
        (_, _) => unreachable::answer_v6(packet, headers, &link),
    }
}

/// Whether the source address can be a single host's.
#[inline(always)]
fn from_single_host(flow: &Flow) -> bool {
    let [first, second, ..] = flow.key;
    let [byte, _, _, _] = first.to_ne_bytes();
    if flow.family == 4 {
        // "This" network, loopback, multicast, reserved and broadcast (RFC 6890).
        !matches!(byte, 0 | 127 | 224..)
    } else {
        // ::/64 holds the unspecified, the loopback and the IPv4-mapped addresses; ff00::/8 is
        // multicast (RFC 4291, 2.4).
        byte != 0xff && (first | second) != 0
    }
}

/// The start of an answer's frame: back to where the packet came from, with the same tags.
///
/// Read before anything else of the packet: the compiler leaves out a check that follows from one
/// of bytes behind, and the verifier does not see that it follows.
struct Link {
    /// The MACs, each in the other's place.
    macs: [u32; 3],
    /// What follows: tags and type, and something of the IP header.
    types: [u32; 3],
}

impl Link {
    #[inline(always)]
    fn back<P: Packet>(packet: &P) -> Option<Self> {
        let [a, b, c, d, e, f]: [u32; 6] = packet.words(0)?;
        let ([a0, a1, a2, a3], [b0, b1, b2, b3]) = (a.to_ne_bytes(), b.to_ne_bytes());
        let [c0, c1, c2, c3] = c.to_ne_bytes();
        let macs = [
            u32::from_ne_bytes([b2, b3, c0, c1]),
            u32::from_ne_bytes([c2, c3, a0, a1]),
            u32::from_ne_bytes([a2, a3, b0, b1]),
        ];
        Some(Self { macs, types: [d, e, f] })
    }
}

/// An IPv4 header without options, of an answer: words in the packet's order.
#[inline(always)]
fn ipv4_header(total_bytes: usize, protocol: u8, source: u32, destination: u32) -> [u32; 5] {
    let [high, low] = (total_bytes as u16).to_be_bytes();
    let first = u32::from_ne_bytes([0x45, 0, high, low]);
    // Never fragmented, so it needs no identification (RFC 6864, 4.1).
    let second = u32::from_ne_bytes([0, 0, 0x40, 0]);
    with_checksum([first, second, u32::from_ne_bytes([HOPS, protocol, 0, 0]), source, destination])
}

/// An IPv4 header with its checksum in place of zero.
#[inline(always)]
fn with_checksum(mut header: [u32; 5]) -> [u32; 5] {
    let [first, second, third, source, destination] = header;
    let sum = sum::total([first, second, third, source, destination]);
    header[2] = third | sum::in_second_half(sum::checksum(sum));
    header
}

/// An IPv6 header of an answer: words in the packet's order.
#[inline(always)]
fn ipv6_header(
    payload_bytes: usize,
    next: u8,
    source: [u32; 4],
    destination: [u32; 4],
) -> [u32; 10] {
    let [high, low] = (payload_bytes as u16).to_be_bytes();
    let ([a, b, c, d], [e, f, g, h]) = (source, destination);
    let first = u32::from_ne_bytes([0x60, 0, 0, 0]);
    let second = u32::from_ne_bytes([high, low, next, HOPS]);
    [first, second, a, b, c, d, e, f, g, h]
}
