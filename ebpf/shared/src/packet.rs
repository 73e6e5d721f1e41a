//! Packets: what the decision reads of them, and nothing it cannot be sure of.
//!
//! Read through: Ethernet, at most two VLAN tags, IPv4 with options, IPv6 with extension headers;
//! then TCP and UDP with their ports, ICMP's errors as far as the packet they tell of, and its echo
//! requests. Of every other protocol the addresses are read, of a later fragment what it has in
//! common with its first. Everything else is [`Unread`] with its reason, and passes.

/// Flows, and the keys that stand for them in the maps.
mod flow;
/// ICMP: errors, which concern another packet's flow, and echo requests.
mod icmp;
/// IPv4, with its options.
mod ipv4;
/// IPv6, with its extension headers.
mod ipv6;
/// TCP, UDP, and protocols without ports.
mod transport;

pub use flow::{FLOW_KEY_WORDS, Flow};
pub use ipv6::walk_extensions;

use crate::limits::{TRANSPORT_OFFSET_MAX, VLAN_TAGS_MAX};

/// IP protocol number of ICMP.
pub const PROTOCOL_ICMP: u8 = 1;
/// IP protocol number of TCP.
pub const PROTOCOL_TCP: u8 = 6;
/// IP protocol number of UDP.
pub const PROTOCOL_UDP: u8 = 17;
/// IP protocol number of ICMPv6.
pub const PROTOCOL_ICMPV6: u8 = 58;

/// A packet from its Ethernet header on, wherever its bytes are.
pub trait Packet: Sized {
    /// The `N` bytes at `offset`; `None` when the packet ends before.
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]>;
    /// The `N` words at `offset`, their bytes in the packet's order; `None` when it ends before.
    fn words<const N: usize>(&self, offset: usize) -> Option<[u32; N]>;
    /// Copies [`Self::words`], an even number of them, to where eight bytes may be stored at once;
    /// whether the packet has as many there.
    ///
    /// One by one, so that nobody has to hold them all at once.
    #[inline(always)]
    fn copy_words<const N: usize>(&self, offset: usize, into: &mut [u32; N]) -> bool {
        self.words(offset).map(|words| *into = words).is_some()
    }
    /// Bytes of the packet, Ethernet header included.
    fn size_bytes(&self) -> u32;
    /// VLAN tags that the interface took off and carries beside the packet.
    fn tags_taken_off(&self) -> usize;

    /// [`read_into`], called so that the verifier checks it apart, and whatever follows once and not
    /// for every kind of packet.
    #[inline(always)]
    fn read_into(&self, headers: &mut Headers) -> u32 {
        read_into(self, headers)
    }

    /// [`walk_extensions`], called so that the verifier checks its loop apart; see
    /// [`Tables::service_by_prefix`](crate::tables::Tables::service_by_prefix).
    #[inline(always)]
    fn walk_extensions(&self, start: usize, next: u8) -> u64 {
        walk_extensions(self, start, next)
    }
}

/// What the decision knows of a packet.
///
/// Its bytes are all its own (no padding), because the kernel's verifier lets a function write only
/// what is written whole.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Headers {
    /// Whose packet it is; ports are 0 where the packet has none. Of an ICMP error: the flow that
    /// it tells of, as the client's packets name it.
    pub flow: Flow,
    /// What the fragments of its datagram have in common, as the packet has it; 0 when it is none.
    pub identification: u32,
    /// Where its parts stand.
    pub layout: Layout,
    /// What it is of the flow.
    pub kind: Kind,
    /// TCP with SYN set and ACK clear: the first packet of a connection, or its retransmission.
    pub opens: bool,
    /// TCP's flags; 0 of other protocols.
    pub tcp_flags: u8,
    /// Zero.
    pub reserved: u8,
    /// Bytes of the packet, link layer included.
    pub size_bytes: u32,
}

impl Headers {
    /// Of no packet: room for those of one. All zero, which is cheap to write.
    pub const EMPTY: Self = Self {
        flow: Flow { key: [0; FLOW_KEY_WORDS], protocol: 0, family: 0, reserved: [0; 2] },
        identification: 0,
        layout: Layout::new(0, 0, 0),
        kind: Kind::Whole,
        opens: false,
        tcp_flags: 0,
        reserved: 0,
        size_bytes: 0,
    };
}

/// What a packet is of its flow.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole packet.
    Whole,
    /// The first fragment of a datagram: it has the ports.
    FirstFragment,
    /// Another fragment of a datagram, without ports.
    LaterFragment,
    /// An ICMP error about a packet that somebody sent to the flow's client.
    IcmpError,
    /// An ICMP echo request.
    EchoRequest,
}

/// Where a packet's parts stand, in bytes from its first.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    end: u32,
    transport: u16,
    network: u16,
}

impl Layout {
    /// See the methods of these names.
    #[inline(always)]
    #[must_use]
    pub const fn new(network: usize, transport: usize, end: usize) -> Self {
        Self { end: end as u32, transport: transport as u16, network: network as u16 }
    }

    /// The IP header; Ethernet header and tags stand before it.
    #[inline(always)]
    #[must_use]
    pub const fn network(&self) -> usize {
        // The mask tells the verifier what the parser made sure of; so in the next.
        self.network as usize & (NETWORK_OFFSETS - 1)
    }

    /// What stands behind the IP header with its options or extension headers; of an ICMP error,
    /// the ICMP header. At most [`TRANSPORT_OFFSET_MAX`].
    #[inline(always)]
    #[must_use]
    pub const fn transport(&self) -> usize {
        self.transport as usize & (2 * TRANSPORT_OFFSET_MAX - 1)
    }

    /// The end of the IP packet; Ethernet's padding may follow.
    #[inline(always)]
    #[must_use]
    pub const fn end(&self) -> usize {
        self.end as usize
    }
}

const _: () = assert!(size_of::<Headers>() == 64 && size_of::<Layout>() == 8);

/// Why a packet passes, neither steered nor answered.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// Neither IPv4 nor IPv6.
    NotIp,
    /// To no service, and neither TCP nor UDP. Found by the decision, as are the last two.
    NotTcpUdp,
    /// A third VLAN tag, more or longer extension headers than are read through, a header that
    /// contradicts itself. Also a frame to a group of stations, which no one may forward (RFC 1812,
    /// 5.3.4), or from one, which no one is.
    NotRead,
    /// Shorter than its headers say.
    Truncated,
    /// ICMP that concerns no flow of a service and is no echo request to an address that answers
    /// them; also what of these is fragmented, and echo requests with options.
    IcmpUnrelated,
    /// A later fragment whose first was not steered here, or too long ago.
    FragmentUnknown,
}

const ETHERNET_BYTES: usize = 14;
const VLAN_TAG_BYTES: usize = 4;
/// The IP header begins before this byte.
const NETWORK_OFFSETS: usize =
    (ETHERNET_BYTES + VLAN_TAGS_MAX * VLAN_TAG_BYTES).next_power_of_two();
/// The headers end here at the latest, those of a packet that an ICMP error quotes included; more
/// of a packet is never looked at.
pub const HEADERS_BYTES_MAX: usize =
    TRANSPORT_OFFSET_MAX + icmp::BYTES + ipv4::BYTES_MAX + transport::PORTS_BYTES;
/// The headers of TCP and UDP end here at the latest, behind IPv4 with or IPv6 without more headers.
pub const HEADERS_BYTES_USUAL: usize =
    ETHERNET_BYTES + VLAN_TAGS_MAX * VLAN_TAG_BYTES + ipv4::BYTES_MAX + transport::TCP_BYTES;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
/// 802.1Q, and 802.1ad.
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
/// First byte of a MAC: addressed to a group (broadcast or multicast).
const MAC_GROUP: u8 = 1;
const SOURCE_MAC_OFFSET: usize = 6;

const _: () = assert!(HEADERS_BYTES_USUAL < HEADERS_BYTES_MAX);
const _: () = assert!(transport::TCP_BYTES <= HEADERS_BYTES_MAX - TRANSPORT_OFFSET_MAX);

/// Reads a packet's headers.
///
/// # Errors
///
/// Why the packet is passed unread.
#[inline(always)]
pub fn parse<P: Packet>(packet: &P) -> Result<Headers, Unread> {
    let mut headers = Headers::EMPTY;
    parse_into(packet, &mut headers).map(|()| headers)
}

/// [`parse`] into empty headers, written as they are found. Of a packet that is not read, what they
/// say is void.
#[inline(always)]
fn parse_into<P: Packet>(packet: &P, headers: &mut Headers) -> Result<(), Unread> {
    // Not the first byte alone: the verifier takes no proof that a single one is there.
    let ethernet: [u8; ETHERNET_BYTES] = packet.bytes(0).ok_or(Unread::Truncated)?;
    if (ethernet[0] | ethernet[SOURCE_MAC_OFFSET]) & MAC_GROUP != 0 {
        return Err(Unread::NotRead);
    }
    let (ethertype, start) = network(packet)?;
    headers.size_bytes = packet.size_bytes();
    match ethertype {
        ETHERTYPE_IPV4 => ipv4::parse(packet, start, headers),
        ETHERTYPE_IPV6 => ipv6::parse(packet, start, headers),
        _ => Err(Unread::NotIp),
    }
}

/// [`read_into`], the usual packets' part of it where it is needed, the others' called.
#[inline(always)]
pub fn read<P: Packet>(packet: &P, headers: &mut Headers) -> u32 {
    match read_usual_into(packet, headers) {
        Some(read) => read,
        None => packet.read_into(headers),
    }
}

/// [`read_into`] of a packet of the usual kind: without tags, options and extension headers, of TCP or
/// UDP, no fragment. `None` when it is another, or ends too soon: then nothing but the size is written.
///
/// Apart, because it is short enough to stand where it is needed: a call and its return cost a tenth
/// of a packet's time where returns are guarded against speculation.
#[inline(always)]
fn read_usual_into<P: Packet>(packet: &P, headers: &mut Headers) -> Option<u32> {
    let ethernet: [u8; ETHERNET_BYTES] = packet.bytes(0)?;
    if (ethernet[0] | ethernet[SOURCE_MAC_OFFSET]) & MAC_GROUP != 0 {
        return None;
    }
    headers.size_bytes = packet.size_bytes();
    let read = match u16::from_be_bytes([ethernet[12], ethernet[13]]) {
        ETHERTYPE_IPV4 => ipv4::parse_usual(packet, ETHERNET_BYTES, headers)?,
        ETHERTYPE_IPV6 => ipv6::parse_usual(packet, ETHERNET_BYTES, headers)?,
        _ => return None,
    };
    Some(read.map_or_else(Unread::number, |()| 0))
}

/// [`parse`] into empty headers, for whom a number must do: 0 when they were read, else what stands
/// for the reason.
#[inline(always)]
pub fn read_into<P: Packet>(packet: &P, headers: &mut Headers) -> u32 {
    match parse_into(packet, headers) {
        Ok(()) => 0,
        Err(reason) => reason.number(),
    }
}

impl Unread {
    /// Not 0.
    #[inline(always)]
    const fn number(self) -> u32 {
        self as u32 + 1
    }

    /// The reason that [`read_into`] gave a number.
    #[inline(always)]
    #[must_use]
    pub const fn of_number(number: u32) -> Self {
        const NOT_IP: u32 = Unread::NotIp.number();
        const TRUNCATED: u32 = Unread::Truncated.number();
        const ICMP_UNRELATED: u32 = Unread::IcmpUnrelated.number();
        match number {
            NOT_IP => Self::NotIp,
            TRUNCATED => Self::Truncated,
            ICMP_UNRELATED => Self::IcmpUnrelated,
            // The parser has no other.
            _ => Self::NotRead,
        }
    }
}

/// How many of a packet's first bytes [`parse`] may look at, judged by those that can be read now.
#[inline(always)]
#[must_use]
pub fn headers_bytes<P: Packet>(packet: &P) -> usize {
    let protocol = match network(packet) {
        Ok((ETHERTYPE_IPV4, start)) => packet.bytes(start + ipv4::PROTOCOL_OFFSET),
        Ok((ETHERTYPE_IPV6, start)) => packet.bytes(start + ipv6::NEXT_HEADER_OFFSET),
        _ => return HEADERS_BYTES_USUAL,
    };
    match protocol {
        Some([PROTOCOL_TCP | PROTOCOL_UDP]) => HEADERS_BYTES_USUAL,
        _ => HEADERS_BYTES_MAX,
    }
}

/// The type of what stands behind the VLAN tags, and where.
///
/// Written out and no loop: of a loop, LLVM falls through into the middle, which the verifier of 6.1
/// takes for a jump back that it does not allow.
#[inline(always)]
fn network<P: Packet>(packet: &P) -> Result<(u16, usize), Unread> {
    const BEHIND_ONE: usize = ETHERNET_BYTES + VLAN_TAG_BYTES;
    const BEHIND_TWO: usize = BEHIND_ONE + VLAN_TAG_BYTES;
    const { assert!(VLAN_TAGS_MAX == 2, "as many as are written out") };
    let first = ethertype_before(packet, ETHERNET_BYTES)?;
    if !is_vlan(first) {
        return Ok((first, ETHERNET_BYTES));
    }
    let taken_off = packet.tags_taken_off();
    if VLAN_TAGS_MAX <= taken_off {
        return Err(Unread::NotRead);
    }
    let second = ethertype_before(packet, BEHIND_ONE)?;
    if !is_vlan(second) {
        return Ok((second, BEHIND_ONE));
    }
    if VLAN_TAGS_MAX <= taken_off + 1 {
        return Err(Unread::NotRead);
    }
    let third = ethertype_before(packet, BEHIND_TWO)?;
    if is_vlan(third) {
        return Err(Unread::NotRead);
    }
    Ok((third, BEHIND_TWO))
}

#[inline(always)]
fn ethertype_before<P: Packet>(packet: &P, start: usize) -> Result<u16, Unread> {
    packet.bytes(start - 2).map(u16::from_be_bytes).ok_or(Unread::Truncated)
}

#[inline(always)]
const fn is_vlan(ethertype: u16) -> bool {
    matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN)
}
