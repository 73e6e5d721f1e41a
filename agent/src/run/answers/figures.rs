//! The running agent in numbers.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sickbay_core::register::HAPPY;
use sickbay_shared::abi::ABI_VERSION;

use super::super::layout::HEARTBEAT_LIMIT_NS;
use super::{Answers, index_of, since};
use crate::board::coarse_now_ns;
use crate::control::distribution::{Distribution, PROBE_BOUNDS_NS};
use crate::control::figures::{BackendFigures, Figures, PoolFigures, ServiceFigures, ShardFigures};
use crate::control::members::StandingView;
use crate::control::view::ProbeState;
use crate::engine::{Counters, OutcomeKind, monotonic_now};
use crate::fleet::{Backend, Fleet};
use crate::graph;
use crate::run::members::Shown;

/// How long all shards together are waited for. Each answers within a tick, unless it hangs.
const TIMES_WAIT: Duration = Duration::from_millis(500);

impl Answers {
    /// See [`Host::figures`](crate::control::host::Host::figures).
    pub(in crate::run) fn figures_now(&self, per_backend: bool) -> Figures {
        let fleet = self.parts.fleet();
        let shown = self.members.shown();
        let mut pools = self.pools(&fleet);
        let backends = self.backends_of(&fleet, &shown, &mut pools, per_backend);
        let attached = self.is_attached();
        let counters = &self.parts.counters;
        let services = (0..).zip(&fleet.services).map(|(index, service)| ServiceFigures {
            name: service.name.clone(),
            pool: fleet.pools[service.pool].name.clone(),
            counters: attached.then(|| counters.service(index).ok()).flatten().map(Into::into),
        });
        Figures {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            abi: format!("{}.{}", ABI_VERSION >> 16, ABI_VERSION & 0xffff),
            instance: fleet.instance.clone(),
            generation: self.parts.board.header().generation,
            warming: self.parts.with_shards(|shards| shards.warming_count()).unwrap_or(0),
            shards: self.shards(&fleet),
            services: services.collect(),
            backends,
            pools,
            attached: self.attached_views(),
            packets: attached.then(|| counters.global().ok()).flatten().map(Into::into),
        }
    }

    fn shards(&self, fleet: &Fleet) -> Vec<ShardFigures> {
        let now_ns = coarse_now_ns();
        // The lock is not held while they are waited for: the main thread wants it too.
        let asked = self.parts.with_shards(|shards| {
            let figures = shards.counters().enumerate().map(|(shard, counters)| {
                let targets = shards.target_count(shard);
                let beat_ns = self.parts.board.last_beat_ns(index_of(shard));
                shard_figures(counters, (shard, targets, fleet.in_flight), (beat_ns, now_ns))
            });
            (figures.collect::<Vec<_>>(), shards.ask_snapshots())
        });
        let Some((mut figures, answers)) = asked else {
            return Vec::new();
        };
        let limit = Instant::now() + TIMES_WAIT;
        while let Ok(snapshot) = answers.recv_deadline(limit) {
            let of = |histogram| Distribution::of(histogram, PROBE_BOUNDS_NS);
            let histograms = &snapshot.histograms;
            figures[snapshot.shard].times =
                Some((of(&histograms.probe_ns), of(&histograms.lateness_ns)));
        }
        figures
    }

    fn pools(&self, fleet: &Fleet) -> Vec<PoolFigures> {
        let held = self.guards.as_ref().map_or_else(Vec::new, |it| it.views(monotonic_now()));
        let held: HashSet<String> = held.into_iter().map(|view| view.pool).collect();
        let board = &self.parts.board;
        let pool = |(index, pool): (u32, &crate::fleet::Pool)| PoolFigures {
            name: pool.name.clone(),
            takes_new: board.pool_count(index),
            panics: board.pool_panics(index),
            held: held.contains(&pool.name),
            ..PoolFigures::default()
        };
        (0..).zip(&fleet.pools).map(pool).collect()
    }

    /// Sums the backends up in their pools; those themselves only when they are wanted.
    fn backends_of(
        &self,
        fleet: &Fleet,
        shown: &Shown,
        pools: &mut [PoolFigures],
        wanted: bool,
    ) -> Vec<BackendFigures> {
        let count = self.parts.board.header().backend_count;
        let counted = (wanted && self.is_attached())
            .then(|| self.parts.counters.backends(count).ok())
            .flatten();
        let now_ns = monotonic_now();
        let mut all = Vec::with_capacity(if wanted { fleet.backends.len() } else { 0 });
        for backend in &fleet.backends {
            let (record, probe) = self.telling(fleet, backend);
            let state = ProbeState::from_board(record.state).unwrap_or(ProbeState::Unknown);
            let last_probe_age_s = self.last_probe_age_s(backend, now_ns);
            let pool = &mut pools[backend.pool];
            pool.states[state as usize] += 1;
            let (standing, _) = shown.standings.get(&backend.index).copied().unwrap_or_default();
            pool.draining += u32::from(standing != StandingView::Member);
            pool.overridden += u32::from(shown.words.contains_key(&backend.index));
            if pool.last_probe_age_s < last_probe_age_s {
                pool.last_probe_age_s = last_probe_age_s;
            }
            if !wanted {
                continue;
            }
            let rule = probe.map(|probe| probe.rule);
            let own = counted.as_ref().and_then(|all| all.get(backend.index as usize)).copied();
            let before = shown.counted_before.get(&backend.index).copied().unwrap_or_default();
            all.push(BackendFigures {
                pool: pool.name.clone(),
                name: backend.name.clone(),
                state,
                takes_new: self.parts.board.takes_new(backend.index),
                good: rule.map_or(0, |rule| graph::good_count(record.registers[HAPPY], rule)),
                last_probe_age_s,
                average_s: record.average_s,
                counters: own.map(|own| since(own, before).into()),
            });
        }
        all
    }

    /// Of a backend of several targets, of the one for which it is longest ago.
    fn last_probe_age_s(&self, backend: &Backend, now_ns: u64) -> Option<f64> {
        let last = backend.judged.iter().filter_map(|judged| {
            let record = self.parts.board.read_target(index_of(judged.target))?;
            (record.last_result_ns != 0).then_some(record.last_result_ns)
        });
        last.min().map(|last_ns| now_ns.saturating_sub(last_ns) as f64 / 1e9)
    }
}

fn shard_figures(
    counters: &Counters,
    (shard, targets, in_flight_max): (usize, u32, u32),
    (beat_ns, now_ns): (u64, u64),
) -> ShardFigures {
    let outcome = |kind: OutcomeKind| (kind.verdict(), kind.name(), counters.outcomes(kind));
    ShardFigures {
        shard,
        heartbeat_age_s: (beat_ns != 0).then(|| now_ns.saturating_sub(beat_ns) as f64 / 1e9),
        silent: beat_ns != 0 && beat_ns + HEARTBEAT_LIMIT_NS <= now_ns,
        targets,
        in_flight: counters.in_flight(),
        in_flight_max,
        outcomes: OutcomeKind::ALL.map(outcome).into(),
        late: counters.late(),
        ring_full: counters.ring_full(),
        enters: counters.enters(),
        stray: counters.stray(),
        times: None,
    }
}
