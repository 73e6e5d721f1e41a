//! Pools: how many of each take new flows, and whether that is too few.
//!
//! Count and panic are one word and change in one compare-exchange, whichever shard it is: a reader
//! never sees a count that does not go with the panic beside it.

use std::sync::atomic::{AtomicU64, Ordering};

use sickbay_shared::abi::POOL_PANICS;

use super::Board;
use crate::fleet::Panic;

/// When a pool panics, in backends that take new flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PanicCounts {
    /// It begins when fewer than so many do; 0 = never.
    pub below: u32,
    /// It ends when so many do; at least `below`.
    pub end: u32,
}

impl PanicCounts {
    /// What the shares come to in a pool of `members`, rounded up.
    #[must_use]
    pub fn of(panic: Panic, members: u32) -> Self {
        let share = |percent: u8| (u64::from(members) * u64::from(percent)).div_ceil(100) as u32;
        Self { below: share(panic.below_percent), end: share(panic.end_percent) }
    }

    const fn word(self) -> u64 {
        (self.end as u64) << 32 | self.below as u64
    }

    const fn of_word(word: u64) -> Self {
        Self { below: word as u32, end: (word >> 32) as u32 }
    }

    /// The pool's word after its count changed to `count`.
    const fn after(self, count: u64, panicked: bool) -> u64 {
        let limit = if panicked { self.end } else { self.below };
        if count < limit as u64 { count | POOL_PANICS } else { count }
    }
}

/// What each pool's panic is judged by; this process's own, no map has it.
#[derive(Debug)]
pub(super) struct Panics(Box<[AtomicU64]>);

impl Panics {
    pub(super) fn none(pool_count: u32) -> Self {
        Self((0..pool_count).map(|_| AtomicU64::new(0)).collect())
    }
}

impl Board {
    /// Judges the panic of pool `pool` by these counts from now on, beginning without one unless
    /// too few take new flows now. Default counts: it never panics.
    ///
    /// # Panics
    ///
    /// When the board has no such pool.
    pub fn set_panic(&self, pool: u32, counts: PanicCounts) {
        debug_assert!(counts.below <= counts.end, "a panic ends above where it begins");
        self.panics.0[pool as usize].store(counts.word(), Ordering::SeqCst);
        self.change_pool(pool, |word| counts.after(word & COUNT, false));
    }

    /// Backends of pool `pool` that take new flows; 0 past the end.
    #[must_use]
    pub fn pool_count(&self, pool: u32) -> u64 {
        self.pool_word(pool) & COUNT
    }

    /// Whether too few of pool `pool` take new flows; `false` past the end.
    #[must_use]
    pub fn pool_panics(&self, pool: u32) -> bool {
        self.pool_word(pool) & POOL_PANICS != 0
    }

    /// Counts one more, or one less.
    pub(super) fn count_in_pool(&self, pool: u32, takes: bool) {
        let counts = &self.panics.0[pool as usize];
        let mut judged_by = counts.load(Ordering::SeqCst);
        self.change_pool(pool, |word| {
            judged_by = counts.load(Ordering::SeqCst);
            let count = if takes { (word & COUNT) + 1 } else { (word & COUNT) - 1 };
            PanicCounts::of_word(judged_by).after(count, word & POOL_PANICS != 0)
        });
        // Other counts came into force meanwhile: what they made of the word is not lost.
        while counts.load(Ordering::SeqCst) != judged_by {
            judged_by = counts.load(Ordering::SeqCst);
            let new = PanicCounts::of_word(judged_by);
            self.change_pool(pool, |word| new.after(word & COUNT, false));
        }
    }

    fn pool_word(&self, pool: u32) -> u64 {
        self.pool_counts.word(pool).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn change_pool(&self, pool: u32, mut change: impl FnMut(u64) -> u64) {
        let word = self.pool_counts.word(pool).expect("the pool is on the board");
        let changed =
            word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |word| Some(change(word)));
        debug_assert!(changed.is_ok(), "the change is never withheld");
    }
}

/// The bits of a pool's word that count.
const COUNT: u64 = u32::MAX as u64;

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::kernel::Sizes;

    fn board() -> Board {
        Board::in_memory(&Sizes { backends: 128, pools: 2, ..Sizes::default() }).unwrap()
    }

    #[test]
    fn shares_are_rounded_up_to_whole_backends() {
        let of = |below_percent, end_percent, members| {
            let counts = PanicCounts::of(Panic { below_percent, end_percent }, members);
            (counts.below, counts.end)
        };
        assert_eq!(of(30, 40, 10), (3, 4));
        assert_eq!(of(30, 40, 8), (3, 4), "2.4 and 3.2");
        assert_eq!(of(30, 40, 1), (1, 1));
        assert_eq!(of(30, 40, 0), (0, 0));
        assert_eq!(of(100, 100, 65_536), (65_536, 65_536));
    }

    #[test]
    fn panic_begins_below_its_threshold_and_ends_at_its_higher_share() {
        let board = board();
        for backend in 0..10 {
            board.set_takes_new(backend, 0, true);
        }
        board.set_panic(0, PanicCounts { below: 3, end: 5 });
        let mut seen = Vec::new();
        let down = (0..8).rev().map(|backend| (backend, false));
        let up = (0..5).map(|backend| (backend, true));
        let down_again = [(0, false), (1, false), (2, false)].into_iter();
        for (backend, takes) in down.chain(up).chain(down_again) {
            board.set_takes_new(backend, 0, takes);
            seen.push((board.pool_count(0), board.pool_panics(0)));
        }
        let calm = |count| (count, false);
        let panics = |count| (count, true);
        assert_eq!(
            seen[..8],
            [9, 8, 7, 6, 5, 4, 3].map(calm).into_iter().chain([panics(2)]).collect::<Vec<_>>()[..]
        );
        assert_eq!(seen[8..13], [panics(3), panics(4), calm(5), calm(6), calm(7)]);
        assert_eq!(seen[13..], [calm(6), calm(5), calm(4)]);
        assert!(!board.pool_panics(1) && board.pool_count(1) == 0, "the other pool");
    }

    #[test]
    fn panic_is_judged_anew_when_its_counts_change() {
        let board = board();
        board.set_takes_new(0, 0, true);
        assert!(!board.pool_panics(0));
        board.set_panic(0, PanicCounts { below: 2, end: 3 });
        assert!(board.pool_panics(0));
        // Two are enough to begin without a panic, though not to end one.
        board.set_takes_new(1, 0, true);
        assert!(board.pool_panics(0));
        board.set_panic(0, PanicCounts { below: 2, end: 3 });
        assert!(!board.pool_panics(0));
        board.set_panic(0, PanicCounts::default());
        board.set_takes_new(0, 0, false);
        board.set_takes_new(1, 0, false);
        assert!(!board.pool_panics(0));
    }

    #[test]
    fn count_and_panic_go_together_whichever_shards_change_them() {
        const THREADS: u32 = 4;
        const SEEN: u32 = 1000;
        const COUNTS: PanicCounts = PanicCounts { below: 28, end: 36 };
        let board = board();
        for backend in 0..64 {
            board.set_takes_new(backend, 0, backend % 2 == 0);
        }
        board.set_panic(0, COUNTS);
        let done = AtomicBool::new(false);
        let (mut calm, mut panicked) = (0_u32, 0_u32);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (board, done) = (&board, &done);
                scope.spawn(move || {
                    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ u64::from(thread + 1);
                    while !done.load(Ordering::Acquire) {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let backend = (random >> 8) as u32 % 64 / THREADS * THREADS + thread;
                        board.set_takes_new(backend, 0, random >> 40 & 1 == 1);
                    }
                });
            }
            // A machine with much to do lets the others wait; until then.
            let limit = Instant::now() + Duration::from_secs(60);
            while (calm < SEEN || panicked < SEEN) && Instant::now() < limit {
                let word = board.pool_word(0);
                let (count, panics) = (word & COUNT, word & POOL_PANICS != 0);
                if count < u64::from(COUNTS.below) && !panics
                    || u64::from(COUNTS.end) <= count && panics
                {
                    done.store(true, Ordering::Release);
                    panic!("{count} take new flows, panic is {panics}");
                }
                *if panics { &mut panicked } else { &mut calm } += 1;
            }
            done.store(true, Ordering::Release);
        });
        let set = (0..64).filter(|backend| board.takes_new(*backend)).count() as u64;
        assert_eq!(board.pool_count(0), set);
        assert!(SEEN <= calm && SEEN <= panicked, "both were seen: {calm}, {panicked}");
    }
}
