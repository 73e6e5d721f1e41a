//! Probes per CPU-second, sickbay's and its peers', all against the synthetic farm on one core.

use std::time::Duration;

use anyhow::Result;
use sickbay_lab::farm::Farm;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::private;

use crate::report::Report;
use bare::Sockets;
use subject::{Subject, Window};
use targets::Kind;

/// A bare loop of linked operations.
mod bare;
/// A plain prober on tokio-uring.
mod baseline;
/// What a target costs in memory.
mod memory;
/// The peers that are programs of their own.
mod peers;
/// sickbay's own engine as a subject.
mod prober;
/// Keeping a schedule.
mod schedule;
/// Who is measured.
mod subject;
/// What is probed.
mod targets;

const METHOD: &str = "Every subject probes the synthetic farm (an XDP program behind a veth) from \
one CPU, alone, at real-time priority; one at a time, in alternating short windows, ratios taken \
within a round, medians over the rounds. Full speed: of sickbay a few percent more is asked than \
it can do. A probe is a fresh connection and, for HTTP, a whole response that the farm gave; its CPU \
time is the subject's user and system time, with the softirqs that run in it, so the TCP stack's and \
the farm's own part are in every subject's figure alike. sickbay's engine closes by RST, as by \
default, and its sink counts and publishes nothing. The bare loop does what the engine asks of the \
kernel and decides nothing, and goes over its targets as spread in memory as a schedule has them; \
beside it one that makes a socket for each probe, as all others do.";

/// Probes in flight of those that keep a number of them.
const IN_FLIGHT: u32 = 128;

/// How much is measured.
struct Extent {
    rounds: usize,
    window: Duration,
    haproxy_servers: u32,
    varnish_backends: u32,
    sizes: &'static [u32],
    schedule_targets: u32,
    schedule_span: Duration,
    memory_targets: u32,
}

impl Extent {
    const fn new(quick: bool) -> Self {
        if quick {
            Self {
                rounds: 3,
                window: Duration::from_millis(300),
                haproxy_servers: 4_000,
                varnish_backends: 400,
                sizes: &[10_000],
                schedule_targets: 10_000,
                schedule_span: Duration::from_secs(2),
                memory_targets: 100_000,
            }
        } else {
            Self {
                rounds: 9,
                window: Duration::from_secs(1),
                haproxy_servers: 15_000,
                varnish_backends: 1_000,
                sizes: &[10_000, 50_000, 200_000],
                schedule_targets: 50_000,
                schedule_span: Duration::from_secs(20),
                memory_targets: 100_000,
            }
        }
    }
}

/// What all parts of the bench need.
struct Stage {
    home: Namespace,
    farm: Farm,
    cpu: usize,
    extent: Extent,
}

/// Runs the workload.
///
/// # Errors
/// When the environment lacks something, or a subject does not do its work.
pub(crate) fn run(quick: bool) -> Result<Report> {
    anyhow::ensure!(
        private::inside(),
        "this bench needs a private environment: `cargo xtask bench`"
    );
    let mut report = Report::new("probe", METHOD);
    report.titles = vec!["subject", "targets", "probes/s", "per CPU-s", "CPU us", "ratio"];
    let cpu = subject::measured_cpu()?;
    let home = Namespace::new("home")?;
    let farm = Farm::new(&home)?;
    let stage = Stage { home, farm, cpu, extent: Extent::new(quick) };
    // First of all, while this process is small.
    memory::measure(&stage, &mut report)?;
    let ceiling = compare(&stage, &mut report)?;
    for kind in [Kind::Http, Kind::Tcp] {
        for count in stage.extent.sizes {
            full_speed(&stage, &mut report, (*count, kind))?;
        }
    }
    schedule::measure(&stage, &mut report, ceiling)?;
    Ok(report)
}

/// sickbay and everyone beside it, by rounds. Returns the bare loop's probes per second.
fn compare(stage: &Stage, report: &mut Report) -> Result<f64> {
    let Stage { home, farm, cpu, extent } = stage;
    let what = (extent.sizes[0], Kind::Http);
    let bare = bare::start(home, *cpu, what, IN_FLIGHT, Sockets::Kept)?;
    let fresh = bare::start(home, *cpu, what, IN_FLIGHT, Sockets::Fresh)?;
    let ceiling = bare.window(farm, extent.window)?.per_cpu_second(false);
    let (own, _) = prober::saturated(stage, what, ceiling)?;
    let tokio = baseline::start(home, *cpu, what, IN_FLIGHT)?;
    // Twice as much as each is known to be able to do.
    let haproxy_ms = (extent.haproxy_servers / 60).max(20);
    let haproxy = peers::haproxy(home, *cpu, extent.haproxy_servers, haproxy_ms)?;
    haproxy.wait_for_requests("HAProxy", farm, u64::from(extent.haproxy_servers))?;
    haproxy.pause()?;
    let varnish_ms = (extent.varnish_backends / 40).max(10);
    let mut varnish = peers::varnishd(home, *cpu, extent.varnish_backends, varnish_ms)?;
    varnish.wait_for_requests("varnishd", farm, u64::from(extent.varnish_backends))?;
    // Only now: its compiler is a child too, for a while.
    varnish.hand_over_to_child()?;
    varnish.pause()?;

    let others: [(&str, &str, &Subject, u32); 5] = [
        ("bare loop", "ratio_bare", &bare, what.0),
        ("bare, new sockets", "ratio_bare_fresh", &fresh, what.0),
        ("tokio-uring", "ratio_tokio_uring", &tokio, what.0),
        ("HAProxy", "ratio_haproxy", &haproxy, extent.haproxy_servers),
        ("varnishd", "ratio_varnish", &varnish, extent.varnish_backends),
    ];
    let mut own_windows = Vec::new();
    let mut windows: [Vec<Window>; 5] = Default::default();
    for _ in 0..extent.rounds {
        own_windows.push(own.window(farm, extent.window)?);
        for (windows, (_, _, subject, _)) in windows.iter_mut().zip(&others) {
            windows.push(subject.window(farm, extent.window)?);
        }
    }
    row(report, "sickbay http", what.0, &own_windows, false, None);
    report.figure("segments_sickbay", segments_per_probe(&own_windows));
    for ((name, figure, _, count), windows) in others.iter().zip(&windows) {
        let ratio = ratio(&own_windows, windows, false);
        row(report, name, *count, windows, false, Some(ratio));
        report.figure(*figure, rounded(ratio));
        report.figure(figure.replace("ratio", "segments"), segments_per_probe(windows));
    }
    promise_ratios(report);
    note_ceiling(report, &windows);
    let ceiling = median(windows[0].iter().map(|it| it.per_cpu_second(false)).collect());
    for subject in [own, bare, fresh, tokio, haproxy, varnish] {
        subject.stop()?;
    }
    Ok(ceiling)
}

/// How many times what HAProxy and varnishd do the bare loop does: nobody can be above that by the
/// kernel's TCP. The windows are those of [`compare`], in its order.
fn note_ceiling(report: &mut Report, [bare, .., haproxy, varnish]: &[Vec<Window>; 5]) {
    let (haproxy, varnish) = (ratio(bare, haproxy, false), ratio(bare, varnish, false));
    report.figure("ratio_bare_to_haproxy", rounded(haproxy));
    report.figure("ratio_bare_to_varnish", rounded(varnish));
    report.notes.push(format!(
        "the bare loop, the price of the TCP stack, does {haproxy:.2} times what HAProxy does, and \
         {varnish:.2} times what varnishd does"
    ));
}

/// Wide margins: what is promised is that nothing is broken, not what a noisy machine measures.
fn promise_ratios(report: &mut Report) {
    for (name, least) in [
        ("ratio_bare", 0.6),
        ("ratio_tokio_uring", 0.8),
        ("ratio_haproxy", 1.3),
        ("ratio_varnish", 1.2),
    ] {
        let ratio = report.figures.get(name).and_then(serde_json::Value::as_f64).unwrap_or(0.0);
        report.promise(least <= ratio, || format!("{name} is {ratio}, below {least}"));
    }
}

/// sickbay at full speed over so many targets, and the bare loop beside it.
fn full_speed(stage: &Stage, report: &mut Report, (count, kind): (u32, Kind)) -> Result<()> {
    let Stage { home, farm, cpu, extent } = stage;
    let bare = bare::start(home, *cpu, (count, kind), IN_FLIGHT, Sockets::Kept)?;
    let ceiling = bare.window(farm, extent.window)?.per_cpu_second(kind.is_tcp());
    let (own, gauge) = prober::saturated(stage, (count, kind), ceiling)?;
    let (mut own_windows, mut bare_windows) = (Vec::new(), Vec::new());
    let mut enters = 0;
    let mut probes = 0;
    for _ in 0..extent.rounds - 1 {
        let before = (gauge.counters.enters(), gauge.counters.probes());
        own_windows.push(own.window(farm, extent.window)?);
        enters += gauge.counters.enters() - before.0;
        probes += gauge.counters.probes() - before.1;
        bare_windows.push(bare.window(farm, extent.window)?);
    }
    let tcp = kind.is_tcp();
    let ratio = ratio(&own_windows, &bare_windows, tcp);
    row(report, &format!("sickbay {}", kind.name()), count, &own_windows, tcp, None);
    row(report, &format!("bare loop {}", kind.name()), count, &bare_windows, tcp, Some(ratio));
    let name = format!("{}_{count}", kind.name());
    let per_second = median(own_windows.iter().map(|it| it.per_cpu_second(tcp)).collect());
    report.figure(format!("probes_per_cpu_second_{name}"), per_second.round());
    report.figure(format!("cpu_us_per_probe_{name}"), rounded(1e6 / per_second));
    report.figure(format!("ratio_bare_{name}"), rounded(ratio));
    let calls = enters as f64 / probes.max(1) as f64;
    report.figure(format!("system_calls_per_probe_{name}"), rounded(calls));
    report
        .promise(calls <= 0.3, || format!("{calls} system calls per probe at full rate ({name})"));
    own.stop()?;
    bare.stop()
}

fn row(
    report: &mut Report,
    name: &str,
    count: u32,
    windows: &[Window],
    tcp: bool,
    ratio: Option<f64>,
) {
    let per_second =
        median(windows.iter().map(|it| it.probes(tcp) as f64 * 1e9 / it.wall_ns as f64).collect());
    let per_cpu_second = median(windows.iter().map(|it| it.per_cpu_second(tcp)).collect());
    let share = median(windows.iter().map(Window::cpu_share).collect());
    if share < 0.7 {
        let percent = (share * 100.0).round();
        report.notes.push(format!("{name} had or used {percent} % of its CPU only"));
    }
    report.rows.push(vec![
        name.to_owned(),
        count.to_string(),
        format!("{per_second:.0}"),
        format!("{per_cpu_second:.0}"),
        format!("{:.2}", 1e6 / per_cpu_second),
        ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
    ]);
}

/// How many times the probes per CPU-second of the second are those of the first: the median of what
/// each round says.
fn ratio(first: &[Window], second: &[Window], tcp: bool) -> f64 {
    let rounds = first.iter().zip(second);
    median(rounds.map(|(a, b)| a.per_cpu_second(tcp) / b.per_cpu_second(tcp)).collect())
}

/// TCP segments that the farm received for a probe.
fn segments_per_probe(windows: &[Window]) -> f64 {
    let segments: u64 = windows.iter().map(|it| it.counts.segments).sum();
    let probes: u64 = windows.iter().map(|it| it.counts.responses).sum();
    rounded(segments as f64 / probes.max(1) as f64)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length.is_multiple_of(2) => f64::midpoint(values[middle - 1], values[middle]),
        _ => values[middle],
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_middle_or_between_the_two() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
