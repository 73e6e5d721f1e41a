//! Configurations that are allowed and disappoint: the traps that operators of health probes know.
//! Each is a warning with its line and the way out.

/// Those of services and of the policies of their pools.
mod services;

use std::cmp::Reverse;

use sickbay_core::plan::{Nanos, Rule};

use super::problem::{Report, quoted};
use super::settings::Settings;
use super::summary::{
    counted, first_traffic_ns_max, in_flight_worst, rate, rates, rounded, shards,
    time_to_sick_shown,
};
use super::time::shown;
use crate::fleet::{Fleet, Pool, Probe};

/// A 1-of-1 rule with a longer interval leaves a blind spot that users notice.
const BLIND_INTERVAL_NS_MAX: Nanos = 5_000_000_000;
/// Probes per second on one address that are worth a word.
const ADDRESS_RATE_MAX: f64 = 1.0;
/// Probes per second that one core sends with room to spare; measured: 40,000 to 65,000.
const CORE_RATE_MAX: f64 = 40_000.0;
/// Endings of files that a web server sends without asking the application.
const STATIC_ENDINGS: [&str; 20] = [
    "html",
    "htm",
    "txt",
    "js",
    "css",
    "png",
    "ico",
    "jpg",
    "jpeg",
    "gif",
    "svg",
    "webp",
    "woff",
    "woff2",
    "map",
    "xml",
    "pdf",
    "md",
    "mp4",
    "webmanifest",
];

/// Warns of every trap the fleet runs into.
pub(super) fn warn(settings: &Settings, fleet: &Fleet, report: &mut Report<'_>) {
    for (index, probe) in fleet.probes.iter().enumerate() {
        blind_spot(probe, report);
        long_timeout(probe, report);
        high_initial(settings, probe, report);
        shallow_url(settings, probe, report);
        unused(fleet, index, report);
    }
    late_start(settings, fleet, report);
    shared_initial(fleet, report);
    address_load(fleet, report);
    host_load(fleet, report);
    narrow_flight(fleet, report);
    services::warn(fleet, report);
}

/// One result decides, and the next is far away.
fn blind_spot(probe: &Probe, report: &mut Report<'_>) {
    let key = match probe.rule {
        Rule::Window { window: 1, .. } => "threshold",
        Rule::Consecutive { fall: 1, rise: 1 } => "fall",
        _ => return,
    };
    let interval_ns = probe.spec.interval_ns;
    if interval_ns <= BLIND_INTERVAL_NS_MAX {
        return;
    }
    let problem = format!(
        "1-of-1 with an interval of {}: a backend that dies after a good probe gets traffic for up \
         to {}, and one lost packet makes it sick",
        shown(interval_ns),
        time_to_sick_shown(probe),
    );
    let mend = "let several results decide and probe oftener, such as window = 8, threshold = 3, \
                interval = \"5s\"";
    report.warn(&["probe".into(), probe.name.as_str().into(), key.into()], problem, mend);
}

fn long_timeout(probe: &Probe, report: &mut Report<'_>) {
    let spec = &probe.spec;
    if spec.timeout_ns < spec.interval_ns {
        return;
    }
    let slots = spec.timeout_ns / spec.interval_ns + 1;
    let problem = format!(
        "timeout {} is not below interval {}: probes never overlap, so a backend that does not \
         answer is probed only every {}",
        shown(spec.timeout_ns),
        shown(spec.interval_ns),
        shown(slots * spec.interval_ns),
    );
    let mend = format!("lower timeout below {}, or raise interval", shown(spec.interval_ns));
    report.warn(&["probe".into(), probe.name.as_str().into(), "timeout".into()], problem, mend);
}

/// Varnish clamps it without a word.
fn high_initial(settings: &Settings, probe: &Probe, report: &mut Report<'_>) {
    let Some(given) = settings.probe.get(&probe.name).and_then(|probe| probe.initial) else {
        return;
    };
    let goods = i64::from(probe.rule.goods_to_healthy());
    if given <= goods {
        return;
    }
    let what = match probe.rule {
        Rule::Window { .. } => "threshold",
        Rule::Consecutive { .. } => "rise",
    };
    let problem = format!("initial {given} above {what} {goods} has no effect: {goods} is used");
    let mend = format!("write {goods} to start healthy, {} to start unproven", goods - 1);
    report.warn(&["probe".into(), probe.name.as_str().into(), "initial".into()], problem, mend);
}

/// A page that the web server sends while the application behind it is dead.
fn shallow_url(settings: &Settings, probe: &Probe, report: &mut Report<'_>) {
    let Some(request) = &probe.request else {
        return;
    };
    let path = request.url.split(['?', '#']).next().unwrap_or_default();
    let file = path.rsplit('/').next().unwrap_or_default();
    let ending = file.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let is_static = ending.is_some_and(|ending| STATIC_ENDINGS.contains(&ending.as_str()));
    if path != "/" && !is_static {
        return;
    }
    let given = settings.probe.get(&probe.name).is_some_and(|probe| probe.url.is_some());
    let what = if is_static { "is a static file" } else { "is the front page" };
    let default = if given { "" } else { " (the default)" };
    let problem = format!(
        "{}{default} {what}: it can be answered while the application is broken",
        quoted(&request.url),
    );
    let mend = "probe a URL that does what real requests need, such as \"/healthz\" with a trivial \
                database query";
    report.warn(&["probe".into(), probe.name.as_str().into(), "url".into()], problem, mend);
}

/// Steering that begins before the probes can have spoken.
fn late_start(settings: &Settings, fleet: &Fleet, report: &mut Report<'_>) {
    let used = fleet.pools.iter().flat_map(|pool| &pool.probes).map(|&probe| &fleet.probes[probe]);
    let slowest = used.map(|probe| (first_traffic_ns_max(probe), &probe.name)).max();
    let Some((verdict_ns, name)) = slowest else {
        return;
    };
    if verdict_ns <= fleet.start_timeout_ns || fleet.services.is_empty() {
        return;
    }
    let problem = format!(
        "start_timeout {} ends before a backend can be healthy by probe {name}, which takes up to \
         {}",
        quoted(&settings.agent.start_timeout.0),
        shown(verdict_ns),
    );
    let mend = format!("raise it to \"{}\"", shown(verdict_ns));
    report.warn(&["agent".into(), "start_timeout".into()], problem, mend);
}

fn unused(fleet: &Fleet, index: usize, report: &mut Report<'_>) {
    // Where each backend has its own, a pool's probes are there for those that are added.
    let uses = |pool: &Pool| {
        pool.probes.contains(&index) || pool.own_probes.iter().flatten().any(|own| *own == index)
    };
    if fleet.pools.iter().any(uses) {
        return;
    }
    let name = &fleet.probes[index].name;
    let problem = format!("no pool uses probe {name}");
    report.warn(
        &["probe".into(), name.as_str().into()],
        problem,
        "remove it, or name it in a pool",
    );
}

/// Pools that share targets and assume different pasts.
fn shared_initial(fleet: &Fleet, report: &mut Report<'_>) {
    for pool in &fleet.pools {
        let judged = fleet.backends[pool.backends.clone()].iter().flat_map(|each| &each.judged);
        let lowered = judged.filter_map(|judged| {
            let own = fleet.probes[judged.probe].initial;
            let lowest = fleet.targets[judged.target].initial;
            (lowest < own).then_some((lowest, own))
        });
        let Some((lowest, own)) = lowered.min() else {
            continue;
        };
        let problem = format!(
            "its targets are shared with a pool whose probe has initial {lowest}; that holds for \
             both, not {own}, so backends start sick and need more good probes here"
        );
        let mend = "give both probes the same initial, or accept the slower start";
        report.warn(&["pool".into(), pool.name.as_str().into(), "probe".into()], problem, mend);
    }
}

/// What the probes of all pools together do to a backend.
fn address_load(fleet: &Fleet, report: &mut Report<'_>) {
    let rates = rates(fleet);
    let over = |rate: f64| ADDRESS_RATE_MAX + 1e-9 < rate;
    let busy = rates.iter().filter(|(_, load)| over(load.rate)).count();
    let worst = rates
        .iter()
        .filter(|(_, load)| over(load.rate))
        .max_by(|(a, x), (b, y)| x.rate.total_cmp(&y.rate).then(Reverse(*a).cmp(&Reverse(*b))));
    let Some((address, load)) = worst else { return };
    let others = match busy - 1 {
        0 => String::new(),
        1 => " (and 1 other address gets more than 1/s)".to_owned(),
        others => format!(" (and {others} other addresses get more than 1/s)"),
    };
    let problem = format!(
        "backend address {address} gets {} probes/s from {}{others}, from each host that runs this \
         configuration",
        rounded(load.rate),
        counted(load.targets, "target"),
    );
    let name = fleet.probes[load.quickest].name.as_str();
    let mend = "raise interval, or let pools share a probe, if the backend cannot spare that";
    report.warn(&["probe".into(), name.into(), "interval".into()], problem, mend);
}

fn host_load(fleet: &Fleet, report: &mut Report<'_>) {
    let (rate, shards) = (rate(fleet), shards(fleet));
    if rate <= CORE_RATE_MAX * f64::from(shards) {
        return;
    }
    let problem = format!(
        "{} probes/s are more than {} can send ({CORE_RATE_MAX} each)",
        rounded(rate),
        counted(shards as usize, "probing thread"),
    );
    report.warn(&["agent".into(), "shards".into()], problem, "raise intervals, or use more CPUs");
}

/// Room for every probe when every one of them runs into its timeout.
fn narrow_flight(fleet: &Fleet, report: &mut Report<'_>) {
    let waiting = in_flight_worst(fleet);
    let shards = shards(fleet);
    let room = f64::from(fleet.in_flight) * f64::from(shards);
    if waiting <= room {
        return;
    }
    let problem = format!(
        "if every probe timed out, {waiting:.0} would be in flight at once, and there is room for \
         {room:.0} (in_flight {} on {}): probes would be skipped, and sick backends found later",
        fleet.in_flight,
        counted(shards as usize, "probing thread"),
    );
    let mend =
        format!("raise in_flight to {:.0}, or lower timeout", (waiting / f64::from(shards)).ceil());
    report.warn(&["agent".into(), "in_flight".into()], problem, mend);
}
