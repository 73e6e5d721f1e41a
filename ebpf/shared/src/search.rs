//! Searches: the loops of choosing, each bounded, each of numbers alone.
//!
//! By re-hashing: cheap while most live. The k-th of those that take new flows, through the counts:
//! dear, and certain, however few are left. Any of a bitmap, when no counts are kept of it.

use crate::abi::{BackendRef, Slot};
use crate::hash::{below, remix};
use crate::limits::{GROUP_WORDS, POOL_GROUPS_MAX, REHASH_TRIES, WORD_BACKENDS};
use crate::tables::{Bitmap, Tables, bit};

/// A slot of the table of `slot_count` slots from `slot_first` on, from a hash.
#[inline(always)]
pub fn slot<T: Tables>(tables: &T, slot_first: u32, slot_count: u32, hash: u64) -> Option<Slot> {
    if slot_count == 0 {
        return None;
    }
    tables.slot(slot_first.wrapping_add(below(hash, slot_count)))
}

/// The current backend of another slot, if one of [`REHASH_TRIES`] takes new flows. The first try
/// is made at once: while most are well, it finds one.
#[inline(always)]
pub fn rehash<T: Tables>(tables: &T, slot_first: u32, slot_count: u32, hash: u64) -> BackendRef {
    if let Some(slot) = slot(tables, slot_first, slot_count, remix(hash, 1))
        && bit(tables, Bitmap::TakesNew, slot.current())
    {
        return slot.current();
    }
    tables.rehash_further(slot_first, slot_count, hash)
}

/// The tries of [`rehash`] after the first.
#[inline(always)]
pub fn rehash_further<T: Tables>(
    tables: &T,
    slot_first: u32,
    slot_count: u32,
    hash: u64,
) -> BackendRef {
    for turn in 2..=REHASH_TRIES {
        if let Some(slot) = slot(tables, slot_first, slot_count, remix(hash, turn))
            && bit(tables, Bitmap::TakesNew, slot.current())
        {
            return slot.current();
        }
    }
    BackendRef::NONE
}

/// Which of the [`rehash`]ed tries finds a backend, from 1; 0 = none of them.
#[inline(always)]
pub fn try_that_finds<T: Tables>(tables: &T, slot_first: u32, slot_count: u32, hash: u64) -> u32 {
    for turn in 1..=REHASH_TRIES {
        if let Some(slot) = slot(tables, slot_first, slot_count, remix(hash, turn))
            && bit(tables, Bitmap::TakesNew, slot.current())
        {
            return turn;
        }
    }
    0
}

/// The k-th (from 0) set bit of a word; any number below 64 when fewer are set.
///
/// Without branches: a choice between two constants is a fork for the kernel's verifier.
#[inline(always)]
#[must_use]
pub fn kth_bit(word: u64, k: u32) -> u32 {
    let (mut rest_of_word, mut rest, mut position) = (word, u64::from(k), 0);
    let mut width = 32;
    while width != 0 {
        let low = u64::from((rest_of_word & ((1 << width) - 1)).count_ones());
        // All ones when the bit lies above these `width` bits, else zero.
        let above = (low.wrapping_sub(rest).wrapping_sub(1) as i64 >> 63) as u64;
        rest -= low & above;
        position += width & above;
        rest_of_word >>= width & above;
        width /= 2;
    }
    position as u32
}

/// No backend: what a search returns that found none.
pub const NOT_FOUND: u32 = u32::MAX;

/// The index of the backend of the k-th set bit of [`Bitmap::TakesNew`] in a pool, by its counts;
/// when there are fewer, of the last one seen.
#[inline(always)]
pub fn kth_by_counts<T: Tables>(tables: &T, pool_first: u32, pool_count: u32, k: u32) -> u32 {
    let (mut first, mut rest) = (pool_first, k);
    if GROUP_WORDS < pool_count {
        for group in 0..POOL_GROUPS_MAX {
            if pool_count <= group * GROUP_WORDS {
                break;
            }
            first = pool_first + group * GROUP_WORDS;
            let count = tables.group_count(first / GROUP_WORDS);
            if rest < count {
                break;
            }
            rest -= count;
        }
    }
    kth_in_group(tables, Bitmap::TakesNew, first, pool_count, rest)
}

/// The index of the backend of a set bit of a pool's words, all equally likely.
///
/// Each group takes the place of the one held so far with the chance of its bits among those seen.
#[inline(always)]
pub fn any_by_scan<T: Tables>(
    tables: &T,
    bitmap: Bitmap,
    pool_first: u32,
    pool_count: u32,
    draw: u64,
) -> u32 {
    let (mut total, mut first, mut rest) = (0, pool_first, 0);
    for group in 0..POOL_GROUPS_MAX {
        if pool_count <= group * GROUP_WORDS {
            break;
        }
        let here = pool_first + group * GROUP_WORDS;
        let ones = tables.ones_in_group(bitmap, here, pool_count);
        total += ones;
        let k = below(remix(draw, group), total);
        if k < ones {
            (first, rest) = (here, k);
        }
    }
    kth_in_group(tables, bitmap, first, pool_count, rest)
}

/// Set bits of the words of a group, of which a small pool has fewer.
#[inline(always)]
pub fn ones_in_group<T: Tables>(tables: &T, bitmap: Bitmap, first: u32, pool_count: u32) -> u32 {
    let mut ones = 0;
    for turn in 0..GROUP_WORDS {
        if pool_count <= turn {
            break;
        }
        ones += tables.word(bitmap, first + turn).count_ones();
    }
    ones
}

/// The index of the backend of the k-th set bit of a group; when there are fewer, of the last.
#[inline(always)]
fn kth_in_group<T: Tables>(tables: &T, bitmap: Bitmap, first: u32, pool_count: u32, k: u32) -> u32 {
    let (mut rest, mut seen, mut seen_word, mut seen_k) = (k, NOT_FOUND, 0, 0);
    for turn in 0..GROUP_WORDS {
        if pool_count <= turn {
            break;
        }
        let word = tables.word(bitmap, first + turn);
        let count = word.count_ones();
        if count != 0 {
            (seen, seen_word) = (first + turn, word);
            seen_k = if rest < count { rest } else { count - 1 };
        }
        if rest < count {
            break;
        }
        rest -= count;
    }
    if seen == NOT_FOUND {
        return NOT_FOUND;
    }
    seen * WORD_BACKENDS + kth_bit(seen_word, seen_k)
}
