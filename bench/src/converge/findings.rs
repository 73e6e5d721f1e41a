//! The report: what was found on both sides, held against what must hold.

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::ground::{FALL, INTERVAL_MS, Promise};
use super::samples::{Sample, Spread, rounded};
use super::{Found, Lateness};
use crate::report::Report;

/// What a load balancer's manual gives for the time from a verdict to its effect (HTTP), in ns.
const SEED_NS: i64 = 2_500_000_000;
/// The units of the figures, in ns.
const MS: f64 = 1e6;
const US: f64 = 1e3;

/// What must be reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// How much smaller than [`SEED_NS`] the time after a verdict is.
    ratio_seed_min: f64,
    /// Whether deaths are held to what is promised for a backend that refuses, as these do, or to
    /// what is promised at worst.
    strict: bool,
}

impl Limits {
    pub(super) const FULL: Self = Self { ratio_seed_min: 1000.0, strict: true };
    /// On machines that do other things too a packet may wait for its CPU: this fails on what is
    /// broken, not on what is slow.
    pub(super) const QUICK: Self = Self { ratio_seed_min: 100.0, strict: false };
}

/// The distributions of one side.
struct Spreads {
    verdict: Spread,
    last: Spread,
    after: Spread,
}

impl Spreads {
    fn of(samples: &[Sample]) -> Result<Self> {
        let spread = |value: fn(&Sample) -> i64| {
            Spread::of(samples.iter().map(value).collect()).context("there was no death")
        };
        Ok(Self {
            verdict: spread(Sample::death_to_verdict_ns)?,
            last: spread(Sample::death_to_last_ns)?,
            after: spread(Sample::verdict_to_last_ns)?,
        })
    }
}

/// Everything that was found.
///
/// # Errors
/// Without a death.
pub(super) fn report(
    method: &str,
    [sickbay, haproxy]: &[Found; 2],
    promise: Promise,
    lateness: Lateness,
    limits: Limits,
) -> Result<Report> {
    let mut report = Report::new("converge", method);
    report.titles = vec!["", "p50", "p90", "p99", "max"];
    report.figure("deaths", sickbay.samples.len());
    report.figure("interval_ms", INTERVAL_MS);
    report.figure("fall", FALL);
    let ours = Spreads::of(&sickbay.samples)?;
    let theirs = Spreads::of(&haproxy.samples)?;
    show(&mut report, sickbay, &ours);
    show(&mut report, haproxy, &theirs);
    report.figure("ratio_haproxy", ratio(theirs.last.p50, ours.last.p50));
    hold_promise(&mut report, sickbay, &ours, (promise, lateness), limits);
    hold_after(&mut report, sickbay, &ours, limits);
    Ok(report)
}

fn show(report: &mut Report, found: &Found, spreads: &Spreads) {
    let rows = [
        ("death to verdict, ms", &spreads.verdict, MS),
        ("death to last connection, ms", &spreads.last, MS),
        ("verdict to last connection, µs", &spreads.after, US),
    ];
    for (what, spread, unit) in rows {
        let mut row = vec![format!("{}: {what}", found.name)];
        row.extend(spread.cells(unit));
        report.rows.push(row);
    }
    let later = found.samples.iter().filter(|sample| 0 < sample.after_verdict).count();
    let gap_us = rounded(found.gap_ns, US);
    report.figure(
        found.name,
        json!({
            "death_to_verdict_ms": spreads.verdict.json(MS),
            "death_to_last_ms": spreads.last.json(MS),
            "death_to_last_quantiles_ms": spreads.last.quantiles(MS),
            "verdict_to_last_us": spreads.after.json(US),
            "deaths_with_a_connection_after_the_verdict": later,
            "gap_us": Value::from(gap_us),
        }),
    );
    report.notes.push(format!(
        "{}: {} deaths, {later} of them with a connection after the verdict; while dead and not \
         condemned, a new connection every {gap_us} µs (median)",
        found.name,
        found.samples.len(),
    ));
}

/// Never later than `sickbay explain` promises, for which the host has to begin its probes in time.
fn hold_promise(
    report: &mut Report,
    sickbay: &Found,
    spreads: &Spreads,
    (promise, lateness): (Promise, Lateness),
    limits: Limits,
) {
    let late = |sample: &&Sample| promise.refused_ns < sample.death_to_last_ns();
    let late = sickbay.samples.iter().filter(late).count();
    report.figure("promise_refused_ms", rounded(promise.refused_ns, MS));
    report.figure("promise_worst_ms", rounded(promise.worst_ns, MS));
    report.figure("deaths_later_than_refused", late);
    report.figure("probe_lateness_p99_us", lateness.p99_us);
    report.figure("probe_lateness_max_us", lateness.max_us);
    report.notes.push(format!(
        "`sickbay explain` promises {} ms for a backend that refuses ({late} deaths took longer), \
         {} ms at worst; this host began its probes late by {} µs (p99), {} µs (max)",
        rounded(promise.refused_ns, MS),
        rounded(promise.worst_ns, MS),
        lateness.p99_us,
        lateness.max_us,
    ));
    let promised_ns = if limits.strict { promise.refused_ns } else { promise.worst_ns };
    // Each of the probes that condemn may have been as late as the latest.
    let late_ns = lateness.max_us.saturating_mul(1000 * FALL);
    let late_ns = i64::try_from(late_ns).unwrap_or(i64::MAX);
    report.promise(spreads.last.max <= promised_ns.saturating_add(late_ns), || {
        format!(
            "a new connection {} ms after the death: `sickbay explain` promises {} ms, and {FALL} \
             probes were late by {} ms together at most",
            rounded(spreads.last.max, MS),
            rounded(promised_ns, MS),
            rounded(late_ns, MS),
        )
    });
}

/// Nothing is sent there after a verdict, and what is under way comes soon.
fn hold_after(report: &mut Report, sickbay: &Found, spreads: &Spreads, limits: Limits) {
    // Where no connection came after a verdict, it is known no finer than connections came.
    let fineness_ns = sickbay.gap_ns.max(-spreads.after.p50);
    let seed = ratio(SEED_NS, spreads.after.max.max(fineness_ns));
    report.figure("ratio_seed", seed);
    report.promise(limits.ratio_seed_min <= seed, || {
        let min = limits.ratio_seed_min;
        format!("the time after the verdict is {seed} times smaller than 2.5 s, not {min} times")
    });
    let sent_after = sickbay.sent_after_verdict.unwrap_or(0);
    report.figure("sent_after_verdict", sent_after);
    report.promise(sent_after == 0, || {
        format!("{sent_after} SYNs that were sent after the verdict reached the backend")
    });
}

#[expect(clippy::cast_precision_loss, reason = "a ratio, of some digits")]
fn ratio(above: i64, below: i64) -> f64 {
    (above as f64 / below.max(1) as f64 * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::super::samples::{Death, Syn, samples};
    use super::*;

    const PROMISE: Promise = Promise { refused_ns: 200_000_000, worst_ns: 250_000_000 };
    const LATENESS: Lateness = Lateness { p99_us: 10, max_us: 1000 };

    /// One death, condemned after 150 ms; the last connection came so long after the death.
    fn found(name: &'static str, last_ns: u64) -> Found {
        let death = Death { died_ns: 0, condemned_ns: 150_000_000, revived_ns: 900_000_000 };
        let syns = [1000, last_ns].map(|arrived_ns| Syn { arrived_ns, sequence: 0 });
        let samples = samples(&[death], &syns).unwrap();
        Found { name, samples, gap_ns: 100_000, sent_after_verdict: Some(0) }
    }

    fn reported(last_ns: u64, limits: Limits) -> Report {
        let both = [found("sickbay", last_ns), found("haproxy", 300_000_000)];
        report("by hand", &both, PROMISE, LATENESS, limits).unwrap()
    }

    #[test]
    fn what_is_in_time_breaks_nothing() {
        let report = reported(149_950_000, Limits::FULL);
        assert_eq!(report.broken, Vec::<String>::new());
        assert_eq!(report.figures["sickbay"]["verdict_to_last_us"]["max"], -50.0);
        assert_eq!(report.figures["ratio_seed"], 25_000.0);
        assert_eq!(report.figures["ratio_haproxy"], 2.001);
        assert_eq!(report.figures["deaths_later_than_refused"], 0);
    }

    #[test]
    fn connection_later_than_promised_breaks_it() {
        // Two probes of this host's may have been 1 ms late.
        assert_eq!(reported(202_000_000, Limits::FULL).figures["deaths_later_than_refused"], 1);
        let broken = reported(202_000_001, Limits::FULL).broken;
        assert!(broken[0].contains("promises 200 ms"), "{broken:?}");
        let broken = reported(252_000_001, Limits::QUICK).broken;
        assert!(broken[0].contains("promises 250 ms"), "{broken:?}");
    }

    #[test]
    fn slow_effect_of_a_verdict_breaks_it() {
        let late = |after_ns: u64| reported(150_000_000 + after_ns, Limits::FULL).broken.len();
        assert_eq!((late(2_500_000), late(2_600_000)), (0, 1));
        let late = |after_ns: u64| reported(150_000_000 + after_ns, Limits::QUICK).broken.len();
        assert_eq!((late(25_000_000), late(26_000_000)), (0, 1));
    }

    #[test]
    fn syn_sent_after_the_verdict_breaks_it() {
        let mut sickbay = found("sickbay", 149_000_000);
        sickbay.sent_after_verdict = Some(1);
        let both = [sickbay, found("haproxy", 149_000_000)];
        let report = report("by hand", &both, PROMISE, LATENESS, Limits::QUICK).unwrap();
        assert!(report.broken[0].contains("1 SYNs that were sent after"), "{:?}", report.broken);
    }
}
