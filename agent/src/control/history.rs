//! Events on disk: what became of backends, for longer than the agent lives.
//!
//! A directory of segments, `events-ORDER.jsonl`, each named by the number of its first event. An
//! event is a line of JSON. The newest segment is appended to, the oldest is removed when the whole
//! would pass its bound. Written by the control thread alone ([`writer`]), so that no probing thread
//! ever waits for a disk; read by `sickbay history` ([`reader`]), for which no agent need run.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use super::journal::TransitionView;
use crate::plain::printable_json;

/// From the files to whoever asks.
pub mod reader;
/// Segments: names, repair, room.
pub mod segments;
/// From the journal to the files.
pub mod writer;

/// Where the histories of the instances stand.
pub const STATE_ROOT: &str = "/var/lib/sickbay";
/// Longest line, LF not counted: several times the longest event.
pub const LINE_BYTES_MAX: usize = 16 * 1024;

/// An event as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// Counts up by one, over restarts and whatever the clock does; a gap is what was lost.
    pub order: u64,
    /// Wall time of the event, RFC 3339.
    pub time: String,
    /// What happened.
    #[serde(flatten)]
    pub event: TransitionView,
}

impl HistoryEvent {
    /// The event as the `order`th.
    #[must_use]
    pub fn new(order: u64, event: TransitionView) -> Self {
        Self { order, time: rfc3339(event.at_unix_ms), event }
    }

    /// Its line, LF included: printable ASCII.
    #[must_use]
    pub fn line(&self) -> String {
        let json = serde_json::to_string(self).expect("an event is plain data");
        let mut line = printable_json(&json);
        line.push('\n');
        line
    }
}

/// A moment as people write it, to the ms.
#[must_use]
pub fn rfc3339(unix_ms: u64) -> String {
    // Past the year 9999 there is no such form; a clock that far off is no reason to stop.
    let shown = unix_ms.min(253_402_300_799_999);
    let since_epoch = std::time::Duration::from_millis(shown);
    humantime::format_rfc3339_millis(std::time::UNIX_EPOCH + since_epoch).to_string()
}

/// How writing goes.
#[derive(Debug, Default)]
pub struct Status {
    written: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
    bytes: AtomicU64,
    failing: AtomicBool,
}

/// How writing went so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatusView {
    /// Events that were written.
    pub written: u64,
    /// Events that were not, because there was no room for too long.
    pub lost: u64,
    /// Times that writing failed.
    pub errors: u64,
    /// What the files take.
    pub bytes: u64,
    /// Whether it fails now.
    pub failing: bool,
}

impl Status {
    /// How writing went so far.
    #[must_use]
    pub fn view(&self) -> StatusView {
        StatusView {
            written: self.written.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            errors: self.errors.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            failing: self.failing.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::control::journal::Why;
    use crate::control::view::{ProbeState, RuleView};

    pub(crate) fn event(name: &str, cause: &str) -> TransitionView {
        TransitionView {
            sequence: 7,
            at_ns: u64::MAX,
            // 2026-11-29T17:30:28Z, by `date -u -d @1795973428`.
            at_unix_ms: 1_795_973_428_250,
            name: name.to_owned(),
            from: ProbeState::Healthy,
            to: ProbeState::Sick,
            why: Why::Probe,
            cause: cause.to_owned(),
            good: 2,
            rule: Some(RuleView::Window { threshold: 3, window: 4 }),
            member: None,
        }
    }

    #[test]
    fn event_is_a_line_that_says_all_and_is_read_back() {
        let event = HistoryEvent::new(41, event("web.b3", "Open error 111 (Connection refused)"));
        let line = event.line();
        assert_eq!(
            line,
            "{\"order\":41,\"time\":\"2026-11-29T17:30:28.250Z\",\"sequence\":7,\
             \"at_ns\":\"18446744073709551615\",\"at_unix_ms\":1795973428250,\"name\":\"web.b3\",\
             \"from\":\"healthy\",\"to\":\"sick\",\"why\":\"probe\",\
             \"cause\":\"Open error 111 (Connection refused)\",\"good\":2,\"threshold\":3,\
             \"window\":4}\n"
        );
        assert_eq!(serde_json::from_str::<HistoryEvent>(&line).expect("an event"), event);
    }

    #[test]
    fn control_bytes_and_line_ends_of_a_text_stay_within_the_line() {
        let cause = "200 \u{1b}]0;x\u{7}\n{\"order\":1}\r\u{9b}2J\u{2028}<b>";
        let event = HistoryEvent::new(1, event("web.b1", cause));
        let line = event.line();
        assert!(line.is_ascii() && line.matches('\n').count() == 1, "{line:?}");
        assert_eq!(line.chars().filter(|c| c.is_control()).count(), 1, "{line:?}");
        assert_eq!(serde_json::from_str::<HistoryEvent>(&line).expect("an event"), event);
    }

    #[test]
    fn clock_that_is_far_off_is_shown_all_the_same() {
        assert_eq!(rfc3339(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00.000Z");
    }
}
