//! What answers must be, built from frames and checksums that are not those of the code that makes
//! answers of packets.

use std::vec::Vec;

use super::frame::{CLIENT_MAC, Frame, HOST_MAC};

/// A RST to this segment, with these flags, sequence and acknowledgement number.
#[must_use]
pub fn rst(asked: &Frame, flags: u8, sequence: u32, acknowledgement: u32) -> Vec<u8> {
    let answer = Frame {
        window: 0,
        sequence,
        acknowledgement,
        ..Frame::tcp(asked.destination, asked.source, flags)
    };
    back(asked, answer).bytes()
}

/// ICMP's port unreachable to this packet, which quotes so many bytes of it.
#[must_use]
pub fn unreachable(asked: &Frame, quoted_bytes: usize) -> Vec<u8> {
    let (vip, client) = (asked.destination.0, asked.source.0);
    let start = if vip.is_ipv4() { [3, 3] } else { [1, 4] };
    let quoted = &asked.quoted()[..quoted_bytes];
    back(asked, Frame::icmp(vip, client, start, [&[0; 4], quoted])).bytes()
}

/// The reply to an echo request whose checksums are right.
#[must_use]
pub fn echo_reply(asked: &Frame) -> Vec<u8> {
    let mut body = asked.body.clone().unwrap_or_default();
    body[0] = if asked.source.0.is_ipv4() { 0 } else { 129 };
    body[2..4].fill(0);
    Frame {
        mac: asked.source_mac,
        source_mac: asked.mac,
        source: asked.destination,
        destination: asked.source,
        body: Some(body),
        ..asked.clone()
    }
    .bytes()
}

/// What every refusal has: back to where the packet came from, never a fragment, right checksums.
fn back(asked: &Frame, answer: Frame) -> Frame {
    Frame {
        mac: CLIENT_MAC,
        source_mac: HOST_MAC,
        tags: asked.tags.clone(),
        source: asked.destination,
        destination: asked.source,
        fragment: 0x4000,
        identification: 0,
        checksums: true,
        ..answer
    }
}
