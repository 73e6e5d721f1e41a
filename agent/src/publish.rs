//! From the core's changes to the board: what each probing thread does with what its engine tells.
//!
//! In: [`Change`]s, [`Report`]s, ticks. Out: verdict bits, target records, heartbeats, and
//! transitions for the journal. The bit comes first: everything else can wait for it.

/// What is told of verdicts that the guard holds.
mod guarded;

use std::collections::HashMap;
use std::sync::Arc;

use sickbay_core::command::{Change, ChangeCause, Outcome, Report, Verdict};
use sickbay_core::plan::{Compat, JudgeIndex, Nanos, Rule, TargetIndex};
use sickbay_core::prober::{History, Prober};
use sickbay_core::register::HAPPY;
use sickbay_core::text::OutcomeText;
use sickbay_core::verdict;
use sickbay_shared::abi::{STATE_HEALTHY, STATE_SICK, STATE_UNKNOWN, STATE_WARMING, TargetRecord};

use crate::board::Board;
use crate::control::journal::{Journal, Transition, Why};
use crate::control::polls::Poll;
use crate::control::view::ProbeState;
use crate::engine::{Sink, monotonic_now};
use crate::fleet::Fleet;
use crate::graph;
use crate::guard::Guards;
use crate::shard::ShardPlan;

use self::guarded::Guarded;

/// One shard's way to the board. It writes the bits of its own backends and the records of its own
/// targets, and nobody else does.
#[derive(Debug)]
pub struct Publisher {
    board: Arc<Board>,
    journal: Arc<Journal>,
    shard: u32,
    seats: Box<[Seat]>,
    /// Of the backends that have several judges.
    benches: HashMap<u32, Bench>,
    subjects: Box<[Subject]>,
    guarded: Option<Guarded>,
    /// Transitions that wait for the report of the probe that caused them, for its text.
    waiting: Vec<(TargetIndex, Transition)>,
}

/// The backend that a judge speaks for; by the judge's index in the shard's plan.
#[derive(Debug)]
struct Seat {
    name: Arc<str>,
    backend: u32,
    pool: u32,
    target: TargetIndex,
    rule: Rule,
    /// The backend's first judge.
    leader: u32,
    /// Whether the probes said so after the last one.
    healthy: bool,
}

/// A backend with several judges; by its first one.
#[derive(Debug)]
struct Bench {
    judges: Vec<u32>,
    /// What they said together last.
    said: Verdict,
}

/// A target as it stands on the board; by its index in the shard's plan.
#[derive(Debug)]
struct Subject {
    /// Its index on the board.
    index: u32,
    identity: u128,
    timeout_ns: Nanos,
    compat: Compat,
    /// The first judge, whose verdict the record shows.
    judge: Option<u32>,
    /// When that verdict last changed.
    changed_ns: Nanos,
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
        let mut leaders: HashMap<usize, u32> = HashMap::with_capacity(plan.judges.len());
        let mut benches: HashMap<u32, Bench> = HashMap::new();
        for (judge, backend) in (0..).zip(&plan.judges) {
            let leader = *leaders.entry(*backend).or_insert(judge);
            if leader != judge {
                let alone = || Bench { judges: vec![leader], said: Verdict::Warming };
                benches.entry(leader).or_insert_with(alone).judges.push(judge);
            }
        }
        let seat = |(judge, &backend): (usize, &usize)| {
            let leader = leaders[&backend];
            let backend = &fleet.backends[backend];
            let pool = &fleet.pools[backend.pool].name;
            Seat {
                name: format!("{pool}.{}", backend.name).into(),
                backend: backend.index,
                pool: u32::try_from(backend.pool).expect("pools are counted in u32"),
                target: plan.plan.judges[judge].target,
                rule: plan.plan.judges[judge].rule,
                leader,
                healthy: false,
            }
        };
        let seats: Box<[Seat]> = plan.judges.iter().enumerate().map(seat).collect();
        let mut subjects: Box<[Subject]> = plan
            .targets
            .iter()
            .zip(&plan.plan.targets)
            .map(|(&index, target)| Subject {
                index: u32::try_from(index).expect("targets are counted in u32"),
                identity: target.identity,
                timeout_ns: plan.plan.probes[target.probe.0 as usize].timeout_ns,
                compat: plan.plan.probes[target.probe.0 as usize].compat,
                judge: None,
                changed_ns: 0,
            })
            .collect();
        for (judge, seat) in (0..).zip(&seats) {
            subjects[seat.target.0 as usize].judge.get_or_insert(judge);
        }
        Self { board, journal, shard, seats, benches, subjects, guarded, waiting: Vec::new() }
    }

    /// Tells the kernel what flows a backend may have.
    fn put_bits(&self, backend: u32, pool: u32, verdict: Verdict) {
        self.board.set_takes_new(backend, pool, verdict == Verdict::Healthy);
        // While it is warming it takes nothing new; what it has is not taken from it.
        self.board.set_serves_old(backend, verdict != Verdict::Sick);
    }

    /// Writes a target's record.
    fn write(&self, prober: &Prober, target: TargetIndex) {
        let subject = &self.subjects[target.0 as usize];
        let history = prober.history(target);
        self.board.write_target(subject.index, &record(subject, history, prober));
    }
}

impl Sink for Publisher {
    fn on_change(&mut self, prober: &Prober, change: &Change, now: Nanos) {
        let seat = &self.seats[change.judge.0 as usize];
        let (verdict, before) = match self.benches.get_mut(&seat.leader) {
            None => (change.verdict, change.before),
            Some(bench) => {
                let judges = bench.judges.iter().map(|judge| prober.verdict(JudgeIndex(*judge)));
                let verdict = verdict::all(judges);
                (verdict, std::mem::replace(&mut bench.said, verdict))
            }
        };
        let told = match &mut self.guarded {
            None => verdict,
            Some(guarded) => {
                let backend = (seat.backend, seat.pool, JudgeIndex(seat.leader));
                let why = (change.cause, prober.history(seat.target).outcome);
                guarded.told(backend, (before, verdict), why, now)
            }
        };
        self.put_bits(seat.backend, seat.pool, told);
        // The stamp is read after the store: a SYN that leaves later meets the new bit.
        let stored_ns = monotonic_now();
        let subject = &mut self.subjects[seat.target.0 as usize];
        if change.verdict != change.before {
            subject.changed_ns = stored_ns;
        }
        let history = prober.history(seat.target);
        let transition = Transition {
            name: Arc::clone(&seat.name),
            from: before.into(),
            to: if change.unknown { ProbeState::Unknown } else { verdict.into() },
            why: Why::from(change.cause),
            cause: String::new(),
            good: graph::good_count(history.registers[HAPPY], seat.rule),
            rule: Some(seat.rule.into()),
            at_ns: stored_ns,
        };
        if verdict == before && self.benches.contains_key(&seat.leader) && !change.unknown {
            // One of several changed its mind; together they say what they said.
            self.write(prober, seat.target);
            return;
        }
        match change.cause {
            ChangeCause::Probe => self.waiting.push((seat.target, transition)),
            ChangeCause::Initial | ChangeCause::Silence | ChangeCause::Override => {
                self.journal.push(transition);
            }
        }
        self.write(prober, seat.target);
    }

    fn on_report(&mut self, prober: &Prober, report: &Report, now: Nanos) {
        if let Some(guarded) = &self.guarded {
            guarded.on_outcome(report.outcome, now);
        }
        self.write(prober, report.target);
        self.hand_over(prober, report, now);
        let Subject { timeout_ns, compat, .. } = self.subjects[report.target.0 as usize];
        for (_, transition) in self.waiting.extract_if(.., |(target, _)| *target == report.target) {
            let cause = OutcomeText::of(report, timeout_ns, compat);
            self.journal.push(Transition { cause: cause.to_string(), ..transition });
        }
    }

    fn on_tick(&mut self, prober: &Prober, _: Nanos) {
        self.board.beat(self.shard);
        let changes = self.guarded.as_mut().map(|guarded| guarded.changes(prober));
        for (fall, healthy) in changes.into_iter().flatten() {
            let told = if healthy { Verdict::Healthy } else { Verdict::Sick };
            self.put_bits(fall.backend, fall.pool, told);
        }
    }
}

impl Publisher {
    /// Hands the poll to those who watch, once for each backend that it judges.
    fn hand_over(&mut self, prober: &Prober, report: &Report, now: Nanos) {
        let Subject { timeout_ns, compat, judge, .. } = self.subjects[report.target.0 as usize];
        let watched = self.journal.polls().watched(now);
        // The judges of a target stand together.
        let first = judge.map_or(self.seats.len(), |judge| judge as usize);
        let own = self.seats[first..].iter_mut().take_while(|seat| seat.target == report.target);
        for (judge, seat) in (first as u32..).zip(own) {
            let healthy = prober.probed_verdict(JudgeIndex(judge)) == Verdict::Healthy;
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

/// A target as the board shows it.
fn record(subject: &Subject, history: &History, prober: &Prober) -> TargetRecord {
    let outcome = history.outcome;
    let verdict = subject.judge.map(|judge| prober.probed_verdict(JudgeIndex(judge)));
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
mod tests {
    use std::path::Path;

    use sickbay_core::sim::{Behaviour, Occurrence, Peer, Sim};
    use sickbay_shared::limits::WORD_BACKENDS;

    use super::*;
    use crate::config::{self, Overrides};
    use crate::kernel::Sizes;
    use crate::shard;

    const SECOND_NS: Nanos = 1_000_000_000;

    /// A publisher of one pool of one backend, and the simulation of its probes.
    struct Rig {
        board: Arc<Board>,
        publisher: Publisher,
        sim: Sim,
        now: Nanos,
    }

    impl Rig {
        fn new(text: &str) -> Self {
            let overrides = Overrides::default();
            let fleet = config::parse(text, Path::new("t.toml"), &overrides).unwrap().fleet;
            let plan = shard::split(&fleet, 1).remove(0);
            let sizes = Sizes { backends: WORD_BACKENDS, ..Sizes::default() };
            let board = Arc::new(Board::in_memory(&sizes).unwrap());
            let journal = Arc::new(Journal::default());
            let guards = Guards::new(&fleet).map(Arc::new);
            let publisher = Publisher::new(Arc::clone(&board), journal, &fleet, 0, &plan, guards);
            Self { board, publisher, sim: Sim::new(&plan.plan, 1, SECOND_NS), now: SECOND_NS }
        }

        /// Runs for so long; whether the backend takes new flows then.
        fn takes_new_after(&mut self, span_ns: Nanos) -> bool {
            self.now += span_ns;
            let mut changes = Vec::new();
            self.sim.run_until(self.now, &mut |traced| {
                if let Occurrence::Change(change) = traced.what {
                    changes.push(change);
                }
            });
            for change in changes {
                self.publisher.on_change(self.sim.prober(), &change, self.now);
            }
            self.board.takes_new(0)
        }
    }

    const SERVICE: &str = "\
        [service.web]\naddress = \"192.0.2.9\"\nport = 80\nprotocol = \"tcp\"\npool = \"web\"\n";
    const PACE: &str = "interval = \"1s\"\ntimeout = \"500ms\"\nwindow = 3\nthreshold = 2\n";

    #[test]
    fn backend_takes_flows_only_while_each_of_its_probes_passes() {
        let mut rig = Rig::new(&format!(
            "[probe.deep]\nurl = \"/deep\"\n{PACE}[probe.flat]\nurl = \"/flat\"\n{PACE}\
             [pool.web]\nprobe = [\"flat\", \"deep\"]\nbackends = [\"192.0.2.1:80\"]\n{SERVICE}"
        ));
        assert!(rig.takes_new_after(5 * SECOND_NS));
        for target in [0, 1] {
            let refuses = Peer { behaviour: Behaviour::Refuses, ..Peer::HEALTHY };
            rig.sim.set_peer(TargetIndex(target), refuses);
            assert!(!rig.takes_new_after(5 * SECOND_NS), "target {target} fails");
            rig.sim.set_peer(TargetIndex(target), Peer::HEALTHY);
            assert!(rig.takes_new_after(5 * SECOND_NS), "target {target} passes again");
        }
    }

    #[test]
    fn backend_that_begins_healthy_takes_flows_from_the_start() {
        let mut rig = Rig::new(&format!(
            "[probe.p]\nurl = \"/p\"\ninitial = 2\n{PACE}\
             [pool.web]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n{SERVICE}"
        ));
        let refuses = Peer { behaviour: Behaviour::Refuses, ..Peer::HEALTHY };
        rig.sim.set_peer(TargetIndex(0), refuses);
        // Its first probe fails; of three results two, those assumed, are still good.
        assert!(rig.takes_new_after(SECOND_NS));
        assert!(!rig.takes_new_after(5 * SECOND_NS), "and none when it does not answer");
    }
}
