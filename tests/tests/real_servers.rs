//! Real servers: nginx, and HAProxy on a TCP port and on a unix socket, as `sickbay probe` and a
//! running agent see them: well, answering 503, and gone.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sickbay_lab::agent::{Agent, PIN_DIRECTORY, RUN_DIRECTORY, STATE_DIRECTORY, binary};
use sickbay_lab::clock::wait_until;
use sickbay_lab::haproxy::Haproxy;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::nginx::Nginx;
use sickbay_lab::private;

const PATIENCE: Duration = Duration::from_secs(20);
const NGINX: u16 = 8080;
const HAPROXY: u16 = 8081;

/// Both servers, and a namespace around them.
struct Servers {
    namespace: Namespace,
    nginx: Nginx,
    haproxy: Haproxy,
}

impl Servers {
    fn start(name: &str) -> Self {
        private::require();
        let namespace = Namespace::new(name).unwrap();
        let nginx = Nginx::start(&namespace, name, NGINX).unwrap();
        let haproxy = Haproxy::start(&namespace, name, HAPROXY).unwrap();
        Self { namespace, nginx, haproxy }
    }
}

/// What `sickbay probe` says of one target: its exit code, and the text of each probe.
fn probed(namespace: &Namespace, target: &str) -> (Option<i32>, Vec<String>) {
    let mut command = Command::new(binary().unwrap());
    command.args(["probe", "--count", "3", "--interval", "50ms", "--output", "json", target]);
    let output = namespace.run(|| command.output()).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let texts = lines
        .filter(|line| line["type"] == "probe")
        .map(|line| line["text"].as_str().unwrap().to_owned())
        .collect();
    (output.status.code(), texts)
}

#[test]
fn probe_sees_real_servers_well_ill_and_gone() {
    let servers = Servers::start("probed");
    let socket = servers.haproxy.socket().display().to_string();
    let nginx = format!("http://127.0.0.1:{NGINX}/healthz");
    let tcp = format!("127.0.0.1:{HAPROXY}");
    let unix = format!("unix:{socket}:/healthz");
    let ok = |text: &str| vec![text.to_owned(); 3];
    for (target, text) in [
        (nginx.as_str(), "HTTP/1.1 200 OK"),
        (&format!("http://127.0.0.1:{HAPROXY}/healthz"), "HTTP/1.1 200 OK"),
        (&unix, "HTTP/1.1 200 OK"),
        (&tcp, "Connected"),
    ] {
        assert_eq!(probed(&servers.namespace, target), (Some(0), ok(text)), "{target}");
    }
    for target in [format!("http://127.0.0.1:{HAPROXY}/"), format!("unix:{socket}:/")] {
        let seen = probed(&servers.namespace, &target);
        assert_eq!(seen, (Some(1), ok("HTTP/1.1 503 Service Unavailable")), "{target}");
    }
    servers.nginx.stop().unwrap();
    servers.haproxy.stop().unwrap();
    for target in [nginx.as_str(), &tcp] {
        let seen = probed(&servers.namespace, target);
        assert_eq!(seen, (Some(1), ok("Open error 111 (Connection refused)")), "{target}");
    }
    let seen = probed(&servers.namespace, &unix);
    assert_eq!(seen, (Some(1), ok("Open error 2 (No such file or directory)")));
}

#[test]
fn agent_sees_real_servers_well_ill_gone_and_back() {
    let servers = Servers::start("watched");
    let socket = servers.haproxy.socket();
    let text = format!(
        "[agent]
instance = \"real\"
pin_directory = \"{PIN_DIRECTORY}\"
run_directory = \"{RUN_DIRECTORY}\"
state_directory = \"{STATE_DIRECTORY}\"
shards = 1

[probe.web]
url = \"/healthz\"
interval = \"100ms\"
timeout = \"90ms\"
window = 3
threshold = 2

[probe.other]
url = \"/other\"
interval = \"100ms\"
timeout = \"90ms\"

[pool.web]
probe = \"web\"
backends = [
    {{ name = \"nginx\", address = \"127.0.0.1:{NGINX}\" }},
    {{ name = \"haproxy\", address = \"127.0.0.1:{HAPROXY}\" }},
    {{ name = \"socket\", address = \"unix:{}\" }},
    {{ name = \"ill\", address = \"[::1]:{NGINX}\", probe_address = \"127.0.0.1:{HAPROXY}\", \
         probe = \"other\" }},
]
",
        socket.display()
    );
    let agent = Agent::start(&servers.namespace, "real", &text).unwrap();
    let is = |name: &str, state: &str, cause: &str| {
        wait_until(&format!("{name} is {state}: {cause}"), PATIENCE, || {
            let list = agent.ask_json(&["backend", "list", &format!("web.{name}")]).ok()?;
            let seen = &list[0];
            let said = seen["cause"].as_str()?;
            (seen["state"] == state && said.starts_with(cause)).then_some(())
        })
        .unwrap();
    };
    for name in ["nginx", "haproxy", "socket"] {
        is(name, "healthy", "Status 200");
    }
    is("ill", "sick", "Status 503");
    let list = agent.ask_json(&["backend", "list", "web.socket"]).unwrap();
    assert_eq!(list[0]["address"], format!("unix:{}", socket.display()));
    assert_ne!(list[0]["registers"]["bits_U"], "0");
    assert_eq!(list[0]["registers"]["bits_4"], "0");

    servers.haproxy.stop().unwrap();
    is("haproxy", "sick", "Open error 111 (Connection refused)");
    is("socket", "sick", "Open error 2 (No such file or directory)");
    is("nginx", "healthy", "Status 200");
    // v00038: the socket is another file of the same name.
    let _haproxy = Haproxy::start(&servers.namespace, "watched", HAPROXY).unwrap();
    is("haproxy", "healthy", "Status 200");
    is("socket", "healthy", "Status 200");
    servers.nginx.stop().unwrap();
    is("nginx", "sick", "Open error 111 (Connection refused)");
    members_of_a_pool_that_is_only_probed(&agent, &format!("unix:{}", socket.display()));
    is("socket", "healthy", "Status 200");
    is("void", "sick", "Open error 111 (Connection refused)");
}

/// All of them may leave; what was a member comes back as it was, and a unix socket comes anew.
fn members_of_a_pool_that_is_only_probed(agent: &Agent, socket: &str) {
    let say = |words: &[&str]| {
        let output = agent.ask(&[&["backend"], words].concat()).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(say(&["remove", "web.*"]).lines().count(), 4);
    assert_eq!(say(&["add", "web", socket]), "web.socket added\n");
    assert_eq!(say(&["add", "web", "unix:@void", "--name", "void"]), "web.void added\n");
    assert_eq!(say(&["drain", "web.void"]), "web.void draining\n");
    let standing = |name: &str| agent.ask_json(&["backend", "list", name]).unwrap()[0].clone();
    assert_eq!(standing("web.void")["standing"], "draining");
    assert_eq!(standing("web.nginx")["standing"], "leaving");
    assert_eq!(standing("web.socket")["standing"], "member");
}
