//! Mistakes in probes, and in any section: keys, types, times, choices.

use super::{Case, with};

pub(super) fn cases() -> Vec<Case> {
    let probe = "url = \"/healthz\"";
    let backends = "backends = [\"192.0.2.1:80\", \"192.0.2.2:80\"]";
    vec![
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
    ]
}
