//! What a probe asks and expects: each key's meaning, and each mistake's line.

use std::path::Path;

use sickbay::config::{Overrides, parse};
use sickbay::fleet::{Fleet, SocketOptions};
use sickbay::shard::split;
use sickbay_core::content::{Content, WantedHeader};
use sickbay_core::pattern::Pattern;
use sickbay_core::plan::{Pace, ProbeKind};
use sickbay_core::statuses::Statuses;

const POOL: &str = "[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:8080\"]\n";

fn fleet(attributes: &str) -> Fleet {
    let text = format!("[probe.p]\n{attributes}\n{POOL}");
    match parse(&text, Path::new("p.toml"), &Overrides::default()) {
        Ok(configuration) => configuration.fleet,
        Err(error) => panic!("{attributes}: {error}"),
    }
}

/// The bytes that are sent.
fn request(attributes: &str) -> String {
    String::from_utf8(fleet(attributes).targets[0].request.clone()).expect("a request in UTF-8")
}

fn kind(attributes: &str) -> ProbeKind {
    fleet(attributes).probes[0].spec.kind.clone()
}

/// What is said of a mistake, without its place.
fn mistake(attributes: &str) -> String {
    let text = format!("[probe.p]\n{attributes}\n{POOL}");
    let error = parse(&text, Path::new("p.toml"), &Overrides::default()).expect_err(attributes);
    let [error] = &error.errors[..] else {
        panic!("{attributes}: {error}");
    };
    format!("{}: {}; {}", error.path, error.problem, error.mend)
}

#[test]
fn expected_response_is_a_status_or_several_with_ranges() {
    let expected = |attributes: &str| match kind(attributes) {
        ProbeKind::Http { expected, .. } => expected,
        other => panic!("{other:?}"),
    };
    assert_eq!(expected(""), Statuses::only(200));
    assert_eq!(expected("expected_response = 301"), Statuses::only(301));
    assert_eq!(expected("expected_response = \"200-299\""), Statuses::NONE.with(200, 299));
    let several = Statuses::only(200).with(204, 204).with(300, 399);
    assert_eq!(expected("expected_response = [200, 204, \"300-399\"]"), several);
}

#[test]
fn request_has_the_lines_that_are_given() {
    assert_eq!(
        request(
            "method = \"POST\"\nheaders = [\"X-Probe: 1\", \"user-agent: me\"]\nbody = \"a=é\""
        ),
        "POST / HTTP/1.1\r\nHost: 192.0.2.1:8080\r\nConnection: close\r\nX-Probe: 1\r\n\
         user-agent: me\r\nContent-Length: 4\r\n\r\na=é"
    );
    assert_eq!(
        request("method = \"OPTIONS\"\nurl = \"/x\"\nhost = \"h\""),
        "OPTIONS /x HTTP/1.1\r\nHost: h\r\nUser-Agent: sickbay\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn raw_request_is_joined_as_varnish_does_it() {
    assert_eq!(
        request("request = [\"GET /x HTTP/1.1\", \"Host: foo\"]"),
        "GET /x HTTP/1.1\r\nHost: foo\r\n\r\n"
    );
    let head = |attributes| matches!(kind(attributes), ProbeKind::Http { head: true, .. });
    assert!(head("request = [\"HEAD / HTTP/1.0\"]"));
    assert!(!head("request = [\"GET / HTTP/1.0\"]"));
}

#[test]
fn proxy_header_stands_before_the_request() {
    // As varnishd sends it to a PROXY listener.
    let expected = "\r\n\r\n\0\r\nQUIT\n \0\0\0GET / HTTP/1.0\r\n\r\n";
    assert_eq!(request("proxy_header = 2\nrequest = [\"GET / HTTP/1.0\"]"), expected);
}

#[test]
fn proxy_header_of_version_1_is_left_to_the_connection() {
    let attributes = "proxy_header = 1\nrequest = [\"GET / HTTP/1.0\"]";
    assert_eq!(request(attributes), "GET / HTTP/1.0\r\n\r\n");
    let named = |attributes| split(&fleet(attributes), 1)[0].endpoints[0].proxy_v1;
    assert!(named(attributes));
    assert!(!named("proxy_header = 2"));
    assert!(!named(""));
}

#[test]
fn content_is_what_a_good_response_holds() {
    let body = Pattern::new(b"all well");
    let header = WantedHeader { name: b"x-ready".as_slice().into(), value: Pattern::new(b"yes") };
    let attributes = "expect_header = \"X-Ready: yes\"\nexpect_body = \"all well\"\nbody_max = 100";
    let content = Content { header: Some(header), body, body_bytes_max: 100 };
    let expected = Statuses::only(200);
    assert_eq!(kind(attributes), ProbeKind::Http { expected, head: false, content });
}

#[test]
fn tcp_probe_sends_and_awaits_bytes() {
    let attributes = "type = \"tcp\"\nsend = \"PING\\r\\n\"\nexpect = \"+PONG\"";
    let expected = Pattern::new(b"+PONG").expect("a pattern");
    assert_eq!(kind(attributes), ProbeKind::Banner { expected, bytes_max: 65_536 });
    assert_eq!(request(attributes), "PING\r\n");
    assert_eq!(kind("type = \"tcp\""), ProbeKind::Tcp);
}

#[test]
fn pace_is_the_intervals_and_the_jitter() {
    let pace = |attributes| fleet(attributes).probes[0].spec.pace;
    assert_eq!(pace(""), Pace::STEADY);
    let given = "interval_fast = \"1s\"\ninterval_sick = \"30s\"\njitter = \"10%\"";
    assert_eq!(
        pace(given),
        Pace { fast_ns: Some(1_000_000_000), sick_ns: Some(30_000_000_000), jitter_percent: 10 }
    );
}

#[test]
fn socket_is_told_source_interface_and_mark() {
    let socket = |attributes| fleet(attributes).probes[0].socket.clone();
    assert_eq!(socket(""), SocketOptions::default());
    let given = "source = \"192.0.2.250\"\ninterface = \"eth1\"\nmark = 100";
    let expected = SocketOptions {
        source: Some([192, 0, 2, 250].into()),
        interface: Some("eth1".into()),
        mark: Some(100),
    };
    assert_eq!(socket(given), expected);
}

#[test]
fn backend_of_several_probes_has_a_target_for_each_on_one_shard() {
    let text = "[probe.deep]\nurl = \"/deep\"\nthreshold = 1\nwindow = 2\n[probe.web]\n\
                [pool.p]\nprobe = [\"web\", \"deep\"]\n\
                backends = [\"192.0.2.1:80\", \"192.0.2.2:80\", \"192.0.2.3:80\"]\n";
    let fleet = parse(text, Path::new("p.toml"), &Overrides::default()).expect("good").fleet;
    assert_eq!(fleet.targets.len(), 6);
    for backend in &fleet.backends {
        let judged: Vec<_> = backend
            .judged
            .iter()
            .map(|judged| {
                let request = &fleet.targets[judged.target].request;
                let text = String::from_utf8_lossy(request).into_owned();
                (
                    text.lines().next().unwrap_or_default().to_owned(),
                    fleet.probes[judged.probe].name.clone(),
                )
            })
            .collect();
        let line = |url: &str, name: &str| (format!("GET {url} HTTP/1.1"), name.to_owned());
        assert_eq!(judged, [line("/", "web"), line("/deep", "deep")]);
    }
    let plans = split(&fleet, 2);
    assert_eq!(plans.iter().map(|plan| plan.judges.len()).sum::<usize>(), 6);
    for backend in 0..3 {
        let owners = plans.iter().filter(|plan| plan.judges.contains(&backend));
        assert_eq!(owners.count(), 1, "one owner of each bit");
    }
    for plan in &plans {
        for (judge, spec) in plan.judges.iter().zip(&plan.plan.judges) {
            let target = plan.targets[spec.target.0 as usize];
            let mut judged = fleet.backends[*judge].judged.iter();
            let own = judged.find(|each| each.target == target).expect("a target of its own");
            let rule = fleet.probes[own.probe].rule;
            assert_eq!(spec.rule, rule, "each judge has its own probe's rule");
        }
    }
}

#[test]
fn probe_address_is_probed_instead_of_the_backends_own() {
    let text = "[probe.p]\n[pool.p]\nprobe = \"p\"\nprobe_port = 81\nbackends = [\
                { address = \"192.0.2.1:80\", probe_address = \"198.51.100.1:8080\" }, \
                \"192.0.2.2:80\"]\n";
    let fleet = parse(text, Path::new("p.toml"), &Overrides::default()).expect("good").fleet;
    let addresses: Vec<_> = fleet.targets.iter().map(|it| it.address.to_string()).collect();
    assert_eq!(addresses, ["198.51.100.1:8080", "192.0.2.2:81"]);
    assert_eq!(fleet.backends[0].address.to_string(), "192.0.2.1:80");
}

#[test]
fn each_mistake_has_its_line() {
    for (attributes, expected) in [
        (
            "expected_response = [200, 99]",
            "probe.p.expected_response: Must specify expected_response with exactly three digits \
             (100 <= x <= 999); write a status, not 99",
        ),
        (
            "expected_response = [\"399-300\"]",
            "probe.p.expected_response: \"399-300\" is no range of statuses; write it as \
             \"300-399\"",
        ),
        (
            "expected_response = []",
            "probe.p.expected_response: no status is good; write at least one",
        ),
        (
            "expected_response = [200, true]",
            "probe.p.expected_response: must be a status or a range in quotes, but is true or \
             false; write 204 or \"300-399\"",
        ),
        (
            "headers = [\"X Y: z\"]",
            "probe.p.headers: \"X Y: z\" is no header line; write it as \"Name: value\"",
        ),
        (
            "headers = [\"HOST: z\"]",
            "probe.p.headers: \"HOST\" cannot be given here; write it as host = \"…\"",
        ),
        (
            "request = [\"GET / HTTP/1.1\"]\nurl = \"/\"",
            "probe.p.url: url has no meaning for a probe whose whole request is given; remove it, \
             or remove request",
        ),
        (
            "request = [\"GET / HTTP/1.1\\r\\n\"]",
            "probe.p.request: a line has a line's end in it; write one text for each line",
        ),
        (
            "expect_header = \": yes\"",
            "probe.p.expect_header: \": yes\" is no header; write it as \"Name\" or \"Name: value\"",
        ),
        (
            "expect_body = \"\"",
            "probe.p.expect_body: expect_body has 0 bytes; write 1 to 4096, or leave it out",
        ),
        (
            "method = \"HEAD\"\nexpect_body = \"ok\"",
            "probe.p.expect_body: the response to HEAD has no body; ask by another method, or \
             remove expect_body",
        ),
        (
            "body_max = 10",
            "probe.p.body_max: body_max has no meaning without expect_body; remove it, or add \
             expect_body",
        ),
        (
            "send = \"x\"",
            "probe.p.send: send has no meaning for a http probe; remove it, or write type = \"tcp\"",
        ),
        (
            "type = \"tcp\"\nsend = \"x\"",
            "probe.p.send: send has no meaning for a tcp probe without expect; remove it, or add \
             expect",
        ),
        (
            "source = \"192.0.2.1:80\"",
            "probe.p.source: \"192.0.2.1:80\" is not an IP address; write one of this host's, such \
             as \"192.0.2.250\", without a port",
        ),
        (
            "interface = \"a/b\"",
            "probe.p.interface: \"a/b\" is no interface name; write one that `ip link` shows",
        ),
        (
            "proxy_header = 3",
            "probe.p.proxy_header: 3 is no version of the PROXY protocol; write proxy_header = 1 \
             or 2",
        ),
        (
            "interval_fast = \"6s\"",
            "probe.p.interval_fast: \"6s\" is out of range; write a time from \"10ms\" to \"5s\"",
        ),
        (
            "jitter = \"51%\"",
            "probe.p.jitter: \"51%\" is no part of the interval; write \"0%\" to \"50%\"",
        ),
    ] {
        assert_eq!(mistake(attributes), expected);
    }
}

#[test]
fn each_difference_makes_another_target() {
    for attribute in [
        "expected_response = [200, 204]",
        "expect_header = \"A\"",
        "expect_body = \"a\"",
        "interval_fast = \"1s\"",
        "interval_sick = \"9s\"",
        "jitter = \"1%\"",
        "proxy_header = 1",
        "proxy_header = 2",
        "source = \"192.0.2.250\"",
        "interface = \"eth1\"",
        "mark = 1",
    ] {
        let text = format!(
            "[probe.p]\n[probe.q]\n{attribute}\n{POOL}\
             [pool.q]\nprobe = \"q\"\nbackends = [\"192.0.2.1:8080\"]\n"
        );
        let fleet = parse(&text, Path::new("p.toml"), &Overrides::default()).expect("good").fleet;
        assert_eq!(fleet.targets.len(), 2, "{attribute}");
        assert_ne!(fleet.targets[0].identity, fleet.targets[1].identity, "{attribute}");
    }
}
