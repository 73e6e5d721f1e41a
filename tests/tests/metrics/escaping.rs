//! Bytes that a backend sends and that must not reach an output as they are: log, history and
//! metrics, as text and as JSON.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use serde_json::Value;
use sickbay_lab::agent::{Agent, PIN_DIRECTORY, RUN_DIRECTORY, STATE_DIRECTORY, history};
use sickbay_lab::clock::wait_until;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::private;
use sickbay_lab::stage::PATIENCE;

use super::{METRICS, scraped};

const PORT: u16 = 8090;
/// A status line with a terminal's title, a colour, C1's CSI, an HTML element and a forged line.
const STATUS: &[u8] =
    b"HTTP/1.1 500 \x1b]0;gotcha\x07\x1b[31m\xc2\x9b2J<script>alert(1)</script>\r\n\
      Content-Length: 0\r\n\r\n";

/// A backend that answers every request so, for as long as the process lives.
fn serve(namespace: &Namespace) {
    let listener = namespace.run(|| TcpListener::bind(("127.0.0.1", PORT))).unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 1024];
            let _gone = stream.read(&mut request).and_then(|_| stream.write_all(STATUS));
        }
    });
}

fn configuration(instance: &str, log_format: &str) -> String {
    format!(
        "[agent]\ninstance = \"{instance}\"\npin_directory = \"{PIN_DIRECTORY}\"\n\
         run_directory = \"{RUN_DIRECTORY}\"\nshards = 1\nmetrics = \"{METRICS}\"\n\
         metrics_per_target = true\nlog_format = \"{log_format}\"\n\
         [probe.p]\ninterval = \"50ms\"\ntimeout = \"40ms\"\nwindow = 2\nthreshold = 1\n\
         [pool.web]\nprobe = \"p\"\nbackends = [\"127.0.0.1:{PORT}\"]\n"
    )
}

/// Nothing but printable ASCII and line ends.
#[track_caller]
fn assert_plain(what: &str, text: &str) {
    let odd = text.chars().find(|c| *c != '\n' && !matches!(c, ' '..='~'));
    assert_eq!(odd, None, "{what}: {text:?}");
}

#[test]
fn control_bytes_of_a_backend_reach_neither_log_nor_history_nor_metrics() {
    private::require();
    for format in ["text", "json"] {
        let instance = format!("nasty-{format}");
        let namespace = Namespace::new(&instance).unwrap();
        serve(&namespace);
        let agent = Agent::start(&namespace, &instance, &configuration(&instance, format)).unwrap();
        let told = || history(&instance, &[]).ok().filter(|text| text.contains("went sick"));
        let text = wait_until("the history tells of it", PATIENCE, told).unwrap();
        assert_plain("history", &text);
        assert!(text.contains(r"HTTP/1.1 500 \x1b]0;gotcha\x07"), "{text}");
        let json = history(&instance, &["-o", "json"]).unwrap();
        assert_plain("history as JSON", &json);
        let cause = json.lines().find_map(|line| {
            let event: Value = serde_json::from_str(line).unwrap();
            (event["to"] == "sick").then(|| event["cause"].as_str().unwrap().to_owned())
        });
        assert!(cause.unwrap().contains(r"\x1b[31m"), "escaped where it came in: {json}");
        for entry in std::fs::read_dir(Path::new(STATE_DIRECTORY).join(&instance)).unwrap() {
            let bytes = std::fs::read(entry.unwrap().path()).unwrap();
            assert_plain("the file", &String::from_utf8(bytes).unwrap());
        }
        assert_plain("metrics", &scraped(&namespace));
        for (words, tells) in [
            (&["backend", "list", "-p"] as &[&str], false),
            (&["backend", "list", "-j"], false),
            (&["backend", "list", "-o", "json"], false),
            (&["watch", "--old", "--count", "1"], true),
            (&["watch", "--old", "--count", "1", "--format", "json"], true),
            (&["watch", "--count", "1", "--format", "varnishlog"], true),
        ] {
            let shown = agent.ask(words).unwrap();
            assert!(shown.status.success(), "{words:?}: {shown:?}");
            let shown = String::from_utf8(shown.stdout).unwrap();
            assert_plain(&words.join(" "), &shown);
            assert_eq!(shown.contains("gotcha"), tells, "{words:?} tells of it: {shown}");
        }
        let log = wait_until("the log tells of it", PATIENCE, || {
            Some(agent.said()).filter(|log| log.contains("went sick"))
        })
        .unwrap();
        assert_plain("the log", &log);
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let messages: Vec<Value> = events.map(|event| event["fields"]["message"].clone()).collect();
        if format == "json" {
            assert_eq!(messages.len(), log.lines().count(), "each line is an object: {log}");
            let of_it = |message: &&Value| message.as_str().unwrap().contains("went sick");
            assert!(messages.iter().find(of_it).is_some(), "{log}");
        } else {
            assert!(messages.is_empty(), "{log}");
        }
    }
}
