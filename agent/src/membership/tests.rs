//! Members, slots and indices: by hand, and in random histories against the real decision.

use super::*;

const SECOND: Nanos = 1_000_000_000;
const DRAIN: Nanos = 10 * SECOND;
const START: Nanos = 1_000 * SECOND;

mod histories;

/// A pool, and its tables as the map has them.
struct Rig {
    membership: Membership,
    tables: Vec<Vec<Slot>>,
    now: Nanos,
}

const fn member(identity: u64) -> Member {
    // Spread, or the first preferences of small numbers would lie together.
    Member { identity: identity.wrapping_mul(0x9e37_79b9_7f4a_7c15), weight: 1 }
}

impl Rig {
    fn new(members: u64, index_count: u32, tables: Vec<Table>) -> Self {
        let count = tables.len();
        let members = (1..=members).map(member);
        let membership = Membership::new((64, index_count), members, tables, DRAIN);
        let tables = (0..count).map(|table| membership.settled(table)).collect();
        Self { membership, tables, now: START }
    }

    fn store(&mut self, rewrites: &[Rewrite]) {
        for Rewrite { table, slots } in rewrites {
            for (index, slot) in slots {
                self.tables[*table][*index as usize] = *slot;
            }
        }
    }

    /// Has the tables follow; how many slots changed.
    fn retable(&mut self) -> usize {
        let tables = &self.tables;
        let slot = |table: usize, index: u32| tables[table][index as usize];
        let rewrites = self.membership.retable(&slot, self.now);
        self.store(&rewrites);
        rewrites.iter().map(|rewrite| rewrite.slots.len()).sum()
    }

    /// Lets time pass; who is gone.
    fn pass(&mut self, span: Nanos) -> Vec<BackendRef> {
        self.now += span;
        let tables = &self.tables;
        let slot = |table: usize, index: u32| tables[table][index as usize];
        let ended = self.membership.end(&slot, self.now);
        self.store(&ended.rewrites);
        for gone in &ended.gone {
            let named = |slot: &Slot| slot.current() == *gone || slot.previous() == *gone;
            assert!(!self.tables.iter().flatten().any(named), "{gone:?} is named and gone");
        }
        ended.gone
    }

    fn enter(&mut self, identity: u64) -> Result<Entered, NoRoom> {
        self.membership.enter(member(identity), self.now)
    }

    fn leave(&mut self, backend: BackendRef) {
        self.membership.leave(backend.index(), self.now);
    }

    fn share(&self, backend: BackendRef) -> usize {
        self.tables[0].iter().filter(|slot| slot.current() == backend).count()
    }

    fn draining(&self) -> usize {
        self.tables.iter().flatten().filter(|slot| slot.drains()).count()
    }
}

#[test]
fn last_member_may_leave_a_pool_without_tables() {
    let mut rig = Rig::new(1, 64, Vec::new());
    let first = rig.membership.seats()[0].backend;
    rig.leave(first);
    assert_eq!(rig.retable(), 0);
    assert_eq!(rig.membership.member_count(), 0);
    assert_eq!(rig.pass(DRAIN), [first]);
    assert_eq!(rig.enter(2).map(Entered::backend), Ok(BackendRef::new(65, 1)));
}

fn table() -> Table {
    Table::new(7, 1021, DRAIN, false)
}

#[test]
fn first_members_have_the_first_indices_in_their_first_use() {
    let rig = Rig::new(3, 64, vec![table()]);
    let backends: Vec<_> = rig.membership.seats().iter().map(|seat| seat.backend).collect();
    assert_eq!(backends, [64, 65, 66].map(|index| BackendRef::new(index, 1)));
    assert_eq!(rig.draining(), 0);
    assert!(backends.iter().all(|&backend| (339..=342).contains(&rig.share(backend))));
}

#[test]
fn one_that_enters_gets_its_share_and_the_rest_of_the_table_drains_to_it_alone() {
    let mut rig = Rig::new(9, 64, vec![table()]);
    let before = rig.tables[0].clone();
    let entered = rig.enter(10).unwrap();
    assert_eq!(entered, Entered::New(BackendRef::new(73, 1)));
    let changed = rig.retable();
    assert_eq!(rig.share(entered.backend()), 102);
    assert_eq!(rig.draining(), changed);
    for (old, new) in before.iter().zip(&rig.tables[0]) {
        assert_eq!(new.previous(), old.current(), "flows stay where they were");
    }
    // Maglev: little more than the share of the new one (NSDI'16, section 5.3).
    assert!(changed < 102 + 1021 * 5 / 100, "{changed}");
    assert_eq!(rig.pass(DRAIN - 1), []);
    assert_eq!(rig.draining(), changed);
    assert_eq!(rig.membership.next_end_ns(), Some(START + DRAIN));
    rig.pass(1);
    assert_eq!(rig.draining(), 0);
    assert_eq!(rig.share(entered.backend()), 102);
    assert_eq!(rig.membership.next_end_ns(), None);
}

#[test]
fn one_that_leaves_is_gone_a_drain_later_and_its_index_rests_then() {
    let mut rig = Rig::new(3, 3, vec![table()]);
    let leaver = rig.membership.seats()[1].backend;
    rig.leave(leaver);
    rig.retable();
    assert_eq!(rig.share(leaver), 0);
    let held = rig.tables[0].iter().filter(|slot| slot.previous() == leaver).count();
    assert!((339..=342).contains(&held));
    assert_eq!(rig.enter(4), Err(NoRoom { count: 3 }));
    assert_eq!(rig.pass(DRAIN - 1), []);
    assert_eq!(rig.pass(1), [leaver]);
    assert_eq!(rig.enter(4), Err(NoRoom { count: 3 }), "its record still stands");
    rig.membership.release(leaver, rig.now);
    assert_eq!(rig.enter(4), Err(NoRoom { count: 3 }), "packets may be on their way");
    rig.pass(REST_NS);
    assert_eq!(rig.enter(4), Ok(Entered::New(BackendRef::new(65, 2))));
}

#[test]
fn one_that_enters_again_before_it_is_gone_is_the_one_it_was() {
    let mut rig = Rig::new(3, 64, vec![table()]);
    let before = rig.tables[0].clone();
    let leaver = rig.membership.seats()[1].backend;
    rig.leave(leaver);
    rig.retable();
    rig.pass(DRAIN / 2);
    assert_eq!(rig.enter(2), Ok(Entered::Again(leaver)));
    rig.retable();
    // The table follows from the members alone: it is what it was, and nothing drains.
    assert_eq!(rig.tables[0], before);
    assert_eq!(rig.membership.draining_count(), 0);
    assert_eq!(rig.pass(DRAIN), []);
    assert_eq!(rig.membership.seats().len(), 3);
}

#[test]
fn slot_that_returned_drains_anew_from_the_next_change() {
    let mut rig = Rig::new(3, 64, vec![table()]);
    let leaver = rig.membership.seats()[1].backend;
    rig.leave(leaver);
    rig.retable();
    rig.pass(4 * SECOND);
    rig.enter(2).unwrap();
    rig.retable();
    rig.pass(4 * SECOND);
    rig.leave(leaver);
    let changed = rig.retable();
    // 12 s after the first change, 4 s after the last.
    rig.pass(4 * SECOND);
    assert_eq!(rig.draining(), changed);
    assert_eq!(rig.pass(6 * SECOND), [leaver]);
    assert_eq!(rig.draining(), 0);
}

#[test]
fn second_change_rewrites_current_alone_and_the_first_ones_drain_goes_on() {
    let mut rig = Rig::new(2, 64, vec![table()]);
    let before = rig.tables[0].clone();
    let third = rig.enter(3).unwrap().backend();
    rig.retable();
    rig.pass(6 * SECOND);
    rig.leave(third);
    rig.enter(4).unwrap();
    rig.retable();
    for (old, new) in before.iter().zip(&rig.tables[0]) {
        assert_eq!(new.previous(), old.current());
    }
    rig.pass(4 * SECOND);
    let of_the_first = rig.draining();
    rig.pass(6 * SECOND);
    assert!(rig.draining() == 0 && 0 < of_the_first, "those of the second change went on");
}

#[test]
fn weights_change_shares_and_move_nobody() {
    let mut rig = Rig::new(4, 64, vec![table()]);
    let before = rig.tables[0].clone();
    let heavy = rig.membership.seats()[0].backend;
    rig.membership.weigh(heavy.index(), 5);
    rig.retable();
    // 5 of 8.
    assert!((637..=639).contains(&rig.share(heavy)), "{}", rig.share(heavy));
    for (old, new) in before.iter().zip(&rig.tables[0]) {
        assert_eq!(new.previous(), old.current());
    }
}

#[test]
fn drained_member_keeps_its_slots_where_flows_have_a_beginning_and_loses_them_where_not() {
    let udp = Table::new(7, 1021, 3 * SECOND, true);
    let mut rig = Rig::new(4, 64, vec![table(), udp]);
    let drained = rig.membership.seats()[2].backend;
    rig.membership.set_drained(drained.index(), true);
    rig.retable();
    let named = |table: &Vec<Slot>| table.iter().filter(|slot| slot.current() == drained).count();
    assert_eq!(rig.tables.iter().map(named).collect::<Vec<_>>(), [255, 0]);
    rig.pass(3 * SECOND);
    assert_eq!(rig.draining(), 0, "this table's own drain");
    rig.membership.set_drained(drained.index(), false);
    rig.retable();
    assert_eq!(rig.tables.iter().map(named).collect::<Vec<_>>(), [255, 255]);
    // Of all drained every one counts again.
    let all: Vec<_> = rig.membership.seats().iter().map(|seat| seat.backend).collect();
    all.iter().for_each(|&backend| rig.membership.set_drained(backend.index(), true));
    rig.retable();
    assert_eq!(rig.tables.iter().map(named).collect::<Vec<_>>(), [255, 255]);
}

#[test]
fn generations_go_round_without_the_one_that_means_nobody() {
    let mut indices = Indices::new(8, 1);
    let mut now = 0;
    for turn in 0..2 * BackendRef::GENERATION_MAX {
        let backend = indices.take(now).unwrap();
        assert_eq!((backend.index(), backend.generation()), (8, turn % 4095 + 1));
        indices.give_back(backend, now);
        assert_eq!(indices.take(now), None);
        now += REST_NS;
    }
}

#[test]
fn index_that_was_free_the_longest_is_taken_first() {
    let mut indices = Indices::new(0, 3);
    let first = indices.take(0).unwrap();
    indices.give_back(first, 0);
    let order: Vec<u32> = (0..3).map(|_| indices.take(REST_NS).unwrap().index()).collect();
    assert_eq!(order, [1, 2, 0]);
}

#[test]
fn entering_is_taken_back_as_if_it_had_never_been() {
    let mut rig = Rig::new(2, 4, vec![table()]);
    let entered = rig.enter(3).unwrap();
    rig.membership.take_back(entered.backend());
    rig.membership.release(entered.backend(), rig.now);
    assert_eq!(rig.membership.seats().len(), 2);
    assert_eq!(rig.retable(), 0);
}

#[test]
fn next_agent_goes_on_with_slots_that_drain_and_drains_them_anew() {
    let mut rig = Rig::new(3, 8, vec![table()]);
    let leaving = rig.membership.seats()[0];
    rig.leave(leaving.backend);
    rig.retable();
    rig.pass(DRAIN / 2);
    let left = rig.tables[0].clone();
    let draining = left.iter().filter(|slot| slot.drains()).count();
    assert!(0 < draining);
    let seats = rig.membership.seats().to_vec();
    let in_use = seats.iter().map(|seat| seat.backend.index()).collect();
    let gone_ns = Some(rig.now + DRAIN);
    let again = |seat: &Seat| Seat { gone_ns: seat.gone_ns.and(gone_ns), ..*seat };
    let seats: Vec<Seat> = seats.iter().map(again).collect();
    let indices = Indices::resume(64, 8, &in_use, |index| u32::from(index < 68));
    rig.membership = Membership::resume(indices, seats, vec![table()], DRAIN);
    assert_eq!(rig.membership.take_up(0, &left, &[], rig.now), []);
    assert_eq!((rig.retable(), &rig.tables[0]), (0, &left), "nobody has come or gone");
    assert_eq!(rig.membership.draining_count(), draining);
    // Those that were used come last, and with another generation.
    let entered: Vec<_> = (4..8).map(|identity| rig.enter(identity).unwrap().backend()).collect();
    let uses: Vec<_> = entered.iter().map(|it| (it.index(), it.generation())).collect();
    assert_eq!(uses, [(68, 1), (69, 1), (70, 1), (71, 1)]);
    assert_eq!(rig.enter(8).unwrap().backend(), BackendRef::new(67, 2));
    assert_eq!(rig.pass(DRAIN - 1), []);
    assert_eq!(rig.pass(1), [leaving.backend]);
}

#[test]
fn same_agent_goes_on_with_drains_that_end_when_they_would_have() {
    let mut rig = Rig::new(3, 8, vec![table()]);
    let leaving = rig.membership.seats()[0];
    rig.leave(leaving.backend);
    rig.retable();
    rig.pass(DRAIN / 4);
    let (left, drains) = (rig.tables[0].clone(), rig.membership.drains(0));
    assert_eq!(drains.len(), 1);
    let seats = rig.membership.seats().to_vec();
    let in_use = seats.iter().map(|seat| seat.backend.index()).collect();
    let indices = Indices::resume(64, 8, &in_use, |_| 1);
    rig.membership = Membership::resume(indices, seats, vec![table()], DRAIN);
    assert_eq!(rig.membership.take_up(0, &left, &drains, rig.now), []);
    assert_eq!(rig.membership.drains(0), drains);
    assert_eq!(rig.pass(DRAIN * 3 / 4 - 1), []);
    assert_eq!(rig.pass(1), [leaving.backend]);
    assert_eq!(rig.membership.draining_count(), 0);
}

#[test]
fn slot_that_drains_from_somebody_who_is_not_here_settles() {
    let mut rig = Rig::new(2, 4, vec![table()]);
    let (one, stranger) = (rig.tables[0][0].current(), BackendRef::new(99, 3));
    let mut left = rig.tables[0].clone();
    left[0] = Slot::new(one, stranger);
    assert_eq!(rig.membership.take_up(0, &left, &[], rig.now), [(0, Slot::settled(one))]);
    assert_eq!(rig.membership.draining_count(), 0);
}

#[test]
fn hundreds_enter_and_leave_at_once() {
    let tables = || vec![Table::new(7, 65_521, DRAIN, false)];
    let mut rig = Rig::new(10, 1024, tables());
    let entered: Vec<_> = (11..511).map(|identity| rig.enter(identity).unwrap()).collect();
    rig.retable();
    let shares = entered.iter().map(|entered| rig.share(entered.backend()));
    // 65,521 over 510.
    assert!(shares.into_iter().all(|share| share == 128 || share == 129));
    rig.pass(DRAIN);
    entered.iter().for_each(|entered| rig.leave(entered.backend()));
    rig.retable();
    assert_eq!(rig.pass(DRAIN).len(), 500);
    assert_eq!(rig.tables[0], Rig::new(10, 1024, tables()).tables[0], "as if nobody had come");
}

#[test]
fn pool_without_members_has_slots_of_nobody_until_one_enters() {
    let mut rig = Rig::new(0, 64, vec![Table::new(7, 1021, DRAIN, false)]);
    assert!(rig.tables[0].iter().all(|slot| *slot == Slot::settled(NOBODY)));
    let first = rig.enter(1).expect("there is room").backend();
    assert_ne!(first.index(), NOBODY.index(), "a bit is asked for by index: his comes first");
    assert_eq!(rig.retable(), 1021);
    assert!(rig.tables[0].iter().all(|slot| *slot == Slot::settled(first)), "nobody has flows");
}

#[test]
fn flows_of_the_last_member_stay_for_its_drain_and_new_ones_have_nobody() {
    let mut rig = Rig::new(1, 64, vec![Table::new(7, 1021, DRAIN, false)]);
    let last = rig.membership.seats()[0].backend;
    rig.leave(last);
    rig.retable();
    assert!(rig.tables[0].iter().all(|slot| *slot == Slot::new(NOBODY, last)));
    assert_eq!(rig.pass(DRAIN), [last]);
    assert!(rig.tables[0].iter().all(|slot| *slot == Slot::settled(NOBODY)));
    let next = rig.enter(2).expect("there is room").backend();
    rig.retable();
    assert!(rig.tables[0].iter().all(|slot| *slot == Slot::settled(next)));
}
