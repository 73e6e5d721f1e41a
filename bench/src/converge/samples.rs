//! From deaths and SYNs to what took how long. Pure.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// A SYN that arrived at the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Syn {
    /// When, CLOCK_MONOTONIC.
    pub(super) arrived_ns: u64,
    /// Its sequence number; of a bare SYN the low 32 bits of the moment just before it was sent.
    pub(super) sequence: u32,
}

/// One death, its verdict, and the end of it. CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Death {
    /// Just before the backend stopped to listen.
    pub(super) died_ns: u64,
    /// When it was condemned.
    pub(super) condemned_ns: u64,
    /// Just before it listened again.
    pub(super) revived_ns: u64,
}

/// What came of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sample {
    death: Death,
    /// When the last new connection arrived, of those between death and return.
    last_ns: u64,
    /// How many arrived after the verdict.
    pub(super) after_verdict: usize,
}

impl Sample {
    /// From the death to the verdict, in ns.
    pub(super) fn death_to_verdict_ns(&self) -> i64 {
        since(self.death.died_ns, self.death.condemned_ns)
    }

    /// From the death to the last new connection, in ns.
    pub(super) fn death_to_last_ns(&self) -> i64 {
        since(self.death.died_ns, self.last_ns)
    }

    /// From the verdict to the last new connection, in ns; below 0 when that came before.
    pub(super) fn verdict_to_last_ns(&self) -> i64 {
        since(self.death.condemned_ns, self.last_ns)
    }
}

/// One sample for each death, from all SYNs in order of arrival.
///
/// # Errors
/// When none arrived between a death and its verdict: then it shows nothing.
pub(super) fn samples(deaths: &[Death], syns: &[Syn]) -> Result<Vec<Sample>> {
    let sample = |death: &Death| {
        let arrived = between(syns, death.died_ns, death.revived_ns);
        let before = between(syns, death.died_ns, death.condemned_ns).len();
        let last = arrived.last().filter(|_| before != 0);
        ensure!(last.is_some(), "no new connection came between a death and its verdict");
        let last_ns = last.map_or(0, |syn| syn.arrived_ns);
        Ok(Sample { death: *death, last_ns, after_verdict: arrived.len() - before })
    };
    deaths.iter().map(sample).collect()
}

/// How many bare SYNs were sent after a verdict and arrived before the return.
pub(super) fn sent_after(deaths: &[Death], syns: &[Syn]) -> usize {
    let count = |death: &Death| {
        let late = between(syns, death.condemned_ns, death.revived_ns).iter().filter(|syn| {
            // The low 32 bits come round every 4 s; what matters here is nearer than half of that.
            let verdict = death.condemned_ns as u32;
            syn.sequence.wrapping_sub(verdict).cast_signed() > 0
        });
        late.count()
    };
    deaths.iter().map(count).sum()
}

fn since(from_ns: u64, until_ns: u64) -> i64 {
    until_ns.wrapping_sub(from_ns).cast_signed()
}

/// The median time between two SYNs while the backend is dead and not condemned, in ns.
pub(super) fn gap_ns(deaths: &[Death], syns: &[Syn]) -> i64 {
    let gaps = deaths.iter().flat_map(|death| {
        let arrived = between(syns, death.died_ns, death.condemned_ns);
        arrived.windows(2).map(|pair| since(pair[0].arrived_ns, pair[1].arrived_ns))
    });
    Spread::of(gaps.collect()).map_or(0, |spread| spread.p50)
}

/// Those that arrived in `from_ns .. until_ns`.
fn between(syns: &[Syn], from_ns: u64, until_ns: u64) -> &[Syn] {
    let first = syns.partition_point(|syn| syn.arrived_ns < from_ns);
    let end = syns.partition_point(|syn| syn.arrived_ns < until_ns);
    &syns[first..end.max(first)]
}

/// A distribution in ns, by the nearest rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spread {
    /// Half of the samples are at most this.
    pub(super) p50: i64,
    /// The greatest.
    pub(super) max: i64,
    sorted: Vec<i64>,
}

impl Spread {
    /// From samples in any order; `None` without any.
    pub(super) fn of(mut sorted: Vec<i64>) -> Option<Self> {
        sorted.sort_unstable();
        let max = *sorted.last()?;
        Some(Self { p50: ranked(&sorted, 50)?, max, sorted })
    }

    /// The table's cells: p50, p90, p99, max in that unit.
    pub(super) fn cells(&self, unit_ns: f64) -> [String; 4] {
        [50, 90, 99, 100].map(|percent| format!("{:.1}", self.at(percent) / unit_ns))
    }

    /// The same as an object.
    pub(super) fn json(&self, unit_ns: f64) -> Value {
        let at = |percent| rounded_f64(self.at(percent) / unit_ns);
        json!({ "p50": at(50), "p90": at(90), "p99": at(99), "max": at(100) })
    }

    /// Every fifth percentile from 0 to 100: what a curve is drawn from.
    pub(super) fn quantiles(&self, unit_ns: f64) -> Value {
        (0..=100).step_by(5).map(|percent| rounded_f64(self.at(percent) / unit_ns)).collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    fn at(&self, percent: usize) -> f64 {
        ranked(&self.sorted, percent).unwrap_or(0) as f64
    }
}

fn ranked(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).copied()
}

/// A time in that unit, to three digits.
#[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
pub(super) fn rounded(ns: i64, unit_ns: f64) -> f64 {
    rounded_f64(ns as f64 / unit_ns)
}

fn rounded_f64(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEATH: Death = Death { died_ns: 1000, condemned_ns: 2000, revived_ns: 3000 };

    fn arrivals(times: &[u64]) -> Vec<Syn> {
        times
            .iter()
            .map(|&arrived_ns| Syn { arrived_ns, sequence: (arrived_ns as u32).wrapping_sub(5) })
            .collect()
    }

    #[test]
    fn last_syn_before_the_return_counts() {
        let syns = arrivals(&[900, 1500, 2000, 2040, 3000, 4000]);
        let sample = samples(&[DEATH], &syns).unwrap()[0];
        assert_eq!(sample.death_to_verdict_ns(), 1000);
        assert_eq!(sample.death_to_last_ns(), 1040);
        assert_eq!(sample.verdict_to_last_ns(), 40);
        assert_eq!(sample.after_verdict, 2);
    }

    #[test]
    fn last_syn_before_the_verdict_is_below_zero() {
        let sample = samples(&[DEATH], &arrivals(&[1100, 1900, 3100])).unwrap()[0];
        assert_eq!(sample.death_to_last_ns(), 900);
        assert_eq!((sample.verdict_to_last_ns(), sample.after_verdict), (-100, 0));
    }

    #[test]
    fn death_without_a_syn_shows_nothing() {
        assert!(samples(&[DEATH], &arrivals(&[900, 2500, 3100])).is_err());
    }

    #[test]
    fn syn_sent_before_the_verdict_may_arrive_after_it() {
        // Both arrive after the verdict; sent 5 ns before they arrive.
        assert_eq!(sent_after(&[DEATH], &arrivals(&[1500, 2004])), 0);
        assert_eq!(sent_after(&[DEATH], &arrivals(&[1500, 2004, 2006])), 1);
        // The low 32 bits have come round between verdict and sending.
        let round = 1_u64 << 32;
        let death = Death { died_ns: 1000, condemned_ns: round - 2, revived_ns: round + 1000 };
        assert_eq!(sent_after(&[death], &arrivals(&[round + 2])), 0);
        assert_eq!(sent_after(&[death], &arrivals(&[round + 9])), 1);
    }

    #[test]
    fn gap_is_of_syns_between_death_and_verdict() {
        assert_eq!(gap_ns(&[DEATH], &arrivals(&[0, 1100, 1200, 1310, 1500, 2900])), 110);
    }

    #[test]
    fn spread_is_by_nearest_rank() {
        let spread = Spread::of((1..=200).rev().map(|n| n * 1000).collect()).unwrap();
        assert_eq!(spread.cells(1e3), ["100.0", "180.0", "198.0", "200.0"]);
        assert_eq!(spread.json(1e3)["p99"], 198.0);
        let quantiles = spread.quantiles(1e3);
        assert_eq!(quantiles.as_array().unwrap().len(), 21);
        assert_eq!((&quantiles[0], &quantiles[1]), (&json!(1.0), &json!(10.0)));
        assert_eq!(Spread::of(Vec::new()), None);
    }
}
