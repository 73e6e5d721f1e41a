//! Services of every kind: what is read, what is ambiguous, and what says nothing.

use std::path::Path;

use sickbay::config::{Overrides, parse};
use sickbay::fleet::{Fleet, Panic};

const POOLS: &str = "[probe.p]\nurl = \"/healthz\"\n\
                     [pool.a]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n\
                     [pool.b]\nprobe = \"p\"\nbackends = [\"192.0.2.2:80\"]\n";

fn fleet(text: &str) -> Fleet {
    match parse(&format!("{POOLS}{text}"), Path::new("t.toml"), &Overrides::default()) {
        Ok(good) => good.fleet,
        Err(error) => panic!("it is right, but: {error}"),
    }
}

fn warnings(text: &str) -> Vec<String> {
    let text = format!("{POOLS}{text}");
    let good = parse(&text, Path::new("t.toml"), &Overrides::default()).expect("it is allowed");
    good.warnings.iter().map(|warning| format!("{}: {}", warning.path, warning.problem)).collect()
}

fn errors(text: &str) -> Vec<String> {
    let text = format!("{POOLS}{text}");
    let error = parse(&text, Path::new("t.toml"), &Overrides::default()).expect_err("it is wrong");
    error.errors.iter().map(|error| format!("{}: {}", error.path, error.problem)).collect()
}

/// A service of this name with these keys, in TOML.
fn service(name: &str, keys: &str) -> String {
    format!("[service.{name}]\npool = \"a\"\n{}\n", keys.replace("; ", "\n"))
}

#[test]
fn every_kind_of_service_is_read() {
    let kinds = [
        ("address = \"198.51.100.1\"; port = 80", "198.51.100.1 port 80 tcp"),
        (
            "address = \"198.51.100.1\"; port = [443, \"8000-8099\", 80]",
            "198.51.100.1 ports 80,443,8000-8099 tcp",
        ),
        (
            "address = \"198.51.100.1\"; port = \"9000-9010\"; protocol = \"udp\"",
            "198.51.100.1 ports 9000-9010 udp",
        ),
        ("address = \"198.51.100.1\"; port = \"any\"", "198.51.100.1 any port tcp"),
        (
            "address = \"2001:db8::/48\"; port = \"any\"; protocol = \"any\"",
            "2001:db8::/48 any port any",
        ),
        ("address = \"198.51.100.0/24\"; protocol = \"gre\"", "198.51.100.0/24 gre"),
        ("address = \"198.51.100.1\"; protocol = 50; port = \"any\"", "198.51.100.1 esp"),
    ];
    for (keys, expected) in kinds {
        assert_eq!(fleet(&service("s", keys)).services[0].traffic.to_string(), expected);
    }
}

#[test]
fn what_two_services_claim_in_the_same_terms_is_refused_with_both_names() {
    let both = |one: &str, other: &str| {
        let vip = "address = \"198.51.100.1\"; port = ";
        errors(&format!(
            "{}{}",
            service("one", &format!("{vip}{one}")),
            service("two", &format!("{vip}{other}"))
        ))
    };
    assert_eq!(
        both("[80, 443]", "[8080, 443]"),
        ["service.two: 198.51.100.1 port 443 tcp belongs to service \"one\" already"]
    );
    assert_eq!(
        both("\"8050-9000\"", "[80, \"8000-8099\"]"),
        ["service.two: 198.51.100.1 ports 8000-8099 tcp overlap the ports 8050-9000 of service \
              \"one\""]
    );
    // One range inside of another, and a third one that only the first reaches.
    assert_eq!(
        both("\"1000-9000\"", "[\"2000-2010\", \"8000-8010\"]"),
        [
            "service.two: 198.51.100.1 ports 2000-2010 tcp overlap the ports 1000-9000 of service \
              \"one\"",
            "service.two: 198.51.100.1 ports 8000-8010 tcp overlap the ports 1000-9000 of service \
              \"one\"",
        ]
    );
    assert_eq!(
        both("\"any\"", "\"any\""),
        ["service.two: 198.51.100.1 any port tcp belongs to service \"one\" already"]
    );
    let gre = "address = \"198.51.100.0/24\"; protocol = \"gre\"";
    assert_eq!(
        errors(&format!("{}{}", service("one", gre), service("two", gre))),
        ["service.two: 198.51.100.0/24 gre belongs to service \"one\" already"]
    );
}

#[test]
fn narrower_terms_beside_wider_ones_are_no_mistake() {
    let vip = "address = \"198.51.100.1\"";
    fleet(
        &[
            service("a", &format!("{vip}; port = 80")),
            service("b", &format!("{vip}; port = 81; protocol = \"udp\"")),
            service("c", &format!("{vip}; port = [80, 81]; protocol = \"any\"")),
            service("d", &format!("{vip}; port = \"1-100\"")),
            service("e", &format!("{vip}; port = \"any\"")),
            service("f", &format!("{vip}; port = \"any\"; protocol = \"any\"")),
            service("g", "address = \"198.51.100.0/24\"; port = 80"),
            service("h", "address = \"198.51.100.0/25\"; port = 80"),
            service("i", "address = \"2001:db8::1\"; port = 80"),
        ]
        .concat(),
    );
}

#[test]
fn ports_and_protocols_that_say_nothing_are_refused() {
    let of = |keys: &str| errors(&service("s", &format!("address = \"198.51.100.1\"; {keys}")));
    assert_eq!(of("port = 80; protocol = \"gre\""), ["service.s.port: protocol gre has no ports"]);
    assert_eq!(
        of("protocol = \"any\""),
        ["service.s: the service has no port"],
        "any protocol includes those with ports"
    );
    assert_eq!(
        of("port = \"any\"; protocol = \"icmp\""),
        [
            "service.s.protocol: protocol 1 cannot be a service's: it is answered or passed on by rule"
        ]
    );
    assert_eq!(
        of("port = [80, true]"),
        ["service.s.port: must be a port or a range in quotes, but is true or false"]
    );
    assert_eq!(
        of("port = 80; backup = \"a\""),
        ["service.s.backup: \"a\" is the service's pool itself"]
    );
    assert_eq!(of("port = 80; backup = \"c\""), ["service.s.backup: there is no pool \"c\""]);
}

#[test]
fn service_that_no_packet_can_reach_is_refused() {
    let vip = "address = \"198.51.100.1\"; port = ";
    let text = [
        service("a", &format!("{vip}\"80-81\"")),
        service("b", &format!("{vip}80")),
        service("c", &format!("{vip}81")),
    ]
    .concat();
    assert_eq!(
        errors(&text),
        ["service.a: no packet reaches it: others have all of 198.51.100.1 ports 80-81 tcp"]
    );
    let services = fleet(&text.replace("80-81", "80-82")).services;
    assert_eq!(services.len(), 3, "one port is enough");
}

#[test]
fn more_port_prefixes_than_the_map_takes_are_refused() {
    let mut text = String::new();
    for port in 0..1100 {
        let keys = format!("address = \"10.0.0.0/8\"; port = {}", 1000 + port * 2);
        text.push_str(&service(&format!("p{port}"), &keys));
    }
    for network in 0..1000 {
        let (high, low) = (network >> 8, network & 255);
        let keys = format!("address = \"10.{high}.{low}.0/24\"; port = 1");
        text.push_str(&service(&format!("n{network}"), &keys));
    }
    let errors = errors(&text);
    assert_eq!(errors.len(), 1, "{:?}", errors.first());
    assert!(errors[0].ends_with("come to more than 1048576 port prefixes"), "{}", errors[0]);
}

#[test]
fn policies_without_effect_are_warned_of() {
    let of = |keys: &str| warnings(&service("s", &format!("address = \"198.51.100.1\"; {keys}")));
    assert_eq!(
        of("port = 80; on_sick_udp = \"reset\""),
        ["service.s.on_sick_udp: on_sick_udp has no effect on a tcp service"]
    );
    assert_eq!(
        of("protocol = \"gre\"; on_sick_tcp = \"reset\""),
        ["service.s.on_sick_tcp: on_sick_tcp has no effect on a service that is not tcp"]
    );
    assert_eq!(
        of("port = 80; stale_after = \"5s\""),
        ["service.s.stale_after: stale_after has no effect with stale = \"last\""]
    );
    let dsr = of("port = [\"8000-8099\", 443]; mode = \"dsr\"");
    assert_eq!(
        dsr,
        ["service.s.pool: dsr does not change the port: flows reach 192.0.2.1 on port \
              443,8000-8099, not 80"]
    );
    assert_eq!(of("port = \"any\"; mode = \"dsr\""), [""; 0]);
}

#[test]
fn panic_threshold_has_a_higher_end_and_needs_a_service_that_opens() {
    let of = |keys: &str, all_sick: &str| {
        let pool = format!(
            "[pool.c]\nprobe = \"p\"\nbackends = [\"192.0.2.3:80\"]\n{}\n",
            keys.replace("; ", "\n")
        );
        let keys = format!("address = \"198.51.100.1\"; port = 80; all_sick = \"{all_sick}\"");
        format!("{pool}{}", service("s", &keys).replace("\"a\"", "\"c\""))
    };
    let panic = |keys: &str| fleet(&of(keys, "open")).pools[2].panic;
    let some = |below_percent, end_percent| Some(Panic { below_percent, end_percent });
    assert_eq!(panic(""), None);
    assert_eq!(panic("panic_threshold = \"30%\""), some(30, 40));
    assert_eq!(panic("panic_threshold = \"95%\""), some(95, 100));
    assert_eq!(panic("panic_threshold = \"30%\"; panic_end = \"30%\""), some(30, 30));
    assert_eq!(
        errors(&of("panic_threshold = \"30%\"; panic_end = \"20%\"", "open")),
        ["pool.c.panic_end: \"20%\" is no share of a pool"]
    );
    assert_eq!(
        errors(&of("panic_threshold = \"30\"", "open")),
        ["pool.c.panic_threshold: \"30\" is no share of a pool"]
    );
    assert_eq!(
        errors(&of("panic_end = \"30%\"", "open")),
        ["pool.c.panic_end: panic_end has no meaning without panic_threshold"]
    );
    assert_eq!(
        warnings(&of("panic_threshold = \"30%\"", "reset")),
        ["pool.c.panic_threshold: panic_threshold has no effect: service s has all_sick = \
              \"reset\", and no service with \"open\" uses the pool"]
    );
}

#[test]
fn guard_is_off_until_it_has_a_share() {
    assert_eq!(fleet("").guard, None);
    let guard = fleet("[guard]\nshare = \"50%\"\nhold = \"2m\"\n").guard.expect("it is on");
    assert_eq!((guard.share_percent, guard.within_ns), (50, 10_000_000_000));
    assert_eq!(guard.hold_ns, 120_000_000_000);
    assert_eq!(errors("[guard]\nhold = \"2m\"\n"), ["guard: the guard is off: no share is given"]);
    assert_eq!(
        errors("[guard]\nshare = \"100%\"\n"),
        ["guard.share: \"100%\" is no share of a pool"]
    );
}

#[test]
fn budgets_arrive_where_they_belong() {
    let steering = fleet("[steering]\nflow_entries = 4096\nanswers_per_second = 0\n").steering;
    assert_eq!((steering.flow_entries, steering.answers_per_second), (4096, 0));
    assert_eq!(
        errors("[steering]\nflow_entries = 100\n"),
        ["steering.flow_entries: 100 is out of range"]
    );
}
