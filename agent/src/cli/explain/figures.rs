//! The figures as JSON: stable keys, times in seconds as numbers.

use serde_json::{Value, json};
use sickbay_core::answer::Course;
use sickbay_core::bound::{Times, failures_to_sick, registers_healthy, registers_needing};
use sickbay_core::plan::Rule;

use super::strip::{register, seconds, word};
use super::{Explained, load};
use crate::fleet::Fleet;

/// From decision to traffic: what the design promises. It is held by the bench, never shown as if
/// it had been measured here.
const DECISION_TO_TRAFFIC_BOUND_S: f64 = 1e-6;

/// Everything.
pub(super) fn json(fleet: &Fleet, explained: &[Explained<'_>]) -> Value {
    let host = load::Host::of(fleet);
    json!({
        "probes": explained.iter().map(probe).collect::<Vec<Value>>(),
        "host": {
            "shards": host.shards,
            "probes_per_second": host.probes_per_second,
            "probes_per_second_worst": host.probes_per_second_worst,
            "sockets_worst": host.sockets_worst,
            "sockets_room": host.sockets_room,
            "memory_bytes": host.memory_bytes,
            "backends_without_a_probe": host.unprobed,
        },
        "decision_to_traffic": {
            "design_bound_s": DECISION_TO_TRAFFIC_BOUND_S,
            "measured_by": "cargo xtask demo",
        },
    })
}

fn probe(explained: &Explained<'_>) -> Value {
    let (answer, probe) = (&explained.answer, explained.probe);
    let failures = failures_to_sick(probe.rule);
    let blind = answer.to_sick.as_ref().filter(|_| failures == Some(1));
    json!({
        "name": probe.name,
        "interval_s": seconds(probe.spec.interval_ns),
        "interval_fast_s": probe.spec.pace.fast_ns.map(seconds),
        "interval_sick_s": probe.spec.pace.sick_ns.map(seconds),
        "jitter_percent": probe.spec.pace.jitter_percent,
        "timeout_s": seconds(probe.spec.timeout_ns),
        "initial": probe.initial,
        "pools": explained.pools,
        "backends": explained.backends,
        "rule": rule(probe.rule),
        "failures_to_sick": failures,
        "failures_tolerated": failures.map(|count| count - 1),
        "goods_to_healthy": probe.rule.goods_to_healthy(),
        "goods_after_fall": answer.goods_after_fall,
        "blind_spot_s": blind.map(|passage| seconds(passage.far[1].times.worst_ns)),
        "time_to_sick_s": answer.to_sick.as_ref().map(|passage| json!({
            "full": failing(&passage.far),
            "boundary": failing(&passage.boundary),
        })),
        "time_to_healthy_s": {
            "empty": answering(&answer.to_healthy.far),
            "boundary": answering(&answer.to_healthy.boundary),
        },
        "first_traffic_s": answering(&answer.first_traffic),
        "by_failures": by_failures(explained),
        "sequence": answer.to_sick.as_ref().map_or_else(Vec::new, |passage| {
            sequence(&passage.far[1])
        }),
        "rehearsed": answer.is_rehearsed,
        "load": explained.load.as_ref().map(|load| json!({
            "address": load.address.to_string(),
            "probes_per_second": load.probes_per_second,
            "probes_per_second_worst": load.probes_per_second_worst,
            "request_bytes_per_second": load.request_bytes_per_second,
            "request_bytes_per_second_worst": load.request_bytes_per_second_worst,
        })),
    })
}

fn rule(rule: Rule) -> Value {
    match rule {
        Rule::Window { window, threshold } => json!({ "window": window, "threshold": threshold }),
        Rule::Consecutive { fall, rise } => json!({ "fall": fall, "rise": rise }),
    }
}

fn failing([refused, timed_out]: &[Course; 2]) -> Value {
    json!({ "refused": times(refused.times), "timed_out": times(timed_out.times) })
}

fn answering([at_once, whole_timeout]: &[Course; 2]) -> Value {
    json!({ "at_once": times(at_once.times), "whole_timeout": times(whole_timeout.times) })
}

fn times(times: Times) -> Value {
    json!({
        "worst": seconds(times.worst_ns),
        "typical": seconds(times.typical_ns),
        "best": seconds(times.best_ns),
    })
}

fn by_failures(explained: &Explained<'_>) -> Vec<Value> {
    let rows = explained.by_failures.iter();
    rows.map(|(failures, courses)| {
        json!({
            "failures": failures,
            "register": register(&courses[0].before),
            "refused": times(courses[0].times),
            "timed_out": times(courses[1].times),
            "share_of_healthy_registers": share(explained.probe.rule, *failures),
        })
    })
    .collect()
}

/// Of the registers that are healthy, the part that turns sick at exactly that many failures.
#[expect(clippy::cast_precision_loss, reason = "a share, of some digits")]
pub(super) fn share(rule: Rule, failures: u32) -> Option<f64> {
    let all = registers_healthy(rule);
    (0 < all).then(|| registers_needing(rule, failures) as f64 / all as f64)
}

fn sequence(course: &Course) -> Vec<Value> {
    let steps = course.steps.iter();
    steps
        .map(|step| {
            json!({
                "start_s": seconds(step.started_ns),
                "end_s": seconds(step.ended_ns),
                "good": step.good,
                "verdict": word(step.verdict),
            })
        })
        .collect()
}
