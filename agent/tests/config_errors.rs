//! Every mistake in a configuration is named with its line, its path and the way to mend it.

use std::path::Path;

use sickbay::config::{ConfigError, Overrides, parse};

/// A right configuration, in pieces that a test replaces; lines 1 to 13.
const GOOD: &str = "\
[probe.web]
url = \"/healthz\"

[pool.web]
probe = \"web\"
backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]

[service.web]
address = \"198.51.100.1\"
port = 80
pool = \"web\"

[agent]
";

fn errors(text: &str) -> ConfigError {
    parse(text, Path::new("web.toml"), &Overrides::default()).expect_err("it is wrong")
}

/// The whole text of what is wrong with `text`.
fn shown(text: &str) -> String {
    errors(text).to_string()
}

/// The good configuration with one piece replaced.
fn with(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old:?} is in the good configuration");
    GOOD.replace(old, new)
}

#[test]
fn good_configuration_is_good() {
    parse(GOOD, Path::new("web.toml"), &Overrides::default()).expect("it is right");
}

#[test]
fn each_mistake_is_one_line_with_place_reason_and_remedy() {
    let probe = "url = \"/healthz\"";
    let backends = "backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]";
    let cases: &[(&str, String, &str)] = &[
        (
            "unknown key, near a known one",
            with(probe, "treshold = 3"),
            "web.toml:2:1: probe.web.treshold: unknown key \"treshold\"; did you mean \
             \"threshold\"?",
        ),
        (
            "unknown section",
            with("[agent]", "[agents]"),
            "web.toml:13:2: agents: unknown section \"agents\"; did you mean \"agent\"?",
        ),
        (
            "wrong type, a number in quotes",
            with(probe, "window = \"8\""),
            "web.toml:2:10: probe.web.window: must be a whole number, but is text; leave out the \
             quotes: 8",
        ),
        (
            "wrong type, an array element",
            with(backends, "backends = [\"192.0.2.1:80\", 7]"),
            "web.toml:6:29: pool.web.backends[1]: must be text or a table, but is a whole number; \
             write text or a table",
        ),
        (
            "a bare number as time",
            with(probe, "interval = 5"),
            "web.toml:2:12: probe.web.interval: must be a time in quotes with a unit, but is a \
             whole number; a bare number has no unit: write \"5s\" or \"5ms\"",
        ),
        (
            "a time without unit in quotes",
            with(probe, "interval = \"5\""),
            "web.toml:2:12: probe.web.interval: \"5\" is not a time; add a unit: \"5s\" or \"5ms\"",
        ),
        (
            "an interval below the limit",
            with(probe, "interval = \"1ms\""),
            "web.toml:2:12: probe.web.interval: \"1ms\" is out of range; write a time from \
             \"10ms\" to \"1day\"",
        ),
        (
            "window 65",
            with(probe, "window = 65\nthreshold = 3"),
            "web.toml:2:10: probe.web.window: Window must be 64 or less, but is 65; write 64 or \
             less",
        ),
        (
            "threshold 65",
            with(probe, "threshold = 65"),
            "web.toml:2:13: probe.web.threshold: Threshold must be 64 or less, but is 65; write 64 \
             or less",
        ),
        (
            "threshold 0",
            with(probe, "threshold = 0"),
            "web.toml:2:13: probe.web.threshold: Threshold must be 1 or more, but is 0; write 1 or \
             more, or leave it out",
        ),
        (
            "threshold above window",
            with(probe, "window = 4\nthreshold = 5"),
            "web.toml:3:13: probe.web.threshold: Threshold cannot be greater than window, but 5 > \
             4; lower it to 4 or less, or raise window",
        ),
        (
            "window without threshold",
            with(probe, "window = 4"),
            "web.toml:2:10: probe.web.window: Must specify threshold with window; add threshold: \
             the good results in the window that make a backend healthy",
        ),
        (
            "fall mixed with window",
            with(probe, "fall = 3\nthreshold = 3"),
            "web.toml:3:13: probe.web.threshold: threshold cannot be mixed with fall and rise; \
             give either window and threshold, or fall and rise",
        ),
        (
            "expected_response with two digits",
            with(probe, "expected_response = 99"),
            "web.toml:2:21: probe.web.expected_response: Must specify expected_response with \
             exactly three digits (100 <= x <= 999); write a status, not 99",
        ),
        (
            "a choice that is none",
            with(probe, "type = \"htp\""),
            "web.toml:2:8: probe.web.type: \"htp\" is not a choice; write \"http\" or \"tcp\"",
        ),
        (
            "a policy that is none",
            with("port = 80", "port = 80\non_sick_tcp = \"drop\""),
            "web.toml:11:15: service.web.on_sick_tcp: \"drop\" is not a choice; write \"keep\" or \
             \"rehash\" or \"reset\"",
        ),
        (
            "url on a tcp probe",
            with(probe, "type = \"tcp\"\nurl = \"/\""),
            "web.toml:3:7: probe.web.url: url has no meaning for a tcp probe; remove it, or write \
             type = \"http\"",
        ),
        (
            "compat on a tcp probe",
            with(probe, "type = \"tcp\"\ncompat = \"varnish\""),
            "web.toml:3:10: probe.web.compat: compat has no meaning for a tcp probe; remove it, or \
             write type = \"http\"",
        ),
        (
            "expect_close without compat",
            with(probe, "expect_close = false"),
            "web.toml:2:16: probe.web.expect_close: expect_close has no meaning without compat: the \
             framing ends a response; remove it, or write compat = \"varnish\"",
        ),
        (
            "expect_header with compat",
            with(probe, "compat = \"varnish\"\nexpect_header = \"X-Ready: yes\""),
            "web.toml:3:17: probe.web.expect_header: expect_header is not known to Varnish, whose \
             behaviour is asked for; remove it, or remove compat",
        ),
        (
            "expect_body with compat",
            with(probe, "compat = \"varnish\"\nexpect_body = \"ok\""),
            "web.toml:3:15: probe.web.expect_body: expect_body is not known to Varnish, whose \
             behaviour is asked for; remove it, or remove compat",
        ),
        (
            "jitter with compat",
            with(probe, "compat = \"varnish\"\njitter = \"10%\""),
            "web.toml:3:10: probe.web.jitter: jitter is not known to Varnish, whose behaviour is \
             asked for; remove it, or remove compat",
        ),
        (
            "a truth in quotes",
            with(probe, "compat = \"varnish\"\nexpect_close = \"yes\""),
            "web.toml:3:16: probe.web.expect_close: must be true or false, but is text; write true or \
             false",
        ),
        (
            "url with a line break in it",
            with(probe, "url = \"/a\\r\\nX: y\""),
            "web.toml:2:7: probe.web.url: \"/a\\r\\nX: y\" has a blank or a control character; \
             write it percent-encoded, such as %20",
        ),
        (
            "key defined twice",
            with(probe, "url = \"/a\"\nurl = \"/b\""),
            "web.toml:3:1: \"url\" is defined twice; remove or rename one of the two",
        ),
        (
            "pool defined twice",
            with("[agent]", "[pool.web]"),
            "web.toml:13:7: \"web\" is defined twice; remove or rename one of the two",
        ),
        ("syntax", with(probe, "url = "), "web.toml:2:7: not TOML:"),
        (
            "pool without backends",
            with(backends, ""),
            "web.toml:4:7: pool.web: the pool has no backends; add backends = [\"ADDRESS:PORT\", \
             …], backends_file, backends_dns or backends_range; or allow_empty = true",
        ),
        (
            "pool with an empty list",
            with(backends, "backends = []"),
            "web.toml:4:7: pool.web: the pool has no backends; add backends =",
        ),
        (
            "unknown probe",
            with("probe = \"web\"", "probe = \"wbe\""),
            "web.toml:5:9: pool.web.probe: there is no probe \"wbe\"; did you mean \"web\"?",
        ),
        (
            "pool without probe",
            with("probe = \"web\"\n", ""),
            "web.toml:4:7: pool.web: the pool has no probe; add probe = \"NAME\"; known are \
             \"web\"",
        ),
        (
            "unknown pool",
            with("pool = \"web\"", "pool = \"static\""),
            "web.toml:11:8: service.web.pool: there is no pool \"static\"; known are \"web\"",
        ),
        (
            "backend twice",
            with(backends, "backends = [\n\"192.0.2.1:80\",\n\"192.0.2.1:80\"]"),
            "web.toml:8:1: pool.web.backends[1]: backend 192.0.2.1:80 is in the pool already (line \
             7); remove or change one of the two",
        ),
        (
            "backend name twice",
            with(
                backends,
                "backends = [\n{ name = \"b\", address = \"192.0.2.1:80\" },\n\
                 { name = \"b\", address = \"192.0.2.2:80\" }]",
            ),
            "web.toml:8:1: pool.web.backends[1]: backend name \"b\" is in the pool already (line \
             7)",
        ),
        (
            "unknown key of a backend",
            with(backends, "backends = [{ adress = \"192.0.2.1:80\" }]"),
            "web.toml:6:15: pool.web.backends[0].adress: unknown key \"adress\"; did you mean \
             \"address\"?",
        ),
        (
            "misspelt key that must be there",
            with("pool = \"web\"", "pol = \"web\""),
            "web.toml:11:1: service.web.pol: unknown key \"pol\"; did you mean \"pool\"?",
        ),
        (
            "weight out of range",
            with(backends, "backends = [{ address = \"192.0.2.1:80\", weight = 1001 }]"),
            "web.toml:6:50: pool.web.backends[0].weight: 1001 is out of range; write a whole \
             number from 1 to 1000",
        ),
        (
            "backend without port",
            with(backends, "backends = [\"192.0.2.1\"]"),
            "web.toml:6:13: pool.web.backends[0]: \"192.0.2.1\" is not ADDRESS:PORT; add the port, \
             such as \"192.0.2.1:80\"",
        ),
        (
            "host name as backend",
            with(backends, "backends = [\"web1.example.com:80\"]"),
            "web.toml:6:13: pool.web.backends[0]: \"web1.example.com:80\" is not ADDRESS:PORT; \
             write it as \"192.0.2.1:80\" or \"[2001:db8::1]:80\"; a host name belongs into \
             backends_dns",
        ),
        (
            "range that goes down",
            with(backends, "backends_range = \"10.0.0.9-10.0.0.1:80\""),
            "web.toml:6:18: pool.web.backends_range: \"10.0.0.9-10.0.0.1:80\" goes down or changes \
             its family; write the lower address first, both of one family",
        ),
        (
            "range that meets the list",
            with(backends, "backends = [\"10.0.0.2:80\"]\nbackends_range = \"10.0.0.0/30:80\""),
            "web.toml:7:18: pool.web.backends_range: backend 10.0.0.2:80 is in the pool already \
             (line 6)",
        ),
        (
            "backends_file that is not there",
            with(backends, "backends_file = \"absent.list\""),
            "web.toml:6:17: pool.web.backends_file: absent.list cannot be read: No such file or \
             directory (os error 2); name a file that exists",
        ),
        (
            "VIP with a port",
            with("\"198.51.100.1\"", "\"198.51.100.1:80\""),
            "web.toml:9:11: service.web.address: \"198.51.100.1:80\" is not an IP address; write \
             an IP address without a port, or a prefix of them",
        ),
        (
            "port out of range",
            with("port = 80", "port = 65536"),
            "web.toml:10:8: service.web.port: 65536 is out of range; write a whole number from 1 \
             to 65535",
        ),
        (
            "table size that is not prime",
            with("port = 80", "port = 80\ntable_size = 1000"),
            "web.toml:11:14: service.web.table_size: 1000 is not a prime; write 1009, or 0 to have \
             one chosen",
        ),
        (
            "table smaller than the pool",
            with("port = 80", "port = 80\ntable_size = 2")
                .replace("\"192.0.2.2:80\"", "\"192.0.2.2:80\", \"192.0.2.3:80\""),
            "web.toml:11:14: service.web.table_size: 2 slots cannot hold 3 backends; write 0 or at \
             least 1021",
        ),
        (
            "service twice",
            with(
                "[agent]",
                "[service.zwei]\naddress = \"198.51.100.1\"\nport = 80\npool = \"web\"",
            ),
            "web.toml:13:10: service.zwei: 198.51.100.1 port 80 tcp belongs to service \"web\" \
             already; give one of the two another address or port",
        ),
        (
            "odd instance name",
            with("[agent]", "[agent]\ninstance = \"a/b\""),
            "web.toml:14:12: agent.instance: \"a/b\" has the odd character \"/\"; name it with 1 \
             to 64 letters, digits, \"-\", \"_\"",
        ),
        (
            "relative pin directory",
            with("[agent]", "[agent]\npin_directory = \"bpf\""),
            "web.toml:14:17: agent.pin_directory: \"bpf\" is not an absolute path; begin it with \
             \"/\"",
        ),
        (
            "metrics for everybody",
            with("[agent]", "[agent]\nmetrics = \"0.0.0.0:9990\""),
            "web.toml:14:11: agent.metrics: 0.0.0.0:9990 is not a loopback address: metrics name \
             every backend, and whoever reaches the port reads them; write \"127.0.0.1:PORT\"",
        ),
        (
            "metrics without a port",
            with("[agent]", "[agent]\nmetrics = \"localhost\""),
            "web.toml:14:11: agent.metrics: \"localhost\" is no ADDRESS:PORT; write \
             \"127.0.0.1:9990\" or \"[::1]:9990\"",
        ),
        (
            "metrics at a port that changes",
            with("[agent]", "[agent]\nmetrics = \"[::1]:0\""),
            "web.toml:14:11: agent.metrics: port 0 is another one at each start; write",
        ),
        (
            "series without metrics",
            with("[agent]", "[agent]\nmetrics_per_target = true"),
            "web.toml:14:22: agent.metrics_per_target: has no meaning without metrics; add metrics",
        ),
        (
            "history that holds nothing",
            with("[agent]", "[agent]\nhistory_bytes = 4096"),
            "web.toml:14:17: agent.history_bytes: 4096 is out of range; write a whole \
             number from 1048576 to 2147483648",
        ),
        (
            "history that is a word",
            with("[agent]", "[agent]\nhistory = \"on\""),
            "web.toml:14:11: agent.history: must be true or false, but is text",
        ),
        (
            "relative state directory",
            with("[agent]", "[agent]\nstate_directory = \"state\""),
            "web.toml:14:19: agent.state_directory: \"state\" is not an absolute path; begin it",
        ),
        (
            "log format that there is not",
            with("[agent]", "[agent]\nlog_format = \"jsn\""),
            "web.toml:14:14: agent.log_format: \"jsn\" is not a choice; write \"text\" or \"json\"",
        ),
        (
            "single brackets around attach",
            with("[agent]", "[attach]\ninterface = \"eth0\""),
            "web.toml:13:1: attach: must be an array, but is a table; write [[…]] with double \
             brackets",
        ),
        (
            "attach without interface",
            with("[agent]", "[[attach]]\nprogram = \"tc\""),
            "attach[0]: attach has no interface; add interface = \"NAME\"",
        ),
        (
            "xdp_mode on tc",
            with(
                "[agent]",
                "[[attach]]\ninterface = \"eth0\"\nprogram = \"tc\"\nxdp_mode = \"auto\"",
            ),
            "web.toml:16:12: attach[0].xdp_mode: xdp_mode has no meaning for program \"tc\"; \
             remove it, or write program = \"xdp\"",
        ),
        (
            "interface name that cannot be",
            with("[agent]", "[[attach]]\ninterface = \"a very long name\""),
            "web.toml:14:13: attach[0].interface: \"a very long name\" is no interface name; write \
             one that `ip link` shows",
        ),
        (
            "nothing at all",
            String::new(),
            "web.toml:1:1: there is no pool: nothing to probe; add a [probe.NAME] and a \
             [pool.NAME]",
        ),
    ];
    for (what, text, expected) in cases {
        let shown = shown(text);
        assert!(shown.contains(expected), "{what}:\n got {shown}\nwant {expected}");
        assert_eq!(shown.lines().count(), 1, "{what}: one mistake is one line:\n{shown}");
    }
}

#[test]
fn all_mistakes_are_reported_in_the_order_of_lines() {
    let text = "\
[probe.web]
window = 65
threshold = 3
intervall = \"5s\"

[pool.web]
probe = \"wbe\"
backends = [\"nonsense\", \"192.0.2.1:80\", 3, \"192.0.2.1:80\"]

[service.web]
address = \"nowhere\"
port = 0
pool = \"web\"
mode = \"dsl\"
";
    let lines: Vec<usize> = errors(text).errors.iter().map(|error| error.line).collect();
    assert_eq!(lines, [2, 4, 7, 8, 8, 8, 11, 12, 14]);
}

#[test]
fn wrong_value_is_not_called_missing_as_well() {
    let text = with("\"198.51.100.1\"", "198").replace("port = 80", "port = \"80\"");
    let problems = errors(&text);
    let paths: Vec<&str> = problems.errors.iter().map(|error| error.path.as_str()).collect();
    assert_eq!(paths, ["service.web.address", "service.web.port"]);
}

#[test]
fn text_from_the_file_is_escaped() {
    let shown = shown(&with("url = \"/healthz\"", "\"\\u001b[2J\\n\" = 1"));
    assert!(shown.contains("unknown key \"\\u{1b}[2J\\n\""), "{shown}");
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn hundreds_of_mistakes_are_cut_and_counted() {
    let backends: Vec<String> = (0..300).map(|index| format!("\"host{index}\"")).collect();
    let list = format!("backends = [{}]", backends.join(", "));
    let shown = shown(&with("backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]", &list));
    assert_eq!(shown.lines().count(), 101);
    assert!(shown.ends_with("and 200 more errors; mend these first"), "{shown}");
}

#[test]
fn list_files_are_reported_under_their_own_name_and_line() {
    let directory = tempfile::tempdir().expect("a directory");
    let list = "192.0.2.1:80\n192.0.2.1:80 # again\n192.0.2.3:80 wieght=3\n";
    std::fs::write(directory.path().join("web.list"), list).expect("a file");
    let text =
        with("backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]", "backends_file = \"web.list\"");
    let path = directory.path().join("web.toml");
    let error = parse(&text, &path, &Overrides::default()).expect_err("it is wrong");
    let name = directory.path().join("web.list").display().to_string();
    let shown: Vec<String> = error.errors.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [
            format!(
                "{name}:2:1: pool.web.backends_file: backend 192.0.2.1:80 is in the pool already \
                 ({name}:1); remove or change one of the two"
            ),
            format!(
                "{name}:3:14: pool.web.backends_file: unknown key \"wieght\"; did you mean \
                 \"weight\"?"
            ),
        ]
    );
}

#[test]
fn override_of_the_instance_is_blamed_on_the_flag() {
    let overrides = Overrides { instance: Some("..".to_owned()), ..Overrides::default() };
    let error = parse(GOOD, Path::new("web.toml"), &overrides).expect_err("it is wrong");
    assert_eq!(
        error.to_string(),
        "--instance: \"..\" has the odd character \".\"; name it with 1 to 64 letters, digits, \"-\", \
         \"_\""
    );
}
