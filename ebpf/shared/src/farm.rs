//! The lab's synthetic farm: what a backend of it does, as a function of its address alone.
//!
//! The program that plays the backends and whoever counts on them ask the same function.

/// Words of [`Shares::to_words`].
pub const SHARE_WORDS: usize = 8;
/// What all shares are parts of.
pub const WHOLE: u32 = 1000;

/// What a synthetic backend does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum Behaviour {
    /// Answers 200 at once.
    Good = 0,
    /// Refuses with RST.
    Refuse = 1,
    /// Says nothing.
    BlackHole = 2,
    /// Answers 500 at once.
    Error = 3,
    /// Opens the connection and answers 200, though only a request of a connection that is
    /// [`Shares::late_ticks`] old, so one that is sent again.
    Late = 4,
    /// Opens the connection and answers each sending of the request by one more byte of a good
    /// response; it never acknowledges the request.
    Drip = 5,
}

impl Behaviour {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 6] =
        [Self::Good, Self::Refuse, Self::BlackHole, Self::Error, Self::Late, Self::Drip];
}

/// How many backends of a thousand do what; the others are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Shares {
    /// Those that refuse.
    pub refuse: u32,
    /// Those that say nothing.
    pub black_hole: u32,
    /// Those that answer 500.
    pub error: u32,
    /// Those that answer late.
    pub late: u32,
    /// Those that drip.
    pub drip: u32,
    /// How old a connection to a late one must be, in ticks of 2^20 ns.
    pub late_ticks: u32,
    /// Another one chooses other backends.
    pub seed: u32,
}

impl Shares {
    /// Every backend is good.
    pub const GOOD: Self =
        Self { refuse: 0, black_hole: 0, error: 0, late: 0, drip: 0, late_ticks: 0, seed: 0 };

    /// As they stand in the map: each share as the number below which its backends are, then
    /// ticks and seed.
    #[must_use]
    pub const fn to_words(&self) -> [u32; SHARE_WORDS] {
        let refuse = self.refuse;
        let black_hole = refuse + self.black_hole;
        let error = black_hole + self.error;
        let late = error + self.late;
        [refuse, black_hole, error, late, late + self.drip, self.late_ticks, self.seed, 0]
    }
}

/// What the backend at this address does: 4 bytes in the first word for IPv4, 16 in four for IPv6,
/// in network order as they stand in memory.
#[inline(always)]
#[must_use]
pub const fn behaviour(address: [u32; 4], words: &[u32; SHARE_WORDS]) -> Behaviour {
    let [refuse, black_hole, error, late, drip, _, seed, _] = *words;
    if drip == 0 {
        return Behaviour::Good;
    }
    let draw = draw(address, seed);
    if draw < refuse {
        Behaviour::Refuse
    } else if draw < black_hole {
        Behaviour::BlackHole
    } else if draw < error {
        Behaviour::Error
    } else if draw < late {
        Behaviour::Late
    } else if draw < drip {
        Behaviour::Drip
    } else {
        Behaviour::Good
    }
}

/// A number below [`WHOLE`] for each address.
#[inline(always)]
const fn draw(address: [u32; 4], seed: u32) -> u32 {
    let [first, second, third, fourth] = address;
    let mut hash = seed ^ 0x9e37_79b9;
    hash = mix(hash ^ u32::from_be(first));
    hash = mix(hash ^ u32::from_be(second));
    hash = mix(hash ^ u32::from_be(third));
    hash = mix(hash ^ u32::from_be(fourth));
    ((hash as u64 * WHOLE as u64) >> 32) as u32
}

/// MurmurHash3's finalizer: every bit of the input moves half of the output.
#[inline(always)]
const fn mix(word: u32) -> u32 {
    let word = (word ^ word >> 16).wrapping_mul(0x85eb_ca6b);
    let word = (word ^ word >> 13).wrapping_mul(0xc2b2_ae35);
    word ^ word >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_over_many_addresses() {
        let shares =
            Shares { refuse: 100, black_hole: 50, error: 20, late: 10, drip: 5, ..Shares::GOOD };
        let words = shares.to_words();
        let mut counts = [0_i32; 6];
        for index in 0..100_000_u32 {
            let address = [(0x0a80_0000 + index).to_be(), 0, 0, 0];
            counts[behaviour(address, &words) as usize] += 1;
        }
        // Of 100,000: 81.5 %, 10 %, 5 %, 2 %, 1 %, 0.5 %, each within five standard deviations.
        for (count, expected) in counts.into_iter().zip([81_500, 10_000, 5_000, 2_000, 1_000, 500])
        {
            let apart = count - expected;
            assert!(apart * apart < 25 * expected, "{counts:?}");
        }
    }

    #[test]
    fn another_seed_chooses_others() {
        let of_seed = |seed| {
            let words = Shares { refuse: 500, seed, ..Shares::GOOD }.to_words();
            move |index: u32| behaviour([index.to_be(), 0, 0, 0], &words)
        };
        let (one, other) = (of_seed(1), of_seed(2));
        let same = (0..1000).filter(|index| one(*index) == other(*index)).count();
        assert!((400..600).contains(&same), "{same} of 1000");
    }
}
