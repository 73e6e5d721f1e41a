//! The wall clock of an agent jumps by a day, forth and back, while it runs.
//!
//! By a library in front of the C library's clocks, which spares CLOCK_MONOTONIC as settimeofday(2)
//! does; what the kernel keeps of time (rings, timers, stamps of packets) never was the wall clock's.

use std::fs;
use std::path::Path;

use sickbay_lab::agent::Launch;
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::{BOUND_MS, Configuration, INTERVAL_MS};
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_lab::{clock, private};
use sickbay_tests::figures::show;

use super::{assert_nobody_was_condemned, record};

const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Probes of each backend after each jump.
const PROBES: u64 = 20;

/// Says how far the agent's wall clock is from this machine's.
fn step(file: &Path, offset: &str) {
    let next = file.with_extension("next");
    fs::write(&next, offset).unwrap();
    fs::rename(&next, file).unwrap();
}

/// By the agent's own wall clock: what it says of an operator's word that it is given now.
fn wall_ms(stage: &Stage) -> u64 {
    let said = stage.agent.ask(&["backend", "set-health", "backend-2", "healthy"]).unwrap();
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
    let listed = stage.agent.ask_json(&["backend", "list"]).unwrap();
    let backends = listed.as_array().unwrap();
    let told = backends.iter().find(|it| it["name"] == "web.backend-2").unwrap();
    told["health_said"]["at_unix_ms"].as_u64().unwrap_or_else(|| panic!("{told}"))
}

fn real_ms() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

/// Waits for results of each backend that came [`PROBES`] intervals from now.
#[track_caller]
fn probe_on(stage: &Stage, offset: &str) {
    let begin_ns = clock::monotonic_ns();
    let due_ns = begin_ns + PROBES * INTERVAL_MS * 1_000_000;
    wait_until(&format!("each is probed on at {offset}"), PATIENCE, || {
        let is_due = |index| due_ns <= record(stage, index).last_result_ns;
        (is_due(0) && is_due(1)).then_some(())
    })
    .unwrap();
    assert_nobody_was_condemned(stage);
}

#[test]
fn wall_clock_that_jumps_by_a_day_condemns_nobody_and_delays_no_verdict() {
    assert!(Path::new(LIBRARY).exists(), "package libfaketime");
    // The library looks into a file, which is a place that an agent does not need.
    let more = format!("[privilege]\nreadable = [\"{}\"]\n", private::scratch().display());
    let configuration = Configuration { more, ..Configuration::usual() };
    let mut stage = Stage::new(2, &configuration).unwrap();
    let file = private::scratch().join("wall-clock");
    step(&file, "+0");
    stage.agent.set_launch(Launch {
        keeps: true,
        environment: vec![
            ("LD_PRELOAD", LIBRARY.to_owned()),
            ("FAKETIME_TIMESTAMP_FILE", file.display().to_string()),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
        ],
        ..Launch::default()
    });
    stage.agent.crash().unwrap();
    stage.agent.start_again().unwrap();
    for (offset, sign) in [("+1d", 1), ("-1d", -1), ("+0", 0)] {
        step(&file, offset);
        let expected = real_ms().saturating_add_signed(sign * DAY_MS.cast_signed());
        let shown = wall_ms(&stage);
        assert!(shown.abs_diff(expected) < 60_000, "the jump is not seen: {shown}, {expected}");
        probe_on(&stage, offset);
    }
    let back = stage.agent.ask(&["backend", "set-health", "backend-2", "auto"]).unwrap();
    assert!(back.status.success());
    // A death just after a jump is noticed in the time that the probes promise.
    step(&file, "+1d");
    stage.servers[0].take().unwrap().stop().unwrap();
    let dead_ns = clock::monotonic_ns();
    let changed_ns = wait_until("the dead one is sick", PATIENCE, || {
        let record = record(&stage, 0);
        (record.state == sickbay_shared::abi::STATE_SICK).then_some(record.changed_ns)
    })
    .unwrap();
    let took_ms = changed_ns.saturating_sub(dead_ns) / 1_000_000;
    show(&format!(
        "the wall clock jumped by a day four times: nobody was condemned, and a death was noticed \
         within {took_ms} ms (promised: {BOUND_MS})"
    ));
    // Wide: this machine may be busy. A deadline by the wall clock would be a day off.
    assert!(took_ms < 10 * BOUND_MS, "{took_ms} ms");
}
