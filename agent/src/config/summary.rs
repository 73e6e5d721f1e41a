//! What a configuration amounts to: counts, load, and how long a dead backend goes unnoticed.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;
use sickbay_core::answer::{Answer, Course, Question, by_pace};
use sickbay_core::bound;
use sickbay_core::plan::{Nanos, Pace, ProbeSpec};

use super::time::{seconds, shown};
use crate::address::Host;
use crate::fleet::{AllSick, Fleet, Probe, Service};
use crate::kernel::Sizes;
use crate::kernel::memory::map_bytes;
use crate::kernel::syscall::possible_cpu_count;

/// The figures of a validated configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Services.
    pub services: usize,
    /// Pools.
    pub pools: usize,
    /// Backends, all pools together.
    pub backends: usize,
    /// Targets: what is probed; pools that ask the same of an address share one.
    pub targets: usize,
    /// Probes per second that this host sends.
    pub probes_per_second: f64,
    /// The largest number of probes per second that one address gets.
    pub probes_per_second_per_address_max: f64,
    /// Slots of all tables together.
    pub table_slots: u64,
    /// What each service takes, and where its flows go.
    pub steered: Vec<ServiceSummary>,
    /// Kernel memory that the maps take on this machine when they are full, in bytes.
    pub map_memory_bytes: u64,
    /// The CPUs it was reckoned for: counters are kept for each.
    pub cpus: u32,
    /// The figures of each probe that a pool uses.
    pub probes: Vec<ProbeSummary>,
}

/// A service, as it will be steered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServiceSummary {
    /// Name.
    pub name: String,
    /// What it takes: `198.51.100.1 port 80 tcp`.
    pub traffic: String,
    /// `observe` or `dsr`.
    pub mode: String,
    /// Its pool.
    pub pool: String,
    /// Its backup pool.
    pub backup: Option<String>,
    /// `open`, `drop` or `reset`.
    pub all_sick: String,
    /// When its pool panics, in percent: below which share, and until which; `None` = never.
    pub panic_percent: Option<(u8, u8)>,
}

/// The figures of one probe.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProbeSummary {
    /// Name.
    pub name: String,
    /// Worst time from a backend's death to its verdict, in seconds.
    pub time_to_sick_s_max: f64,
    /// Worst time from a backend's recovery to its verdict, in seconds.
    pub time_to_healthy_s_max: f64,
}

impl Summary {
    pub(super) fn of(fleet: &Fleet) -> Self {
        let rates = rates(fleet);
        let is_used = |index: usize| fleet.pools.iter().any(|pool| pool.probes.contains(&index));
        // Without /sys, which every Linux that steers has, for one.
        let cpus = possible_cpu_count().unwrap_or(1);
        let sizes = Sizes::of(fleet, shards(fleet));
        let used = fleet.probes.iter().enumerate().filter(|(index, _)| is_used(*index));
        Self {
            services: fleet.services.len(),
            pools: fleet.pools.len(),
            backends: fleet.backends.len(),
            targets: fleet.targets.len(),
            probes_per_second: rounded(rate(fleet)),
            probes_per_second_per_address_max: rounded(
                rates.values().map(|load| load.rate).fold(0.0, f64::max),
            ),
            table_slots: u64::from(sizes.slots),
            steered: fleet.services.iter().map(|each| ServiceSummary::of(fleet, each)).collect(),
            map_memory_bytes: map_bytes(&sizes, cpus),
            cpus,
            probes: used.map(|(_, probe)| ProbeSummary::of(probe)).collect(),
        }
    }
}

impl ServiceSummary {
    fn of(fleet: &Fleet, service: &Service) -> Self {
        let pool = &fleet.pools[service.pool];
        // Nobody else looks at it.
        let panic = pool.panic.filter(|_| service.all_sick == AllSick::Open);
        Self {
            name: service.name.clone(),
            traffic: service.traffic.to_string(),
            mode: service.mode.word().to_owned(),
            pool: pool.name.clone(),
            backup: service.backup.map(|backup| fleet.pools[backup.pool].name.clone()),
            all_sick: service.all_sick.word().to_owned(),
            panic_percent: panic.map(|panic| (panic.below_percent, panic.end_percent)),
        }
    }
}

impl fmt::Display for ServiceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, traffic, mode, pool, backup, all_sick, panic_percent } = self;
        write!(f, "service {name}: {traffic} to pool {pool}")?;
        if let Some(backup) = backup {
            write!(f, ", then {backup}")?;
        }
        write!(f, "; {mode}; all sick: {all_sick}")?;
        if let Some((below, end)) = panic_percent {
            write!(f, ", and from below {below} % until {end} %")?;
        }
        Ok(())
    }
}

impl ProbeSummary {
    fn of(probe: &Probe) -> Self {
        Self {
            name: probe.name.clone(),
            time_to_sick_s_max: seconds(time_to_sick_ns_max(probe)),
            time_to_healthy_s_max: seconds(time_to_healthy_ns_max(probe)),
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {}, {}, {}; {} probes/s",
            counted(self.services, "service"),
            counted(self.pools, "pool"),
            counted(self.backends, "backend"),
            counted(self.targets, "target"),
            self.probes_per_second,
        )?;
        for probe in &self.probes {
            write!(f, "; {} sick within {} s", probe.name, probe.time_to_sick_s_max)?;
        }
        let megabytes = self.map_memory_bytes.div_ceil(1_000_000);
        write!(f, "; maps of {megabytes} MB for {}", counted(self.cpus as usize, "CPU"))
    }
}

/// The load on one address, all pools together.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Probes per second while all is well.
    pub rate: f64,
    /// The same while every target is at its quickest pace.
    pub rate_worst: f64,
    /// Bytes of requests per second while all is well; what TCP and IP add is not in it.
    pub request_bytes_per_second: f64,
    /// The same at the quickest pace.
    pub request_bytes_per_second_worst: f64,
    /// Targets at it.
    pub targets: usize,
    /// Of its targets, the probe with the shortest interval: an index into [`Fleet::probes`].
    pub quickest: usize,
}

/// The load on each address, all its ports together.
#[must_use]
pub fn rates(fleet: &Fleet) -> HashMap<Host, Load> {
    let mut rates: HashMap<Host, Load> = HashMap::with_capacity(fleet.targets.len());
    for target in &fleet.targets {
        let interval_ns = fleet.probes[target.probe].spec.interval_ns;
        let load = rates
            .entry(target.address.host())
            .or_insert(Load { quickest: target.probe, ..Load::default() });
        let rate = 1.0 / seconds(interval_ns);
        let rate_worst = 1.0 / seconds(interval_ns_min(&fleet.probes[target.probe].spec));
        let request_bytes = target.request.len() as f64;
        load.rate += rate;
        load.rate_worst += rate_worst;
        load.request_bytes_per_second += rate * request_bytes;
        load.request_bytes_per_second_worst += rate_worst * request_bytes;
        load.targets += 1;
        if interval_ns < fleet.probes[load.quickest].spec.interval_ns {
            load.quickest = target.probe;
        }
    }
    rates
}

/// The shortest of a probe's intervals: its pace at the quickest.
fn interval_ns_min(spec: &ProbeSpec) -> Nanos {
    let Pace { fast_ns, sick_ns, .. } = spec.pace;
    [fast_ns, sick_ns].into_iter().flatten().fold(spec.interval_ns, Nanos::min)
}

/// Probes per second that this host sends while every target is at its quickest pace.
#[must_use]
pub fn rate_worst(fleet: &Fleet) -> f64 {
    let each = |target: &crate::fleet::Target| {
        1.0 / seconds(interval_ns_min(&fleet.probes[target.probe].spec))
    };
    fleet.targets.iter().map(each).sum()
}

/// Probes per second that this host sends while all is well.
#[must_use]
pub fn rate(fleet: &Fleet) -> f64 {
    let each =
        |target: &crate::fleet::Target| 1.0 / seconds(fleet.probes[target.probe].spec.interval_ns);
    fleet.targets.iter().map(each).sum()
}

/// Probes in flight when every one of them runs into its timeout, at the quickest pace.
#[must_use]
pub fn in_flight_worst(fleet: &Fleet) -> f64 {
    let share = |target: &crate::fleet::Target| {
        let spec = &fleet.probes[target.probe].spec;
        (seconds(spec.timeout_ns) / seconds(interval_ns_min(spec))).min(1.0)
    };
    fleet.targets.iter().map(share).sum()
}

/// Probing threads; one per CPU that this process may use when the configuration leaves it open.
pub(super) fn shards(fleet: &Fleet) -> u32 {
    let available = || {
        std::thread::available_parallelism()
            .map_or(1, |count| u32::try_from(count.get()).unwrap_or(1))
    };
    if fleet.shards == 0 { available() } else { fleet.shards }
}

/// A rate to three digits behind the point.
#[must_use]
pub fn rounded(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}

/// `1 pool`, `2 pools`.
pub(super) fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The worst time to sick as an operator would write it.
pub(super) fn time_to_sick_shown(probe: &Probe) -> String {
    shown(time_to_sick_ns_max(probe))
}

/// From a backend's death to its verdict at most. Every rule that passes validation finds sickness.
fn time_to_sick_ns_max(probe: &Probe) -> Nanos {
    let passage = answer(probe).to_sick;
    passage.map_or(Nanos::MAX, |passage| worst_ns(&passage.far))
}

/// From a backend's recovery to its verdict at most.
fn time_to_healthy_ns_max(probe: &Probe) -> Nanos {
    worst_ns(&answer(probe).to_healthy.far)
}

/// From the start to the first healthy verdict at most, when every answer takes the whole timeout.
pub(super) fn first_traffic_ns_max(probe: &Probe) -> Nanos {
    worst_ns(&answer(probe).first_traffic)
}

/// The figures of a probe. The closed form has them for nothing; it is held against the prober in
/// tests and whenever `sickbay explain` runs.
fn answer(probe: &Probe) -> Answer {
    let question = question(probe);
    if question.is_closed() { Answer::closed(question) } else { Answer::to(question) }
}

/// What [`Answer`] is asked of a probe.
#[must_use]
pub fn question(probe: &Probe) -> Question<'_> {
    Question { spec: &probe.spec, rule: probe.rule, initial: probe.initial }
}

fn worst_ns(courses: &[Course; 2]) -> Nanos {
    courses[by_pace(bound::Pace::WholeTimeout)].times.worst_ns
}
