//! The judges of a prober: their verdicts, overrides, and the changes not taken yet.

use super::calendar::Mood;
use super::target::Target;
use crate::command::{Change, ChangeCause, Override, Verdict};
use crate::past::Past;
use crate::plan::{JudgeIndex, JudgeSpec, OnUnknown, Rule};
use crate::register::HAPPY;
use crate::verdict::{Probed, verdict};

/// End of a list; the target of a place that no judge has.
pub(super) const NONE: u32 = u32::MAX;

/// All judges; those of a target are linked, in the order in which they came.
#[derive(Debug)]
pub(super) struct Judges {
    /// Never longer than its capacity at the start.
    judges: Vec<Judge>,
    count_max: usize,
    free_head: u32,
    changed_head: u32,
    changed_tail: u32,
    warming_count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Judge {
    /// [`NONE`] when it was removed.
    target: u32,
    /// The next one of its target, or of the free places.
    next: u32,
    /// The next one in the queue of changes.
    next_changed: u32,
    rule: Rule,
    on_unknown: OnUnknown,
    probed: Probed,
    word: Override,
    verdict: Verdict,
    /// What the last change that was taken said.
    told: Verdict,
    /// Whether it stands in the queue, and why it was put there last.
    queued: Option<ChangeCause>,
}

impl Judges {
    /// The judges of `specs`, with places for `room` more; those of targets with a past go on with
    /// what was said last.
    pub(super) fn new(
        specs: &[JudgeSpec],
        room: u32,
        targets: &mut [Target],
        past: &[Past],
    ) -> Self {
        assert!(specs.is_sorted_by_key(|spec| spec.target), "judges are not sorted by target");
        assert!(past.is_sorted_by_key(|past| past.target), "past is not sorted by target");
        let count_max = specs.len() + room as usize;
        u32::try_from(count_max).expect("indices are u32");
        let mut all = Self {
            judges: Vec::with_capacity(count_max),
            count_max,
            free_head: NONE,
            changed_head: NONE,
            changed_tail: NONE,
            warming_count: 0,
        };
        for spec in specs {
            let said = past.binary_search_by_key(&spec.target, |past| past.target);
            let said = said.map_or(Verdict::Warming, |index| past[index].verdict);
            all.add(spec, &mut targets[spec.target.0 as usize], said);
        }
        all
    }

    /// Adds a judge of `target`, which judges by the history that is there, and by what was `said`
    /// of it before; `None` when no place is left.
    pub(super) fn add(
        &mut self,
        spec: &JudgeSpec,
        target: &mut Target,
        said: Verdict,
    ) -> Option<u32> {
        let judge = Judge::new(spec, target.history().registers[HAPPY], said);
        let verdict = judge.verdict;
        let index = match self.free_head {
            NONE if self.judges.len() == self.count_max => return None,
            NONE => {
                self.judges.push(judge);
                (self.judges.len() - 1) as u32
            }
            free => {
                self.free_head = self.judges[free as usize].next;
                self.judges[free as usize] = judge;
                free
            }
        };
        match self.of(target.judge_head()).last() {
            None => target.set_judge_head(index),
            Some(last) => self.judges[last as usize].next = index,
        }
        self.warming_count += u32::from(verdict == Verdict::Warming);
        // Whoever publishes begins with nobody healthy, so those that are have to be told.
        if said != Verdict::Warming {
            let cause = if verdict == said { ChangeCause::TakenUp } else { ChangeCause::Rule };
            self.queue(index, cause);
        } else if verdict != Verdict::Warming {
            self.queue(index, ChangeCause::Initial);
        }
        Some(index)
    }

    /// Removes a judge of `target`: a change of it that was not taken is never told.
    pub(super) fn remove(&mut self, index: u32, target: &mut Target) {
        let Judge { next, verdict, queued, .. } = self.judges[index as usize];
        match self.of(target.judge_head()).take_while(|other| *other != index).last() {
            None => target.set_judge_head(next),
            Some(before) => self.judges[before as usize].next = next,
        }
        self.warming_count -= u32::from(verdict == Verdict::Warming);
        self.judges[index as usize].target = NONE;
        // One in the queue of changes is free when its turn comes.
        if queued.is_none() {
            self.free(index);
        }
    }

    /// The judges of a target whose first one is `head`.
    pub(super) fn of(&self, head: u32) -> impl Iterator<Item = u32> + '_ {
        let next = |index: &u32| Some(self.judges[*index as usize].next).filter(|it| *it != NONE);
        std::iter::successors((head != NONE).then_some(head), next)
    }

    pub(super) fn target(&self, judge: u32) -> u32 {
        self.judges[judge as usize].target
    }

    pub(super) fn verdict(&self, judge: u32) -> Verdict {
        self.judges[judge as usize].verdict
    }

    pub(super) fn probed_verdict(&self, judge: u32) -> Verdict {
        self.judges[judge as usize].probed.state()
    }

    pub(super) fn override_of(&self, judge: u32) -> Override {
        self.judges[judge as usize].word
    }

    pub(super) fn warming_count(&self) -> u32 {
        self.warming_count
    }

    /// Whether the results say so for each of these judges; false for none.
    pub(super) fn all_sick(&self, head: u32) -> bool {
        let sick = |judge| self.judges[judge as usize].probed.state() == Verdict::Sick;
        head != NONE && self.of(head).all(sick)
    }

    /// The pace that the last result, `good` or not, asks for with the states as they are now.
    pub(super) fn mood(&self, head: u32, good: bool) -> Mood {
        let agreed = if good { Verdict::Healthy } else { Verdict::Sick };
        if self.of(head).any(|judge| self.judges[judge as usize].probed.state() != agreed) {
            Mood::Fast
        } else if good || head == NONE {
            Mood::Calm
        } else {
            Mood::Sick
        }
    }

    /// A determinate result is in `happy`; it also ends what was unknown.
    pub(super) fn on_result(&mut self, head: u32, happy: u64, was_unknown: bool) {
        let mut index = head;
        while index != NONE {
            let judge = &mut self.judges[index as usize];
            judge.probed = judge.probed.after_result(judge.rule, happy);
            let next = judge.next;
            self.settle(index, false, was_unknown, ChangeCause::Probe);
            index = next;
        }
    }

    /// The judges' target turned unknown: told even where the verdict holds.
    pub(super) fn on_silence(&mut self, head: u32) {
        let mut index = head;
        while index != NONE {
            self.settle(index, true, true, ChangeCause::Silence);
            index = self.judges[index as usize].next;
        }
    }

    pub(super) fn on_override(&mut self, judge: u32, word: Override, unknown: bool) {
        self.judges[judge as usize].word = word;
        self.settle(judge, unknown, false, ChangeCause::Override);
    }

    /// Takes the next change; `unknown` tells of a target whether it is.
    pub(super) fn poll_change(&mut self, unknown: impl Fn(u32) -> bool) -> Option<Change> {
        let (index, cause) = loop {
            let index = self.changed_head;
            let judge = self.judges.get_mut(index as usize)?;
            let cause = judge.queued.take()?;
            self.changed_head = judge.next_changed;
            if self.changed_head == NONE {
                self.changed_tail = NONE;
            }
            if judge.target != NONE {
                break (index, cause);
            }
            self.free(index);
        };
        let judge = &mut self.judges[index as usize];
        let before = judge.told;
        judge.told = judge.verdict;
        Some(Change {
            judge: JudgeIndex(index),
            verdict: judge.verdict,
            before,
            unknown: unknown(judge.target),
            cause,
        })
    }

    fn free(&mut self, index: u32) {
        self.judges[index as usize].next = self.free_head;
        self.free_head = index;
    }

    /// Works the verdict out anew; queues a change when it is another, or `tell` says so.
    fn settle(&mut self, index: u32, unknown: bool, tell: bool, cause: ChangeCause) {
        let judge = &mut self.judges[index as usize];
        let before = judge.verdict;
        judge.verdict = verdict(judge.probed.state(), judge.word, unknown, judge.on_unknown);
        if before == judge.verdict && !tell {
            return;
        }
        self.warming_count += u32::from(judge.verdict == Verdict::Warming);
        self.warming_count -= u32::from(before == Verdict::Warming);
        self.queue(index, cause);
    }

    /// Puts a judge into the queue of changes, once.
    fn queue(&mut self, index: u32, cause: ChangeCause) {
        let judge = &mut self.judges[index as usize];
        if judge.queued.replace(cause).is_some() {
            return;
        }
        judge.next_changed = NONE;
        match self.changed_tail {
            NONE => self.changed_head = index,
            tail => self.judges[tail as usize].next_changed = index,
        }
        self.changed_tail = index;
    }
}

impl Judge {
    fn new(spec: &JudgeSpec, happy: u64, said: Verdict) -> Self {
        let probed = Probed::resume(spec.rule, happy, said);
        Self {
            target: spec.target.0,
            next: NONE,
            next_changed: NONE,
            rule: spec.rule,
            on_unknown: spec.on_unknown,
            probed,
            word: Override::Auto,
            verdict: probed.state(),
            told: said,
            queued: None,
        }
    }
}
