//! Backends that are not just an address with the pool's probe: without a probe, with one of their
//! own, at a unix socket.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::path::Path;

use sickbay::config::{Overrides, parse};
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
        "GET /h HTTP/1.1\r\nHost: 0.0.0.0\r\nUser-Agent: sickbay/0.1.0\r\nConnection: close\r\n\r\n"
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
