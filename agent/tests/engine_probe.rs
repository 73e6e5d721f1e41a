//! `sickbay probe` as a newcomer meets it: the program itself, no root, no configuration.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::process::{Command, Output};

use serde_json::Value;

/// A server that gives each request the next of these answers, and the last one ever after.
fn serve(answers: &'static [&'static [u8]]) -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback can be bound");
    let address = listener.local_addr().expect("a bound socket has an address");
    std::thread::spawn(move || {
        let mut answers = answers.iter();
        let mut answer: &[u8] = b"";
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 1024];
            // The request is small and comes in one piece; the prober may be gone, though.
            let came = stream.read(&mut request);
            if came.is_ok_and(|length| request[..length].ends_with(b"\r\n\r\n")) {
                answer = answers.next().copied().unwrap_or(answer);
                let _gone = stream.write_all(answer);
            }
        }
    });
    address.to_string()
}

fn probe(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sickbay"));
    command.arg("probe").args(arguments);
    command.output().expect("the program starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it prints UTF-8")
}

#[test]
fn healthy_target_ends_with_0() {
    let url = format!("http://{}/health", serve(&[b"HTTP/1.1 200 OK\r\n\r\n"]));
    let output = probe(&[&url, "--count", "2", "--interval", "20ms"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    let [header, first, second, summary] = lines[..] else { panic!("{lines:?}") };
    assert!(header.starts_with("TIME"));
    assert!(first.contains("Went healthy") && first.contains("4---X-RH"), "{first}");
    assert!(first.contains("3/3/8") && first.ends_with("HTTP/1.1 200 OK"), "{first}");
    assert!(second.contains("Still healthy") && second.contains("4/3/8"), "{second}");
    assert!(summary.starts_with(&format!("{url}: healthy; 2 probes: 2 good, 0 bad")));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn sick_target_ends_with_1() {
    let url = format!("http://{}", serve(&[b"HTTP/1.1 503 Not now\r\n\r\n"]));
    let output = probe(&[&url, "-c", "1", "-i", "10ms"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = text(&output.stdout).lines().nth(1).expect("a probe's line");
    assert!(line.contains("Went sick") && line.contains("4---X-R-"), "{line}");
    assert!(line.ends_with("HTTP/1.1 503 Not now"), "{line}");
}

#[test]
fn other_status_can_be_the_good_one() {
    let url = format!("http://{}", serve(&[b"HTTP/1.1 404 None\r\n\r\n"]));
    let output = probe(&[&url, "-c", "1", "-i", "10ms", "--expect", "404"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn every_line_of_json_is_an_object() {
    let address = serve(&[b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 500 No\r\n\r\n"]);
    let url = format!("http://{address}");
    let output = probe(&[&url, "-c", "2", "-i", "10ms", "-o", "json"]);
    let objects: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .collect();
    let [first, second, summary] = &objects[..] else { panic!("{objects:?}") };
    assert_eq!(first["type"], "probe");
    assert_eq!((&first["target"], &first["changed"]), (&Value::from(url), &Value::from(true)));
    assert_eq!(first["outcome"], "good");
    assert_eq!(second["outcome"], "other_status");
    assert_eq!(second["text"], "HTTP/1.1 500 No");
    assert_eq!(second["verdict"], "healthy", "one bad of two is within the threshold");
    assert_eq!(summary["type"], "summary");
    assert_eq!((&summary["good"], &summary["bad"]), (&Value::from(1), &Value::from(1)));
}

#[test]
fn text_of_a_backend_is_escaped() {
    let url = format!("http://{}", serve(&[b"HTTP/1.1 200 \x1b[31mred\r\n\r\n"]));
    let output = probe(&[&url, "-c", "1", "-i", "10ms"]);
    assert!(!output.stdout.contains(&0x1b));
    assert!(text(&output.stdout).contains(r"\x1b[31mred"));
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_wrong() {
    for (arguments, part) in [
        (&["example"][..], "a port is missing"),
        (&["https://example"], "is not probed"),
        (&["127.0.0.1:80", "--threshold", "9"], "greater than --window 8"),
        (&["127.0.0.1:80", "--interval", "1ms"], "--interval must be from 10ms"),
        (&["127.0.0.1:80", "--window", "65"], "65"),
        (&["nosuch.invalid:80"], "cannot be resolved"),
        (&[], "TARGET"),
    ] {
        let output = probe(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(part), "{arguments:?}: {output:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
    }
}
