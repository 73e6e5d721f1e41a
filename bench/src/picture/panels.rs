//! From the benches' figures to panels. What is not there is not drawn.

use serde_json::Value;

/// One diagram.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    /// What it shows.
    pub(super) title: String,
    /// How to read it, with the unit.
    pub(super) unit: String,
    /// The diagram itself.
    pub(super) body: Body,
    /// Lines under it.
    pub(super) notes: Vec<String>,
}

/// The kinds of diagrams.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// Lengths beside each other.
    Bars {
        /// From above to below.
        bars: Vec<Bar>,
        /// Whether a step to the right is a factor of ten.
        is_logarithmic: bool,
        /// A line at this value.
        reference: Option<f64>,
    },
    /// Shares of samples (0 to 100 %) over time in ms.
    Curves {
        /// Drawn over each other, the last on top.
        curves: Vec<Curve>,
        /// A line at this time, and what it is called.
        limit: Option<(f64, String)>,
    },
}

/// One length.
#[derive(Clone, Debug)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) value: f64,
    /// What stands at its end.
    pub(super) text: String,
    /// Whether it is sickbay's, not a peer's.
    pub(super) is_ours: bool,
}

/// One distribution.
#[derive(Clone, Debug)]
pub(super) struct Curve {
    pub(super) label: String,
    /// Values at even shares from 0 to 100 %.
    pub(super) quantiles: Vec<f64>,
    /// Whether it is sickbay's, not a peer's.
    pub(super) is_ours: bool,
}

type Maker = fn(&Value) -> Option<Panel>;

/// The panels for which there are figures.
pub(super) fn of(benches: &[Value]) -> Vec<Panel> {
    // High ones stand beside high ones.
    let makers: [(&str, Maker); 4] =
        [("converge", converge), ("steer", steer), ("probe", probe), ("publish", publish)];
    let panels = makers.iter().flat_map(|(name, make)| {
        benches.iter().filter(move |bench| bench["bench"] == *name).filter_map(make)
    });
    panels.collect()
}

fn converge(bench: &Value) -> Option<Panel> {
    let mut curves = Vec::new();
    let mut notes = Vec::new();
    for (key, name) in [("haproxy", "HAProxy"), ("sickbay", "sickbay")] {
        let side = &bench[key];
        let Some(quantiles) = side["death_to_last_quantiles_ms"].as_array() else { continue };
        let quantiles: Vec<f64> = quantiles.iter().filter_map(Value::as_f64).collect();
        if quantiles.len() < 2 {
            continue;
        }
        let label = match side["death_to_last_ms"]["p50"].as_f64() {
            Some(p50) => format!("{name}, p50 {} ms", shown(p50)),
            None => name.to_owned(),
        };
        curves.push(Curve { label, quantiles, is_ours: key == "sickbay" });
        notes.extend(after_verdict(name, side));
    }
    notes.reverse();
    let limit = bench["promise_refused_ms"].as_f64();
    let count = |key: &str| bench[key].as_u64().map_or("?".to_owned(), |count| count.to_string());
    let unit = format!(
        "share of {} deaths each; a probe every {} ms, sick after {} bad in a row",
        count("deaths"),
        count("interval_ms"),
        count("fall")
    );
    (!curves.is_empty()).then_some(Panel {
        title: "From a backend's death to its last new connection".to_owned(),
        unit,
        body: Body::Curves { curves, limit: limit.map(|ms| (ms, "explain's promise".to_owned())) },
        notes,
    })
}

fn after_verdict(name: &str, side: &Value) -> Option<String> {
    let (max, gap) = (side["verdict_to_last_us"]["max"].as_f64()?, side["gap_us"].as_f64()?);
    let last = match max {
        max if max <= 0.0 => "none".to_owned(),
        max => format!("the latest {} µs", shown(max)),
    };
    Some(format!("{name}: {last} after the verdict (one came every {} µs)", shown(gap)))
}

fn probe(bench: &Value) -> Option<Panel> {
    let peers = [
        ("ratio_bare", "bare io_uring loop"),
        ("ratio_tokio_uring", "tokio-uring"),
        ("ratio_haproxy", "HAProxy"),
        ("ratio_varnish", "varnishd"),
    ];
    let bar = |(key, name): &(&str, &str)| {
        let value = bench[*key].as_f64()?;
        let (label, text) = ((*name).to_owned(), format!("{} ×", shown(value)));
        Some(Bar { label, value, text, is_ours: true })
    };
    bars(Panel {
        title: "Fresh HTTP probes for a second of CPU, beside peers".to_owned(),
        unit: "sickbay's over the peer's in the same run; the line is 1 ×".to_owned(),
        body: Body::Bars {
            bars: peers.iter().filter_map(bar).collect(),
            is_logarithmic: false,
            reference: Some(1.0),
        },
        notes: Vec::new(),
    })
}

fn steer(bench: &Value) -> Option<Panel> {
    let paths = [
        ("not_vip", "not for a VIP"),
        ("syn_first", "SYN, first choice"),
        ("syn_diverted", "SYN, diverted"),
        ("syn_diverted_entered", "SYN, diverted, entered"),
        ("established", "established"),
        ("established_entry", "established, entry"),
        ("udp", "UDP"),
        ("drop", "dropped"),
    ];
    let mut all = Vec::new();
    for (path, label) in paths {
        let sides = [(format!("{path}_v4_ns"), true), (format!("usual_{path}_v4_ns"), false)];
        for (key, is_ours) in sides {
            if let Some(value) = bench[key].as_f64() {
                let label = if is_ours { label } else { "… the usual way" }.to_owned();
                all.push(Bar { label, value, text: format!("{} ns", shown(value)), is_ours });
            }
        }
    }
    bars(Panel {
        title: "Steering, a packet".to_owned(),
        unit: "ns a packet over the wrapper's own floor, IPv4".to_owned(),
        body: Body::Bars { bars: all, is_logarithmic: false, reference: None },
        notes: Vec::new(),
    })
}

fn publish(bench: &Value) -> Option<Panel> {
    let ways = [
        ("publish", "sickbay: one store", true),
        ("update", "map update call", false),
        ("batch", "whole table in batches", false),
    ];
    let bar = |(key, label, is_ours): &(&str, &str, bool)| {
        let value = bench[format!("{key}_p50_ns")].as_f64()?;
        let text = match bench[format!("{key}_p99_ns")].as_f64() {
            Some(p99) => format!("{}, p99 {}", time(value), time(p99)),
            None => time(value),
        };
        Some(Bar { label: (*label).to_owned(), value, text, is_ours: *is_ours })
    };
    bars(Panel {
        title: "From a verdict to the first packet steered by it".to_owned(),
        unit: "on another CPU, p50; each line is ten times the one before".to_owned(),
        body: Body::Bars {
            bars: ways.iter().filter_map(bar).collect(),
            is_logarithmic: true,
            reference: None,
        },
        notes: Vec::new(),
    })
}

/// A panel of bars, when it has any.
fn bars(panel: Panel) -> Option<Panel> {
    let has_some = matches!(&panel.body, Body::Bars { bars, .. } if !bars.is_empty());
    has_some.then_some(panel)
}

/// A time in its own unit.
pub(super) fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{} ns", shown(ns)),
        ns if ns < 1e6 => format!("{} µs", shown(ns / 1e3)),
        ns => format!("{} ms", shown(ns / 1e6)),
    }
}

/// A number with three digits or more; thousands apart.
fn shown(value: f64) -> String {
    let digits = match value.abs() {
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.digits$}");
    let (whole, _) = text.split_once('.').unwrap_or((&text, ""));
    let first = whole.len() - whole.trim_start_matches('-').len();
    let mut apart = text.clone();
    let mut place = whole.len();
    while first + 3 < place {
        place -= 3;
        apart.insert(place, ',');
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.934, 6.4, 41.52, 141.25, 1333.0, 1_234_567.0, -1234.5].map(shown);
        assert_eq!(shown, ["0.93", "6.40", "41.5", "141", "1,333", "1,234,567", "-1,234"]);
    }

    #[test]
    fn times_have_their_own_unit() {
        let times = [112.0, 2300.0, 2_345_678.0].map(time);
        assert_eq!(times, ["112 ns", "2.30 µs", "2.35 ms"]);
    }
}
