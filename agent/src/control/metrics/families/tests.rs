//! Every figure has its family, every family its meaning, and names stay in their labels.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::*;
use crate::control::distribution::Distribution;
use crate::control::figures::{BackendFigures, ServiceFigures};
use crate::control::view::{
    AttachedView, BackendCountersView, GlobalCountersView, ServiceCountersView,
};

/// A view each of whose counters has a number of its own, from `first` on; and how many they are.
fn numbered<V: Default + Serialize + DeserializeOwned>(first: u64) -> (V, usize) {
    let Value::Object(fields) = serde_json::to_value(V::default()).unwrap() else {
        panic!("a view is an object");
    };
    let count = fields.len();
    let numbered: Map<String, Value> =
        fields.into_iter().zip(first..).map(|((name, _), number)| (name, number.into())).collect();
    (serde_json::from_value(numbered.into()).unwrap(), count)
}

fn figures(name: &str) -> Figures {
    let times = Distribution { cumulative: vec![(1_000_000, 2)], count: 2, sum_s: 0.001 };
    Figures {
        version: "1.2.3".to_owned(),
        abi: "1.0".to_owned(),
        instance: name.to_owned(),
        generation: 4,
        warming: 1,
        shards: vec![ShardFigures {
            shard: 3,
            heartbeat_age_s: Some(0.02),
            silent: true,
            targets: 2,
            in_flight: 1,
            in_flight_max: 1024,
            outcomes: vec![("good", "good", 9), ("indeterminate", "no_port", 2)],
            late: 5,
            ring_full: 6,
            enters: 7,
            stray: 8,
            times: Some((times.clone(), times)),
        }],
        pools: vec![PoolFigures {
            name: name.to_owned(),
            states: [0, 3, 1, 0],
            takes_new: 3,
            draining: 1,
            overridden: 1,
            panics: false,
            held: true,
            last_probe_age_s: Some(1.5),
        }],
        services: vec![ServiceFigures {
            name: name.to_owned(),
            pool: name.to_owned(),
            counters: Some(numbered::<ServiceCountersView>(1_000).0),
        }],
        backends: vec![BackendFigures {
            pool: name.to_owned(),
            name: name.to_owned(),
            state: ProbeState::Sick,
            takes_new: false,
            good: 2,
            last_probe_age_s: Some(0.5),
            average_s: 0.25,
            counters: Some(numbered::<BackendCountersView>(2_000).0),
        }],
        attached: vec![AttachedView {
            interface: name.to_owned(),
            program: "xdp".to_owned(),
            mode: "native".to_owned(),
        }],
        packets: Some(numbered::<GlobalCountersView>(3_000).0),
    }
}

fn text_of(figures: &Figures) -> String {
    let mut text = Text::default();
    agent(&mut text, figures);
    journal(&mut text, &Journal::default());
    history(&mut text, StatusView { written: 5, failing: true, ..StatusView::default() });
    process(&mut text, &crate::control::metrics::process::read());
    text.finish()
}

/// Sample by sample, without the meanings.
fn samples(text: &str) -> BTreeMap<&str, &str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.rsplit_once(' ').unwrap()).collect()
}

#[test]
fn figures_stand_under_their_names() {
    let text = text_of(&figures("web"));
    let samples = samples(&text);
    for (sample, value) in [
        ("sickbay_build_info{version=\"1.2.3\",abi=\"1.0\",instance_name=\"web\"}", "1"),
        ("sickbay_probes_total{shard=\"3\",outcome=\"good\",cause=\"good\"}", "9"),
        ("sickbay_probes_total{shard=\"3\",outcome=\"indeterminate\",cause=\"no_port\"}", "2"),
        ("sickbay_probe_duration_seconds_bucket{shard=\"3\",le=\"0.001\"}", "2"),
        ("sickbay_schedule_lateness_seconds_count{shard=\"3\"}", "2"),
        ("sickbay_shard_silent{shard=\"3\"}", "1"),
        ("sickbay_pool_backends{pool=\"web\",state=\"healthy\"}", "3"),
        ("sickbay_pool_backends{pool=\"web\",state=\"sick\"}", "1"),
        ("sickbay_pool_held{pool=\"web\"}", "1"),
        ("sickbay_pool_last_probe_age_seconds{pool=\"web\"}", "1.5"),
        ("sickbay_backend_state{pool=\"web\",backend=\"web\"}", "2"),
        ("sickbay_publish_latency_seconds_count", "0"),
        ("sickbay_history_events_total", "5"),
        ("sickbay_history_failing", "1"),
    ] {
        assert_eq!(samples.get(sample), Some(&value), "{sample}");
    }
}

/// That the count of those in the text is right, the type's own tables cannot say.
#[test]
fn every_counter_of_the_kernel_is_told_once() {
    let text = text_of(&figures("web"));
    let samples = samples(&text);
    let told = |first: u64| {
        let values = samples.values().filter_map(|value| value.parse::<u64>().ok());
        values.filter(|value| (first..first + 500).contains(value)).collect::<Vec<_>>()
    };
    for (first, count) in [
        (1_000, numbered::<ServiceCountersView>(0).1),
        (2_000, numbered::<BackendCountersView>(0).1),
        (3_000, numbered::<GlobalCountersView>(0).1),
    ] {
        let mut told = told(first);
        told.sort_unstable();
        let expected: Vec<u64> = (first..).take(count).collect();
        // 1024 is the room for probes in flight.
        told.retain(|value| *value != 1024);
        assert_eq!(told, expected);
    }
}

#[test]
fn every_family_is_written_once_and_says_what_it_means() {
    let text = text_of(&figures("web"));
    let named = |start: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(start));
        lines.map(|line| line.split(' ').next().unwrap()).collect::<Vec<_>>()
    };
    let (helps, types) = (named("# HELP "), named("# TYPE "));
    assert_eq!(helps, types);
    assert!(50 < types.len(), "{}", types.len());
    let unique: BTreeSet<&str> = types.iter().copied().collect();
    assert_eq!(unique.len(), types.len());
}

#[test]
fn control_bytes_and_markup_of_names_stay_in_their_labels() {
    let plain = text_of(&figures("web"));
    let nasty = text_of(&figures("w\"}\n# TYPE x\u{1b}[2J\\<b>\u{9b}"));
    assert!(nasty.is_ascii(), "{nasty}");
    assert_eq!(nasty.lines().count(), plain.lines().count());
    assert!(!nasty.contains('\u{1b}'));
}

/// What the configuration's manual says of metrics_per_target.
#[test]
fn fifty_thousand_backends_are_some_60_mb_in_13_series_each() {
    const BACKENDS: usize = 50_000;
    let mut figures = figures("web");
    let one = BackendFigures { pool: "web-frontend".to_owned(), ..figures.backends[0].clone() };
    let name = |index: usize| format!("10.0.{}.{}:8080", index >> 8, index & 255);
    figures.backends =
        (0..BACKENDS).map(|index| BackendFigures { name: name(index), ..one.clone() }).collect();
    let text = text_of(&figures);
    let series = text.lines().filter(|line| line.starts_with("sickbay_backend_")).count();
    assert_eq!(series, 13 * BACKENDS);
    let megabytes = text.len() as f64 / 1e6;
    assert!((50.0..70.0).contains(&megabytes), "{megabytes}");
    assert!(text.len() < crate::control::metrics::RESPONSE_BYTES_MAX);
}

#[test]
fn what_is_not_known_is_not_told() {
    let text = text_of(&Figures::default());
    assert!(!text.contains("sickbay_service_") && !text.contains("sickbay_unserved"), "{text}");
    assert!(!text.contains("sickbay_pool_backends") && text.contains("sickbay_build_info"));
}
