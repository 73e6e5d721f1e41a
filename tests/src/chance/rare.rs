//! Random packets of the rarer kinds: fragments, extension headers, ICMP, protocols without ports.

use std::net::IpAddr;

use sickbay_shared::model::frame::{Extension, Frame};
use sickbay_shared::packet::{PROTOCOL_ICMP, PROTOCOL_ICMPV6};

use super::Chance;

/// Makes a rare packet of a common one: of the same two addresses, and mostly of the same flow.
pub(super) fn make(frame: &mut Frame, chance: &mut Chance) {
    match chance.below(8) {
        0 => make_fragment(frame, chance, true),
        1 => make_fragment(frame, chance, false),
        2 => frame.extensions = extensions(chance),
        3 | 4 => make_error(frame, chance),
        5 => make_echo(frame, chance),
        6 => frame.protocol = chance.one_of(&[47, 50, 51, 89, 132]),
        _ => frame.payload_bytes = chance.below(1_400) as usize,
    }
}

/// Of one of a few datagrams, so that firsts and others meet.
fn make_fragment(frame: &mut Frame, chance: &mut Chance, first: bool) {
    let identification = chance.below(2);
    let offset = if first { 0 } else { 1 + chance.below(180) as u16 };
    let more = first || chance.happens(50);
    if !first {
        frame.body = Some(vec![chance.number() as u8; 8 * chance.below(4) as usize]);
    }
    if frame.source.0.is_ipv4() {
        frame.identification = identification as u16;
        frame.fragment = offset | if more { 0x2000 } else { 0 };
        return;
    }
    if chance.happens(30) {
        frame.extensions.push(Extension::options(60, chance.below(2) as u8, 0));
    }
    frame.extensions.push(Extension::fragment(offset, more, identification));
    if first && chance.happens(30) {
        frame.extensions.push(Extension::options(60, 0, 0));
    }
}

/// Extension headers, read through or not; none of IPv4.
fn extensions(chance: &mut Chance) -> Vec<Extension> {
    let mut all = Vec::new();
    for number in 0..1 + chance.below(9) {
        let more_words = chance.one_of(&[0, 0, 0, 1, 3, 40]);
        all.push(match chance.below(12) {
            0 => Extension::options(43, more_words, chance.below(2) as u8),
            1 => Extension::authentication(),
            2 => Extension::fragment(0, false, 1),
            3 => Extension::options(chance.one_of(&[135, 139, 253]), more_words, 0),
            4 | 5 if number == 0 => Extension::options(0, more_words, 0),
            _ => Extension::options(60, more_words, 0),
        });
    }
    all
}

/// An error about what was sent to the client in the VIP's name, or about something else.
fn make_error(frame: &mut Frame, chance: &mut Chance) {
    let (client, vip) = (frame.source, frame.destination);
    let mut quoted = Frame {
        protocol: frame.protocol,
        payload_bytes: chance.below(60) as usize,
        ..Frame::tcp(vip, client, 0x10)
    };
    match chance.below(12) {
        0 => quoted.option_words = chance.below(11) as u8,
        1 => quoted.fragment = chance.number() as u16,
        2 | 3 => quoted.extensions = extensions(chance),
        4 => quoted.protocol = chance.number() as u8,
        5 => quoted.source.0 = client.0,
        _ => {}
    }
    let mut quoted = quoted.quoted();
    if chance.happens(10) {
        quoted.truncate(chance.below(60) as usize);
    }
    let kind = if client.0.is_ipv4() {
        chance.one_of(&[3, 3, 3, 11, 12, 4, 5])
    } else {
        chance.one_of(&[1, 2, 2, 3, 4, 0, 137])
    };
    let router = match client.0 {
        IpAddr::V4(_) => IpAddr::from([203, 0, 113, 9]),
        IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 9, 0, 0, 0, 0, 9]),
    };
    let extensions = if chance.happens(10) { extensions(chance) } else { Vec::new() };
    let start = [kind, chance.below(5) as u8];
    *frame = Frame { extensions, ..Frame::icmp(router, vip.0, start, [&[0; 4], &quoted]) };
}

/// An echo request; its checksum is as good as its bytes are random.
fn make_echo(frame: &mut Frame, chance: &mut Chance) {
    let (client, vip) = (frame.source.0, frame.destination.0);
    let kind = match (client.is_ipv4(), chance.below(10)) {
        (_, 0) => chance.number() as u8,
        (true, _) => 8,
        (false, _) => 128,
    };
    let payload = vec![chance.number() as u8; chance.below(120) as usize];
    *frame = Frame::icmp(client, vip, [kind, 0], [&[1, 2, 3, 4], &payload]);
    frame.checksums = chance.happens(90);
}

/// The protocol of echo requests to an address of this family.
pub(super) fn echo_protocol(address: IpAddr) -> u8 {
    if address.is_ipv4() { PROTOCOL_ICMP } else { PROTOCOL_ICMPV6 }
}
