//! Who belongs to a pool, and what follows for the tables of its services.
//!
//! Pure: told of members that enter, leave and are weighed, and of time; tells which slots to
//! store and whose time is over. Whoever asks writes the maps, in this order: the records of those
//! who enter and their bits, then the slots; at the end the slots, then the bits and records of
//! those who are gone.
//!
//! **A member that leaves** keeps its index until a drain after it left, so that its flows live on
//! by what the slots call previous, and then by their entries. One that enters again meanwhile is
//! the one it was.

use std::collections::HashSet;

use sickbay_core::maglev::{self, Member};
use sickbay_core::plan::Nanos;
use sickbay_shared::abi::{BackendRef, Slot};

pub use indices::{Indices, NOBODY, REST_NS};
pub use table::{Drain, Table};

/// Which indices are in use, by which generation.
mod indices;
/// One table's slots, and when their drains end.
mod table;

/// One pool's members, and the tables that its services choose them by.
#[derive(Clone, Debug)]
pub struct Membership {
    /// From a member's leaving to its end; no table drains for longer.
    drain_ns: Nanos,
    indices: Indices,
    /// In the order in which they came.
    seats: Vec<Seat>,
    tables: Vec<Table>,
}

/// A member of the pool, or one that was and whose flows may still live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    /// Its index and the generation of its use.
    pub backend: BackendRef,
    /// What it is called in the tables.
    pub identity: u64,
    /// Its share of the tables relative to the others, at least 1.
    pub weight: u32,
    /// When it is gone for good; `None` = it is a member.
    pub gone_ns: Option<Nanos>,
    /// It is a member that takes no new flows for now.
    pub drained: bool,
}

/// What flows a member may have, whatever its probes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Standing {
    /// New ones and those it has.
    #[default]
    Full,
    /// It is drained or leaving: those it has, and none new.
    Draining,
    /// The same, and what its probes find is nobody's news.
    Maintenance,
    /// Its time is over: none. `on_sick` says what becomes of those it has.
    Over,
}

/// How a member entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entered {
    /// By a use of its own of an index.
    New(BackendRef),
    /// It was leaving and has its place again.
    Again(BackendRef),
}

impl Entered {
    /// Which one it is.
    #[must_use]
    pub const fn backend(self) -> BackendRef {
        match self {
            Self::New(backend) | Self::Again(backend) => backend,
        }
    }
}

/// Every index of the pool is in use, or rests after one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{count} indices are reserved for the pool, and all are in use")]
pub struct NoRoom {
    /// How many the pool has.
    pub count: u32,
}

/// Slots to store: those of the pool's `table`-th table, each with its new word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rewrite {
    /// Which of the pool's tables, as they were given.
    pub table: usize,
    /// By slot of that table, ascending.
    pub slots: Vec<(u32, Slot)>,
}

/// What came to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Slots to store: they drain no more.
    pub rewrites: Vec<Rewrite>,
    /// Those who left and are gone: no slot names them any more. Their bits and records are to be
    /// cleared, and then [`Membership::release`]d.
    pub gone: Vec<BackendRef>,
}

impl Membership {
    /// A pool with the indices from `first` on, `count` of them; its first members have the first
    /// ones, in their first use.
    ///
    /// # Panics
    ///
    /// When there are more members than indices, or a table drains for longer than `drain_ns`.
    #[must_use]
    pub fn new(
        (first, count): (u32, u32),
        members: impl IntoIterator<Item = Member>,
        tables: Vec<Table>,
        drain_ns: Nanos,
    ) -> Self {
        let mut indices = Indices::new(first, count);
        let seats = members.into_iter().map(|member| Seat {
            backend: indices.take(0).expect("a pool reserves more indices than it has members"),
            identity: member.identity,
            weight: member.weight,
            gone_ns: None,
            drained: false,
        });
        let seats = seats.collect();
        assert!(tables.iter().all(|table| table.drain_ns <= drain_ns), "a table drains longer");
        Self { drain_ns, indices, seats, tables }
    }

    /// A pool whose members have their seats already, as an agent before this one left them.
    ///
    /// # Panics
    ///
    /// When a table drains for longer than `drain_ns`.
    #[must_use]
    pub fn resume(indices: Indices, seats: Vec<Seat>, tables: Vec<Table>, drain_ns: Nanos) -> Self {
        assert!(tables.iter().all(|table| table.drain_ns <= drain_ns), "a table drains longer");
        Self { drain_ns, indices, seats, tables }
    }

    /// Goes on with the slots of a table as they stand. Until when each drains `drains` says; where
    /// only an agent knew that is gone, it drains anew from `now`. Slots to store: those that name
    /// somebody for their older flows who is not here any more, and settle.
    pub fn take_up(
        &mut self,
        table: usize,
        slots: &[Slot],
        drains: &[Drain],
        now: Nanos,
    ) -> Vec<(u32, Slot)> {
        let known: HashSet<BackendRef> = self.seats.iter().map(|seat| seat.backend).collect();
        let gone = |slot: &Slot| slot.drains() && !known.contains(&slot.previous());
        let settled: Vec<(u32, Slot)> = (0..)
            .zip(slots)
            .filter(|(_, slot)| gone(slot))
            .map(|(index, slot)| (index, Slot::settled(slot.current())))
            .collect();
        let draining = (0..).zip(slots).filter(|(_, slot)| slot.drains() && !gone(slot));
        self.tables[table].resume(draining.map(|(index, _)| index).collect(), drains, now);
        settled
    }

    /// The slots of a table that drain, and until when.
    #[must_use]
    pub fn drains(&self, table: usize) -> Vec<Drain> {
        self.tables[table].drains()
    }

    /// All seats, those of members that are leaving included.
    #[must_use]
    pub fn seats(&self) -> &[Seat] {
        &self.seats
    }

    /// How many members it has; those that are leaving are none.
    #[must_use]
    pub fn member_count(&self) -> usize {
        self.members().count()
    }

    /// How many more can enter now, besides those that are leaving.
    #[must_use]
    pub fn room(&self, now: Nanos) -> usize {
        self.indices.free_count(now)
    }

    /// The weights of its members.
    pub fn weights(&self) -> impl Iterator<Item = u32> + '_ {
        self.members().map(|seat| seat.weight)
    }

    /// The whole table as its members have it, every slot settled: for maps that nothing reads yet.
    #[must_use]
    pub fn settled(&self, table: usize) -> Vec<Slot> {
        self.wanted(table).into_iter().map(Slot::settled).collect()
    }

    /// Somebody enters. No slot names it before [`Self::retable`], so its record and bits can be
    /// made ready meanwhile.
    ///
    /// # Errors
    ///
    /// No index is free.
    pub fn enter(&mut self, member: Member, now: Nanos) -> Result<Entered, NoRoom> {
        let leaving = |seat: &&mut Seat| seat.identity == member.identity && seat.gone_ns.is_some();
        if let Some(seat) = self.seats.iter_mut().find(leaving) {
            (seat.gone_ns, seat.weight, seat.drained) = (None, member.weight, false);
            return Ok(Entered::Again(seat.backend));
        }
        let backend = self.indices.take(now).ok_or(NoRoom { count: self.indices.count() })?;
        let Member { identity, weight } = member;
        self.seats.push(Seat { backend, identity, weight, gone_ns: None, drained: false });
        Ok(Entered::New(backend))
    }

    /// Takes back that somebody new entered, before any slot named it. Its index is free when it is
    /// [`release`](Self::release)d.
    pub fn take_back(&mut self, backend: BackendRef) {
        self.seats.retain(|seat| seat.backend != backend);
    }

    /// The member with this index leaves: it is gone a drain later.
    pub fn leave(&mut self, index: u32, now: Nanos) {
        let gone_ns = now.saturating_add(self.drain_ns);
        if let Some(seat) = self.seat(index) {
            seat.gone_ns.get_or_insert(gone_ns);
        }
    }

    /// The member with this index has another share from now on.
    pub fn weigh(&mut self, index: u32, weight: u32) {
        if let Some(seat) = self.seat(index) {
            seat.weight = weight;
        }
    }

    /// The member with this index is drained from now on, or no more.
    pub fn set_drained(&mut self, index: u32, drained: bool) {
        if let Some(seat) = self.seat(index) {
            seat.drained = drained;
        }
    }

    /// The slots to store after members entered, left, were weighed or drained; `slot` reads one of a table
    /// as it stands. Where there is no member, they belong to nobody.
    pub fn retable(&mut self, slot: &dyn Fn(usize, u32) -> Slot, now: Nanos) -> Vec<Rewrite> {
        let mut rewrites = Vec::new();
        for table in 0..self.tables.len() {
            let wanted = self.wanted(table);
            let slots = self.tables[table].change(&|index| slot(table, index), &wanted, now);
            rewrites.push(Rewrite { table, slots });
        }
        rewrites.retain(|rewrite| !rewrite.slots.is_empty());
        rewrites
    }

    /// What has come to its end by `now`.
    pub fn end(&mut self, slot: &dyn Fn(usize, u32) -> Slot, now: Nanos) -> Ended {
        let mut ended = Ended::default();
        for (index, table) in self.tables.iter_mut().enumerate() {
            let slots = table.settle(&|slot_index| slot(index, slot_index), now);
            if !slots.is_empty() {
                ended.rewrites.push(Rewrite { table: index, slots });
            }
        }
        self.seats.retain(|seat| {
            let gone = seat.gone_ns.is_some_and(|gone_ns| gone_ns <= now);
            ended.gone.extend(gone.then_some(seat.backend));
            !gone
        });
        ended
    }

    /// The index of one that is gone, or was taken back, may be used again: nothing of it is left on
    /// the board.
    pub fn release(&mut self, backend: BackendRef, now: Nanos) {
        self.indices.give_back(backend, now);
    }

    /// When [`Self::end`] has something next.
    #[must_use]
    pub fn next_end_ns(&self) -> Option<Nanos> {
        let drains = self.tables.iter().filter_map(Table::next_end_ns);
        drains.chain(self.seats.iter().filter_map(|seat| seat.gone_ns)).min()
    }

    /// Slots that drain, all tables together.
    #[must_use]
    pub fn draining_count(&self) -> usize {
        self.tables.iter().map(Table::draining_count).sum()
    }

    fn members(&self) -> impl Iterator<Item = &Seat> {
        self.seats.iter().filter(|seat| seat.gone_ns.is_none())
    }

    /// Whoever has this index now.
    fn seat(&mut self, index: u32) -> Option<&mut Seat> {
        self.seats.iter_mut().find(|seat| seat.backend.index() == index)
    }

    /// Whom each slot of a table is to belong to.
    fn wanted(&self, table: usize) -> Vec<BackendRef> {
        let Table { seed, slot_count, sheds, .. } = self.tables[table];
        // When all are drained, they share the slots as if none were.
        let sheds = sheds && self.members().any(|seat| !seat.drained);
        let (members, backends): (Vec<Member>, Vec<BackendRef>) = self
            .members()
            .filter(|seat| !(sheds && seat.drained))
            .map(|&Seat { identity, weight, backend, .. }| (Member { identity, weight }, backend))
            .unzip();
        if members.is_empty() {
            return vec![NOBODY; slot_count as usize];
        }
        let filled = maglev::fill(&members, seed, slot_count);
        filled.into_iter().map(|member| backends[member as usize]).collect()
    }
}

#[cfg(test)]
mod tests;
