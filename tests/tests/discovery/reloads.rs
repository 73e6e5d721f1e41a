//! Reloads at ten thousand targets, with edits by chance: nothing leaks, nobody is probed twice, and
//! no verdict changes by a reload alone. Three hundred of them, or as many as SICKBAY_RELOADS says: a
//! thousand take three minutes and a half on a quiet machine.
//!
//! The backends count the requests they get themselves. Most of the members are never edited: of
//! these it is known how often they must have been probed, and that not one result of theirs may be
//! missing. The others come, go and are weighed; a probe's rule changes now and then, which a reload
//! takes as a restart within the process.

use std::collections::HashMap;
use std::env;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use sickbay::control::client::Client;
use sickbay::control::view::{BackendView, ProbeState};
use sickbay_lab::agent::{Agent, PIN_DIRECTORY, RUN_DIRECTORY, STATE_DIRECTORY};
use sickbay_lab::clock::wait_until;
use sickbay_tests::chance::Chance;
use sickbay_tests::figures;

use crate::{PATIENCE, PORT, Stage, client, replace, scratch};

/// Unless SICKBAY_RELOADS says another number.
const RELOADS: u32 = 300;
const TARGETS: u32 = 10_000;
/// Members that are never edited.
const STABLE: u32 = 9_000;
/// Those that come and go; half of them are members at any time, more or less.
const CHANGING: u32 = 2_000;
/// Members that nobody answers for.
const DEAD: u32 = 20;
/// Edits of one reload at most.
const EDITS: u32 = 20;
/// So many of the reloads change the rule too.
const RULE_CHANGES: u32 = 4;
/// After so many of them memory has what it needs: the first takes room for two agents in one.
const WARM_UP_CHANGES: u32 = 2;
/// How often the agent's threads are started.
const STARTS: u32 = 1 + RULE_CHANGES;
const INTERVAL: Duration = Duration::from_secs(4);
/// Good results that a target is given at its start: threshold less one.
const INITIAL: u32 = 1;
/// Memory may grow by so much after that, of some 100 MiB: what the allocator keeps of threads that
/// have ended. A fleet of this size takes 5 MiB, so one that each reload left behind would be 500.
const GROWTH_KIB: u64 = 48 << 10;

/// The members that change: the weight of each, 0 = it is none now.
struct List {
    weights: Vec<u32>,
    /// How often each became a member.
    entries: Vec<u32>,
}

impl List {
    fn new() -> Self {
        let weights: Vec<u32> = (0..CHANGING).map(|index| index % 2).collect();
        Self { entries: weights.clone(), weights }
    }

    fn edit(&mut self, chance: &mut Chance) {
        for _ in 0..=chance.below(EDITS) {
            let index = chance.below(CHANGING) as usize;
            let weight = &mut self.weights[index];
            if *weight == 0 {
                *weight = 1;
                self.entries[index] += 1;
            } else if chance.happens(50) {
                *weight = 0;
            } else {
                *weight = 1 + chance.below(9);
            }
        }
    }

    fn text(&self, stage: &Stage) -> String {
        let mut text = String::new();
        let stable = (0..STABLE).map(|index| (index, 1));
        let changing = (STABLE..).zip(self.weights.iter().copied());
        for (index, weight) in stable.chain(changing).filter(|(_, weight)| *weight != 0) {
            writeln!(text, "{} weight={weight}", stage.backend(index)).unwrap();
        }
        text
    }

    fn members(&self) -> usize {
        STABLE as usize + self.weights.iter().filter(|weight| **weight != 0).count()
    }
}

fn configuration(list: &std::path::Path, window: u32) -> String {
    format!(
        "[agent]\ninstance = \"reloads\"\npin_directory = \"{PIN_DIRECTORY}\"\n\
         run_directory = \"{RUN_DIRECTORY}\"\nstate_directory = \"{STATE_DIRECTORY}\"\nshards = 1\n\
         [probe.web]\nurl = \"/\"\ninterval = \"{}ms\"\ntimeout = \"3s\"\nwindow = {window}\n\
         threshold = 2\n[pool.web]\nprobe = \"web\"\ndrain = \"1s\"\nbackends_file = \"{}\"\n\
         [pool.dead]\nprobe = \"web\"\nbackends_range = \"127.0.250.1-127.0.250.{DEAD}:{}\"\n",
        INTERVAL.as_millis(),
        list.display(),
        PORT + 1,
    )
}

/// What the agent holds: memory in KiB, descriptors, threads.
fn holds(pid: u32) -> (u64, usize, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let resident_kib = line.trim().trim_end_matches(" kB").parse().unwrap();
    let count = |what: &str| fs::read_dir(format!("/proc/{pid}/{what}")).unwrap().count();
    (resident_kib, count("fd"), count("task"))
}

fn views(client: &Client, pattern: &str) -> Vec<BackendView> {
    client.backends(Some(pattern)).unwrap()
}

fn reload(agent: &Agent, client: &Client) {
    if let Err(error) = client.reload(false) {
        panic!("{error}; the agent said:\n{}", agent.said());
    }
}

#[test]
fn many_reloads_leak_nothing_probe_nobody_twice_and_change_no_verdict() {
    let seed: u64 = env::var("SICKBAY_SEED").map_or(20_261_130, |seed| seed.parse().unwrap());
    figures::show(&format!("seed {seed} (set SICKBAY_SEED to repeat another)"));
    let reloads: u32 = env::var("SICKBAY_RELOADS").map_or(RELOADS, |count| count.parse().unwrap());
    let mut chance = Chance::new(seed);
    let stage = Stage::new(STABLE + CHANGING);
    let path = scratch("web.list");
    let mut list = List::new();
    fs::write(&path, list.text(&stage)).unwrap();
    assert_eq!(list.members(), TARGETS as usize);

    let started = Instant::now();
    let agent = stage.start(&configuration(&path, 8));
    let client = client(&agent);
    wait_until("the dead are sick", PATIENCE, || {
        views(&client, "dead.*").iter().all(|it| it.state == ProbeState::Sick).then_some(())
    })
    .unwrap();
    let pid = client.status().unwrap().pid;
    let before = views(&client, "*");
    let mut warm = holds(pid);
    let mut longest = Duration::ZERO;
    let reloading = Instant::now();
    for round in 1..=reloads {
        list.edit(&mut chance);
        replace(&path, &list.text(&stage));
        if round.is_multiple_of(reloads / RULE_CHANGES) {
            let window = if round.is_multiple_of(2 * (reloads / RULE_CHANGES)) { 8 } else { 9 };
            agent.rewrite(&configuration(&path, window)).unwrap();
        }
        let start = Instant::now();
        reload(&agent, &client);
        longest = longest.max(start.elapsed());
        if round == WARM_UP_CHANGES * (reloads / RULE_CHANGES) + 1 {
            // The list of all is the most that is ever asked for, and is asked for at the end.
            assert!(!views(&client, "*").is_empty());
            warm = holds(pid);
            figures::show(&format!("{round} reloads in {:.1?}", reloading.elapsed()));
        }
    }
    let took = reloading.elapsed();
    wait_until("those who left are gone, and the others judged", PATIENCE, || {
        let all = views(&client, "web.*");
        let judged = all.iter().all(|view| view.state == ProbeState::Healthy);
        (judged && all.len() == list.members()).then_some(())
    })
    .unwrap_or_else(|error| panic!("{error}; the agent said:\n{}", agent.said()));
    let (now, after) = (holds(pid), views(&client, "*"));
    let span = started.elapsed();
    figures::show(&format!(
        "{reloads} reloads at {TARGETS} targets in {took:.1?}, the longest {longest:.1?}; after \
         half of them {} MiB, {} descriptors, {} threads; at the end {} MiB, {}, {}",
        warm.0 >> 10,
        warm.1,
        warm.2,
        now.0 >> 10,
        now.1,
        now.2,
    ));
    // One that serves the admin socket for a while; one that each reload left behind would be hundreds.
    assert!(now.2 <= warm.2 + 2, "{} threads, then {}", warm.2, now.2);
    // A connection to the admin socket or a file that is being read may be open at one of the two
    // moments; one that each reload left behind would be hundreds.
    assert!(now.1 <= warm.1 + 4, "{} descriptors, then {}", warm.1, now.1);
    assert!(now.0 <= warm.0 + GROWTH_KIB, "{} KiB, then {} KiB", warm.0, now.0);
    no_verdict_changed(&stage, &before, &after);
    nobody_is_probed_twice(&stage, &list, span);
    nothing_is_forgotten(&stage, &after);
}

/// Who was there all the time has the verdict of the beginning, and since then.
fn no_verdict_changed(stage: &Stage, before: &[BackendView], after: &[BackendView]) {
    let (before, after) = (by_address(before), by_address(after));
    let verdict = |views: &HashMap<&str, &BackendView>, address: &str| {
        let view = views.get(address).unwrap_or_else(|| panic!("{address} is gone"));
        (view.state, view.last_change_ns)
    };
    let dead = (1..=DEAD).map(|host| format!("127.0.250.{host}:{}", PORT + 1));
    for address in (0..STABLE).map(|index| stage.backend(index)).chain(dead) {
        assert_eq!(verdict(&before, &address), verdict(&after, &address), "{address}");
    }
}

/// By the backends' own counts: one probe an interval, and one more each time that one came again or
/// the agent's threads were started anew.
fn nobody_is_probed_twice(stage: &Stage, list: &List, span: Duration) {
    let intervals = span.as_secs_f64() / INTERVAL.as_secs_f64();
    let most = |entries: u32| intervals.ceil() as u32 + entries + STARTS;
    let least = (intervals * 0.8) as u32 - 1;
    for index in 0..STABLE {
        let requests = stage.farm.requests(index);
        assert!(
            (least..=most(0)).contains(&requests),
            "{} was probed {requests} times in {intervals:.1} intervals",
            stage.backend(index)
        );
    }
    for (index, entries) in (STABLE..).zip(&list.entries) {
        let requests = stage.farm.requests(index);
        assert!(
            requests <= most(*entries),
            "{} was probed {requests} times in {intervals:.1} intervals, and came {entries} times",
            stage.backend(index)
        );
    }
}

/// Each result of those who stayed is in their registers: what the backend counted and what was
/// assumed at the start. A probe that was in flight when threads were started anew has none.
fn nothing_is_forgotten(stage: &Stage, after: &[BackendView]) {
    let after = by_address(after);
    for index in 0..STABLE {
        let address = stage.backend(index);
        let view = after.get(address.as_str()).unwrap_or_else(|| panic!("{address} is gone"));
        let results = view.registers.bits_happy;
        assert_eq!(results & results.wrapping_add(1), 0, "{address} failed: {results:b}");
        // One may be in flight, and one may have been answered since the list was asked for.
        let (good, requests) = (results.count_ones(), stage.farm.requests(index));
        assert!(
            good <= INITIAL + requests && INITIAL + requests <= good + STARTS + 2,
            "{address}: {good} good results, {INITIAL} of them assumed, of {requests} requests"
        );
    }
}

fn by_address(views: &[BackendView]) -> HashMap<&str, &BackendView> {
    views.iter().map(|view| (view.address.as_str(), view)).collect()
}
