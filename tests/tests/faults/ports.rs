//! Every port that this host may connect from is taken: the probes say nothing, and condemn nobody.

use std::net::{SocketAddr, TcpStream};

use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::Configuration;
use sickbay_lab::network::{Family, PORT};
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures::show;

use super::{assert_nobody_was_condemned, record};

/// The ports that the host may connect from, all of them.
const FIRST: u16 = 40_000;
const COUNT: u16 = 4;
/// Probes in a row that say nothing: many times what a bad result in their place would take.
const PROBES: u32 = 20;

#[test]
fn probes_that_find_no_port_to_connect_from_condemn_nobody() {
    let stage = Stage::new(2, &Configuration::usual()).unwrap();
    let host = &stage.network.host.namespace;
    host.sysctl("ipv4/ip_local_port_range", &format!("{FIRST} {}", FIRST + COUNT - 1)).unwrap();
    let other_ns = record(&stage, 1).last_result_ns;
    // A port serves a connection to each backend; those to the first one are all taken.
    let to = SocketAddr::new(stage.network.backends[0].address(Family::V4), PORT);
    let connect = || -> Vec<TcpStream> {
        let mut taken = Vec::new();
        // A probe has one of them now and then, for as long as it takes.
        while taken.len() < usize::from(COUNT) {
            taken.extend(TcpStream::connect(to).ok());
        }
        taken
    };
    let taken = host.run(connect);
    wait_until("its probes find no port", PATIENCE, || {
        (PROBES <= record(&stage, 0).indeterminate).then_some(())
    })
    .unwrap();
    assert_nobody_was_condemned(&stage);
    let listed = stage.agent.ask_json(&["backend", "list"]).unwrap();
    let cause = listed[0]["cause"].as_str().unwrap();
    assert!(cause.contains("Cannot assign requested address"), "{listed}");
    let status = stage.agent.ask_json(&["status"]).unwrap();
    assert_eq!(status["healthy_count"], 2, "both take new flows");
    assert!(other_ns < record(&stage, 1).last_result_ns, "the other one is probed on");
    let faults = record(&stage, 0).indeterminate;

    // As an operator mends it; those that were taken wait for a minute after their connections.
    host.sysctl("ipv4/ip_local_port_range", "32768 60999").unwrap();
    drop(taken);
    let last_ns = record(&stage, 0).last_result_ns;
    wait_until("there are results again", PATIENCE, || {
        (last_ns < record(&stage, 0).last_result_ns).then_some(())
    })
    .unwrap();
    assert_nobody_was_condemned(&stage);
    show(&format!("{faults} probes in a row found no port to connect from: nobody was condemned"));
}
