//! From the core's changes to the board: what each probing thread does with what its engine tells.
//!
//! In: [`Change`]s, [`Report`]s, ticks. Out: verdict bits, target records, heartbeats, and
//! transitions for the journal. The bit comes first: everything else can wait for it.

/// What is told of verdicts that the guard holds.
mod guarded;
/// Backends that join and part.
mod roster;

use std::collections::HashMap;
use std::sync::Arc;

use sickbay_core::command::{Change, ChangeCause, Outcome, Override, Report, Verdict};
use sickbay_core::plan::{
    Compat, JudgeIndex, Nanos, OnUnknown, ProbeSpec, Rule, TargetIndex, TargetSpec,
};
use sickbay_core::prober::{History, Prober};
use sickbay_core::register::HAPPY;
use sickbay_core::text::OutcomeText;
use sickbay_core::verdict;
use sickbay_shared::abi::{STATE_HEALTHY, STATE_SICK, STATE_UNKNOWN, STATE_WARMING, TargetRecord};

use crate::board::{Bits, Board};
use crate::control::journal::{Journal, Transition, Why};
use crate::control::polls::Poll;
use crate::control::view::ProbeState;
use crate::engine::{Sink, monotonic_now};
use crate::fleet::Fleet;
use crate::graph;
use crate::guard::Guards;
use crate::membership::Standing;
use crate::shard::ShardPlan;

use self::guarded::Guarded;
use self::roster::bench;

/// One shard's way to the board. It writes the bits of its own backends and the records of its own
/// targets, and nobody else does.
#[derive(Debug)]
pub struct Publisher {
    board: Arc<Board>,
    journal: Arc<Journal>,
    shard: u32,
    /// By the judge's index; `None` where there is none.
    seats: Vec<Option<Seat>>,
    /// Of the backends that have several judges; by the first one.
    benches: HashMap<u32, Bench>,
    /// By the target's index; `None` where there is none.
    subjects: Vec<Option<Subject>>,
    /// Per probe, what is told of it.
    manners: Box<[Manner]>,
    guarded: Option<Guarded>,
    /// Transitions that wait for the report of the probe that caused them, for its text.
    waiting: Vec<(TargetIndex, Transition)>,
}

/// The backend that a judge speaks for.
#[derive(Debug)]
struct Seat {
    name: Arc<str>,
    backend: u32,
    pool: u32,
    target: TargetIndex,
    rule: Rule,
    on_unknown: OnUnknown,
    /// The backend's first judge.
    leader: u32,
    /// Whether the probes said so after the last one.
    healthy: bool,
    /// What flows the backend may have, whatever its probes say.
    standing: Standing,
}

impl Seat {
    /// Backend, pool and first judge, as the guard knows them.
    const fn about(&self) -> (u32, u32, JudgeIndex) {
        (self.backend, self.pool, JudgeIndex(self.leader))
    }
}

/// A backend with several judges.
#[derive(Debug)]
struct Bench {
    judges: Vec<u32>,
    /// What they said together last.
    said: Verdict,
}

/// A target as it stands on the board.
#[derive(Clone, Copy, Debug)]
struct Subject {
    /// Its index on the board.
    index: u32,
    identity: u128,
    manner: Manner,
    /// When the verdict that its record shows last changed.
    changed_ns: Nanos,
}

/// What a text about a probe needs to know of it.
#[derive(Clone, Copy, Debug)]
struct Manner {
    timeout_ns: Nanos,
    compat: Compat,
}

impl Publisher {
    /// The publisher of shard `shard`, which probes `plan`.
    ///
    /// # Panics
    ///
    /// When plan and fleet do not belong together.
    #[must_use]
    pub fn new(
        board: Arc<Board>,
        journal: Arc<Journal>,
        fleet: &Fleet,
        shard: u32,
        plan: &ShardPlan,
        guards: Option<Arc<Guards>>,
    ) -> Self {
        let guarded = guards.map(Guarded::new);
        let manner = |probe: &ProbeSpec| {
            let ProbeSpec { timeout_ns, compat, .. } = *probe;
            Manner { timeout_ns, compat }
        };
        let manners: Box<[Manner]> = plan.plan.probes.iter().map(manner).collect();
        let subject = |(&index, target): (&usize, &TargetSpec)| {
            Some(Subject {
                index: u32::try_from(index).expect("targets are counted in u32"),
                identity: target.identity,
                manner: manners[target.probe.0 as usize],
                changed_ns: changed_ns(&board, index, target.identity),
            })
        };
        let room = plan.plan.room;
        let mut subjects = Vec::with_capacity(plan.targets.len() + room.targets as usize);
        subjects.extend(plan.targets.iter().zip(&plan.plan.targets).map(subject));
        let mut leaders: HashMap<usize, u32> = HashMap::with_capacity(plan.judges.len());
        let mut benches = HashMap::new();
        let mut seats = Vec::with_capacity(plan.judges.len() + room.judges as usize);
        for ((judge, backend), spec) in (0..).zip(&plan.judges).zip(&plan.plan.judges) {
            let leader = *leaders.entry(*backend).or_insert(judge);
            if leader != judge {
                bench(&mut benches, leader, judge);
            }
            let backend = &fleet.backends[*backend];
            let pool = &fleet.pools[backend.pool].name;
            seats.push(Some(Seat {
                name: format!("{pool}.{}", backend.name).into(),
                backend: backend.index,
                pool: u32::try_from(backend.pool).expect("pools are counted in u32"),
                target: spec.target,
                rule: spec.rule,
                on_unknown: spec.on_unknown,
                leader,
                healthy: false,
                standing: Standing::Full,
            }));
        }
        let waiting = Vec::new();
        Self { board, journal, shard, seats, benches, subjects, manners, guarded, waiting }
    }

    fn seat(&self, judge: JudgeIndex) -> &Seat {
        self.seats[judge.0 as usize].as_ref().expect("a judge that is told of has a seat")
    }

    fn subject(&self, target: TargetIndex) -> &Subject {
        self.subjects[target.0 as usize].as_ref().expect("a target that is told of was made known")
    }

    /// The judges of a backend; `leader` is the first.
    fn judges(&self, leader: u32) -> impl Iterator<Item = JudgeIndex> + '_ {
        let several = self.benches.get(&leader).map(|bench| bench.judges.iter().copied());
        let alone = several.is_none().then_some(leader);
        several.into_iter().flatten().chain(alone).map(JudgeIndex)
    }

    /// What all judges of a backend say together; `leader` is its first.
    fn verdict(&self, prober: &Prober, leader: u32) -> Verdict {
        verdict::all(self.judges(leader).map(|judge| prober.verdict(judge)))
    }

    /// Whether a backend is sick, and its probes say so themselves.
    fn is_sick_by_probes(&self, prober: &Prober, leader: u32) -> bool {
        let found = self.judges(leader).map(|judge| prober.probed_verdict(judge));
        self.verdict(prober, leader) == Verdict::Sick && verdict::all(found) == Verdict::Sick
    }

    /// Whether an operator says sick, or silence does where it condemns. Neither is held.
    fn is_condemned(&self, prober: &Prober, leader: u32) -> bool {
        self.judges(leader).any(|judge| {
            let Seat { target, on_unknown, .. } = *self.seat(judge);
            prober.override_of(judge) == Override::Sick
                || (on_unknown == OnUnknown::Sick && prober.history(target).unknown)
        })
    }

    /// What the kernel is told of a backend: what its judges say, unless the guard holds that.
    fn told(&self, prober: &Prober, seat: &Seat) -> Verdict {
        let verdict = self.verdict(prober, seat.leader);
        let held = |guarded: &Guarded| guarded.is_held(seat.pool, seat.backend);
        if verdict == Verdict::Sick
            && self.guarded.as_ref().is_some_and(held)
            && !self.is_condemned(prober, seat.leader)
        {
            Verdict::Healthy
        } else {
            verdict
        }
    }

    /// Puts a backend's bits on the board.
    fn put_bits(&self, prober: &Prober, seat: &Seat, verdict: Verdict) {
        let full = seat.standing == Standing::Full;
        let forced_sick = prober.override_of(JudgeIndex(seat.leader)) == Override::Sick;
        let bits = Bits {
            takes_new: full && verdict == Verdict::Healthy,
            // While it is warming it takes nothing new; what it has is not taken from it.
            serves_old: seat.standing != Standing::Over && verdict != Verdict::Sick,
            allowed: full && !forced_sick,
        };
        self.board.set_bits(seat.backend, seat.pool, bits);
    }

    /// Writes a target's record.
    fn write(&self, prober: &Prober, target: TargetIndex) {
        let subject = self.subject(target);
        let verdict = prober.judges_of(target).next().map(|judge| prober.probed_verdict(judge));
        self.board.write_target(subject.index, &record(subject, prober.history(target), verdict));
    }
}

impl Sink for Publisher {
    fn on_change(&mut self, prober: &Prober, change: &Change, now: Nanos) {
        let seat = self.seat(change.judge);
        let (leader, target, about) = (seat.leader, seat.target, seat.about());
        // It is expected to fall then, so that is no evidence and no news.
        let maintained = seat.standing == Standing::Maintenance;
        let verdict = self.verdict(prober, leader);
        let sick = self.guarded.is_some() && self.is_sick_by_probes(prober, leader);
        let bench = self.benches.get_mut(&leader);
        let alone = bench.is_none();
        let before =
            bench.map_or(change.before, |bench| std::mem::replace(&mut bench.said, verdict));
        if let Some(guarded) = &mut self.guarded {
            // One that was never healthy has no verdict to hold.
            let news = before == Verdict::Healthy && change.cause == ChangeCause::Probe;
            if !sick {
                guarded.on_recovery(about, now);
            } else if news && !maintained {
                guarded.on_fall(about, prober.history(target).outcome, now);
            }
        }
        // While it has no verdict its bits are as they were laid out: an agent before this one may have
        // had one, by another question or by fewer probes.
        if (before, verdict) != (Verdict::Warming, Verdict::Warming) {
            let seat = self.seat(change.judge);
            self.put_bits(prober, seat, self.told(prober, seat));
        }
        let seat = self.seat(change.judge);
        // The stamp is read after the store: a SYN that leaves later meets the new bit.
        let stored_ns = monotonic_now();
        if change.cause == ChangeCause::Probe {
            self.journal.publish_latency().record(stored_ns.saturating_sub(now));
        }
        let history = prober.history(target);
        let transition = Transition {
            name: Arc::clone(&seat.name),
            from: before.into(),
            to: if change.unknown { ProbeState::Unknown } else { verdict.into() },
            why: Why::from(change.cause),
            cause: String::new(),
            good: graph::good_count(history.registers[HAPPY], seat.rule),
            rule: Some(seat.rule.into()),
            at_ns: stored_ns,
            member: None,
        };
        if change.verdict != change.before
            && let Some(subject) = &mut self.subjects[target.0 as usize]
        {
            subject.changed_ns = stored_ns;
        }
        self.write(prober, target);
        let same = verdict == before && !alone && !change.unknown;
        // One of several changed its mind, and together they say what they said; or nobody asks.
        if same || (maintained && change.cause != ChangeCause::Override) {
            return;
        }
        match change.cause {
            ChangeCause::Probe => self.waiting.push((target, transition)),
            // It is told where it was said.
            ChangeCause::TakenUp => {}
            ChangeCause::Initial
            | ChangeCause::Rule
            | ChangeCause::Silence
            | ChangeCause::Override => self.journal.push(transition),
        }
    }

    fn on_report(&mut self, prober: &Prober, report: &Report, now: Nanos) {
        if let Some(guarded) = &self.guarded {
            guarded.on_outcome(report.outcome, now);
        }
        self.write(prober, report.target);
        self.hand_over(prober, report, now);
        let Manner { timeout_ns, compat } = self.subject(report.target).manner;
        for (_, transition) in self.waiting.extract_if(.., |(target, _)| *target == report.target) {
            let cause = OutcomeText::of(report, timeout_ns, compat);
            self.journal.push(Transition { cause: cause.to_string(), ..transition });
        }
    }

    fn on_tick(&mut self, prober: &Prober, now: Nanos) {
        self.board.beat(self.shard);
        let doubtful = self.guarded.as_mut().map(|guarded| guarded.doubtful(prober));
        for leader in doubtful.into_iter().flatten() {
            let seat = self.seat(leader);
            let about = seat.about();
            self.put_bits(prober, seat, self.told(prober, seat));
            // Beneath an operator's word its probes may find it well, which is told as no change.
            let sick = self.is_sick_by_probes(prober, leader.0);
            if let Some(guarded) = self.guarded.as_mut().filter(|_| !sick) {
                guarded.on_recovery(about, now);
            }
        }
    }
}

impl Publisher {
    /// Hands the poll to those who watch, once for each backend that it judges.
    fn hand_over(&mut self, prober: &Prober, report: &Report, now: Nanos) {
        let Manner { timeout_ns, compat } = self.subject(report.target).manner;
        let watched = self.journal.polls().watched(now);
        for judge in prober.judges_of(report.target) {
            let Some(seat) = &mut self.seats[judge.0 as usize] else {
                continue;
            };
            let healthy = prober.probed_verdict(judge) == Verdict::Healthy;
            let changed = healthy != std::mem::replace(&mut seat.healthy, healthy);
            if watched {
                let history = prober.history(report.target);
                self.journal.polls().push(Poll {
                    name: Arc::clone(&seat.name),
                    changed,
                    healthy,
                    registers: history.registers,
                    rule: seat.rule,
                    last_ns: history.last_ns,
                    average_s: history.average_s,
                    text: OutcomeText::of(report, timeout_ns, compat),
                });
            }
        }
    }
}

/// When the verdict of a target last changed, by the record that it goes on with; 0 = by none.
fn changed_ns(board: &Board, index: usize, identity: u128) -> Nanos {
    let record = u32::try_from(index).ok().and_then(|index| board.read_target(index));
    let own = record.filter(|record| record.identity == identity.to_be_bytes());
    own.map_or(0, |record| record.changed_ns)
}

/// A target as the board shows it.
fn record(subject: &Subject, history: &History, verdict: Option<Verdict>) -> TargetRecord {
    let outcome = history.outcome;
    let state = match verdict {
        _ if history.unknown => STATE_UNKNOWN,
        None | Some(Verdict::Warming) => STATE_WARMING,
        Some(Verdict::Healthy) => STATE_HEALTHY,
        Some(Verdict::Sick) => STATE_SICK,
    };
    TargetRecord {
        registers: history.registers,
        identity: subject.identity.to_be_bytes(),
        sequence: 0,
        last_result_ns: history.last_result_ns,
        changed_ns: subject.changed_ns,
        average_s: history.average_s,
        last_us: u32::try_from(history.last_ns / 1000).unwrap_or(u32::MAX),
        detail: outcome.map_or(0, Outcome::detail),
        cause: outcome.map_or(0, Outcome::number),
        state,
        indeterminate: history.indeterminate,
        reserved: 0,
    }
}

#[cfg(test)]
mod tests;
