//! Faults of this host, and not of a backend: none of them condemns one.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// The wall clock jumps by a day.
mod clock;
/// The agent stands still for a while.
mod frozen;
/// No port is left to connect from.
mod ports;

use sickbay_lab::stage::Stage;
use sickbay_shared::abi::{STATE_HEALTHY, TargetRecord};

/// The history of a backend that one target judges, by its index.
fn record(stage: &Stage, index: u32) -> TargetRecord {
    stage.agent.board().unwrap().target(index).unwrap()
}

#[track_caller]
fn assert_nobody_was_condemned(stage: &Stage) {
    let said = stage.agent.said();
    assert_eq!(said.matches("went sick").count(), 0, "{said}");
    for index in 0..u32::try_from(stage.network.backends.len()).unwrap() {
        assert_eq!(record(stage, index).state, STATE_HEALTHY, "backend {index}\n{said}");
    }
}
