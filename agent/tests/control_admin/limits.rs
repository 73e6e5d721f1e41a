//! What a client may not do to the others, and what it is told.

use std::thread;
use std::time::{Duration, Instant};

use sickbay::control::protocol::{ErrorKind, Reply, Request};
use sickbay::control::server::Options;
use sickbay::control::view::Admin;

use super::fake::{Fake, Raw, STATUS, Served, hurried, wait_until};

#[track_caller]
fn refused(connection: &mut Raw) -> (ErrorKind, String) {
    let response = connection.response().expect("an answer before the end");
    assert_eq!(response.reply, None);
    let error = response.error.expect("an error");
    (error.kind, error.message)
}

#[test]
fn huge_request_is_refused_and_closed() {
    let served = Served::new(Fake::new(), Options::default());
    let mut connection = served.connect();
    connection.send(&[b' '; 1024 * 1024 + 1]);
    let (kind, message) = refused(&mut connection);
    assert_eq!(kind, ErrorKind::TooLarge);
    assert_eq!(message, "the request is longer than 1048576 bytes");
    assert_eq!(connection.response(), None);
}

#[test]
fn request_of_just_the_limit_is_read() {
    let served = Served::new(Fake::new(), Options::default());
    let mut connection = served.connect();
    let mut line = vec![b' '; 1024 * 1024 - (STATUS.len() - 1)];
    line.extend_from_slice(STATUS);
    assert_eq!(line.len(), 1024 * 1024 + 1, "the limit and a LF");
    connection.send(&line);
    let response = connection.response().expect("an answer");
    assert!(matches!(response.reply, Some(Reply::Status(_))));
}

#[test]
fn malformed_request_is_answered_in_one_line_and_the_connection_goes_on() {
    let served = Served::new(Fake::new(), Options::default());
    let mut connection = served.connect();
    let bad: [&[u8]; 9] = [
        b"\n",
        b"hello\n",
        b"\xff\xfe\x00\n",
        b"[]\n",
        b"{\"protocol\":1}\n",
        b"{\"protocol\":1,\"request\":\"reboot\"}\n",
        b"{\"protocol\":1,\"request\":\"status\",\"more\":1}\n",
        b"{\"protocol\":1,\"request\":{\"set_health\":{\"pattern\":\"*\",\"health\":\"dead\"}}}\n",
        b"{\"protocol\":1,\"request\":\"status\"} trailing\n",
    ];
    for line in bad {
        connection.send(line);
        let (kind, message) = refused(&mut connection);
        assert_eq!(kind, ErrorKind::Malformed, "{}", line.escape_ascii());
        assert!(message.starts_with("not a request: "), "{message}");
    }
    connection.send(&[b"[".repeat(60_000).as_slice(), b"\n"].concat());
    assert_eq!(refused(&mut connection).0, ErrorKind::Malformed);
    connection.is_answered();
}

#[test]
fn client_of_another_protocol_is_told_which_sickbay_to_use() {
    let served = Served::new(Fake::new(), Options::default());
    let mut connection = served.connect();
    connection.send(b"{\"protocol\":2,\"request\":{\"something\":\"new\"}}\n");
    let (kind, message) = refused(&mut connection);
    assert_eq!(kind, ErrorKind::Protocol);
    assert!(message.contains("speaks protocol 1 and the client 2"), "{message}");
}

#[test]
fn one_connection_too_many_is_told_so_and_the_place_is_free_again_after() {
    let served = Served::new(Fake::new(), Options::default());
    let mut connections: Vec<Raw> = (0..64).map(|_| served.connect()).collect();
    for connection in &mut connections {
        connection.is_answered();
    }
    let mut one_more = served.connect();
    let (kind, message) = refused(&mut one_more);
    assert_eq!(kind, ErrorKind::TooManyConnections);
    assert_eq!(message, "all 64 connections to this agent are taken: try again");
    assert_eq!(one_more.response(), None);

    let error = served.client().status().expect_err("no place for this client either");
    assert_eq!(error.to_string(), message);

    drop(connections.pop());
    wait_until("a place is free", || served.client().status().is_ok());
}

#[test]
fn silent_client_is_dropped() {
    let served = Served::new(Fake::new(), hurried(200));
    let mut silent = served.connect();
    assert_eq!(silent.response(), None);
    let mut half = served.connect();
    half.send(b"{\"protocol\":1,");
    assert_eq!(refused(&mut half).0, ErrorKind::TooSlow);
    assert_eq!(half.response(), None);
}

#[test]
fn request_without_its_newline_is_answered_at_the_end_of_what_came() {
    let served = Served::new(Fake::new(), Options::default());
    let mut connection = served.connect();
    connection.send(STATUS.trim_ascii_end());
    connection.close_sending();
    let response = connection.response().expect("an answer");
    assert!(matches!(response.reply, Some(Reply::Status(_))));
    assert_eq!(connection.response(), None);
}

#[test]
fn client_that_does_not_read_blocks_nobody_and_is_dropped() {
    // Some megabytes of answer, far more than a socket buffers; two places, one for each client.
    let options = Options { connections_max: 2, ..hurried(1500) };
    let served = Served::new(Fake::with_bulk(5_000), options);
    let mut stalled = served.connect();
    stalled.send(b"{\"protocol\":1,\"request\":{\"backends\":{}}}\n");
    let mut other = served.connect();
    for _ in 0..20 {
        other.is_answered();
    }
    // Its place comes free though it never reads and never closes.
    wait_until("the stalled client is dropped", || {
        other.is_answered();
        served.client().status().is_ok()
    });
    assert!(stalled.unread_is_cut(), "the answer was written although nobody read it");
}

#[test]
fn host_that_takes_too_long_is_not_waited_for() {
    let served = Served::new(Fake::slow(Duration::from_millis(600)), hurried(150));
    let mut connection = served.connect();
    connection.send(STATUS);
    let (kind, message) = refused(&mut connection);
    assert_eq!(kind, ErrorKind::TooSlow);
    assert_eq!(message, "the agent is busy: try again");
    let backends = served.client().backends(Some("web.*")).expect("another answer meanwhile");
    assert_eq!(backends.len(), 2);
}

#[test]
fn change_of_members_may_take_longer_than_an_answer() {
    let served = Served::new(Fake::slow(Duration::from_millis(600)), hurried(150));
    let pattern = "web.b1".to_owned();
    let changed = served.client().change_members(Request::RemoveBackends { pattern });
    assert_eq!(changed.expect("it has its own time").names, ["web.b1"]);
}

#[test]
fn user_who_is_not_allowed_is_refused() {
    let nobody_here = vec![u32::MAX - 7];
    let served =
        Served::new(Fake::new(), Options { allowed_uids: nobody_here, ..Options::default() });
    let mut connection = served.connect();
    let (kind, message) = refused(&mut connection);
    assert_eq!(kind, ErrorKind::NotAllowed);
    let uid = nix::unistd::geteuid();
    assert_eq!(message, format!("uid {uid} may not ask this agent: run as root"));
    assert_eq!(connection.response(), None);
    let error = served.client().set_health("*", Admin::Sick, None, None).expect_err("refused");
    assert_eq!(error.to_string(), message);
}

#[test]
fn many_clients_at_once_all_get_their_own_answers() {
    let served = Served::new(Fake::with_bulk(200), Options::default());
    thread::scope(|scope| {
        for number in 0..16 {
            let client = served.client();
            scope.spawn(move || {
                for round in 0..20 {
                    let name = format!("bulk.{}", number * 10 + round % 10);
                    let found = client.backends(Some(&name)).expect("an answer");
                    assert_eq!(found.len(), 1);
                    assert_eq!(found[0].name, name);
                    let set = client.set_health(&name, Admin::Sick, None, None).expect("an answer");
                    assert_eq!(set, [name]);
                }
            });
        }
    });
    let all = served.client().backends(None).expect("an answer");
    let sick = all.iter().filter(|view| view.admin == Admin::Sick).count();
    assert_eq!(sick, 160);
}

#[test]
fn largest_pool_is_listed_within_the_limits() {
    let served = Served::new(Fake::with_bulk(65_536 - 3), Options::default());
    let start = Instant::now();
    let backends = served.client().backends(None).expect("an answer within its time");
    println!("65,536 backends came in {:?}", start.elapsed());
    assert_eq!(backends.len(), 65_536);
    assert_eq!(backends[65_535].name, "bulk.65532");
}
