//! Shares as an operator writes them.

use std::ops::RangeInclusive;

use super::problem::{Report, Step, quoted};

/// The percentage at `place` if it is a whole one within `limits`; else an error that says what it
/// is `no …`, such as "no share of a pool".
pub(super) fn percent(
    report: &mut Report<'_>,
    place: &[Step<'_>],
    (text, noun): (&str, &str),
    limits: RangeInclusive<u8>,
) -> Option<u8> {
    let written = text.trim().strip_suffix('%').and_then(|number| number.trim().parse().ok());
    let found = written.filter(|percent| limits.contains(percent));
    if found.is_none() {
        let problem = format!("{} is {noun}", quoted(text));
        let mend = format!("write \"{}%\" to \"{}%\"", limits.start(), limits.end());
        report.error(place, problem, mend);
    }
    found
}
