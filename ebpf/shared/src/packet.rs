//! Packets: what the decision reads of them, and nothing it cannot be sure of.
//!
//! Read through: Ethernet, at most one VLAN tag, IPv4 with options, IPv6 without extension headers,
//! TCP and UDP. Everything else is [`Unread`] with its reason, and passes.

use crate::abi::FlowKeyV6;
use crate::limits::VLAN_TAGS_MAX;

/// IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;

/// A packet from its Ethernet header on, wherever its bytes are.
pub trait Packet {
    /// The `N` bytes at `offset`; `None` when the packet ends before.
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
    /// The `N` words at `offset`, their bytes in the packet's order; `None` when it ends before.
    fn words<const N: usize>(&self, offset: usize) -> Option<[u32; N]>;
    /// Bytes of the packet, Ethernet header included.
    fn size_bytes(&self) -> u32;
    /// VLAN tags that the interface took off and carries beside the packet.
    fn tags_taken_off(&self) -> usize;
}

/// Whose packet it is, as the packet itself says.
///
/// Kept as the words of the key it is looked up by, so that the kernel assembles it once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Flow {
    /// The bytes of a [`FlowKeyV4`](crate::abi::FlowKeyV4) (the first 16, the rest zero) or a [`FlowKeyV6`].
    pub key: [u32; FLOW_KEY_WORDS],
    /// IP protocol: [`PROTOCOL_TCP`] or [`PROTOCOL_UDP`].
    pub protocol: u8,
    /// 4 or 6.
    pub family: u8,
}

/// Words of the longer flow key.
pub const FLOW_KEY_WORDS: usize = size_of::<FlowKeyV6>() / 4;

impl Flow {
    /// An IPv4 flow, from addresses and ports (source before destination) as the packet has them.
    #[inline(always)]
    #[must_use]
    pub const fn v4(source: u32, destination: u32, ports: u32, protocol: u8) -> Self {
        let last = u32::from_ne_bytes([protocol, 0, 0, 0]);
        let key = [source, destination, ports, last, 0, 0, 0, 0, 0, 0];
        Self { key, protocol, family: 4 }
    }

    /// An IPv6 flow, from addresses and ports (source before destination) as the packet has them.
    #[inline(always)]
    #[must_use]
    pub const fn v6(source: [u32; 4], destination: [u32; 4], ports: u32, protocol: u8) -> Self {
        let ([a, b, c, d], [e, f, g, h]) = (source, destination);
        let last = u32::from_ne_bytes([protocol, 0, 0, 0]);
        Self { key: [a, b, c, d, e, f, g, h, ports, last], protocol, family: 6 }
    }

    /// The bytes of the [`ServiceKey`](crate::abi::ServiceKey) that the flow's service stands
    /// under.
    #[inline(always)]
    #[must_use]
    pub const fn service_key(&self) -> [u32; 5] {
        if self.family == 4 {
            [self.key[1], 0, 0, 0, self.service_port_protocol_family(self.key[2])]
        } else {
            let [_, _, _, _, a, b, c, d, ports, _] = self.key;
            [a, b, c, d, self.service_port_protocol_family(ports)]
        }
    }

    #[inline(always)]
    const fn service_port_protocol_family(&self, ports: u32) -> u32 {
        let [_, _, high, low] = ports.to_ne_bytes();
        u32::from_ne_bytes([high, low, self.protocol, self.family])
    }
}

/// What the decision knows of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Whose packet it is.
    pub flow: Flow,
    /// TCP with SYN set and ACK clear: the first packet of a connection, or its retransmission.
    pub opens: bool,
}

/// Why a packet was not read; the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// Neither TCP nor UDP.
    NotTcpUdp,
    /// What this version does not read through: a fragment, extension headers, a second VLAN tag,
    /// a header that contradicts itself. Also a frame to a group of stations, which no one may
    /// forward (RFC 1812, 5.3.4).
    NotRead,
    /// Shorter than its headers say.
    Truncated,
}

const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP_BYTES: usize = 20;
const UDP_BYTES: usize = 8;
/// The headers end here at the latest; more of a packet is never looked at.
pub const HEADERS_BYTES_MAX: usize =
    ETHERNET_BYTES + VLAN_TAGS_MAX * VLAN_TAG_BYTES + IPV4_BYTES_MAX + TCP_BYTES;
const IPV4_BYTES_MAX: usize = 60;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, and 802.1ad.
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
/// First byte of a MAC: addressed to a group (broadcast or multicast).
const MAC_GROUP: u8 = 1;
/// IPv4 flags and offset: more fragments, or not the first.
const FRAGMENT: u16 = 0x3fff;
/// Byte 13 of the TCP header.
const TCP_FLAGS: usize = 13;
const TCP_SYN: u8 = 0x02;
const TCP_ACK: u8 = 0x10;

/// Reads a packet's headers.
///
/// # Errors
///
/// Why the packet is passed unread.
#[inline(always)]
pub fn parse<P: Packet>(packet: &P) -> Result<Headers, Unread> {
    let ethernet: [u8; ETHERNET_BYTES] = packet.bytes(0).ok_or(Unread::Truncated)?;
    if ethernet[0] & MAC_GROUP != 0 {
        return Err(Unread::NotRead);
    }
    let ethertype = u16::from_be_bytes([ethernet[12], ethernet[13]]);
    if !is_vlan(ethertype) {
        return parse_ip(packet, ethertype, ETHERNET_BYTES);
    }
    if VLAN_TAGS_MAX <= packet.tags_taken_off() {
        return Err(Unread::NotRead);
    }
    let tag: [u8; VLAN_TAG_BYTES] = packet.bytes(ETHERNET_BYTES).ok_or(Unread::Truncated)?;
    let ethertype = u16::from_be_bytes([tag[2], tag[3]]);
    if is_vlan(ethertype) {
        return Err(Unread::NotRead);
    }
    parse_ip(packet, ethertype, ETHERNET_BYTES + VLAN_TAG_BYTES)
}

#[inline(always)]
fn parse_ip<P: Packet>(packet: &P, ethertype: u16, start: usize) -> Result<Headers, Unread> {
    match ethertype {
        ETHERTYPE_IPV4 => parse_ipv4(packet, start),
        ETHERTYPE_IPV6 => parse_ipv6(packet, start),
        _ => Err(Unread::NotIp),
    }
}

#[inline(always)]
fn parse_ipv4<P: Packet>(packet: &P, start: usize) -> Result<Headers, Unread> {
    let header: [u32; IPV4_BYTES / 4] = packet.words(start).ok_or(Unread::Truncated)?;
    let [version_and_length, _, total_high, total_low] = header[0].to_ne_bytes();
    let [_, _, fragment_high, fragment_low] = header[1].to_ne_bytes();
    let [_, protocol, _, _] = header[2].to_ne_bytes();
    let header_bytes = usize::from(version_and_length & 0x0f) << 2;
    if version_and_length >> 4 != 4 || header_bytes < IPV4_BYTES {
        return Err(Unread::NotRead);
    }
    let transport_bytes = transport_bytes(protocol)?;
    if u16::from_be_bytes([fragment_high, fragment_low]) & FRAGMENT != 0 {
        return Err(Unread::NotRead);
    }
    let total_bytes = usize::from(u16::from_be_bytes([total_high, total_low]));
    if total_bytes < header_bytes + transport_bytes
        || (packet.size_bytes() as usize) < start + total_bytes
    {
        return Err(Unread::Truncated);
    }
    let (ports, opens) = parse_transport(packet, protocol, start + header_bytes)?;
    Ok(Headers { flow: Flow::v4(header[3], header[4], ports, protocol), opens })
}

#[inline(always)]
fn parse_ipv6<P: Packet>(packet: &P, start: usize) -> Result<Headers, Unread> {
    let header: [u32; IPV6_BYTES / 4] = packet.words(start).ok_or(Unread::Truncated)?;
    let [version, _, _, _] = header[0].to_ne_bytes();
    let [payload_high, payload_low, protocol, _] = header[1].to_ne_bytes();
    if version >> 4 != 6 || is_extension(protocol) {
        return Err(Unread::NotRead);
    }
    let transport_bytes = transport_bytes(protocol)?;
    let payload_bytes = usize::from(u16::from_be_bytes([payload_high, payload_low]));
    if payload_bytes < transport_bytes
        || (packet.size_bytes() as usize) < start + IPV6_BYTES + payload_bytes
    {
        return Err(Unread::Truncated);
    }
    let (ports, opens) = parse_transport(packet, protocol, start + IPV6_BYTES)?;
    let [_, _, a, b, c, d, e, f, g, h] = header;
    Ok(Headers { flow: Flow::v6([a, b, c, d], [e, f, g, h], ports, protocol), opens })
}

/// Both ports, and whether the packet opens a connection.
#[inline(always)]
fn parse_transport<P: Packet>(
    packet: &P,
    protocol: u8,
    start: usize,
) -> Result<(u32, bool), Unread> {
    let [ports] = packet.words(start).ok_or(Unread::Truncated)?;
    if protocol != PROTOCOL_TCP {
        return Ok((ports, false));
    }
    let [flags] = packet.bytes(start + TCP_FLAGS).ok_or(Unread::Truncated)?;
    Ok((ports, flags & (TCP_SYN | TCP_ACK) == TCP_SYN))
}

#[inline(always)]
const fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN)
}

#[inline(always)]
const fn transport_bytes(protocol: u8) -> Result<usize, Unread> {
    match protocol {
        PROTOCOL_TCP => Ok(TCP_BYTES),
        PROTOCOL_UDP => Ok(UDP_BYTES),
        _ => Err(Unread::NotTcpUdp),
    }
}

/// The extension headers behind which TCP or UDP may stand (IANA's registry); an encrypted payload
/// (50) hides what stands behind it.
#[inline(always)]
const fn is_extension(next_header: u8) -> bool {
    matches!(next_header, 0 | 43 | 44 | 51 | 60 | 135 | 139 | 140 | 253 | 254)
}
