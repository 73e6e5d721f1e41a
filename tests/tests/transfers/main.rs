//! Transfers of real clients that outlive whatever happens to others: curl, iperf3 and datagrams,
//! over IPv4 and IPv6, with XDP and TC, across sickness, changes of members and a killed agent.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// The clients.
mod clients;
/// What a killed agent leaves, and the next one takes up.
mod history;
/// An agent that is killed again and again.
mod kills;

use std::fmt::Write as _;
use std::net::SocketAddr;

use clients::{Echoes, Measured, download, measure, serve_iperf};
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::{Configuration, Program, members};
use sickbay_lab::datagram::answer_with_names;
use sickbay_lab::network::{Family, Network};
use sickbay_lab::nginx::DOWNLOAD_BYTES;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_tests::figures;

const DOWNLOADS: u64 = 12;
const ECHOES: usize = 32;
/// The port of the datagrams' service, and of iperf3's.
const ECHO_PORT: u16 = 7;
const IPERF_PORT: u16 = 5201;

/// Four of the network's machines as members, or those that the test has by then.
fn configuration(
    network: &Network,
    family: Family,
    program: Program,
    of: &[usize],
) -> Configuration {
    let machines: Vec<_> = of.iter().map(|index| network.backends[*index].clone()).collect();
    let vip = Network::vip(family).ip();
    let mut more = String::new();
    for (name, port, keys) in [
        // A datagram has no beginning: with `keep` its flow is entered, and stays.
        ("echo", ECHO_PORT, "protocol = \"udp\"\non_sick_udp = \"keep\"\n"),
        // Its two connections must meet one server.
        ("iperf", IPERF_PORT, "hash = \"source\"\n"),
    ] {
        let _ = write!(
            more,
            "\n[service.{name}]\naddress = \"{vip}\"\nport = {port}\npool = \"web\"\n\
             mode = \"dsr\"\n{keys}"
        );
    }
    Configuration {
        family,
        program,
        members: members(&machines, family),
        drain: "60s",
        more,
        ..Configuration::usual()
    }
}

#[track_caller]
fn say(stage: &Stage, words: &[&str]) {
    let output = stage.agent.ask(words).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}\n{}", words.join(" "), stage.agent.said());
}

/// Flows that began so far, all services together.
fn begun(stage: &Stage) -> u64 {
    let board = stage.agent.board().unwrap();
    (0..3).map(|service| board.service_counters(service).unwrap().new_flows).sum()
}

fn transfers_outlive_everything(family: Family, program: Program) {
    let first_of = |network: &Network| Ok(configuration(network, family, program, &[0, 1, 2, 3]));
    let mut stage = Stage::prepared(6, first_of).unwrap();
    let echo = SocketAddr::new(Network::vip(family).ip(), ECHO_PORT);
    answer_with_names(&stage.network, echo).unwrap();
    let _iperf = serve_iperf(&stage);
    // First choice of a quarter of the slots; who begins now is diverted from it, and must stay
    // where it is when it has recovered.
    say(&stage, &["backend", "set-health", "backend-1", "sick"]);
    stage.wait_for_healthy(3).unwrap();
    let mut echoes = Echoes::start(&stage, family, ECHOES);
    let measured = measure(&stage, family);
    let downloads: Vec<_> = (0..DOWNLOADS).map(|_| download(&stage, family)).collect();
    wait_until("all have begun", PATIENCE, || (DOWNLOADS + 3 <= begun(&stage)).then_some(()))
        .unwrap();
    echoes.ask_all();
    assert!(echoes.owners().iter().all(|owner| *owner != "backend-1"), "it is sick");

    // Those that were diverted are entered, and counted.
    wait_until("those that were diverted are counted", PATIENCE, || {
        let status = stage.agent.ask_json(&["status"]).ok()?;
        let entries = &status["flow_entries"][usize::from(family == Family::V6)];
        let count = |which: &str| entries[which].as_u64();
        let counted = count("flows")? + count("embryonic")?;
        (count("room")? == 262_144 && (1..=begun(&stage)).contains(&counted)).then_some(())
    })
    .unwrap();

    say(&stage, &["backend", "set-health", "backend-1", "auto"]);
    stage.wait_for_healthy(4).unwrap();
    echoes.ask_all();
    say(&stage, &["backend", "set-health", "backend-2", "sick"]);
    stage.wait_for_healthy(3).unwrap();
    echoes.ask_all();
    say(&stage, &["backend", "set-health", "backend-2", "auto"]);
    stage.wait_for_healthy(4).unwrap();
    // Two changes of members within one drain.
    for index in [4, 5] {
        let machine = &stage.network.backends[index];
        let to = SocketAddr::new(machine.address(family), 80).to_string();
        say(&stage, &["backend", "add", "web", &to, "--name", &machine.name]);
        echoes.ask_all();
    }
    stage.wait_for_healthy(6).unwrap();
    // Killed, and started again without one of the members: a third change in the same drain.
    let again = configuration(&stage.network, family, program, &[0, 1, 3, 4, 5]);
    let again = Configuration { instance: stage.agent.instance().to_owned(), ..again };
    stage.agent.rewrite(&again.text(&stage.network)).unwrap();
    stage.agent.crash().unwrap();
    echoes.ask_all();
    stage.agent.start_again().unwrap();
    echoes.ask_all();
    say(&stage, &["backend", "set-health", "backend-4", "sick"]);
    stage.wait_for_healthy(4).unwrap();
    echoes.ask_all();
    let under_way = downloads.iter().filter(|download| !download.is_finished()).count();
    assert_eq!(under_way as u64, DOWNLOADS, "every download was under way until after all of it");

    let mut from: Vec<String> = Vec::new();
    for download in downloads {
        let (bytes, backend) = download.join().unwrap();
        assert_eq!(bytes, DOWNLOAD_BYTES, "from {backend}");
        from.push(backend);
    }
    from.sort_unstable();
    from.dedup();
    assert!(2 <= from.len(), "{from:?}");
    let Measured { sent_bytes, received_bytes } = measured.join().unwrap();
    assert!(0 < received_bytes && received_bytes <= sent_bytes);
    echoes.ask_all();
    echoes.assert_stayed();
    let said = stage.agent.said();
    assert!(said.contains("web.192.0.2.103:80 was removed") || family == Family::V6, "{said}");
    let of = format!("{family:?} with {program:?}");
    figures::show(&format!(
        "transfers over {of}: {DOWNLOADS} of {} MiB whole, iperf3 {} MiB, {} datagrams of \
         {ECHOES} flows, none moved",
        DOWNLOAD_BYTES >> 20,
        received_bytes >> 20,
        echoes.asked(),
    ));
}

#[test]
fn transfers_outlive_everything_over_ipv4_with_xdp() {
    transfers_outlive_everything(Family::V4, Program::Xdp);
}

#[test]
fn transfers_outlive_everything_over_ipv6_with_xdp() {
    transfers_outlive_everything(Family::V6, Program::Xdp);
}

#[test]
fn transfers_outlive_everything_over_ipv4_with_tc() {
    transfers_outlive_everything(Family::V4, Program::Tc);
}

#[test]
fn transfers_outlive_everything_over_ipv6_with_tc() {
    transfers_outlive_everything(Family::V6, Program::Tc);
}
