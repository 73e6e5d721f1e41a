//! Names in the DNS: followed at their time to live, and kept when nobody answers well.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount, umount};
use sickbay_lab::agent::Agent;
use sickbay_lab::clock::wait_until;
use sickbay_lab::name_server::{Manner, NAME_SERVER, NameServer, address, service};
use sickbay_lab::private;

use crate::{
    FARM, PATIENCE, PORT, Stage, client, configuration, members, source, wait_for_fault,
    wait_for_members,
};

const NAME: &str = "web.example.com";
/// How long a name is waited for.
const TIMEOUT: Duration = Duration::from_millis(1500);

fn host(index: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 1, index)
}

fn member(index: u8) -> (String, u32) {
    (format!("{}:{PORT}", host(index)), 1)
}

/// Follows a name, and asks again every second.
fn follows(name: &str, more: &str) -> String {
    let dns = format!(
        "[dns]\nresolvers = [\"{NAME_SERVER}\"]\ntimeout = \"{}ms\"\nttl_min = \"1s\"\n\
         ttl_max = \"2s\"\n{more}",
        TIMEOUT.as_millis()
    );
    configuration("", &format!("backends_dns = [\"{name}\"]"), &dns)
}

fn followed(stage: &Stage, hosts: &[u8]) -> (NameServer, Agent) {
    let server = NameServer::start(&stage.home).unwrap();
    server.set_records(hosts.iter().map(|it| address(NAME, 1, host(*it))).collect());
    let agent = stage.start(&follows(&format!("{NAME}:{PORT}"), ""));
    let wanted: Vec<_> = hosts.iter().map(|it| member(*it)).collect();
    wait_for_members(&agent, &wanted);
    (server, agent)
}

#[test]
fn new_answer_is_in_force_when_the_old_ones_time_to_live_is_over() {
    let stage = Stage::new(FARM);
    let (server, agent) = followed(&stage, &[1, 2]);
    let view = client(&agent).backends(Some("web.*")).unwrap().remove(0);
    assert_eq!(view.origin, format!("name {NAME}:{PORT}"));
    server.set_records(vec![address(NAME, 3600, host(2)), address(NAME, 3600, host(3))]);
    wait_for_members(&agent, &[member(2), member(3)]);
    // Its records may be believed for an hour; the ceiling says two seconds.
    server.set_records(vec![address(NAME, 0, host(4))]);
    wait_for_members(&agent, &[member(4)]);
    // The floor says that nobody is asked more than once a second, twice for the two families.
    let (before, start) = (server.questions(), Instant::now());
    wait_until("ten more questions", PATIENCE, || {
        (before + 10 <= server.questions()).then_some(())
    })
    .unwrap();
    assert!(Duration::from_secs(3) < start.elapsed(), "{:?}", start.elapsed());
}

#[test]
fn resolver_that_fails_hangs_or_knows_nothing_keeps_the_last_answer() {
    let stage = Stage::new(FARM);
    let (server, agent) = followed(&stage, &[1, 2]);
    let now = [member(1), member(2)];
    for (manner, what) in [
        (Manner::Fails, "the resolver answers "),
        (Manner::NoSuchName, "there is no such name (NXDOMAIN)"),
        (Manner::Empty, "the name has no such records"),
        (Manner::Hangs, "no answer"),
    ] {
        server.set_manner(manner);
        wait_for_fault(&agent, what);
        assert_eq!(members(&agent), now, "{what}");
    }
    let said = agent.said();
    let told = said.lines().filter(|line| line.contains("its last answer, 2 backends, holds"));
    assert_eq!(told.count(), 4, "a line for each of them:\n{said}");
    server.set_records(vec![address(NAME, 1, host(5))]);
    wait_for_members(&agent, &[member(5)]);
    assert_eq!(source(&agent).fault, None);
}

#[test]
fn resolver_that_hangs_holds_up_neither_probes_nor_a_reload() {
    let stage = Stage::new(FARM);
    let (server, agent) = followed(&stage, &[1]);
    server.set_manner(Manner::Hangs);
    wait_for_fault(&agent, "no answer");
    let before = client(&agent).status().unwrap().shards[0].probes;
    let text = agent.configuration().unwrap();
    let static_too = text.replace(
        "backends_dns = [",
        &format!("backends = [\"{}\"]\nbackends_dns = [\"new.example.com:80\", ", stage.backend(9)),
    );
    let mut quickest = Duration::MAX;
    for round in 0..4 {
        agent.rewrite(if round % 2 == 0 { &static_too } else { &text }).unwrap();
        let start = Instant::now();
        client(&agent).reload(false).unwrap();
        quickest = quickest.min(start.elapsed());
    }
    assert!(quickest < TIMEOUT, "a reload took {quickest:?}");
    assert_eq!(members(&agent), [member(1)]);
    wait_until("probes go on", PATIENCE, || {
        (before + 4 <= client(&agent).status().ok()?.shards[0].probes).then_some(())
    })
    .unwrap();
}

#[test]
fn name_that_was_never_answered_hinders_no_start_and_is_asked_again() {
    let stage = Stage::new(FARM);
    let server = NameServer::start(&stage.home).unwrap();
    let over = "[service.web]\naddress = \"198.51.100.1\"\nport = 80\npool = \"web\"\n";
    let agent = stage.start(&follows(&format!("{NAME}:{PORT}"), over));
    assert_eq!(members(&agent), []);
    wait_for_fault(&agent, "there is no such name (NXDOMAIN)");
    assert!(agent.said().contains("it has no backends so far"), "{}", agent.said());
    server.set_records(vec![address(NAME, 1, host(1)), address(NAME, 1, host(2))]);
    wait_for_members(&agent, &[member(1), member(2)]);
}

#[test]
fn agent_that_starts_while_nobody_answers_has_the_backends_of_the_one_before() {
    let stage = Stage::new(FARM);
    let (server, mut agent) = followed(&stage, &[1, 2]);
    server.set_manner(Manner::Hangs);
    agent.crash().unwrap();
    agent.start_again().unwrap();
    assert_eq!(members(&agent), [member(1), member(2)]);
    wait_for_fault(&agent, "no answer");
}

#[test]
fn both_families_of_a_name_are_members_and_one_alone_when_it_is_asked_for() {
    let stage = Stage::new(FARM);
    let server = NameServer::start(&stage.home).unwrap();
    let v6 = (format!("[{}]:{PORT}", Ipv6Addr::LOCALHOST), 1);
    let records =
        |index| vec![address(NAME, 1, host(index)), address(NAME, 1, Ipv6Addr::LOCALHOST)];
    server.set_records(records(1));
    let agent = stage.start(&follows(&format!("{NAME}:{PORT}"), ""));
    wait_for_members(&agent, &[member(1), v6.clone()]);
    server.set_records(vec![address(NAME, 1, Ipv6Addr::LOCALHOST)]);
    wait_for_members(&agent, std::slice::from_ref(&v6));
    let text = agent.configuration().unwrap();
    let whole = format!("\"{NAME}:{PORT}\"");
    let table = format!("{{ name = {whole}, records = \"aaaa\" }}");
    agent.rewrite(&text.replace(&whole, &table)).unwrap();
    client(&agent).reload(false).unwrap();
    let before = server.questions();
    server.set_records(records(2));
    wait_until("it is asked again", PATIENCE, || (before + 2 <= server.questions()).then_some(()))
        .unwrap();
    assert_eq!(members(&agent), [v6]);
}

#[test]
fn answer_that_fits_no_datagram_comes_over_tcp() {
    // Of 16 bytes each at least, and more than the 1232 that are asked for in a datagram.
    const HOSTS: std::ops::RangeInclusive<u8> = 1..=100;
    let stage = Stage::new(FARM);
    let server = NameServer::start(&stage.home).unwrap();
    server.set_records(HOSTS.map(|index| address(NAME, 1, host(index))).collect());
    server.set_manner(Manner::Truncates);
    let agent = stage.start(&follows(&format!("{NAME}:{PORT}"), ""));
    wait_for_members(&agent, &HOSTS.map(member).collect::<Vec<_>>());
    assert!(0 < server.streams());
}

#[test]
fn servers_of_resolv_conf_are_asked_unless_others_are_named() {
    let stage = Stage::new(FARM);
    let server = NameServer::start_at(&stage.home, "127.0.0.1:53").unwrap();
    server.set_records(vec![address(NAME, 1, host(1))]);
    let _instead = Instead::of("/etc/resolv.conf", "nameserver 127.0.0.1\n");
    let dns = "[dns]\nttl_min = \"1s\"\n";
    let names = format!("backends_dns = [\"{NAME}:{PORT}\"]");
    let agent = stage.start(&configuration("", &names, dns));
    wait_for_members(&agent, &[member(1)]);
    server.set_records(vec![address(NAME, 1, host(2))]);
    wait_for_members(&agent, &[member(2)]);
}

/// Another text in the place of a file of this machine, for this private environment.
struct Instead(&'static str);

impl Instead {
    fn of(path: &'static str, text: &str) -> Self {
        let file = private::scratch().join("instead");
        std::fs::write(&file, text).unwrap();
        let (none, flags) = (None::<&str>, MsFlags::MS_BIND);
        mount(Some(&file), path, none, flags, none).unwrap();
        Self(path)
    }
}

impl Drop for Instead {
    fn drop(&mut self) {
        if let Err(errno) = umount(self.0) {
            eprintln!("{} stays covered: {errno}", self.0);
        }
    }
}

#[test]
fn services_have_their_own_ports_and_weights_and_the_first_priority_counts() {
    const SERVICE: &str = "_http._tcp.example.com";
    let stage = Stage::new(FARM);
    let server = NameServer::start(&stage.home).unwrap();
    let hosts = |ttl| {
        vec![
            address("one.example.com", ttl, host(1)),
            address("two.example.com", ttl, host(2)),
            address("old.example.com", ttl, host(3)),
            service(SERVICE, ttl, (10, 5, PORT), "one.example.com"),
            service(SERVICE, ttl, (10, 7, PORT + 1), "two.example.com"),
            service(SERVICE, ttl, (20, 9, PORT), "old.example.com"),
        ]
    };
    server.set_records(hosts(1));
    let agent = stage.start(&follows(SERVICE, ""));
    let of = |index, port: u16, weight| (format!("{}:{port}", host(index)), weight);
    wait_for_members(&agent, &[of(1, PORT, 5), of(2, PORT + 1, 7)]);
    let mut changed = hosts(1);
    changed.retain(|record| !record.to_string().contains("two.example.com"));
    changed.push(service(SERVICE, 1, (10, 3, PORT), "old.example.com"));
    server.set_records(changed);
    wait_for_members(&agent, &[of(1, PORT, 5), of(3, PORT, 3)]);
}
