//! Verdict transitions: shards push them without waiting, the control thread logs them and keeps
//! the newest for whoever asks.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::queue::ArrayQueue;
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use sickbay_core::command::ChangeCause;

use super::distribution::Latency;
use super::members::MemberEvent;
use super::polls::Polls;
use super::said::now_unix_ms;
use super::view::{ProbeState, RuleView, decimal};

/// What became of transitions, counted.
mod tally;

pub use self::tally::Tally;

/// Transitions that can wait to be logged; more are dropped and counted.
pub const QUEUE_TRANSITIONS_MAX: usize = 8192;
/// Newest transitions that are kept for `transitions` requests.
pub const KEPT_TRANSITIONS_MAX: usize = 1024;
/// Transitions logged in one go, so that a dying rack does not hold up the admin socket.
pub const DRAIN_TRANSITIONS_MAX: usize = 256;

/// A backend's verdict changed.
#[derive(Clone, Debug)]
pub struct Transition {
    /// `pool.backend`. Shared, so that pushing copies no text.
    pub name: Arc<str>,
    /// What it was.
    pub from: ProbeState,
    /// What it is.
    pub to: ProbeState,
    /// Why.
    pub why: Why,
    /// What the last probe came to, escaped.
    pub cause: String,
    /// Good results among those that the rule looks at.
    pub good: u8,
    /// The rule; `None` = it has no probe.
    pub rule: Option<RuleView>,
    /// CLOCK_MONOTONIC of the decision.
    pub at_ns: u64,
    /// What became of its membership; then its verdict is as it was.
    pub member: Option<MemberEvent>,
}

/// Why a verdict changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Why {
    /// The results assumed at the start are enough.
    Initial,
    /// The results are judged by another rule now.
    Rule,
    /// A probe's result.
    Probe,
    /// No result that says anything for too long.
    Silence,
    /// An operator's word, or a change of members.
    Operator,
    /// The guard holds a pool's last verdicts, or no longer does; the name is the pool's.
    Guard,
    /// What an operator is to know at once, and that it is over: a pool panics, a probing thread
    /// gives no sign of life. The name is the pool's or the thread's. Whoever pushes it logs it.
    Alarm,
}

impl From<ChangeCause> for Why {
    fn from(cause: ChangeCause) -> Self {
        match cause {
            ChangeCause::Initial | ChangeCause::TakenUp => Self::Initial,
            ChangeCause::Rule => Self::Rule,
            ChangeCause::Probe => Self::Probe,
            ChangeCause::Silence => Self::Silence,
            ChangeCause::Override => Self::Operator,
        }
    }
}

/// A transition as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionView {
    /// Counts up from 1, without gaps; a gap a reader sees is what it came too late for.
    pub sequence: u64,
    /// CLOCK_MONOTONIC of the decision, in ns.
    #[serde(with = "decimal")]
    pub at_ns: u64,
    /// The same moment on the wall clock.
    pub at_unix_ms: u64,
    /// `pool.backend`.
    pub name: String,
    /// What it was.
    pub from: ProbeState,
    /// What it is.
    pub to: ProbeState,
    /// Why.
    pub why: Why,
    /// What the last probe came to, escaped.
    pub cause: String,
    /// Good results among those that the rule looks at.
    pub good: u8,
    /// `threshold` and `window`, or `fall` and `rise`; `None` = it has no probe.
    #[serde(flatten)]
    pub rule: Option<RuleView>,
    /// What became of its membership, when that is what happened; then `from` is `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<MemberEvent>,
}

impl TransitionView {
    /// One line: `web.b3 went sick: 2 of 4 good, needs 3: Open error 111 (Connection refused)`.
    #[must_use]
    pub fn text(&self) -> String {
        if self.why == Why::Guard {
            return format!("{}: {}", self.name, self.cause);
        }
        if self.why == Why::Alarm {
            return self.cause.clone();
        }
        if let Some(event) = &self.member {
            return format!("{} {}", self.name, event.text());
        }
        let mut text = format!("{} went {}: ", self.name, self.to.word());
        match self.why {
            Why::Initial => text.push_str("assumed at the start, by `initial`"),
            Why::Operator => text.push_str("set by an operator"),
            Why::Silence => text.push_str("no result that says anything for too long"),
            Why::Rule => write!(text, "by its new rule, {}", self.reckoning()).expect("text"),
            Why::Probe | Why::Guard | Why::Alarm => text.push_str(&self.reckoning()),
        }
        if !self.cause.is_empty() && self.why != Why::Operator {
            write!(text, ": {}", self.cause).expect("a String takes all text");
        }
        text
    }

    fn reckoning(&self) -> String {
        match self.rule {
            None => String::new(),
            Some(RuleView::Window { threshold, window }) => {
                format!("{} of {window} good, needs {threshold}", self.good)
            }
            Some(RuleView::Consecutive { fall, .. }) if self.to == ProbeState::Sick => {
                format!("{fall} bad in a row")
            }
            Some(RuleView::Consecutive { rise, .. }) => format!("{rise} good in a row"),
        }
    }
}

/// The queue between the shards and the control thread, and the newest transitions.
#[derive(Debug)]
pub struct Journal {
    queue: ArrayQueue<Transition>,
    dropped: AtomicU64,
    polls: Polls,
    publish_latency: Latency,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    transitions: VecDeque<TransitionView>,
    next_sequence: u64,
    dropped_logged: u64,
    tally: Tally,
}

impl Default for Journal {
    fn default() -> Self {
        Self::new(QUEUE_TRANSITIONS_MAX)
    }
}

impl Journal {
    /// An empty journal whose queue holds `capacity` transitions, at least 1.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self {
            queue: ArrayQueue::new(capacity.max(1)),
            dropped: AtomicU64::new(0),
            polls: Polls::default(),
            publish_latency: Latency::default(),
            kept: Mutex::new(Kept {
                transitions: VecDeque::with_capacity(KEPT_TRANSITIONS_MAX),
                next_sequence: 1,
                dropped_logged: 0,
                tally: Tally::default(),
            }),
        }
    }

    /// Hands a transition over; never waits. When the queue is full it is dropped and counted.
    pub fn push(&self, transition: Transition) {
        if self.queue.push(transition).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Logs and keeps what waits, [`DRAIN_TRANSITIONS_MAX`] at most; whether more waits.
    pub fn drain(&self) -> bool {
        self.drain_to(|_| ())
    }

    /// The same; each is handed to `take` as well, in their order.
    pub fn drain_to(&self, mut take: impl FnMut(&TransitionView)) -> bool {
        let clocks = Clocks::read();
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..DRAIN_TRANSITIONS_MAX {
            let Some(transition) = self.queue.pop() else {
                break;
            };
            let view = kept.add(transition, &clocks);
            if view.why != Why::Alarm {
                tracing::info!("{}", view.text());
            }
            take(view);
        }
        let dropped = self.dropped();
        if kept.dropped_logged < dropped {
            let count = dropped - kept.dropped_logged;
            tracing::warn!("{count} transitions are not in this log: more came than it takes");
            kept.dropped_logged = dropped;
        }
        !self.queue.is_empty()
    }

    /// The kept transitions with a sequence above `after`, oldest first.
    #[must_use]
    pub fn since(&self, after: u64) -> Vec<TransitionView> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.transitions.iter().filter(|view| after < view.sequence).cloned().collect()
    }

    /// Every poll, which goes the same way while somebody watches.
    #[must_use]
    pub const fn polls(&self) -> &Polls {
        &self.polls
    }

    /// From the loop's last look for results to the store of a verdict into kernel memory.
    #[must_use]
    pub const fn publish_latency(&self) -> &Latency {
        &self.publish_latency
    }

    /// Verdicts that changed, counted.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).tally.clone()
    }

    /// Transitions dropped because the queue was full.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Kept {
    fn add(&mut self, transition: Transition, clocks: &Clocks) -> &TransitionView {
        if self.transitions.len() == KEPT_TRANSITIONS_MAX {
            self.transitions.pop_front();
        }
        let view = TransitionView {
            sequence: self.next_sequence,
            at_ns: transition.at_ns,
            at_unix_ms: clocks.unix_ms(transition.at_ns),
            name: transition.name.to_string(),
            from: transition.from,
            to: transition.to,
            why: transition.why,
            cause: transition.cause,
            good: transition.good,
            rule: transition.rule,
            member: transition.member,
        };
        self.next_sequence += 1;
        self.tally.count(&view);
        self.transitions.push_back(view);
        self.transitions.back().expect("it was pushed just now")
    }
}

/// One moment on both clocks.
struct Clocks {
    monotonic_ns: u64,
    unix_ms: u64,
}

impl Clocks {
    fn read() -> Self {
        let monotonic = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0, |time| {
            let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
            seconds * 1_000_000_000 + u64::try_from(time.tv_nsec()).unwrap_or(0)
        });
        Self { monotonic_ns: monotonic, unix_ms: now_unix_ms() }
    }

    fn unix_ms(&self, at_ns: u64) -> u64 {
        self.unix_ms.saturating_sub(self.monotonic_ns.saturating_sub(at_ns) / 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        Clocks, DRAIN_TRANSITIONS_MAX, Journal, KEPT_TRANSITIONS_MAX, ProbeState, RuleView,
        Transition, Why,
    };

    fn sick(name: &str) -> Transition {
        Transition {
            name: name.into(),
            from: ProbeState::Healthy,
            to: ProbeState::Sick,
            why: Why::Probe,
            cause: "Open error 111 (Connection refused)".to_owned(),
            good: 2,
            rule: Some(RuleView::Window { threshold: 3, window: 4 }),
            at_ns: 1,
            member: None,
        }
    }

    fn text_of(transition: Transition) -> String {
        let journal = Journal::new(1);
        journal.push(transition);
        assert!(!journal.drain());
        journal.since(0)[0].text()
    }

    #[test]
    fn transition_says_what_happened_and_why_in_one_line() {
        assert_eq!(
            text_of(sick("web.b3")),
            "web.b3 went sick: 2 of 4 good, needs 3: Open error 111 (Connection refused)"
        );
        let rule = Some(RuleView::Consecutive { fall: 3, rise: 2 });
        assert_eq!(
            text_of(Transition { rule, ..sick("web.b3") }),
            "web.b3 went sick: 3 bad in a row: Open error 111 (Connection refused)"
        );
        let to = ProbeState::Healthy;
        let cause = "HTTP/1.1 200 OK".to_owned();
        assert_eq!(
            text_of(Transition { rule, to, cause, ..sick("web.b3") }),
            "web.b3 went healthy: 2 good in a row: HTTP/1.1 200 OK"
        );
        assert_eq!(
            text_of(Transition { why: Why::Operator, ..sick("web.b3") }),
            "web.b3 went sick: set by an operator"
        );
        let to = ProbeState::Unknown;
        let cause = "24 (Too many open files)".to_owned();
        assert_eq!(
            text_of(Transition { why: Why::Silence, to, cause, ..sick("web.b3") }),
            "web.b3 went unknown: no result that says anything for too long: \
             24 (Too many open files)"
        );
    }

    #[test]
    fn hold_of_the_guard_is_told_of_the_pool() {
        let cause = "6 backends turned sick at once".to_owned();
        let told = text_of(Transition { why: Why::Guard, cause, ..sick("web") });
        assert_eq!(told, "web: 6 backends turned sick at once");
    }

    #[test]
    fn alarm_is_told_in_its_own_words_and_is_no_transition() {
        let journal = Journal::new(4);
        journal.push(sick("web.b1"));
        let cause = "pool web panics: 1 of 4 backends take new flows".to_owned();
        journal.push(Transition { why: Why::Alarm, cause: cause.clone(), ..sick("web") });
        let mut taken = Vec::new();
        journal.drain_to(|view| taken.push(view.text()));
        assert_eq!(taken[1], cause);
        let tally = journal.tally();
        // In the order warming, healthy, sick, unknown.
        assert_eq!(tally.pools().collect::<Vec<_>>(), [("web", &[0, 0, 1, 0])]);
    }

    #[test]
    fn full_queue_drops_the_newest_and_counts_it() {
        let journal = Journal::new(2);
        for name in ["a", "b", "c", "d"] {
            journal.push(sick(name));
        }
        assert_eq!(journal.dropped(), 2);
        journal.drain();
        let names: Vec<String> = journal.since(0).into_iter().map(|view| view.name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn newest_transitions_are_kept_and_numbered() {
        let total = KEPT_TRANSITIONS_MAX + 10;
        let journal = Journal::new(total);
        for index in 0..total {
            journal.push(sick(&format!("web.b{index}")));
        }
        let mut rounds = 1;
        while journal.drain() {
            rounds += 1;
        }
        assert_eq!(rounds, total.div_ceil(DRAIN_TRANSITIONS_MAX));
        let kept = journal.since(0);
        assert_eq!(kept.len(), KEPT_TRANSITIONS_MAX);
        assert_eq!((kept[0].sequence, kept[0].name.as_str()), (11, "web.b10"));
        let last = journal.since(1033);
        assert_eq!(last.len(), 1);
        assert_eq!((last[0].sequence, last[0].name.as_str()), (1034, "web.b1033"));
    }

    #[test]
    fn monotonic_time_is_shown_on_the_wall_clock() {
        let clocks = Clocks { monotonic_ns: 5_000_000_000, unix_ms: 1_000_000 };
        assert_eq!(clocks.unix_ms(3_500_000_000), 998_500);
        assert_eq!(clocks.unix_ms(6_000_000_000), 1_000_000);
    }
}
