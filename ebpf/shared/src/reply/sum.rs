//! One's complement sums (RFC 1071), which do not depend on the order of bytes: words are added as
//! the machine reads them, and the result is stored as it stores it.

use core::hint::black_box;

use crate::limits::{QUOTED_V6_BYTES_MAX, TRANSPORT_OFFSET_MAX};
use crate::packet::Packet;

/// The sum of a packet's bytes from `start` to before `end`, as if zeros followed to a whole word;
/// 0 when there are not as many, or fewer than four. At most [`QUOTED_V6_BYTES_MAX`] are added, from
/// at most [`TRANSPORT_OFFSET_MAX`] on.
#[inline(always)]
pub fn sum_words<P: Packet>(packet: &P, start: usize, end: usize) -> u64 {
    // Masks and not comparisons, which the compiler may make of other numbers than the verifier
    // needs them of.
    let start = start & (2 * TRANSPORT_OFFSET_MAX - 1);
    if end < start + 4 {
        return 0;
    }
    let mut sum = 0;
    for turn in 0..QUOTED_V6_BYTES_MAX / 4 {
        let offset = start + 4 * turn;
        if end < offset + 4 {
            return sum + rest(packet, offset, end);
        }
        let Some([word]) = packet.words(offset) else {
            return 0;
        };
        sum += u64::from(word);
    }
    sum
}

/// No word that is added begins here or behind.
const LAST_WORD_MAX: usize = (2 * TRANSPORT_OFFSET_MAX + QUOTED_V6_BYTES_MAX).next_power_of_two();

/// The last bytes, fewer than four: they are read with those before them.
#[inline(always)]
fn rest<P: Packet>(packet: &P, offset: usize, end: usize) -> u64 {
    let count = (end - offset) & 3;
    if count == 0 {
        return 0;
    }
    // Opaque, or the compiler reads before a pointer that it has compared, and not behind it, of
    // which the verifier takes no proof.
    let last_word = black_box(offset + count - 4) & (LAST_WORD_MAX - 1);
    let Some([word]) = packet.words(last_word) else {
        return 0;
    };
    u64::from((u32::from_be(word) << (32 - 8 * count)).to_be())
}

/// The sum of these words.
#[inline(always)]
pub(super) fn total<const N: usize>(words: [u32; N]) -> u64 {
    let mut sum = 0;
    for word in words {
        sum += u64::from(word);
    }
    sum
}

/// The checksum of what adds up to this.
#[inline(always)]
pub(super) const fn checksum(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(sum as u16)
}

/// A word whose first two bytes in the packet's order are these.
#[inline(always)]
pub(super) const fn in_first_half(half: u16) -> u32 {
    let [high, low] = half.to_ne_bytes();
    u32::from_ne_bytes([high, low, 0, 0])
}

/// A word whose last two bytes in the packet's order are these.
#[inline(always)]
pub(super) const fn in_second_half(half: u16) -> u32 {
    let [high, low] = half.to_ne_bytes();
    u32::from_ne_bytes([0, 0, high, low])
}
