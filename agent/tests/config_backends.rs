//! Backends that are not just an address with the pool's probe: without a probe, with one of their
//! own, at a unix socket, meant by a name or listed in a file.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::path::Path;

use sickbay::config::{Overrides, newcomer, parse, parse_knowing};
use sickbay::discovery::Answers;
use sickbay::fleet::Fleet;
use sickbay::shard::split;
use sickbay_core::plan::Family;

fn fleet(text: &str) -> Fleet {
    parse(text, Path::new("b.toml"), &Overrides::default()).unwrap().fleet
}

/// What is wrong with it, one line each.
fn errors(text: &str) -> Vec<String> {
    let error = parse(text, Path::new("b.toml"), &Overrides::default()).expect_err("it is wrong");
    error.errors.iter().map(ToString::to_string).collect()
}

/// The probes that judge each backend, by their names.
fn judges(fleet: &Fleet) -> Vec<(&str, Vec<&str>)> {
    let name = |probe: usize| fleet.probes[probe].name.as_str();
    fleet
        .backends
        .iter()
        .map(|each| (each.name.as_str(), each.judged.iter().map(|it| name(it.probe)).collect()))
        .collect()
}

#[test]
fn pool_without_a_probe_has_backends_that_nothing_judges() {
    let fleet = fleet("[pool.p]\nprobe = \"none\"\nbackends = [\"192.0.2.1:80\"]\n");
    assert_eq!(judges(&fleet), [("192.0.2.1:80", vec![])]);
    assert!(fleet.targets.is_empty());
    assert!(fleet.pools[0].probes.is_empty());
    let plans = split(&fleet, 1);
    assert_eq!((plans.len(), plans[0].judges.len()), (1, 0), "nobody owns its bit");
}

#[test]
fn backends_own_probes_hold_instead_of_the_pools() {
    let fleet = fleet(
        "[probe.a]\nurl = \"/a\"\n[probe.b]\nurl = \"/b\"\n\
         [pool.p]\nprobe = \"a\"\nbackends = [\n\"192.0.2.1:80\",\n\
         { address = \"192.0.2.2:80\", probe = \"b\" },\n\
         { address = \"192.0.2.3:80\", probe = [\"b\", \"a\"] },\n\
         { address = \"192.0.2.4:80\", probe = \"none\" },\n]\n",
    );
    assert_eq!(
        judges(&fleet),
        [
            ("192.0.2.1:80", vec!["a"]),
            ("192.0.2.2:80", vec!["b"]),
            ("192.0.2.3:80", vec!["b", "a"]),
            ("192.0.2.4:80", vec![]),
        ]
    );
    assert_eq!(fleet.targets.len(), 4);
    assert_eq!(fleet.pools[0].probes, [0, 1]);
}

#[test]
fn pool_needs_no_probe_when_each_backend_has_its_own() {
    let text = "[probe.own]\nurl = \"/a\"\n[pool.p]\nbackends = [\
                { address = \"192.0.2.1:80\", probe = \"own\" }, \
                { address = \"192.0.2.2:80\", probe = \"none\" }";
    let own = fleet(&format!("{text}]\n"));
    assert_eq!(judges(&own), [("192.0.2.1:80", vec!["own"]), ("192.0.2.2:80", vec![])]);
    assert_eq!(
        errors(&format!("{text}, \"192.0.2.3:80\"]\n")),
        ["b.toml:3:7: pool.p: the pool has no probe; add probe = \"NAME\"; known are \"own\""]
    );
}

#[test]
fn mistakes_about_probes_of_backends_are_told_where_they_stand() {
    let of = |entry: &str| {
        let pool = "[pool.p]\nprobe = \"web\"\nbackends = [";
        errors(&format!("[probe.web]\nurl = \"/h\"\n{pool}{entry}]\n"))
    };
    assert_eq!(
        of("{ address = \"192.0.2.1:80\", probe = \"wbe\" }"),
        ["b.toml:5:49: pool.p.backends[0].probe: there is no probe \"wbe\"; did you mean \
             \"web\"?"]
    );
    assert_eq!(
        of("{ address = \"192.0.2.1:80\", probe = [\"web\", \"none\"] }"),
        ["b.toml:5:41: pool.p.backends[0].probe: \"none\" stands beside a probe; write probe = \
             \"none\", or remove \"none\""]
    );
    assert_eq!(
        errors(
            "[probe.none]\nurl = \"/h\"\n[pool.p]\nprobe = \"none\"\nbackends = [\"192.0.2.1:80\"]\n"
        ),
        ["b.toml:1:8: probe.none: \"none\" is no probe's name: in a pool it says that there is \
             no probe; give the probe another name"]
    );
}

#[test]
fn unix_sockets_are_targets_with_varnishs_host() {
    let fleet = fleet(
        "[probe.p]\nurl = \"/h\"\n[pool.p]\nprobe = \"p\"\nbackends = [\"unix:/run/a.sock\", \
         { name = \"b\", address = \"unix:@b\" }, \
         { name = \"c\", address = \"192.0.2.1:80\", probe_address = \"unix:/run/c.sock\" }]\n",
    );
    let names: Vec<&str> = fleet.backends.iter().map(|each| each.name.as_str()).collect();
    assert_eq!(names, ["unix:/run/a.sock", "b", "c"]);
    let targets: Vec<_> = fleet.targets.iter().map(|each| each.address.to_string()).collect();
    assert_eq!(targets, ["unix:/run/a.sock", "unix:@b", "unix:/run/c.sock"]);
    assert_eq!(
        String::from_utf8_lossy(&fleet.targets[0].request),
        "GET /h HTTP/1.1\r\nHost: 0.0.0.0\r\nUser-Agent: sickbay\r\nConnection: close\r\n\r\n"
    );
    let families: Vec<_> = split(&fleet, 1)[0].plan.targets.iter().map(|it| it.family).collect();
    assert_eq!(families, [Family::Unix; 3]);
}

#[test]
fn two_pools_that_ask_one_unix_socket_the_same_share_the_target() {
    let pool = |name| format!("[pool.{name}]\nprobe = \"p\"\nbackends = [\"unix:/run/a.sock\"]\n");
    let fleet = fleet(&format!("[probe.p]\nurl = \"/h\"\n{}{}", pool("a"), pool("b")));
    assert_eq!((fleet.backends.len(), fleet.targets.len()), (2, 1));
}

#[test]
fn what_no_unix_socket_can_do_is_refused() {
    let pool = "[pool.p]\nprobe = \"p\"\n";
    let unix = "backends = [\"unix:/run/a.sock\"]\n";
    let service = "[service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"p\"\n";
    let of =
        |probe: &str, rest: &str| errors(&format!("[probe.p]\nurl = \"/h\"\n{probe}{pool}{rest}"));
    assert_eq!(
        of("", &format!("{unix}{service}")),
        ["b.toml:9:8: service.s.pool: no flow can be steered to unix:/run/a.sock, a backend of \
             its pool; steer to a pool of addresses; a pool with unix sockets is only probed"]
    );
    assert_eq!(
        of("", &format!("{unix}probe_port = 81\n")),
        ["b.toml:6:14: pool.p.probe_port: probe_port has no meaning for unix:/run/a.sock; give \
             that backend a pool of its own"]
    );
    assert_eq!(
        of("source = \"192.0.2.250\"\n", unix),
        ["b.toml:3:10: probe.p.source: source has no meaning for unix:/run/a.sock; give unix \
             sockets a probe of their own"]
    );
    assert_eq!(
        of("", "backends = [\"unix:@\"]\n"),
        ["b.toml:5:13: pool.p.backends[0]: The empty abstract socket name is not supported; \
             write a name behind the \"@\", such as \"unix:@app\""]
    );
    assert_eq!(
        of("", &format!("backends = [\"unix:/{}\"]\n", "x".repeat(107)))[0]
            .matches("is no unix socket")
            .count(),
        1
    );
    assert_eq!(
        of("", "prefer_ipv6 = true\nbackends = [\"192.0.2.1:80\"]\n"),
        ["b.toml:5:15: pool.p.prefer_ipv6: prefer_ipv6 has no meaning without vcl; remove it; an \
             address has one family"]
    );
}

const NAMES: &str = "[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n\
                     backends_dns = [\"WEB.example.com:80\", \"_http._tcp.example.com\"]\n";

#[test]
fn names_mean_whom_their_answers_name_and_nobody_before() {
    let fleet = fleet(NAMES);
    assert_eq!(fleet.backends.len(), 1, "nobody was asked");
    let sources: Vec<String> =
        fleet.pools[0].sources.iter().map(|sourced| sourced.source.to_string()).collect();
    assert_eq!(sources, ["name web.example.com:80", "name _http._tcp.example.com"]);
    let named = |address: &str| newcomer(address, None, Some(3)).unwrap();
    let answers = [
        (0, vec![named("192.0.2.2:80"), named("192.0.2.1:80")]),
        (1, vec![named("192.0.2.3:81"), named("192.0.2.2:80")]),
    ];
    let known: Answers = answers
        .into_iter()
        .map(|(at, members)| (fleet.pools[0].sources[at].source.clone(), members.into()))
        .collect();
    let path = Path::new("b.toml");
    let fleet = parse_knowing(NAMES, path, &Overrides::default(), &known).unwrap().fleet;
    let members: Vec<(String, u32)> =
        fleet.backends.iter().map(|it| (it.address.to_string(), it.weight)).collect();
    let expected = [("192.0.2.1:80", 1), ("192.0.2.2:80", 3), ("192.0.2.3:81", 3)];
    assert_eq!(members, expected.map(|(address, weight)| (address.to_owned(), weight)));
}

#[test]
fn pool_of_names_has_room_before_anybody_answers() {
    let fleet = fleet(
        "[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends_dns = [\"web.example.com:80\"]\n\
         [service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"p\"\n",
    );
    assert_eq!((fleet.backends.len(), fleet.pools[0].word_count), (0, 1));
    assert!(fleet.pools[0].may_be_empty);
}

#[test]
fn mistakes_in_names_are_told_with_the_way_to_mend_them() {
    for (entry, told) in [
        (
            "\"192.0.2.1:80\"",
            "[0]: \"192.0.2.1:80\" is an address, not a name; put it into backends",
        ),
        ("\"web.example.com\"", "[0]: \"web.example.com\" has no port; write it as \"web.e"),
        ("\"web.example.com:0\"", "[0]: \"web.example.com:0\" has no port from 1 to 65535; "),
        ("\"web..com:80\"", "[0]: \"web..com\" is no name of the DNS; "),
        ("\"we b:80\"", "[0]: \"we b\" is no name of the DNS; "),
        ("{ weight = 2 }", "[0]: the entry has no name; add name = \"NAME:PORT\""),
        (
            "{ name = \"_a._tcp.b:80\", records = \"srv\" }",
            "[0].name: SRV records have their own ports; write \"_a._tcp.b\" alone",
        ),
        ("{ name = \"_a._tcp.b\", weight = 2 }", "[0].weight: SRV records have their own weights"),
        ("{ name = \"a:80\", weight = 0 }", "[0].weight: 0 is out of range; write a whole number"),
        ("{ name = \"a:80\", records = \"mx\" }", "[0].records: \"mx\" is not a choice; write "),
        ("\"a:80\", \"A:80\"", "[1]: name a:80 is in the pool already; remove one of the two"),
    ] {
        let errors =
            errors(&format!("[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends_dns = [{entry}]\n"));
        let [error] = &errors[..] else { panic!("{entry}: {errors:?}") };
        let (_, error) = error.split_once("pool.p.backends_dns").unwrap();
        assert!(error.starts_with(told), "{error}");
    }
}

#[test]
fn servers_and_times_of_the_dns_are_checked() {
    let of = |dns: &str| errors(&format!("{NAMES}[dns]\n{dns}\n"));
    assert!(
        of("resolvers = [\"one\"]")[0].contains("dns.resolvers[0]: \"one\" is not ADDRESS:PORT")
    );
    assert!(of("timeout = \"5m\"")[0].contains("dns.timeout: \"5m\" is out of range"));
    assert!(of("ttl_min = \"0s\"")[0].contains("dns.ttl_min: \"0s\" is out of range"));
    let error = &of("ttl_min = \"1m\"\nttl_max = \"30s\"")[0];
    assert!(error.contains("dns.ttl_max: \"30s\" is out of range; write a time from \"1m\""));
}

#[test]
fn file_that_lists_nobody_is_an_error_unless_that_is_meant() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("b.toml");
    std::fs::write(directory.path().join("l"), "# nobody\n").unwrap();
    let read = |more: &str| {
        let text = format!(
            "[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n\
             backends_file = \"l\"\n{more}"
        );
        parse(&text, &path, &Overrides::default())
    };
    let error = read("").expect_err("it may be in the middle of a write").to_string();
    assert!(error.contains("pool.p.backends_file: ") && error.contains("lists no backend; "));
    assert_eq!(read("allow_empty = true\n").unwrap().fleet.backends.len(), 1);
}
