//! Targets and judges that come and go.

use super::*;
use crate::command::Override;
use crate::plan::Room;

const RULE: Rule = Rule::Window { window: 3, threshold: 2 };

fn roomy(target_count: u32, slot_count: u32, targets: u32, judges: u32) -> Plan {
    Plan { room: Room { targets, judges }, ..plan(target_count, slot_count, HTTP) }
}

fn spec(initial: u8) -> TargetSpec {
    TargetSpec { identity: 77, probe: ProbeIndex(0), family: Family::Ipv6, initial, second: None }
}

const fn judge(target: TargetIndex) -> JudgeSpec {
    JudgeSpec { target, rule: RULE, on_unknown: OnUnknown::Keep }
}

impl Bench {
    fn add(&mut self, initial: u8) -> Option<(TargetIndex, JudgeIndex)> {
        let target = self.prober.add_target(&spec(initial), RULE, self.now)?;
        Some((target, self.prober.add_judge(&judge(target), self.now)?))
    }

    fn remove(&mut self, target: TargetIndex) {
        let judges: Vec<JudgeIndex> = self.prober.judges_of(target).collect();
        judges.into_iter().for_each(|judge| self.prober.remove_judge(judge, self.now));
        self.prober.remove_target(target, self.now);
    }
}

#[test]
fn room_is_what_the_plan_says_and_removal_gives_it_back() {
    let mut bench = Bench::new(&roomy(1, 4, 2, 2));
    let (second, _) = bench.add(0).expect("room for two");
    bench.add(0).expect("room for two");
    assert_eq!(bench.add(0), None);
    bench.remove(second);
    assert_eq!(bench.prober.target_count(), 2);
    let (again, _) = bench.add(0).expect("the place of the one that went");
    assert_eq!(again, second);
    bench.remove(TargetIndex(0));
    assert_eq!(bench.add(0).map(|(target, _)| target), Some(TargetIndex(0)));
}

#[test]
fn target_begins_by_its_initial_and_takes_nothing_before() {
    let mut bench = Bench::new(&roomy(1, 4, 3, 3));
    let (_, unsure) = bench.add(1).expect("room");
    assert_eq!(bench.prober.verdict(unsure), Verdict::Warming);
    assert_eq!(bench.prober.warming_count(), 2);
    assert_eq!(bench.changes(), []);
    let (target, sure) = bench.add(9).expect("room");
    // The rule wants two, so no more are assumed.
    assert_eq!(bench.prober.history(target).registers[HAPPY], 0b11);
    let changes = bench.changes();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].judge, changes[0].cause), (sure, ChangeCause::Initial));
    assert_eq!((changes[0].before, changes[0].verdict), (Verdict::Warming, Verdict::Healthy));
}

#[test]
fn judge_of_a_known_target_begins_by_its_history_and_hears_every_result() {
    let mut bench = Bench::new(&roomy(1, 4, 0, 1));
    bench.probe(Event::Received(OK));
    bench.probe(Event::Received(OK));
    assert_eq!(bench.changes().len(), 1);
    let added = bench.prober.add_judge(&judge(TargetIndex(0)), bench.now).expect("room");
    assert_eq!(bench.changes()[0].judge, added);
    let all: Vec<JudgeIndex> = bench.prober.judges_of(TargetIndex(0)).collect();
    assert_eq!(all, [JudgeIndex(0), added]);
    for _ in 0..2 {
        bench.probe(Event::Failed { phase: Phase::Connect, errno: ECONNREFUSED });
    }
    let told: Vec<JudgeIndex> = bench.changes().iter().map(|change| change.judge).collect();
    assert_eq!(told, [JudgeIndex(0), added]);
    bench.prober.remove_judge(JudgeIndex(0), bench.now);
    assert_eq!(bench.prober.judges_of(TargetIndex(0)).collect::<Vec<_>>(), [added]);
    bench.probe(Event::Received(OK));
    bench.probe(Event::Received(OK));
    assert_eq!(bench.changes().iter().map(|change| change.judge).collect::<Vec<_>>(), [added]);
}

#[test]
fn change_of_a_removed_judge_is_not_told_and_its_place_is_free_after() {
    let mut bench = Bench::new(&roomy(2, 4, 0, 1));
    bench.prober.on_override(JudgeIndex(0), Override::Sick, bench.now);
    bench.prober.on_override(JudgeIndex(1), Override::Sick, bench.now);
    bench.prober.remove_judge(JudgeIndex(0), bench.now);
    // Its place is still in the queue of changes: the next judge gets another.
    let target = TargetIndex(0);
    let other = bench.prober.add_judge(&judge(target), bench.now).expect("the plan's room");
    assert_eq!(other, JudgeIndex(2));
    assert_eq!(bench.prober.add_judge(&judge(target), bench.now), None);
    let told: Vec<JudgeIndex> = bench.changes().iter().map(|change| change.judge).collect();
    assert_eq!(told, [JudgeIndex(1)]);
    assert_eq!(bench.prober.add_judge(&judge(target), bench.now), Some(JudgeIndex(0)));
    assert_eq!(bench.prober.warming_count(), 2);
}

#[test]
fn removed_target_has_its_probe_cancelled_and_its_place_kept_until_it_is_over() {
    let mut bench = Bench::new(&roomy(1, 4, 0, 1));
    let slot = bench.start();
    bench.remove(TargetIndex(0));
    assert_eq!(bench.add(0), None, "its probe is in flight");
    assert_eq!(bench.poll(), Some(Command::Cancel { slot }));
    bench.failed(slot, Phase::Connect, ECANCELED);
    assert_eq!(bench.prober.poll_report(), None);
    let (target, _) = bench.add(0).expect("its probe is over");
    assert_eq!(target, TargetIndex(0));
    assert_eq!(bench.prober.history(target).outcome, None);
    bench.close(slot);
    assert_eq!(bench.prober.in_flight_count(), 0);
    let report = bench.probe(Event::Received(OK));
    assert_eq!(report.target, target);
}

#[test]
fn answer_that_beats_the_cancel_of_a_removed_target_is_not_reported_either() {
    let mut bench = Bench::new(&roomy(1, 4, 0, 1));
    let slot = bench.start();
    bench.event(slot, Event::Received(&OK[..10]));
    // It wants to receive more.
    bench.remove(TargetIndex(0));
    assert_eq!(bench.poll(), Some(Command::Receive { slot }));
    assert_eq!(bench.poll(), Some(Command::Cancel { slot }));
    bench.event(slot, Event::Received(&OK[10..]));
    assert_eq!(bench.prober.poll_report(), None);
    bench.close(slot);
    assert_eq!(bench.prober.target_count(), 0);
}

#[test]
fn removed_target_that_waits_is_passed_over() {
    let mut bench = Bench::new(&roomy(3, 2, 0, 0));
    let (first, second) = (bench.start(), bench.start());
    bench.now += SECOND;
    let told: Vec<Command> = std::iter::from_fn(|| bench.poll()).collect();
    assert_eq!(told, [first, second].map(|slot| Command::Cancel { slot }));
    let waits = (0..3).map(TargetIndex).find(|target| {
        let place = bench.prober.targets[target.0 as usize].place();
        place == Place::Waiting
    });
    let waits = waits.expect("the third is due and waits");
    bench.remove(waits);
    for slot in [first, second] {
        bench.failed(slot, Phase::Connect, ECANCELED);
        assert!(bench.prober.poll_report().is_some());
    }
    bench.now += 2 * SECOND;
    for _ in 0..20 {
        match bench.poll() {
            Some(Command::Start { slot, target }) => {
                assert_ne!(target, waits);
                bench.event(slot, Event::Received(OK));
            }
            Some(Command::Close { slot }) => bench.event(slot, Event::Closed),
            _ => bench.now += 100 * MS,
        }
        bench.prober.poll_report();
    }
    assert_eq!(bench.prober.targets[waits.0 as usize].place(), Place::Vacant);
}
