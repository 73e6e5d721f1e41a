//! IPv6, with its extension headers.

use super::{
    Flow, Headers, Kind, Layout, PROTOCOL_ICMPV6, PROTOCOL_TCP, PROTOCOL_UDP, Packet, Unread, icmp,
    transport,
};
use crate::limits::{EXTENSION_HEADERS_MAX, TRANSPORT_OFFSET_MAX};

pub(super) const BYTES: usize = 40;
/// Where the header names what stands behind it.
pub(super) const NEXT_HEADER_OFFSET: usize = 6;

/// Where the header has its addresses.
const ADDRESSES_OFFSET: usize = 8;

// Extension headers (IANA's registry) that are read through ...
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
// ... and that are not: mobility, host identity, shim6, and two for experiments.
const MOBILITY: u8 = 135;
const HOST_IDENTITY: u8 = 139;
const SHIM6: u8 = 140;
const EXPERIMENT_1: u8 = 253;
const EXPERIMENT_2: u8 = 254;

/// Flags and offset of a fragment header: the offset, in units of eight bytes ...
const FRAGMENT_OFFSET: u16 = 0xfff8;
/// ... and that another one follows.
const FRAGMENT_MORE: u16 = 0x0001;

#[inline(always)]
pub(super) fn parse<P: Packet>(
    packet: &P,
    start: usize,
    headers: &mut Headers,
) -> Result<(), Unread> {
    let header: [u32; BYTES / 4] = packet.words(start).ok_or(Unread::Truncated)?;
    parse_behind(packet, header, start, headers)
}

/// [`parse`] of a packet without extension headers, of TCP or UDP.
#[inline(always)]
pub(super) fn parse_usual<P: Packet>(
    packet: &P,
    start: usize,
    headers: &mut Headers,
) -> Option<Result<(), Unread>> {
    let header: [u32; BYTES / 4] = packet.words(start)?;
    let [_, _, next, _] = header[1].to_ne_bytes();
    let usual = matches!(next, PROTOCOL_TCP | PROTOCOL_UDP);
    usual.then(|| parse_behind(packet, header, start, headers))
}

/// [`parse`] behind this header.
#[inline(always)]
fn parse_behind<P: Packet>(
    packet: &P,
    header: [u32; BYTES / 4],
    start: usize,
    headers: &mut Headers,
) -> Result<(), Unread> {
    let [payload_high, payload_low, next, _] = header[1].to_ne_bytes();
    // At once, so that nothing of them has to be kept over the checks, nor over the walk's call.
    if !packet.copy_words(start + ADDRESSES_OFFSET, headers.flow.name_v6(next)) {
        return Err(Unread::Truncated);
    }
    let [version, _, _, _] = header[0].to_ne_bytes();
    if version >> 4 != 6 {
        return Err(Unread::NotRead);
    }
    let end = start + BYTES + usize::from(u16::from_be_bytes([payload_high, payload_low]));
    if (packet.size_bytes() as usize) < end {
        return Err(Unread::Truncated);
    }
    let mut walked = Walked::none(start + BYTES, next);
    if is_extension(next) {
        walked = Walked::unpack(packet.walk_extensions(start + BYTES, next));
        headers.flow.rename_protocol_v6(walked.next);
    }
    if walked.state == WALKED_TOO_FAR {
        return Err(Unread::NotRead);
    }
    if walked.state == WALKED_OFF_THE_END || end < walked.offset {
        return Err(Unread::Truncated);
    }
    headers.layout = Layout::new(start, walked.offset, end);
    headers.identification = walked.identification;
    if walked.state == WALKED_LATER_FRAGMENT {
        headers.kind = Kind::LaterFragment;
        return Ok(());
    }
    let whole = walked.state == WALKED_WHOLE;
    if walked.next == PROTOCOL_ICMPV6 {
        let [_, _, _, _, _, _, own @ ..] = header;
        return icmp::parse_v6(packet, own, whole, headers);
    }
    if !whole {
        headers.kind = Kind::FirstFragment;
    }
    let (ports, tcp_flags) = transport::parse(packet, walked.next, walked.offset, end, whole)?;
    headers.flow.key[8] = ports;
    headers.tcp_flags = tcp_flags;
    headers.opens = transport::opens(tcp_flags);
    Ok(())
}

/// The flow of a packet that stands within another, its sender for the client: turned round. `None`
/// when it is not `sender`'s, or names no flow.
#[inline(always)]
pub(super) fn flow_of_quoted<P: Packet>(
    packet: &P,
    start: usize,
    sender: [u32; 4],
) -> Option<Flow> {
    let header: [u32; BYTES / 4] = packet.words(start)?;
    let [_, _, a, b, c, d, e, f, g, h] = header;
    let [version, _, _, _] = header[0].to_ne_bytes();
    let [_, _, next, _] = header[1].to_ne_bytes();
    let same = (a ^ sender[0]) | (b ^ sender[1]) | (c ^ sender[2]) | (d ^ sender[3]);
    if version >> 4 != 6 || same != 0 {
        return None;
    }
    let mut walked = Walked::none(start + BYTES, next);
    if is_extension(next) {
        walked = Walked::unpack(packet.walk_extensions(start + BYTES, next));
    }
    if WALKED_LATER_FRAGMENT <= walked.state {
        return None;
    }
    let ports = transport::ports_of_quoted(packet, walked.next, walked.offset)?;
    Some(Flow::v6([e, f, g, h], [a, b, c, d], ports.rotate_left(16), walked.next))
}

/// Where a walk through extension headers ended.
struct Walked {
    /// Of the first header that was not walked through; at most [`TRANSPORT_OFFSET_MAX`].
    offset: usize,
    /// What that header is.
    next: u8,
    /// [`WALKED_WHOLE`] and its like.
    state: u8,
    /// The fragment header's.
    identification: u32,
}

const WALKED_WHOLE: u8 = 0;
const WALKED_FIRST_FRAGMENT: u8 = 1;
const WALKED_LATER_FRAGMENT: u8 = 2;
const WALKED_OFF_THE_END: u8 = 3;
const WALKED_TOO_FAR: u8 = 4;

impl Walked {
    #[inline(always)]
    const fn none(offset: usize, next: u8) -> Self {
        Self { offset, next, state: WALKED_WHOLE, identification: 0 }
    }

    #[inline(always)]
    const fn ended(state: u8) -> Self {
        Self { offset: 0, next: 0, state, identification: 0 }
    }

    #[inline(always)]
    const fn pack(&self) -> u64 {
        (self.identification as u64) << 32
            | (self.state as u64) << 24
            | (self.next as u64) << 16
            | self.offset as u64
    }

    #[inline(always)]
    const fn unpack(packed: u64) -> Self {
        Self {
            // The mask tells the verifier what the walk made sure of.
            offset: packed as usize & (2 * TRANSPORT_OFFSET_MAX - 1),
            next: (packed >> 16) as u8,
            state: (packed >> 24) as u8,
            identification: (packed >> 32) as u32,
        }
    }
}

/// Walks through the extension headers from `start` on, where one of the type `next` stands.
///
/// Returns a number, because that is what a function that the verifier checks apart can return:
/// [`Walked`], packed.
#[inline(always)]
#[must_use]
pub fn walk_extensions<P: Packet>(packet: &P, start: usize, next: u8) -> u64 {
    let mut walked = Walked::none(start, next);
    for turn in 0..EXTENSION_HEADERS_MAX {
        if TRANSPORT_OFFSET_MAX < walked.offset {
            return Walked::ended(WALKED_TOO_FAR).pack();
        }
        if !is_extension(walked.next) {
            return walked.pack();
        }
        let Some([here, following]) = packet.words(walked.offset) else {
            return Walked::ended(WALKED_OFF_THE_END).pack();
        };
        let [next, length, field_high, field_low] = here.to_ne_bytes();
        let bytes = match walked.next {
            HOP_BY_HOP if turn == 0 => 8 + 8 * usize::from(length),
            // Segments left: this is not the packet's destination (RFC 8200, 4.4).
            ROUTING if field_low == 0 => 8 + 8 * usize::from(length),
            DESTINATION_OPTIONS => 8 + 8 * usize::from(length),
            AUTHENTICATION => 8 + 4 * usize::from(length),
            FRAGMENT if walked.state == WALKED_WHOLE => 8,
            _ => return Walked::ended(WALKED_TOO_FAR).pack(),
        };
        let field = u16::from_be_bytes([field_high, field_low]);
        // A datagram in a single fragment is whole (RFC 6946).
        if walked.next == FRAGMENT && field & (FRAGMENT_OFFSET | FRAGMENT_MORE) != 0 {
            walked.identification = following;
            walked.state = WALKED_FIRST_FRAGMENT;
            if field & FRAGMENT_OFFSET != 0 {
                walked.state = WALKED_LATER_FRAGMENT;
            }
        }
        walked.next = next;
        walked.offset += bytes;
        if walked.state == WALKED_LATER_FRAGMENT {
            break;
        }
    }
    if TRANSPORT_OFFSET_MAX < walked.offset
        || (walked.state != WALKED_LATER_FRAGMENT && is_extension(walked.next))
    {
        return Walked::ended(WALKED_TOO_FAR).pack();
    }
    walked.pack()
}

/// Headers behind which another may stand; an encrypted payload (50) hides what stands behind it.
#[inline(always)]
const fn is_extension(next: u8) -> bool {
    matches!(
        next,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
            | EXPERIMENT_1
            | EXPERIMENT_2
    )
}
