//! The publisher under the guard: simulated probes, the real board.

use std::path::Path;

use sickbay_core::plan::TargetIndex;
use sickbay_core::sim::{Behaviour, Occurrence, Peer, Sim};
use sickbay_shared::limits::WORD_BACKENDS;

use super::*;
use crate::board::Board;
use crate::config::{self, Overrides};
use crate::control::journal::Journal;
use crate::engine::Sink as _;
use crate::kernel::Sizes;
use crate::publish::Publisher;
use crate::shard;

const SECOND_NS: Nanos = 1_000_000_000;
/// Backends of the pool.
const COUNT: u32 = 10;

/// One pool of ten, guarded at a half within 10 s for 60 s; probed each second, sick after two bad
/// results of three.
struct Rig {
    board: Arc<Board>,
    guards: Arc<Guards>,
    publisher: Publisher,
    sim: Sim,
    now: Nanos,
}

impl Rig {
    /// Ten seconds after the start, when all are healthy.
    fn healthy() -> Self {
        let text = "[probe.p]\nurl = \"/p\"\ninterval = \"1s\"\ntimeout = \"500ms\"\nwindow = 3\n\
                    threshold = 2\n[pool.web]\nprobe = \"p\"\n\
                    backends_range = \"192.0.2.1-192.0.2.10:80\"\n[guard]\nshare = \"50%\"\n";
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
        let mut rig = Self { board, guards, publisher, sim, now: SECOND_NS };
        assert_eq!(rig.takers_after(10), COUNT, "no verdict was held at the start");
        rig
    }

    /// Lets `count` backends behave so.
    fn set(&mut self, count: u32, behaviour: &Behaviour) {
        for target in 0..count {
            self.sim.set_peer(TargetIndex(target), Peer::new(behaviour.clone()));
        }
    }

    /// Runs for so many seconds, a tick each; how many take new flows then.
    fn takers_after(&mut self, seconds: u64) -> u32 {
        for _ in 0..seconds {
            self.now += SECOND_NS;
            let (mut changes, mut reports) = (Vec::new(), Vec::new());
            self.sim.run_until(self.now, &mut |traced| match traced.what {
                Occurrence::Change(change) => changes.push(change),
                Occurrence::Report(report) => reports.push(report),
                _ => {}
            });
            for report in reports {
                self.publisher.on_report(self.sim.prober(), &report, self.now);
            }
            for change in changes {
                self.publisher.on_change(self.sim.prober(), &change, self.now);
            }
            self.guards.on_time(self.now);
            self.publisher.on_tick(self.sim.prober(), self.now);
        }
        let takers = (0..COUNT).filter(|backend| self.board.takes_new(*backend)).count();
        assert_eq!(self.board.pool_count(0), takers as u64);
        let serving = (0..COUNT).filter(|backend| self.board.serves_old(*backend)).count();
        assert_eq!(serving, takers, "the bits go together");
        takers as u32
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
