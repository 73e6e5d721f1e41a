//! Budgets: what one CPU may spend in a second on things that a flood would otherwise buy.
//!
//! The second is the clock's own, so that no two CPUs share a number and nothing runs when a second
//! is over: the first to spend in a new one finds the old count void.

use crate::abi::{Budget, Header};

/// What is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purse {
    /// Entries of SYNs.
    EmbryonicInserts,
    /// Lasting entries.
    FlowInserts,
    /// Answers in a backend's name.
    Replies,
    /// Records of dropped packets.
    DropRecords,
}

const SECOND_NS: u64 = 1_000_000_000;

impl Purse {
    /// As a number, for calls that take numbers alone; see [`Self::named`].
    #[inline(always)]
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::EmbryonicInserts => 0,
            Self::FlowInserts => 1,
            Self::Replies => 2,
            Self::DropRecords => 3,
        }
    }

    /// The purse of this number.
    #[inline(always)]
    #[must_use]
    pub const fn named(number: u32) -> Self {
        match number {
            0 => Self::EmbryonicInserts,
            1 => Self::FlowInserts,
            2 => Self::Replies,
            _ => Self::DropRecords,
        }
    }
}

/// Takes one out of a CPU's purse at `now_ns`; whether there was one left.
#[inline(always)]
pub fn spend(budget: &mut Budget, header: &Header, purse: Purse, now_ns: u64) -> bool {
    // Multiplied and not divided: a division takes as long as the rest.
    if SECOND_NS <= now_ns.wrapping_sub(budget.second.wrapping_mul(SECOND_NS)) {
        *budget = Budget { second: now_ns / SECOND_NS, ..Budget::default() };
    }
    let (spent, limit) = match purse {
        Purse::EmbryonicInserts => {
            (&mut budget.embryonic_inserts, header.embryonic_inserts_per_second)
        }
        Purse::FlowInserts => (&mut budget.flow_inserts, header.flow_inserts_per_second),
        Purse::Replies => (&mut budget.replies, header.replies_per_second),
        Purse::DropRecords => (&mut budget.drop_records, header.drop_records_per_second),
    };
    if limit <= *spent {
        return false;
    }
    *spent += 1;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purse_is_full_again_in_the_next_second_and_each_is_its_own() {
        let header =
            Header { replies_per_second: 2, flow_inserts_per_second: 1, ..Header::default() };
        let mut budget = Budget::default();
        let mut taken = |purse, now_ns| spend(&mut budget, &header, purse, now_ns);
        assert!(taken(Purse::Replies, 7_000_000_000));
        assert!(taken(Purse::Replies, 7_999_999_999));
        assert!(!taken(Purse::Replies, 7_999_999_999));
        assert!(taken(Purse::FlowInserts, 7_999_999_999));
        assert!(!taken(Purse::FlowInserts, 7_999_999_999));
        assert!(!taken(Purse::DropRecords, 7_999_999_999), "a purse of nothing");
        assert!(taken(Purse::Replies, 8_000_000_000));
        assert!(!taken(Purse::EmbryonicInserts, 8_000_000_000), "a purse of nothing");
    }
}
