//! Backends that join, part, and are given another standing while the shard runs.

use std::collections::HashMap;
use std::sync::Arc;

use sickbay_core::command::Verdict;
use sickbay_core::plan::{JudgeIndex, TargetIndex};
use sickbay_core::prober::Prober;
use sickbay_shared::abi::TargetRecord;

use super::{Bench, Publisher, Seat, Subject};
use crate::board::Bits;
use crate::engine::monotonic_now;
use crate::membership::Standing;
use crate::shard::{Joined, Roster};

impl Roster for Publisher {
    fn on_joined(&mut self, prober: &Prober, joined: &Joined<'_>) {
        let Joined { joining, seats } = *joined;
        let leader = seats[0].0.0;
        for ((judge, target), judged) in seats.iter().zip(&joining.judged) {
            if *judge != JudgeIndex(leader) {
                bench(&mut self.benches, leader, judge.0);
            }
            let subject = place(&mut self.subjects, target.0);
            let fresh = subject.is_none();
            subject.get_or_insert(Subject {
                index: judged.target,
                identity: judged.spec.identity,
                manner: self.manners[judged.spec.probe.0 as usize],
                changed_ns: 0,
            });
            *place(&mut self.seats, judge.0) = Some(Seat {
                name: Arc::clone(&joining.name),
                backend: joining.backend,
                pool: joining.pool,
                target: *target,
                rule: judged.rule,
                on_unknown: judged.on_unknown,
                leader,
                healthy: false,
                standing: Standing::Full,
            });
            if fresh {
                self.write(prober, *target);
            }
        }
        // One that begins healthy takes new flows when that is told as a change: next.
        let seat = self.seat(JudgeIndex(leader));
        let verdict = self.verdict(prober, leader);
        let begins = if verdict == Verdict::Healthy { Verdict::Warming } else { verdict };
        self.put_bits(prober, seat, begins);
    }

    fn on_parted(&mut self, judges: &[JudgeIndex], targets: &[TargetIndex]) {
        for judge in judges {
            let seat = self.seats[judge.0 as usize].take();
            let seat = seat.expect("a judge that parts has a seat");
            self.benches.remove(&judge.0);
            if let Some(guarded) = &mut self.guarded {
                guarded.on_recovery(seat.about(), monotonic_now());
            }
            self.board.set_bits(seat.backend, seat.pool, Bits::default());
            self.waiting.retain(|(_, waiting)| !Arc::ptr_eq(&waiting.name, &seat.name));
        }
        for target in targets {
            let subject = self.subjects[target.0 as usize].take();
            let subject = subject.expect("a target that parts was made known");
            self.board.write_target(subject.index, &TargetRecord::default());
        }
    }

    fn on_standing(&mut self, prober: &Prober, judge: JudgeIndex, standing: Standing) {
        let leader = self.seat(judge).leader;
        let judges: Vec<JudgeIndex> = self.judges(leader).collect();
        for JudgeIndex(judge) in judges {
            if let Some(seat) = &mut self.seats[judge as usize] {
                seat.standing = standing;
            }
        }
        let seat = self.seat(judge);
        self.put_bits(prober, seat, self.told(prober, seat));
    }

    fn on_override(&mut self, prober: &Prober, judge: JudgeIndex) {
        let seat = self.seat(judge);
        self.put_bits(prober, seat, self.told(prober, seat));
    }
}

/// Adds a judge to its backend's.
pub(super) fn bench(benches: &mut HashMap<u32, Bench>, leader: u32, judge: u32) {
    let alone = || Bench { judges: vec![leader], said: Verdict::Warming };
    benches.entry(leader).or_insert_with(alone).judges.push(judge);
}

/// The place of an index, made when it is beyond the last one.
fn place<T>(places: &mut Vec<Option<T>>, index: u32) -> &mut Option<T> {
    let index = index as usize;
    if places.len() <= index {
        places.resize_with(index + 1, || None);
    }
    &mut places[index]
}
