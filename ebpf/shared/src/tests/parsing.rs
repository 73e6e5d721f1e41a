//! What is read of packets, written out: whose they are, what they are of it, or why they are not
//! read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::vec;
use std::vec::Vec;

use crate::model::Bytes;
use crate::model::frame::{ACK, Extension, Frame, SYN};
use crate::packet::{Flow, Headers, Kind, Unread, headers_bytes, parse};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));
const VIP: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const ROUTER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
const CLIENT_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 7));
const VIP_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1));
const ROUTER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 9, 0, 0, 0, 0, 9));
const PORT: u16 = 40_000;

fn word(bytes: [u8; 4]) -> u32 {
    u32::from_ne_bytes(bytes)
}

/// The client's flow to the VIP: ports as bytes of the packet.
fn flow(ports: [u8; 4], protocol: u8) -> Flow {
    Flow::v4(word([198, 51, 100, 7]), word([192, 0, 2, 1]), word(ports), protocol)
}

fn flow_v6(ports: [u8; 4], protocol: u8) -> Flow {
    let start = [word([0x20, 0x01, 0x0d, 0xb8]), 0, 0];
    let address = |last: u8| [start[0], 0, 0, word([0, 0, 0, last])];
    Flow::v6(address(7), address(1), word(ports), protocol)
}

/// 40,000 to 80.
const PORTS: [u8; 4] = [0x9c, 0x40, 0, 80];

fn syn() -> Frame {
    Frame::tcp((CLIENT, PORT), (VIP, 80), SYN)
}

fn syn_v6() -> Frame {
    Frame::tcp((CLIENT_V6, PORT), (VIP_V6, 80), SYN)
}

fn udp_v6() -> Frame {
    Frame { payload_bytes: 64, ..Frame::udp((CLIENT_V6, PORT), (VIP_V6, 80)) }
}

fn read(frame: &[u8]) -> Result<(Flow, Kind, bool), Unread> {
    parse(&Bytes::new(frame)).map(|headers| (headers.flow, headers.kind, headers.opens))
}

fn with(extensions: &[Extension]) -> Frame {
    Frame { extensions: extensions.to_vec(), ..udp_v6() }
}

fn echo(protocol_of: IpAddr, to: IpAddr, kind: u8) -> Frame {
    Frame::icmp(protocol_of, to, [kind, 0], [&[0, 1, 0, 1], &[0x5a; 16]])
}

/// An error of this type from a router to the VIP about what a backend sent in its name.
fn error(kind: u8, quoted: &[u8]) -> Frame {
    Frame::icmp(ROUTER, VIP, [kind, 0], [&[0; 4], quoted])
}

fn error_v6(kind: u8, quoted: &[u8]) -> Frame {
    Frame::icmp(ROUTER_V6, VIP_V6, [kind, 0], [&[0; 4], quoted])
}

/// What a backend sent to the client in the VIP's name.
fn served() -> Frame {
    Frame::tcp((VIP, 80), (CLIENT, PORT), ACK)
}

fn served_v6() -> Frame {
    Frame::tcp((VIP_V6, 80), (CLIENT_V6, PORT), ACK)
}

#[test]
fn tags_up_to_two_are_read_through() {
    for tags in [vec![], vec![0x8100], vec![0x88a8, 0x8100]] {
        let frame = Frame { tags: tags.clone(), ..syn() }.bytes();
        assert_eq!(read(&frame), Ok((flow(PORTS, 6), Kind::Whole, true)), "{tags:?}");
        let network = 14 + 4 * tags.len();
        let layout = parse(&Bytes::new(&frame)).unwrap().layout;
        assert_eq!((layout.network(), layout.transport()), (network, network + 20));
        assert_eq!(layout.end(), frame.len());
        for tags_taken_off in 0..=3 {
            let packet = Bytes { frame: &frame, tags_taken_off };
            let fits = tags_taken_off + tags.len() <= 2 || tags.is_empty();
            assert_eq!(parse(&packet).is_ok(), fits, "{tags:?} and {tags_taken_off}");
        }
    }
    let frame = Frame { tags: vec![0x88a8, 0x8100, 0x8100], ..syn() };
    assert_eq!(read(&frame.bytes()), Err(Unread::NotRead));
}

#[test]
fn protocols_without_ports_are_flows_of_two_addresses() {
    for protocol in [47, 50, 132] {
        let frame = Frame { protocol, ..syn() }.bytes();
        assert_eq!(read(&frame), Ok((flow([0; 4], protocol), Kind::Whole, false)));
        let frame = Frame { protocol, ..syn_v6() }.bytes();
        assert_eq!(read(&frame), Ok((flow_v6([0; 4], protocol), Kind::Whole, false)));
    }
}

#[test]
fn headers_that_contradict_themselves_are_not_read() {
    let patched = |frame: &Frame, at: usize, byte: u8| {
        let mut bytes = frame.bytes();
        bytes[at] = byte;
        read(&bytes)
    };
    let udp = Frame { payload_bytes: 8, ..Frame::udp((CLIENT, PORT), (VIP, 80)) };
    // TCP's header: of four words; of eight where the packet has five.
    assert_eq!(patched(&syn(), 14 + 20 + 12, 0x40), Err(Unread::NotRead));
    assert_eq!(patched(&syn(), 14 + 20 + 12, 0x80), Err(Unread::NotRead));
    // UDP's length: less than its header; more than the packet.
    assert_eq!(patched(&udp, 14 + 20 + 5, 7), Err(Unread::NotRead));
    assert_eq!(patched(&udp, 14 + 20 + 5, 17), Err(Unread::Truncated));
    assert_eq!(patched(&udp, 14 + 20 + 5, 16).map(|read| read.1), Ok(Kind::Whole));
    // IPv4's header is longer than the packet.
    assert_eq!(patched(&syn(), 17, 19), Err(Unread::Truncated));
    assert_eq!(patched(&syn_v6(), 14, 0x50), Err(Unread::NotRead));
}

#[test]
fn first_fragment_has_the_ports_and_the_others_follow_by_its_key() {
    let udp = Frame { payload_bytes: 64, ..Frame::udp((CLIENT, PORT), (VIP, 80)) };
    let first = Frame { fragment: 0x2000, identification: 0x1234, ..udp.clone() };
    let mut bytes = first.bytes();
    // The length is the datagram's, of which this is a part.
    bytes[14 + 20 + 4..14 + 20 + 6].copy_from_slice(&2_000_u16.to_be_bytes());
    assert_eq!(read(&bytes), Ok((flow(PORTS, 17), Kind::FirstFragment, false)));
    let first = parse(&Bytes::new(&bytes)).unwrap();
    let other = |fragment: u16| {
        let body = Some(vec![0x5a; 40]);
        let frame = Frame { fragment, identification: 0x1234, body, ..udp.clone() }.bytes();
        parse(&Bytes::new(&frame)).unwrap()
    };
    for fragment in [0x2001, 0x20b9, 0x00b9, 0x1fff] {
        let other = other(fragment);
        assert_eq!((other.flow, other.kind), (flow([0; 4], 17), Kind::LaterFragment));
        assert_eq!(other.fragment_key(), first.fragment_key());
    }
    let [identification, last] = [word([0x12, 0x34, 0, 0]), word([17, 4, 0, 0])];
    let (source, destination) = (word([198, 51, 100, 7]), word([192, 0, 2, 1]));
    let key = [source, 0, 0, 0, destination, 0, 0, 0, identification, last];
    assert_eq!(first.fragment_key(), key);
    // "Don't fragment" alone is no fragment.
    let whole = Frame { fragment: 0x4000, ..udp }.bytes();
    assert_eq!(read(&whole), Ok((flow(PORTS, 17), Kind::Whole, false)));
}

#[test]
fn first_fragment_without_its_whole_header_is_truncated() {
    for (protocol, bytes) in [(6, 19), (17, 7)] {
        let body = Some(vec![0x50; bytes]);
        let frame = Frame { protocol, fragment: 0x2000, body, ..syn() }.bytes();
        assert_eq!(read(&frame), Err(Unread::Truncated));
    }
}

#[test]
fn extension_headers_are_read_through() {
    let options = Extension::options;
    let cases = [
        vec![options(0, 0, 0)],
        vec![options(0, 2, 0), options(60, 1, 0)],
        vec![options(43, 0, 0)],
        vec![Extension::authentication()],
        vec![options(0, 0, 0), options(43, 2, 0), options(60, 0, 0), Extension::authentication()],
        // A datagram in a single fragment is whole.
        vec![Extension::fragment(0, false, 7)],
        vec![options(60, 0, 0); 8],
    ];
    for extensions in cases {
        let frame = with(&extensions);
        let expected = Ok((flow_v6(PORTS, 17), Kind::Whole, false));
        assert_eq!(read(&frame.bytes()), expected, "{extensions:?}");
        let frame = Frame { protocol: 6, flags: SYN, ..frame }.bytes();
        assert_eq!(read(&frame), Ok((flow_v6(PORTS, 6), Kind::Whole, true)), "{extensions:?}");
    }
}

#[test]
fn extension_headers_that_are_not_read_through() {
    let options = Extension::options;
    let fragment = || Extension::fragment(0, true, 7);
    let cases = [
        vec![options(60, 0, 0); 9],
        // Hop-by-hop options stand first or not at all.
        vec![options(60, 0, 0), options(0, 0, 0)],
        // This is not its destination.
        vec![options(43, 0, 1)],
        vec![fragment(), fragment()],
        vec![options(135, 0, 0)],
        vec![options(139, 0, 0)],
        vec![options(140, 0, 0)],
        vec![options(253, 0, 0)],
        // TCP would begin behind byte 512.
        vec![options(60, 60, 0)],
    ];
    for extensions in cases {
        assert_eq!(read(&with(&extensions).bytes()), Err(Unread::NotRead), "{extensions:?}");
    }
    // What stands behind byte 512 is UDP's header; at byte 510 it is read.
    assert_eq!(read(&with(&[options(60, 56, 0)]).bytes()).unwrap().1, Kind::Whole);
}

#[test]
fn extension_headers_that_end_behind_the_packet_are_truncated() {
    let frame = with(&[Extension::options(0, 3, 0)]).bytes();
    for size in [14 + 40, 14 + 40 + 7, 14 + 40 + 31, 14 + 40 + 32 + 7] {
        let mut cut = frame[..size].to_vec();
        cut[18..20].copy_from_slice(&((size - 54) as u16).to_be_bytes());
        assert_eq!(read(&cut), Err(Unread::Truncated), "{size}");
    }
    // A length that ends within the headers, though the frame goes on.
    let mut short = frame;
    short[18..20].copy_from_slice(&31_u16.to_be_bytes());
    assert_eq!(read(&short), Err(Unread::Truncated));
}

#[test]
fn fragments_of_ipv6_are_known_by_addresses_and_identification() {
    let options = |kind: u8| Extension::options(kind, 0, 0);
    let first = with(&[options(0), Extension::fragment(0, true, 0x0102_0304), options(60)]);
    let first = Frame { protocol: 17, ..first }.bytes();
    // UDP's length is that of the datagram: more than this part has.
    let mut first = first;
    let udp = first.len() - 72;
    first[udp + 4..udp + 6].copy_from_slice(&2_000_u16.to_be_bytes());
    assert_eq!(read(&first), Ok((flow_v6(PORTS, 17), Kind::FirstFragment, false)));
    let first = parse(&Bytes::new(&first)).unwrap();
    let later = Frame {
        extensions: vec![options(0), Extension::fragment(8, false, 0x0102_0304)],
        // As the first's fragment header says.
        protocol: 60,
        body: Some(vec![0; 12]),
        ..udp_v6()
    };
    let later = parse(&Bytes::new(&later.bytes())).unwrap();
    assert_eq!(later.kind, Kind::LaterFragment);
    assert_eq!(later.fragment_key(), first.fragment_key());
    let [start, identification] = [word([0x20, 0x01, 0x0d, 0xb8]), word([1, 2, 3, 4])];
    let (source, destination) = (word([0, 0, 0, 7]), word([0, 0, 0, 1]));
    let last = word([0, 6, 0, 0]);
    let key = [start, 0, 0, source, start, 0, 0, destination, identification, last];
    assert_eq!(first.fragment_key(), key);
}

#[test]
fn icmp_error_is_of_the_flow_it_quotes() {
    let of_flow = |ports, protocol| Ok((flow(ports, protocol), Kind::IcmpError, false));
    for kind in [3, 11, 12] {
        assert_eq!(read(&error(kind, &served().quoted()).bytes()), of_flow(PORTS, 6));
    }
    // Eight bytes behind the header are all that RFC 792 asks for.
    let quoted = &served().quoted()[..28];
    assert_eq!(read(&error(3, quoted).bytes()), of_flow(PORTS, 6));
    let options = Frame { option_words: 10, ..served() }.quoted();
    assert_eq!(read(&error(3, &options).bytes()), of_flow(PORTS, 6));
    let outer = Frame { option_words: 3, tags: vec![0x8100], ..error(3, quoted) };
    assert_eq!(read(&outer.bytes()), of_flow(PORTS, 6));
    let datagram = Frame::udp((VIP, 80), (CLIENT, PORT)).quoted();
    assert_eq!(read(&error(3, &datagram).bytes()), of_flow(PORTS, 17));
    let first = Frame { fragment: 0x2000, ..served() }.quoted();
    assert_eq!(read(&error(3, &first).bytes()), of_flow(PORTS, 6));
    let tunnel = Frame { protocol: 47, ..served() }.quoted();
    assert_eq!(read(&error(3, &tunnel).bytes()), of_flow([0; 4], 47));
}

#[test]
fn icmpv6_error_is_of_the_flow_it_quotes() {
    let of_flow = Ok((flow_v6(PORTS, 6), Kind::IcmpError, false));
    for kind in 1..=4 {
        assert_eq!(read(&error_v6(kind, &served_v6().quoted()).bytes()), of_flow);
    }
    let options = Extension::options(60, 1, 0);
    let extended = Frame { extensions: vec![options.clone()], ..served_v6() }.quoted();
    assert_eq!(read(&error_v6(2, &extended).bytes()), of_flow);
    let outer = Frame { extensions: vec![options], ..error_v6(2, &served_v6().quoted()) };
    assert_eq!(read(&outer.bytes()), of_flow);
}

#[test]
fn icmp_that_names_no_flow_is_unrelated() {
    let unrelated = Err(Unread::IcmpUnrelated);
    let later = Frame { fragment: 0x0010, ..served() }.quoted();
    let foreign = Frame::tcp((ROUTER, 80), (CLIENT, PORT), ACK).quoted();
    let mut other_version = served().quoted();
    other_version[0] = 0x65;
    for quoted in [&later[..], &foreign, &other_version, &served().quoted()[..20], &[]] {
        assert_eq!(read(&error(3, quoted).bytes()), unrelated, "{quoted:?}");
    }
    let later = Frame { extensions: vec![Extension::fragment(8, false, 7)], ..served_v6() };
    let foreign = Frame::tcp((ROUTER_V6, 80), (CLIENT_V6, PORT), ACK).quoted();
    for quoted in [&later.quoted()[..], &foreign, &served().quoted(), &[]] {
        assert_eq!(read(&error_v6(2, quoted).bytes()), unrelated, "{quoted:?}");
    }
    // Redirect, source quench, timestamp request, echo reply; neighbour solicitation.
    for kind in [5, 4, 13, 0] {
        assert_eq!(read(&error(kind, &served().quoted()).bytes()), unrelated, "{kind}");
    }
    for kind in [0, 5, 129, 135, 136] {
        assert_eq!(read(&error_v6(kind, &served_v6().quoted()).bytes()), unrelated, "{kind}");
    }
    // The first part of an error, or of an echo request, is not answered for the whole.
    let part = Frame { fragment: 0x2000, ..error(3, &served().quoted()) };
    assert_eq!(read(&part.bytes()), unrelated);
    let short = Frame { body: Some(vec![3, 0, 0, 0, 0, 0, 0]), ..error(3, &[]) };
    assert_eq!(read(&short.bytes()), Err(Unread::Truncated));
}

#[test]
fn echo_request_is_known() {
    let (v4, v6) = (echo(CLIENT, VIP, 8).bytes(), echo(CLIENT_V6, VIP_V6, 128).bytes());
    assert_eq!(read(&v4), Ok((flow([0; 4], 1), Kind::EchoRequest, false)));
    assert_eq!(read(&v6), Ok((flow_v6([0; 4], 58), Kind::EchoRequest, false)));
}

#[test]
fn more_is_made_readable_for_what_is_not_plainly_tcp_or_udp() {
    let wanted = |frame: Frame| headers_bytes(&Bytes::new(&frame.bytes()));
    assert_eq!(wanted(Frame { tags: vec![0x8100], ..syn() }), 102);
    assert_eq!(wanted(udp_v6()), 102);
    assert_eq!(wanted(with(&[Extension::options(0, 0, 0)])), 584);
    assert_eq!(wanted(error(3, &[])), 584);
}

/// Each prefix of each frame, and each single byte changed: nothing is read that is not there, and
/// what is read lies within the packet.
#[test]
fn whatever_is_cut_or_changed_is_read_within_its_bounds() {
    let chain = [Extension::options(0, 1, 0), Extension::fragment(0, true, 7)];
    let frames: Vec<Vec<u8>> = vec![
        Frame { tags: vec![0x88a8, 0x8100], option_words: 2, ..syn() }.bytes(),
        with(&chain).bytes(),
        error(3, &served().quoted()).bytes(),
        error_v6(2, &served_v6().quoted()).bytes(),
    ];
    let check = |frame: &[u8]| {
        if let Ok(Headers { layout, .. }) = parse(&Bytes::new(frame)) {
            assert!(layout.network() < layout.transport() && layout.transport() <= 512);
            assert!(
                layout.transport() <= layout.end() && layout.end() <= frame.len(),
                "{frame:02x?}"
            );
        }
    };
    for frame in &frames {
        for size in 0..frame.len() {
            assert!(read(&frame[..size]).is_err(), "{size} bytes of {frame:02x?}");
        }
        for at in 0..frame.len() {
            for byte in 0..=255 {
                let mut changed = frame.clone();
                changed[at] = byte;
                check(&changed);
            }
        }
    }
}
