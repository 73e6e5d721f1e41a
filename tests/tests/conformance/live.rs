//! What a running agent says where Varnish's users look: `watch` in both its forms, `set-health` and
//! `backend list`; and of each way to be sick, in words of its own.

use std::os::unix::net::UnixListener;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use sickbay_lab::agent::{Agent, PIN_DIRECTORY, RUN_DIRECTORY, STATE_DIRECTORY};
use sickbay_lab::clock::wait_until;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::private;
use sickbay_tests::script::{Address, Behaviour, Place, Server, Step};
use sickbay_tests::varnish::read_log;

const PATIENCE: Duration = Duration::from_secs(20);
const PORT: u16 = 8001;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BAD: &[u8] = b"HTTP/1.1 503 X\r\nContent-Length: 0\r\n\r\n";
/// Three of four, every 50 ms.
const QUICK: &str = "interval = \"50ms\"\ntimeout = \"1s\"\nwindow = 4\nthreshold = 3\n";

/// A scripted server and an agent in a namespace of their own.
struct Stage {
    agent: Agent,
    _server: Server,
}

impl Stage {
    /// The behaviours are the backends of pool `web`, judged by a probe of these attributes.
    fn new(instance: &str, probe: &str, behaviours: Vec<Behaviour>) -> Self {
        private::require();
        let namespace = Namespace::new(instance).unwrap();
        let directory = private::scratch().join(instance);
        std::fs::create_dir_all(&directory).unwrap();
        let names: Vec<&str> = behaviours.iter().map(|behaviour| behaviour.name).collect();
        // Its threads listen where the one does that starts them.
        let server = namespace.run(|| Server::start(behaviours, PORT, 1, &directory));
        let backend = |(index, name): (usize, &str)| {
            let address = match server.address(index, 0) {
                Address::Inet(address) => address.to_string(),
                Address::Unix(path) => format!("unix:{}", path.display()),
            };
            format!("{{ name = \"{name}\", address = \"{address}\" }},\n")
        };
        let backends: String = names.into_iter().enumerate().map(backend).collect();
        let text = configuration(instance, probe, &backends);
        let agent = Agent::start(&namespace, instance, &text).unwrap();
        Self { agent, _server: server }
    }

    /// What a command prints that succeeds.
    fn said(&self, words: &[&str]) -> String {
        let output = self.agent.ask(words).unwrap();
        assert!(output.status.success(), "{words:?}: {}", error_of(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until backend `name` is so.
    fn wait_for(&self, name: &str, state: &str) {
        wait_until(&format!("{name} is {state}"), PATIENCE, || {
            let list = self.agent.ask_json(&["backend", "list", name]).ok()?;
            (list[0]["state"] == state).then_some(())
        })
        .unwrap();
    }
}

fn configuration(instance: &str, probe: &str, backends: &str) -> String {
    format!(
        "[agent]
instance = \"{instance}\"
pin_directory = \"{PIN_DIRECTORY}\"
run_directory = \"{RUN_DIRECTORY}\"
state_directory = \"{STATE_DIRECTORY}\"
shards = 1

[probe.web]
url = \"/h\"
{probe}

[pool.web]
probe = \"web\"
backends = [
{backends}]
"
    )
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

fn scripted(name: &'static str, steps: Vec<Step>) -> Behaviour {
    Behaviour { name, place: Place::Ipv4, turns: vec![steps] }
}

fn reply(bytes: &[u8]) -> Vec<Step> {
    vec![Step::AwaitRequest, Step::Send(bytes.to_vec())]
}

/// Six good answers, six bad ones, and so on.
fn flapping() -> Behaviour {
    let turns = [vec![reply(OK); 6], vec![reply(BAD); 6]].concat();
    Behaviour { name: "flaps", place: Place::Ipv4, turns }
}

#[test]
fn watched_polls_are_varnishs_records_each_once() {
    let stage = Stage::new("polls", QUICK, vec![flapping()]);
    let said = stage.said(&["watch", "--format", "varnishlog", "--count", "40"]);
    let records = read_log(said.as_bytes()).unwrap().remove("web.flaps").unwrap();
    assert_eq!(records.len(), 40);
    let good: Vec<bool> = records.iter().map(|record| record.bits.ends_with('H')).collect();
    // Were one lost or told twice, a run would have another length.
    let runs: Vec<usize> = good.chunk_by(|a, b| a == b).map(<[bool]>::len).collect();
    assert!(3 < runs.len(), "{runs:?}");
    assert!(runs[1..runs.len() - 1].iter().all(|run| *run == 6), "{runs:?}");
    for (index, record) in records.iter().enumerate() {
        let expected = if good[index] {
            ("4---X-RH", "HTTP/1.1 200 OK")
        } else {
            ("4---X-R-", "HTTP/1.1 503 X")
        };
        assert_eq!((record.bits.as_str(), record.text.as_str()), expected);
        assert_eq!((record.threshold, record.window), (3, 4));
        assert_eq!(record.state, if 3 <= record.good { "healthy" } else { "sick" });
        if 3 <= index {
            let newest = good[index - 3..=index].iter().filter(|good| **good).count();
            assert_eq!(record.good as usize, newest);
        }
        if 0 < index {
            let turned = records[index - 1].state != record.state;
            assert_eq!(record.turn, if turned { "Went" } else { "Still" });
        }
    }
}

#[test]
fn watched_transitions_say_by_which_results() {
    let stage = Stage::new("turns", QUICK, vec![flapping()]);
    let said = stage.said(&["watch", "--count", "4", "web.flaps"]);
    let mut lines: Vec<&str> =
        said.lines().map(|line| line.split_once(' ').expect("a time stands first").1).collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(lines[..2], lines[2..], "they repeat");
    lines.truncate(2);
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "web.flaps went healthy: 3 of 4 good, needs 3: HTTP/1.1 200 OK",
            "web.flaps went sick: 2 of 4 good, needs 3: HTTP/1.1 503 X",
        ]
    );
}

#[test]
fn c00048_set_health_answers_as_varnishadm_does() {
    let unix = Behaviour { name: "foo", place: Place::Unix, turns: vec![reply(OK)] };
    let stage = Stage::new("words", QUICK, vec![scripted("s1", reply(OK)), unix]);
    let set = |pattern: &str, word: &str| {
        let output = stage.agent.ask(&["backend", "set-health", pattern, word]).unwrap();
        let said = String::from_utf8(output.stdout.clone()).unwrap();
        (output.status.code(), said, error_of(&output))
    };
    for word in ["probe", "deleted", "foo"] {
        let (code, said, error) = set("s1", word);
        assert_eq!((code, said.as_str()), (Some(1), ""));
        assert_eq!(error, format!("sickbay: Invalid state {word}: write auto, healthy or sick"));
    }
    let (code, _, error) = set("s2", "auto");
    assert_eq!(code, Some(1));
    assert!(error.starts_with("sickbay: No Backends matches \"s2\""), "{error}");
    assert_eq!(set("*", "Sick"), (Some(0), "web.s1 sick\nweb.foo sick\n".into(), String::new()));
    assert_eq!(set("*.foo", "AUTO"), (Some(0), "web.foo auto\n".into(), String::new()));
    let listed = |pattern: &str| {
        let text = stage.said(&["backend", "list", pattern]);
        let row = |line: &str| line.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        text.lines().skip(1).map(row).collect::<Vec<_>>()
    };
    let (s1, foo) = ("web.s1 sick", "web.foo probe");
    assert_eq!(listed("*"), [s1, foo]);
    assert_eq!(listed("*.*"), [s1, foo]);
    assert_eq!(listed("*.foo"), [foo]);
    assert_eq!(listed("web.*"), [s1, foo]);
    assert_eq!(listed("other.*"), [""; 0]);
}

/// That they are told at once; there is no queue of requests here that could fail.
#[test]
fn v00074_backends_turn_sick_by_an_operator_by_a_probe_and_by_auto() {
    let behaviours = vec![scripted("good", reply(OK)), scripted("bad", reply(BAD)), flapping()];
    let stage = Stage::new("causes", QUICK, behaviours);
    stage.wait_for("good", "healthy");
    stage.wait_for("bad", "sick");
    for (name, word) in [("good", "sick"), ("good", "auto"), ("bad", "healthy"), ("bad", "auto")] {
        stage.said(&["backend", "set-health", name, word]);
        let is_set = || {
            let list = stage.agent.ask_json(&["backend", "list", name]).ok()?;
            let takes = list[0]["takes_new"].as_bool()?;
            let wanted = if word == "auto" { name == "good" } else { word == "healthy" };
            (takes == wanted).then_some(())
        };
        wait_until(&format!("{name} is set {word}"), PATIENCE, is_set).unwrap();
    }
    let told = |name: &str, count: &str| -> Vec<String> {
        let said = stage.said(&["watch", "--old", "--format", "json", "--count", count, name]);
        let line = |line: &str| {
            let view: Value = serde_json::from_str(line).unwrap();
            let word = |key: &str| view[key].as_str().unwrap().to_owned();
            // That a word was said is told apart from what became of the backend.
            let said = !view["member"].is_null();
            (!said).then(|| format!("{} to {} by {}", word("from"), word("to"), word("why")))
        };
        said.lines().filter_map(line).collect()
    };
    let sick = "healthy to sick by operator";
    let well = "sick to healthy by operator";
    assert_eq!(told("good", "5"), ["warming to healthy by probe", sick, well]);
    assert_eq!(told("bad", "5"), ["warming to sick by probe", well, sick]);
    assert!(told("flaps", "4").contains(&"healthy to sick by probe".to_owned()));
}

#[test]
fn c00088_socket_that_is_another_file_of_the_same_name_is_probed_on() {
    private::require();
    let namespace = Namespace::new("replaced").unwrap();
    let path = private::scratch().join("replaced.sock");
    let serve = |listener: UnixListener| {
        std::thread::spawn(move || {
            use std::io::Write as _;
            // One answer, then this socket is nobody's.
            for _ in 0..3 {
                let (mut stream, _) = listener.accept().unwrap();
                let _gone = stream.write_all(OK);
            }
        })
    };
    let first = serve(UnixListener::bind(&path).unwrap());
    let backends = format!("{{ name = \"b\", address = \"unix:{}\" }}", path.display());
    let probe = "interval = \"50ms\"\nwindow = 1\nthreshold = 1\n";
    let text = configuration("replaced", probe, &backends);
    let agent = Agent::start(&namespace, "replaced", &text).unwrap();
    let wait = |state: &str, errno: &str| {
        wait_until(&format!("it is {state}"), PATIENCE, || {
            let list = agent.ask_json(&["backend", "list"]).ok()?;
            let cause = list[0]["cause"].as_str()?;
            (list[0]["state"] == state && cause.contains(errno)).then_some(())
        })
        .unwrap();
    };
    first.join().unwrap();
    wait("sick", "Open error 111 (Connection refused)");
    std::fs::remove_file(&path).unwrap();
    wait("sick", "Open error 2 (No such file or directory)");
    let second = UnixListener::bind(&path).unwrap();
    second.set_nonblocking(false).unwrap();
    let _second = std::thread::spawn(move || {
        use std::io::Write as _;
        while let Ok((mut stream, _)) = second.accept() {
            let _gone = stream.write_all(OK);
        }
    });
    wait("healthy", "200");
}

/// Each way to be sick, what a server does for it, and the words in the agent's log.
fn ways_to_be_sick() -> Vec<(Behaviour, &'static str)> {
    let second = Duration::from_secs(1);
    let send = |bytes: &[u8]| Step::Send(bytes.to_vec());
    let pause = Step::Pause(Duration::from_millis(50));
    let status = || send(b"HTTP/1.1 200 OK\r\n");
    let late = "Read timeout 1.500s exceeded by Ns";
    let nowhere = |name, place| Behaviour { name, place, turns: vec![Vec::new()] };
    let drip = Step::Drip(OK.to_vec(), second);
    vec![
        (scripted("says_no", reply(BAD)), "HTTP/1.1 503 X"),
        (scripted("says_nothing", vec![Step::AwaitRequest, Step::Hold]), "LATE: no byte came"),
        (scripted("drips", vec![Step::AwaitRequest, drip]), "LATE: 1 byte came, the last Ns ago"),
        (
            scripted("stops_amid", vec![Step::AwaitRequest, status(), Step::Hold]),
            "LATE: 17 bytes came, the last Ns ago",
        ),
        (scripted("closes", vec![Step::AwaitRequest]), "Empty response"),
        (
            scripted("resets", vec![Step::AwaitRequest, Step::Reset]),
            "Read error 104 (Connection reset by peer)",
        ),
        (
            scripted("resets_after_status", vec![Step::AwaitRequest, status(), pause, Step::Reset]),
            "Read error 104 (Connection reset by peer) after 17 bytes",
        ),
        (
            scripted("closes_amid", vec![Step::AwaitRequest, status()]),
            "Truncated response after: HTTP/1.1 200 OK",
        ),
        (scripted("speaks_ssh", reply(b"SSH-2.0-x\r\n")), "SSH-2.0-x"),
        (nowhere("refuses", Place::Closed), "Open error 111 (Connection refused)"),
        (nowhere("is_a_hole", Place::Full), "Open timeout 1.500s exceeded by Ns"),
        (nowhere("has_no_file", Place::UnixMissing), "Open error 2 (No such file or directory)"),
    ]
    .into_iter()
    .map(|(behaviour, words)| (behaviour, words.replace("LATE", late)))
    .map(|(behaviour, words)| (behaviour, &*words.leak()))
    .collect()
}

#[test]
fn each_way_to_be_sick_has_words_of_its_own_in_the_log() {
    let ways = ways_to_be_sick();
    let early = scripted("answers_early", vec![Step::AwaitUnread, Step::Send(OK.to_vec())]);
    let mut behaviours: Vec<Behaviour> = ways.iter().map(|(way, _)| way.clone()).collect();
    behaviours.push(early);
    let probe = "interval = \"3s\"\ntimeout = \"1500ms\"\nwindow = 1\nthreshold = 1\ninitial = 0\n";
    let stage = Stage::new("ways", probe, behaviours);
    stage.wait_for("answers_early", "healthy");
    let mut seen = std::collections::BTreeSet::new();
    for (way, words) in &ways {
        let head = format!("web.{} went sick: 0 of 1 good, needs 1: ", way.name);
        let text = wait_until(&format!("the log tells of {}", way.name), PATIENCE, || {
            let said = stage.agent.said();
            let line = said.lines().find(|line| line.contains(&head))?.to_owned();
            Some(line.split_once(&head)?.1.to_owned())
        })
        .unwrap();
        assert_eq!(without_times(&text), *words, "{}", way.name);
        assert!(seen.insert(without_times(&text)), "{} shares its words: {text}", way.name);
    }
    // A whole answer counts though it comes before the request is read, and the reset behind it
    // does not: the response ended by its framing.
    let said = stage.agent.said();
    assert!(said.contains("web.answers_early went healthy: 1 of 1 good, needs 1: HTTP/1.1 200 OK"));
}

/// What is measured as `N`: `exceeded by 0.001s`, `the last 0.501s ago`.
fn without_times(text: &str) -> String {
    let (mut shown, mut after) = (Vec::new(), "");
    for word in text.split(' ') {
        let measured = matches!(after, "by" | "last");
        let time = word.trim_end_matches(':').strip_suffix('s').filter(|_| measured);
        shown.push(time.map_or_else(|| word.to_owned(), |time| word.replace(time, "N")));
        after = word;
    }
    shown.join(" ")
}
