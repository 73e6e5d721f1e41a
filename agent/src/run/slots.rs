//! The slots of one pool's tables, as they stand on the board.

use sickbay_shared::abi::Slot;

use super::layout;
use crate::board::Board;
use crate::fleet::Fleet;
use crate::membership::Rewrite;

/// The tables of a pool, in the order in which [`layout::tables_of`] gives them.
#[derive(Debug)]
pub(super) struct PoolSlots<'a> {
    board: &'a Board,
    /// The first slot of each.
    firsts: Vec<u32>,
}

impl<'a> PoolSlots<'a> {
    /// Those of fleet pool `pool`.
    pub(super) fn of(board: &'a Board, fleet: &Fleet, pool: usize) -> Self {
        let firsts = layout::tables_of(fleet, pool).map(|table| table.slot_first);
        Self { board, firsts: firsts.collect() }
    }

    /// A slot of a table, as it stands.
    pub(super) fn slot(&self, table: usize, index: u32) -> Slot {
        let slot = self.board.slot(self.firsts[table] + index);
        slot.expect("the board has every slot of every table")
    }

    /// Writes a whole table.
    pub(super) fn write(&self, table: usize, slots: &[Slot]) {
        self.board.write_slots(self.firsts[table], slots);
    }

    /// Stores what is to change.
    pub(super) fn store(&self, rewrites: &[Rewrite]) {
        for Rewrite { table, slots } in rewrites {
            self.store_in(*table, slots);
        }
    }

    /// Stores what is to change in a table, each slot by its index there.
    pub(super) fn store_in(&self, table: usize, slots: &[(u32, Slot)]) {
        for (index, slot) in slots {
            self.board.write_slots(self.firsts[table] + index, &[*slot]);
        }
    }
}
