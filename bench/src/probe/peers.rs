//! The peers that are programs of their own: HAProxy, one thread, and varnishd.

use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use anyhow::Result;
use sickbay_lab::farm::Farm;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::network::Family;
use sickbay_lab::private;

use super::subject::Subject;

/// Starts HAProxy with so many servers, each checked once in `interval_ms`.
pub(crate) fn haproxy(
    home: &Namespace,
    cpu: usize,
    count: u32,
    interval_ms: u32,
) -> Result<Subject> {
    let mut text = format!(
        "global
    nbthread 1
    spread-checks 0
defaults
    mode http
    timeout connect 1s
    timeout client 1s
    timeout server 1s
    timeout check 1s
frontend none
    bind 127.0.0.1:6080
    default_backend farm
backend farm
    option httpchk
    http-check send meth GET uri /health ver HTTP/1.1 hdr Host farm.example.net
    http-check expect status 200
    default-server check inter {interval_ms}ms fall 3 rise 2
"
    );
    for index in 0..count {
        let _ = writeln!(text, "    server s{index} {}", Farm::address(Family::V4, index));
    }
    let file = private::scratch().join("bench-haproxy.cfg");
    fs::write(&file, text)?;
    let mut command = Command::new("haproxy");
    command.arg("-db").arg("-f").arg(&file);
    Subject::process(&mut command, home, cpu)
}

/// Starts varnishd with so many backends, each polled `interval_ms` after its last poll's end.
pub(crate) fn varnishd(
    home: &Namespace,
    cpu: usize,
    count: u32,
    interval_ms: u32,
) -> Result<Subject> {
    let mut text = format!(
        "vcl 4.1;
probe p {{ .url = \"/health\"; .timeout = 1s; .interval = {interval_ms}ms; .window = 8; .threshold = 3; }}
"
    );
    for index in 0..count {
        let address = Farm::address(Family::V4, index);
        let _ = writeln!(
            text,
            "backend b{index} {{ .host = \"{}\"; .port = \"{}\"; .probe = p; }}",
            address.ip(),
            address.port()
        );
    }
    let directory = private::scratch().join("bench-varnish");
    fs::create_dir_all(&directory)?;
    let file = directory.join("farm.vcl");
    fs::write(&file, text)?;
    let mut command = Command::new("varnishd");
    command.args(["-F", "-j", "none", "-a", "127.0.0.1:6081", "-s", "malloc,16m"]);
    // Its manager must not take a worker that stands still for a dead one.
    command.args(["-p", "vcc_err_unref=off", "-p", "ping_interval=0", "-p", "cli_timeout=600"]);
    command.arg("-n").arg(directory.join("work")).arg("-f").arg(&file);
    Subject::process(&mut command, home, cpu)
}
