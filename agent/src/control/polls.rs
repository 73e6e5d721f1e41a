//! Every poll, for those who watch: from the shards to the admin socket, while somebody asks.
//!
//! A shard hands over a record per probe and backend only while it is watched, which whoever asks
//! keeps up for [`WATCHED_MS`]; else it looks at one number and goes on. Like transitions, records
//! wait in a bounded queue, and those that find it full are counted by the gap in their numbers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::queue::ArrayQueue;
use serde::{Deserialize, Serialize};
use sickbay_core::plan::{Nanos, Rule};
use sickbay_core::record::VarnishRecord;
use sickbay_core::register::Registers;
use sickbay_core::text::OutcomeText;

use crate::graph;

/// Records that wait to be asked for at most.
pub const QUEUE_POLLS_MAX: usize = 4096;
/// Records that are kept for a second watcher at most.
pub const KEPT_POLLS_MAX: usize = 8192;
/// After a question, records are handed over for so long.
pub const WATCHED_MS: u64 = 2000;

/// A poll of one backend's target, as the shard saw it.
#[derive(Clone, Debug)]
pub struct Poll {
    /// `pool.backend`. Shared, so that pushing copies no text.
    pub name: Arc<str>,
    /// Whether the target turned healthy for this backend, or ceased to be.
    pub changed: bool,
    /// What the probes say now.
    pub healthy: bool,
    /// The registers after it.
    pub registers: Registers,
    /// The backend's rule.
    pub rule: Rule,
    /// Time of its reception, 0 when it had none.
    pub last_ns: Nanos,
    /// The average after it.
    pub average_s: f64,
    /// What it came to.
    pub text: OutcomeText,
}

/// A poll as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PollView {
    /// Counts up; a gap is what was not kept.
    pub sequence: u64,
    /// `pool.backend`.
    pub name: String,
    /// Varnish's record of it.
    pub record: String,
}

/// The queue between the shards and who watches, and the newest records.
#[derive(Debug)]
pub struct Polls {
    queue: ArrayQueue<Poll>,
    dropped: AtomicU64,
    /// CLOCK_MONOTONIC, in ns.
    watched_until_ns: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    views: VecDeque<PollView>,
    next_sequence: u64,
    dropped_seen: u64,
}

impl Default for Polls {
    fn default() -> Self {
        Self {
            queue: ArrayQueue::new(QUEUE_POLLS_MAX),
            dropped: AtomicU64::new(0),
            watched_until_ns: AtomicU64::new(0),
            kept: Mutex::new(Kept { views: VecDeque::new(), next_sequence: 1, dropped_seen: 0 }),
        }
    }
}

impl Polls {
    /// Whether anybody watches.
    #[must_use]
    pub fn watched(&self, now: Nanos) -> bool {
        now < self.watched_until_ns.load(Ordering::Relaxed)
    }

    /// Hands a poll over; never waits. When the queue is full it is dropped and counted.
    pub fn push(&self, poll: Poll) {
        if self.queue.push(poll).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The kept records with a sequence above `after`, oldest first; watched from `now` on.
    #[must_use]
    pub fn since(&self, after: u64, now: Nanos) -> Vec<PollView> {
        self.watched_until_ns.fetch_max(now + WATCHED_MS * 1_000_000, Ordering::Relaxed);
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        // As many as were waiting: those that come meanwhile are for the next question.
        for _ in 0..QUEUE_POLLS_MAX {
            let Some(poll) = self.queue.pop() else { break };
            kept.add(&poll);
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        kept.next_sequence += dropped - kept.dropped_seen;
        kept.dropped_seen = dropped;
        kept.views.iter().filter(|view| after < view.sequence).cloned().collect()
    }
}

impl Kept {
    fn add(&mut self, poll: &Poll) {
        if self.views.len() == KEPT_POLLS_MAX {
            self.views.pop_front();
        }
        self.views.push_back(PollView {
            sequence: self.next_sequence,
            name: poll.name.to_string(),
            record: poll.record(),
        });
        self.next_sequence += 1;
    }
}

impl Poll {
    /// Varnish's record. Of a consecutive rule `rise` stands as its threshold.
    fn record(&self) -> String {
        VarnishRecord {
            name: &self.name,
            changed: self.changed,
            healthy: self.healthy,
            registers: &self.registers,
            threshold: self.rule.goods_to_healthy(),
            window: graph::span(self.rule),
            last_ns: self.last_ns,
            average_s: self.average_s,
            text: Some(self.text),
        }
        .to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sickbay_core::command::{Arrival, Outcome, Phase, StatusLine};
    use sickbay_core::plan::Compat;

    fn refused() -> Poll {
        Poll {
            name: "web.b1".into(),
            changed: true,
            healthy: false,
            registers: [0, 0, 0, 0, 0, 0, 0, 0b110],
            rule: Rule::Window { window: 4, threshold: 3 },
            last_ns: 0,
            average_s: 0.25,
            text: OutcomeText {
                outcome: Outcome::Failed { phase: Phase::Connect, errno: 111 },
                line: StatusLine::EMPTY,
                arrival: Arrival::default(),
                timeout_ns: 1,
                duration_ns: 1,
                compat: Compat::Off,
            },
        }
    }

    #[test]
    fn nobody_watches_until_asked_and_again_after_a_while() {
        let polls = Polls::default();
        assert!(!polls.watched(5));
        assert_eq!(polls.since(0, 1_000), []);
        assert!(polls.watched(2_000_000_999));
        assert!(!polls.watched(2_000_001_000));
    }

    #[test]
    fn poll_is_varnishs_record_and_is_numbered() {
        let polls = Polls::default();
        polls.push(refused());
        polls.push(refused());
        let record = "web.b1 Went sick -------- 2 3 4 0.000000 0.250000 \
                      \"Open error 111 (Connection refused)\"";
        let view =
            |sequence| PollView { sequence, name: "web.b1".to_owned(), record: record.to_owned() };
        assert_eq!(polls.since(0, 0), [view(1), view(2)]);
        assert_eq!(polls.since(1, 0), [view(2)]);
    }

    #[test]
    fn what_found_the_queue_full_is_a_gap() {
        let polls = Polls::default();
        for _ in 0..QUEUE_POLLS_MAX + 3 {
            polls.push(refused());
        }
        assert_eq!(polls.since(0, 0).len(), QUEUE_POLLS_MAX);
        polls.push(refused());
        let newest = polls.since(QUEUE_POLLS_MAX as u64, 0);
        assert_eq!(newest.len(), 1);
        assert_eq!(newest[0].sequence, QUEUE_POLLS_MAX as u64 + 4);
    }
}
