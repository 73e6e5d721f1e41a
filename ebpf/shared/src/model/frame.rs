//! Frames, header by header, right or wrong.

use std::net::IpAddr;
use std::vec;
use std::vec::Vec;

use crate::packet::{PROTOCOL_ICMP, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP};

/// TCP flags, as they stand in the header.
pub const FIN: u8 = 0x01;
/// See [`FIN`].
pub const SYN: u8 = 0x02;
/// See [`FIN`].
pub const RST: u8 = 0x04;
/// See [`FIN`].
pub const ACK: u8 = 0x10;

/// MAC of the client, or of the router before it.
pub const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfd];
/// MAC of this host.
pub const HOST_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0xfe];

/// An IPv6 extension header: its type, and its bytes, of which the first will say what follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The type, which the header before says.
    pub kind: u8,
    /// The header.
    pub bytes: Vec<u8>,
}

impl Extension {
    /// Hop-by-hop options (0), a routing header (43) or destination options (60) of 8 bytes and
    /// `more_words` times 8, all padding; `segments_left` stands where a routing header has it.
    #[must_use]
    pub fn options(kind: u8, more_words: u8, segments_left: u8) -> Self {
        let mut bytes = vec![0; 8 + 8 * usize::from(more_words)];
        (bytes[1], bytes[3]) = (more_words, segments_left);
        Self { kind, bytes }
    }

    /// A fragment header: offset in units of 8 bytes, whether more follow, identification.
    #[must_use]
    pub fn fragment(offset: u16, more: bool, identification: u32) -> Self {
        let [high, low] = (offset << 3 | u16::from(more)).to_be_bytes();
        let mut bytes = vec![0, 0, high, low];
        bytes.extend_from_slice(&identification.to_be_bytes());
        Self { kind: 44, bytes }
    }

    /// An authentication header of 24 bytes.
    #[must_use]
    pub fn authentication() -> Self {
        let mut bytes = vec![0x33; 24];
        bytes[1] = 4;
        Self { kind: 51, bytes }
    }
}

/// What a frame is made of. Both addresses are of one family.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Destination MAC.
    pub mac: [u8; 6],
    /// Source MAC.
    pub source_mac: [u8; 6],
    /// VLAN tags by their type, outermost first.
    pub tags: Vec<u16>,
    /// Client and port.
    pub source: (IpAddr, u16),
    /// VIP and port.
    pub destination: (IpAddr, u16),
    /// IP protocol, or what the last IPv6 header says that follows.
    pub protocol: u8,
    /// IPv6 extension headers.
    pub extensions: Vec<Extension>,
    /// TCP flags.
    pub flags: u8,
    /// TCP's sequence number.
    pub sequence: u32,
    /// TCP's acknowledgement number.
    pub acknowledgement: u32,
    /// TCP's window.
    pub window: u16,
    /// TCP options, in words of four bytes.
    pub tcp_option_words: u8,
    /// IPv4 options, in words of four bytes.
    pub option_words: u8,
    /// IPv4 flags and fragment offset.
    pub fragment: u16,
    /// IPv4 identification.
    pub identification: u16,
    /// Bytes behind the TCP or UDP header.
    pub payload_bytes: usize,
    /// What stands behind the IP headers, in place of a TCP or UDP header and its payload.
    pub body: Option<Vec<u8>>,
    /// Checksums are right: of the IPv4 header, and of a whole TCP, UDP, ICMP or ICMPv6 packet.
    /// Otherwise they are zero: who steers does not look at them.
    pub checksums: bool,
}

impl Frame {
    /// A TCP packet with these flags.
    #[must_use]
    pub fn tcp(source: (IpAddr, u16), destination: (IpAddr, u16), flags: u8) -> Self {
        Self { protocol: PROTOCOL_TCP, flags, ..Self::udp(source, destination) }
    }

    /// A UDP packet.
    #[must_use]
    pub fn udp(source: (IpAddr, u16), destination: (IpAddr, u16)) -> Self {
        Self {
            mac: HOST_MAC,
            source_mac: CLIENT_MAC,
            tags: Vec::new(),
            source,
            destination,
            protocol: PROTOCOL_UDP,
            extensions: Vec::new(),
            flags: 0,
            sequence: 1,
            acknowledgement: 2,
            window: 0xffff,
            tcp_option_words: 0,
            option_words: 0,
            fragment: 0,
            identification: 1,
            payload_bytes: 0,
            body: None,
            checksums: false,
        }
    }

    /// An ICMP message of the addresses' family: type and code, the next four bytes, and the rest.
    #[must_use]
    pub fn icmp(source: IpAddr, destination: IpAddr, start: [u8; 2], rest: [&[u8]; 2]) -> Self {
        let protocol = if source.is_ipv4() { PROTOCOL_ICMP } else { PROTOCOL_ICMPV6 };
        let [kind, code] = start;
        let body = [&[kind, code, 0, 0], rest[0], rest[1]].concat();
        Self { protocol, body: Some(body), ..Self::udp((source, 0), (destination, 0)) }
    }

    /// The frame behind its Ethernet header and tags: what an ICMP error quotes.
    #[must_use]
    pub fn quoted(&self) -> Vec<u8> {
        self.bytes().split_off(14 + 4 * self.tags.len())
    }

    /// The frame's bytes.
    ///
    /// # Panics
    ///
    /// When the addresses are of two families.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = [self.mac, self.source_mac].concat();
        for tag in &self.tags {
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(&7_u16.to_be_bytes());
        }
        let mut transport = self.transport();
        let (source, destination) = match (self.source.0, self.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                (source.octets().to_vec(), destination.octets().to_vec())
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                (source.octets().to_vec(), destination.octets().to_vec())
            }
            mixed => panic!("addresses of two families: {mixed:?}"),
        };
        let addresses = [source, destination].concat();
        if self.checksums {
            self.put_checksum(&addresses, &mut transport);
        }
        let header = if addresses.len() == 8 {
            self.ipv4_header(&addresses, transport.len())
        } else {
            self.ipv6_headers(&addresses, transport.len())
        };
        frame.extend_from_slice(&header);
        frame.extend_from_slice(&transport);
        frame
    }

    /// With its EtherType before it.
    fn ipv4_header(&self, addresses: &[u8], payload_bytes: usize) -> Vec<u8> {
        let header_bytes = 20 + 4 * usize::from(self.option_words);
        let [total_high, total_low] = ((header_bytes + payload_bytes) as u16).to_be_bytes();
        let mut header = vec![0x45 + self.option_words, 0, total_high, total_low];
        header.extend_from_slice(&self.identification.to_be_bytes());
        header.extend_from_slice(&self.fragment.to_be_bytes());
        header.extend_from_slice(&[64, self.protocol, 0, 0]);
        header.extend_from_slice(addresses);
        // Option 1: no operation.
        header.resize(header_bytes, 1);
        if self.checksums {
            let checksum = checksum(&header);
            header[10..12].copy_from_slice(&checksum);
        }
        [&[0x08, 0x00], &header[..]].concat()
    }

    /// With their EtherType before them.
    fn ipv6_headers(&self, addresses: &[u8], payload_bytes: usize) -> Vec<u8> {
        let extensions = self.extension_headers();
        let payload_bytes = (extensions.len() + payload_bytes) as u16;
        let next = self.extensions.first().map_or(self.protocol, |header| header.kind);
        let mut header = vec![0x86, 0xdd, 0x60, 0, 0, 0];
        header.extend_from_slice(&payload_bytes.to_be_bytes());
        header.extend_from_slice(&[next, 64]);
        header.extend_from_slice(addresses);
        header.extend_from_slice(&extensions);
        header
    }

    /// The extension headers, each of which names the next.
    fn extension_headers(&self) -> Vec<u8> {
        let following = self.extensions.iter().skip(1).map(|header| header.kind);
        let nexts = following.chain([self.protocol]);
        let mut all = Vec::new();
        for (header, next) in self.extensions.iter().zip(nexts) {
            all.push(next);
            all.extend_from_slice(&header.bytes[1..]);
        }
        all
    }

    fn transport(&self) -> Vec<u8> {
        if let Some(body) = &self.body {
            return body.clone();
        }
        let mut transport = Vec::new();
        transport.extend_from_slice(&self.source.1.to_be_bytes());
        transport.extend_from_slice(&self.destination.1.to_be_bytes());
        if self.protocol == PROTOCOL_UDP {
            transport.extend_from_slice(&((8 + self.payload_bytes) as u16).to_be_bytes());
            transport.extend_from_slice(&[0, 0]);
        } else {
            let length = (5 + self.tcp_option_words) << 4;
            transport.extend_from_slice(&self.sequence.to_be_bytes());
            transport.extend_from_slice(&self.acknowledgement.to_be_bytes());
            transport.extend_from_slice(&[length, self.flags]);
            transport.extend_from_slice(&self.window.to_be_bytes());
            transport.extend_from_slice(&[0, 0, 0, 0]);
            // Option 1: no operation.
            transport.resize(transport.len() + 4 * usize::from(self.tcp_option_words), 1);
        }
        transport.resize(transport.len() + self.payload_bytes, 0x5a);
        transport
    }

    /// Puts the checksum of what stands behind the IP headers, its pseudo-header included.
    fn put_checksum(&self, addresses: &[u8], transport: &mut [u8]) {
        let at = match self.protocol {
            PROTOCOL_TCP => 16,
            PROTOCOL_UDP => 6,
            _ => 2,
        };
        let length = (transport.len() as u16).to_be_bytes();
        let pseudo = [addresses, &[0, self.protocol], &length].concat();
        let covered = if self.protocol == PROTOCOL_ICMP { &[][..] } else { &pseudo };
        let checksum = checksum(&[covered, transport].concat());
        transport[at..at + 2].copy_from_slice(&checksum);
    }
}

/// The Internet checksum (RFC 1071), two bytes at a time: as its text has it, so that it can bear
/// out the one of the answers, which is computed otherwise.
#[must_use]
pub fn checksum(bytes: &[u8]) -> [u8; 2] {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(pair[0]) << 8 | u32::from(pair.get(1).copied().unwrap_or(0));
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!(sum as u16)).to_be_bytes()
}
