//! Backends without a probe: healthy unless an operator says otherwise. No shard owns their bits;
//! the control plane writes them, one word at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sickbay_core::command::Override;

use crate::board::{Bits, Board};
use crate::control::journal::{Journal, Transition, Why};
use crate::control::view::ProbeState;
use crate::engine::monotonic_now;
use crate::fleet::{Backend, Fleet};
use crate::membership::Standing;

/// All of them.
#[derive(Debug)]
pub(super) struct Unprobed {
    board: Arc<Board>,
    journal: Arc<Journal>,
    /// By backend index. Locked while a bit is written.
    seats: Mutex<HashMap<u32, Seat>>,
}

#[derive(Debug)]
struct Seat {
    name: Arc<str>,
    pool: u32,
    word: Override,
    standing: Standing,
    /// When it last became healthy or sick: CLOCK_MONOTONIC.
    changed_ns: u64,
}

impl Unprobed {
    /// Those of `fleet`, whose bits are on the board already: they have just become healthy.
    pub(super) fn new(board: Arc<Board>, journal: Arc<Journal>, fleet: &Fleet) -> Self {
        let unprobed = fleet.backends.iter().filter(|backend| backend.judged.is_empty());
        let seats = unprobed.map(|backend| (backend.index, Seat::new(fleet, backend))).collect();
        Self { board, journal, seats: Mutex::new(seats) }
    }

    /// One of `fleet` enters: from now on its bits say that it is healthy.
    pub(super) fn join(&self, fleet: &Fleet, backend: &Backend) {
        let seat = Seat::new(fleet, backend);
        let mut seats = self.seats();
        self.put_bits(backend.index, &seat);
        seats.insert(backend.index, seat);
    }

    /// Clears the bits of those that are gone. Backends with a probe are passed over.
    pub(super) fn part(&self, backends: &[u32]) {
        let mut seats = self.seats();
        for index in backends {
            if let Some(seat) = seats.remove(index) {
                self.board.set_bits(*index, seat.pool, Bits::default());
            }
        }
    }

    /// Says what flows backends may have. Those with a probe are passed over.
    pub(super) fn set_standings(&self, standings: &[(u32, Standing)]) {
        let mut seats = self.seats();
        for (index, standing) in standings {
            if let Some(seat) = seats.get_mut(index) {
                seat.standing = *standing;
                self.put_bits(*index, seat);
            }
        }
    }

    /// Puts an operator's word into force; false when the backend is none of these.
    pub(super) fn set_word(&self, backend: u32, word: Override) -> bool {
        let mut seats = self.seats();
        let Some(seat) = seats.get_mut(&backend) else {
            return false;
        };
        let before = seat.state();
        seat.word = word;
        self.put_bits(backend, seat);
        let state = seat.state();
        if state == before {
            return true;
        }
        let at_ns = monotonic_now();
        seat.changed_ns = at_ns;
        self.journal.push(Transition {
            name: Arc::clone(&seat.name),
            from: before,
            to: state,
            why: Why::Operator,
            cause: String::new(),
            good: 0,
            rule: None,
            at_ns,
            member: None,
        });
        true
    }

    /// When `backend` last became what it is: CLOCK_MONOTONIC, in ns; 0 when it is none of these.
    pub(super) fn changed_ns(&self, backend: u32) -> u64 {
        self.seats().get(&backend).map_or(0, |seat| seat.changed_ns)
    }

    fn seats(&self) -> MutexGuard<'_, HashMap<u32, Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a backend's bits on the board.
    fn put_bits(&self, backend: u32, seat: &Seat) {
        let healthy = seat.state() == ProbeState::Healthy;
        let full = seat.standing == Standing::Full;
        let bits = Bits {
            takes_new: full && healthy,
            serves_old: seat.standing != Standing::Over && healthy,
            allowed: full && healthy,
        };
        self.board.set_bits(backend, seat.pool, bits);
    }
}

impl Seat {
    fn new(fleet: &Fleet, backend: &Backend) -> Self {
        Self {
            name: format!("{}.{}", fleet.pools[backend.pool].name, backend.name).into(),
            pool: u32::try_from(backend.pool).expect("pools are counted in u32"),
            word: Override::Auto,
            standing: Standing::Full,
            changed_ns: monotonic_now(),
        }
    }

    /// As the operator has it.
    fn state(&self) -> ProbeState {
        if self.word == Override::Sick { ProbeState::Sick } else { ProbeState::Healthy }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{self, Overrides};
    use crate::kernel::Sizes;

    /// Two backends without a probe and one with; all bits as they are laid out.
    fn rig() -> (Fleet, Arc<Board>, Unprobed) {
        let text = "[probe.p]\n[pool.a]\nprobe = \"none\"\n\
                    backends = [\"192.0.2.1:80\", \"192.0.2.2:80\", \
                    { address = \"192.0.2.3:80\", probe = \"p\" }]\n";
        let fleet = config::parse(text, Path::new("t.toml"), &Overrides::default()).unwrap().fleet;
        let sizes = Sizes { backends: 64, pools: 1, ..Sizes::default() };
        let board = Arc::new(Board::in_memory(&sizes).unwrap());
        for index in 0..2 {
            board.set_allowed(index, true);
            board.set_serves_old(index, true);
            board.set_takes_new(index, 0, true);
        }
        let unprobed = Unprobed::new(Arc::clone(&board), Arc::default(), &fleet);
        (fleet, board, unprobed)
    }

    /// Whether it takes new flows, keeps its old ones, and may be chosen when all are sick.
    fn bits(board: &Board, index: u32) -> [bool; 3] {
        [board.takes_new(index), board.serves_old(index), board.allowed(index)]
    }

    #[test]
    fn bits_follow_standing_and_word_together() {
        let (_, board, unprobed) = rig();
        unprobed.set_standings(&[(0, Standing::Draining), (2, Standing::Over)]);
        assert_eq!(bits(&board, 0), [false, true, false]);
        assert!(unprobed.set_word(0, Override::Sick));
        assert_eq!(bits(&board, 0), [false; 3]);
        unprobed.set_standings(&[(0, Standing::Full)]);
        assert_eq!(bits(&board, 0), [false; 3], "the word holds");
        assert!(unprobed.set_word(0, Override::Auto));
        assert_eq!(bits(&board, 0), [true; 3]);
        unprobed.set_standings(&[(0, Standing::Over)]);
        assert_eq!(bits(&board, 0), [false; 3]);
        assert_eq!(bits(&board, 1), [true; 3], "the other one is as it was");
        assert!(!unprobed.set_word(2, Override::Sick), "a shard owns that one");
        assert_eq!(board.pool_count(0), 1);
    }

    #[test]
    fn one_that_joins_is_healthy_at_once_and_one_that_parts_leaves_no_bit() {
        let (fleet, board, unprobed) = rig();
        let new = Backend { index: 7, ..fleet.backends[0].clone() };
        unprobed.join(&fleet, &new);
        assert_eq!(bits(&board, 7), [true; 3]);
        assert_ne!(unprobed.changed_ns(7), 0);
        assert_eq!(board.pool_count(0), 3);
        unprobed.part(&[7, 2]);
        assert_eq!(bits(&board, 7), [false; 3]);
        assert_eq!(board.pool_count(0), 2);
        assert!(!unprobed.set_word(7, Override::Healthy), "it is gone");
    }

    #[test]
    fn word_over_a_drained_backend_is_told_though_its_bit_stays() {
        let (_, _, unprobed) = rig();
        unprobed.set_standings(&[(0, Standing::Draining)]);
        let before = unprobed.changed_ns(0);
        assert!(unprobed.set_word(0, Override::Sick));
        let after = unprobed.changed_ns(0);
        assert!(before < after);
        assert!(unprobed.set_word(0, Override::Sick));
        assert_eq!(unprobed.changed_ns(0), after, "nothing has changed");
    }
}
