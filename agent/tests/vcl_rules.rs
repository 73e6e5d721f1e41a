//! What a VCL says about probing: Varnish's rules, with its words, and the parameters that hold.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use sickbay::config::Problem;
use sickbay::vcl::{self, Endpoint, Parameters, Question, Vcl};

/// A backend whose probe has these fields.
fn probe(fields: &str) -> String {
    format!("vcl 4.1;\nbackend b {{ .host = \"127.0.0.1\"; .probe = {{ {fields} }} }}\n")
}

fn refused(text: &str) -> Problem {
    let vcl = vcl::parse("t.vcl", text.as_bytes());
    match vcl {
        Err(error) => error.errors[0].clone(),
        Ok(vcl) => vcl.unused.first().unwrap_or_else(|| panic!("{text} is accepted")).clone(),
    }
}

fn accepted(text: &str) -> Vcl {
    vcl::parse("t.vcl", text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn parameters(fields: &str) -> Parameters {
    accepted(&probe(fields)).probes[0].parameters.clone()
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vcl").join(name)
}

#[test]
fn each_rule_is_told_in_varnish_words_at_its_place() {
    let inline = |fields: &str| probe(fields);
    let cases: &[(String, (usize, usize), &str)] = &[
        (inline(".window = 8;"), (2, 55), "Must specify .threshold with .window"),
        (inline(".threshold = 65;"), (2, 58), "Threshold must be 64 or less."),
        (inline(".window = 65; .threshold = 3;"), (2, 55), "Window must be 64 or less."),
        (
            inline(".window = 3; .threshold = 4;"),
            (2, 71),
            "Threshold can not be greater than window.",
        ),
        (
            inline(".expected_response = 99;"),
            (2, 66),
            "Must specify .expected_response with exactly three digits (100 <= x <= 999)",
        ),
        (inline(".url = \"/\"; .request = \"x\";"), (2, 58), "Probe request redefinition at:"),
        (inline(".request = \"x\"; .url = \"/\";"), (2, 62), "Probe request redefinition at:"),
        (inline(".expect_close = yes;"), (2, 61), "Expected \"true\" or \"false\""),
        (inline(".timeout = \"120s\";"), (2, 56), "Expected CNUM got '\"120s\"'"),
        (inline(".threshold = -1;"), (2, 58), "Expected CNUM got '-'"),
        (inline(".timeout = 1.2345s;"), (2, 56), "Too many digits for real."),
        (inline(".url = \"/\" \"x\";"), (2, 56), "Expected ';' got '\"x\"'"),
        (inline(".url = \"/\"; .url = \"/\";"), (2, 58), "Field 'url' redefined at:"),
        (inline(".tmeout = 1s;"), (2, 46), "Unknown field: 'tmeout' at"),
        (
            "vcl 4.1;\nbackend b { .host = \"1.1.1.1\"; .probe = p; }\nprobe p { }".into(),
            (2, 41),
            "Symbol not found: 'p'",
        ),
        ("vcl 4.1;\nprobe p1 { }\nprobe p1 { }".into(), (3, 7), "Probe 'p1' redefined"),
        (
            "vcl 4.1;\nbackend b { .host = \"1.1.1.1\"; .probe = \"NONE\"; }".into(),
            (2, 41),
            "Expected '{' or name of probe, got '\"NONE\"' at",
        ),
        (
            "vcl 4.1;\nbackend b { .host = \"1.1.1.1\"; .probe = default; }".into(),
            (2, 41),
            "No default probe defined",
        ),
        ("vcl 4.1;\nbackend b none;\n  probe p { }".into(), (3, 9), "Unused probe p, defined:"),
        (
            "vcl 4.1;\nbackend b { .path = \"@\"; }".into(),
            (2, 21),
            "Backend path: Must be an absolute path:",
        ),
        (
            "vcl 4.0;\nbackend b { .path = \"/x\"; }".into(),
            (2, 14),
            "Unix socket backends only supported in VCL4.1 and higher.",
        ),
        ("backend b none;".into(), (1, 1), "VCL version declaration missing"),
        (
            "vcl 4.1;\nbackend b none;\nsub x {\n {".into(),
            (3, 1),
            "End of input while in compound statement",
        ),
        (
            "vcl 4.1;\ninclude +glob \"*.vcl\";".into(),
            (2, 9),
            "include with flags, such as +glob, is not read",
        ),
    ];
    for (text, place, words) in cases {
        let problem = refused(text);
        assert!(problem.problem.starts_with(words), "{text}: {problem}");
        assert_eq!((problem.line, problem.column), *place, "{text}: {problem}");
        assert_eq!(problem.file, "t.vcl");
        assert_eq!(problem.to_string().lines().count(), 1, "{problem}");
    }
}

#[test]
fn zero_is_the_default_and_initial_never_exceeds_the_threshold() {
    let rule = |fields: &str| {
        let Parameters { window, threshold, initial, .. } = parameters(fields);
        (window, threshold, initial)
    };
    // Window, threshold, initial; from section 2 of the rules and what varnishd 7.1.1 does.
    assert_eq!(rule(""), (8, 3, 2));
    assert_eq!(rule(".threshold = 5;"), (6, 5, 4));
    assert_eq!(rule(".threshold = 64;"), (65, 64, 63));
    assert_eq!(rule(".threshold = 0;"), (1, 3, 2));
    assert_eq!(rule(".window = 2; .threshold = 0;"), (2, 3, 2));
    assert_eq!(rule(".window = 10; .threshold = 4; .initial = 9;"), (10, 4, 4));
    assert_eq!(rule(".initial = 0;"), (8, 3, 0));
    assert_eq!(rule(".initial = 4294967295;"), (8, 3, 2));
    assert_eq!(rule(".initial = 4294967297;"), (8, 3, 1));
    let times = |fields: &str| (parameters(fields).timeout_s, parameters(fields).interval_s);
    assert_eq!(times(""), (2.0, 5.0));
    assert_eq!(times(".timeout = 0s; .interval = 0ms;"), (2.0, 5.0));
    assert_eq!(times(".timeout = 1234.567s; .interval = 0.5m;"), (1234.57, 30.0));
    assert_eq!(parameters("").expected_response, 200);
    assert!(parameters("").expect_close);
    assert!(!parameters(".expect_close = false;").expect_close);
}

#[test]
fn requests_are_the_bytes_that_varnish_sends() {
    let sent = |fields: &str| {
        let vcl = accepted(&probe(fields));
        vcl.probes[0].parameters.request(&vcl.backends[0].host_header)
    };
    assert_eq!(
        sent(".url = \"/a?b=c\";"),
        b"GET /a?b=c HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(
        sent(".request = \"GET / HTTP/1.1\" {\"X: \"y\"\"} \"\"\"Z: 1\"\"\";"),
        b"GET / HTTP/1.1\r\nX: \"y\"\r\nZ: 1\r\n\r\n"
    );
}

#[test]
fn default_probe_is_the_last_one_wherever_it_stands() {
    let vcl = accepted(
        "vcl 4.1; probe default { .url = \"/1\"; } backend a { .host = \"1.1.1.1\"; .probe = \
         default; } backend b none; probe default { .url = \"/2\"; } backend c { .host = \
         \"1.1.1.2\"; .probe = { } } sub x { b; c; }",
    );
    let probes: Vec<Option<usize>> = vcl.backends.iter().map(|backend| backend.probe).collect();
    assert_eq!(probes, [Some(1), None, Some(2)]);
    assert_eq!(vcl.probes[1].parameters.question, Question::Url(b"/2".to_vec()));
    assert_eq!(vcl.unused, []);
}

#[test]
fn shop_has_its_definitions_and_nothing_of_what_looks_like_them() {
    let vcl = vcl::load(&fixture("shop.vcl")).expect("it is right");
    let backends: Vec<&str> = vcl.backends.iter().map(|each| each.name.as_str()).collect();
    assert_eq!(backends, ["web1", "web2", "static", "admin", "nowhere"]);
    let names: Vec<Option<&str>> = vcl.probes.iter().map(|each| each.name.as_deref()).collect();
    assert_eq!(names, [Some("health"), Some("static-probe"), None]);
    assert_eq!((&vcl.unused, &vcl.warnings), (&vec![], &vec![]));
    let health = &vcl.probes[0].parameters;
    assert_eq!((health.window, health.threshold, health.initial), (10, 6, 5));
    assert_eq!((health.timeout_s, health.interval_s), (0.8, 2.0));
    assert_eq!(health.expected_response, 204);
    assert_eq!(
        health.question,
        Question::Request(
            b"GET /healthz HTTP/1.1\r\nHost: shop.example.com\r\nUser-Agent: Varnish Health \
              Probe\r\nConnection: close\r\n\r\n"
                .to_vec()
        )
    );
    assert_eq!(vcl.probes[1].parameters.interval_s, 90.0);
    assert_eq!((vcl.probes[2].parameters.window, vcl.probes[2].parameters.threshold), (3, 2));
    assert_eq!(vcl.backends[0].host_header, b"shop.example.com");
    assert_eq!(vcl.backends[0].unused_fields.len(), 4);
    let Endpoint::Network(network) = &vcl.backends[2].endpoint else { panic!("an address") };
    assert_eq!(network.address(), Some("[2001:db8::21]:81".parse().expect("an address")));
    assert_eq!(vcl.backends[2].host_header, b"[2001:db8::21]:81");
    assert_eq!(vcl.backends[3].proxy_header, 2);
    assert_eq!(vcl.backends[4].endpoint, Endpoint::Nothing);
}

#[test]
fn news_binds_its_default_probe_to_the_included_backend_too() {
    let vcl = vcl::load(&fixture("news.vcl")).expect("it is right");
    assert_eq!(vcl.backends.len(), 13);
    assert_eq!(vcl.backends[0].name, "edge");
    assert!(vcl.backends[0].place.file.ends_with("tests/vcl/news-edge.vcl"));
    assert_eq!(vcl.backends[0].place.line, 2);
    assert!(vcl.backends.iter().all(|backend| backend.probe == Some(0)));
    assert_eq!(vcl.backends[4].host_header, b"198.51.100.4");
    assert_eq!(vcl.unused, []);
}

#[test]
fn api_has_tabs_and_carriage_returns_and_a_backend_without_a_probe() {
    let vcl = vcl::load(&fixture("api.vcl")).expect("it is right");
    assert_eq!(vcl.backends.len(), 9);
    assert_eq!(vcl.backends[8].name, "legacy");
    assert_eq!(vcl.backends[8].probe, None);
    let api = &vcl.probes[0].parameters;
    assert_eq!((api.window, api.threshold, api.initial), (4, 2, 2));
    assert_eq!(vcl.unused, []);
}

#[test]
fn includes_are_confined_to_the_folder_of_the_first_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let folder = directory.path().join("etc");
    fs::create_dir_all(folder.join("sub")).expect("a folder");
    let write = |path: &str, text: &str| fs::write(folder.join(path), text).expect("a file");
    fs::write(directory.path().join("secret"), "SECRET\n").expect("a file");
    symlink("../secret", folder.join("link.vcl")).expect("a link");
    write("b.vcl", "backend b none; include \"sub/c.vcl\";");
    write("sub/c.vcl", "include \"./d.vcl\";");
    write("sub/d.vcl", "backend d none; sub x { b; d; }");
    write("loop.vcl", "include \"loop.vcl\";");
    write("bad.vcl", "\n  backend ? {");
    let load = |include: &str| {
        write("first.vcl", &format!("vcl 4.1;\ninclude \"{include}\";\n"));
        vcl::load(&folder.join("first.vcl")).map_err(|error| error.to_string())
    };
    assert_eq!(load("b.vcl").expect("it is right").backends.len(), 2);
    assert_eq!(load("./b.vcl").expect("it is right").backends.len(), 2);
    let absolute = folder.join("b.vcl").display().to_string();
    assert_eq!(load(&absolute).expect("it is right").backends.len(), 2);
    for outside in ["../secret", "link.vcl", "/etc/passwd", "sub/../../secret"] {
        let said = load(outside).expect_err(outside);
        let start = format!("{}:2:9: ", folder.join("first.vcl").display());
        assert!(said.starts_with(&start), "{said}");
        assert!(said.contains(&format!("'{outside}' (outside the folder")), "{said}");
        assert!(!said.contains("SECRET") && !said.contains("root:"), "{said}");
    }
    let said = load("missing.vcl").expect_err("there is none");
    assert!(said.contains("Cannot read file 'missing.vcl' (No such file or directory"), "{said}");
    assert!(load("sub").expect_err("a folder").contains("not a regular file"));
    assert!(load("loop.vcl").expect_err("a loop").contains("Recursive use of file"));
    let said = load("bad.vcl").expect_err("not a VCL");
    assert!(said.starts_with(&format!("{}:2:11: ", folder.join("bad.vcl").display())), "{said}");
}

#[test]
fn includes_that_multiply_are_stopped() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = |level: usize| directory.path().join(format!("{level}.vcl"));
    for level in 0..40 {
        let begin = if level == 0 { "vcl 4.1;" } else { "" };
        let next = level + 1;
        let text = format!("{begin} include \"{next}.vcl\"; include \"{next}.vcl\";");
        fs::write(path(level), text).expect("a file");
    }
    fs::write(path(40), "").expect("a file");
    let said = vcl::load(&path(0)).expect_err("2^40 includes").to_string();
    assert!(said.contains("includes"), "{said}");
}
