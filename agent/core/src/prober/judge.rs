//! The judges of a prober: their verdicts, overrides, and the changes not taken yet.

use std::ops::Range;

use super::calendar::Mood;
use super::target::Target;
use crate::command::{Change, ChangeCause, Override, Verdict};
use crate::plan::{JudgeIndex, JudgeSpec, OnUnknown, Rule};
use crate::register::HAPPY;
use crate::verdict::{Probed, verdict};

/// End of the queue of changes.
const NONE: u32 = u32::MAX;

/// All judges, sorted by target.
#[derive(Debug)]
pub(super) struct Judges {
    judges: Box<[Judge]>,
    changed_head: u32,
    changed_tail: u32,
    warming_count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Judge {
    target: u32,
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
    pub(super) fn new(specs: &[JudgeSpec], targets: &[Target]) -> Self {
        assert!(specs.is_sorted_by_key(|spec| spec.target), "judges are not sorted by target");
        u32::try_from(specs.len()).expect("indices are u32");
        let judges: Box<[Judge]> = specs
            .iter()
            .map(|spec| {
                let target = &targets[spec.target.0 as usize];
                Judge::new(spec, target.history().registers[HAPPY])
            })
            .collect();
        let warming = judges.iter().filter(|judge| judge.verdict == Verdict::Warming);
        let warming_count = warming.count() as u32;
        let mut all = Self { judges, changed_head: NONE, changed_tail: NONE, warming_count };
        // Whoever publishes begins with nobody healthy, so those that are have to be told.
        for index in 0..all.judges.len() as u32 {
            if all.judges[index as usize].verdict != Verdict::Warming {
                all.queue(index, ChangeCause::Initial);
            }
        }
        all
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
    pub(super) fn all_sick(&self, judges: Range<u32>) -> bool {
        let judges = &self.judges[judges.start as usize..judges.end as usize];
        !judges.is_empty() && judges.iter().all(|judge| judge.probed.state() == Verdict::Sick)
    }

    /// The pace that the last result, `good` or not, asks for with the states as they are now.
    pub(super) fn mood(&self, range: Range<u32>, good: bool) -> Mood {
        let judges = &self.judges[range.start as usize..range.end as usize];
        let agreed = if good { Verdict::Healthy } else { Verdict::Sick };
        if judges.iter().any(|judge| judge.probed.state() != agreed) {
            Mood::Fast
        } else if good || judges.is_empty() {
            Mood::Calm
        } else {
            Mood::Sick
        }
    }

    /// A determinate result is in `happy`; it also ends what was unknown.
    pub(super) fn on_result(&mut self, judges: Range<u32>, happy: u64, was_unknown: bool) {
        for index in judges {
            let judge = &mut self.judges[index as usize];
            judge.probed = judge.probed.after_result(judge.rule, happy);
            self.settle(index, false, was_unknown, ChangeCause::Probe);
        }
    }

    /// The judges' target turned unknown: told even where the verdict holds.
    pub(super) fn on_silence(&mut self, judges: Range<u32>) {
        for index in judges {
            self.settle(index, true, true, ChangeCause::Silence);
        }
    }

    pub(super) fn on_override(&mut self, judge: u32, word: Override, unknown: bool) {
        self.judges[judge as usize].word = word;
        self.settle(judge, unknown, false, ChangeCause::Override);
    }

    /// Takes the next change; `unknown` tells of a target whether it is.
    pub(super) fn poll_change(&mut self, unknown: impl Fn(u32) -> bool) -> Option<Change> {
        let index = self.changed_head;
        let judge = self.judges.get_mut(index as usize)?;
        let cause = judge.queued.take()?;
        let before = judge.told;
        judge.told = judge.verdict;
        self.changed_head = judge.next_changed;
        if self.changed_head == NONE {
            self.changed_tail = NONE;
        }
        Some(Change {
            judge: JudgeIndex(index),
            verdict: judge.verdict,
            before,
            unknown: unknown(judge.target),
            cause,
        })
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
    fn new(spec: &JudgeSpec, happy: u64) -> Self {
        let probed = Probed::new(spec.rule, happy);
        Self {
            target: spec.target.0,
            next_changed: NONE,
            rule: spec.rule,
            on_unknown: spec.on_unknown,
            probed,
            word: Override::Auto,
            verdict: probed.state(),
            told: Verdict::Warming,
            queued: None,
        }
    }
}
