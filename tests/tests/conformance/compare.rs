//! When two records are the same: the rules, written down.

use std::fmt;

use sickbay_tests::varnish::HealthRecord;

use super::behaviours::{Difference, Noise};

/// Between an average and what follows from the times as they are printed, six digits each.
const AVERAGE_TOLERANCE_S: f64 = 3e-6;
const READ_RESET: (&str, &str) = ("4---Xr--", "Read error 104 (Connection reset by peer)");
const POLL_TIMEOUT: (&str, &str) = ("4---Xr--", "Poll error 110 (Connection timed out)");

/// A record without what is measured: all that has to be equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    turn: String,
    state: String,
    bits: String,
    counts: (u32, u32, u32),
    text: String,
}

impl Shown {
    /// What is compared of a record, after the rules of its behaviour's noise.
    pub(crate) fn of(record: &HealthRecord, noise: Noise) -> Self {
        let mut bits = record.bits.as_str();
        let text = without_measured_time(&record.text);
        let mut text = text.as_str();
        let is = |start: &str| text.starts_with(start);
        match noise {
            Noise::Reset
                if is("Open error 104 ") || is("Write error 104 ") || is("Write error 32 ") =>
            {
                (bits, text) = READ_RESET;
            }
            Noise::Endless if is("Poll timeout ") => (bits, text) = POLL_TIMEOUT,
            _ => {}
        }
        Self {
            turn: record.turn.clone(),
            state: record.state.clone(),
            bits: bits.to_owned(),
            counts: (record.good, record.threshold, record.window),
            text: text.to_owned(),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (good, threshold, window) = self.counts;
        let Self { turn, state, bits, text, .. } = self;
        write!(formatter, "{turn} {state} {bits} {good} {threshold} {window} \"{text}\"")
    }
}

/// Adds a line for the first record that differs.
pub(crate) fn sequences(name: &str, theirs: &[Shown], ours: &[Shown], into: &mut Vec<String>) {
    assert_eq!(theirs.len(), ours.len(), "{name}: not the same number of records");
    let pairs = (1..).zip(theirs.iter().zip(ours));
    if let Some((poll, (theirs, ours))) = pairs.into_iter().find(|(_, (a, b))| a != b) {
        into.push(format!("{name}, poll {poll}:\n  varnishd {theirs}\n  sickbay  {ours}"));
    }
}

/// Whether bits and texts are the pinned ones, by turns, and the count follows from the bits.
pub(crate) fn pinned(difference: &Difference, records: &[Shown]) -> bool {
    let pins = difference.records.iter().cycle();
    records
        .iter()
        .zip(pins)
        .all(|(record, pin)| (record.bits.as_str(), record.text.as_str()) == *pin)
}

/// What is wrong with records that are not the pinned ones.
pub(crate) fn against(name: &str, difference: &Difference, records: &[Shown]) -> String {
    let mut text = format!("{name}, because {}:", difference.reason);
    for (record, (bits, line)) in records.iter().zip(difference.records.iter().cycle()) {
        text.push_str(&format!("\n  pinned {bits} \"{line}\"\n  is     {record}"));
    }
    text
}

/// Holds each record's average against Varnish's formula over the times before it: with `rate`
/// good results assumed, `rate` grows by one up to 4 and the average moves by `1 / rate`.
pub(crate) fn average(name: &str, records: &[HealthRecord], mut rate: u32) {
    let mut average_s = 0.0;
    for (poll, record) in (1..).zip(records) {
        if record.bits.ends_with('H') {
            rate = (rate + 1).min(4);
            average_s += (record.last_s - average_s) / f64::from(rate);
        }
        let off_s = (record.average_s - average_s).abs();
        assert!(
            off_s <= AVERAGE_TOLERANCE_S,
            "{name}, poll {poll}: {average_s} expected: {record:?}"
        );
    }
}

/// `exceeded by 0.001s` as `exceeded by Ns`; how much came and how long ago likewise: a pause of the
/// machine is a byte more or less.
fn without_measured_time(text: &str) -> String {
    const BEFORE: &str = " exceeded by ";
    let Some((before, measured)) = text.split_once(BEFORE) else {
        return text.to_owned();
    };
    let is_number = |word: &str| !word.is_empty() && word.parse::<f64>().is_ok();
    let shown = |word: &str| match word.strip_suffix(':').unwrap_or(word).strip_suffix('s') {
        Some(seconds) if is_number(seconds) => word.replace(seconds, "N"),
        None if is_number(word) => "N".to_owned(),
        _ => word.to_owned(),
    };
    let measured: Vec<String> = measured.split(' ').map(shown).collect();
    format!("{before}{BEFORE}{}", measured.join(" "))
}
