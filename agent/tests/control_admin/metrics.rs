//! The metrics port from outside: who is answered, and what a scraper may not do to the others.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sickbay::control::metrics::CONNECTIONS_MAX;
use sickbay::control::server::Options;
use sickbay::fleet::Observe;

use super::fake::{Fake, PATIENCE, Served, wait_until};

const SCRAPE: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Metrics at a port that is free.
fn served(host: Fake, scrape_time: Duration) -> Served {
    let metrics = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let observe = Observe { metrics, ..Observe::default() };
    Served::new(host, Options { observe, scrape_time, ..Options::default() })
}

fn connect(served: &Served) -> TcpStream {
    let stream = TcpStream::connect(served.metrics()).expect("a port");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

/// What comes until the server closes.
fn rest(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    // One that is refused may see a reset behind the response.
    let _reset = stream.read_to_end(&mut bytes);
    String::from_utf8(bytes).expect("text")
}

fn asked(served: &Served, request: &[u8]) -> String {
    let mut stream = connect(served);
    stream.write_all(request).expect("the port takes it");
    rest(stream)
}

#[test]
fn figures_of_the_host_are_answered_and_the_connection_is_closed() {
    let served = served(Fake::new(), PATIENCE);
    let response = asked(&served, SCRAPE);
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let head = head.to_lowercase();
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(head.contains("connection: close"), "{head}");
    assert!(body.contains("sickbay_pool_backends_taking_new_flows{pool=\"web\"} 2\n"), "{body}");
    assert!(body.contains("\nprocess_open_fds "), "{body}");
}

#[test]
fn what_is_no_scrape_is_told_so() {
    let served = served(Fake::new(), PATIENCE);
    for (request, status) in [
        (&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], "404"),
        (b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", "405"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", "400"),
    ] {
        let response = asked(&served, request);
        assert!(response.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    }
    let head = asked(&served, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 ") && head.ends_with("\r\n\r\n"), "{head}");
    // A head that does not end takes no more memory than it may.
    let mut huge = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
    huge.extend([b'x'; 100_000]);
    let mut stream = connect(&served);
    let _refused_on_the_way = stream.write_all(&huge);
    let response = rest(stream);
    assert!(response.is_empty() || response.starts_with("HTTP/1.1 431 "), "{response}");
    assert!(asked(&served, SCRAPE).starts_with("HTTP/1.1 200 "));
}

#[test]
fn scrapers_that_are_stuck_are_few_and_are_dropped_when_their_time_is_over() {
    let served = served(Fake::new(), Duration::from_secs(2));
    let mut stuck: Vec<TcpStream> = (0..CONNECTIONS_MAX).map(|_| connect(&served)).collect();
    for stream in &mut stuck {
        stream.write_all(b"GET /metr").expect("the port takes it");
    }
    // The admin socket is served all the same, and one more scraper is told at once.
    served.connect().is_answered();
    let refused = Instant::now();
    let response = asked(&served, SCRAPE);
    assert!(response.starts_with("HTTP/1.1 503 "), "{response}");
    assert!(refused.elapsed() < Duration::from_secs(2), "it did not wait for the others");
    let (_, body) = response.split_once("\r\n\r\n").expect("a head");
    let length = format!("Content-Length: {}\r\n", body.len());
    assert!(response.contains(&length), "{response}");
    for stream in stuck {
        assert_eq!(rest(stream), "", "dropped without a word");
    }
    wait_until("scrapes are answered again", || {
        asked(&served, SCRAPE).starts_with("HTTP/1.1 200 ")
    });
}

#[test]
fn figures_are_gathered_once_for_all_who_ask_together() {
    // A host that takes a second for its figures: one after the other, ten would take ten.
    let served = served(Fake::slow(Duration::from_secs(1)), PATIENCE);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| assert!(asked(&served, SCRAPE).starts_with("HTTP/1.1 200 ")));
        }
    });
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}
