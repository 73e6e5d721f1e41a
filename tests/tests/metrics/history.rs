//! The history over crashes and a full disk.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount, umount};
use serde_json::Value;
use sickbay_lab::agent::{STATE_DIRECTORY, history};
use sickbay_lab::clock::wait_until;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures::show;

use super::{observed, value};

/// The events of an instance's history.
fn events(instance: &str) -> Vec<Value> {
    let text = history(instance, &["-o", "json"]).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What the events tell of this backend, in their order.
fn went(events: &[Value], name: &str) -> Vec<String> {
    let of = events.iter().filter(|event| event["name"] == name && event["member"].is_null());
    of.map(|event| event["to"].as_str().unwrap().to_owned()).collect()
}

/// Their numbers leave out none.
#[track_caller]
fn assert_without_gap(events: &[Value]) {
    let orders: Vec<u64> = events.iter().map(|event| event["order"].as_u64().unwrap()).collect();
    let last = orders.last().copied().unwrap_or(0);
    assert_eq!(orders, (1..=last).collect::<Vec<_>>());
}

fn newest_file(directory: &Path) -> PathBuf {
    // What operators said stands beside it.
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let events = entries.filter(|path| path.extension().is_some_and(|it| it == "jsonl"));
    events.max().expect("a history has a file")
}

#[test]
fn history_outlives_a_crash_and_the_line_that_it_tore() {
    let configuration = observed();
    let instance = configuration.instance.clone();
    let mut stage = Stage::new(2, &configuration).unwrap();
    stage.wait_for_healthy(2).unwrap();
    stage.servers[0].take().unwrap().stop().unwrap();
    stage.wait_for_healthy(1).unwrap();
    let told = || {
        let events = events(&instance);
        (went(&events, "web.backend-1") == ["healthy", "sick"]).then_some(events)
    };
    let before = wait_until("the history tells of the death", PATIENCE, told).unwrap();
    let sick = before.iter().rfind(|event| event["to"] == "sick").unwrap();
    assert_eq!(sick["why"], "probe");
    assert_eq!((&sick["from"], &sick["good"]), (&"healthy".into(), &2.into()), "{sick}");
    let cause = sick["cause"].as_str().unwrap();
    assert!(cause.contains("Connection refused"), "{cause}");
    assert!(sick["time"].as_str().unwrap().ends_with('Z'), "{sick}");

    // A word that changes nothing now: no transition would tell of it.
    for word in ["sick", "auto"] {
        let output = stage.agent.ask(&["backend", "set-health", "backend-1", word]).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let words = [
        "web.backend-1 is set sick; by root",
        "web.backend-1 is left to its probes again; by root",
    ];
    wait_until("the history tells of the operator's words", PATIENCE, || {
        let text = history(&instance, &[]).ok()?;
        words.iter().all(|word| text.contains(word)).then_some(())
    })
    .unwrap();
    let before = events(&instance);

    stage.agent.crash().unwrap();
    let directory = Path::new(STATE_DIRECTORY).join(&instance);
    let mut file = File::options().append(true).open(newest_file(&directory)).unwrap();
    // Half of an event that a crash would leave.
    file.write_all(b"{\"order\":99,\"time\":\"20").unwrap();
    assert_eq!(events(&instance), before, "a torn line is no event");
    stage.agent.start_again().unwrap();
    let said = stage.agent.said();
    assert!(said.contains("a line that was not whole (22 bytes"), "{said}");
    stage.restart(0).unwrap();
    stage.wait_for_healthy(2).unwrap();
    let after = wait_until("the history goes on", PATIENCE, || {
        let events = events(&instance);
        (went(&events, "web.backend-1").last()? == "healthy").then_some(events)
    })
    .unwrap();
    assert_eq!(after[..before.len()], before, "what was told is told");
    assert_without_gap(&after);
    let text = history(&instance, &["web.backend-1", "--since", "1h"]).unwrap();
    assert!(text.contains(" web.backend-1 went sick: 2 of 4 good, needs 3: "), "{text}");
    assert!(!text.contains("backend-2"), "{text}");
    let soon = "2100-01-01T00:00:00Z";
    assert_eq!(history(&instance, &["--since", soon]).unwrap(), "");
    show(&format!("{} events over a crash, none missing", after.len()));
}

/// A small disk at the instance's place; unmounted when dropped.
struct Disk(PathBuf);

impl Disk {
    fn new(instance: &str, size: &str) -> Self {
        let path = Path::new(STATE_DIRECTORY).join(instance);
        fs::create_dir_all(&path).unwrap();
        let options = format!("mode=0700,size={size}");
        mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
            .unwrap();
        Self(path)
    }

    /// Fills it to the last byte by a file that is none of the history's.
    fn fill(&self) {
        let mut file = File::create(self.0.join("filler")).unwrap();
        let full = loop {
            if let Err(error) = file.write_all(&[0; 512]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull, "{full}");
    }

    fn make_room(&self) {
        fs::remove_file(self.0.join("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _gone_with_the_namespace = umount(&self.0);
    }
}

#[test]
fn full_disk_stops_nothing_is_said_once_and_the_history_goes_on_when_there_is_room() {
    let configuration = observed();
    let instance = configuration.instance.clone();
    let disk = Disk::new(&instance, "128k");
    let stage = Stage::new(3, &configuration).unwrap();
    stage.wait_for_healthy(3).unwrap();
    let namespace = stage.network.host.namespace.clone();
    wait_until("first verdicts are written", PATIENCE, || {
        (3 <= events(&instance).len()).then_some(())
    })
    .unwrap();
    disk.fill();
    let flip = |word: &str, healthy: u64| {
        let output = stage.agent.ask(&["backend", "set-health", "*", word]).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        stage.wait_for_healthy(healthy).unwrap();
    };
    // Verdicts go on changing while nothing of it can be written: the last page of a file takes a
    // dozen events, no more.
    let mut flips = 0;
    while value(&namespace, "sickbay_history_failing") != Some(1.0) {
        flip("sick", 0);
        flip("auto", 3);
        flips += 2;
        assert!(flips < 100, "the disk is full");
    }
    let written = value(&namespace, "sickbay_history_events_total").unwrap();
    for _ in 0..3 {
        flip("sick", 0);
        flip("auto", 3);
        flips += 2;
    }
    assert_eq!(value(&namespace, "sickbay_history_events_total"), Some(written));
    assert!(1.0 <= value(&namespace, "sickbay_history_write_errors_total").unwrap());
    let said = |what: &str| stage.agent.said().matches(what).count();
    let failed = "cannot be written: No space left on device";
    assert_eq!(said(failed), 1, "{}", stage.agent.said());

    disk.make_room();
    wait_until("the history is written again", PATIENCE, || {
        (value(&namespace, "sickbay_history_failing") == Some(0.0)).then_some(())
    })
    .unwrap();
    // Each time that it was set, and each verdict that followed.
    let all = 3 + 6 * flips;
    let events = wait_until("what waited is written", PATIENCE, || {
        let events = events(&instance);
        (all <= events.len()).then_some(events)
    })
    .unwrap();
    assert_eq!(events.len(), all);
    assert_without_gap(&events);
    assert_eq!(value(&namespace, "sickbay_history_events_lost_total"), Some(0.0));
    assert_eq!((said(failed), said("the history is written again; 0 events are missing")), (1, 1));
    show(&format!("disk full during {flips} changes of 3 verdicts: {all} events, none lost"));
}

#[test]
fn agent_starts_on_a_full_disk_and_writes_when_there_is_room() {
    let configuration = observed();
    let instance = configuration.instance.clone();
    let disk = Disk::new(&instance, "16k");
    // Files take memory of a tmpfs, names do not: fill it, so that no line has room.
    disk.fill();
    let stage = Stage::new(2, &configuration).unwrap();
    stage.wait_for_healthy(2).unwrap();
    let namespace = stage.network.host.namespace.clone();
    wait_until("it is told", PATIENCE, || {
        (value(&namespace, "sickbay_history_failing") == Some(1.0)).then_some(())
    })
    .unwrap();
    disk.make_room();
    let events = wait_until("first verdicts are written", PATIENCE, || {
        let events = events(&instance);
        (2 <= events.len()).then_some(events)
    })
    .unwrap();
    assert_without_gap(&events);
}
