//! The publisher over the simulator: what of the probes' results reaches the board.

use std::path::Path;

use sickbay_core::sim::{Behaviour, Occurrence, Peer, Sim};
use sickbay_shared::limits::WORD_BACKENDS;

use super::*;
use crate::config::{self, Overrides};
use crate::kernel::Sizes;
use crate::shard::{self, Roster as _};

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
        // As they are laid out before the first probe.
        board.set_allowed(0, true);
        board.set_serves_old(0, true);
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

#[test]
fn backend_that_took_flows_goes_on_until_all_of_its_probes_have_a_verdict() {
    let text = format!(
        "[probe.deep]\nurl = \"/deep\"\ninitial = 0\n{PACE}[probe.flat]\nurl = \"/flat\"\n{PACE}\
         [pool.web]\nprobe = [\"flat\", \"deep\"]\nbackends = [\"192.0.2.1:80\"]\n{SERVICE}"
    );
    let refuses = Peer { behaviour: Behaviour::Refuses, ..Peer::HEALTHY };
    for (peer, last) in [(Peer::HEALTHY, Verdict::Healthy), (refuses, Verdict::Sick)] {
        let mut rig = Rig::new(&text);
        for target in [0, 1] {
            rig.sim.set_peer(TargetIndex(target), peer.clone());
        }
        // As an agent before this one left it, by other probes.
        rig.board.set_takes_new(0, 0, true);
        let mut verdicts = Vec::new();
        for _ in 0..50 {
            let takes_new = rig.takes_new_after(SECOND_NS / 10);
            let verdict = rig.publisher.verdict(rig.sim.prober(), 0);
            assert_eq!(takes_new, verdict != Verdict::Sick, "{verdict:?}");
            verdicts.push(verdict);
        }
        assert_eq!((verdicts[0], verdicts[49]), (Verdict::Warming, last));
    }
}

impl Rig {
    /// Takes new flows, serves those it has, may be chosen when all are sick.
    fn bits(&self) -> (bool, bool, bool) {
        (self.board.takes_new(0), self.board.serves_old(0), self.board.allowed(0))
    }

    fn stand(&mut self, standing: Standing) -> (bool, bool, bool) {
        self.publisher.on_standing(self.sim.prober(), JudgeIndex(0), standing);
        self.bits()
    }

    fn say(&mut self, word: Override) -> (bool, bool, bool) {
        let mut changes = Vec::new();
        self.sim.set_override(JudgeIndex(0), word, &mut |traced| {
            if let Occurrence::Change(change) = traced.what {
                changes.push(change);
            }
        });
        for change in changes {
            self.publisher.on_change(self.sim.prober(), &change, self.now);
        }
        self.publisher.on_override(self.sim.prober(), JudgeIndex(0));
        self.bits()
    }
}

fn one_backend() -> Rig {
    Rig::new(&format!(
        "[probe.p]\nurl = \"/p\"\n{PACE}\
         [pool.web]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n{SERVICE}"
    ))
}

#[test]
fn drained_backend_keeps_its_flows_until_its_time_is_over_whatever_its_probes_say() {
    let mut rig = one_backend();
    assert!(rig.takes_new_after(5 * SECOND_NS));
    assert_eq!(rig.stand(Standing::Draining), (false, true, false));
    // A verdict that falls meanwhile is told of the flows it has, and of no new ones.
    let refuses = Peer { behaviour: Behaviour::Refuses, ..Peer::HEALTHY };
    rig.sim.set_peer(TargetIndex(0), refuses);
    rig.takes_new_after(5 * SECOND_NS);
    assert_eq!(rig.bits(), (false, false, false));
    rig.sim.set_peer(TargetIndex(0), Peer::HEALTHY);
    rig.takes_new_after(5 * SECOND_NS);
    assert_eq!(rig.bits(), (false, true, false));
    assert_eq!(rig.stand(Standing::Over), (false, false, false));
    assert_eq!(rig.stand(Standing::Full), (true, true, true));
}

#[test]
fn backend_that_is_forced_sick_is_not_chosen_when_all_are_sick_either() {
    let mut rig = one_backend();
    assert!(rig.takes_new_after(5 * SECOND_NS));
    assert_eq!(rig.say(Override::Sick), (false, false, false));
    assert_eq!(rig.say(Override::Auto), (true, true, true));
    let refuses = Peer { behaviour: Behaviour::Refuses, ..Peer::HEALTHY };
    rig.sim.set_peer(TargetIndex(0), refuses);
    assert!(!rig.takes_new_after(5 * SECOND_NS));
    assert_eq!(rig.bits(), (false, false, true));
    // Sick already: the word changes no verdict, and is heard all the same.
    assert_eq!(rig.say(Override::Sick), (false, false, false));
    assert_eq!(rig.say(Override::Auto), (false, false, true));
}
