//! `check` warns of what is allowed and disappoints, with the line and the way out.

use std::path::Path;

use sickbay::config::{Overrides, parse};

const POOL: &str = "[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n";
const SERVICE: &str = "[service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"p\"\n";

fn warnings(text: &str) -> Vec<String> {
    match parse(text, Path::new("t.toml"), &Overrides::default()) {
        Ok(good) => good.warnings.iter().map(ToString::to_string).collect(),
        Err(error) => panic!("it is allowed, but: {error}\n{text}"),
    }
}

/// What a probe with these attributes is warned of, in a pool of two.
fn of_probe(attributes: &str) -> Vec<String> {
    warnings(&format!("[agent]\nshards = 1\n[probe.p]\n{attributes}\n{POOL}"))
}

#[track_caller]
fn assert_one(warnings: &[String], expected: &str) {
    let [only] = warnings else { panic!("one warning, not {warnings:#?}") };
    assert!(only.contains(expected), "\n got {only}\nwant {expected}");
}

const DEEP: &str = "url = \"/healthz\"";

#[test]
fn sound_probes_are_not_warned_of() {
    assert_eq!(of_probe(DEEP), [""; 0]);
    assert_eq!(of_probe("type = \"tcp\"\ninterval = \"1s\"\ntimeout = \"999ms\""), [""; 0]);
    assert_eq!(of_probe("url = \"/status?page=x.html\"\ninitial = 3"), [""; 0]);
    let short = "window = 1\nthreshold = 1\ninterval = \"5s\"";
    assert_eq!(of_probe(&format!("{DEEP}\n{short}")), [""; 0]);
}

#[test]
fn one_of_one_with_a_long_interval_tells_its_blind_spot() {
    // The seed's example: 1-of-1 every 30 s. Dead right after a good probe: the next one starts
    // after 30 s and times out 2 s later.
    let expected = "t.toml:6:13: probe.p.threshold: 1-of-1 with an interval of 30s: a backend that \
                    dies after a good probe gets traffic for up to 32s";
    let attributes = format!("{DEEP}\nwindow = 1\nthreshold = 1\ninterval = \"30s\"");
    assert_one(
        &of_probe(&attributes.replace("window = 1\nthreshold = 1", "threshold = 1\nwindow = 1")),
        &expected.replace(":6:13", ":5:13"),
    );
    assert_one(&of_probe(&attributes), expected);
    let attributes = format!("{DEEP}\nfall = 1\nrise = 1\ninterval = \"6s\"");
    assert_one(&of_probe(&attributes), "probe.p.fall: 1-of-1 with an interval of 6s");
}

#[test]
fn timeout_that_reaches_the_interval_is_warned_of() {
    let attributes = format!("{DEEP}\ninterval = \"2s\"");
    assert_one(
        &of_probe(&attributes),
        "probe.p.timeout: timeout 2s is not below interval 2s: probes never overlap, so a backend \
         that does not answer is probed only every 4s",
    );
}

#[test]
fn initial_above_threshold_or_rise_is_warned_of() {
    assert_one(
        &of_probe(&format!("{DEEP}\ninitial = 4")),
        "t.toml:5:11: probe.p.initial: initial 4 above threshold 3 has no effect: 3 is used",
    );
    assert_one(
        &of_probe(&format!("{DEEP}\nfall = 2\nrise = 5\ninitial = 6")),
        "initial 6 above rise 5 has no effect: 5 is used",
    );
}

#[test]
fn urls_that_prove_nothing_are_warned_of() {
    assert_one(&of_probe(""), "t.toml:3:8: probe.p.url: \"/\" (the default) is the front page");
    assert_one(&of_probe("url = \"/\""), "t.toml:4:7: probe.p.url: \"/\" is the front page");
    assert_one(&of_probe("url = \"/?deep=1\""), "\"/?deep=1\" is the front page");
    for url in ["/index.html", "/robots.txt", "/a/b.JS", "/x.css?v=3", "/favicon.ico", "/l.png"] {
        let expected = format!("probe.p.url: \"{url}\" is a static file");
        assert_one(&of_probe(&format!("url = \"{url}\"")), &expected);
    }
}

#[test]
fn load_of_all_pools_on_one_address_is_added_up() {
    // 1/s is no trap; 1/s and 0.5/s on the same host, on two ports, are 1.5/s.
    let text = "[probe.a]\ntype = \"tcp\"\ninterval = \"1s\"\ntimeout = \"500ms\"\n\
                [probe.b]\ntype = \"tcp\"\ninterval = \"2s\"\ntimeout = \"500ms\"\n\
                [pool.a]\nprobe = \"a\"\nbackends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n\
                [pool.b]\nprobe = \"b\"\nbackends = [\"192.0.2.1:81\", \"192.0.2.3:81\"]\n";
    assert_one(
        &warnings(text),
        "t.toml:3:12: probe.a.interval: backend address 192.0.2.1 gets 1.5 probes/s from 2 \
         targets, from each host",
    );
    let attributes = format!("{DEEP}\ninterval = \"250ms\"\ntimeout = \"100ms\"");
    assert_one(
        &of_probe(&attributes),
        "backend address 192.0.2.1 gets 4 probes/s from 1 target (and 1 other address gets more \
         than 1/s)",
    );
}

#[test]
fn too_little_room_in_flight_is_warned_of() {
    // 100 targets at 5 s with a timeout of 2 s: 40 at once when all time out.
    let text = |in_flight: u32| {
        format!(
            "[agent]\nshards = 1\nin_flight = {in_flight}\n[probe.p]\n{DEEP}\n[pool.p]\n\
             probe = \"p\"\nbackends_range = \"10.0.0.1-10.0.0.100:80\"\n"
        )
    };
    assert_eq!(warnings(&text(40)), [""; 0]);
    assert_one(
        &warnings(&text(39)),
        "t.toml:3:13: agent.in_flight: if every probe timed out, 40 would be in flight at once, \
         and there is room for 39",
    );
}

#[test]
fn rate_that_no_core_can_send_is_warned_of() {
    let text = "[agent]\nshards = 1\nin_flight = 65536\n[probe.p]\ntype = \"tcp\"\n\
                interval = \"1s\"\ntimeout = \"500ms\"\n[pool.p]\nprobe = \"p\"\n\
                backends_range = \"10.0.0.1-10.0.156.65:80\"\n";
    // 156 * 256 + 65 = 40,001 addresses, one probe a second each.
    assert_one(&warnings(text), "agent.shards: 40001 probes/s are more than 1 probing thread can");
}

#[test]
fn start_timeout_below_the_first_verdict_is_warned_of() {
    // First probe within 2 s. When it takes its 2 s, a slot may come meanwhile and be skipped: up to
    // 7 s to the second; the third 5 s later takes 2 s. 2 + 7 + 5 + 2.
    let text = format!("[probe.p]\n{DEEP}\ninitial = 0\n{POOL}{SERVICE}");
    assert_one(
        &warnings(&text),
        "agent.start_timeout: start_timeout \"10s\" ends before a backend can be healthy by probe \
         p, which takes up to 16s; raise it to \"16s\"",
    );
    // One good result less leaves 11 s, two less 4 s.
    assert_one(&warnings(&text.replace("initial = 0", "initial = 1")), "raise it to \"11s\"");
    assert_eq!(warnings(&text.replace("initial = 0", "initial = 2")), [""; 0]);
}

#[test]
fn tables_that_lose_their_evenness_are_warned_of() {
    let text = format!("[probe.p]\n{DEEP}\n{POOL}{SERVICE}table_size = 199\n");
    assert_one(
        &warnings(&text),
        "t.toml:10:14: service.s.table_size: 199 slots give the lightest of 2 backends 99: shares \
         are uneven by up to one part in 99; write 0 or at least 1021",
    );
    assert_eq!(warnings(&text.replace("199", "211")), [""; 0]);
}

#[test]
fn direct_return_to_other_ports_or_families_is_warned_of() {
    let service = format!("{SERVICE}mode = \"dsr\"\n");
    let text = |backend: &str| {
        format!("[probe.p]\n{DEEP}\n[pool.p]\nprobe = \"p\"\nbackends = [\"{backend}\"]\n{service}")
    };
    assert_eq!(warnings(&text("192.0.2.1:80")), [""; 0]);
    assert_one(
        &warnings(&text("192.0.2.1:8080")),
        "t.toml:9:8: service.s.pool: dsr does not change the port: flows reach 192.0.2.1 on port \
         80, not 8080",
    );
    assert_one(
        &warnings(&text("[2001:db8::1]:80")),
        "service.s.pool: an IPv4 service with the IPv6 backend [2001:db8::1]:80",
    );
}

#[test]
fn probe_that_no_pool_uses_is_warned_of() {
    let text = format!("[probe.p]\n{DEEP}\n[probe.q]\n{DEEP}\n{POOL}");
    assert_one(&warnings(&text), "t.toml:3:8: probe.q: no pool uses probe q");
    // Backends that are added later would be judged by p.
    let pool = "[pool.p]\nprobe = \"p\"\n\
                backends = [{ address = \"192.0.2.1:80\", probe = \"q\" }]\n";
    let text = format!("[probe.p]\n{DEEP}\n[probe.q]\n{DEEP}\n{pool}");
    assert_eq!(warnings(&text), [""; 0]);
}
