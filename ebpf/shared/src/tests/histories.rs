//! Random histories of health, membership, policies and flows: who must stay, stays; who is new,
//! goes where somebody takes him.
//!
//! The same histories are run over tables that lie: each takes one rule out, and each is found out.

/// What was promised to whom, and whether a packet keeps it.
mod promises;
/// What happens: health, membership, clients and time.
mod world;

use std::vec;
use std::vec::Vec;

use proptest::collection;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRng, TestRunner};

use self::world::{BACKENDS, CLIENTS, Policies, SLOTS, Step, World};
use crate::abi::{
    ALL_SICK_DROP, ALL_SICK_OPEN, ALL_SICK_RESET, ON_SICK_KEEP, ON_SICK_REHASH, ON_SICK_RESET,
    STALE_LAST, STALE_OPEN,
};
use crate::model::Lie;

/// Histories of one run.
const HISTORIES: u32 = 100_000;

#[test]
fn no_change_moves_a_flow_that_must_stay_and_no_new_flow_goes_to_the_sick() {
    if let Err(error) = run(None, 1_024) {
        panic!("{error}");
    }
}

#[test]
fn each_rule_that_is_taken_out_is_missed() {
    for lie in Lie::ALL {
        match run(Some(lie), 0) {
            Err(TestError::Fail(..)) => {}
            Err(error) => panic!("{lie:?}: {error}"),
            Ok(()) => panic!("{lie:?} broke no promise in {HISTORIES} histories"),
        }
    }
}

/// The same histories every time; a failing one is shown at its shortest.
fn run(lie: Option<Lie>, shrinks: u32) -> Result<(), TestError<(Policies, Vec<Step>)>> {
    let config = ProptestConfig {
        cases: HISTORIES,
        failure_persistence: None,
        max_shrink_iters: shrinks,
        ..ProptestConfig::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let history = |(policies, steps): (Policies, Vec<Step>)| {
        let mut world = World::new(&policies, lie);
        steps.iter().try_for_each(|step| world.take(step)).map_err(TestCaseError::fail)
    };
    TestRunner::new_with_rng(config, random)
        .run(&(policies(), collection::vec(step(), 1..60)), history)
}

fn policies() -> impl Strategy<Value = Policies> {
    let on_sick = || prop::sample::select(vec![ON_SICK_KEEP, ON_SICK_REHASH, ON_SICK_RESET]);
    let all_sick = prop::sample::select(vec![ALL_SICK_OPEN, ALL_SICK_DROP, ALL_SICK_RESET]);
    let stale = prop::sample::select(vec![STALE_LAST, STALE_OPEN]);
    let panic_below = prop::sample::select(vec![0, 3]);
    (all_sick, on_sick(), on_sick(), stale, any::<bool>(), panic_below).prop_map(
        |(all_sick, on_sick_tcp, on_sick_udp, stale, has_backup, panic_below)| Policies {
            all_sick,
            on_sick_tcp,
            on_sick_udp,
            stale,
            has_backup,
            panic_below,
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..BACKENDS, any::<bool>()).prop_map(|(which, on)| Step::Health(which, on)),
        2 => (0..BACKENDS, any::<bool>()).prop_map(|(which, on)| Step::Drain(which, on)),
        8 => (0..CLIENTS).prop_map(Step::Syn),
        10 => (0..CLIENTS).prop_map(Step::Data),
        1 => (0..CLIENTS).prop_map(Step::Close),
        8 => (0..CLIENTS).prop_map(Step::Datagram),
        1 => (0..CLIENTS).prop_map(Step::Evict),
        4 => (0..SLOTS, 0..BACKENDS).prop_map(|(slot, which)| Step::Rewrite(slot, which)),
        1 => (0..BACKENDS).prop_map(Step::Retire),
        2 => Just(Step::Settle),
        1 => any::<bool>().prop_map(Step::Beat),
        3 => (1..40_u64).prop_map(Step::Wait),
    ]
}
