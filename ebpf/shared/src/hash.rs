//! The flow hash: 64 bits from a flow and a seed, the same on the host and in the kernel.
//!
//! Rounds and constants of xxHash64 (whole words only), because the eBPF machine has a 64-bit
//! multiplication and no 128-bit one.

use crate::limits::FLOW_MARK_BITS;
use crate::packet::{FLOW_KEY_WORDS, Flow};

const PRIME_1: u64 = 0x9e37_79b1_85eb_ca87;
const PRIME_2: u64 = 0xc2b2_ae3d_27d4_eb4f;
const PRIME_3: u64 = 0x1656_67b1_9e37_79f9;
const PRIME_4: u64 = 0x85eb_ca77_c2b2_ae63;
const PRIME_5: u64 = 0x27d4_eb2f_1656_67c5;

/// The hash of a flow under a service's seed: addresses, ports, protocol and family.
#[inline(always)]
#[must_use]
pub fn flow_hash(flow: &Flow, seed: u64) -> u64 {
    let key = &flow.key;
    let mut hash = seed.wrapping_add(PRIME_5).wrapping_add(u64::from(flow.family));
    hash = round(hash, pair(key[0], key[1]));
    hash = round(hash, pair(key[2], key[3]));
    if flow.family != 4 {
        hash = round(hash, pair(key[4], key[5]));
        hash = round(hash, pair(key[6], key[7]));
        hash = round(hash, pair(key[8], key[9]));
    }
    avalanche(hash)
}

/// The hash of a flow's source address alone, under a service's seed.
#[inline(always)]
#[must_use]
pub fn source_hash(flow: &Flow, seed: u64) -> u64 {
    let key = &flow.key;
    let mut hash = seed.wrapping_add(PRIME_5).wrapping_add(u64::from(flow.family));
    if flow.family == 4 {
        hash = round(hash, pair(key[0], 0));
    } else {
        hash = round(hash, pair(key[0], key[1]));
        hash = round(hash, pair(key[2], key[3]));
    }
    avalanche(hash)
}

/// What names a flow among others of whatever service: a hash apart from [`flow_hash`], of the same
/// words, cheap because its words do not wait for one another.
///
/// Each word is mixed for itself before they are added up, so that what is turned over in one is not
/// made up for by the same in another. Whoever knows `seed` can find flows of one name.
#[inline(always)]
#[must_use]
pub fn flow_name(flow: &Flow, seed: u64) -> u64 {
    const WEIGHTS: [(u64, u64); FLOW_KEY_WORDS / 2] = [
        (PRIME_1, PRIME_2),
        (PRIME_3, PRIME_1),
        (PRIME_5, PRIME_3),
        (PRIME_2, PRIME_4),
        (PRIME_4, PRIME_5),
    ];
    let key = &flow.key;
    let mut sum = 0_u64;
    // Of IPv4, the words behind the first four are zero.
    for (place, (first, second)) in WEIGHTS.into_iter().enumerate() {
        let word = pair(key[2 * place], key[2 * place + 1]);
        let mixed = (word ^ seed).wrapping_mul(first);
        sum = sum.wrapping_add((mixed ^ mixed >> 32).wrapping_mul(second));
    }
    avalanche(sum)
}

/// A hash independent of `hash` for each `turn`: one flow's further draws.
#[inline(always)]
#[must_use]
pub fn remix(hash: u64, turn: u32) -> u64 {
    avalanche(hash ^ u64::from(turn).wrapping_mul(PRIME_1))
}

/// Which byte of [`FLOW_MARKS`](crate::abi::FLOW_MARKS) is a flow's, by its hash under its service's
/// rule.
#[inline(always)]
#[must_use]
pub fn flow_mark(hash: u64) -> u32 {
    (hash >> (64 - FLOW_MARK_BITS)) as u32
}

/// A number below `bound` from a hash, evenly but for 2^-32 × `bound`; 0 when `bound` is 0.
#[inline(always)]
#[must_use]
pub fn below(hash: u64, bound: u32) -> u32 {
    (((hash >> 32) * u64::from(bound)) >> 32) as u32
}

#[inline(always)]
fn round(hash: u64, word: u64) -> u64 {
    let mixed = word.wrapping_mul(PRIME_2).rotate_left(31).wrapping_mul(PRIME_1);
    (hash ^ mixed).rotate_left(27).wrapping_mul(PRIME_1).wrapping_add(PRIME_4)
}

#[inline(always)]
fn avalanche(hash: u64) -> u64 {
    let hash = (hash ^ hash >> 33).wrapping_mul(PRIME_2);
    let hash = (hash ^ hash >> 29).wrapping_mul(PRIME_3);
    hash ^ hash >> 32
}

/// Two words of a key as one number, the same on machines of either byte order.
#[inline(always)]
fn pair(first: u32, second: u32) -> u64 {
    u64::from(u32::from_le(first)) | u64::from(u32::from_le(second)) << 32
}

#[cfg(test)]
mod tests {
    use std::vec;

    use super::*;

    fn flow(client: u32) -> Flow {
        let destination = u32::from_ne_bytes([192, 0, 2, 1]);
        Flow::v4(client.to_be(), destination, u32::from_ne_bytes([0x90, 1, 1, 0xbb]), 6)
    }

    #[test]
    fn consecutive_addresses_spread_evenly_over_the_slots() {
        let mut counts = vec![0_u32; 100];
        for client in 0..100_000 {
            counts[below(flow_hash(&flow(client), 7), 100) as usize] += 1;
        }
        // 1,000 expected each; five standard deviations are 160.
        assert!(counts.iter().all(|count| (840..=1160).contains(count)), "{counts:?}");
    }

    #[test]
    fn what_two_bits_change_in_a_name_does_not_cancel() {
        let v6 = Flow::v6([0x2001, 0xdb8, 0, 1], [0x2001, 0xdb8, 0, 2], 0x901f, 6);
        for seed in [0, 0x0123_4567_89ab_cdef] {
            let mut names = std::collections::HashSet::new();
            for first in 0..320 {
                for second in 0..first {
                    let mut other = v6;
                    other.key[first / 32] ^= 1 << (first % 32);
                    other.key[second / 32] ^= 1 << (second % 32);
                    assert!(names.insert(flow_name(&other, seed)), "bits {first} and {second}");
                }
            }
            assert!(!names.contains(&flow_name(&v6, seed)));
        }
        assert_ne!(flow_name(&v6, 1), flow_name(&v6, 2));
    }

    #[test]
    fn every_word_of_the_key_moves_the_hash() {
        let v4 = flow(1);
        let v6 = Flow::v6([1, 2, 3, 4], [5, 6, 7, 8], 9, 6);
        for (base, words) in [(v4, 4), (v6, 10)] {
            for word in 0..words {
                let mut other = base;
                other.key[word] ^= 1 << 31;
                assert_ne!(flow_hash(&base, 0), flow_hash(&other, 0), "{other:?}");
                assert_ne!(flow_name(&base, 0), flow_name(&other, 0), "{other:?}");
            }
            assert_ne!(flow_hash(&base, 0), flow_hash(&base, 1));
        }
    }

    #[test]
    fn hash_of_the_source_takes_its_address_and_nothing_else() {
        let v4 = Flow::v4(1, 2, 3, 6);
        assert_eq!(source_hash(&v4, 7), source_hash(&Flow::v4(1, 9, 8, 17), 7));
        assert_ne!(source_hash(&v4, 7), source_hash(&Flow::v4(2, 2, 3, 6), 7));
        assert_ne!(source_hash(&v4, 7), source_hash(&v4, 8));
        let v6 = Flow::v6([1, 2, 3, 4], [5, 6, 7, 8], 9, 6);
        assert_eq!(source_hash(&v6, 7), source_hash(&Flow::v6([1, 2, 3, 4], [0; 4], 1, 17), 7));
        for word in 0..4 {
            let mut other = v6;
            other.key[word] ^= 1;
            assert_ne!(source_hash(&v6, 7), source_hash(&other, 7));
        }
    }

    #[test]
    fn further_draws_are_independent_of_the_first() {
        let mut agree = 0;
        for client in 0..10_000 {
            let hash = flow_hash(&flow(client), 7);
            agree += u32::from(below(hash, 100) == below(remix(hash, 1), 100));
        }
        // One in a hundred by chance.
        assert!((50..=150).contains(&agree), "{agree}");
    }

    #[test]
    fn number_below_a_bound_covers_it_and_stays_below() {
        assert_eq!(below(0, 10), 0);
        assert_eq!(below(u64::MAX, 10), 9);
        assert_eq!(below(u64::MAX, 0), 0);
        assert_eq!(below(1 << 63, 10), 5);
    }
}
