//! The VCL reader against Varnish's own compiler: on every text of the corpus both accept or both
//! refuse, with the same words and line; and what is accepted comes to the same parameters.
//!
//! Needs `varnishd` (Debian's package `varnish`, 7.1); without it the test fails.

/// What `varnishd -C` says.
mod compiler;
/// The texts.
mod corpus;

use compiler::{Answer, Fields, compile};
use sickbay::vcl::{self, Question, Vcl};

#[test]
fn both_accept_or_refuse_with_the_same_words_and_line() {
    let mut differences = Vec::new();
    for text in corpus::TEXTS {
        let whole = format!("vcl 4.1;\n{text}\n");
        let ours = vcl::parse("t.vcl", whole.as_bytes()).and_then(|vcl| {
            let unused = vcl.unused.clone();
            let error = || sickbay::config::ConfigError { errors: unused, warnings: Vec::new() };
            if vcl.unused.is_empty() { Ok(vcl) } else { Err(error()) }
        });
        match (ours, compile(&whole)) {
            (Ok(ours), Answer::Accepted { probes, backends }) => {
                differences.extend(compare(text, &ours, &probes, &backends));
            }
            (Err(ours), Answer::Refused { words, line }) => {
                let first = &ours.errors[0];
                let same_line = line.is_none_or(|line| line == first.line);
                if !first.problem.starts_with(&words) || !same_line {
                    differences
                        .push(format!("{text}\n  sickbay: {first}\n  Varnish: {words} {line:?}"));
                }
            }
            (Ok(_), Answer::Refused { words, .. }) => {
                differences.push(format!("{text}\n  accepted, but Varnish says: {words}"));
            }
            (Err(ours), Answer::Accepted { .. }) => {
                differences.push(format!("{text}\n  Varnish accepts, but: {ours}"));
            }
        }
    }
    assert!(60 <= corpus::TEXTS.len());
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Known differences, each with its reason in the module's own words (agent/src/vcl.rs).
#[test]
fn intended_differences_are_the_documented_ones() {
    let later_fields = [
        "backend b { .host = \"127.0.0.1\"; .probe = { .expect_close = false; } }",
        "backend a { .host = \"127.0.0.1\"; .via = b; .authority = \"x\"; }\nbackend b none;\n\
         sub vcl_recv { set req.backend_hint = b; }",
        "backend b { .path = \"@abstract\"; }",
    ];
    for text in later_fields {
        let whole = format!("vcl 4.1;\n{text}\n");
        vcl::parse("t.vcl", whole.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert!(matches!(compile(&whole), Answer::Refused { .. }), "{text}");
    }
    let port_0 = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; .port = \"0\"; }\n";
    vcl::parse("t.vcl", port_0.as_bytes()).expect_err("nothing can be connected to port 0");
    assert!(matches!(compile(port_0), Answer::Accepted { .. }));
}

fn compare(text: &str, ours: &Vcl, probes: &[Fields], backends: &[Fields]) -> Vec<String> {
    let mut differences = Vec::new();
    let mut differ = |what: &str, ours: String, theirs: String| {
        if ours != theirs {
            differences.push(format!("{text}\n  {what}: sickbay {ours}, Varnish {theirs}"));
        }
    };
    differ("probes", ours.probes.len().to_string(), probes.len().to_string());
    for (ours, theirs) in ours.probes.iter().zip(probes) {
        let parameters = &ours.parameters;
        let (url, request) = match &parameters.question {
            Question::Url(url) => (Some(url.clone()), None),
            Question::Request(request) => (None, Some(request.clone())),
        };
        // The defaults of VBP_Set_Defaults, written out.
        let number = |name: &str, unset: u64| match theirs.number(name) {
            None | Some(0) => unset,
            Some(number) => number,
        };
        let threshold = number("threshold", 3);
        let initial = match theirs.number("initial") {
            None | Some(0xffff_ffff) => threshold - 1,
            Some(initial) => initial.min(threshold),
        };
        let seconds = |name: &str, unset: f64| match theirs.seconds(name) {
            None | Some(0.0) => unset,
            Some(seconds) => seconds,
        };
        let their_url = match (theirs.text("url"), theirs.text("request")) {
            (None, None) => Some(b"/".to_vec()),
            (url, _) => url,
        };
        differ("url", format!("{url:?}"), format!("{their_url:?}"));
        differ("request", format!("{request:?}"), format!("{:?}", theirs.text("request")));
        differ(
            "expected_response",
            parameters.expected_response.to_string(),
            number("exp_status", 200).to_string(),
        );
        differ("window", parameters.window.to_string(), number("window", 8).to_string());
        differ("threshold", parameters.threshold.to_string(), threshold.to_string());
        differ("initial", parameters.initial.to_string(), initial.to_string());
        differ("timeout", parameters.timeout_s.to_string(), seconds("timeout", 2.0).to_string());
        differ("interval", parameters.interval_s.to_string(), seconds("interval", 5.0).to_string());
    }
    let with_place: Vec<_> =
        ours.backends.iter().filter(|each| each.endpoint != vcl::Endpoint::Nothing).collect();
    differ("backends", with_place.len().to_string(), backends.len().to_string());
    for (ours, theirs) in with_place.iter().zip(backends) {
        let header = Some(ours.host_header.clone());
        differ("hosthdr", format!("{header:?}"), format!("{:?}", theirs.text("hosthdr")));
        let proxy_header = theirs.number("proxy_header").unwrap_or(0);
        differ("proxy_header", ours.proxy_header.to_string(), proxy_header.to_string());
    }
    differences
}
