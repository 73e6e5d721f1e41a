//! The agent itself stands still and goes on: what it did not see is held against nobody.

use std::thread;
use std::time::Duration;

use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::{Configuration, INTERVAL_MS, TIMEOUT_MS};
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures::show;

use super::{assert_nobody_was_condemned, record};

/// How often it stands still: at moments that are spread over an interval, so that probes of every
/// stage are under way in some of them.
const TIMES: u64 = 24;

#[test]
fn frozen_agent_holds_what_it_did_not_see_against_nobody() {
    let stage = Stage::new(2, &Configuration::usual()).unwrap();
    // Many times what a bad result or two would take, were its deadlines just passed.
    let frozen = Duration::from_millis(3 * TIMEOUT_MS);
    for time in 0..TIMES {
        let last_ns = [0, 1].map(|index| record(&stage, index).last_result_ns);
        stage.agent.pause().unwrap();
        thread::sleep(frozen);
        stage.agent.resume().unwrap();
        wait_until("both are probed again", PATIENCE, || {
            let is_later =
                |index: usize| last_ns[index] < record(&stage, index as u32).last_result_ns;
            (is_later(0) && is_later(1)).then_some(())
        })
        .unwrap();
        thread::sleep(Duration::from_millis(time * INTERVAL_MS / TIMES));
    }
    assert_nobody_was_condemned(&stage);
    show(&format!("stopped {TIMES} times for {frozen:?}: nobody was condemned"));
}
