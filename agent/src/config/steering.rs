//! What the kernel program may spend, and the guard.

use super::percent::percent;
use super::problem::{Report, Step};
use super::settings::{GuardSettings, Settings};
use super::time;
use crate::fleet::{Guard, Steering};

/// The budgets and the room for flows; what is wrong is reported.
pub(super) fn validate(settings: &Settings, report: &mut Report<'_>) -> Steering {
    let given = &settings.steering;
    let mut number = |key, value, low, high| {
        let place = ["steering".into(), Step::Key(key)];
        report.whole(&place, value, low..=high).unwrap_or_default()
    };
    let per_second = i64::from(u32::MAX);
    Steering {
        flow_entries: number("flow_entries", given.flow_entries, 1024, 1 << 24),
        syn_entries_per_second: number(
            "syn_entries_per_second",
            given.syn_entries_per_second,
            0,
            per_second,
        ),
        flow_entries_per_second: number(
            "flow_entries_per_second",
            given.flow_entries_per_second,
            0,
            per_second,
        ),
        answers_per_second: number("answers_per_second", given.answers_per_second, 0, per_second),
        drop_samples_per_second: number(
            "drop_samples_per_second",
            given.drop_samples_per_second,
            0,
            per_second,
        ),
    }
}

/// The guard, when it is on; what is wrong is reported.
pub(super) fn validate_guard(settings: &Settings, report: &mut Report<'_>) -> Option<Guard> {
    const SECOND_NS: u64 = 1_000_000_000;
    let at = |key| ["guard".into(), Step::Key(key)];
    let given = &settings.guard;
    let within = SECOND_NS..=3600 * SECOND_NS;
    let within_ns = time::nanos(report, &at("within"), &given.within, within, SECOND_NS);
    let hold = SECOND_NS..=24 * 3600 * SECOND_NS;
    let hold_ns = time::nanos(report, &at("hold"), &given.hold, hold, SECOND_NS);
    let Some(share) = given.share.as_deref() else {
        if *given != GuardSettings::default() && !report.is_marred(&at("share")) {
            let problem = "the guard is off: no share is given";
            report.error(&["guard".into()], problem, "add share = \"50%\", or remove the section");
        }
        return None;
    };
    let written = (share, "no share of a pool");
    let share_percent = percent(report, &at("share"), written, 1..=99)?;
    Some(Guard { share_percent, within_ns, hold_ns })
}
