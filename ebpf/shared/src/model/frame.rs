//! Frames, header by header, right or wrong.

use std::net::IpAddr;
use std::vec::Vec;

use crate::packet::{PROTOCOL_TCP, PROTOCOL_UDP};

/// TCP flags, as they stand in the header.
pub const SYN: u8 = 0x02;
/// See [`SYN`].
pub const ACK: u8 = 0x10;
/// See [`SYN`].
pub const FIN: u8 = 0x01;

/// What a frame is made of. Both addresses are of one family.
#[derive(Clone, Debug)]
pub struct Frame {
    /// Destination MAC.
    pub mac: [u8; 6],
    /// VLAN tags by their type, outermost first.
    pub tags: Vec<u16>,
    /// Client and port.
    pub source: (IpAddr, u16),
    /// VIP and port.
    pub destination: (IpAddr, u16),
    /// IP protocol, or the IPv6 next header.
    pub protocol: u8,
    /// TCP flags.
    pub flags: u8,
    /// IPv4 options, in words of four bytes.
    pub option_words: u8,
    /// IPv4 flags and fragment offset.
    pub fragment: u16,
    /// Bytes behind the TCP or UDP header.
    pub payload_bytes: usize,
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
            mac: [2, 0, 0, 0, 0, 0xfe],
            tags: Vec::new(),
            source,
            destination,
            protocol: PROTOCOL_UDP,
            flags: 0,
            option_words: 0,
            fragment: 0,
            payload_bytes: 0,
        }
    }

    /// The frame's bytes. Checksums are zero: who steers does not look at them.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = Vec::new();
        frame.extend_from_slice(&self.mac);
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 0xfd]);
        for tag in &self.tags {
            frame.extend_from_slice(&tag.to_be_bytes());
            frame.extend_from_slice(&7_u16.to_be_bytes());
        }
        let transport = self.transport();
        match (self.source.0, self.destination.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend_from_slice(&[0x08, 0x00]);
                let header_bytes = 20 + 4 * usize::from(self.option_words);
                let total = (header_bytes + transport.len()) as u16;
                frame.extend_from_slice(&[0x45 + self.option_words, 0]);
                frame.extend_from_slice(&total.to_be_bytes());
                frame.extend_from_slice(&[0, 1]);
                frame.extend_from_slice(&self.fragment.to_be_bytes());
                frame.extend_from_slice(&[64, self.protocol, 0, 0]);
                frame.extend_from_slice(&source.octets());
                frame.extend_from_slice(&destination.octets());
                // Option 1: no operation.
                frame.resize(frame.len() + header_bytes - 20, 1);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend_from_slice(&(transport.len() as u16).to_be_bytes());
                frame.extend_from_slice(&[self.protocol, 64]);
                frame.extend_from_slice(&source.octets());
                frame.extend_from_slice(&destination.octets());
            }
            mixed => panic!("addresses of two families: {mixed:?}"),
        }
        frame.extend_from_slice(&transport);
        frame
    }

    fn transport(&self) -> Vec<u8> {
        let mut transport = Vec::new();
        transport.extend_from_slice(&self.source.1.to_be_bytes());
        transport.extend_from_slice(&self.destination.1.to_be_bytes());
        if self.protocol == PROTOCOL_UDP {
            transport.extend_from_slice(&((8 + self.payload_bytes) as u16).to_be_bytes());
            transport.extend_from_slice(&[0, 0]);
        } else {
            transport.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 0x50, self.flags, 0xff, 0xff]);
            transport.extend_from_slice(&[0, 0, 0, 0]);
        }
        transport.resize(transport.len() + self.payload_bytes, 0x5a);
        transport
    }
}
