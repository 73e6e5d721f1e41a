//! A flow as an operator names it, as the packet that the explaining program is run on.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sickbay_shared::abi::{EXPLANATION_OFFSET, Explanation};

use crate::fleet::Protocol;

/// Which packet of which flow is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowQuestion {
    /// The client.
    pub source: Endpoint,
    /// Where it sends.
    pub destination: Endpoint,
    /// IP protocol.
    pub protocol: u8,
    /// A packet in the middle of the flow rather than its first; of TCP, one without SYN.
    pub established: bool,
}

/// An address with its port; 0 for a protocol without ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The address.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
}

impl FromStr for Endpoint {
    type Err = String;

    /// `192.0.2.1:40000`, `[2001:db8::1]:40000`, or an address alone.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Ok(socket) = text.parse::<SocketAddr>() {
            return Ok(Self { address: socket.ip(), port: socket.port() });
        }
        let address = text.parse::<IpAddr>().map_err(|_| {
            "write ADDRESS:PORT, IPv6 in brackets; for a protocol without ports the address alone"
                .to_owned()
        })?;
        Ok(Self { address, port: 0 })
    }
}

/// Why no packet can be made of a question.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlowError {
    /// One is IPv4, the other IPv6.
    #[error("{source_address} and {destination} are of different families: write both as one")]
    Families {
        /// The client.
        source_address: IpAddr,
        /// Where it sends.
        destination: IpAddr,
    },
    /// A port is missing.
    #[error("{0} has no port: write ADDRESS:PORT for tcp and udp")]
    NoPort(IpAddr),
    /// A port where there is none.
    #[error("protocol {0} has no ports: write the addresses alone")]
    Port(Protocol),
}

/// Bytes of a frame that has room for the explanation.
const FRAME_BYTES: usize = EXPLANATION_OFFSET + size_of::<Explanation>();
const ETHERNET_BYTES: usize = 14;
const TCP: u8 = 6;
const UDP: u8 = 17;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;

impl FlowQuestion {
    /// The packet, from the link layer on, filled with zeros up to where the explanation has room.
    ///
    /// # Errors
    ///
    /// The ends do not go together, or a port is missing or too many.
    pub fn frame(&self) -> Result<Vec<u8>, FlowError> {
        let protocol = Protocol::of_number(self.protocol);
        for end in [self.source, self.destination] {
            if protocol.has_ports() && end.port == 0 {
                return Err(FlowError::NoPort(end.address));
            }
            if !protocol.has_ports() && end.port != 0 {
                return Err(FlowError::Port(protocol));
            }
        }
        let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
        let payload_bytes = |header_bytes: usize| {
            u16::try_from(FRAME_BYTES - ETHERNET_BYTES - header_bytes).expect("it is a few hundred")
        };
        match (self.source.address, self.destination.address) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                frame.extend([0x08, 0x00]);
                let mut header = [0_u8; 20];
                header[0] = 0x45;
                header[2..4].copy_from_slice(&payload_bytes(0).to_be_bytes());
                header[8] = 64;
                header[9] = self.protocol;
                header[12..16].copy_from_slice(&source.octets());
                header[16..20].copy_from_slice(&destination.octets());
                let checksum = internet_checksum(&header);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                frame.extend(header);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                frame.extend(payload_bytes(40).to_be_bytes());
                frame.extend([self.protocol, 64]);
                frame.extend(source.octets());
                frame.extend(destination.octets());
            }
            (source_address, destination) => {
                return Err(FlowError::Families { source_address, destination });
            }
        }
        self.transport_header(&mut frame);
        frame.resize(FRAME_BYTES, 0);
        Ok(frame)
    }

    /// Ports and flags; checksums are not looked at.
    fn transport_header(&self, frame: &mut Vec<u8>) {
        let ports = [self.source.port.to_be_bytes(), self.destination.port.to_be_bytes()].concat();
        match self.protocol {
            TCP => {
                let flags = if self.established { TCP_ACK } else { TCP_SYN };
                frame.extend(ports);
                frame.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
            }
            UDP => {
                let length = u16::try_from(FRAME_BYTES - frame.len()).expect("a few hundred");
                frame.extend(ports);
                frame.extend(length.to_be_bytes());
                frame.extend([0, 0]);
            }
            _ => {}
        }
    }
}

/// RFC 1071, over an even number of bytes.
fn internet_checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while 0xffff < sum {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).expect("it was folded")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(source: &str, destination: &str, protocol: u8) -> FlowQuestion {
        FlowQuestion {
            source: source.parse().expect("an endpoint"),
            destination: destination.parse().expect("an endpoint"),
            protocol,
            established: false,
        }
    }

    #[test]
    fn checksum_is_that_of_the_textbook() {
        // The header of RFC 1071's many examples: 0xb861 belongs in its checksum field.
        let header = [
            0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0,
            0xc7,
        ];
        assert_eq!(internet_checksum(&header), 0xb861);
    }

    #[test]
    fn packet_has_the_named_flow_where_its_headers_have_it() {
        let syn = question("192.0.2.1:40000", "198.51.100.1:80", TCP).frame().expect("a packet");
        assert_eq!(syn.len(), 256 + 120);
        assert_eq!(syn[12..16], [0x08, 0x00, 0x45, 0]);
        // All that follows Ethernet's 14 bytes is the datagram's.
        assert_eq!(syn[16..18], 362_u16.to_be_bytes());
        assert_eq!((syn[23], &syn[26..34]), (TCP, &[192, 0, 2, 1, 198, 51, 100, 1][..]));
        assert_eq!(syn[34..38], [0x9c, 0x40, 0, 80]);
        assert_eq!(syn[46..48], [0x50, TCP_SYN]);
        let established = FlowQuestion {
            established: true,
            ..question("192.0.2.1:40000", "198.51.100.1:80", TCP)
        };
        assert_eq!(established.frame().expect("a packet")[47], TCP_ACK);

        let udp = question("[2001:db8::1]:40000", "[2001:db8::2]:53", UDP).frame();
        let udp = udp.expect("a packet");
        assert_eq!(udp[12..15], [0x86, 0xdd, 0x60]);
        assert_eq!((udp[18..20].to_vec(), udp[20]), (322_u16.to_be_bytes().to_vec(), UDP));
        assert_eq!((udp[37], udp[53]), (1, 2));
        assert_eq!(udp[54..60], [0x9c, 0x40, 0, 53, 0x01, 0x42]);
        let gre = question("192.0.2.1", "198.51.100.1", 47).frame().expect("a packet");
        assert_eq!(gre[23], 47);
    }

    #[test]
    fn ends_that_do_not_go_together_are_refused() {
        let fault = |source, destination, protocol| {
            question(source, destination, protocol).frame().expect_err("is none").to_string()
        };
        assert!(fault("192.0.2.1:1", "[::1]:1", TCP).contains("different families"));
        assert!(fault("192.0.2.1", "198.51.100.1:80", TCP).starts_with("192.0.2.1 has no port"));
        assert_eq!(
            fault("192.0.2.1:1", "198.51.100.1:1", 47),
            "protocol gre has no ports: write the addresses alone"
        );
        assert!("198.51.100.1:x".parse::<Endpoint>().is_err());
    }
}
