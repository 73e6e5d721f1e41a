//! Families as text: the exposition format 0.0.4, by the `prometheus` crate's encoder.
//!
//! Each family is encoded and let go before the next one is made, so that those of tens of thousands
//! of backends are not in memory twice.

use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};

use crate::control::distribution::Distribution;
use crate::plain::printable;

/// The format's name.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The text so far.
#[derive(Default)]
pub(super) struct Text(String);

/// A label and its value.
pub(super) type Label<'a> = (&'static str, &'a str);

impl Text {
    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.0
    }

    /// Figures that only grow; the name ends in `_total`.
    pub(super) fn counters<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([Label<'a>; N], u64)>,
    ) {
        debug_assert!(name.ends_with("_total"), "{name}");
        let metrics = samples.into_iter().map(|(labels, value)| {
            let mut counter = Counter::default();
            counter.set_value(value as f64);
            let mut metric = metric(&labels);
            metric.set_counter(counter);
            metric
        });
        self.family(name, help, MetricType::COUNTER, metrics.collect());
    }

    /// The same, of seconds.
    pub(super) fn seconds_counter(&mut self, name: &str, help: &str, value: f64) {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = metric(&[]);
        metric.set_counter(counter);
        self.family(name, help, MetricType::COUNTER, vec![metric]);
    }

    /// Figures as they are now.
    pub(super) fn gauges<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([Label<'a>; N], f64)>,
    ) {
        let metrics = samples.into_iter().map(|(labels, value)| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            let mut metric = metric(&labels);
            metric.set_gauge(gauge);
            metric
        });
        self.family(name, help, MetricType::GAUGE, metrics.collect());
    }

    /// Distributions of times; the name ends in `_seconds`.
    pub(super) fn histograms<'a, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([Label<'a>; N], Distribution)>,
    ) {
        let metrics = samples.into_iter().map(|(labels, distribution)| {
            let mut metric = metric(&labels);
            metric.set_histogram(histogram(&distribution));
            metric
        });
        self.family(name, help, MetricType::HISTOGRAM, metrics.collect());
    }

    fn family(&mut self, name: &str, help: &str, kind: MetricType, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        TextEncoder::new()
            .encode_utf8(&[family], &mut self.0)
            .expect("a family with a name and metrics of its own kind can be written");
    }
}

/// The encoder escapes what would break a line; control bytes beside that are ours to stop.
fn metric(labels: &[Label<'_>]) -> Metric {
    let pair = |(name, value): &Label<'_>| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value(printable(value));
        pair
    };
    let mut metric = Metric::default();
    metric.set_label(labels.iter().map(pair).collect());
    metric
}

fn histogram(distribution: &Distribution) -> Histogram {
    let bucket = |(bound_ns, count): &(u64, u64)| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound_ns as f64 / 1e9);
        bucket.set_cumulative_count(*count);
        bucket
    };
    let mut histogram = Histogram::default();
    histogram.set_bucket(distribution.cumulative.iter().map(bucket).collect());
    histogram.set_sample_count(distribution.count);
    histogram.set_sample_sum(distribution.sum_s);
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_written_as_prometheus_reads_it() {
        let mut text = Text::default();
        text.counters("a_total", "Of a.", [([("pool", "web")], 3), ([("pool", "api")], 0)]);
        text.gauges("b", "Of b.", [([], 0.25)]);
        let cumulative = vec![(250, 1), (1_000_000, 2)];
        let times = Distribution { cumulative, count: 3, sum_s: 1.5 };
        text.histograms("c_seconds", "Of c.", [([("shard", "0")], times)]);
        text.counters::<0>("d_total", "Of nothing.", []);
        let expected = "# HELP a_total Of a.\n# TYPE a_total counter\na_total{pool=\"web\"} 3\n\
            a_total{pool=\"api\"} 0\n# HELP b Of b.\n# TYPE b gauge\nb 0.25\n\
            # HELP c_seconds Of c.\n# TYPE c_seconds histogram\n\
            c_seconds_bucket{shard=\"0\",le=\"0.00000025\"} 1\n\
            c_seconds_bucket{shard=\"0\",le=\"0.001\"} 2\n\
            c_seconds_bucket{shard=\"0\",le=\"+Inf\"} 3\n\
            c_seconds_sum{shard=\"0\"} 1.5\nc_seconds_count{shard=\"0\"} 3\n";
        assert_eq!(text.finish(), expected);
    }

    #[test]
    fn control_bytes_quotes_and_line_ends_of_a_name_stay_in_their_label() {
        let mut text = Text::default();
        let nasty = "a\"} 1\nb{c=\"\u{1b}[2J\\\u{9b}\u{202e}";
        text.gauges("x", "X.", [([("pool", nasty)], 1.0)]);
        let text = text.finish();
        assert!(text.is_ascii() && text.lines().count() == 3, "{text:?}");
        let sample = text.lines().last().unwrap();
        let value = r#"a\"} 1\\nb{c=\"\\u{1b}[2J\\\\u{9b}\\u{202e}"#;
        assert_eq!(sample, format!("x{{pool=\"{value}\"}} 1"));
    }
}
