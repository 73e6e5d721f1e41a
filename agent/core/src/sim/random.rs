//! Random numbers from a seed: SplitMix64.

use crate::hash::{GOLDEN, mix};

/// A generator; same seed, same numbers, in every version.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// From this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(GOLDEN);
        mix(self.state)
    }

    /// A number below `end`, which is not 0. Even to within `end` / 2^64.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }
}
