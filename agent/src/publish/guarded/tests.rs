//! The publisher under the guard: simulated probes, the real board.

use std::borrow::Cow;
use std::path::Path;

use sickbay_core::plan::{JudgeSpec, ProbeIndex, TargetIndex};
use sickbay_core::sim::{Behaviour, OK, Occurrence, Peer, Sim};
use sickbay_shared::limits::WORD_BACKENDS;

use super::*;
use crate::board::Board;
use crate::config::{self, Overrides};
use crate::control::journal::Journal;
use crate::engine::Sink as _;
use crate::kernel::Sizes;
use crate::membership::Standing;
use crate::publish::Publisher;
use crate::shard::{self, Joined, Joining, Judged, Roster as _, ShardPlan};

const SECOND_NS: Nanos = 1_000_000_000;
/// Backends of the pool.
const COUNT: u32 = 10;

/// Probed each second, sick after two bad results of three.
const PACE: &str = "interval = \"1s\"\ntimeout = \"500ms\"\nwindow = 3\nthreshold = 2\n";
const BACKENDS: &str = "backends_range = \"192.0.2.1-192.0.2.10:80\"\n[guard]\nshare = \"50%\"\n";

/// One pool of ten, guarded at a half within 10 s for 60 s.
struct Rig {
    board: Arc<Board>,
    guards: Arc<Guards>,
    publisher: Publisher,
    plan: ShardPlan,
    sim: Sim,
    now: Nanos,
}

impl Rig {
    /// Ten seconds after the start, when all are healthy.
    fn healthy() -> Self {
        Self::of(&format!("[probe.p]\nurl = \"/p\"\n{PACE}[pool.web]\nprobe = \"p\"\n{BACKENDS}"))
    }

    /// The same, where a backend that is unknown is sick.
    fn strict() -> Self {
        Self::of(&format!(
            "[probe.p]\nurl = \"/p\"\non_unknown = \"sick\"\n{PACE}\
             [pool.web]\nprobe = \"p\"\n{BACKENDS}"
        ))
    }

    /// The same, each with two probes.
    fn twice_probed() -> Self {
        Self::of(&format!(
            "[probe.deep]\nurl = \"/deep\"\n{PACE}[probe.flat]\nurl = \"/flat\"\n{PACE}\
             [pool.web]\nprobe = [\"flat\", \"deep\"]\n{BACKENDS}"
        ))
    }

    fn of(text: &str) -> Self {
        let fleet = config::parse(text, Path::new("t.toml"), &Overrides::default()).unwrap().fleet;
        let plan = shard::split(&fleet, 1).remove(0);
        let sizes = Sizes { backends: WORD_BACKENDS, ..Sizes::default() };
        let board = Arc::new(Board::in_memory(&sizes).unwrap());
        let guards = Arc::new(Guards::new(&fleet).expect("it is on"));
        let publisher = Publisher::new(
            Arc::clone(&board),
            Arc::new(Journal::default()),
            &fleet,
            0,
            &plan,
            Some(Arc::clone(&guards)),
        );
        let sim = Sim::new(&plan.plan, 1, SECOND_NS);
        let mut rig = Self { board, guards, publisher, plan, sim, now: SECOND_NS };
        assert_eq!(rig.takers_after(10), COUNT, "no verdict was held at the start");
        rig
    }

    /// Lets the first `count` backends behave so.
    fn set(&mut self, count: u32, behaviour: &Behaviour) {
        (0..count).for_each(|backend| self.set_one(backend, behaviour));
    }

    /// Lets a backend behave so.
    fn set_one(&mut self, backend: u32, behaviour: &Behaviour) {
        for probe in (0..).take(self.plan.plan.probes.len()) {
            self.set_probe(backend, probe, behaviour);
        }
    }

    /// Lets a backend behave so to one of its probes.
    fn set_probe(&mut self, backend: u32, probe: u32, behaviour: &Behaviour) {
        let targets = &self.plan.plan.targets;
        let target = |judge: &JudgeIndex| self.plan.plan.judges[judge.0 as usize].target;
        let target = (self.judges(backend).iter().map(target))
            .find(|target| targets[target.0 as usize].probe == ProbeIndex(probe));
        self.sim.set_peer(target.expect("it is probed so"), Peer::new(behaviour.clone()));
    }

    fn judges(&self, backend: u32) -> Vec<JudgeIndex> {
        let own = (0..).zip(&self.plan.owned).filter(|(_, owned)| **owned == backend);
        own.map(|(judge, _)| JudgeIndex(judge)).collect()
    }

    /// Runs for so many seconds, a tick each; how many take new flows then.
    fn takers_after(&mut self, seconds: u64) -> u32 {
        self.run(seconds);
        let takers = self.takers();
        let serving = (0..COUNT).filter(|backend| self.board.serves_old(*backend)).count();
        assert_eq!(serving, takers as usize, "the bits go together");
        takers
    }

    fn takers(&self) -> u32 {
        let takers = (0..COUNT).filter(|backend| self.board.takes_new(*backend)).count();
        assert_eq!(self.board.pool_count(0), takers as u64);
        u32::try_from(takers).expect("ten at most")
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.probe_second();
            self.guards.on_time(self.now);
            self.publisher.on_tick(self.sim.prober(), self.now);
        }
    }

    /// Runs for a second; what the probes brought is told, and no tick comes yet.
    fn probe_second(&mut self) {
        self.now += SECOND_NS;
        let (mut changes, mut reports) = (Vec::new(), Vec::new());
        self.sim.run_until(self.now, &mut |traced| match traced.what {
            Occurrence::Change(change) => changes.push(change),
            Occurrence::Report(report) => reports.push(report),
            Occurrence::Command(_) => {}
        });
        for report in reports {
            self.publisher.on_report(self.sim.prober(), &report, self.now);
        }
        for change in changes {
            self.publisher.on_change(self.sim.prober(), &change, self.now);
        }
    }

    fn stand(&mut self, backend: u32, standing: Standing) {
        let leader = self.judges(backend)[0];
        self.publisher.on_standing(self.sim.prober(), leader, standing);
    }

    /// An operator's word, as a shard hands it on.
    fn say(&mut self, backend: u32, word: Override) {
        let judges = self.judges(backend);
        for judge in &judges {
            let mut changes = Vec::new();
            self.sim.set_override(*judge, word, &mut |traced| {
                if let Occurrence::Change(change) = traced.what {
                    changes.push(change);
                }
            });
            for change in changes {
                self.publisher.on_change(self.sim.prober(), &change, self.now);
            }
        }
        self.publisher.on_override(self.sim.prober(), judges[0]);
    }

    /// The first backend parts, and another joins that has its index and never answers.
    fn replace_first(&mut self) {
        let judge = self.judges(0)[0];
        let target = self.plan.plan.judges[judge.0 as usize].target;
        self.sim.remove(target, &mut |_| {});
        self.publisher.on_parted(&[judge], &[target]);
        let spec = self.plan.plan.targets[target.0 as usize].clone();
        let JudgeSpec { rule, on_unknown, .. } = self.plan.plan.judges[judge.0 as usize];
        let seat = self.sim.add(&spec, rule, on_unknown, &mut |_| {}).expect("there is room");
        self.sim.set_peer(seat.0, Peer::new(Behaviour::BlackHole));
        let endpoint = self.plan.endpoints[target.0 as usize].clone();
        let judged = Judged { target: 0, spec, endpoint, rule, on_unknown, rate: 1 };
        let name = "web.other".into();
        let joining = Joining { backend: 0, pool: 0, name, judged: vec![judged] };
        let joined = Joined { joining: &joining, seats: &[(seat.1, seat.0)] };
        self.publisher.on_joined(self.sim.prober(), &joined);
    }

    fn is_held(&self) -> bool {
        !self.guards.views(self.now).is_empty()
    }
}

#[test]
fn silence_of_more_than_the_share_is_held_and_all_of_it_is_restored() {
    let mut rig = Rig::healthy();
    rig.set(7, &Behaviour::BlackHole);
    // Some fell before the guard could know: they are given back.
    assert_eq!(rig.takers_after(6), COUNT);
    assert_eq!(rig.guards.views(rig.now).len(), 1);
    // For 60 s at most; then the verdicts are as the probes say.
    assert_eq!(rig.takers_after(50), COUNT);
    assert_eq!(rig.takers_after(10), 3);
    assert_eq!(rig.guards.views(rig.now), []);
    assert_eq!(rig.takers_after(60), 3, "and it does not begin again");
}

#[test]
fn no_more_than_the_share_is_believed() {
    let mut rig = Rig::healthy();
    rig.set(5, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), 5);
}

#[test]
fn refusals_are_believed_without_a_sign_of_this_host() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::Refuses);
    assert_eq!(rig.takers_after(6), 0);
}

#[test]
fn refusals_are_not_believed_while_this_host_lacks_descriptors() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::Refuses);
    rig.sim.set_peer(TargetIndex(9), Peer::new(Behaviour::NoSocket { errno: libc::EMFILE }));
    assert_eq!(rig.takers_after(6), COUNT);
    let views = rig.guards.views(rig.now);
    assert_eq!(views[0].evidence, "this host lacked resources to probe");
}

#[test]
fn link_that_is_lost_is_a_sign() {
    let mut rig = Rig::healthy();
    rig.set(6, &Behaviour::Refuses);
    assert_eq!(rig.takers_after(6), 4);
    rig.guards.sign(Evidence::Link, rig.now);
    assert_eq!(rig.takers_after(1), COUNT);
}

#[test]
fn release_by_hand_tells_the_verdicts_as_they_are() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    assert_eq!(rig.guards.release(Some("web"), rig.now), ["web"]);
    assert_eq!(rig.takers_after(1), 0);
    assert_eq!(rig.guards.release(None, rig.now), [""; 0]);
}

#[test]
fn recovery_ends_the_hold_and_the_rest_is_believed() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.set(10, &Peer::HEALTHY.behaviour);
    rig.set(2, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), 8);
    assert_eq!(rig.guards.views(rig.now), []);
}

#[test]
fn operators_word_counts_while_verdicts_are_held() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.sim.set_override(JudgeIndex(0), Override::Sick, &mut |_| {});
    assert_eq!(rig.takers_after(1), 9);
    assert!(!rig.board.takes_new(0));
}

const WELL: Behaviour = Behaviour::Answers(Cow::Borrowed(OK));
/// This host has no descriptors left: a probe says nothing of the backend.
const NO_DESCRIPTORS: Behaviour = Behaviour::NoSocket { errno: libc::EMFILE };
/// Until a backend is unknown.
const SILENCE_S: u64 = 35;

#[test]
fn backend_repaired_in_maintenance_stays_healthy_when_others_are_held() {
    let mut rig = Rig::healthy();
    rig.set_one(0, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), 9);
    rig.stand(0, Standing::Maintenance);
    rig.set_one(0, &WELL);
    rig.run(20);
    rig.stand(0, Standing::Full);
    assert_eq!(rig.takers_after(1), COUNT);
    // A hold begins, which does not reach back to its fall, and ends.
    (1..8).for_each(|backend| rig.set_one(backend, &Behaviour::BlackHole));
    assert_eq!(rig.takers_after(6), COUNT);
    assert!(rig.is_held());
    (1..8).for_each(|backend| rig.set_one(backend, &WELL));
    assert_eq!(rig.takers_after(6), COUNT);
    assert!(!rig.is_held());
}

#[test]
fn recovery_in_maintenance_counts_for_the_hold() {
    let mut rig = Rig::healthy();
    rig.set(6, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.stand(0, Standing::Maintenance);
    rig.run(6);
    assert!(rig.is_held(), "it is still sick");
    rig.set_one(0, &WELL);
    rig.run(6);
    assert!(!rig.is_held(), "five of ten are not too many");
    rig.stand(0, Standing::Full);
    assert_eq!(rig.takers_after(1), 5);
}

#[test]
fn backend_that_fell_in_maintenance_is_not_held_for_a_fall_before_it() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.stand(0, Standing::Maintenance);
    rig.set_one(0, &WELL);
    rig.run(6);
    rig.set_one(0, &Behaviour::BlackHole);
    rig.run(6);
    rig.stand(0, Standing::Full);
    assert_eq!(rig.takers_after(1), 9);
    assert!(rig.is_held());
}

#[test]
fn silence_is_no_recovery() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.set(10, &NO_DESCRIPTORS);
    assert_eq!(rig.takers_after(SILENCE_S), COUNT);
    assert!(rig.sim.prober().history(TargetIndex(0)).unknown);
    assert!(rig.is_held());
    // What is bad again is as little news.
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(3), COUNT);
    assert!(rig.is_held());
}

#[test]
fn silence_that_condemns_is_not_held_and_no_recovery_either() {
    let mut rig = Rig::strict();
    rig.set(6, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.set(10, &NO_DESCRIPTORS);
    assert_eq!(rig.takers_after(SILENCE_S), 0, "as configured");
    assert!(rig.is_held());
    rig.set(6, &Behaviour::BlackHole);
    (6..10).for_each(|backend| rig.set_one(backend, &WELL));
    assert_eq!(rig.takers_after(3), COUNT, "the fall before is held still");
}

#[test]
fn word_over_one_of_several_judges_is_no_recovery() {
    let mut rig = Rig::twice_probed();
    (0..10).for_each(|backend| rig.set_probe(backend, 1, &Behaviour::BlackHole));
    assert_eq!(rig.takers_after(6), COUNT);
    rig.say(0, Override::Sick);
    assert_eq!(rig.takers_after(1), 9);
    rig.say(0, Override::Auto);
    assert_eq!(rig.takers_after(1), COUNT);
    // All of them: too few would be left for the hold.
    (0..10).for_each(|backend| rig.say(backend, Override::Sick));
    assert_eq!(rig.takers_after(1), 0);
    assert!(rig.is_held());
    (0..10).for_each(|backend| rig.say(backend, Override::Auto));
    assert_eq!(rig.takers_after(1), COUNT);
}

#[test]
fn result_of_a_held_backend_that_is_forced_sick_gives_it_no_flows() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.say(0, Override::Sick);
    rig.set_one(0, &NO_DESCRIPTORS);
    assert_eq!(rig.takers_after(SILENCE_S), 9);
    rig.set_one(0, &Behaviour::BlackHole);
    for second in 0..3 {
        rig.probe_second();
        assert!(!rig.board.takes_new(0), "not until the next tick either: second {second}");
        rig.run(1);
    }
    assert!(!rig.sim.prober().history(TargetIndex(0)).unknown, "a result came");
}

#[test]
fn recovery_beneath_an_operators_word_counts_for_the_hold() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    (0..6).for_each(|backend| rig.say(backend, Override::Sick));
    assert_eq!(rig.takers_after(1), 4);
    assert!(rig.is_held(), "the word makes nobody healthy");
    rig.set(9, &WELL);
    assert_eq!(rig.takers_after(6), 3);
    assert!(!rig.is_held(), "nine are healthy again");
}

#[test]
fn backend_that_has_the_index_of_a_held_one_is_not_held_for_it() {
    let mut rig = Rig::healthy();
    rig.set(10, &Behaviour::BlackHole);
    assert_eq!(rig.takers_after(6), COUNT);
    rig.replace_first();
    assert_eq!(rig.takers_after(6), 9);
    assert!(rig.is_held());
    assert_eq!(rig.guards.release(None, rig.now), ["web"]);
    assert_eq!(rig.takers_after(1), 0);
}
