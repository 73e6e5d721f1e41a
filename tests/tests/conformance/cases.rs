//! Varnish's own test cases that concern probes, re-created: the behaviour, not the text. Each test
//! names its file under `bin/varnishtest/tests`.
//!
//! | file | shown by |
//! |---|---|
//! | c00017, c00094 | `c00017_…`, over TCP and over a unix socket |
//! | c00035 | `vcl`: `c00035_…`: the default probe on a backend, and that polling ends with its owner |
//! | c00048, c00090 | `end_to_end`: `c00048_…` (requests), `live`: `c00048_…` (errors, patterns, unix) |
//! | c00084 | `c00084_…` |
//! | c00088, v00038 | `live`: `c00088_…`; with a real server in `real_servers` |
//! | c00121 | `vcl`: `c00121_…`; the empty name: `agent/tests/config_backends.rs`, `vcl_rules.rs` |
//! | c00113 | `c00113_…` |
//! | d00007 | `d00007_…`: `initial` = `threshold` is usable at once; the request's lines: `c00035_…`; out: `via` |
//! | m00025, r04417 | out: probes as values of VCL's own language |
//! | o00004, r02702 | `vcl`: `o00004_…`: version 2 over TCP and a unix socket |
//! | r01837 | `agent/tests/vcl_rules.rs`, and with Varnish's compiler in `vcl_compiler` |
//! | r02036, r02887, vmod/directors_v00000 | out: directors; a service's pool takes their place |
//! | r02069 | the behaviours `no_reason` and `empty_reason` |
//! | r02872 | `r02872_…` |
//! | r02976 | `r02976_…` in two processes; in one prober: `agent/core/src/sim/tests/varnish.rs` |
//! | r03402 | `r03402_…` |
//! | s00002 | `s00002_…`; that grace then serves stale is out: sickbay keeps no objects |
//! | u00008 | out: varnishstat's screen |
//! | v00003 | no probe, `bits_H` all ones: `end_to_end`, `backends_without_a_probe_…`; out: warm and cold VCLs |
//! | v00005, v00031, v00034, v00075 | `agent/tests/vcl_rules.rs`, and with the compiler in `vcl_compiler` |
//! | v00014, v00056 | `v00014_…`, over TCP and over a unix socket |
//! | v00050 | out: retries; the forced-sick backend is in `c00048_…` |
//! | v00074 | `live`: `v00074_…`: sick by an operator, by a probe and by `auto`; nothing is queued here |
//! | b00091 | out (later than 7.1.1): addresses stand in `backend list -o json` |

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use sickbay_lab::agent::binary;
use sickbay_lab::private;
use sickbay_tests::script::{Behaviour, Place, Server, Step};
use sickbay_tests::varnish::{HealthRecord, ProbeParameters, Varnish};

use super::behaviours::Noise;
use super::compare::Shown;
use super::sickbay::Probing;

/// Those whose backends stand in a VCL.
mod vcl;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\n\r\n";
/// Until varnishd has polled a few backends a few times.
const LIMIT: Duration = Duration::from_secs(30);
const QUICK: ProbeParameters = ProbeParameters {
    timeout_ms: 1000,
    interval_ms: 100,
    window: 8,
    threshold: 3,
    initial: 2,
    expected_response: 200,
    proxy_header: 0,
};

/// Reads the request, sends, closes.
fn reply(bytes: &[u8]) -> Vec<Step> {
    vec![Step::AwaitRequest, Step::Send(bytes.to_vec())]
}

/// What `probing` makes of a server with these turns.
fn records(probing: &Probing, turns: Vec<Vec<Step>>) -> Vec<HealthRecord> {
    records_at(Place::Ipv4, probing, turns)
}

/// The same of a server at such a place.
fn records_at(place: Place, probing: &Probing, turns: Vec<Vec<Step>>) -> Vec<HealthRecord> {
    static PORT: AtomicU16 = AtomicU16::new(8101);
    private::require();
    let behaviour = Behaviour { name: "s1", place, turns };
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let directory = private::scratch().join(format!("case-{port}"));
    std::fs::create_dir_all(&directory).unwrap();
    let server = Server::start(vec![behaviour], port, 1, &directory);
    let mut records = probing.records(&[("s1", server.address(0, 0))]);
    records.remove("s1").expect("its records")
}

fn bits(records: &[HealthRecord]) -> Vec<&str> {
    records.iter().map(|record| record.bits.as_str()).collect()
}

fn states(records: &[HealthRecord]) -> Vec<String> {
    records.iter().map(|record| format!("{} {}", record.turn, record.state)).collect()
}

#[test]
fn c00017_register_holds_good_sick_and_foreign_answers_in_their_order() {
    let times = |bytes: &'static [u8], count: usize| std::iter::repeat_n(bytes, count);
    let turns: Vec<_> = times(OK, 8)
        .chain(times(b"HTTP/1.1 404 Not Found\r\n\r\n", 3))
        .chain(times(b"FROBOZ 200 OK\r\n\r\n", 2))
        .chain(times(b"HTTP/1.1 200 \r\n", 2))
        .map(reply)
        .collect();
    let probing = Probing::of(ProbeParameters { window: 8, ..QUICK }, 15).compat();
    for (place, good, bad) in
        [(Place::Ipv4, "4---X-RH", "4---X-R-"), (Place::Unix, "--U-X-RH", "--U-X-R-")]
    {
        let records = records_at(place, &probing, turns.clone());
        assert_eq!(bits(&records), [vec![good; 8], vec![bad; 5], vec![good; 2]].concat());
        let good: Vec<u32> = records.iter().map(|record| record.good).collect();
        assert_eq!(good, [3, 4, 5, 6, 7, 8, 8, 8, 7, 6, 5, 4, 3, 3, 3]);
    }
}

#[test]
fn c00084_dash_in_a_probes_name_is_legal() {
    private::require();
    let file = private::scratch().join("c00084.toml");
    let text = "[probe.foo-bar]\nurl = \"/\"\n\n[pool.web]\nprobe = \"foo-bar\"\n\
                backends = [\"127.0.0.1:80\"]\n";
    std::fs::write(&file, text).unwrap();
    let output = Command::new(binary().unwrap())
        .args(["check", "-c"])
        .arg(&file)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn c00113_server_that_never_closes_is_sick_unless_closing_is_not_expected() {
    let parameters =
        ProbeParameters { timeout_ms: 500, window: 3, threshold: 1, initial: 0, ..QUICK };
    let turns = || vec![vec![Step::AwaitRequest, Step::Send(OK.to_vec()), Step::Hold]];
    let expecting = records(&Probing::of(parameters, 3).compat(), turns());
    assert_eq!(states(&expecting), ["Still sick"; 3]);
    assert_eq!(bits(&expecting), ["4---Xr--"; 3]);
    let probing = Probing::of(parameters, 3).compat().and(&["--expect-close", "false"]);
    let content = records(&probing, turns());
    assert_eq!(states(&content), ["Went healthy", "Still healthy", "Still healthy"]);
    assert_eq!(bits(&content), ["4---X-RH"; 3]);
}

#[test]
fn o00004_and_r02702_proxy_headers_are_those_that_varnishd_sends() {
    private::require();
    for (version, port) in [(1, 8161), (2, 8171)] {
        let directory = private::scratch().join(format!("proxy-{version}"));
        std::fs::create_dir_all(&directory).expect("scratch memory");
        let script =
            vec![Step::AwaitProxyHeader(version), Step::AwaitRequest, Step::Send(OK.to_vec())];
        let behaviours: Vec<Behaviour> =
            [("ipv4", Place::Ipv4), ("ipv6", Place::Ipv6), ("unix", Place::Unix)]
                .map(|(name, place)| Behaviour { name, place, turns: vec![script.clone()] })
                .into();
        let names: Vec<&str> = behaviours.iter().map(|it| it.name).collect();
        let server = Server::start(behaviours, port, 3, &directory);
        let backends = |client| -> Vec<_> {
            let indices = (0..names.len()).map(|index| server.address(index, client));
            names.iter().copied().zip(indices).collect()
        };
        let parameters = ProbeParameters { proxy_header: version, ..QUICK };
        let probing = Probing::of(parameters, 3);
        let mut varnishd = Varnish::start(&directory.join("varnish"), &backends(0), parameters)
            .expect("varnishd starts");
        let varnish = varnishd.polls(names.len(), 3, LIMIT).expect("varnishd polls");
        drop(varnishd);
        let default = probing.records(&backends(1));
        let compat = probing.compat().records(&backends(2));
        for ((name, theirs), connected) in varnish.iter().zip(["4-", "-6", "--U"]) {
            // Whoever sent another header than its peer's address says, got no answer.
            assert!(theirs.iter().all(|record| record.bits.starts_with(connected)), "{theirs:?}");
            assert!(theirs.iter().all(|record| record.bits.ends_with("X-RH")), "{theirs:?}");
            for ours in [&compat[name], &default[name]] {
                let shown = |records: &[HealthRecord]| -> Vec<Shown> {
                    records.iter().map(|record| Shown::of(record, Noise::None)).collect()
                };
                assert_eq!(shown(ours), shown(theirs), "version {version}, {name}");
            }
        }
    }
}

#[test]
fn r02976_probe_with_a_short_interval_is_not_starved_by_one_that_waits_a_day() {
    private::require();
    // The dead one first: a full queue, so that its probe also takes its whole timeout.
    let behaviours = vec![
        Behaviour { name: "dead", place: Place::Full, turns: vec![Vec::new()] },
        Behaviour { name: "quick", place: Place::Ipv4, turns: vec![reply(OK)] },
    ];
    let server = Server::start(behaviours, 8151, 1, &private::scratch());
    let daily = ProbeParameters { interval_ms: 24 * 3600 * 1000, timeout_ms: 5000, ..QUICK };
    let start = Instant::now();
    let (dead, quick) = (server.address(0, 0), server.address(1, 0));
    let dead = std::thread::spawn(move || {
        Probing::of(daily, 1).compat().records(&[("dead", dead)]).remove("dead")
    });
    let records = Probing::of(QUICK, 10).compat().records(&[("quick", quick)]);
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    assert_eq!(bits(&records["quick"]), ["4---X-RH"; 10]);
    let dead = dead.join().unwrap().expect("its record");
    assert_eq!(bits(&dead), ["--------"]);
}

#[test]
fn r03402_timeout_bounds_the_whole_probe_and_not_the_pause_between_bytes() {
    let drip = vec![
        Step::AwaitRequest,
        Step::Send(b"HTTP/1.1 200 OK\r\n".to_vec()),
        Step::Drip(b"X-Slow: 0123456789012345678901\r\n\r\n".to_vec(), Duration::from_millis(50)),
    ];
    let parameters =
        ProbeParameters { timeout_ms: 500, window: 2, threshold: 1, initial: 1, ..QUICK };
    for probing in [Probing::of(parameters, 3).compat(), Probing::of(parameters, 3)] {
        let records = records(&probing, vec![drip.clone()]);
        assert_eq!(bits(&records), ["4---Xr--"; 3]);
        assert_eq!(records[2].state, "sick");
    }
}

#[test]
fn s00002_two_bad_answers_over_http_1_0_make_a_window_of_two_sick() {
    let parameters = ProbeParameters { window: 2, threshold: 1, initial: 0, ..QUICK };
    let good = || reply(b"HTTP/1.0 200 OK\r\n\r\n");
    let bad = || reply(b"HTTP/1.0 400 Bad Request\r\n\r\n");
    let probing = Probing::of(parameters, 6).compat();
    let records = records(&probing, vec![good(), bad(), bad(), good(), good(), good()]);
    assert_eq!(
        states(&records),
        [
            "Went healthy",
            "Still healthy",
            "Went sick",
            "Went healthy",
            "Still healthy",
            "Still healthy"
        ]
    );
    assert_eq!(records[2].text, "HTTP/1.0 400 Bad Request");
}

#[test]
fn v00014_two_of_three_good_from_nothing_take_two_good_probes() {
    let parameters = ProbeParameters { window: 3, threshold: 2, initial: 0, ..QUICK };
    for probing in [Probing::of(parameters, 3).compat(), Probing::of(parameters, 3)] {
        for place in [Place::Ipv4, Place::Unix] {
            let records = records_at(place, &probing, vec![reply(OK)]);
            assert_eq!(states(&records), ["Still sick", "Went healthy", "Still healthy"]);
            let counts: Vec<_> =
                records.iter().map(|all| (all.good, all.threshold, all.window)).collect();
            assert_eq!(counts, [(1, 2, 3), (2, 2, 3), (3, 2, 3)]);
        }
    }
}

#[test]
fn d00007_backend_with_initial_at_its_threshold_is_healthy_before_its_first_poll() {
    // The first poll fails: two of the last three are still good, the two that were assumed.
    let parameters =
        ProbeParameters { window: 3, threshold: 2, initial: 2, timeout_ms: 500, ..QUICK };
    let turns = vec![vec![Step::AwaitRequest], reply(OK)];
    let records = records(&Probing::of(parameters, 2).compat(), turns);
    let states: Vec<_> = records.iter().map(|record| record.state.as_str()).collect();
    assert_eq!(states, ["healthy", "healthy"]);
    assert_eq!(bits(&records), ["4---X---", "4---X-RH"]);
}

#[test]
fn r02872_last_field_of_a_record_is_the_quoted_text() {
    let turns = vec![reply(b"HTTP/1.1 200 very good\r\n\r\n")];
    let records = records(&Probing::of(QUICK, 1).compat(), turns);
    assert_eq!(states(&records), ["Went healthy"]);
    // Blanks in it: it is one field all the same.
    assert_eq!(records[0].text, "HTTP/1.1 200 very good");
}
