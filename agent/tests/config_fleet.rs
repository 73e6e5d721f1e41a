//! What a right configuration becomes: defaults, shared targets, indices, tables, requests.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Instant;

use sickbay::config::{Configuration, Overrides, parse};
use sickbay::fleet::{
    AllSick, BackupTable, CloseMode, HashBy, Judged, Mode, OnSick, Program, Stale, XdpMode,
};
use sickbay_core::content::Content;
use sickbay_core::plan::{Compat, OnUnknown, ProbeKind, Rule};
use sickbay_core::statuses::Statuses;

fn good(text: &str) -> Configuration {
    match parse(text, Path::new("test.toml"), &Overrides::default()) {
        Ok(good) => good,
        Err(error) => panic!("it is right, but: {error}"),
    }
}

fn rule(attributes: &str) -> (Rule, u8) {
    let pool = "[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n";
    let probe = good(&format!("[probe.p]\n{attributes}\n{pool}")).fleet.probes.remove(0);
    (probe.rule, probe.initial)
}

#[test]
fn left_out_keys_have_varnishs_defaults() {
    let fleet = good("[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n").fleet;
    let probe = &fleet.probes[0];
    assert_eq!(probe.spec.interval_ns, 5_000_000_000);
    assert_eq!(probe.spec.timeout_ns, 2_000_000_000);
    assert_eq!(probe.spec.kind, ProbeKind::http(200));
    assert_eq!(probe.rule, Rule::Window { window: 8, threshold: 3 });
    assert_eq!(probe.initial, 2);
    assert_eq!(probe.on_unknown, OnUnknown::Keep);
    assert_eq!(probe.close, CloseMode::Rst);
    assert_eq!(fleet.instance, "default");
    assert_eq!(fleet.pin_directory, PathBuf::from("/sys/fs/bpf/sickbay/default"));
    assert_eq!(fleet.run_directory, PathBuf::from("/run/sickbay/default"));
    assert_eq!(fleet.state_directory, PathBuf::from("/var/lib/sickbay/default"));
    assert_eq!((fleet.shards, fleet.in_flight), (0, 1024));
    assert_eq!(fleet.start_timeout_ns, 10_000_000_000);
}

#[test]
fn window_threshold_and_initial_follow_varnish() {
    let window = |window, threshold| Rule::Window { window, threshold };
    assert_eq!(rule("window = 10\nthreshold = 7"), (window(10, 7), 6));
    assert_eq!(rule("threshold = 5"), (window(6, 5), 4), "threshold alone: window is one more");
    assert_eq!(rule("threshold = 64"), (window(64, 64), 63), "and 64 at most");
    assert_eq!(rule("initial = 0"), (window(8, 3), 0));
    assert_eq!(rule("initial = 8"), (window(8, 3), 3), "clamped to the threshold, not the window");
    assert_eq!(rule("window = 1\nthreshold = 1"), (window(1, 1), 0));
}

#[test]
fn compat_is_a_probes_own_and_so_are_its_targets() {
    let text = r#"
[probe.own]
[probe.varnish]
compat = "varnish"
[probe.waiting]
compat = "varnish"
expect_close = false
[pool.a]
probe = "own"
backends = ["192.0.2.1:80"]
[pool.b]
probe = "varnish"
backends = ["192.0.2.1:80"]
[pool.c]
probe = "waiting"
backends = ["192.0.2.1:80"]
"#;
    let fleet = good(text).fleet;
    let compat: Vec<Compat> = fleet.probes.iter().map(|probe| probe.spec.compat).collect();
    let waiting = Compat::Varnish { expect_close: false };
    assert_eq!(compat, [Compat::Off, Compat::Varnish { expect_close: true }, waiting]);
    // The same question, but each to be answered in its own way: no history is shared.
    let identities: HashSet<u128> = fleet.targets.iter().map(|target| target.identity).collect();
    assert_eq!((fleet.targets.len(), identities.len()), (3, 3));
}

#[test]
fn fall_and_rise_make_the_consecutive_rule() {
    let consecutive = |fall, rise| Rule::Consecutive { fall, rise };
    assert_eq!(rule("fall = 4\nrise = 5"), (consecutive(4, 5), 4));
    assert_eq!(rule("fall = 4"), (consecutive(4, 2), 1));
    assert_eq!(rule("rise = 5"), (consecutive(3, 5), 4));
    assert_eq!(rule("fall = 2\nrise = 3\ninitial = 64"), (consecutive(2, 3), 3));
}

#[test]
fn every_key_arrives_where_it_belongs() {
    let text = r#"
[agent]
instance = "edge-1"
pin_directory = "/sys/fs/bpf/other"
run_directory = "/tmp/run"
shards = 3
in_flight = 77
start_timeout = "1m 30s"
seed = 42

[probe.deep]
url = "/deep?x=1"
method = "HEAD"
host = "www.example.com"
expected_response = 204
interval = "250ms"
timeout = "100ms"
close = "fin"
on_unknown = "sick"

[probe.port]
type = "tcp"

[pool.dns]
probe = "port"
backends = [{ name = "ns1", address = "[2001:db8::53]:53", weight = 7 }]
probe_port = 5353

[pool.web]
probe = "deep"
backends = ["192.0.2.1:80"]

[service.dns]
address = "2001:db8::1"
port = 53
protocol = "udp"
pool = "dns"
mode = "dsr"
all_sick = "drop"
on_sick_udp = "reset"
hash = "source"
backup = "web"
stale = "open"
stale_after = "5s"
udp_idle = "5s"
table_size = 2003

[[attach]]
interface = "eth1"
program = "tc"

[[attach]]
interface = "eth0"
xdp_mode = "native"
"#;
    let fleet = good(text).fleet;
    assert_eq!(fleet.instance, "edge-1");
    assert_eq!(fleet.pin_directory, PathBuf::from("/sys/fs/bpf/other/edge-1"));
    assert_eq!(fleet.run_directory, PathBuf::from("/tmp/run/edge-1"));
    assert_eq!((fleet.shards, fleet.in_flight), (3, 77));
    assert_eq!(fleet.start_timeout_ns, 90_000_000_000);
    let deep = &fleet.probes[0];
    assert_eq!((deep.spec.interval_ns, deep.spec.timeout_ns), (250_000_000, 100_000_000));
    let expected = Statuses::only(204);
    assert_eq!(deep.spec.kind, ProbeKind::Http { expected, head: true, content: Content::ANY });
    assert_eq!((deep.close, deep.on_unknown), (CloseMode::Fin, OnUnknown::Sick));
    let service = &fleet.services[0];
    assert_eq!(service.traffic.to_string(), "2001:db8::1 port 53 udp");
    assert_eq!((service.mode, service.all_sick), (Mode::Dsr, AllSick::Drop));
    assert_eq!((service.on_sick_tcp, service.on_sick_udp), (OnSick::Keep, OnSick::Reset));
    assert_eq!(service.hash, HashBy::Source);
    assert_eq!((service.stale, service.stale_after_ns), (Stale::Open, 5_000_000_000));
    let backup = BackupTable { pool: 1, slot_first: 2003, slot_count: 1021 };
    assert_eq!(service.backup, Some(backup));
    assert_eq!((service.udp_idle_ns, service.seed), (5_000_000_000, 42));
    assert_eq!((service.slot_first, service.slot_count), (0, 2003));
    let backend = &fleet.backends[0];
    assert_eq!((backend.name.as_str(), backend.weight), ("ns1", 7));
    assert_eq!(backend.address.to_string(), "[2001:db8::53]:53");
    let target = &fleet.targets[backend.judged[0].target];
    assert_eq!(target.address.to_string(), "[2001:db8::53]:5353");
    assert_eq!(target.request, b"");
    assert_eq!(fleet.attachments[0].program, Program::Tc);
    assert_eq!(fleet.attachments[1].program, Program::Xdp(XdpMode::Native));
}

#[test]
fn requests_are_sent_as_they_are_promised() {
    let text = "[probe.p]\nurl = \"/h\"\n[probe.q]\nmethod = \"HEAD\"\nhost = \"x.test\"\n\
                [pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\", \"[2001:db8::1]:8080\"]\n\
                [pool.q]\nprobe = \"q\"\nbackends = [\"192.0.2.1:80\"]\n";
    let fleet = good(text).fleet;
    let requests: Vec<&str> = fleet
        .targets
        .iter()
        .map(|target| std::str::from_utf8(&target.request).expect("is text"))
        .collect();
    assert_eq!(
        requests,
        [
            "GET /h HTTP/1.1\r\nHost: 192.0.2.1\r\nUser-Agent: sickbay\r\n\
             Connection: close\r\n\r\n",
            "GET /h HTTP/1.1\r\nHost: [2001:db8::1]:8080\r\nUser-Agent: sickbay\r\n\
             Connection: close\r\n\r\n",
            "HEAD / HTTP/1.1\r\nHost: x.test\r\nUser-Agent: sickbay\r\n\
             Connection: close\r\n\r\n",
        ]
    );
}

#[test]
fn pools_that_ask_the_same_share_the_target_and_keep_their_rules() {
    let text = "[probe.a]\nurl = \"/h\"\n[probe.b]\nurl = \"/h\"\nthreshold = 6\nwindow = 8\n\
                [pool.a]\nprobe = \"a\"\nbackends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n\
                [pool.b]\nprobe = \"b\"\nbackends = [\"192.0.2.2:80\", \"192.0.2.3:80\"]\n";
    let good = good(text);
    let fleet = &good.fleet;
    assert_eq!(fleet.targets.len(), 3);
    assert_eq!(fleet.backends[1].judged[0], Judged { target: 1, probe: 0 });
    assert_eq!(fleet.backends[2].judged[0], Judged { target: 1, probe: 1 });
    assert_eq!((&fleet.pools[0].probes, &fleet.pools[1].probes), (&vec![0], &vec![1]));
    assert_eq!(fleet.probes[1].rule, Rule::Window { window: 8, threshold: 6 });
    let shared = &fleet.targets[1];
    assert_eq!(shared.initial, 2, "the lower of 2 and 5: nothing starts healthy unproven");
    assert!(good.warnings.iter().any(|warning| warning.path == "pool.b.probe"));
}

#[test]
fn other_times_another_answer_or_another_request_are_other_targets() {
    let other = |attribute: &str| {
        let text = format!(
            "[probe.a]\nurl = \"/h\"\n[probe.b]\nurl = \"/h\"\n{attribute}\n\
             [pool.a]\nprobe = \"a\"\nbackends = [\"192.0.2.1:80\"]\n\
             [pool.b]\nprobe = \"b\"\nbackends = [\"192.0.2.1:80\"]\n"
        );
        let fleet = good(&text).fleet;
        let identities: HashSet<u128> = fleet.targets.iter().map(|each| each.identity).collect();
        assert_eq!(identities.len(), fleet.targets.len(), "identities are unique: {attribute}");
        fleet.targets.len()
    };
    assert_eq!(other(""), 1);
    assert_eq!(other("initial = 3"), 1);
    assert_eq!(other("interval = \"6s\""), 2);
    assert_eq!(other("timeout = \"1s\""), 2);
    assert_eq!(other("expected_response = 204"), 2);
    assert_eq!(other("host = \"x.test\""), 2);
    assert_eq!(other("method = \"HEAD\""), 2);
    assert_eq!(other("close = \"fin\""), 2);
}

#[test]
fn identity_does_not_depend_on_times_or_rules() {
    let identity = |attributes: &str| {
        let pool = "[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n";
        good(&format!("[probe.p]\n{attributes}\n{pool}")).fleet.targets[0].identity
    };
    assert_eq!(identity(""), identity("interval = \"1s\"\nthreshold = 4"));
    assert_ne!(identity(""), identity("url = \"/other\""));
    assert_ne!(identity(""), identity("expected_response = 204"));
}

#[test]
fn pool_that_comes_before_another_takes_no_history_of_it() {
    let web = "[probe.web]\nurl = \"/h\"\n\
               [pool.web]\nprobe = \"web\"\nbackends = [\"192.0.2.1:80\"]\n";
    let canary = "[probe.canary]\nurl = \"/h\"\nexpected_response = 204\n\
                  [pool.a-canary]\nprobe = \"canary\"\nbackends = [\"192.0.2.1:80\"]\n";
    let identity = |text: &str| {
        let fleet = good(text).fleet;
        let pool = fleet.pools.iter().find(|pool| pool.name == "web").expect("it is there");
        fleet.targets[fleet.backends[pool.backends.start].judged[0].target].identity
    };
    assert_eq!(identity(web), identity(&format!("{web}{canary}")));
}

#[test]
fn pools_lie_at_multiples_of_their_size_the_largest_first() {
    let text = "[probe.p]\n\
                [pool.a]\nprobe = \"p\"\nbackends_range = \"10.1.0.1-10.1.0.3:80\"\n\
                [pool.b]\nprobe = \"p\"\nbackends_range = \"10.2.0.1-10.2.0.129:80\"\n\
                [pool.c]\nprobe = \"p\"\nbackends_range = \"10.3.0.1-10.3.0.64:80\"\n\
                [pool.d]\nprobe = \"p\"\nbackends_range = \"10.4.0.1-10.4.0.65:80\"\n";
    let fleet = good(text).fleet;
    let places: Vec<(&str, u32, u32)> = fleet
        .pools
        .iter()
        .map(|pool| (pool.name.as_str(), pool.first_word, pool.word_count))
        .collect();
    // Twice 129 backends reserve eight words, twice 65 four, twice 64 two, and twice 3 one.
    assert_eq!(places, [("a", 14, 1), ("b", 0, 8), ("c", 12, 2), ("d", 8, 4)]);
    for pool in &fleet.pools {
        for (position, backend) in fleet.backends[pool.backends.clone()].iter().enumerate() {
            assert_eq!(backend.index as usize, pool.first_word as usize * 64 + position);
        }
    }
}

#[test]
fn tables_stand_one_behind_the_other() {
    let text = "[probe.p]\n[pool.a]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n[pool.b]\nprobe \
                    = \"p\"\nbackends_range = \"10.0.0.1-10.0.0.11:80\"\n[service.a]\naddress = \
                    \"198.51.100.1\"\nport = 80\npool = \"a\"\n[service.b]\naddress = \
                    \"198.51.100.1\"\nport = 81\npool = \"b\"\n[service.c]\naddress = \
                    \"198.51.100.1\"\nport = 80\nprotocol = \"udp\"\npool = \"a\"\n";
    let fleet = good(text).fleet;
    let tables: Vec<(u32, u32)> =
        fleet.services.iter().map(|service| (service.slot_first, service.slot_count)).collect();
    assert_eq!(tables, [(0, 1021), (1021, 2039), (3060, 1021)]);
}

#[test]
fn overrides_stand_in_place_of_the_file() {
    let overrides = Overrides {
        instance: Some("two".to_owned()),
        pin_directory: Some(PathBuf::from("/sys/fs/bpf/x")),
        run_directory: Some(PathBuf::from("/tmp/y")),
        state_directory: Some(PathBuf::from("/tmp/z")),
    };
    let text = "[agent]\ninstance = \"one\"\n[probe.p]\n[pool.p]\nprobe = \"p\"\n\
                backends = [\"192.0.2.1:80\"]\n";
    let fleet = parse(text, Path::new("t.toml"), &overrides).expect("it is right").fleet;
    assert_eq!(fleet.instance, "two");
    assert_eq!(fleet.pin_directory, PathBuf::from("/sys/fs/bpf/x/two"));
    assert_eq!(fleet.run_directory, PathBuf::from("/tmp/y/two"));
    assert_eq!(fleet.state_directory, PathBuf::from("/tmp/z/two"));
    let history = fleet.observe.history.expect("it is on unless it is turned off");
    assert_eq!(history.directory, PathBuf::from("/tmp/z/two"));
}

#[test]
fn three_sources_of_backends_add_up_in_order() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("l"), "192.0.2.7:80 name=seven weight=2\n")
        .expect("a file");
    let text = "[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n\
                backends_file = \"l\"\nbackends_range = \"[fd00::/127]:80\"\n";
    let path = directory.path().join("t.toml");
    let fleet = parse(text, &path, &Overrides::default()).expect("it is right").fleet;
    let names: Vec<&str> = fleet.backends.iter().map(|backend| backend.name.as_str()).collect();
    assert_eq!(names, ["192.0.2.1:80", "seven", "[fd00::]:80", "[fd00::1]:80"]);
    assert_eq!(fleet.backends[1].weight, 2);
}

#[test]
fn sixty_five_thousand_backends_take_well_under_a_second() {
    let text = "[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends_range = \"10.0.0.0-10.0.255.255:80\"\n\
                [service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"p\"\n";
    let start = Instant::now();
    let fleet = good(text).fleet;
    let taken = start.elapsed();
    assert_eq!(fleet.backends.len(), 65_536);
    assert_eq!(fleet.targets.len(), 65_536);
    assert_eq!(fleet.pools[0].word_count, 1024);
    assert!(taken.as_secs() < 5, "a machine shared by many still does it at once: {taken:?}");
}

#[test]
fn sixty_five_thousand_written_backends_are_read_too() {
    let list: Vec<String> =
        (0..65_536_u32).map(|n| format!("\"10.0.{}.{}:80\"", n >> 8, n & 255)).collect();
    let text = format!("[probe.p]\n[pool.p]\nprobe = \"p\"\nbackends = [{}]\n", list.join(",\n"));
    assert_eq!(good(&text).fleet.backends.len(), 65_536);
}
