//! Distributions of times, as metrics tell them: how many were no longer than each bound.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

/// Upper bounds of what takes as long as a probe, in ns: 100 µs to 30 s.
pub const PROBE_BOUNDS_NS: &[u64] = &[
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
];

/// Upper bounds of what a publication takes, in ns: 250 ns to 100 ms.
pub const PUBLISH_BOUNDS_NS: [u64; PUBLISH_BOUND_COUNT] = [
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    10_000_000,
    100_000_000,
];
/// How many these are.
const PUBLISH_BOUND_COUNT: usize = 14;

/// Times, by how many were no longer than each bound.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Distribution {
    /// Bounds in ns, ascending, each with how many were no longer.
    pub cumulative: Vec<(u64, u64)>,
    /// All of them.
    pub count: u64,
    /// Their sum, in seconds.
    pub sum_s: f64,
}

impl Distribution {
    /// Of a histogram, whose own precision (2 digits) is that of counts and sum.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>, bounds_ns: &[u64]) -> Self {
        let (mut cumulative, mut sum_ns) = (Vec::with_capacity(bounds_ns.len()), 0.0);
        let mut bounds = bounds_ns.iter().copied().peekable();
        let mut count = 0;
        for step in histogram.iter_recorded() {
            let value_ns = step.value_iterated_to();
            while let Some(bound) = bounds.next_if(|bound| *bound < value_ns) {
                cumulative.push((bound, count));
            }
            count += step.count_since_last_iteration();
            sum_ns += value_ns as f64 * step.count_since_last_iteration() as f64;
        }
        cumulative.extend(bounds.map(|bound| (bound, count)));
        Self { cumulative, count, sum_s: sum_ns / 1e9 }
    }
}

/// A distribution that several threads add to without waiting.
#[derive(Debug, Default)]
pub struct Latency {
    /// By bound; the last one is for what is longer than all.
    counts: [AtomicU64; PUBLISH_BOUND_COUNT + 1],
    sum_ns: AtomicU64,
}

impl Latency {
    /// Adds a time.
    pub fn record(&self, time_ns: u64) {
        let bucket = PUBLISH_BOUNDS_NS.partition_point(|bound| *bound < time_ns);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(time_ns, Ordering::Relaxed);
    }

    /// What was added so far.
    #[must_use]
    pub fn read(&self) -> Distribution {
        let mut count = 0;
        let mut cumulative = Vec::with_capacity(PUBLISH_BOUND_COUNT);
        for (bound, own) in PUBLISH_BOUNDS_NS.iter().zip(&self.counts) {
            count += own.load(Ordering::Relaxed);
            cumulative.push((*bound, count));
        }
        count += self.counts[PUBLISH_BOUND_COUNT].load(Ordering::Relaxed);
        Distribution { cumulative, count, sum_s: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_counts_each_time_up_to_its_bound() {
        let latency = Latency::default();
        for time_ns in [250, 251, 1_000_000_000] {
            latency.record(time_ns);
        }
        let read = latency.read();
        assert_eq!(read.cumulative[..3], [(250, 1), (500, 2), (1_000, 2)]);
        assert_eq!(read.cumulative.last(), Some(&(100_000_000, 2)));
        assert_eq!(read.count, 3);
        assert!((read.sum_s - 1.000_000_501).abs() < 1e-12, "{}", read.sum_s);
    }

    #[test]
    fn histogram_is_told_by_its_bounds() {
        let mut histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 2).expect("bounds");
        for time_ns in [90_000, 2_000_000, 2_000_000, 60_000_000_000_u64] {
            histogram.record(time_ns).expect("within its bounds");
        }
        let told = Distribution::of(&histogram, PROBE_BOUNDS_NS);
        let count_of = |bound_ns: u64| {
            told.cumulative.iter().find(|(bound, _)| *bound == bound_ns).map(|(_, count)| *count)
        };
        assert_eq!(told.cumulative.len(), PROBE_BOUNDS_NS.len());
        assert_eq!(count_of(100_000), Some(1));
        assert_eq!(count_of(1_000_000), Some(1));
        assert_eq!(count_of(2_500_000), Some(3));
        assert_eq!(count_of(30_000_000_000), Some(3));
        assert_eq!(told.count, 4);
        // 60.00409 s, to the histogram's two digits.
        assert!((59.0..61.0).contains(&told.sum_s), "{}", told.sum_s);
        let none = Distribution::of(&Histogram::new(2).expect("digits"), PROBE_BOUNDS_NS);
        assert!(none.cumulative.iter().all(|(_, count)| *count == 0) && none.count == 0);
    }
}
