//! The synthetic farm, asked by ordinary sockets: each behaviour as a client sees it.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use sickbay_lab::farm::Farm;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::network::Family;
use sickbay_lab::private;
use sickbay_shared::farm::{Behaviour, Shares};

/// What does not come in this time does not come: the farm answers within a microsecond or never.
const SHORT: Duration = Duration::from_millis(150);
/// What comes does so within this, busy as the machine may be.
const LONG: Duration = Duration::from_secs(20);
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: farm\r\nConnection: close\r\n\r\n";
/// A quarter of a second, which is later than a first sending and sooner than the third.
const LATE: Shares = Shares { late: 1000, late_ticks: 238, ..Shares::GOOD };

/// Asks once: the whole answer, or why there is none. Waits so long for each part.
fn ask(home: &Namespace, address: SocketAddr, wait: Duration) -> Result<Vec<u8>, ErrorKind> {
    home.run(|| {
        let mut stream = TcpStream::connect_timeout(&address, wait)?;
        stream.set_read_timeout(Some(wait))?;
        stream.write_all(REQUEST)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    })
    .map_err(|error: std::io::Error| error.kind())
}

fn with_farm(test: impl Fn(&mut Farm, &Namespace, SocketAddr)) {
    private::require();
    let home = Namespace::new("home").expect("a namespace can be made");
    let mut farm = Farm::new(&home).expect("a farm can be made");
    for family in [Family::V4, Family::V6] {
        test(&mut farm, &home, Farm::address(family, 77_777));
    }
}

#[test]
fn good_backend_answers_200_and_closes() {
    with_farm(|farm, home, address| {
        farm.set(Shares::GOOD).unwrap();
        let before = farm.counts().unwrap();
        let answer = ask(home, address, LONG).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", answer.escape_ascii());
        assert!(answer.ends_with(b"\r\n\r\nhealthy"), "{}", answer.escape_ascii());
        let after = farm.counts().unwrap();
        let syns_requests_responses = (
            after.syns - before.syns,
            after.requests - before.requests,
            after.responses - before.responses,
        );
        assert_eq!(syns_requests_responses, (1, 1, 1));
    });
}

#[test]
fn failing_backend_answers_500_and_closes() {
    with_farm(|farm, home, address| {
        farm.set(Shares { error: 1000, ..Shares::GOOD }).unwrap();
        let answer = ask(home, address, LONG).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 500 "), "{}", answer.escape_ascii());
    });
}

#[test]
fn refusing_backend_refuses() {
    with_farm(|farm, home, address| {
        farm.set(Shares { refuse: 1000, ..Shares::GOOD }).unwrap();
        assert_eq!(ask(home, address, LONG), Err(ErrorKind::ConnectionRefused));
    });
}

#[test]
fn black_hole_says_nothing() {
    with_farm(|farm, home, address| {
        farm.set(Shares { black_hole: 1000, ..Shares::GOOD }).unwrap();
        assert_eq!(ask(home, address, SHORT), Err(ErrorKind::TimedOut));
    });
}

#[test]
fn late_backend_answers_a_request_that_is_sent_again() {
    with_farm(|farm, home, address| {
        farm.set(LATE).unwrap();
        // The read waits in vain: connected was at once.
        assert_eq!(ask(home, address, SHORT), Err(ErrorKind::WouldBlock));
        let start = Instant::now();
        let answer = ask(home, address, LONG).unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", answer.escape_ascii());
        assert!(Duration::from_millis(240) <= start.elapsed(), "{:?}", start.elapsed());
    });
}

#[test]
fn dripping_backend_sends_byte_by_byte_and_never_ends() {
    with_farm(|farm, home, address| {
        farm.set(Shares { drip: 1000, ..Shares::GOOD }).unwrap();
        let bytes = home.run(|| {
            let mut stream = TcpStream::connect_timeout(&address, LONG).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(REQUEST).unwrap();
            let mut bytes = [0; 3];
            for byte in &mut bytes {
                assert_eq!(stream.read(std::slice::from_mut(byte)).unwrap(), 1);
            }
            stream.set_read_timeout(Some(SHORT)).unwrap();
            let error = stream.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::WouldBlock, "the fourth byte is 0.8 s away");
            bytes
        });
        assert_eq!(&bytes, b"HTT");
    });
}

#[test]
fn shares_are_switched_while_it_runs_and_each_address_does_as_foretold() {
    with_farm(|farm, home, first| {
        let family = if first.is_ipv4() { Family::V4 } else { Family::V6 };
        for seed in 1..=3 {
            farm.set(Shares { refuse: 300, error: 300, seed, ..Shares::GOOD }).unwrap();
            for index in 0..50 {
                let address = Farm::address(family, index);
                let foretold = match farm.behaviour(address.ip()) {
                    Behaviour::Good => Ok(&b"HTTP/1.1 200"[..]),
                    Behaviour::Error => Ok(&b"HTTP/1.1 500"[..]),
                    Behaviour::Refuse => Err(ErrorKind::ConnectionRefused),
                    other => panic!("{other:?} has no share"),
                };
                let answer = ask(home, address, LONG);
                assert_eq!(answer.as_deref().map(|it| &it[..12]).map_err(|it| *it), foretold);
            }
        }
    });
}
