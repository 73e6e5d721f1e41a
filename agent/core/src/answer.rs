//! How many seconds a probe takes, and by which results.
//!
//! The seconds come from running the prober on a virtual clock, from a register that was written by
//! its own probes. Each is held against the closed form of [`crate::bound`]: where they differ, one
//! of the two is wrong, and a debug build stops. (Times that are not whole
//! [ticks](crate::wheel::TICK_NS) may differ by some ticks.)
//!
//! Where the pace changes with what is found, one target's seconds are not another's. Then the times
//! are the extremes over all of them, a closed form, and what is rehearsed must lie within.

use crate::bound::{self, Distance, Pace, Rhythm, Times};
use crate::command::Verdict;
use crate::limits::FIRST_PROBE_NS_MAX;
use crate::plan::{self, Nanos, ProbeSpec, Rule};
use crate::rehearsal::{Landed, Rehearsal};
use crate::wheel::TICK_NS;

use pace::Paces;
use row::{Before, Row};

/// What jitter adds.
mod jitter;
/// What a pace that changes makes of it.
mod pace;
/// Results in a row.
mod row;

/// Slots of the grid that one rehearsal may pass. A timeout of an hour at an interval of 10 ms would
/// pass millions: there the closed form answers alone.
const SLOTS_MAX: Nanos = 20_000;

/// Of which probe everything is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// When it probes. What it asks does not matter.
    pub spec: &'a ProbeSpec,
    /// How its results are judged.
    pub rule: Rule,
    /// Good results assumed at the start.
    pub initial: u8,
}

/// All figures of one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// From a death to sick; `None` when the rule never finds sickness.
    pub to_sick: Option<Passage>,
    /// From a recovery to healthy.
    pub to_healthy: Passage,
    /// From the start of the agent to the first traffic of a faultless backend, by pace.
    pub first_traffic: [Course; 2],
    /// Good results in a row that bring it back, when it has just turned sick from a full register.
    pub goods_after_fall: u32,
    /// Whether a prober was run; else the figures are the closed form's, without steps.
    pub is_rehearsed: bool,
}

/// A change of the verdict: from far and from the boundary, each by pace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passage {
    /// From the register that is farthest.
    pub far: [Course; 2],
    /// From one that the next result decides.
    pub boundary: [Course; 2],
}

/// One way to a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Course {
    /// How long it takes.
    pub times: Times,
    /// Results that led to the register before it, oldest first.
    pub before: Vec<bool>,
    /// The results of the worst case. Times are since the event, which comes just after the start
    /// of the probe before. (After a start: as far as the grid met it; where jitter or a change of
    /// pace has a part in it: those of one target. See the times.)
    pub steps: Vec<Landed>,
}

/// A death and a recovery at their worst, probe by probe. Times are since the death. Jitter has no
/// part in it, and where the pace changes it is one target's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// The last good one before the death, then all that follow.
    pub rows: Vec<Landed>,
    /// When the backend came back.
    pub revived_ns: Nanos,
}

/// The index of a pace in the arrays of an [`Answer`].
#[must_use]
pub const fn by_pace(pace: Pace) -> usize {
    match pace {
        Pace::AtOnce => 0,
        Pace::WholeTimeout => 1,
    }
}

impl Answer {
    /// Asks.
    #[must_use]
    pub fn to(question: Question<'_>) -> Self {
        let answer = if question.can_be_rehearsed() {
            Self {
                to_sick: bound::failures_to_sick(question.rule).map(|_| question.dies()),
                to_healthy: question.recovers(),
                first_traffic: PACES.map(|pace| question.starts(pace)),
                goods_after_fall: question.goods_after_fall(),
                is_rehearsed: true,
            }
        } else {
            Self::closed(question)
        };
        debug_assert!(
            !question.is_closed() || answer.times() == Self::closed(question).times(),
            "the prober and the closed form differ: {:?}",
            (question, &answer, Self::closed(question))
        );
        answer
    }

    /// The closed form's answer.
    #[must_use]
    pub fn closed(question: Question<'_>) -> Self {
        let (rule, rhythm) = (question.rule, question.rhythm());
        let course = |steady, row| {
            let times = question.times(steady, row);
            Course { times, before: Vec::new(), steps: Vec::new() }
        };
        let healthy = |distance| {
            PACES.map(|pace| {
                let count = match distance {
                    Distance::Far => u32::from(rule.goods_to_healthy()),
                    Distance::Boundary => 1,
                };
                let before = before_recovery(rule, distance, pace);
                let row = Row { count, good: true, pace, before };
                course(bound::to_healthy(rule, rhythm, distance, pace), row)
            })
        };
        let sick = |distance| {
            PACES.map(|pace| {
                let count = match distance {
                    Distance::Far => bound::failures_to_sick(rule).unwrap_or(0),
                    Distance::Boundary => 1,
                };
                let row = Row { count, good: false, pace, before: Before::Probe };
                let times = bound::to_sick(rule, rhythm, distance, pace);
                course(times.unwrap_or(Times::ZERO), row)
            })
        };
        let start = |pace| {
            let count = bound::goods_at_start(rule, question.initial).unwrap_or(0);
            let row = Row { count, good: true, pace, before: Before::Start };
            course(bound::to_first_traffic(rule, question.initial, rhythm, pace), row)
        };
        let passage = |[far, boundary]: [[Course; 2]; 2]| Passage { far, boundary };
        Self {
            to_sick: bound::failures_to_sick(rule).map(|_| passage(DISTANCES.map(sick))),
            to_healthy: passage(DISTANCES.map(healthy)),
            first_traffic: PACES.map(start),
            goods_after_fall: u32::from(rule.goods_to_healthy()),
            is_rehearsed: false,
        }
    }

    /// Every figure in a fixed order, to compare.
    #[must_use]
    pub fn times(&self) -> Vec<Times> {
        let passages = self.to_sick.iter().chain([&self.to_healthy]);
        let courses = passages.flat_map(|passage| passage.far.iter().chain(&passage.boundary));
        courses.chain(&self.first_traffic).map(|course| course.times).collect()
    }
}

/// A healthy register, oldest result first, that turns sick at exactly the `failures`-th bad result
/// in a row.
///
/// Window: what holds it is the newest `threshold` good results; the oldest of them must be the one
/// that leaves at that failure. Consecutive: the failures before are had already.
///
/// # Panics
///
/// When the rule needs fewer from a full register.
#[must_use]
pub fn register_needing(rule: Rule, failures: u32) -> Vec<bool> {
    let most = bound::failures_to_sick(rule).expect("the rule finds sickness");
    assert!((1..=most).contains(&failures), "{failures} of {most}");
    let had = (most - failures) as usize;
    match rule {
        Rule::Window { threshold, .. } => [
            vec![true; failures as usize],
            vec![false; had],
            vec![true; usize::from(threshold) - 1],
        ]
        .concat(),
        Rule::Consecutive { rise, .. } => {
            [vec![true; usize::from(rise.max(1))], vec![false; had]].concat()
        }
    }
}

const PACES: [Pace; 2] = [Pace::AtOnce, Pace::WholeTimeout];
const DISTANCES: [Distance; 2] = [Distance::Far, Distance::Boundary];

/// A sick register, oldest result first: far from healthy, or one good result short of it.
fn sick_register(rule: Rule, distance: Distance) -> Vec<bool> {
    let (span, goods) = match rule {
        Rule::Window { window, threshold } => (usize::from(window), usize::from(threshold)),
        Rule::Consecutive { fall, rise } => (usize::from(fall.max(rise)), usize::from(rise)),
    };
    let had = goods.saturating_sub(1);
    match (distance, rule) {
        (Distance::Far, _) => vec![false; span],
        (Distance::Boundary, Rule::Window { .. }) if bound::boundary_ends_bad(rule) => {
            [vec![false; span - had - 1], vec![true; had], vec![false]].concat()
        }
        (Distance::Boundary, Rule::Window { .. }) => {
            [vec![false; span - had], vec![true; had]].concat()
        }
        (Distance::Boundary, Rule::Consecutive { .. }) => {
            [vec![false; span], vec![true; had]].concat()
        }
    }
}

impl Question<'_> {
    /// A death and a recovery, each just after a probe, each failure a timeout.
    ///
    /// `None` when the rule never finds sickness, or it would take too long to run.
    #[must_use]
    pub fn story(self) -> Option<Story> {
        const AFTERMATH: usize = 2;
        let full = register_needing(self.rule, bound::failures_to_sick(self.rule)?);
        if !self.can_be_rehearsed() {
            return None;
        }
        let (mut rehearsal, last) = self.written(&full, Pace::AtOnce);
        let mut rows = vec![last];
        rehearsal.kill(Pace::WholeTimeout);
        run_to(&mut rehearsal, Verdict::Sick, &mut rows);
        rows.extend((0..AFTERMATH).map(|_| rehearsal.next_result()));
        let revived_ns = rows[rows.len() - 1].started_ns;
        rehearsal.revive(Pace::AtOnce);
        run_to(&mut rehearsal, Verdict::Healthy, &mut rows);
        rows.extend((0..AFTERMATH).map(|_| rehearsal.next_result()));
        let died_ns = last.started_ns;
        Some(Story {
            rows: rows.into_iter().map(|row| row.since(died_ns)).collect(),
            revived_ns: revived_ns - died_ns,
        })
    }

    /// The way to sick from any healthy register. Its worst time holds for all that need as many
    /// failures.
    ///
    /// # Panics
    ///
    /// When `before` leaves the rule sick.
    #[must_use]
    pub fn dies_from(self, before: Vec<bool>, pace: Pace) -> Course {
        let (mut rehearsal, last) = self.written(&before, Pace::AtOnce);
        assert_eq!(last.verdict, Verdict::Healthy, "only the healthy can die");
        rehearsal.kill(pace);
        self.course(rehearsal, last, before, (Verdict::Sick, pace, Before::Probe))
    }

    /// Whether the closed form holds to the nanosecond: for whole ticks.
    #[must_use]
    pub fn is_closed(self) -> bool {
        let is_whole = |time_ns: Nanos| time_ns.is_multiple_of(TICK_NS);
        self.intervals_ns().all(is_whole) && is_whole(self.spec.timeout_ns)
    }

    /// The interval and those of its other paces.
    fn intervals_ns(self) -> impl Iterator<Item = Nanos> {
        let plan::Pace { fast_ns, sick_ns, .. } = self.spec.pace;
        [Some(self.spec.interval_ns), fast_ns, sick_ns].into_iter().flatten()
    }

    fn rhythm(self) -> Rhythm {
        let ProbeSpec { interval_ns, timeout_ns, compat, .. } = *self.spec;
        Rhythm { interval_ns, timeout_ns, from_end: compat.is_varnish() }
    }

    fn can_be_rehearsed(self) -> bool {
        // 64 results write a register, 64 more read it.
        let slots = |interval_ns| self.spec.timeout_ns / interval_ns + 1;
        self.intervals_ns().all(|interval_ns| 128 * slots(interval_ns) <= SLOTS_MAX)
    }

    fn dies(self) -> Passage {
        let most = bound::failures_to_sick(self.rule).expect("asked only of a rule that finds it");
        let from = |failures| {
            PACES.map(|pace| self.dies_from(register_needing(self.rule, failures), pace))
        };
        Passage { far: from(most), boundary: from(1) }
    }

    fn recovers(self) -> Passage {
        let from = |distance| PACES.map(|pace| self.recovers_from(distance, pace));
        Passage { far: from(Distance::Far), boundary: from(Distance::Boundary) }
    }

    fn recovers_from(self, distance: Distance, pace: Pace) -> Course {
        let before = sick_register(self.rule, distance);
        let (mut rehearsal, last) = self.written(&before, pace);
        if last.verdict == Verdict::Healthy {
            // A threshold of 0.
            return Course { times: Times::ZERO, before, steps: Vec::new() };
        }
        rehearsal.revive(pace);
        let preceded = before_recovery(self.rule, distance, pace);
        self.course(rehearsal, last, before, (Verdict::Healthy, pace, preceded))
    }

    fn goods_after_fall(self) -> u32 {
        let Some(most) = bound::failures_to_sick(self.rule) else {
            return 0;
        };
        let (mut rehearsal, _) = self.written(&register_needing(self.rule, most), Pace::AtOnce);
        rehearsal.kill(Pace::AtOnce);
        run_to(&mut rehearsal, Verdict::Sick, &mut Vec::new());
        rehearsal.revive(Pace::AtOnce);
        let mut goods = Vec::new();
        run_to(&mut rehearsal, Verdict::Healthy, &mut goods);
        goods.len() as u32
    }

    /// The first traffic. The first probe comes after a wait of its own, evenly spread. Where the
    /// grid has no part in that, the second probe waits for the grid: over all moments of a start,
    /// anything between the two that are tried here, which are a tick apart.
    fn starts(self, pace: Pace) -> Course {
        let (first_ns, slot_ns) = Rehearsal::first_and_slot_ns(self.spec);
        // When the first probe ends if it starts on time, from the start of the agent.
        let ended_ns = match pace {
            Pace::AtOnce => first_ns,
            Pace::WholeTimeout => first_ns + self.spec.timeout_ns,
        };
        let interval_ns = self.spec.interval_ns;
        // So that this is the moment of a slot.
        let now = slot_ns + interval_ns * (2 + ended_ns / interval_ns) - ended_ns;
        let Some(met) = self.started(pace, now) else {
            return Course { times: Times::ZERO, before: Vec::new(), steps: Vec::new() };
        };
        // At once the slot that it meets is its own, and the one a tick later would be the second;
        // at its end the slot is the second's, and a tick earlier would be lost.
        let beside = match pace {
            Pace::AtOnce => self.started(pace, now - TICK_NS),
            Pace::WholeTimeout => self.started(pace, now + TICK_NS),
        };
        let length_ns = |rows: &[Landed]| rows[rows.len() - 1].ended_ns - rows[0].started_ns;
        let (met_ns, beside_ns) = (length_ns(&met), beside.map_or(0, |rows| length_ns(&rows)));
        let (least_ns, most_ns) = if beside_ns < met_ns {
            (beside_ns - TICK_NS, met_ns)
        } else {
            (met_ns, if met_ns < beside_ns { beside_ns + TICK_NS } else { met_ns })
        };
        let wait_ns = interval_ns.min(FIRST_PROBE_NS_MAX);
        let event_ns = met[0].started_ns - wait_ns;
        let row = Row { count: met.len() as u32, good: true, pace, before: Before::Start };
        let times = Times::waiting(wait_ns + most_ns - least_ns, least_ns);
        Course {
            times: self.times_beside(times, row),
            before: vec![true; usize::from(self.initial)],
            steps: met.into_iter().map(|row| row.since(event_ns)).collect(),
        }
    }

    /// The results up to the first healthy verdict of an agent that starts at `now`; `None` when
    /// there is no need of any.
    fn started(self, pace: Pace, now: Nanos) -> Option<Vec<Landed>> {
        let mut rehearsal = Rehearsal::new(self.spec, self.rule, self.initial, now);
        rehearsal.revive(pace);
        let mut rows = Vec::new();
        run_to(&mut rehearsal, Verdict::Healthy, &mut rows);
        (!rows.is_empty()).then_some(rows)
    }

    /// From just after `last` to the verdict, by results of one pace and what comes before them.
    fn course(
        self,
        mut rehearsal: Rehearsal,
        last: Landed,
        before: Vec<bool>,
        (verdict, pace, preceded): (Verdict, Pace, Before),
    ) -> Course {
        let mut steps = Vec::new();
        run_to(&mut rehearsal, verdict, &mut steps);
        let wait_ns = steps[0].started_ns - last.started_ns;
        let rest_ns = steps[steps.len() - 1].ended_ns - steps[0].started_ns;
        let (count, good) = (steps.len() as u32, verdict == Verdict::Healthy);
        let row = Row { count, good, pace, before: preceded };
        let times = self.times_beside(Times::waiting(wait_ns, rest_ns), row);
        let steps = steps.into_iter().map(|step| step.since(last.started_ns)).collect();
        Course { times, before, steps }
    }

    /// [`Self::times`] of a row that was rehearsed: what one target does lies within.
    fn times_beside(self, seen: Times, row: Row) -> Times {
        let times = self.times(seen, row);
        debug_assert!(
            !self.is_closed() || times.best_ns <= seen.best_ns && seen.worst_ns <= times.worst_ns,
            "{self:?}, {row:?}: {seen:?} is not within {times:?}"
        );
        times
    }

    /// A row's times with all that one rehearsal or one grid, which take `steady`, cannot tell.
    fn times(self, steady: Times, row: Row) -> Times {
        match Paces::of(self.spec, self.rule) {
            Some(paces) if 0 < row.count && paces.change_in(row) => paces.times(row),
            _ => jitter::widened(steady, self.spec, row),
        }
    }

    /// A target whose register its own probes have written; failures at this pace. And the last.
    /// A probe before them has left the first wait behind, so that all of them are on the grid.
    fn written(self, results: &[bool], failing: Pace) -> (Rehearsal, Landed) {
        let mut rehearsal = Rehearsal::new(self.spec, self.rule, 0, 0);
        let mut last = None;
        for &good in results.first().into_iter().chain(results) {
            if good {
                rehearsal.revive(Pace::AtOnce);
            } else {
                rehearsal.kill(failing);
            }
            last = Some(rehearsal.next_result());
        }
        (rehearsal, last.expect("a register has results"))
    }
}

impl Landed {
    fn since(self, event_ns: Nanos) -> Self {
        Self { started_ns: self.started_ns - event_ns, ended_ns: self.ended_ns - event_ns, ..self }
    }
}

/// What comes before the first good result of a recovery.
const fn before_recovery(rule: Rule, distance: Distance, pace: Pace) -> Before {
    let after_failure = match distance {
        Distance::Far => true,
        Distance::Boundary => bound::boundary_ends_bad(rule),
    };
    match pace {
        Pace::WholeTimeout if after_failure => Before::Timeout,
        _ => Before::Probe,
    }
}

/// Runs until the verdict is this, keeping every result.
fn run_to(rehearsal: &mut Rehearsal, verdict: Verdict, rows: &mut Vec<Landed>) {
    while rehearsal.verdict() != verdict {
        rows.push(rehearsal.next_result());
    }
}

#[cfg(test)]
mod tests;
