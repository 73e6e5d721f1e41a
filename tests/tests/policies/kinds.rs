//! TR7's table says of services of any protocol and of port ranges that the health result is "not
//! reflected". Here a test shows the opposite for each kind: the dead backend gets no new flow.

use sickbay_lab::configuration::Program;

use super::raw;
use super::stage::{Town, UdpServer, counters, wait_for_healthy};

const VICTIM: usize = 1;
const ASKED: u16 = 40;

/// What is asked of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Tcp,
    Udp,
    Both,
}

#[test]
fn exact_port() {
    dead_backend_is_skipped(&[Program::Xdp], "address = \"198.51.100.1\"\nport = 80", Ask::Tcp);
}

#[test]
fn list_of_ports() {
    let keys = "address = \"198.51.100.1\"\nport = [443, 80, \"8000-8099\"]";
    dead_backend_is_skipped(&[Program::Xdp], keys, Ask::Tcp);
}

#[test]
fn range_of_ports() {
    let keys = "address = \"198.51.100.1\"\nport = \"70-99\"";
    dead_backend_is_skipped(&[Program::Xdp, Program::Tc], keys, Ask::Tcp);
}

#[test]
fn range_of_ports_over_udp() {
    let keys = "address = \"198.51.100.1\"\nport = \"70-99\"\nprotocol = \"udp\"";
    dead_backend_is_skipped(&[Program::Xdp], keys, Ask::Udp);
}

#[test]
fn any_port() {
    let keys = "address = \"198.51.100.1\"\nport = \"any\"";
    dead_backend_is_skipped(&[Program::Xdp], keys, Ask::Tcp);
}

#[test]
fn any_protocol() {
    let keys = "address = \"198.51.100.1\"\nport = \"any\"\nprotocol = \"any\"";
    dead_backend_is_skipped(&[Program::Xdp, Program::Tc], keys, Ask::Both);
}

#[test]
fn prefix_of_addresses() {
    let keys = "address = \"198.51.100.0/24\"\nport = 80";
    dead_backend_is_skipped(&[Program::Xdp, Program::Tc], keys, Ask::Tcp);
}

/// By address pair: these have no ports that a flow could be told by.
#[test]
fn protocols_without_ports() {
    let mut town = Town::new(3);
    let sources = 60;
    raw::add_sources(&town, sources);
    for (name, number, program) in [("gre", 47, Program::Xdp), ("esp", 50, Program::Tc)] {
        let service = format!("address = \"198.51.100.1\"\nprotocol = \"{name}\"");
        let agent = town.agent(program, &[("web", "", 0..3)], &service);
        let victim = town.network.backends[VICTIM].name.clone();
        let before = raw::ask_protocol(&town, number, sources);
        assert!(0 < before.of(&victim), "{name}: {before:?}");
        assert_eq!(before.failed, 0, "{name}: {before:?}");
        let again = raw::ask_protocol(&town, number, sources);
        assert_eq!(again.by, before.by, "{name}: a pair of addresses is a flow");
        town.kill(VICTIM);
        wait_for_healthy(&agent, 2);
        let after = raw::ask_protocol(&town, number, sources);
        assert_eq!((after.of(&victim), after.failed), (0, 0), "{name}: {after:?}");
        for other in town.network.backends.iter().filter(|it| it.name != victim) {
            assert!(before.of(&other.name) <= after.of(&other.name), "{name}: nobody else moved");
        }
        town.revive(VICTIM);
        wait_for_healthy(&agent, 3);
        assert!(agent.stop().unwrap().success());
    }
}

fn dead_backend_is_skipped(programs: &[Program], service: &str, ask: Ask) {
    let mut town = Town::new(3);
    // These live on when the web servers die: that nothing reaches them is the verdict's doing.
    let _udp: Vec<UdpServer> = town.network.backends.iter().map(UdpServer::start).collect();
    for program in programs {
        let agent = town.agent(*program, &[("web", "", 0..3)], service);
        let asked = u64::from(ASKED) * if ask == Ask::Both { 2 } else { 1 };
        let victim = town.network.backends[VICTIM].name.clone();
        let round = |town: &Town| {
            let mut sums = (0, 0);
            let mut add = |answers: super::stage::Answers| {
                sums = (sums.0 + answers.of(&victim), sums.1 + answers.failed);
            };
            if ask != Ask::Udp {
                add(town.ask_tcp(ASKED));
            }
            if ask != Ask::Tcp {
                add(town.ask_udp(ASKED));
            }
            sums
        };

        let (by_victim, failed) = round(&town);
        assert!(0 < by_victim, "{service}: it gets its share while it is healthy");
        assert_eq!(failed, 0, "{service}");
        assert_eq!(counters(&agent).skipped, 0, "{service}");

        town.kill(VICTIM);
        wait_for_healthy(&agent, 2);
        assert_eq!(round(&town), (0, 0), "{service}: none by the victim, none failed");
        let after = counters(&agent);
        assert!(0 < after.skipped, "{service}: its slots were asked for");
        assert!(asked <= after.steered_packets, "{service}");
        let of_victim = agent.board().unwrap().backend_counters(VICTIM as u32).unwrap();
        assert_eq!(of_victim.skipped, after.skipped, "{service}: all for the victim's sake");

        town.revive(VICTIM);
        wait_for_healthy(&agent, 3);
        let (by_victim, failed) = round(&town);
        assert!(0 < by_victim, "{service}: it gets its share again");
        assert_eq!(failed, 0, "{service}");
        assert!(agent.stop().unwrap().success());
    }
}
