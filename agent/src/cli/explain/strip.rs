//! Results in a row, and seconds, as text.

use sickbay_core::answer::Course;
use sickbay_core::command::Verdict;
use sickbay_core::plan::Nanos;

/// Results before the event that are shown at most.
const BEFORE_MAX: usize = 8;
/// Results shown at the end of those that are too many.
const LAST: usize = 2;

/// A time in seconds, as a number.
#[expect(clippy::cast_precision_loss, reason = "2^53 ns are 104 days")]
pub(super) fn seconds(nanos: Nanos) -> f64 {
    nanos as f64 / 1e9
}

/// A time in seconds without its unit, to the millisecond.
pub(super) fn digits(nanos: Nanos) -> String {
    let text = format!("{:.3}", seconds(nanos));
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A time with its unit, such as `27.5 s`.
pub(super) fn shown(nanos: Nanos) -> String {
    format!("{} s", digits(nanos))
}

/// The word for a verdict.
pub(super) const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Warming => "warming",
        Verdict::Healthy => "healthy",
        Verdict::Sick => "sick",
    }
}

/// Results as a register shows them, oldest left.
pub(super) fn register(results: &[bool]) -> String {
    results.iter().map(|&good| if good { 'H' } else { '-' }).collect()
}

/// The results of the worst case in two lines, the second saying when each ended, since the event
/// at the bar. No wider than `width`: too many are cut in the middle.
pub(super) fn sequence(course: &Course, width: usize) -> String {
    let Some(end) = course.steps.last() else {
        return String::new();
    };
    let mut results = String::from("  result ");
    let mut times = String::from("  second ");
    let hidden = course.before.len().saturating_sub(BEFORE_MAX);
    if 0 < hidden {
        results.push_str(".. ");
    }
    for &good in &course.before[hidden..] {
        results.push_str(mark(good));
        results.push(' ');
    }
    results.push_str("| ");
    times.push_str(&" ".repeat(results.len() - 2 - times.len()));
    times.push_str("0 ");
    let verdict = format!("-> {}", word(end.verdict));
    let cells: Vec<(&str, String)> =
        course.steps.iter().map(|step| (mark(step.good), digits(step.ended_ns))).collect();
    let widest = cells.iter().map(|(mark, time)| mark.len().max(time.len())).max().unwrap_or(1);
    let room = width.saturating_sub(results.len() + verdict.len()) / (widest + 1);
    for (mark, time) in cut(cells, room.max(LAST + 2)) {
        results.push_str(&format!("{mark:>widest$} "));
        times.push_str(&format!("{time:>widest$} "));
    }
    results.push_str(&verdict);
    format!("{results}\n{}\n", times.trim_end())
}

/// At most `room` cells: what is too many in the middle becomes one of dots.
fn cut(mut cells: Vec<(&str, String)>, room: usize) -> Vec<(&str, String)> {
    if room < cells.len() {
        let after = cells.len() - LAST;
        cells.splice(room - LAST - 1..after, [("..", "..".to_owned())]);
    }
    cells
}

const fn mark(good: bool) -> &'static str {
    if good { "ok" } else { "x" }
}

#[cfg(test)]
mod tests {
    use sickbay_core::answer::Question;
    use sickbay_core::bound::Pace;
    use sickbay_core::plan::{ProbeSpec, Rule};

    use super::*;

    fn course(rule: Rule, before: Vec<bool>, pace: Pace) -> Course {
        let toml = "[probe.p]\nurl = \"/healthz\"\n[pool.p]\nprobe = \"p\"\n\
                    backends = [\"192.0.2.1:80\"]\n";
        let loaded = crate::config::parse(
            toml,
            std::path::Path::new("t.toml"),
            &crate::config::Overrides::default(),
        );
        let fleet = loaded.expect("is right").fleet;
        let spec: &ProbeSpec = &fleet.probes[0].spec;
        Question { spec, rule, initial: 0 }.dies_from(before, pace)
    }

    #[test]
    fn sequence_shows_when_each_result_comes() {
        let rule = Rule::Window { window: 8, threshold: 3 };
        assert_eq!(
            sequence(&course(rule, vec![true; 8], Pace::WholeTimeout), 80),
            "  result ok ok ok ok ok ok ok ok |  x  x  x  x  x  x -> sick\n  \
             second                         0  7 12 17 22 27 32\n"
        );
    }

    #[test]
    fn long_sequence_is_cut_in_the_middle() {
        let rule = Rule::Window { window: 64, threshold: 1 };
        let text = sequence(&course(rule, vec![true; 64], Pace::AtOnce), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= 80), "{text}");
        assert!(lines[0].starts_with("  result .. ok ok ok ok ok ok ok ok |   x   x"));
        assert!(lines[0].ends_with("  x  ..   x   x -> sick"));
        // The sixty-fourth failure ends 64 * 5 s after.
        assert!(lines[1].ends_with(" .. 315 320"));
    }

    #[test]
    fn seconds_have_no_more_digits_than_they_need() {
        assert_eq!(shown(32_000_000_000), "32 s");
        assert_eq!(shown(27_500_000_000), "27.5 s");
        assert_eq!(shown(1_234_000), "0.001 s");
        assert_eq!(shown(0), "0 s");
    }
}
