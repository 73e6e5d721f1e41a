//! Start, stop, the lock, and what is left behind.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use sickbay::control::claim::{Claim, ClaimError};
use sickbay::control::client::{Client, ClientError};
use sickbay::control::journal::{Journal, Transition, Why};
use sickbay::control::server::{ControlServer, Options};
use sickbay::control::view::{ProbeState, RuleView};
use tempfile::TempDir;

use super::fake::{Fake, Served, wait_until};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

fn serve(claim: Claim) -> ControlServer {
    let journal = Arc::new(Journal::default());
    ControlServer::start(claim, Arc::new(Fake::new()), journal, Options::default())
        .expect("a server")
}

#[test]
fn directory_and_socket_are_the_owners_alone_and_all_is_removed_at_stop() {
    let mut served = Served::new(Fake::new(), Options::default());
    let directory = served.directory();
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("admin.sock")), 0o600);
    assert_eq!(mode(&directory.join("lock")), 0o600);
    let owner = fs::read_to_string(directory.join("lock")).expect("a lock");
    assert_eq!(owner, format!("{}\nfake\n", std::process::id()));
    served.stop();
    assert!(!directory.exists());
    assert_eq!(fs::read_dir(served.root.path()).expect("the root").count(), 0);
}

#[test]
fn stop_ends_conversations_and_leaves_strangers_files_alone() {
    let mut served = Served::new(Fake::new(), Options::default());
    let directory = served.directory();
    fs::write(directory.join("notes"), "an operator's").expect("a file");
    let mut idle = served.connect();
    idle.is_answered();
    served.stop();
    assert_eq!(idle.response(), None);
    let left: Vec<_> = fs::read_dir(&directory)
        .expect("the directory is kept")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["notes"]);
}

#[test]
fn second_agent_is_refused_by_name_and_pid_and_the_first_goes_on() {
    let mut served = Served::new(Fake::new(), Options::default());
    let directory = served.directory();
    let error = Claim::new(&directory, "fake").expect_err("it is taken");
    assert_eq!(
        error.to_string(),
        format!(
            "another agent with instance fake is running, pid {}: stop it, or give this one \
             another instance name",
            std::process::id()
        )
    );
    assert_eq!(served.client().status().expect("the first still answers").instance, "fake");
    served.stop();
    drop(Claim::new(&directory, "fake").expect("it is free now"));
    assert!(!directory.exists());
}

#[test]
fn what_a_dead_agent_left_is_replaced() {
    let root = TempDir::new().expect("a directory");
    let directory = root.path().join("fake");
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("lock"), "1\nolder\n").expect("a lock that nobody holds");
    drop(UnixListener::bind(directory.join("admin.sock")).expect("a socket that nobody serves"));
    let error = Client::connect(&directory).expect_err("it is dead");
    assert!(matches!(error, ClientError::NoAgent { .. }), "{error}");

    let server = serve(Claim::new(&directory, "fake").expect("a claim"));
    let client = Client::connect(&directory).expect("a living one");
    assert_eq!(client.status().expect("an answer").instance, "fake");
    server.stop();
    assert!(!directory.exists());
}

#[test]
fn strangers_file_in_the_sockets_place_is_refused_and_kept() {
    let root = TempDir::new().expect("a directory");
    let directory = root.path().join("fake");
    fs::create_dir(&directory).expect("a directory");
    fs::write(directory.join("admin.sock"), "precious").expect("a file");
    let error = Claim::new(&directory, "fake").expect_err("that is no socket");
    assert!(matches!(error, ClaimError::NotSocket { .. }), "{error}");
    let kept = fs::read_to_string(directory.join("admin.sock")).expect("it is kept");
    assert_eq!(kept, "precious");
    assert!(!directory.join("lock").exists());
}

#[test]
fn directory_others_write_to_is_refused_and_one_they_read_is_closed() {
    let root = TempDir::new().expect("a directory");
    let directory = root.path().join("fake");
    fs::create_dir(&directory).expect("a directory");
    set_mode(&directory, 0o777);
    let error = Claim::new(&directory, "fake").expect_err("anybody could have been here");
    assert!(matches!(error, ClaimError::NotOurs { mode: 0o777, .. }), "{error}");
    assert_eq!(fs::read_dir(&directory).expect("it is kept").count(), 0);
    set_mode(&directory, 0o755);
    let claim = Claim::new(&directory, "fake").expect("a claim");
    assert_eq!(mode(claim.directory()), 0o700);
}

#[test]
fn run_directory_must_be_a_directory_and_short_enough_for_a_socket() {
    let root = TempDir::new().expect("a directory");
    let file = root.path().join("file");
    fs::write(&file, "").expect("a file");
    let error = Claim::new(&file, "fake").expect_err("a file");
    assert!(matches!(error, ClaimError::NotDirectory { .. }), "{error}");
    let below = Claim::new(&file.join("fake"), "fake").expect_err("below a file");
    assert!(matches!(below, ClaimError::NotDirectory { .. }), "{below}");
    let link = root.path().join("link");
    std::os::unix::fs::symlink(root.path(), &link).expect("a link");
    let linked = Claim::new(&link, "fake").expect_err("a link");
    assert!(matches!(linked, ClaimError::NotDirectory { .. }), "{linked}");

    let long = root.path().join("x".repeat(100));
    let error = Claim::new(&long, "fake").expect_err("too long");
    assert!(matches!(error, ClaimError::PathTooLong { .. }), "{error}");
    assert!(!long.exists());
}

#[test]
fn no_two_hold_a_directory_however_they_come_and_go() {
    let root = TempDir::new().expect("a directory");
    let directory = root.path().join("fake");
    let holders = AtomicU32::new(0);
    let claims = AtomicU32::new(0);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..300 {
                    let Ok(claim) = Claim::new(&directory, "fake") else {
                        continue;
                    };
                    assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two hold it");
                    claims.fetch_add(1, Ordering::SeqCst);
                    thread::yield_now();
                    holders.fetch_sub(1, Ordering::SeqCst);
                    drop(claim);
                }
            });
        }
    });
    assert!(8 <= claims.load(Ordering::SeqCst), "hardly anybody got it");
}

#[test]
fn client_without_an_agent_says_how_to_find_one() {
    let served = Served::new(Fake::new(), Options::default());
    let nowhere = served.root.path().join("default");
    let error = Client::connect(&nowhere).expect_err("none runs there");
    assert_eq!(
        error.to_string(),
        format!(
            "no agent runs at {} (found there: fake): start one with `sickbay run -c FILE`, or \
             name another with --instance NAME and --run-directory DIRECTORY",
            nowhere.display()
        )
    );
}

#[test]
fn client_outlives_the_agent_and_finds_the_next() {
    let mut served = Served::new(Fake::new(), Options::default());
    let directory = served.directory();
    let client = served.client();
    assert_eq!(client.backends(None).expect("an answer").len(), 3);
    served.stop();
    let error = client.backends(None).expect_err("it is gone");
    assert!(matches!(error, ClientError::NoAgent { .. }), "{error}");
    let next = serve(Claim::new(&directory, "fake").expect("a claim"));
    assert_eq!(client.backends(None).expect("an answer").len(), 3);
    next.stop();
}

#[test]
fn transitions_reach_the_client_and_none_is_lost_at_stop() {
    let mut served = Served::new(Fake::new(), Options::default());
    let transition = Transition {
        name: "web.b1".into(),
        from: ProbeState::Healthy,
        to: ProbeState::Sick,
        why: Why::Probe,
        cause: "Open error 111 (Connection refused)".to_owned(),
        good: 2,
        rule: Some(RuleView::Window { threshold: 3, window: 4 }),
        at_ns: (1 << 53) + 1,
        member: None,
    };
    served.journal.push(transition.clone());
    let client = served.client();
    let mut seen = Vec::new();
    wait_until("the transition is there", || {
        seen = client.transitions(0).expect("an answer");
        !seen.is_empty()
    });
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].sequence, seen[0].at_ns), (1, (1 << 53) + 1));
    assert_eq!(
        seen[0].text(),
        "web.b1 went sick: 2 of 4 good, needs 3: Open error 111 (Connection refused)"
    );
    assert_eq!(client.transitions(1).expect("an answer"), []);

    for _ in 0..1000 {
        served.journal.push(transition.clone());
    }
    served.stop();
    assert_eq!(served.journal.since(1).len(), 1000);
    assert_eq!(served.journal.dropped(), 0);
}
