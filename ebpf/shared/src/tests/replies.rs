//! Answers, byte by byte: what they must be is built by the tests' own frames and checksums.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec;
use std::vec::Vec;

use crate::model::Buffer;
use crate::model::answer::{echo_reply, rst, unreachable};
use crate::model::frame::{ACK, Extension, FIN, Frame, RST, SYN, checksum};
use crate::packet::parse;
use crate::reply::{answer_echo, refuse};

const V4: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1))];
const V6: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0xfffe, 0xffff, 0xffff, 0xffff, 7)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
const PORTS: [u16; 2] = [40_000, 80];

fn segment([client, vip]: [IpAddr; 2], flags: u8) -> Frame {
    Frame {
        sequence: 0xffff_ff00,
        acknowledgement: 0x8765_4321,
        ..Frame::tcp((client, PORTS[0]), (vip, PORTS[1]), flags)
    }
}

fn datagram([client, vip]: [IpAddr; 2], payload_bytes: usize) -> Frame {
    Frame { payload_bytes, ..Frame::udp((client, PORTS[0]), (vip, PORTS[1])) }
}

fn refused(frame: &Frame) -> Option<Vec<u8>> {
    refused_bytes(frame.bytes())
}

fn refused_bytes(frame: Vec<u8>) -> Option<Vec<u8>> {
    let mut buffer = Buffer { frame };
    let headers = parse(&buffer).ok()?;
    refuse(&mut buffer, &headers).then_some(buffer.frame)
}

#[test]
fn checksum_is_that_of_the_example_in_rfc_1071() {
    // Section 3: the sum of these is ddf2.
    assert_eq!(checksum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), [0x22, 0x0d]);
    assert_eq!(checksum(&[0xff]), [0x00, 0xff]);
}

#[test]
fn segment_that_acknowledges_gets_a_rst_with_what_it_acknowledges() {
    for addresses in [V4, V6] {
        for flags in [ACK, SYN | ACK, FIN | ACK] {
            let asked = Frame { payload_bytes: 77, ..segment(addresses, flags) };
            assert_eq!(refused(&asked), Some(rst(&asked, RST, 0x8765_4321, 0)));
        }
    }
}

#[test]
fn segment_that_does_not_acknowledge_gets_a_rst_that_acknowledges_it() {
    for addresses in [V4, V6] {
        // SYN and FIN count one each, and every byte of the text; the numbers wrap.
        for (flags, payload_bytes, next) in [
            (SYN, 0, 0xffff_ff01),
            (SYN, 300, 45),
            (0, 255, 0xffff_ffff),
            (FIN, 256, 1),
            (SYN | FIN, 0, 0xffff_ff02),
        ] {
            let asked = Frame { payload_bytes, ..segment(addresses, flags) };
            assert_eq!(refused(&asked), Some(rst(&asked, RST | ACK, 0, next)), "{asked:?}");
        }
    }
}

#[test]
fn rst_keeps_tags_and_leaves_out_options_and_padding() {
    let tags = vec![0x88a8, 0x8100];
    let asked = Frame { tags, option_words: 10, tcp_option_words: 10, ..segment(V4, SYN) };
    let answer = rst(&asked, RST | ACK, 0, 0xffff_ff01);
    assert_eq!(refused(&asked), Some(answer.clone()));
    assert_eq!(answer.len(), 14 + 8 + 40);
    let mut padded = segment(V4, SYN).bytes();
    padded.resize(60, 0xaa);
    assert_eq!(refused_bytes(padded), Some(rst(&segment(V4, SYN), RST | ACK, 0, 0xffff_ff01)));
    let extensions = vec![Extension::options(0, 1, 0), Extension::authentication()];
    let asked = Frame { tags: vec![0x8100], extensions, tcp_option_words: 3, ..segment(V6, SYN) };
    assert_eq!(refused(&asked), Some(rst(&asked, RST | ACK, 0, 0xffff_ff01)));
}

#[test]
fn datagram_gets_port_unreachable_that_quotes_it_whole() {
    for addresses in [V4, V6] {
        // Every rest of bytes behind a whole word.
        for payload_bytes in [0, 1, 2, 3, 4, 5, 499] {
            let asked = datagram(addresses, payload_bytes);
            let ip_bytes = asked.quoted().len();
            assert_eq!(refused(&asked), Some(unreachable(&asked, ip_bytes)), "{payload_bytes}");
        }
        let asked = Frame { tags: vec![0x88a8, 0x8100], ..datagram(addresses, 9) };
        assert_eq!(refused(&asked), Some(unreachable(&asked, asked.quoted().len())));
    }
    let mut padded = datagram(V4, 1).bytes();
    padded.resize(60, 0xaa);
    assert_eq!(refused_bytes(padded), Some(unreachable(&datagram(V4, 1), 29)));
}

#[test]
fn quotation_is_as_long_as_its_rule_lets_it() {
    // RFC 1812, 4.3.2.3: at most 576 bytes of IP; RFC 4443, 2.4 (c): at most 1,280.
    for (addresses, longest) in [(V4, 576 - 28), (V6, 1_280 - 48)] {
        let headers = longest - datagram(addresses, 0).quoted().len();
        for (payload_bytes, quoted) in [
            (headers, longest),
            (headers + 1, longest),
            (1_400, longest),
            (headers - 1, longest - 1),
        ] {
            let asked = datagram(addresses, payload_bytes);
            let answer = unreachable(&asked, quoted);
            assert_eq!(refused(&asked), Some(answer), "{payload_bytes}");
        }
    }
    let asked = Frame { option_words: 10, ..datagram(V4, 600) };
    assert_eq!(refused(&asked), Some(unreachable(&asked, 548)));
    let asked = Frame { extensions: vec![Extension::options(60, 9, 0)], ..datagram(V6, 1_300) };
    assert_eq!(refused(&asked), Some(unreachable(&asked, 1_232)));
}

#[test]
fn protocols_without_a_refusal_of_their_own_get_port_unreachable() {
    for addresses in [V4, V6] {
        let asked = Frame { protocol: 132, ..segment(addresses, 0) };
        assert_eq!(refused(&asked), Some(unreachable(&asked, asked.quoted().len())));
    }
}

#[test]
fn first_fragment_is_refused_and_a_later_one_is_not() {
    let asked = Frame { fragment: 0x2000, ..datagram(V4, 64) };
    assert_eq!(refused(&asked), Some(unreachable(&asked, 92)));
    assert_eq!(refused(&Frame { fragment: 0x0008, ..datagram(V4, 64) }), None);
    let later = vec![Extension::fragment(8, false, 7)];
    assert_eq!(refused(&Frame { extensions: later, ..datagram(V6, 64) }), None);
}

#[test]
fn what_must_not_be_answered_is_not() {
    for flags in [RST, RST | ACK] {
        for addresses in [V4, V6] {
            assert_eq!(refused(&segment(addresses, flags)), None);
        }
    }
    for source in ["0.0.0.0", "0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"] {
        let source = source.parse().unwrap();
        assert_eq!(refused(&segment([source, V4[1]], SYN)), None, "{source}");
        assert_eq!(refused(&datagram([source, V4[1]], 1)), None, "{source}");
    }
    for source in ["::", "::1", "::ffff:192.0.2.7", "ff02::1"] {
        let source = source.parse().unwrap();
        assert_eq!(refused(&segment([source, V6[1]], SYN)), None, "{source}");
        assert_eq!(refused(&datagram([source, V6[1]], 1)), None, "{source}");
    }
    let group = Frame { source_mac: [3, 0, 0, 0, 0, 1], ..segment(V4, SYN) };
    assert_eq!(refused(&group), None);
    let echo = Frame::icmp(V4[0], V4[1], [8, 0], [&[0; 4], &[]]);
    assert_eq!(refused(&echo), None);
    let error =
        Frame::icmp(V4[0], V4[1], [3, 3], [&[0; 4], &segment([V4[1], V4[0]], ACK).quoted()]);
    assert_eq!(refused(&error), None);
    assert_eq!(refused_bytes(segment(V4, SYN).bytes()[..53].to_vec()), None);
}

fn echo(addresses: [IpAddr; 2], kind: u8, payload: &[u8]) -> Frame {
    let message = Frame::icmp(addresses[0], addresses[1], [kind, 0], [&[1, 2, 3, 4], payload]);
    Frame { checksums: true, identification: 0x1234, ..message }
}

fn answered(frame: &Frame) -> Option<Vec<u8>> {
    let mut buffer = Buffer { frame: frame.bytes() };
    let headers = parse(&buffer).ok()?;
    answer_echo(&mut buffer, &headers).then_some(buffer.frame)
}

#[test]
fn echo_request_becomes_its_reply() {
    for payload_bytes in [0, 1, 56, 1_400] {
        let payload = vec![0xa5; payload_bytes];
        for (addresses, request) in [(V4, 8), (V6, 128)] {
            let asked = echo(addresses, request, &payload);
            assert_eq!(answered(&asked), Some(echo_reply(&asked)), "{payload_bytes}");
            let asked = Frame { tags: vec![0x88a8, 0x8100], ..asked };
            assert_eq!(answered(&asked), Some(echo_reply(&asked)), "{payload_bytes}");
        }
    }
}

#[test]
fn damaged_echo_request_becomes_a_damaged_reply() {
    let mut buffer = Buffer { frame: echo(V4, 8, &[0xa5; 56]).bytes() };
    buffer.frame[60] ^= 1;
    let headers = parse(&buffer).unwrap();
    assert!(answer_echo(&mut buffer, &headers));
    assert_ne!(checksum(&buffer.frame[34..]), [0, 0]);
    buffer.frame[60] ^= 1;
    assert_eq!(checksum(&buffer.frame[34..]), [0, 0]);
}

#[test]
fn echo_request_with_options_or_from_nobody_is_left_to_others() {
    assert_eq!(answered(&Frame { option_words: 1, ..echo(V4, 8, &[]) }), None);
    let extensions = vec![Extension::options(0, 0, 0)];
    assert_eq!(answered(&Frame { extensions, ..echo(V6, 128, &[]) }), None);
    assert_eq!(answered(&Frame { fragment: 0x2000, ..echo(V4, 8, &[]) }), None);
    let everybody = "255.255.255.255".parse().unwrap();
    assert_eq!(answered(&echo([everybody, V4[1]], 8, &[])), None);
    assert_eq!(answered(&echo(V4, 0, &[])), None);
    assert_eq!(answered(&segment(V4, SYN)), None);
}
