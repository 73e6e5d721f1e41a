//! The agent itself stands still and goes on: what it did not see is held against nobody.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::{Configuration, INTERVAL_MS, TIMEOUT_MS, members};
use sickbay_lab::network::{Family, Network};
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures::show;

use super::{assert_nobody_was_condemned, record};

/// How often it stands still: at moments that are spread over an interval, so that probes of every
/// stage are under way in some of them.
const TIMES: u64 = 24;

/// Of servers that take their time.
const SLOW_PORT: u16 = 8080;
/// Half of an interval: when the agent stops, a probe is under way as often as not, and its answer is
/// there long before the agent looks again, after its deadline.
const ANSWER: Duration = Duration::from_millis(INTERVAL_MS / 2);

/// Answers every request on the slow port of each backend, until the test ends.
fn serve_slowly(network: &Network) {
    for backend in &network.backends {
        let address = (backend.address(Family::V4), SLOW_PORT);
        let listener = backend.namespace.run(|| TcpListener::bind(address)).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                thread::spawn(move || answer(stream.unwrap()));
            }
        });
    }
}

fn answer(mut stream: TcpStream) {
    // A probe that gave up is gone by then.
    let _gone = stream.read(&mut [0; 1024]);
    thread::sleep(ANSWER);
    let _gone = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn frozen_agent_holds_what_it_did_not_see_against_nobody() {
    let stage = Stage::prepared(2, |network| {
        serve_slowly(network);
        let members = members(&network.backends, Family::V4).replace(":80\"", ":8080\"");
        assert_eq!(members.matches(":8080").count(), 2, "{members}");
        Ok(Configuration { members, ..Configuration::usual() })
    })
    .unwrap();
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
