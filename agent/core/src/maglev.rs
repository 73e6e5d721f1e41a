//! The Maglev table of a pool: which member each slot belongs to, in proportion to weights.
//!
//! After Eisenbud et al., "Maglev", NSDI'16, section 3.4: every member has its own order of
//! preference over all slots, and members take turns at claiming their next free one. Here turns
//! come in proportion to weight: a member's n-th turn is at the virtual time (n - 1/2) / weight
//! (Sainte-Laguë's rule, which favours neither heavy nor light members).
//!
//! The table follows from identities, weights and the seed alone, not from the members' order or
//! from health, so that two hosts with one configuration send a flow to one backend. It is control
//! plane: unlike the rest of this crate, it allocates.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::hash::{GOLDEN, mix};

/// The sizes tables are made in: for each power of two from 2^10 to 2^23 the largest prime below
/// it. A prime makes every step run through all slots.
pub const TABLE_SIZES: [u32; 14] = [
    1021, 2039, 4093, 8191, 16_381, 32_749, 65_521, 131_071, 262_139, 524_287, 1_048_573,
    2_097_143, 4_194_301, 8_388_593,
];

/// Slots that the lightest member should have. NSDI'16, section 5.3: a table of 100 slots per
/// member keeps members within 1 % of their share.
pub const SLOTS_PER_LIGHTEST: u64 = 100;

/// A member of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Hash of who it is; no two members of a pool have the same.
    pub identity: u64,
    /// Its share relative to the others; 0 = none.
    pub weight: u32,
}

/// How large a table a pool needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// Slots, one of [`TABLE_SIZES`].
    pub slot_count: u32,
    /// Slots that the lightest member gets of them, by its share. From
    /// [`SLOTS_PER_LIGHTEST`] up, shares are exact within 1 %; below, within one slot in this many,
    /// because the largest size was not large enough.
    pub lightest_slot_count: u32,
}

/// The smallest size that gives the lightest member its [`SLOTS_PER_LIGHTEST`], or the largest.
#[must_use]
pub fn table_size(members: &[Member]) -> TableSize {
    let weights = || members.iter().map(|member| u64::from(member.weight)).filter(|&w| 0 < w);
    let total: u64 = weights().sum();
    let lightest = weights().min().unwrap_or(1);
    let wanted = (SLOTS_PER_LIGHTEST * total).div_ceil(lightest);
    let largest = TABLE_SIZES[TABLE_SIZES.len() - 1];
    let fits = TABLE_SIZES.into_iter().find(|&size| wanted <= u64::from(size));
    let slot_count = fits.unwrap_or(largest);
    let lightest_slot_count = u64::from(slot_count) * lightest / total.max(1);
    TableSize { slot_count, lightest_slot_count: lightest_slot_count as u32 }
}

/// Fills a table of `slot_count` slots (a prime): for each slot an index into `members`. Empty
/// when no member has a weight.
#[must_use]
pub fn fill(members: &[Member], seed: u64, slot_count: u32) -> Vec<u32> {
    let mut claims: Vec<Claim> = (0_u32..)
        .zip(members)
        .filter(|(_, member)| 0 < member.weight)
        .map(|(index, member)| Claim::new(index, *member, seed, slot_count))
        .collect();
    if claims.is_empty() {
        return Vec::new();
    }
    claims.sort_unstable_by_key(|claim| (claim.weight, claim.identity));
    let mut table = vec![u32::MAX; slot_count as usize];
    let mut free_count = slot_count;
    let mut turns = turns(&claims);
    while 0 < free_count {
        let mut turn = turns.peek_mut().expect("one turn for each weight, and there are claims");
        for claim in claims[turn.0.claims()].iter_mut().take(free_count as usize) {
            let slot = claim.next_free(&table, slot_count);
            table[slot as usize] = claim.member;
            free_count -= 1;
        }
        turn.0.number += 2;
    }
    table
}

/// The first turn of each weight; `claims` are sorted by weight.
fn turns(claims: &[Claim]) -> BinaryHeap<Reverse<Turn>> {
    let mut first = 0;
    let turn = |of_weight: &[Claim]| {
        let end = first + of_weight.len();
        let turn = Turn { number: 1, weight: of_weight[0].weight, first, end };
        first = end;
        Reverse(turn)
    };
    claims.chunk_by(|a, b| a.weight == b.weight).map(turn).collect()
}

/// A member's way through the slots.
struct Claim {
    member: u32,
    identity: u64,
    weight: u32,
    /// The slot it prefers next.
    slot: u32,
    /// From one preference to the next, 1 .. slot count.
    step: u32,
}

impl Claim {
    fn new(member: u32, of: Member, seed: u64, slot_count: u32) -> Self {
        let hash = mix(of.identity ^ mix(seed.wrapping_add(GOLDEN)));
        let again = mix(hash.wrapping_add(GOLDEN));
        let slot = (hash % u64::from(slot_count)) as u32;
        let step = (again % u64::from(slot_count - 1)) as u32 + 1;
        Self { member, identity: of.identity, weight: of.weight, slot, step }
    }

    /// Its most preferred free slot. There must be one.
    fn next_free(&mut self, table: &[u32], slot_count: u32) -> u32 {
        loop {
            let slot = self.slot;
            let next = u64::from(slot) + u64::from(self.step);
            self.slot = (next % u64::from(slot_count)) as u32;
            if table[slot as usize] == u32::MAX {
                return slot;
            }
        }
    }
}

/// The turn of all members of one weight; ordered by number / weight, then by weight.
#[derive(Clone, Copy)]
struct Turn {
    /// Odd: 2n - 1 for the n-th.
    number: u32,
    weight: u32,
    /// Its claims: from this one.
    first: usize,
    /// To before this one.
    end: usize,
}

impl Turn {
    const fn claims(self) -> Range<usize> {
        self.first..self.end
    }
}

impl Ord for Turn {
    fn cmp(&self, other: &Self) -> Ordering {
        let ours = u64::from(self.number) * u64::from(other.weight);
        let theirs = u64::from(other.number) * u64::from(self.weight);
        ours.cmp(&theirs).then(self.weight.cmp(&other.weight))
    }
}

impl PartialOrd for Turn {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Turn {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Turn {}

#[cfg(test)]
mod tests {
    use super::*;

    fn equal(count: u64) -> Vec<Member> {
        (0..count).map(|n| Member { identity: mix(n), weight: 1 }).collect()
    }

    fn counts(table: &[u32], member_count: usize) -> Vec<u32> {
        let mut counts = vec![0; member_count];
        for &member in table {
            counts[member as usize] += 1;
        }
        counts
    }

    /// The table as identities, so that tables of different member lists compare.
    fn owners(members: &[Member], seed: u64, slot_count: u32) -> Vec<u64> {
        let table = fill(members, seed, slot_count);
        table.into_iter().map(|member| members[member as usize].identity).collect()
    }

    #[test]
    fn sizes_are_the_largest_primes_below_the_powers_of_two() {
        let is_prime = |n: u32| (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
        for (exponent, size) in (10..).zip(TABLE_SIZES) {
            assert!(is_prime(size), "{size}");
            assert!((size + 1..1 << exponent).all(|larger| !is_prime(larger)), "{size}");
        }
    }

    #[test]
    fn size_gives_the_lightest_member_a_hundred_slots_or_says_what_it_gets() {
        assert_eq!(table_size(&equal(1)).slot_count, 1021);
        assert_eq!(table_size(&equal(10)).slot_count, 1021);
        assert_eq!(table_size(&equal(11)).slot_count, 2039);
        assert_eq!(table_size(&equal(1000)).slot_count, 131_071);
        let most = table_size(&equal(65_536));
        assert_eq!(most, TableSize { slot_count: 8_388_593, lightest_slot_count: 127 });
        let weighted = [Member { identity: 1, weight: 1000 }, Member { identity: 2, weight: 3 }];
        assert_eq!(table_size(&weighted).slot_count, 65_521);
        let mut capped = equal(65_536);
        capped[0].weight = 10;
        capped.iter_mut().skip(1).for_each(|member| member.weight = 1000);
        let size = table_size(&capped);
        assert_eq!(size, TableSize { slot_count: 8_388_593, lightest_slot_count: 1 });
    }

    #[test]
    fn equal_members_have_equal_shares_within_one_slot() {
        let members = equal(100);
        let table = fill(&members, 7, 16_381);
        assert_eq!(table.len(), 16_381);
        let counts = counts(&table, 100);
        assert!(counts.iter().all(|&count| count == 163 || count == 164), "{counts:?}");
    }

    #[test]
    fn shares_follow_weights_within_one_slot() {
        let weights = [1, 2, 3, 10, 100, 0];
        let members: Vec<Member> =
            (0..).zip(weights).map(|(n, weight)| Member { identity: mix(n), weight }).collect();
        let counts = counts(&fill(&members, 7, 16_381), members.len());
        for (count, weight) in counts.into_iter().zip(weights) {
            let share = 16_381.0 * f64::from(weight) / 116.0;
            assert!((f64::from(count) - share).abs() <= 1.0, "{count} of {share}");
        }
    }

    #[test]
    fn order_of_members_does_not_matter_and_the_seed_does() {
        let members = equal(50);
        let mut turned = members.clone();
        turned.reverse();
        turned.swap(3, 40);
        assert_eq!(owners(&members, 7, 8191), owners(&turned, 7, 8191));
        let other = owners(&members, 8, 8191);
        let same = owners(&members, 7, 8191).iter().zip(&other).filter(|(a, b)| a == b).count();
        // By chance one slot in fifty agrees, 164.
        assert!(same < 300, "{same}");
    }

    #[test]
    fn removal_moves_few_slots_of_those_who_stay() {
        let members = equal(100);
        let before = owners(&members, 7, 16_381);
        let after = owners(&members[1..], 7, 16_381);
        let gone = members[0].identity;
        let of_living = before.iter().filter(|&&owner| owner != gone).count();
        let pairs = before.iter().zip(&after);
        let moved = pairs.filter(|(old, new)| **old != gone && old != new).count();
        // A modulo hash would move 99 of 100. NSDI'16, section 5.3: a few per cent.
        assert!(moved * 100 < of_living * 3, "{moved} of {of_living}");
    }

    #[test]
    fn table_is_the_same_in_every_version_and_on_every_host() {
        // Worked out by a second implementation, in Python, from the words at the top of this file.
        let of = |identity, weight| Member { identity, weight };
        let members = [of(11, 1), of(22, 2), of(33, 2), of(44, 0), of(55, 7)];
        let table = fill(&members, 99, 1021);
        let first = [4, 2, 4, 2, 4, 1, 0, 4, 4, 0, 4, 4, 4, 4, 2, 4, 2, 0, 4, 4, 4, 1, 4, 4];
        assert_eq!(table[..24], first);
        assert_eq!(counts(&table, 5), [85, 170, 170, 0, 596]);
        // FNV-1a over the members' indices.
        let fnv1a =
            |hash: u64, &member: &u32| (hash ^ u64::from(member)).wrapping_mul(0x100_0000_01b3);
        assert_eq!(table.iter().fold(0xcbf2_9ce4_8422_2325, fnv1a), 0xb42f_895e_1d61_349d);
    }

    #[test]
    fn no_weight_no_table() {
        assert!(fill(&[], 7, 1021).is_empty());
        assert!(fill(&[Member { identity: 1, weight: 0 }], 7, 1021).is_empty());
        assert_eq!(fill(&[Member { identity: 1, weight: 5 }], 7, 1021), vec![0; 1021]);
    }
}
