//! Members come and go under a client's load: who gets new flows, and what moves.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::Value;
use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::{Configuration, Program, members};
use sickbay_lab::load::Load;
use sickbay_lab::network::{Family, INTERFACE, Network, PORT, VIP_V4};
use sickbay_lab::nginx::{DOWNLOAD, DOWNLOAD_BYTES};
use sickbay_lab::private;
use sickbay_lab::record::Record;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_lab::watch::find;

/// As long as a test takes to see what it is about, on a busy machine too.
const DRAIN: &str = "6s";
const DRAIN_NS: u64 = 6_000_000_000;

/// Six machines, the first four of them members.
fn four_of_six(family: Family, program: Program) -> Stage {
    let prepare = |network: &Network| {
        let members = members(&network.backends[..4], family);
        Ok(Configuration { family, program, members, drain: DRAIN, ..Configuration::usual() })
    };
    Stage::prepared(6, prepare).unwrap()
}

fn address(stage: &Stage, backend: usize, family: Family) -> String {
    SocketAddr::new(stage.network.backends[backend].address(family), PORT).to_string()
}

/// Runs a command that must succeed; what it printed.
#[track_caller]
fn say(stage: &Stage, words: &[&str]) -> String {
    let output = stage.agent.ask(words).unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    let said = stage.agent.said();
    assert!(output.status.success(), "{}: {error}\n{said}", words.join(" "));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail; its one line.
#[track_caller]
fn refused(stage: &Stage, words: &[&str]) -> String {
    let output = stage.agent.ask(words).unwrap();
    assert!(!output.status.success(), "{} succeeded", words.join(" "));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.trim_end().lines().count(), 1, "{error}");
    error
}

fn view(stage: &Stage, backend: &str) -> Option<Value> {
    let list = stage.agent.ask_json(&["backend", "list"]).unwrap();
    find(&list, backend).cloned()
}

fn wait_until_gone(stage: &Stage, backend: &str) {
    wait_until(&format!("{backend} is gone"), PATIENCE, || {
        view(stage, backend).is_none().then_some(())
    })
    .unwrap();
}

fn connections(load: &Load, count: usize, from_ns: u64) {
    load.wait_for_connections(count, from_ns, PATIENCE).unwrap();
}

/// What an end of a test must find: nothing failed, no kept connection moved, no packet lost.
fn assert_nothing_moved(stage: &Stage, record: &Record) {
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    assert_eq!(record.kept.len(), 64);
    let moved: Vec<_> = record.kept.iter().filter(|flow| !flow.stayed()).collect();
    assert!(moved.is_empty(), "{} connections moved: {:?}", moved.len(), moved[0]);
    let service = stage.agent.board().unwrap().service_counters(0).unwrap();
    assert_eq!((service.unresolved, service.all_sick_dropped, service.entries_refused), (0, 0, 0));
    let status = stage.agent.ask_json(&["status"]).unwrap();
    assert_eq!(status["packets"]["broken_table"], 0);
}

fn added_backend_gets_its_share(family: Family, program: Program) {
    let stage = four_of_six(family, program);
    let load = stage.load(family);
    connections(&load, 400, 0);
    let to = address(&stage, 4, family);
    let printed = say(&stage, &["backend", "add", "web", &to, "--name", "backend-5"]);
    assert_eq!(printed, "web.backend-5 added\n");
    stage.wait_for_healthy(5).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 800, healthy_ns);
    // Two more changes within one drain.
    say(&stage, &["backend", "weight", "backend-1", "3"]);
    let to = address(&stage, 5, family);
    say(&stage, &["backend", "add", "web", &to, "--name", "backend-6"]);
    stage.wait_for_healthy(6).unwrap();
    let six_ns = monotonic_ns();
    connections(&load, 800, six_ns);
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
    // One of five. Of some 300 new ports, spread by a hash: four standard deviations are 0.09.
    let answered = |backend: &str, from_ns, until_ns| {
        // Those of fixed ports are no sample: a SYN from the port of a moment ago is taken for a
        // retransmission, and stays where that one was.
        let short = Record { short: record.short.clone(), ..Record::default() };
        let all = short.connections().filter(|it| (from_ns..until_ns).contains(&it.started_ns));
        short.answered_count(backend, from_ns, until_ns) as f64 / all.count() as f64
    };
    let share = answered("backend-5", healthy_ns, six_ns);
    assert!((0.11..0.29).contains(&share), "{share}");
    // Three of eight, and one of eight.
    let share = answered("backend-1", six_ns, u64::MAX);
    assert!((0.28..0.48).contains(&share), "{share}");
    let share = answered("backend-6", six_ns, u64::MAX);
    assert!((0.06..0.20).contains(&share), "{share}");
    assert_eq!(view(&stage, "backend-1").unwrap()["weight"], 3);
}

#[test]
fn added_backend_gets_its_share_and_moves_nobody_with_xdp_over_ipv4() {
    added_backend_gets_its_share(Family::V4, Program::Xdp);
}

#[test]
fn added_backend_gets_its_share_and_moves_nobody_with_tc_over_ipv6() {
    added_backend_gets_its_share(Family::V6, Program::Tc);
}

#[test]
fn drained_backend_gets_no_new_flow_and_keeps_those_it_has() {
    let stage = four_of_six(Family::V4, Program::Xdp);
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    assert_eq!(say(&stage, &["backend", "drain", "backend-2"]), "web.backend-2 draining\n");
    let drained_ns = monotonic_ns();
    let two = view(&stage, "backend-2").unwrap();
    assert_eq!((&two["standing"], &two["takes_new"]), (&"draining".into(), &false.into()));
    assert_eq!(two["state"], "healthy", "its probes go on");
    connections(&load, 800, drained_ns);
    let undraining_ns = monotonic_ns();
    say(&stage, &["backend", "undrain", "backend-2"]);
    let undrained_ns = monotonic_ns();
    assert_eq!(view(&stage, "backend-2").unwrap()["standing"], "member");
    connections(&load, 800, undrained_ns);
    say(&stage, &["backend", "drain", "backend-2", "--for", "1s"]);
    wait_until("its time is over", PATIENCE, || {
        let two = view(&stage, "backend-2")?;
        (two["standing"] == "drained").then_some(())
    })
    .unwrap();
    let over_ns = monotonic_ns();
    connections(&load, 400, over_ns);
    let record = load.stop();
    // TCP's on_sick is `keep`: also those of one whose time is over.
    assert_nothing_moved(&stage, &record);
    let kept = record.kept.iter().filter(|flow| flow.owner() == Some("backend-2")).count();
    assert!(3 < kept, "backend-2 had {kept} connections: nothing is shown");
    assert_eq!(record.answered_count("backend-2", drained_ns, undraining_ns), 0);
    assert!(0 < record.answered_count("backend-2", undrained_ns, over_ns));
    assert_eq!(record.answered_count("backend-2", over_ns, u64::MAX), 0);
    let said = stage.agent.said();
    for line in [
        "web.backend-2 is drained: no new flows; those it has go on until they close",
        "web.backend-2 is drained no more: it takes new flows when healthy",
        "web.backend-2 is drained: no new flows; those it has go on for 1s",
        "web.backend-2 has been drained for its time: on_sick says what its flows do",
    ] {
        assert!(said.contains(line), "{line}\n{said}");
    }
}

const UDP_PORT: u16 = 5300;
const UDP_IDLE_NS: u64 = 2_000_000_000;

/// Answers datagrams to the VIP with its name, until the test ends.
fn answer_datagrams(stage: &Stage) {
    for backend in &stage.network.backends {
        let to = (VIP_V4, UDP_PORT);
        let socket = backend.namespace.run(|| UdpSocket::bind(to)).unwrap();
        let name = backend.name.clone();
        thread::spawn(move || {
            let mut datagram = [0; 16];
            while let Ok((_, client)) = socket.recv_from(&mut datagram) {
                socket.send_to(name.as_bytes(), client).unwrap();
            }
        });
    }
}

/// A client's flow: a port of its own.
fn flow(stage: &Stage) -> UdpSocket {
    let client = &stage.network.client;
    let socket = client.namespace.run(|| UdpSocket::bind((client.ipv4, 0))).unwrap();
    socket.connect((VIP_V4, UDP_PORT)).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Who answers the next datagram of a flow.
fn ask(flow: &UdpSocket) -> String {
    flow.send(b"who?").unwrap();
    let mut name = [0; 32];
    let length = flow.recv(&mut name).unwrap();
    String::from_utf8_lossy(&name[..length]).into_owned()
}

#[test]
fn datagrams_of_a_drained_backend_stay_and_new_ones_go_elsewhere_after_udp_idle() {
    let more = format!(
        "\n[service.datagrams]\naddress = \"{VIP_V4}\"\nport = {UDP_PORT}\nprotocol = \"udp\"\n\
         pool = \"web\"\nmode = \"dsr\"\nudp_idle = \"2s\"\n"
    );
    let stage = Stage::new(4, &Configuration { more, ..Configuration::usual() }).unwrap();
    answer_datagrams(&stage);
    let flows: Vec<UdpSocket> = (0..60).map(|_| flow(&stage)).collect();
    let owners: Vec<String> = flows.iter().map(ask).collect();
    let own = owners.iter().filter(|owner| *owner == "backend-2").count();
    assert!(3 < own, "backend-2 has {own} flows: nothing is shown");
    say(&stage, &["backend", "drain", "backend-2"]);
    let drained_ns = monotonic_ns();
    // The flows go on, each never idle for so long; then those that begin are told apart.
    while monotonic_ns() < drained_ns + UDP_IDLE_NS + 500_000_000 {
        assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners);
        thread::sleep(Duration::from_millis(50));
    }
    let new: Vec<UdpSocket> = (0..60).map(|_| flow(&stage)).collect();
    assert!(new.iter().map(ask).all(|owner| owner != "backend-2"));
    assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners);
    say(&stage, &["backend", "undrain", "backend-2"]);
    // Its slots drain back: what begins now may be of those before, for udp_idle.
    wait_until("it gets new flows again", PATIENCE, || {
        (0..10).map(|_| ask(&flow(&stage))).any(|owner| owner == "backend-2").then_some(())
    })
    .unwrap();
    assert_eq!(flows.iter().map(ask).collect::<Vec<_>>(), owners);
}

/// A list of backends that do not answer, one a line: addresses of the backends' network.
fn silent_list(count: usize) -> String {
    (0..count).map(|number| format!("192.0.2.{}:{PORT}\n", 150 + number)).collect()
}

#[test]
fn removed_backend_serves_its_flows_for_a_drain_and_its_index_then_serves_another() {
    let stage = four_of_six(Family::V4, Program::Xdp);
    let index = view(&stage, "backend-3").unwrap()["index"].clone();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    assert_eq!(say(&stage, &["backend", "remove", "backend-3"]), "web.backend-3 removed\n");
    let removed_ns = monotonic_ns();
    assert_eq!(view(&stage, "backend-3").unwrap()["standing"], "leaving");
    connections(&load, 600, removed_ns);
    wait_until_gone(&stage, "backend-3");
    assert!(DRAIN_NS <= monotonic_ns() - removed_ns, "it was gone before its drain had ended");
    // 60 of the 64 indices were never used: they come first, and then that of backend-3.
    let list = private::scratch().join("silent.list");
    fs::write(&list, silent_list(60)).unwrap();
    say(&stage, &["backend", "add", "web", "--file", list.to_str().unwrap()]);
    let room = refused(&stage, &["backend", "add", "web", "192.0.2.98:80", "192.0.2.99:80"]);
    assert!(room.contains("pool web has room for 1 more backends now, and 2 are"), "{room}");
    let to = address(&stage, 5, Family::V4);
    say(&stage, &["backend", "add", "web", &to, "--name", "backend-6"]);
    assert_eq!(view(&stage, "backend-6").unwrap()["index"], index);
    stage.wait_for_healthy(4).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 800, healthy_ns);
    let record = load.stop();
    assert_eq!(record.answered_count("backend-3", removed_ns, u64::MAX), 0);
    assert!(0 < record.answered_count("backend-6", healthy_ns, u64::MAX));
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    let (gone, living): (Vec<_>, Vec<_>) =
        record.kept.iter().partition(|flow| flow.owner() == Some("backend-3"));
    assert!(3 < gone.len(), "backend-3 had {} connections: nothing is shown", gone.len());
    let moved = living.iter().filter(|flow| !flow.stayed()).count();
    assert_eq!(moved, 0, "connections of the living");
    for flow in gone {
        let mut within = flow
            .attempts
            .iter()
            .filter(|attempt| attempt.finished_ns < removed_ns + DRAIN_NS - 500_000_000);
        assert!(within.all(|attempt| attempt.result.as_deref() == Ok("backend-3")));
        let strays = flow.attempts.iter().filter(|attempt| {
            attempt.result.as_deref().is_ok_and(|backend| backend != "backend-3")
        });
        assert_eq!(strays.count(), 0, "a connection of one that is gone cannot be another's");
    }
    let said = stage.agent.said();
    assert!(said.contains("web.backend-3 was removed: its flows go on for 6s"), "{said}");
    assert!(said.contains("web.backend-3 is gone: its drain has ended"), "{said}");
}

#[test]
fn one_that_is_added_again_before_it_is_gone_keeps_its_flows() {
    let stage = four_of_six(Family::V4, Program::Tc);
    let index = view(&stage, "backend-3").unwrap()["index"].clone();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    say(&stage, &["backend", "remove", "backend-3"]);
    let removed_ns = monotonic_ns();
    connections(&load, 300, removed_ns);
    let to = address(&stage, 2, Family::V4);
    let other = refused(&stage, &["backend", "add", "web", &to, "--name", "other"]);
    assert!(other.contains("is still leaving as web.backend-3"), "{other}");
    say(&stage, &["backend", "add", "web", &to]);
    let added_ns = monotonic_ns();
    let three = view(&stage, "backend-3").unwrap();
    assert_eq!((&three["standing"], &three["index"]), (&"member".into(), &index));
    // Past the drain that it would have ended with.
    wait_until("the drain has passed", PATIENCE, || {
        (removed_ns + DRAIN_NS + 1_000_000_000 < monotonic_ns()).then_some(())
    })
    .unwrap();
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
    assert!(0 < record.answered_count("backend-3", added_ns, u64::MAX));
}

/// Downloads from the VIP in the client's network; the bytes of its body, and who sent them.
fn download(stage: &Stage) -> JoinHandle<(u64, String)> {
    let client = stage.network.client.namespace.clone();
    thread::spawn(move || {
        let mut stream = client.run(|| TcpStream::connect(Network::vip(Family::V4))).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!("GET {DOWNLOAD} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut reader = BufReader::new(stream);
        let mut backend = String::new();
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            if let Some(name) = line.strip_prefix("X-Backend: ") {
                name.trim().clone_into(&mut backend);
            }
            if line.trim().is_empty() {
                break;
            }
        }
        (io::copy(&mut reader, &mut io::sink()).unwrap_or(0), backend)
    })
}

#[test]
fn downloads_outlive_the_changes_of_members_and_verdicts_meanwhile() {
    let prepare = |network: &Network| {
        let members = members(&network.backends[..4], Family::V4);
        Ok(Configuration { members, drain: "60s", ..Configuration::usual() })
    };
    let stage = Stage::prepared(6, prepare).unwrap();
    let started_ns = monotonic_ns();
    let downloads: Vec<_> = (0..16).map(|_| download(&stage)).collect();
    let steered = || stage.agent.board().unwrap().service_counters(0).unwrap().new_flows;
    wait_until("all have begun", PATIENCE, || (16 <= steered()).then_some(())).unwrap();
    for (backend, name) in [(4, "backend-5"), (5, "backend-6")] {
        let to = address(&stage, backend, Family::V4);
        say(&stage, &["backend", "add", "web", &to, "--name", name]);
    }
    say(&stage, &["backend", "remove", "backend-1"]);
    say(&stage, &["backend", "drain", "backend-2"]);
    say(&stage, &["backend", "weight", "backend-3", "5"]);
    say(&stage, &["backend", "set-health", "backend-4", "sick"]);
    stage.wait_for_healthy(3).unwrap();
    say(&stage, &["backend", "set-health", "backend-4", "auto"]);
    say(&stage, &["backend", "remove", "backend-5"]);
    let changed_ns = monotonic_ns();
    let mut from: Vec<String> = Vec::new();
    for download in downloads {
        let (bytes, backend) = download.join().unwrap();
        assert_eq!(bytes, DOWNLOAD_BYTES, "from {backend}");
        from.push(backend);
    }
    let took_ns = monotonic_ns() - started_ns;
    assert!(changed_ns - started_ns < took_ns / 2, "the changes came in the middle");
    from.sort_unstable();
    from.dedup();
    assert!(3 <= from.len(), "{from:?}");
}

#[test]
fn configuration_that_is_read_again_brings_members_and_weights_or_nothing() {
    let base = Configuration { drain: DRAIN, ..Configuration::usual() };
    let first = base.clone();
    let prepare = |network: &Network| {
        let members = members(&network.backends[..4], Family::V4);
        Ok(Configuration { members, ..first })
    };
    let stage = Stage::prepared(6, prepare).unwrap();
    let all = &stage.network.backends;
    let text =
        |lines: String| Configuration { members: lines, ..base.clone() }.text(&stage.network);
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    // 1 weighs more, 4 is gone, 5 has the address of 5, and 6 is new.
    let heavy = members(&all[..1], Family::V4).replace(" }", ", weight = 3 }");
    let wanted = text(heavy + &members(&all[1..3], Family::V4) + &members(&all[4..], Family::V4));
    stage.agent.rewrite(&wanted).unwrap();
    assert_eq!(
        say(&stage, &["reload"]),
        "web.backend-5 added\nweb.backend-6 added\nweb.backend-4 removed\nweb.backend-1 weighed\n\
         2 added, 1 removed, 1 with another weight\n"
    );
    let reloaded_ns = monotonic_ns();
    let generation = || stage.agent.ask_json(&["status"]).unwrap()["generation"].clone();
    assert_eq!(generation(), 2, "another configuration is in force");
    stage.wait_for_healthy(5).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 800, healthy_ns);
    stage
        .agent
        .rewrite(&wanted.replace("window = 4", "window = 5").replace("backend-6", "x"))
        .unwrap();
    let error = refused(&stage, &["reload"]);
    assert!(error.contains("the probes are not as they run: only backends"), "{error}");
    stage.agent.rewrite("[pool.web]\nprobe = 7\n").unwrap();
    let error = refused(&stage, &["reload"]);
    assert!(error.contains("the configuration is wrong: "), "{error}");
    stage.agent.rewrite(&wanted).unwrap();
    stage.agent.hang_up().unwrap();
    wait_until("it was read again", PATIENCE, || {
        stage.agent.said().contains("read again: nothing has changed").then_some(())
    })
    .unwrap();
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    let others = record.kept.iter().filter(|flow| flow.owner() != Some("backend-4"));
    assert_eq!(others.filter(|flow| !flow.stayed()).count(), 0);
    assert_eq!(record.answered_count("backend-4", reloaded_ns, u64::MAX), 0);
    for backend in ["backend-5", "backend-6"] {
        assert!(0 < record.answered_count(backend, healthy_ns, u64::MAX), "{backend}");
    }
    assert_eq!(view(&stage, "backend-1").unwrap()["weight"], 3);
}

#[test]
fn backends_without_a_probe_join_drain_and_leave_as_others_do() {
    let prepare = |network: &Network| {
        let members = members(&network.backends[..4], Family::V4);
        let drain = DRAIN;
        Ok(Configuration { members, drain, pool_probe: "none", ..Configuration::usual() })
    };
    let stage = Stage::prepared(6, prepare).unwrap();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    let to = address(&stage, 4, Family::V4);
    say(&stage, &["backend", "add", "web", &to, "--name", "backend-5"]);
    // Nobody is asked: it takes flows when the command is through.
    let added_ns = monotonic_ns();
    assert_eq!(stage.agent.ask_json(&["status"]).unwrap()["healthy_count"], 5);
    assert_eq!(say(&stage, &["backend", "drain", "backend-2"]), "web.backend-2 draining\n");
    let drained_ns = monotonic_ns();
    let drained = view(&stage, "backend-2").unwrap();
    assert_eq!((&drained["standing"], &drained["takes_new"]), (&"draining".into(), &false.into()));
    assert_eq!(drained["state"], "healthy");
    connections(&load, 800, drained_ns);
    say(&stage, &["backend", "set-health", "backend-2", "sick"]);
    say(&stage, &["backend", "undrain", "backend-2"]);
    stage.wait_for_healthy(4).unwrap();
    let undraining_ns = monotonic_ns();
    say(&stage, &["backend", "set-health", "backend-2", "auto"]);
    stage.wait_for_healthy(5).unwrap();
    connections(&load, 400, monotonic_ns());
    say(&stage, &["backend", "remove", "backend-5"]);
    let removed_ns = monotonic_ns();
    stage.wait_for_healthy(4).unwrap();
    connections(&load, 400, removed_ns);
    wait_until_gone(&stage, "backend-5");
    let record = load.stop();
    assert_nothing_moved(&stage, &record);
    let answered = |backend: &str, from_ns, until_ns| {
        // Those of fixed ports are no sample: see above.
        let short = Record { short: record.short.clone(), ..Record::default() };
        short.answered_count(backend, from_ns, until_ns)
    };
    assert_eq!(answered("backend-2", drained_ns, undraining_ns), 0);
    assert!(0 < answered("backend-2", undraining_ns, u64::MAX));
    assert!(0 < answered("backend-5", added_ns, removed_ns));
    assert_eq!(answered("backend-5", removed_ns, u64::MAX), 0);
}

/// Addresses of each machine in the test of hundreds.
const EACH: usize = 75;

fn many(machine: usize) -> impl Iterator<Item = String> {
    (1..=EACH).map(move |number| format!("10.9.{machine}.{number}:{PORT}"))
}

/// Four machines with 75 addresses each, those of the first two members.
fn hundreds() -> Stage {
    let prepare = |network: &Network| {
        network.host.namespace.ip(&format!("addr add 10.9.255.1/16 dev {INTERFACE}\n"))?;
        for (machine, backend) in (1..).zip(&network.backends) {
            let add = |n| format!("addr add 10.9.{machine}.{n}/16 dev {INTERFACE}\n");
            backend.namespace.ip(&(1..=EACH).map(add).collect::<String>())?;
        }
        let line = |address| format!("    \"{address}\",\n");
        let members = (1..=2).flat_map(many).map(line).collect();
        Ok(Configuration { members, drain: DRAIN, ..Configuration::usual() })
    };
    Stage::prepared(4, prepare).unwrap()
}

#[test]
fn hundreds_come_and_go_at_once() {
    let stage = hundreds();
    stage.wait_for_healthy(150).unwrap();
    let load = stage.load(Family::V4);
    connections(&load, 400, 0);
    let list = private::scratch().join("hundreds.list");
    fs::write(&list, (3..=4).flat_map(many).collect::<Vec<_>>().join("\n")).unwrap();
    let started_ns = monotonic_ns();
    let printed = say(&stage, &["backend", "add", "web", "--file", list.to_str().unwrap()]);
    assert_eq!(printed.lines().count(), 150);
    let added_ms = (monotonic_ns() - started_ns) / 1_000_000;
    // The table was made for 150 and keeps its size: 16,381 over 300 are 54 each, fewer than 100.
    let note =
        "service web: its 16381 slots give the lightest of 300 backends 54: shares are uneven";
    assert!(stage.agent.said().contains(note), "{}", stage.agent.said());
    stage.wait_for_healthy(300).unwrap();
    let healthy_ns = monotonic_ns();
    connections(&load, 400, healthy_ns);
    let started_ns = monotonic_ns();
    let printed = say(&stage, &["backend", "remove", "web.10.9.1.*"]);
    assert_eq!(printed.lines().count(), EACH);
    let removed_ms = (monotonic_ns() - started_ns) / 1_000_000;
    sickbay_tests::figures::show(&format!(
        "150 backends added in {added_ms} ms, {EACH} removed in {removed_ms} ms"
    ));
    let removed_ns = monotonic_ns();
    stage.wait_for_healthy(225).unwrap();
    connections(&load, 400, removed_ns);
    wait_until("all are gone", PATIENCE, || {
        let list = stage.agent.ask_json(&["backend", "list"]).ok()?;
        (list.as_array()?.len() == 225).then_some(())
    })
    .unwrap();
    let gone_ns = monotonic_ns();
    connections(&load, 400, gone_ns);
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    for backend in ["backend-3", "backend-4"] {
        assert!(0 < record.answered_count(backend, healthy_ns, removed_ns), "{backend}");
    }
    assert_eq!(record.answered_count("backend-1", removed_ns, u64::MAX), 0);
    let moved = record.moved_flows("backend-1").filter(|flow| {
        // Fixed ports are new connections each time: they follow the table.
        record.kept.iter().any(|kept| kept.source_port == flow.source_port)
    });
    assert_eq!(moved.count(), 0, "connections of those who stay");
}

#[test]
fn what_cannot_be_is_refused_in_one_line_and_changes_nothing() {
    let stage = four_of_six(Family::V4, Program::Xdp);
    let before = stage.agent.ask_json(&["backend", "list"]).unwrap().as_array().unwrap().len();
    let first = address(&stage, 0, Family::V4);
    let fifth = address(&stage, 4, Family::V4);
    for (words, line) in [
        (vec!["add", "wed", &fifth], "there is no pool \"wed\""),
        (vec!["add", "web", &fifth, &first], "is in pool web already"),
        (vec!["add", "web", &fifth, &fifth], "is in pool web already"),
        (vec!["add", "web", "192.0.2.105"], "add the port"),
        (vec!["add", "web", &fifth, "--name", "backend-1"], "is taken in pool web"),
        (vec!["add", "web", &fifth, "--name", "a*"], "odd character"),
        (vec!["add", "web", &fifth, "--weight", "0"], "out of range"),
        (vec!["add", "web", &fifth, "1.2.3.4:5", "--name", "x"], "--name goes with one address"),
        (vec!["remove", "web.*"], "nobody would be left in it"),
        (vec!["remove", "nobody"], "No Backends matches"),
        (vec!["weight", "backend-1", "1001"], "out of range"),
        (vec!["undrain", "backend-1"], "is drained"),
    ] {
        let words: Vec<&str> = [vec!["backend"], words].concat();
        let error = refused(&stage, &words);
        assert!(error.contains(line), "{}: {error}", words.join(" "));
    }
    let after = stage.agent.ask_json(&["backend", "list"]).unwrap().as_array().unwrap().len();
    assert_eq!(after, before);
    assert!(view(&stage, "backend-5").is_none());
}
