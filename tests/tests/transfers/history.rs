//! What a killed agent leaves, and the next one takes up: histories, verdicts, words to come.

use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::{Configuration, INTERVAL_MS};
use sickbay_lab::network::Family;
use sickbay_lab::record::Flow;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_shared::abi::{STATE_SICK, TargetRecord};

const BACKENDS: usize = 3;

fn records(stage: &Stage) -> Vec<TargetRecord> {
    let board = stage.agent.board().unwrap();
    (0..BACKENDS as u32).map(|index| board.target(index).unwrap()).collect()
}

/// Whether `later` is `earlier` with a few more results shifted in.
fn goes_on(earlier: &TargetRecord, later: &TargetRecord, results_max: u32) -> bool {
    (0..=results_max).any(|results| {
        let same = |(before, after): (&u64, &u64)| after >> results == before << results >> results;
        earlier.registers.iter().zip(&later.registers).all(same)
    })
}

#[test]
fn next_agent_goes_on_with_the_registers_bit_for_bit_and_attaches_at_once() {
    let mut stage = Stage::new(BACKENDS, &Configuration::usual()).unwrap();
    stage.servers[1].take().unwrap().stop().unwrap();
    stage.wait_for_healthy(2).unwrap();
    wait_until("each has twenty results", PATIENCE, || {
        let dull = |record: &TargetRecord| record.registers.iter().all(|it| it.count_ones() < 12);
        let records = records(&stage);
        (!dull(&records[0]) && records[1].state == STATE_SICK).then_some(())
    })
    .unwrap();
    let load = stage.load(Family::V4);
    load.wait_for_connections(200, 0, PATIENCE).unwrap();
    // Held still first: nothing is written between the look and the end.
    stage.agent.pause().unwrap();
    let before = records(&stage);
    stage.agent.crash().unwrap();
    let started_ns = monotonic_ns();
    stage.agent.start_again().unwrap();
    let after = records(&stage);
    let took_ms = (monotonic_ns() - started_ns) / 1_000_000;
    let results_max = u32::try_from(took_ms / INTERVAL_MS + 2).unwrap();
    for (before, after) in before.iter().zip(&after) {
        assert!(goes_on(before, after, results_max), "{before:?}\n{after:?}");
        assert_eq!((before.identity, before.state), (after.identity, after.state));
        assert_eq!(before.changed_ns, after.changed_ns, "no verdict has changed");
    }
    let killed_ns = started_ns;
    load.wait_for_connections(400, killed_ns, PATIENCE).unwrap();
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    assert!(record.kept.iter().all(Flow::stayed));
    assert_eq!(record.answered_count("backend-2", 0, u64::MAX), 0, "it was sick all along");
    let said = stage.agent.said();
    assert!(said.contains("taken up: 3 of 3 histories"), "{said}");
    assert_eq!(said.matches("web.backend-1 went healthy").count(), 1, "once, and by the first");
    assert_eq!(said.matches("web.backend-2 went sick").count(), 1, "{said}");
}
