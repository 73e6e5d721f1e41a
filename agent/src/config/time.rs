//! Times as an operator writes them.

use sickbay_core::plan::Nanos;

use super::problem::{Report, Step, quoted};
use super::settings::TimeText;

/// The time at `place` in ns if it is one and lies between the limits; else an error, and the
/// fallback, which is only used to find further errors.
pub(super) fn nanos(
    report: &mut Report<'_>,
    place: &[Step<'_>],
    text: &TimeText,
    limits: std::ops::RangeInclusive<Nanos>,
    fallback: Nanos,
) -> Nanos {
    let parsed = match humantime::parse_duration(text.0.trim()) {
        Ok(duration) => u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX),
        Err(_) => {
            let problem = format!("{} is not a time", quoted(&text.0));
            let mend = match text.0.trim().parse::<f64>() {
                Ok(_) => format!("add a unit: \"{}s\" or \"{0}ms\"", text.0.trim()),
                Err(_) => "write it as \"5s\", \"500ms\" or \"1m 30s\"".to_owned(),
            };
            report.error(place, problem, mend);
            return fallback;
        }
    };
    if limits.contains(&parsed) {
        return parsed;
    }
    let (low, high) = (shown(*limits.start()), shown(*limits.end()));
    let problem = format!("{} is out of range", quoted(&text.0));
    report.error(place, problem, format!("write a time from \"{low}\" to \"{high}\""));
    fallback
}

/// A time with the units an operator would choose, such as `1m 30s`.
pub(super) fn shown(nanos: Nanos) -> String {
    humantime::format_duration(std::time::Duration::from_nanos(nanos)).to_string()
}

/// A time in seconds, for figures.
#[expect(clippy::cast_precision_loss, reason = "a figure for people, of six digits at most")]
pub(super) fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}
