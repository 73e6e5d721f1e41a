//! Which indices of a pool are in use, by which generation.

use std::collections::{HashSet, VecDeque};

use sickbay_core::plan::Nanos;
use sickbay_shared::abi::BackendRef;
use sickbay_shared::limits::BACKENDS_MAX;

/// An index that was given back rests for so long: a packet that met its last use in a slot is
/// through the program by then, which runs for microseconds.
pub const REST_NS: Nanos = 1_000_000_000;

/// Nobody, as slots of a pool without members name him: an index that no instance gives out before a
/// million others, whose bit is therefore not there, in a use that there never is. The program finds
/// that he takes no new flows, that nobody of the pool does, and does what the service's rules say.
/// (One before the last: that one is a broken table's.)
pub const NOBODY: BackendRef = BackendRef::new(BACKENDS_MAX - 2, 0);

/// The indices of one pool.
///
/// Each use of an index has a generation of its own, one more than that of the use before; the one
/// that was free the longest is taken first. So a reference means another backend only after 4,095
/// uses of its index.
#[derive(Clone, Debug)]
pub struct Indices {
    first: u32,
    /// The last generation of each, 0 before its first use.
    generations: Box<[u32]>,
    /// Index, and from when on it is free; the one that is free the longest first.
    free: VecDeque<(u32, Nanos)>,
}

impl Indices {
    /// `count` indices from `first` on, never used.
    #[must_use]
    pub fn new(first: u32, count: u32) -> Self {
        let free = (first..first + count).map(|index| (index, 0)).collect();
        Self { first, generations: vec![0; count as usize].into_boxed_slice(), free }
    }

    /// `count` indices from `first` on after an agent that is gone: `last` tells the last generation
    /// of each, 0 = none, and those `in_use` are taken. The others have rested; those that were
    /// never used come first.
    #[must_use]
    pub fn resume(
        first: u32,
        count: u32,
        in_use: &HashSet<u32>,
        last: impl Fn(u32) -> u32,
    ) -> Self {
        let generations: Box<[u32]> = (first..first + count).map(last).collect();
        let mut free: Vec<u32> =
            (first..first + count).filter(|index| !in_use.contains(index)).collect();
        free.sort_by_key(|index| generations[(index - first) as usize] != 0);
        Self { first, generations, free: free.into_iter().map(|index| (index, 0)).collect() }
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.generations.len() as u32
    }

    /// How many can be taken now.
    #[must_use]
    pub fn free_count(&self, now: Nanos) -> usize {
        self.free.iter().take_while(|(_, free_ns)| *free_ns <= now).count()
    }

    /// Takes one for a new use; `None` when each is in use or rests.
    pub fn take(&mut self, now: Nanos) -> Option<BackendRef> {
        let (index, _) = self.free.pop_front_if(|(_, free_ns)| *free_ns <= now)?;
        let generation = &mut self.generations[(index - self.first) as usize];
        *generation = *generation % BackendRef::GENERATION_MAX + 1;
        Some(BackendRef::new(index, *generation))
    }

    /// The use is over: nothing on the board names it.
    ///
    /// # Panics
    ///
    /// When it is not the index's last use.
    pub fn give_back(&mut self, backend: BackendRef, now: Nanos) {
        let last = self.generations[(backend.index() - self.first) as usize];
        assert_eq!(last, backend.generation(), "index {} is not in that use", backend.index());
        debug_assert!(self.free.iter().all(|(index, _)| *index != backend.index()));
        self.free.push_back((backend.index(), now.saturating_add(REST_NS)));
    }
}
