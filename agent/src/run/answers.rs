//! The running agent as its control plane sees it: reads the board, the kernel's counters and the
//! shards; hands an operator's word to the shard that owns the backend.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use sickbay_core::command::{Arrival, Outcome, Phase, StatusLine};
use sickbay_core::plan::{Compat, ProbeSpec};
use sickbay_core::register::HAPPY;
use sickbay_core::text::OutcomeText;
use sickbay_shared::abi::{BackendCounters, STATE_HEALTHY, TargetRecord};

use super::members::{Members, Shown};
use super::parts::{Lasting, Parts};
use crate::board::coarse_now_ns;
use crate::confine::{Confined, Privilege};
use crate::control::drops::{DropView, Drops};
use crate::control::pattern::Pattern;
use crate::control::said::now_unix_ms;
use crate::control::view::{
    Admin, AttachedView, BackendView, FlowEntriesView, PercentilesView, PrivilegeView, ProbeState,
    ServiceView, ShardView, SourceView, StatusView,
};
use crate::discovery::{Blackboard, Sourced};
use crate::engine::monotonic_now;
use crate::fleet::{Backend, Fleet, Pool, Probe, Service, shown_network};
use crate::graph;
use crate::guard::{GuardView, Guards};
use crate::kernel::{Attached, AttachedMode, Explainer};
use crate::membership::Membership;

/// Dropped packets and held verdicts.
mod evidence;
/// What it does, in numbers.
mod figures;
/// What would become of a flow's packet.
mod flow;

/// What [`Host`] is answered from.
pub(super) struct Answers {
    parts: Arc<Parts>,
    members: Members,
    started: Instant,
    attached: RwLock<Vec<Attached>>,
    guards: Option<Arc<Guards>>,
    drops: Arc<Drops>,
    confined: Arc<OnceLock<Confined>>,
    /// Counted last, and when: whoever asks, the maps are walked through once a second at most.
    flow_entries: Mutex<Option<(Instant, Vec<FlowEntriesView>)>>,
    /// Loaded when it is first asked, out of the object.
    explainer: Mutex<Option<Explainer>>,
    object: Arc<Cow<'static, [u8]>>,
}

impl Answers {
    /// Answers for these parts; nothing runs and nothing is attached yet.
    #[must_use]
    pub(super) fn new(parts: Arc<Parts>, pools: Vec<Membership>, lasting: &Lasting) -> Self {
        let guards = Guards::new(&parts.fleet()).map(Arc::new);
        let members = Members::new(Arc::clone(&parts), pools, guards.clone());
        Self {
            parts,
            members,
            started: lasting.started,
            attached: RwLock::new(Vec::new()),
            guards,
            drops: Arc::clone(&lasting.drops),
            confined: Arc::clone(&lasting.confined),
            flow_entries: Mutex::default(),
            explainer: Mutex::new(None),
            object: Arc::clone(&lasting.object),
        }
    }

    /// Who belongs to the pools.
    pub(super) const fn members(&self) -> &Members {
        &self.members
    }

    /// Steering is attached.
    pub(super) fn set_attached(&self, attached: Vec<Attached>) {
        *self.attached.write().unwrap_or_else(PoisonError::into_inner) = attached;
    }

    fn is_attached(&self) -> bool {
        !self.attached.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn attached_views(&self) -> Vec<AttachedView> {
        let attached = self.attached.read().unwrap_or_else(PoisonError::into_inner);
        attached.iter().map(attached_view).collect()
    }

    fn backend_view(
        &self,
        fleet: &Fleet,
        backend: &Backend,
        counters: Option<BackendCounters>,
        (shown, clocks): (&Shown, &Clocks),
    ) -> BackendView {
        let (record, probe) = self.telling(fleet, backend);
        let pool = &fleet.pools[backend.pool];
        let rule = probe.map(|probe| probe.rule);
        let (word, health_said) = shown.words.get(&backend.index).cloned().unzip();
        let (standing, until_ns) = shown.standings.get(&backend.index).copied().unwrap_or_default();
        let before = shown.counted_before.get(&backend.index).copied().unwrap_or_default();
        BackendView {
            name: format!("{}.{}", pool.name, backend.name),
            pool: pool.name.clone(),
            address: backend.address.to_string(),
            weight: backend.weight,
            index: backend.index,
            admin: Admin::from(word.unwrap_or_default()),
            health_said,
            drain_said: shown.drains.get(&backend.index).cloned(),
            standing,
            standing_until_unix_ms: until_ns.map(|until_ns| clocks.unix_ms_to_come(until_ns)),
            state: ProbeState::from_board(record.state).unwrap_or(ProbeState::Unknown),
            takes_new: self.parts.board.takes_new(backend.index),
            good: rule.map_or(0, |rule| graph::good_count(record.registers[HAPPY], rule)),
            rule: rule.map(Into::into),
            registers: record.registers.into(),
            average_s: record.average_s,
            last_s: f64::from(record.last_us) / 1e6,
            last_change_unix_ms: clocks.unix_ms(record.changed_ns),
            last_change_ns: record.changed_ns,
            cause: probe.map_or_else(String::new, |probe| cause_text(&record, &probe.spec)),
            origin: backend.origin.to_string(),
            counters: counters.map(|counters| since(counters, before).into()),
        }
    }

    /// The record that says how a backend is, with its probe: of several the first one whose state
    /// is the worst, since all must be healthy. Without any probe it is healthy.
    fn telling<'a>(
        &self,
        fleet: &'a Fleet,
        backend: &Backend,
    ) -> (TargetRecord, Option<&'a Probe>) {
        let rank = |record: &TargetRecord| match ProbeState::from_board(record.state) {
            Some(ProbeState::Sick) => 0,
            Some(ProbeState::Unknown) | None => 1,
            Some(ProbeState::Warming) => 2,
            Some(ProbeState::Healthy) => 3,
        };
        let records = backend.judged.iter().map(|judged| {
            let target = u32::try_from(judged.target).expect("targets are counted in u32");
            let record = self.parts.board.read_target(target).unwrap_or_default();
            (record, Some(&fleet.probes[judged.probe]))
        });
        records.min_by_key(|(record, _)| rank(record)).unwrap_or_else(|| {
            let mut record = TargetRecord { state: STATE_HEALTHY, ..TargetRecord::default() };
            record.registers[HAPPY] = u64::MAX;
            record.changed_ns = self.parts.unprobed.changed_ns(backend.index);
            (record, None)
        })
    }

    /// Backends of a pool that take new flows.
    fn pool_count(&self, pool: usize) -> u32 {
        u32::try_from(self.parts.board.pool_count(index_of(pool))).unwrap_or(u32::MAX)
    }

    /// A service; `member_counts` by pool.
    fn service_view(
        &self,
        fleet: &Fleet,
        index: u32,
        service: &Service,
        member_counts: &[usize],
    ) -> ServiceView {
        let pool = &fleet.pools[service.pool];
        let counters = &self.parts.counters;
        let counters = self.is_attached().then(|| counters.service(index).ok()).flatten();
        let backup = service.backup.map(|backup| backup.pool);
        let total =
            |pool: usize| u32::try_from(member_counts[pool]).expect("backends are counted in u32");
        ServiceView {
            name: service.name.clone(),
            address: shown_network(service.traffic.network),
            ports: service.traffic.ports.to_string(),
            protocol: service.traffic.protocol.to_string(),
            pool: pool.name.clone(),
            backup: backup.map(|backup| fleet.pools[backup].name.clone()),
            mode: service.mode.word().to_owned(),
            all_sick: service.all_sick.word().to_owned(),
            healthy: self.pool_count(service.pool),
            total: total(service.pool),
            panics: self.parts.board.pool_panics(index_of(service.pool)),
            backup_healthy: backup.map_or(0, |backup| self.pool_count(backup)),
            backup_total: backup.map_or(0, total),
            slots: service.slot_count,
            attached: self.attached_views(),
            counters: counters.map(Into::into),
        }
    }
}

/// What the control plane asks.
impl Answers {
    pub(super) fn backends(&self, pattern: Option<&Pattern>) -> Vec<BackendView> {
        let fleet = self.parts.fleet();
        let indices = self.parts.board.header().backend_count;
        let counters = &self.parts.counters;
        let counters = self.is_attached().then(|| counters.backends(indices).ok()).flatten();
        let (shown, clocks) = (self.members.shown(), Clocks::read());
        let wanted = |backend: &&Backend| {
            let pool = &fleet.pools[backend.pool].name;
            pattern.is_none_or(|pattern| pattern.matches(pool, &backend.name))
        };
        let view = |backend: &Backend| {
            let own = counters.as_ref().and_then(|all| all.get(backend.index as usize)).copied();
            self.backend_view(&fleet, backend, own, (&shown, &clocks))
        };
        fleet.backends.iter().filter(wanted).map(view).collect()
    }

    pub(super) fn services(&self) -> Vec<ServiceView> {
        let (fleet, counts) = (self.parts.fleet(), self.members.counts());
        let services = (0..).zip(&fleet.services);
        let view =
            |(index, service): (u32, &Service)| self.service_view(&fleet, index, service, &counts);
        services.map(view).collect()
    }

    /// What was given up.
    pub(super) fn configured_privilege(&self) -> Privilege {
        self.parts.fleet().privilege.clone()
    }

    pub(super) fn status(&self, board: &Blackboard) -> StatusView {
        let now_ns = coarse_now_ns();
        let shards = self.parts.with_shards(|shards| {
            let views = (0..).zip(shards.counters()).map(|(shard, counters)| ShardView {
                shard,
                heartbeat_age_ms: match self.parts.board.last_beat_ns(shard) {
                    0 => None,
                    beat_ns => Some(now_ns.saturating_sub(beat_ns) / 1_000_000),
                },
                targets: shards.target_count(shard as usize),
                in_flight: counters.in_flight(),
                probes: counters.probes(),
                ring_restricted: counters.ring_restricted(),
            });
            (views.collect::<Vec<_>>(), shards.warming_count())
        });
        let (shards, warming_count) = shards.unwrap_or_default();
        StatusView {
            instance: self.parts.fleet().instance.clone(),
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: self.started.elapsed().as_secs_f64(),
            generation: self.parts.board.header().generation,
            shards,
            attached: self.attached_views(),
            warming_count,
            healthy_count: self.parts.healthy_count(),
            backend_count: u32::try_from(self.members.counts().iter().sum::<usize>())
                .expect("backends are counted in u32"),
            transitions_dropped: self.parts.journal.dropped(),
            verdict_to_kernel_ns: None,
            lateness_us: self.lateness_us(),
            flow_entries: if self.is_attached() { self.flow_entries() } else { Vec::new() },
            packets: self
                .is_attached()
                .then(|| self.parts.counters.global().ok())
                .flatten()
                .map(Into::into),
            privilege: PrivilegeView::of_this_process(
                self.confined.get().and_then(|confined| confined.landlock_abi),
            ),
            sources: sources(&self.parts.fleet(), board),
        }
    }

    pub(super) fn guard_views(&self) -> Vec<GuardView> {
        self.guards.as_ref().map_or_else(Vec::new, |guards| guards.views(monotonic_now()))
    }

    pub(super) fn drops(&self, after: u64) -> Vec<DropView> {
        self.drops.since(after)
    }

    fn lateness_us(&self) -> Option<PercentilesView> {
        let snapshots = self.parts.with_shards(|shards| shards.snapshot())?.ok()?;
        let mut all = snapshots.first()?.histograms.lateness_ns.clone();
        for snapshot in &snapshots[1..] {
            all.add(&snapshot.histograms.lateness_ns).ok()?;
        }
        Some(PercentilesView {
            p50: all.value_at_quantile(0.50) / 1000,
            p99: all.value_at_quantile(0.99) / 1000,
            max: all.max() / 1000,
            count: all.len(),
        })
    }
}

/// What each pool follows, and how that stands.
fn sources(fleet: &Fleet, board: &Blackboard) -> Vec<SourceView> {
    let view = |pool: &Pool, sourced: &Sourced| {
        let standing = board.standing(&sourced.source).unwrap_or_default();
        let (fault, fault_unix_ms) = standing.fault.unzip();
        SourceView {
            pool: pool.name.clone(),
            source: sourced.source.to_string(),
            backends: standing.answer.map(|answer| answer.len() as u64),
            answered_unix_ms: standing.answered_unix_ms,
            fault,
            fault_unix_ms,
        }
    };
    fleet.pools.iter().flat_map(|pool| pool.sources.iter().map(move |it| view(pool, it))).collect()
}

/// A pool's index in the maps.
fn index_of(pool: usize) -> u32 {
    u32::try_from(pool).expect("pools are counted in u32")
}

/// One moment on both clocks.
struct Clocks {
    monotonic_ns: u64,
    unix_ms: u64,
}

impl Clocks {
    fn read() -> Self {
        Self { monotonic_ns: monotonic_now(), unix_ms: now_unix_ms() }
    }

    /// The wall clock's time of a monotonic stamp; 0 is none.
    fn unix_ms(&self, stamp_ns: u64) -> Option<u64> {
        let age_ms = self.monotonic_ns.saturating_sub(stamp_ns) / 1_000_000;
        (stamp_ns != 0).then(|| self.unix_ms.saturating_sub(age_ms))
    }

    /// The wall clock's time of a monotonic moment that is to come; now when it has passed.
    fn unix_ms_to_come(&self, moment_ns: u64) -> u64 {
        self.unix_ms.saturating_add(moment_ns.saturating_sub(self.monotonic_ns) / 1_000_000)
    }
}

/// What was counted since an index had been counted up to `before`.
fn since(counters: BackendCounters, before: BackendCounters) -> BackendCounters {
    BackendCounters {
        steered_packets: counters.steered_packets.wrapping_sub(before.steered_packets),
        steered_bytes: counters.steered_bytes.wrapping_sub(before.steered_bytes),
        new_flows: counters.new_flows.wrapping_sub(before.new_flows),
        skipped: counters.skipped.wrapping_sub(before.skipped),
        diverted_in: counters.diverted_in.wrapping_sub(before.diverted_in),
        unresolved: counters.unresolved.wrapping_sub(before.unresolved),
        reset: counters.reset.wrapping_sub(before.reset),
        moved_away: counters.moved_away.wrapping_sub(before.moved_away),
    }
}

/// What the last probe came to. The board keeps neither the response's line nor the time of a
/// probe that failed, so their texts are shorter than the journal's.
fn cause_text(record: &TargetRecord, probe: &ProbeSpec) -> String {
    let Some(outcome) = Outcome::from_number(record.cause, record.detail) else {
        return String::new();
    };
    if outcome == Outcome::Truncated && probe.compat.is_varnish() {
        return "Timed out while the response was coming".to_owned();
    }
    if let Outcome::TimedOut { phase } = outcome {
        let doing = match phase {
            Phase::Socket | Phase::Connect => "connecting",
            Phase::Send => "sending the request",
            Phase::Receive => "waiting for the response",
        };
        return format!("Timed out {doing}");
    }
    OutcomeText {
        outcome,
        line: StatusLine::EMPTY,
        arrival: Arrival::default(),
        timeout_ns: probe.timeout_ns,
        duration_ns: probe.timeout_ns,
        // Varnish's text would be the line alone.
        compat: Compat::Off,
    }
    .to_string()
}

fn attached_view(attached: &Attached) -> AttachedView {
    let (program, mode) = match attached.mode {
        AttachedMode::XdpNative => ("xdp", "native"),
        AttachedMode::XdpGeneric => ("xdp", "generic"),
        AttachedMode::Tcx => ("tc", "tcx"),
        AttachedMode::Clsact => ("tc", "clsact"),
    };
    AttachedView {
        interface: attached.interface.clone(),
        program: program.to_owned(),
        mode: mode.to_owned(),
    }
}
