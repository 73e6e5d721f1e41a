//! Entries of SYNs: an array of lines, each with a few entries that give way to one another.
//!
//! A diverted SYN costs one line of memory, without a lock. In an LRU hash it would cost a look-up
//! and an insertion, which takes the locks of a bucket and of a list that all CPUs share; and it is
//! SYNs that floods are made of. A line that is full loses its oldest entry, whatever is void
//! elsewhere: with room for so many more than are under way at a time, that is as good. Two CPUs that
//! write to one line in the same instant may lose an entry, and never mix two.

use crate::abi::{BackendRef, EmbryonicEntry, FlowEntry};
use crate::hash::flow_name;
use crate::limits::{EMBRYONIC_LINES, EMBRYONIC_WAYS};
use crate::packet::Flow;

/// The low bits of a tag are the flow's family, halved, so that entries can be counted by family.
const FAMILY_BITS: u32 = 2;
/// An entry's time is counted in 2^22 ns, the coarse clock's own steps at 250 Hz: 32 bits of them
/// are 208 days.
pub const TICK_BITS: u32 = 22;
/// Ticks that an entry may be ahead of this CPU's clock, 1 s: it was put by another one, after this
/// one had looked at the clock and was held up.
const AHEAD_TICKS: u32 = 256;

/// A line of entries, wherever it stands. Its words may change at any time.
pub trait Line {
    /// [`EmbryonicEntry::check`] of one, in one read.
    fn check(&self, way: usize) -> u64;
    /// [`EmbryonicEntry::whom`] of one, in one read.
    fn whom(&self, way: usize) -> u64;
    /// Puts an entry there.
    fn put(&self, way: usize, entry: EmbryonicEntry);
}

/// What names a flow among these entries: 62 bits of a hash, and its family. Never 0. Not of the
/// hash that finds the flow's slot: the flows of a sick one are to have many lines. The seed is the
/// host's own ([`seed`]), so that nobody elsewhere can make a flow of another one's tag.
#[inline(always)]
#[must_use]
pub fn tag(flow: &Flow, seed: u64) -> u64 {
    let family = u64::from(flow.family / 2);
    flow_name(flow, seed) >> FAMILY_BITS << FAMILY_BITS | family
}

/// The seed of [`tag`] from the boot id in a [`Header`](crate::abi::Header), which is random, told to
/// nobody outside, and the same for every agent that may find these entries.
#[inline(always)]
#[must_use]
pub const fn seed(boot_id: [u64; 2]) -> u64 {
    boot_id[0] ^ boot_id[1].rotate_left(32)
}

/// The line where a flow of this tag has its entry.
#[inline(always)]
#[must_use]
pub const fn line_of(tag: u64) -> u32 {
    (tag >> FAMILY_BITS) as u32 % EMBRYONIC_LINES
}

/// The address family, 4 or 6, of the flow of this tag.
#[inline(always)]
#[must_use]
pub const fn family_of(tag: u64) -> u8 {
    (tag % (1 << FAMILY_BITS)) as u8 * 2
}

impl EmbryonicEntry {
    /// The entry of a flow whose SYN went to `backend` at `seen_ns`.
    #[inline(always)]
    #[must_use]
    pub const fn new(tag: u64, backend: BackendRef, seen_ns: u64) -> Self {
        let whom = (seen_ns >> TICK_BITS) << 32 | backend.0 as u64;
        Self { check: tag ^ whom, whom }
    }

    /// Whose it is; 0 of none.
    #[inline(always)]
    #[must_use]
    pub const fn tag(&self) -> u64 {
        self.check ^ self.whom
    }

    /// What it says, its time rounded down; see [`said`].
    #[inline(always)]
    #[must_use]
    pub const fn said(&self, now_ns: u64) -> FlowEntry {
        said(self.whom, now_ns)
    }
}

/// [`EmbryonicEntry::whom`] of the entry of this tag in its line; 0 when it has none.
#[inline(always)]
pub fn find<L: Line>(line: &L, tag: u64) -> u64 {
    for way in 0..EMBRYONIC_WAYS {
        let whom = line.whom(way);
        if line.check(way) ^ whom == tag {
            return whom;
        }
    }
    0
}

/// Puts an entry into its line, in place of the flow's former one, or else of the oldest.
#[inline(always)]
pub fn put<L: Line>(line: &L, tag: u64, backend: BackendRef, now_ns: u64) {
    line.put(place(line, tag, now_ns), EmbryonicEntry::new(tag, backend, now_ns));
}

/// Takes the flow's entry away, if it is there; both, if two CPUs have put one at once.
#[inline(always)]
pub fn delete<L: Line>(line: &L, tag: u64) {
    for way in 0..EMBRYONIC_WAYS {
        if line.check(way) ^ line.whom(way) == tag {
            line.put(way, EmbryonicEntry { check: 0, whom: 0 });
        }
    }
}

/// Where the entry of this tag goes.
#[inline(always)]
fn place<L: Line>(line: &L, tag: u64, now_ns: u64) -> usize {
    let (mut oldest, mut oldest_age) = (0, 0);
    for way in 0..EMBRYONIC_WAYS {
        let whom = line.whom(way);
        if line.check(way) ^ whom == tag {
            return way;
        }
        let age = if whom == 0 { u32::MAX } else { age_ticks(whom, now_ns) };
        if oldest_age < age {
            (oldest, oldest_age) = (way, age);
        }
    }
    oldest
}

/// How long ago the SYN of [`EmbryonicEntry::whom`] came, in ticks, and [`AHEAD_TICKS`] more.
#[inline(always)]
const fn age_ticks(whom: u64, now_ns: u64) -> u32 {
    ((now_ns >> TICK_BITS) as u32).wrapping_add(AHEAD_TICKS).wrapping_sub((whom >> 32) as u32)
}

/// What [`EmbryonicEntry::whom`] says; of 0, an entry of [`BackendRef::NONE`]. 208 days after its
/// time it seems to be of now, and after another 60 s to be void again.
#[inline(always)]
#[must_use]
pub const fn said(whom: u64, now_ns: u64) -> FlowEntry {
    let age = age_ticks(whom, now_ns) as u64;
    let ahead = (now_ns >> TICK_BITS) + AHEAD_TICKS as u64;
    let seen_ns = ahead.saturating_sub(age) << TICK_BITS;
    FlowEntry { seen_ns, backend: BackendRef(whom as u32), reserved: 0 }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;
    const TICK_NS: u64 = 1 << TICK_BITS;
    /// A year and a bit after boot: the ticks have come round once.
    const NOW_NS: u64 = 400 * 86_400 * SECOND_NS;

    #[derive(Default)]
    struct Model([Cell<EmbryonicEntry>; EMBRYONIC_WAYS]);

    impl Line for Model {
        fn check(&self, way: usize) -> u64 {
            self.0[way].get().check
        }

        fn whom(&self, way: usize) -> u64 {
            self.0[way].get().whom
        }

        fn put(&self, way: usize, entry: EmbryonicEntry) {
            self.0[way].set(entry);
        }
    }

    fn flow(port: u32) -> Flow {
        Flow::v4(1, 2, port, 6)
    }

    fn backend(index: u32) -> BackendRef {
        BackendRef::new(index, 7)
    }

    fn found(line: &Model, tag: u64) -> BackendRef {
        said(find(line, tag), NOW_NS).backend
    }

    #[test]
    fn entry_is_found_by_its_own_tag_alone_until_it_is_deleted() {
        let line = Model::default();
        let (tag, other) = (tag(&flow(1), 0), tag(&flow(2), 0));
        assert_eq!(found(&line, tag), BackendRef::NONE);
        put(&line, tag, backend(3), NOW_NS - SECOND_NS);
        assert_eq!(found(&line, tag), backend(3));
        assert_eq!(found(&line, other), BackendRef::NONE);
        delete(&line, other);
        assert_eq!(found(&line, tag), backend(3));
        delete(&line, tag);
        assert_eq!(found(&line, tag), BackendRef::NONE);
        assert!(line.0.iter().all(|way| way.get() == EmbryonicEntry::default()));
    }

    #[test]
    fn time_is_rounded_down_to_a_tick_also_after_the_ticks_came_round() {
        for now_ns in [100 * SECOND_NS, NOW_NS] {
            for age_ns in [0, 1, TICK_NS, 7 * SECOND_NS, 61 * SECOND_NS] {
                let line = Model::default();
                put(&line, 9, backend(1), now_ns - age_ns);
                let seen_ns = said(find(&line, 9), now_ns).seen_ns;
                let rounded = (now_ns - age_ns) - seen_ns;
                assert!(rounded < TICK_NS, "{age_ns} ns before {now_ns}: {seen_ns}");
            }
        }
        // Of another CPU, while this one was held up.
        for ahead_ns in [TICK_NS, 3 * TICK_NS, SECOND_NS] {
            let line = Model::default();
            put(&line, 9, backend(1), NOW_NS + ahead_ns);
            let seen_ns = said(find(&line, 9), NOW_NS).seen_ns;
            assert!(seen_ns.abs_diff(NOW_NS + ahead_ns) <= TICK_NS, "{ahead_ns}: {seen_ns}");
            put(&line, 10, backend(2), NOW_NS);
            assert_eq!(found(&line, 9), backend(1), "it gives way to nobody while there is room");
        }
    }

    #[test]
    fn full_line_loses_its_oldest() {
        let line = Model::default();
        let ways = EMBRYONIC_WAYS as u64;
        // The second is the oldest.
        let age_s = |tag| if tag == 2 { 50 } else { 40 - tag };
        for tag in 1..=ways {
            put(&line, tag, backend(tag as u32), NOW_NS - age_s(tag) * SECOND_NS);
        }
        put(&line, ways + 1, backend(9), NOW_NS);
        let left: std::vec::Vec<u64> =
            (1..=ways + 1).filter(|&tag| found(&line, tag) != BackendRef::NONE).collect();
        assert_eq!(left, [1, 3, 4, 5]);
    }

    #[test]
    fn flow_has_one_entry_wherever_it_stands_and_room_goes_before_the_oldest() {
        let line = Model::default();
        put(&line, 1, backend(1), NOW_NS - 50 * SECOND_NS);
        put(&line, 2, backend(2), NOW_NS - 40 * SECOND_NS);
        put(&line, 2, backend(3), NOW_NS);
        assert_eq!((found(&line, 1), found(&line, 2)), (backend(1), backend(3)));
        let used = line.0.iter().filter(|way| way.get() != EmbryonicEntry::default()).count();
        assert_eq!(used, 2);
        delete(&line, 1);
        put(&line, 2, backend(4), NOW_NS);
        assert_eq!(found(&line, 2), backend(4));
        delete(&line, 2);
        assert_eq!(
            found(&line, 2),
            BackendRef::NONE,
            "the place before it was free, and not taken"
        );
    }

    #[test]
    fn two_halves_of_two_entries_are_nobodys() {
        let line = Model::default();
        let first = EmbryonicEntry::new(tag(&flow(1), 0), backend(1), NOW_NS);
        let second = EmbryonicEntry::new(tag(&flow(2), 0), backend(2), NOW_NS);
        line.put(0, EmbryonicEntry { check: first.check, whom: second.whom });
        line.put(1, EmbryonicEntry { check: second.check, whom: 0 });
        line.put(2, EmbryonicEntry { check: 0, whom: first.whom });
        for port in [1, 2] {
            assert_eq!(found(&line, tag(&flow(port), 0)), BackendRef::NONE);
        }
    }

    /// A line that threads share, word by word as CPUs do.
    #[derive(Default)]
    struct Shared([AtomicU64; 2 * EMBRYONIC_WAYS]);

    impl Line for Shared {
        fn check(&self, way: usize) -> u64 {
            self.0[2 * way].load(Relaxed)
        }

        fn whom(&self, way: usize) -> u64 {
            self.0[2 * way + 1].load(Relaxed)
        }

        fn put(&self, way: usize, entry: EmbryonicEntry) {
            self.0[2 * way].store(entry.check, Relaxed);
            self.0[2 * way + 1].store(entry.whom, Relaxed);
        }
    }

    #[test]
    fn writers_of_one_line_give_no_flow_the_backend_of_another() {
        let (line, writing) = (Shared::default(), AtomicU32::new(2));
        // Six flows for four ways: each writer throws the other's out.
        let tags: std::vec::Vec<u64> = (1..=6).map(|port| tag(&flow(port), 0)).collect();
        let write = |order: &[usize]| {
            for turn in 0..200_000_usize {
                let which = order[turn % order.len()];
                put(&line, tags[which], backend(which as u32), NOW_NS + turn as u64 * TICK_NS);
            }
            writing.fetch_sub(1, Relaxed);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| write(&[0, 1, 2, 3, 4, 5]));
            scope.spawn(|| write(&[5, 2, 4, 1, 3, 0]));
            let mut found_count = 0_u32;
            // Once more when both are done: then somebody is there, however the threads ran.
            let mut rest = true;
            while rest {
                rest = writing.load(Relaxed) != 0;
                for (which, tag) in tags.iter().enumerate() {
                    let found = find(&line, *tag);
                    if found != 0 {
                        found_count += 1;
                        assert_eq!(BackendRef(found as u32), backend(which as u32));
                    }
                }
            }
            assert!(0 < found_count, "never found one");
        });
    }

    #[test]
    fn tags_tell_families_and_spread_over_the_lines() {
        let v6 = Flow::v6([1; 4], [2; 4], 3, 6);
        assert_eq!((family_of(tag(&flow(1), 0)), family_of(tag(&v6, 0))), (4, 6));
        let mut counts = std::vec![0_u32; EMBRYONIC_LINES as usize];
        for port in 0..EMBRYONIC_LINES {
            counts[line_of(tag(&flow(port.to_be()), 0)) as usize] += 1;
        }
        // One expected each: of so many, one in some thousands of tries has more than ten.
        assert!(counts.iter().all(|&count| count <= 10), "{:?}", counts.iter().max());
        let empty = counts.iter().filter(|&&count| count == 0).count() as u32;
        let expected = EMBRYONIC_LINES * 1000 / 2718;
        assert!(empty.abs_diff(expected) < expected / 20, "{empty} of {expected} lines are empty");
    }
}
