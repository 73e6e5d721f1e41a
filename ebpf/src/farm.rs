//! The lab's synthetic farm: the backends of a whole prefix, played by one program that keeps no
//! state.
//!
//! It stands at the far end of a veth and answers each TCP segment by itself: a SYN by a SYN-ACK, a
//! request by a whole response and FIN, a FIN by an ACK. What a stateless peer must know of a
//! connection comes back in its acknowledgements: the first sequence number holds the time of the
//! SYN in its upper 20 bits (ticks of 2^20 ns, so it comes round after 18 minutes), and what is
//! above it in the lower 12 is how many bytes were sent. So a late backend answers a request that
//! is sent again, and a dripping one sends its next byte, without a timer anywhere.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(unsafe_code, reason = "packet bytes and map values lie behind raw pointers")]
#![expect(clippy::needless_pass_by_value, reason = "the macro hands the context over")]

/// Licence and panic handler.
mod object;

use core::ptr::addr_of;

use aya_ebpf::bindings::xdp_action::{XDP_DROP, XDP_PASS, XDP_TX};
use aya_ebpf::bindings::xdp_md;
use aya_ebpf::btf_maps::{Array, PerCpuArray};
use aya_ebpf::helpers::generated::{bpf_ktime_get_coarse_ns, bpf_xdp_adjust_head};
use aya_ebpf::macros::{btf_map, xdp};
use aya_ebpf::programs::XdpContext;
use sickbay_shared::farm::{Behaviour, SHARE_WORDS, behaviour};

/// A [`Shares`](sickbay_shared::farm::Shares) as words; may be stored while this runs.
#[btf_map]
static FARM_SHARES: Array<[u32; SHARE_WORDS], 1> = Array::new();
/// What came, by [`Count`].
#[btf_map]
static FARM_COUNTS: PerCpuArray<u64, 8> = PerCpuArray::new();

/// Index into [`FARM_COUNTS`].
#[derive(Clone, Copy)]
#[repr(u32)]
enum Count {
    /// TCP segments.
    Segments = 0,
    /// SYNs.
    Syns = 1,
    /// Segments with a payload: requests, those sent again included.
    Requests = 2,
    /// Whole responses.
    Responses = 3,
    /// Refusals.
    Refusals = 4,
}

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const IPV6: usize = 40;
const TCP: usize = 20;
const IPV4_TYPE: u16 = 0x0800_u16.to_be();
const IPV6_TYPE: u16 = 0x86dd_u16.to_be();
const PROTOCOL: u32 = 6;

const FIN: u32 = 1;
const SYN: u32 = 2;
const RST: u32 = 4;
const PSH: u32 = 8;
const ACK: u32 = 16;

const RESPONSE: usize = 64;
const GOOD: [u8; RESPONSE] =
    *b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nConnection: close\r\n\r\nhealthy";
const ERROR: [u8; RESPONSE] =
    *b"HTTP/1.1 500 No\r\nContent-Length: 7\r\nConnection: close\r\n\r\nfailing";

/// Bits of the sequence number that count what was sent.
const SENT_BITS: u32 = 12;
const SENT_MASK: u32 = (1 << SENT_BITS) - 1;
const TICK_MASK: u32 = u32::MAX >> SENT_BITS;

/// Answers a segment, and passes what is none.
#[xdp]
pub(crate) fn sickbay_farm(ctx: XdpContext) -> u32 {
    let packet = Packet(ctx.ctx);
    match packet.word::<u16>(12) {
        Some(IPV4_TYPE) => match packet.ipv4() {
            Some(segment) => answer::<{ ETHERNET + IPV4 }>(packet, &segment),
            None => XDP_PASS,
        },
        Some(IPV6_TYPE) => match packet.ipv6() {
            Some(segment) => answer::<{ ETHERNET + IPV6 }>(packet, &segment),
            None => XDP_PASS,
        },
        _ => XDP_PASS,
    }
}

/// What is read of a segment. Addresses and ports are as they stand in memory, numbers in host
/// order.
struct Segment {
    source_mac: (u32, u16),
    destination_mac: (u32, u16),
    source: [u32; 4],
    destination: [u32; 4],
    ports: u32,
    sequence: u32,
    acknowledged: u32,
    flags: u32,
    payload: u32,
    size: u32,
}

/// What is sent.
struct Reply {
    sequence: u32,
    acknowledged: u32,
    flags: u32,
}

#[derive(Clone, Copy)]
struct Packet(*mut xdp_md);

impl Packet {
    #[inline(always)]
    fn bounds(self) -> (usize, usize) {
        // Volatile: after the packet has moved, the fields are to be read anew.
        // SAFETY: fields of the program's own context.
        unsafe {
            (
                addr_of!((*self.0).data).read_volatile() as usize,
                addr_of!((*self.0).data_end).read_volatile() as usize,
            )
        }
    }

    #[inline(always)]
    fn word<T>(self, offset: usize) -> Option<T> {
        let (data, end) = self.bounds();
        let start = data + offset;
        if end < start + size_of::<T>() {
            return None;
        }
        // SAFETY: the bytes lie below data_end, as just checked; the verifier checks it again and
        // lets unaligned loads from packets pass where the machine has them.
        Some(unsafe { (start as *const T).read() })
    }

    #[inline(always)]
    fn ipv4(self) -> Option<Segment> {
        let head = self.word::<[u32; 5]>(ETHERNET)?;
        // No options, no fragment; veth carries nothing that is padded.
        let is_whole = head[0].to_be() >> 24 == 0x45 && head[1].to_be() & 0x3fff == 0;
        if !is_whole || head[2].to_be() >> 16 & 0xff != PROTOCOL {
            return None;
        }
        let size = head[0].to_be() & 0xffff;
        let (source, destination) = ([head[3], 0, 0, 0], [head[4], 0, 0, 0]);
        self.tcp(ETHERNET + IPV4, size.wrapping_sub(IPV4 as u32), source, destination)
    }

    #[inline(always)]
    fn ipv6(self) -> Option<Segment> {
        let head = self.word::<[u32; 10]>(ETHERNET)?;
        if head[1].to_be() >> 8 & 0xff != PROTOCOL {
            return None;
        }
        let size = head[1].to_be() >> 16;
        let source = [head[2], head[3], head[4], head[5]];
        let destination = [head[6], head[7], head[8], head[9]];
        self.tcp(ETHERNET + IPV6, size, source, destination)
    }

    #[inline(always)]
    fn tcp(self, at: usize, size: u32, source: [u32; 4], destination: [u32; 4]) -> Option<Segment> {
        let head = self.word::<[u32; 4]>(at)?;
        let (low, high) = (self.word::<[u32; 2]>(0)?, self.word::<[u16; 2]>(8)?);
        let control = head[3].to_be();
        Some(Segment {
            destination_mac: (low[0], low[1] as u16),
            source_mac: (low[1] >> 16 | u32::from(high[0]) << 16, high[1]),
            source,
            destination,
            ports: head[0],
            sequence: head[1].to_be(),
            acknowledged: head[2].to_be(),
            flags: control >> 16 & 0xff,
            payload: size.wrapping_sub(control >> 28 << 2) & 0xffff,
            size: at as u32 + size,
        })
    }
}

#[inline(always)]
fn answer<const AT: usize>(packet: Packet, segment: &Segment) -> u32 {
    let Some(shares) = FARM_SHARES.get(0) else {
        return XDP_DROP;
    };
    count(Count::Segments);
    if segment.flags & RST != 0 {
        return XDP_DROP;
    }
    let end = segment.sequence.wrapping_add(segment.payload);
    let behaviour = behaviour(segment.destination, shares);
    match behaviour {
        Behaviour::BlackHole => return XDP_DROP,
        Behaviour::Refuse => {
            count(Count::Refusals);
            // RFC 9293, 3.10.7.1: a SYN is acknowledged, what acknowledges is taken at its word.
            let is_syn = segment.flags & ACK == 0;
            let reply = Reply {
                sequence: if is_syn { 0 } else { segment.acknowledged },
                acknowledged: if is_syn { end.wrapping_add(1) } else { 0 },
                flags: if is_syn { RST | ACK } else { RST },
            };
            return send::<AT, 0>(packet, segment, &reply, [0; 0]);
        }
        _ => {}
    }
    if segment.flags & SYN != 0 {
        count(Count::Syns);
        let reply = Reply {
            sequence: tick() << SENT_BITS,
            acknowledged: end.wrapping_add(1),
            flags: SYN | ACK,
        };
        return send::<AT, 0>(packet, segment, &reply, [0; 0]);
    }
    let sent = segment.acknowledged.wrapping_sub(1);
    if segment.payload != 0 {
        count(Count::Requests);
        let age = tick().wrapping_sub(sent >> SENT_BITS) & TICK_MASK;
        return match behaviour {
            Behaviour::Late if age < shares[5] => XDP_DROP,
            Behaviour::Drip => drip::<AT>(packet, segment, sent & SENT_MASK),
            Behaviour::Error => respond::<AT>(packet, segment, ERROR),
            _ => respond::<AT>(packet, segment, GOOD),
        };
    }
    if segment.flags & FIN != 0 {
        // Behind a whole response it has had our FIN, otherwise here it is.
        let is_over = sent & SENT_MASK == RESPONSE as u32 + 1;
        let reply = Reply {
            sequence: segment.acknowledged,
            acknowledged: end.wrapping_add(1),
            flags: if is_over { ACK } else { FIN | ACK },
        };
        return send::<AT, 0>(packet, segment, &reply, [0; 0]);
    }
    XDP_DROP
}

#[inline(always)]
fn respond<const AT: usize>(packet: Packet, segment: &Segment, response: [u8; RESPONSE]) -> u32 {
    count(Count::Responses);
    let fin = u32::from(segment.flags & FIN != 0);
    let reply = Reply {
        sequence: segment.acknowledged,
        acknowledged: segment.sequence.wrapping_add(segment.payload + fin),
        flags: PSH | FIN | ACK,
    };
    send::<AT, RESPONSE>(packet, segment, &reply, response)
}

/// The next byte of a good response; the request is not acknowledged, so it will be sent again.
#[inline(always)]
fn drip<const AT: usize>(packet: Packet, segment: &Segment, sent: u32) -> u32 {
    let Some(byte) = GOOD.get(sent as usize) else {
        return XDP_DROP;
    };
    let reply =
        Reply { sequence: segment.acknowledged, acknowledged: segment.sequence, flags: PSH | ACK };
    send::<AT, 1>(packet, segment, &reply, [*byte])
}

/// Makes the packet the reply, `N` bytes of payload behind its headers, and sends it back.
#[inline(always)]
fn send<const AT: usize, const N: usize>(
    packet: Packet,
    segment: &Segment,
    reply: &Reply,
    payload: [u8; N],
) -> u32 {
    // At the front, where there is room to grow: at the end of a frame from a local stack there is
    // next to none.
    let change = segment.size as i32 - (AT + TCP + N) as i32;
    // SAFETY: the helper takes the context and a number, and refuses what it cannot do.
    if unsafe { bpf_xdp_adjust_head(packet.0, change) } != 0 {
        return XDP_DROP;
    }
    let (data, end) = packet.bounds();
    if end < data + AT + TCP + N {
        return XDP_DROP;
    }
    let put32 = |offset: usize, word: u32| {
        // SAFETY: below AT + TCP, so below data_end, as just checked.
        unsafe { ((data + offset) as *mut u32).write(word) }
    };
    let put16 = |offset: usize, word: u16| {
        // SAFETY: as above.
        unsafe { ((data + offset) as *mut u16).write(word) }
    };
    put32(0, segment.source_mac.0);
    put16(4, segment.source_mac.1);
    put32(6, segment.destination_mac.0);
    put16(10, segment.destination_mac.1);
    let size = (TCP + N) as u32;
    if AT == ETHERNET + IPV4 {
        put16(12, IPV4_TYPE);
        let head = [
            (0x4500_0000 | (size + IPV4 as u32)).to_be(),
            0x4000_u32.to_be(),
            (64 << 24 | PROTOCOL << 16).to_be(),
            segment.destination[0],
            segment.source[0],
        ];
        let sum = folded(head.iter().map(|word| u64::from(*word)).sum());
        put32(ETHERNET, head[0]);
        put32(ETHERNET + 4, head[1]);
        put32(ETHERNET + 8, head[2] | u32::from(!sum) << 16);
        put32(ETHERNET + 12, head[3]);
        put32(ETHERNET + 16, head[4]);
    } else {
        put16(12, IPV6_TYPE);
        put32(ETHERNET, 0x6000_0000_u32.to_be());
        put32(ETHERNET + 4, (size << 16 | PROTOCOL << 8 | 64).to_be());
        for word in 0..4 {
            put32(ETHERNET + 8 + 4 * word, segment.destination[word]);
            put32(ETHERNET + 24 + 4 * word, segment.source[word]);
        }
    }
    let head = [
        segment.ports.rotate_left(16),
        reply.sequence.to_be(),
        reply.acknowledged.to_be(),
        (0x5000_ffff | reply.flags << 16).to_be(),
    ];
    let mut sum: u64 = head.iter().map(|word| u64::from(*word)).sum();
    sum += u64::from((PROTOCOL << 16 | size).to_be());
    for word in 0..4 {
        sum += u64::from(segment.source[word]) + u64::from(segment.destination[word]);
    }
    for (index, byte) in payload.iter().enumerate() {
        sum += if index % 2 == 0 { u64::from(*byte) } else { u64::from(*byte) << 8 };
    }
    put32(AT, head[0]);
    put32(AT + 4, head[1]);
    put32(AT + 8, head[2]);
    put32(AT + 12, head[3]);
    put32(AT + 16, u32::from(!folded(sum)));
    // SAFETY: N bytes behind the headers, below data_end, as checked above.
    unsafe { ((data + AT + TCP) as *mut [u8; N]).write_unaligned(payload) };
    XDP_TX
}

/// A sum of words as the 16 bits of the Internet checksum, not yet complemented.
#[inline(always)]
fn folded(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// The time in ticks of 2^20 ns, as many bits as a sequence number holds.
#[inline(always)]
fn tick() -> u32 {
    // SAFETY: the helper has no conditions.
    (unsafe { bpf_ktime_get_coarse_ns() } >> 20) as u32 & TICK_MASK
}

#[inline(always)]
fn count(what: Count) {
    if let Some(count) = FARM_COUNTS.get_ptr_mut(what as u32) {
        // SAFETY: this CPU's own element, aligned, and living as long as the map.
        unsafe { *count += 1 }
    }
}

/// On the host this crate is compiled for its lints only.
#[cfg(not(target_arch = "bpf"))]
fn main() {}
