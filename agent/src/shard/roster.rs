//! Backends that join a running shard, and part from it.

use std::collections::HashMap;
use std::sync::Arc;

use sickbay_core::command::Override;
use sickbay_core::plan::{JudgeIndex, JudgeSpec, OnUnknown, Rule, TargetIndex, TargetSpec};
use sickbay_core::prober::Prober;

use super::{ShardPlan, split};
use crate::engine::{Endpoint, Engine, Sink};
use crate::fleet::{Backend, Fleet};
use crate::membership::Standing;

/// A backend that is to join a shard.
#[derive(Clone, Debug)]
pub struct Joining {
    /// Its index.
    pub backend: u32,
    /// Its pool's.
    pub pool: u32,
    /// `pool.backend`.
    pub name: Arc<str>,
    /// What is probed of it, at least one.
    pub judged: Vec<Judged>,
}

/// What is probed of a backend, and how it is judged.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Index into [`Fleet::targets`], and on the board.
    pub target: u32,
    /// What to probe, unless the shard does already.
    pub spec: TargetSpec,
    /// Where it is.
    pub endpoint: Endpoint,
    /// The rule.
    pub rule: Rule,
    /// What becomes of the verdict when the target turns unknown.
    pub on_unknown: OnUnknown,
    /// The target's probes per 1000 s.
    pub rate: u64,
}

/// A backend that has joined.
#[derive(Clone, Copy, Debug)]
pub struct Joined<'a> {
    /// Which.
    pub joining: &'a Joining,
    /// Its judges and their targets, in the order of [`Joining::judged`].
    pub seats: &'a [(JudgeIndex, TargetIndex)],
}

/// Who is told of the backends behind the judges: a shard's [`Sink`]. One that knows of judges
/// alone passes them by.
pub trait Roster {
    /// A backend joined; none of its changes was told yet.
    fn on_joined(&mut self, _prober: &Prober, _joined: &Joined<'_>) {}
    /// A backend parted: its judges are no more, and neither are these targets.
    fn on_parted(&mut self, _judges: &[JudgeIndex], _targets: &[TargetIndex]) {}
    /// What flows a backend may have, whatever its probes say. `judge` is its first.
    fn on_standing(&mut self, _prober: &Prober, _judge: JudgeIndex, _standing: Standing) {}
    /// An operator's word over a backend was set or taken back, whether its verdict changed or not.
    /// `judge` is its first.
    fn on_override(&mut self, _prober: &Prober, _judge: JudgeIndex) {}
}

impl Joining {
    /// The backend, which has a probe, as its shard is told of it.
    #[must_use]
    pub fn of(fleet: &Fleet, backend: &Backend) -> Self {
        let number = |count: usize| u32::try_from(count).expect("indices are u32");
        let pool = &fleet.pools[backend.pool];
        let judged = backend.judged.iter().map(|it| {
            let probed = &fleet.targets[it.target];
            let judge = &fleet.probes[it.probe];
            Judged {
                target: number(it.target),
                spec: split::target_spec(probed),
                endpoint: split::endpoint(fleet, it.target),
                rule: judge.rule,
                on_unknown: judge.on_unknown,
                rate: split::rate(fleet.probes[probed.probe].spec.interval_ns),
            }
        });
        Self {
            backend: backend.index,
            pool: number(backend.pool),
            name: format!("{}.{}", pool.name, backend.name).into(),
            judged: judged.collect(),
        }
    }
}

/// The backends of one shard, by their indices outside and inside of it.
#[derive(Debug)]
pub(super) struct Roll {
    /// By backend: its judges, each with the fleet's target.
    backends: HashMap<u32, Vec<(JudgeIndex, u32)>>,
    /// By index of the fleet's target.
    targets: HashMap<u32, TargetIndex>,
}

impl Roll {
    pub(super) fn of(plan: &ShardPlan) -> Self {
        let number = |count: usize| u32::try_from(count).expect("indices are u32");
        let mut backends: HashMap<u32, Vec<(JudgeIndex, u32)>> = HashMap::new();
        for (judge, (backend, spec)) in (0..).zip(plan.owned.iter().zip(&plan.plan.judges)) {
            let target = number(plan.targets[spec.target.0 as usize]);
            backends.entry(*backend).or_default().push((JudgeIndex(judge), target));
        }
        let targets = (0..).zip(&plan.targets);
        let targets = targets.map(|(own, target)| (number(*target), TargetIndex(own))).collect();
        Self { backends, targets }
    }

    /// The judges of a backend.
    fn judges(&self, backend: u32) -> impl Iterator<Item = JudgeIndex> + '_ {
        self.backends.get(&backend).into_iter().flatten().map(|(judge, _)| *judge)
    }

    /// Has all of them join, or none when there is no room; whether they did.
    pub(super) fn join_all<S: Sink + Roster>(
        &mut self,
        engine: &mut Engine<S>,
        joining: &[Joining],
    ) -> bool {
        for (count, one) in joining.iter().enumerate() {
            if !self.join(engine, one) {
                joining[..count].iter().for_each(|one| self.part(engine, one.backend));
                return false;
            }
        }
        true
    }

    fn join<S: Sink + Roster>(&mut self, engine: &mut Engine<S>, joining: &Joining) -> bool {
        let mut seats = Vec::with_capacity(joining.judged.len());
        for judged in &joining.judged {
            let Judged { spec, rule, endpoint, on_unknown, .. } = judged;
            let known = self.targets.get(&judged.target).copied();
            let Some(target) = known.or_else(|| engine.add_target(spec, *rule, endpoint)) else {
                self.forget(engine, joining.backend);
                return false;
            };
            self.targets.insert(judged.target, target);
            let spec = JudgeSpec { target, rule: *rule, on_unknown: *on_unknown };
            let Some(judge) = engine.add_judge(&spec) else {
                self.remove_if_unjudged(engine, judged.target);
                self.forget(engine, joining.backend);
                return false;
            };
            seats.push((judge, target));
            self.backends.entry(joining.backend).or_default().push((judge, judged.target));
        }
        engine.tell(|sink, prober| sink.on_joined(prober, &Joined { joining, seats: &seats }));
        true
    }

    pub(super) fn part<S: Sink + Roster>(&mut self, engine: &mut Engine<S>, backend: u32) {
        let judges: Vec<JudgeIndex> = self.judges(backend).collect();
        let targets = self.forget(engine, backend);
        if !judges.is_empty() {
            engine.tell(|sink, _| sink.on_parted(&judges, &targets));
        }
    }

    pub(super) fn set_override<S: Sink + Roster>(
        &self,
        engine: &mut Engine<S>,
        backend: u32,
        word: Override,
    ) {
        self.judges(backend).for_each(|judge| engine.on_override(judge, word));
        if let Some(judge) = self.judges(backend).next() {
            engine.tell(|sink, prober| sink.on_override(prober, judge));
        }
    }

    pub(super) fn set_standing<S: Sink + Roster>(
        &self,
        engine: &mut Engine<S>,
        backend: u32,
        standing: Standing,
    ) {
        if let Some(judge) = self.judges(backend).next() {
            engine.tell(|sink, prober| sink.on_standing(prober, judge, standing));
        }
    }

    /// Removes a backend's judges, and the targets that nobody else judges.
    fn forget<S: Sink>(&mut self, engine: &mut Engine<S>, backend: u32) -> Vec<TargetIndex> {
        let seats = self.backends.remove(&backend).unwrap_or_default();
        let mut removed = Vec::new();
        for (judge, target) in seats {
            engine.remove_judge(judge);
            removed.extend(self.remove_if_unjudged(engine, target));
        }
        removed
    }

    fn remove_if_unjudged<S: Sink>(
        &mut self,
        engine: &mut Engine<S>,
        target: u32,
    ) -> Option<TargetIndex> {
        let index = *self.targets.get(&target)?;
        if engine.prober().judges_of(index).next().is_some() {
            return None;
        }
        self.targets.remove(&target);
        engine.remove_target(index);
        Some(index)
    }
}
