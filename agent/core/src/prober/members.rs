//! Targets and judges that come and go while the prober runs.
//!
//! A target that is removed has its probe in flight cancelled, and is told of no more. Its index is
//! free for another when that probe is over, so nothing of it can be taken for the next one's.

use super::waiting::Standing;
use super::{Nanos, Place, Prober, Target};
use crate::command::Verdict;
use crate::plan::{JudgeIndex, JudgeSpec, Rule, TargetIndex, TargetSpec};

impl Prober {
    /// Probes one more target from `now` on, by a probe of the plan; `rule` is that of the judge
    /// that is to follow, which bounds the results assumed. `None`: no room is left.
    ///
    /// # Panics
    ///
    /// When the plan has no such probe.
    pub fn add_target(&mut self, spec: &TargetSpec, rule: Rule, now: Nanos) -> Option<TargetIndex> {
        let probe = &self.probes[spec.probe.0 as usize];
        let threshold = rule.goods_to_healthy();
        let target = Target::new(spec, probe, threshold, self.phase_seed, now);
        let due_ns = target.due_ns();
        let index = match self.targets.get(self.vacant_head as usize) {
            None if self.targets.len() == self.target_count_max => return None,
            None => {
                self.targets.push(target);
                (self.targets.len() - 1) as u32
            }
            Some(vacant) => {
                let index = std::mem::replace(&mut self.vacant_head, vacant.link);
                self.targets[index as usize] = target;
                index
            }
        };
        self.due.arm(index, due_ns);
        self.target_count += 1;
        self.invariants();
        Some(TargetIndex(index))
    }

    /// Adds a judge of a target, which begins by the history that is there. One that begins healthy
    /// is told as a change. `None`: no room is left.
    ///
    /// # Panics
    ///
    /// When there is no such target.
    pub fn add_judge(&mut self, spec: &JudgeSpec, _now: Nanos) -> Option<JudgeIndex> {
        let target = &mut self.targets[spec.target.0 as usize];
        assert!(!target.is_removed(), "target {} was removed", spec.target.0);
        let judge = self.judges.add(spec, target, Verdict::Warming)?;
        self.invariants();
        Some(JudgeIndex(judge))
    }

    /// Removes a judge. What it has not told yet is never told.
    ///
    /// # Panics
    ///
    /// When there is no such judge.
    pub fn remove_judge(&mut self, judge: JudgeIndex, _now: Nanos) {
        let target = self.judges.target(judge.0) as usize;
        self.judges.remove(judge.0, &mut self.targets[target]);
        self.invariants();
    }

    /// Probes a target no more. Its probe in flight is cancelled and ends without a report.
    ///
    /// # Panics
    ///
    /// When there is no such target, or it still has a judge.
    pub fn remove_target(&mut self, target: TargetIndex, now: Nanos) {
        let index = target.0;
        let target = &mut self.targets[index as usize];
        assert!(!target.is_removed(), "target {index} was removed before");
        assert!(self.judges.of(target.judge_head()).next().is_none(), "target {index} is judged");
        let (place, slot) = (target.place(), target.link);
        let timeout_ns = self.probes[target.probe()].timeout_ns;
        target.remove();
        self.due.disarm(index);
        self.target_count -= 1;
        match place {
            Place::Idle => self.vacate(index),
            // Its turn in the queue frees it.
            Place::Waiting => {}
            Place::InFlight => {
                if !self.slots.is_expired(slot) {
                    self.deadlines.disarm(slot);
                    self.slots.expire(slot, timeout_ns, now);
                }
            }
            Place::Removed | Place::Vacant => unreachable!("it was there just now"),
        }
        self.invariants();
    }

    /// The judges of a target, in the order in which they came.
    pub fn judges_of(&self, target: TargetIndex) -> impl Iterator<Item = JudgeIndex> + '_ {
        let head = self.targets[target.0 as usize].judge_head();
        self.judges.of(head).map(JudgeIndex)
    }

    /// Targets that are probed.
    #[must_use]
    pub fn target_count(&self) -> u32 {
        self.target_count
    }

    /// Takes the next target of a queue; the places of removed ones become free on the way.
    pub(super) fn next_waiting(&mut self, standing: Standing) -> Option<u32> {
        loop {
            let index = self.waiting.pop(&mut self.targets, standing)?;
            if !self.targets[index as usize].is_removed() {
                return Some(index);
            }
            self.vacate(index);
        }
    }

    /// Another target may have the place of this one.
    pub(super) fn vacate(&mut self, index: u32) {
        self.targets[index as usize].vacate(self.vacant_head);
        self.vacant_head = index;
    }
}
