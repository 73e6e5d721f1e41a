//! `sickbay backend list -j`: the JSON of varnishadm's `backend.list -j`, for its readers.
//!
//! `[3, [the command's words], time, {"pool.backend": {…}, …}]`. Registers are JSON numbers as with
//! Varnish, which most readers take for doubles, exact to 2^53 only: `-o json` has them as text.

use serde_json::{Map, Value, json};

use crate::control::view::{Admin, BackendView, ProbeState, RuleView};
use crate::graph;

/// Version of Varnish's format.
const VERSION: u32 = 3;

/// The whole answer; `words` are the command's, `now_unix_ms` the time of the answer.
pub(super) fn answer(
    views: &[BackendView],
    probes: bool,
    words: &[String],
    now_unix_ms: u64,
) -> Value {
    let backends: Map<String, Value> =
        views.iter().map(|view| (view.name.clone(), backend(view, probes))).collect();
    json!([VERSION, words, seconds(now_unix_ms), backends])
}

/// The words of varnishadm's command for what was asked.
pub(super) fn words(probes: bool, pattern: Option<&str>) -> Vec<String> {
    let mut words = vec!["backend.list".to_owned(), "-j".to_owned()];
    if probes {
        words.push("-p".to_owned());
    }
    words.extend(pattern.map(str::to_owned));
    words
}

fn backend(view: &BackendView, probes: bool) -> Value {
    let span = view.rule.map_or(0, |rule| graph::span(rule.into()));
    let mut shown = json!({
        "type": "backend",
        "admin_health": match view.admin {
            Admin::Auto if view.rule.is_none() => "healthy",
            Admin::Auto => "probe",
            Admin::Healthy => "healthy",
            Admin::Sick => "sick",
        },
        "probe_message": [view.good, span, health(view)],
    });
    if probes {
        shown["probe_details"] =
            view.rule.map_or_else(|| json!({}), |rule| details(view, rule, span));
    }
    shown["last_change"] = seconds(view.last_change_unix_ms.unwrap_or(0));
    shown
}

fn details(view: &BackendView, rule: RuleView, span: u8) -> Value {
    let bits = view.registers;
    let threshold = match rule {
        RuleView::Window { threshold, .. } => threshold,
        RuleView::Consecutive { rise, .. } => rise,
    };
    json!({
        "bits_4": bits.bits_4,
        "bits_6": bits.bits_6,
        "bits_U": bits.bits_unix,
        "bits_x": bits.bits_err_xmit,
        "bits_X": bits.bits_good_xmit,
        "bits_r": bits.bits_err_recv,
        "bits_R": bits.bits_good_recv,
        "bits_H": bits.bits_happy,
        "good": view.good,
        "threshold": threshold,
        "window": span,
    })
}

/// Varnish has two words: what has no first verdict is sick, and what is unknown is what it takes.
const fn health(view: &BackendView) -> &'static str {
    match view.state {
        ProbeState::Healthy => "healthy",
        ProbeState::Unknown if view.takes_new => "healthy",
        ProbeState::Unknown | ProbeState::Sick | ProbeState::Warming => "sick",
    }
}

fn seconds(unix_ms: u64) -> Value {
    json!(unix_ms as f64 / 1e3)
}
