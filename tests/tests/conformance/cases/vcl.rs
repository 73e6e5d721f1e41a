//! Cases whose backends and probes stand in a VCL: what is sent, and where to.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;

use sickbay_lab::agent::binary;
use sickbay_lab::private;
use sickbay_tests::varnish::read_log;

use super::{OK, bits};
use crate::families::name_both_addresses;

/// What `sickbay probe --vcl` says, and its exit code, for this VCL.
fn probe_vcl(vcl: &str, words: &[&str]) -> (Option<i32>, Vec<u8>) {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let file = private::scratch().join(format!("case-{number}.vcl"));
    std::fs::write(&file, vcl).unwrap();
    let output = Command::new(binary().unwrap())
        .args(["probe", "--compat", "varnish", "--format", "varnishlog", "--vcl"])
        .arg(&file)
        .args(words)
        .env("SICKBAY_LOG", "error")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.code(), output.stdout)
}

/// A server that hands over what it was sent on each connection, up to `length` bytes, and answers.
fn listening<L: Accepts>(listener: L, length: usize) -> mpsc::Receiver<Vec<u8>> {
    let (sender, received) = mpsc::channel();
    std::thread::spawn(move || {
        while let Ok(mut stream) = listener.accept_one() {
            let mut bytes = vec![0; length];
            if stream.read_exact(&mut bytes).and_then(|()| stream.write_all(OK)).is_err() {
                bytes.clear();
            }
            if sender.send(bytes).is_err() {
                return;
            }
        }
    });
    received
}

trait Accepts: Send + 'static {
    type Stream: Read + Write;
    fn accept_one(&self) -> std::io::Result<Self::Stream>;
}

impl Accepts for TcpListener {
    type Stream = TcpStream;
    fn accept_one(&self) -> std::io::Result<TcpStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

impl Accepts for UnixListener {
    type Stream = UnixStream;
    fn accept_one(&self) -> std::io::Result<UnixStream> {
        self.accept().map(|(stream, _)| stream)
    }
}

#[test]
fn c00035_default_probe_polls_a_backend_until_its_owner_ends() {
    private::require();
    let request = b"GET /foobar HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let received = listening(listener, request.len());
    let vcl = format!(
        "vcl 4.1; probe default {{ .url = \"/foobar\"; .interval = 50ms; .timeout = 5s; }}\n\
         backend default {{ .host = \"127.0.0.1\"; .port = \"{port}\"; }}\n"
    );
    let (code, records) = probe_vcl(&vcl, &["--count", "3"]);
    assert_eq!(code, Some(0));
    assert_eq!(read_log(&records).unwrap()["default"].len(), 3);
    // The server can be used on: no poll comes after the owner's end, none is left in its queue.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let ours = b"GET /theend HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";
    assert_eq!(ours.len(), request.len());
    stream.write_all(ours).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, OK);
    // The owner may have begun a fourth poll before it ended, and not have sent it.
    let polls: Vec<Vec<u8>> = received.iter().take_while(|bytes| bytes != ours).collect();
    assert!(3 <= polls.len(), "{polls:?}");
    assert!(polls.iter().all(|poll| poll == request || poll.is_empty()), "{polls:?}");
    assert!(received.try_recv().is_err());
}

#[test]
fn c00121_abstract_socket_is_probed_by_its_name() {
    private::require();
    let name = SocketAddr::from_abstract_name("sickbay-c00121").unwrap();
    let request = b"GET / HTTP/1.1\r\nHost: 0.0.0.0\r\nConnection: close\r\n\r\n";
    let received = listening(UnixListener::bind_addr(&name).unwrap(), request.len());
    let vcl =
        "vcl 4.1; backend b { .path = \"@sickbay-c00121\"; .probe = { .interval = 50ms; } }\n";
    let (code, records) = probe_vcl(vcl, &["--count", "1"]);
    assert_eq!(code, Some(0));
    assert_eq!(bits(&read_log(&records).unwrap()["b"]), ["--U-X-RH"]);
    assert_eq!(received.recv().unwrap(), request);
    let empty = "vcl 4.1; backend b { .path = \"@\"; .probe = { } }\n";
    let (code, records) = probe_vcl(empty, &["--count", "1"]);
    assert_eq!((code, records.as_slice()), (Some(1), &b""[..]));
}

/// r02702 is the same over a unix socket.
#[test]
fn o00004_proxy_header_2_stands_before_the_request_over_tcp_and_over_a_unix_socket() {
    private::require();
    let sent = |host: &str| {
        let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        // Signature, version 2 LOCAL, no family, no length: PROXY protocol, section 2.2.
        [b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0", request.as_bytes()].concat()
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = private::scratch().join("o00004.sock");
    let over_tcp = listening(listener, sent("127.0.0.1").len());
    let over_unix = listening(UnixListener::bind(&path).unwrap(), sent("0.0.0.0").len());
    let vcl = format!(
        "vcl 4.1; probe p {{ .interval = 50ms; .window = 1; .threshold = 1; }}\n\
         backend tcp {{ .host = \"127.0.0.1\"; .port = \"{port}\"; .proxy_header = 2; .probe = p; }}\n\
         backend unix {{ .path = \"{}\"; .proxy_header = 2; .probe = p; }}\n",
        path.display()
    );
    let (code, records) = probe_vcl(&vcl, &["--count", "1"]);
    assert_eq!(code, Some(0), "both are healthy");
    let records = read_log(&records).unwrap();
    assert_eq!(bits(&records["tcp"]), ["4---X-RH"]);
    assert_eq!(bits(&records["unix"]), ["--U-X-RH"]);
    assert_eq!(over_tcp.recv().unwrap(), sent("127.0.0.1"));
    assert_eq!(over_unix.recv().unwrap(), sent("0.0.0.0"));
}

#[test]
fn host_with_two_families_is_probed_by_the_preferred_one_and_the_other_is_named() {
    private::require();
    name_both_addresses();
    let request = b"GET / HTTP/1.1\r\nHost: dual.test\r\nConnection: close\r\n\r\n";
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let over_ipv4 = listening(listener, request.len());
    let over_ipv6 = listening(TcpListener::bind(("::1", port)).unwrap(), request.len());
    let vcl = format!(
        "vcl 4.1; backend b {{ .host = \"dual.test\"; .port = \"{port}\"; \
         .probe = {{ .interval = 50ms; }} }}\n"
    );
    let (code, records) = probe_vcl(&vcl, &["--count", "1"]);
    assert_eq!(code, Some(0));
    assert_eq!(bits(&read_log(&records).unwrap()["b"]), ["4---X-RH"]);
    assert_eq!(over_ipv4.recv().unwrap(), request);
    assert!(over_ipv6.try_recv().is_err(), "not asked");
    let (code, records) = probe_vcl(&vcl, &["--count", "1", "--prefer-ipv6"]);
    assert_eq!(code, Some(0));
    assert_eq!(bits(&read_log(&records).unwrap()["b"]), ["-6--X-RH"]);
    assert_eq!(over_ipv6.recv().unwrap(), request);

    let directory = private::scratch().join("dual");
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::write(directory.join("dual.vcl"), &vcl).unwrap();
    let check = |pool: &str| {
        let file = directory.join("dual.toml");
        std::fs::write(&file, format!("[pool.web]\nvcl = \"dual.vcl\"\n{pool}")).unwrap();
        let output = Command::new(binary().unwrap()).args(["check", "-c"]).arg(&file).output();
        String::from_utf8(output.unwrap().stderr).unwrap()
    };
    let told = |said: &str, probed: &str, other: &str| {
        let words = format!(
            "backend b has two addresses: {probed}:{port} is probed and gets the flows, {other} \
             neither"
        );
        assert!(said.contains(&words), "{said}");
    };
    told(&check(""), "127.0.0.1", "::1");
    told(&check("prefer_ipv6 = true\n"), "[::1]", "127.0.0.1");
}
