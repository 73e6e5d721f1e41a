//! Hosts with an IPv4 and an IPv6 address: which one Varnish's probe connects to, what it says when
//! one or both fail, and that compat mode does the same.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, SockaddrStorage, bind, listen, socket,
};
use sickbay_lab::agent::binary;
use sickbay_lab::private;
use sickbay_tests::varnish::{HealthRecord, Records, Varnish, read_log};

use super::behaviours::Noise;
use super::compare::{self, Shown};

const POLLS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(40);
const FIRST_PORT: u16 = 8301;

/// What is met at one address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Met {
    /// A server that answers 200.
    Ok,
    /// One that answers 503.
    Ill,
    /// Nobody.
    Refusal,
    /// A listener whose queue is full.
    Hole,
}

/// A backend's name, and what is met at its IPv4 and at its IPv6 address.
const CASES: [(&str, Met, Met); 9] = [
    ("both", Met::Ok, Met::Ok),
    ("first_ill", Met::Ill, Met::Ok),
    ("first_refuses", Met::Refusal, Met::Ok),
    ("second_refuses", Met::Ok, Met::Refusal),
    ("both_refuse", Met::Refusal, Met::Refusal),
    ("first_hole", Met::Hole, Met::Ok),
    ("second_hole", Met::Refusal, Met::Hole),
    ("hole_then_refusal", Met::Hole, Met::Refusal),
    ("both_holes", Met::Hole, Met::Hole),
];

/// Serves at `address` for as long as the process lives; what must be kept for it.
fn meet(met: Met, address: SocketAddr) -> Option<[OwnedFd; 2]> {
    let status: &[u8] = match met {
        Met::Ok => b"HTTP/1.1 200 OK\r\n\r\n",
        Met::Ill => b"HTTP/1.1 503 X\r\n\r\n",
        Met::Refusal => return None,
        Met::Hole => return Some(hole(address)),
    };
    let listener = TcpListener::bind(address).unwrap();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut request = [0; 4096];
            // The request is short and comes in one piece; a client that is gone is no matter.
            let _gone = stream.read(&mut request).and_then(|_| stream.write_all(status));
        }
    });
    None
}

/// Has `dual.test` mean both addresses of the loopback, in this private environment alone: its
/// mounts are its own.
pub(crate) fn name_both_addresses() {
    const HOSTS: &str = "/etc/hosts";
    let text = std::fs::read_to_string(HOSTS).unwrap();
    if text.contains("dual.test") {
        return;
    }
    let file = private::scratch().join("hosts");
    std::fs::write(&file, text + "\n127.0.0.1 dual.test\n::1 dual.test\n").unwrap();
    let bound = Command::new("mount").arg("--bind").arg(&file).arg(HOSTS).status().unwrap();
    assert!(bound.success());
}

fn hole(address: SocketAddr) -> [OwnedFd; 2] {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let listener = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(listener.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
    // A backlog of 0 takes one.
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    [listener, TcpStream::connect(address).unwrap().into()]
}

fn compat_records(file: &std::path::Path, prefer_ipv6: bool) -> Records {
    let mut command = Command::new(binary().unwrap());
    command.args(["probe", "--compat", "varnish", "--format", "varnishlog", "--vcl"]).arg(file);
    command.args(["--count", &POLLS.to_string()]).env("SICKBAY_LOG", "error");
    if prefer_ipv6 {
        command.arg("--prefer-ipv6");
    }
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 1)), "{output:?}");
    read_log(&output.stdout).unwrap()
}

#[test]
fn compat_mode_goes_on_to_the_other_family_as_varnish_does() {
    private::require();
    let directory = private::scratch().join("families");
    std::fs::create_dir_all(&directory).unwrap();
    name_both_addresses();
    let mut text = String::from(
        "vcl 4.1;\nprobe p { .timeout = 1s; .interval = 300ms; .window = 4; .threshold = 3; }\n",
    );
    let mut holes = Vec::new();
    for (port, (name, ipv4, ipv6)) in (FIRST_PORT..).zip(CASES) {
        holes.extend(meet(ipv4, (IpAddr::V4(Ipv4Addr::LOCALHOST), port).into()));
        holes.extend(meet(ipv6, (IpAddr::V6(Ipv6Addr::LOCALHOST), port).into()));
        text += &format!(
            "backend {name} {{ .host = \"dual.test\"; .port = \"{port}\"; .probe = p; }}\n"
        );
    }
    let file = directory.join("families.vcl");
    std::fs::write(&file, &text).unwrap();
    let mut differences = Vec::new();
    for prefer_ipv6 in [false, true] {
        let work = directory.join(format!("varnish-{prefer_ipv6}"));
        let mut varnishd = Varnish::of_vcl(&work, &text, prefer_ipv6).unwrap();
        let varnish = varnishd.polls(CASES.len(), POLLS, PATIENCE).unwrap();
        drop(varnishd);
        let compat = compat_records(&file, prefer_ipv6);
        for (name, ..) in CASES {
            let shown = |records: &[HealthRecord]| -> Vec<Shown> {
                records.iter().map(|record| Shown::of(record, Noise::None)).collect()
            };
            let (theirs, ours) = (shown(&varnish[name]), shown(&compat[name]));
            super::say(&format!("prefer_ipv6 {prefer_ipv6:<5} {name:<18} {}", theirs[0]));
            compare::sequences(name, &theirs, &ours, &mut differences);
        }
    }
    assert!(differences.is_empty(), "\n{}", differences.join("\n"));
}
