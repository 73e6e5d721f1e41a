//! What an operator is to be told at once: a pool that panics, a probing thread that is silent.
//!
//! Looked at by the main thread, which no probing thread can hold up.

use tracing::Level;

use crate::board::Board;
use crate::control::journal::{Transition, Why};
use crate::control::view::ProbeState;
use crate::engine::monotonic_now;
use crate::fleet::Fleet;

use super::layout::HEARTBEAT_LIMIT_NS;

/// What was told last.
#[derive(Debug)]
pub(super) struct Alarms {
    /// By pool: whether it panics.
    panics: Box<[bool]>,
    /// By shard: whether it gives no sign of life.
    silent: Box<[bool]>,
}

/// Something to be told, and how loudly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Alarm {
    pub(super) level: Level,
    /// The pool's name, or the thread's.
    pub(super) name: String,
    pub(super) text: String,
}

impl Alarms {
    /// Nothing was told yet.
    pub(super) fn new(fleet: &Fleet, board: &Board) -> Self {
        let shards = board.header().shard_count as usize;
        let panics = vec![false; fleet.pools.len()].into();
        Self { panics, silent: vec![false; shards].into() }
    }

    /// What changed since the last look; `now_ns` is the coarse monotonic clock's.
    pub(super) fn look(&mut self, fleet: &Fleet, board: &Board, now_ns: u64) -> Vec<Alarm> {
        let mut alarms = Vec::new();
        for ((index, pool), told) in (0..).zip(&fleet.pools).zip(&mut self.panics) {
            let panics = board.pool_panics(index);
            if std::mem::replace(told, panics) == panics {
                continue;
            }
            let name = pool.name.clone();
            let (count, total) = (board.pool_count(index), pool.backends.len());
            alarms.push(if panics {
                let text = format!(
                    "pool {name} panics: {count} of {total} backends take new flows; services with \
                     all_sick = \"open\" use all of them, or their backup pool"
                );
                Alarm { level: Level::WARN, name, text }
            } else {
                let text = format!(
                    "pool {name} panics no more: {count} of {total} backends take new flows"
                );
                Alarm { level: Level::INFO, name, text }
            });
        }
        for (shard, told) in (0..).zip(&mut self.silent) {
            let beat_ns = board.last_beat_ns(shard);
            let silent = beat_ns != 0 && beat_ns + HEARTBEAT_LIMIT_NS <= now_ns;
            if std::mem::replace(told, silent) == silent {
                continue;
            }
            let name = format!("probe-{shard}");
            alarms.push(if silent {
                let age_ms = now_ns.saturating_sub(beat_ns) / 1_000_000;
                let text = format!(
                    "probing thread {shard} has given no sign of life for {age_ms} ms: its \
                     backends keep their last verdicts (or are open, by `stale`)"
                );
                Alarm { level: Level::ERROR, name, text }
            } else {
                let text = format!("probing thread {shard} gives signs of life again");
                Alarm { level: Level::INFO, name, text }
            });
        }
        alarms
    }
}

impl Alarm {
    /// Tells it.
    pub(super) fn log(&self) {
        match self.level {
            Level::ERROR => tracing::error!("{}", self.text),
            Level::WARN => tracing::warn!("{}", self.text),
            _ => tracing::info!("{}", self.text),
        }
    }

    /// As it goes into the journal.
    pub(super) fn transition(self) -> Transition {
        Transition {
            name: self.name.into(),
            from: ProbeState::Unknown,
            to: ProbeState::Unknown,
            why: Why::Alarm,
            cause: self.text,
            good: 0,
            rule: None,
            at_ns: monotonic_now(),
            member: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use sickbay_shared::abi::Header;

    use super::*;
    use crate::board::{PanicCounts, coarse_now_ns};
    use crate::config::{self, Overrides};
    use crate::kernel::Sizes;

    fn stage() -> (Fleet, Board, Alarms) {
        let text = "[probe.p]\nurl = \"/p\"\n[pool.web]\nprobe = \"p\"\n\
                    backends_range = \"192.0.2.1-192.0.2.4:80\"\n";
        let fleet = config::parse(text, Path::new("t.toml"), &Overrides::default()).unwrap().fleet;
        let board = Board::in_memory(&Sizes::default()).unwrap();
        board.write_header(&Header { shard_count: 1, ..Header::default() }).unwrap();
        let alarms = Alarms::new(&fleet, &board);
        (fleet, board, alarms)
    }

    fn told(alarms: Vec<Alarm>) -> Vec<(Level, String)> {
        let first = |text: String| text.split(&[':', ';']).next().unwrap_or_default().to_owned();
        alarms.into_iter().map(|alarm| (alarm.level, first(alarm.text))).collect()
    }

    #[test]
    fn panic_is_told_once_and_so_is_its_end() {
        let (fleet, board, mut alarms) = stage();
        board.set_takes_new(0, 0, true);
        board.set_panic(0, PanicCounts { below: 2, end: 3 });
        let began = told(alarms.look(&fleet, &board, 0));
        assert_eq!(began, [(Level::WARN, "pool web panics".to_owned())]);
        board.set_takes_new(1, 0, true);
        assert_eq!(alarms.look(&fleet, &board, 0), []);
        board.set_takes_new(2, 0, true);
        let ended = told(alarms.look(&fleet, &board, 0));
        assert_eq!(ended, [(Level::INFO, "pool web panics no more".to_owned())]);
    }

    #[test]
    fn alarm_goes_into_the_journal_under_its_pools_name() {
        let (fleet, board, mut alarms) = stage();
        board.set_panic(0, PanicCounts { below: 2, end: 3 });
        let mut alarms = alarms.look(&fleet, &board, 0);
        let transition = alarms.remove(0).transition();
        assert_eq!((&*transition.name, transition.why), ("web", Why::Alarm));
        assert!(transition.cause.starts_with("pool web panics: 0 of 4 "), "{}", transition.cause);
    }

    #[test]
    fn silent_shard_is_told_when_its_heartbeat_reaches_the_limit() {
        let (fleet, board, mut alarms) = stage();
        let begin_ns = coarse_now_ns();
        assert_eq!(
            alarms.look(&fleet, &board, begin_ns + 10 * HEARTBEAT_LIMIT_NS),
            [],
            "not begun"
        );
        board.beat(0);
        let beat_ns = board.last_beat_ns(0);
        assert_eq!(alarms.look(&fleet, &board, beat_ns + HEARTBEAT_LIMIT_NS - 1), []);
        let silent = told(alarms.look(&fleet, &board, beat_ns + HEARTBEAT_LIMIT_NS));
        let text = "probing thread 0 has given no sign of life for 500 ms".to_owned();
        assert_eq!(silent, [(Level::ERROR, text)]);
        assert_eq!(alarms.look(&fleet, &board, beat_ns + 2 * HEARTBEAT_LIMIT_NS), []);
        let again = told(alarms.look(&fleet, &board, beat_ns + 1));
        assert_eq!(again, [(Level::INFO, "probing thread 0 gives signs of life again".to_owned())]);
    }
}
