//! From the figures to families: every name and what it means. Names are Prometheus's kind: base
//! units, `_total` for what only grows, one label for what is told apart.

use super::process::Process;
use super::text::Text;
use crate::control::figures::{Figures, PoolFigures, ShardFigures};
use crate::control::history::StatusView;
use crate::control::journal::Journal;
use crate::control::view::ProbeState;

/// What the kernel counts.
mod counters;

/// The agent, its threads, pools, services and backends.
pub(super) fn agent(text: &mut Text, figures: &Figures) {
    let Figures { version, abi, instance, generation, warming, .. } = figures;
    let labels = [("version", version.as_str()), ("abi", abi), ("instance_name", instance)];
    text.gauges(
        "sickbay_build_info",
        "This agent: its version, its maps' layout, its instance. Always 1.",
        [(labels, 1.0)],
    );
    text.gauges(
        "sickbay_board_generation",
        "Which agent's word the maps hold: one more with each start.",
        [([], *generation as f64)],
    );
    text.gauges(
        "sickbay_warming_backends",
        "Backends that have no first verdict yet.",
        [([], f64::from(*warming))],
    );
    text.gauges(
        "sickbay_attached",
        "Programs on interfaces. Always 1.",
        figures.attached.iter().map(|it| {
            let labels = [
                ("interface", it.interface.as_str()),
                ("program", it.program.as_str()),
                ("mode", it.mode.as_str()),
            ];
            (labels, 1.0)
        }),
    );
    shards(text, &figures.shards);
    pools(text, &figures.pools);
    counters::packets(text, figures.packets);
    counters::services(text, &figures.services);
    backends(text, figures);
    counters::backends(text, &figures.backends);
}

fn shards(text: &mut Text, shards: &[ShardFigures]) {
    let names: Vec<String> = shards.iter().map(|shard| shard.shard.to_string()).collect();
    let each = || names.iter().map(String::as_str).zip(shards);
    text.counters(
        "sickbay_probes_total",
        "Probes by what they say of the backend (good, bad, indeterminate: nothing, this host is to \
         blame) and why.",
        each().flat_map(|(name, shard)| {
            shard.outcomes.iter().map(move |(outcome, cause, count)| {
                ([("shard", name), ("outcome", *outcome), ("cause", *cause)], *count)
            })
        }),
    );
    let (probe, lateness): (Vec<_>, Vec<_>) = each()
        .filter_map(|(name, shard)| {
            let (probe, lateness) = shard.times.clone()?;
            Some((([("shard", name)], probe), ([("shard", name)], lateness)))
        })
        .unzip();
    text.histograms(
        "sickbay_probe_duration_seconds",
        "From a probe's start to its end, of those that say something.",
        probe,
    );
    text.histograms(
        "sickbay_schedule_lateness_seconds",
        "From the moment a probe was due to its start.",
        lateness,
    );
    let mut counter = |name: &str, help: &str, of: fn(&ShardFigures) -> u64| {
        text.counters(name, help, each().map(|(name, shard)| ([("shard", name)], of(shard))));
    };
    counter("sickbay_late_probes_total", "Probes that started more than 20 ms late.", |it| it.late);
    counter(
        "sickbay_ring_full_total",
        "Times that the ring was full, so that it was submitted early.",
        |it| it.ring_full,
    );
    counter("sickbay_ring_enters_total", "System calls to submit and to wait.", |it| it.enters);
    counter(
        "sickbay_ring_stray_completions_total",
        "Completions that belonged to no probe; anything but 0 is a bug.",
        |it| it.stray,
    );
    let mut gauge = |name: &str, help: &str, of: fn(&ShardFigures) -> Option<f64>| {
        let samples = each().filter_map(|(name, shard)| Some(([("shard", name)], of(shard)?)));
        text.gauges(name, help, samples);
    };
    gauge("sickbay_shard_targets", "Targets that the thread probes.", |it| {
        Some(f64::from(it.targets))
    });
    gauge("sickbay_probes_in_flight", "Probes in flight.", |it| Some(f64::from(it.in_flight)));
    gauge("sickbay_probes_in_flight_max", "Probes that may be in flight.", |it| {
        Some(f64::from(it.in_flight_max))
    });
    gauge("sickbay_shard_heartbeat_age_seconds", "Since the thread's last sign of life.", |it| {
        it.heartbeat_age_s
    });
    gauge(
        "sickbay_shard_silent",
        "1 when the thread gives no sign of life, so that its verdicts are getting old.",
        |it| Some(f64::from(u8::from(it.silent))),
    );
}

fn pools(text: &mut Text, pools: &[PoolFigures]) {
    text.gauges(
        "sickbay_pool_backends",
        "Backends by what their probes say.",
        pools.iter().flat_map(|pool| {
            ProbeState::ALL.into_iter().map(|state| {
                let labels = [("pool", pool.name.as_str()), ("state", state.word())];
                (labels, f64::from(pool.states[state as usize]))
            })
        }),
    );
    let mut gauge = |name: &str, help: &str, of: fn(&PoolFigures) -> Option<f64>| {
        let samples = pools.iter().filter_map(|it| Some(([("pool", it.name.as_str())], of(it)?)));
        text.gauges(name, help, samples);
    };
    gauge(
        "sickbay_pool_backends_taking_new_flows",
        "Backends that the kernel gives new flows.",
        |it| Some(it.takes_new as f64),
    );
    gauge("sickbay_pool_backends_draining", "Backends that drain or have left.", |it| {
        Some(f64::from(it.draining))
    });
    gauge(
        "sickbay_pool_backends_overridden",
        "Backends over whose probes an operator's word stands.",
        |it| Some(f64::from(it.overridden)),
    );
    gauge("sickbay_pool_panics", "1 when too few of the pool take new flows.", |it| {
        Some(f64::from(u8::from(it.panics)))
    });
    gauge("sickbay_pool_held", "1 when the guard holds the pool's last verdicts.", |it| {
        Some(f64::from(u8::from(it.held)))
    });
    gauge(
        "sickbay_pool_last_probe_age_seconds",
        "Since the last probe that said something, of the backend for which that is longest ago.",
        |it| it.last_probe_age_s,
    );
}

fn backends(text: &mut Text, figures: &Figures) {
    let each = || {
        figures
            .backends
            .iter()
            .map(|it| ([("pool", it.pool.as_str()), ("backend", it.name.as_str())], it))
    };
    text.gauges(
        "sickbay_backend_takes_new_flows",
        "1 when the kernel gives it new flows.",
        each().map(|(labels, it)| (labels, f64::from(u8::from(it.takes_new)))),
    );
    text.gauges(
        "sickbay_backend_state",
        "What its probes say: 0 warming, 1 healthy, 2 sick, 3 unknown.",
        each().map(|(labels, it)| (labels, f64::from(it.state as u8))),
    );
    text.gauges(
        "sickbay_backend_good_results",
        "Good ones of the results that its rule looks at.",
        each().map(|(labels, it)| (labels, f64::from(it.good))),
    );
    text.gauges(
        "sickbay_backend_last_probe_age_seconds",
        "Since its last probe that said something.",
        each().filter_map(|(labels, it)| Some((labels, it.last_probe_age_s?))),
    );
    text.gauges(
        "sickbay_backend_probe_average_seconds",
        "Moving average over its good probes.",
        each().map(|(labels, it)| (labels, it.average_s)),
    );
}

/// What became of verdicts.
pub(super) fn journal(text: &mut Text, journal: &Journal) {
    let tally = journal.tally();
    text.counters(
        "sickbay_transitions_total",
        "Verdicts that changed, by what they changed to.",
        tally.pools().flat_map(|(pool, counts)| {
            let sample = move |state: ProbeState| {
                ([("pool", pool), ("to", state.word())], counts[state as usize])
            };
            ProbeState::ALL.map(sample)
        }),
    );
    text.counters(
        "sickbay_transitions_dropped_total",
        "Transitions that stand in no log and no history: more came at once than are taken.",
        [([], journal.dropped())],
    );
    text.histograms(
        "sickbay_publish_latency_seconds",
        "From the moment that the loop took a result up to the store of the verdict it changed into \
         the kernel's map.",
        [([], journal.publish_latency().read())],
    );
}

/// The history on disk.
pub(super) fn history(text: &mut Text, status: StatusView) {
    let StatusView { written, lost, errors, bytes, failing } = status;
    let mut counter = |name: &str, help: &str, value| text.counters(name, help, [([], value)]);
    counter("sickbay_history_events_total", "Events written to the history.", written);
    counter(
        "sickbay_history_events_lost_total",
        "Events that are missing in it, because it could not be written for too long.",
        lost,
    );
    counter("sickbay_history_write_errors_total", "Times that writing it failed.", errors);
    text.gauges("sickbay_history_bytes", "What its files take.", [([], bytes as f64)]);
    text.gauges(
        "sickbay_history_failing",
        "1 while it cannot be written.",
        [([], f64::from(u8::from(failing)))],
    );
}

/// The process.
pub(super) fn process(text: &mut Text, process: &Process) {
    let Process { open_fds, max_fds, resident_bytes, cpu_s, started_s } = *process;
    let mut gauge = |name: &str, help: &str, value: Option<f64>| {
        text.gauges(name, help, value.map(|value| ([], value)));
    };
    let number = |value: Option<u64>| value.map(|value| value as f64);
    gauge("process_open_fds", "Open descriptors.", number(open_fds));
    gauge("process_max_fds", "Descriptors that may be open.", number(max_fds));
    gauge("process_resident_memory_bytes", "Resident memory.", number(resident_bytes));
    gauge("process_start_time_seconds", "When it started, since the epoch.", started_s);
    if let Some(cpu_s) = cpu_s {
        text.seconds_counter("process_cpu_seconds_total", "CPU time, user and system.", cpu_s);
    }
}

#[cfg(test)]
mod tests;
