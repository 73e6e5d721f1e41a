//! `sickbay check --vcl`, `sickbay probe --vcl` and a pool's `vcl`, as an operator calls them.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::thread;

use serde_json::{Value, json};

const NOBODY: u32 = 65_534;

fn sickbay(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sickbay")).args(words).output().expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("is text")
}

/// The file with this text, and the folder it goes away with.
fn file(name: &str, text: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join(name);
    fs::write(&path, text).expect("a file");
    let path = path.to_str().expect("a plain path").to_owned();
    (directory, path)
}

/// A server that answers every request on a thread of its own, and what it was sent last.
fn server(answer: &'static str) -> (SocketAddr, std::sync::mpsc::Receiver<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let (sender, requests) = std::sync::mpsc::channel();
    thread::spawn(move || {
        for mut connection in listener.incoming().map_while(Result::ok) {
            let mut bytes = [0; 2048];
            let length = connection.read(&mut bytes).unwrap_or(0);
            let _gone = connection.write_all(answer.as_bytes());
            if sender.send(bytes[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    (address, requests)
}

#[test]
fn check_prints_one_line_for_each_probe_and_backend() {
    let (_directory, path) = file(
        "t.vcl",
        "vcl 4.1;\nprobe p { .timeout = 1s; }\nbackend a { .host = \"192.0.2.1\"; .probe = p; \
         .max_connections = 3; }\nbackend b { .host = \"[::1]:81\"; .proxy_header = 1; }\n\
         backend c none;\nsub x { b; c; }\n",
    );
    let output = sickbay(&["check", "--vcl", &path]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        text(&output.stdout),
        "probe p: url \"/\", expects 200, timeout 1000 ms, interval 5000 ms, 3 of 8, initial 2\n\
         backend a: 192.0.2.1:80, Host \"192.0.2.1\", probe p; not used here: max_connections\n\
         backend b: [::1]:81, Host \"[::1]:81\", PROXY 1, no probe: always healthy\n\
         backend c: none\n"
    );
}

#[test]
fn check_prints_json_with_effective_parameters() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vcl/shop.vcl");
    let output = sickbay(&["check", "--vcl", path.to_str().expect("plain"), "-o", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!(json["errors"], json!([]));
    let probe = &json["probes"][0];
    assert_eq!(probe["name"], "health");
    assert_eq!(probe["line"], 14);
    assert_eq!(probe["timeout_ms"], 800);
    assert_eq!(probe["interval_ms"], 2000);
    assert_eq!((&probe["window"], &probe["threshold"]), (&json!(10), &json!(6)));
    assert_eq!((&probe["initial"], &probe["expected_response"]), (&json!(5), &json!(204)));
    assert_eq!((&probe["expect_close"], &probe["url"]), (&json!(true), &Value::Null));
    assert!(probe["request"].as_str().expect("text").starts_with("GET /healthz HTTP/1.1\r\n"));
    assert_eq!(probe["backends"], json!(["web1", "web2"]));
    let backend = &json["backends"][0];
    assert_eq!(backend["name"], "web1");
    assert_eq!((&backend["address"], &backend["port"]), (&json!("192.0.2.11"), &json!(8080)));
    assert_eq!(backend["host_header"], "shop.example.com");
    assert_eq!(backend["probe"]["name"], "health");
    assert_eq!(backend["probe"]["timeout_ms"], 800);
    assert_eq!(json["backends"][3]["proxy_header"], 2);
    assert_eq!(
        json["backends"][3]["probe"]["request_text"],
        "GET /admin/health HTTP/1.1\r\nHost: 192.0.2.31\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(json["backends"][4]["kind"], "none");
    assert_eq!(json["backends"][4]["probe"], Value::Null);
}

#[test]
fn check_names_file_line_and_column_and_exits_with_1() {
    let (_directory, path) = file("t.vcl", "vcl 4.1;\nbackend b { .host = 3; }\n");
    let output = sickbay(&["check", "--vcl", &path]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        text(&output.stderr),
        format!("sickbay: {path}:2:21: Expected CSTR got '3'; write a string in double quotes\n")
    );
    let output = sickbay(&["check", "--vcl", &path, "-o", "json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("is JSON");
    assert_eq!((&json["errors"][0]["line"], &json["errors"][0]["column"]), (&json!(2), &json!(21)));
}

#[test]
fn unused_probe_is_an_error_unless_it_is_allowed() {
    let (_directory, path) = file("t.vcl", "vcl 4.1;\nbackend b none;\nprobe p { }\n");
    let output = sickbay(&["check", "--vcl", &path]);
    assert_eq!(output.status.code(), Some(1));
    let words = format!("sickbay: {path}:3:7: Unused probe p, defined:");
    assert!(text(&output.stderr).starts_with(&words), "{}", text(&output.stderr));
    let output = sickbay(&["check", "--vcl", &path, "--allow-unused"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).starts_with("sickbay: warning: "));
}

/// As root the command runs as another user; else the file is closed to this one.
#[test]
fn included_file_that_the_user_cannot_read_is_named_and_not_quoted() {
    let (directory, path) = file("t.vcl", "vcl 4.1;\ninclude \"secret.vcl\";\n");
    let secret = directory.path().join("secret.vcl");
    fs::write(&secret, "SECRET is no VCL\n").expect("a file");
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode));
    mode(&secret, 0o000).expect("own file");
    mode(directory.path(), 0o755).expect("own folder");
    mode(Path::new(&path), 0o644).expect("own file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sickbay"));
    let is_root = fs::metadata(&secret).expect("it is there").uid() == 0;
    if is_root {
        command.uid(NOBODY);
    }
    let output = command.args(["check", "--vcl", &path, "-o", "json"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stdout);
    assert!(said.contains("Cannot read file 'secret.vcl' (Permission denied"), "{said}");
    assert!(!said.contains("SECRET") && !text(&output.stderr).contains("SECRET"), "{said}");
}

#[test]
fn probe_asks_each_backend_by_its_own_probe() {
    let (good, requests) = server("HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
    let (bad, _bad_requests) = server("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
    let vcl = format!(
        "vcl 4.1;\nprobe p {{ .url = \"/h\"; .expected_response = 204; .interval = 20ms; .window \
         = 2; .threshold = 1; .initial = 0; }}\nbackend good {{ .host = \"127.0.0.1\"; .port = \
         \"{}\"; .host_header = \"example.com\"; .probe = p; .proxy_header = 2; }}\nbackend bad {{ \
         .host = \"{bad}\"; .probe = {{ .interval = 20ms; }} }}\nbackend unprobed none;\n",
        good.port()
    );
    let (_directory, path) = file("t.vcl", &vcl);
    let output = sickbay(&["probe", "--vcl", &path, "-c", "2", "-o", "json"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "one is sick: {said}{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "sickbay probe: unprobed: healthy without being probed\n");
    let lines: Vec<Value> =
        said.lines().map(|line| serde_json::from_str(line).expect("is JSON")).collect();
    let summary = |name: &str| {
        let is_it = |line: &&Value| line["type"] == "summary" && line["target"] == name;
        lines.iter().find(is_it).expect("a summary")["verdict"].clone()
    };
    assert_eq!((summary("good"), summary("bad")), (json!("healthy"), json!("sick")));
    let first = lines.iter().find(|line| line["target"] == "good").expect("a probe");
    assert_eq!((&first["window"], &first["threshold"]), (&json!(2), &json!(1)));
    let first = lines.iter().find(|line| line["target"] == "bad").expect("a probe");
    assert_eq!((&first["window"], &first["threshold"]), (&json!(8), &json!(3)));
    assert_eq!(
        requests.recv().expect("a request"),
        b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0GET /h HTTP/1.1\r\nHost: example.com\r\nConnection: \
          close\r\n\r\n"
    );
    let output = sickbay(&["probe", "--vcl", &path, "-c", "1", "good"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
}

#[test]
fn probe_says_which_backend_it_cannot_probe() {
    let (_directory, path) = file(
        "t.vcl",
        "vcl 4.1;\nprobe default { .threshold = 0; }\nbackend never { .host = \"127.0.0.1\"; }\n\
         backend idle { .host = \"127.0.0.1\"; .probe = { .interval = 2y; } }\n",
    );
    for (name, words) in [
        ("never", "never: window 1 and threshold 3: "),
        ("idle", "idle: interval 63072000 s: from 10ms to 1day is probed"),
        ("other", "other: the VCL has no such backend"),
    ] {
        let output = sickbay(&["probe", "--vcl", &path, name]);
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.starts_with(&format!("sickbay probe: {words}")), "{said}");
    }
    let output = sickbay(&["probe", "--vcl", &path, "-i", "1s"]);
    assert_eq!(output.status.code(), Some(2), "the VCL says the interval");
}

#[test]
fn pool_takes_backends_and_probe_from_its_vcl() {
    let vcl = "vcl 4.1;\nprobe p { .url = \"/h\"; .interval = 1s; .threshold = 2; }\nbackend a { \
               .host = \"192.0.2.1\"; .probe = p; }\nbackend b { .host = \"192.0.2.2\"; \
               .port = \"81\"; .host_header = \"x\"; .probe = p; }\n";
    let (directory, _path) = file("t.vcl", vcl);
    let load = |pool: &str| {
        let path = directory.path().join("t.toml");
        fs::write(&path, pool).expect("a file");
        sickbay::config::load(&path, &sickbay::config::Overrides::default())
    };
    let fleet = load("[pool.web]\nvcl = \"t.vcl\"\n").expect("it is right").fleet;
    let names: Vec<&str> = fleet.backends.iter().map(|each| each.name.as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(fleet.backends[1].address, "192.0.2.2:81".parse().expect("an address"));
    assert_eq!(
        fleet.targets[1].request,
        b"GET /h HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    );
    let probe = &fleet.probes[fleet.pools[0].probes[0]];
    assert_eq!((probe.name.as_str(), probe.initial), ("web_vcl", 1));
    assert_eq!(probe.spec.interval_ns, 1_000_000_000);
    assert_eq!(probe.rule, sickbay_core::plan::Rule::Window { window: 3, threshold: 2 });

    let proxied = vcl.replace(".probe = p;", ".probe = p; .proxy_header = 1;");
    fs::write(directory.path().join("t.vcl"), &proxied).expect("a file");
    let fleet = load("[pool.web]\nvcl = \"t.vcl\"\n").expect("it is right").fleet;
    let probe = &fleet.probes[fleet.pools[0].probes[0]];
    assert_eq!(probe.proxy_header, Some(sickbay::fleet::ProxyHeader::V1Own));
    let mixed = proxied.replacen(".proxy_header = 1;", "", 1);
    fs::write(directory.path().join("t.vcl"), mixed).expect("a file");
    let fleet = load("[pool.web]\nvcl = \"t.vcl\"\n").expect("each has its own").fleet;
    let headers = fleet.pools[0].probes.iter().map(|probe| fleet.probes[*probe].proxy_header);
    let expected = [None, Some(sickbay::fleet::ProxyHeader::V1Own)];
    assert_eq!(headers.collect::<Vec<_>>(), expected);
    fs::write(directory.path().join("t.vcl"), vcl).expect("a file");

    let own = load("[probe.own]\nurl = \"/o\"\n[pool.web]\nprobe = \"own\"\nvcl = \"t.vcl\"\n");
    let fleet = own.expect("it is right").fleet;
    assert!(fleet.targets[0].request.starts_with(b"GET /o HTTP/1.1\r\nHost: 192.0.2.1\r\n"));

    fs::write(directory.path().join("t.vcl"), "vcl 4.1;\nbackend b { }\n").expect("a file");
    let error = load("[pool.web]\nvcl = \"t.vcl\"\n").expect_err("no host").to_string();
    assert!(error.contains("t.vcl:2:9: pool.web.vcl: Expected .host or .path."), "{error}");
}

#[test]
fn each_backend_of_a_pools_vcl_is_judged_by_its_own_probe() {
    let vcl = "vcl 4.1;\nprobe p { .url = \"/p\"; .window = 4; .threshold = 2; }\n\
               backend a { .host = \"192.0.2.1\"; .probe = p; }\n\
               backend b { .host = \"192.0.2.2\"; .probe = { .interval = 1s; } }\n\
               backend c { .host = \"192.0.2.3\"; .probe = p; }\n\
               backend d { .host = \"192.0.2.4\"; }\n\
               backend e { .path = \"/nowhere/e.sock\"; .probe = p; }\n\
               backend f none;\n";
    let (directory, _path) = file("t.vcl", vcl);
    let path = directory.path().join("t.toml");
    fs::write(&path, "[pool.web]\nvcl = \"t.vcl\"\n").expect("a file");
    let good = sickbay::config::load(&path, &sickbay::config::Overrides::default());
    let good = good.expect("it is right");
    let fleet = &good.fleet;
    let judged: Vec<(&str, Vec<&str>)> = fleet
        .backends
        .iter()
        .map(|backend| {
            let probes = backend.judged.iter().map(|each| fleet.probes[each.probe].name.as_str());
            (backend.name.as_str(), probes.collect())
        })
        .collect();
    let (p, own) = ("web_vcl_p", "web_vcl_b");
    assert_eq!(
        judged,
        [("a", vec![p]), ("b", vec![own]), ("c", vec![p]), ("d", vec![]), ("e", vec![p])]
    );
    let rules: Vec<_> = fleet.probes.iter().map(|probe| probe.rule).collect();
    let window = |window, threshold| sickbay_core::plan::Rule::Window { window, threshold };
    assert_eq!(rules, [window(4, 2), window(8, 3)]);
    assert_eq!(fleet.backends[4].address.to_string(), "unix:/nowhere/e.sock");
    assert_eq!(
        fleet.targets[fleet.backends[4].judged[0].target].request,
        b"GET /p HTTP/1.1\r\nHost: 0.0.0.0\r\nConnection: close\r\n\r\n"
    );
    let said: Vec<&str> = good.warnings.iter().map(|each| each.problem.as_str()).collect();
    assert!(said.contains(&"backend f is none: it is left out"), "{said:?}");
}
