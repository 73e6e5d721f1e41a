//! Probes that behave as Varnish's, through the real prober: its golden log lines, its own test
//! cases, and the table of what it made of each reply.

use super::*;
use crate::record::VarnishRecord;
use crate::text::OutcomeText;

const VARNISH: Compat = Compat::VARNISH;
const LENIENT: Compat = Compat::Varnish { expect_close: false };

fn probe(interval_ns: Nanos, timeout_ns: Nanos, compat: Compat) -> ProbeSpec {
    ProbeSpec { compat, ..http(interval_ns, timeout_ns) }
}

/// The records of a backend whose probes meet these peers: the first before any probe. Window 4,
/// threshold 3, initial 2, as the golden lines were run.
fn records(name: &str, family: Family, compat: Compat, peers: &[Peer]) -> Vec<String> {
    let mut plan = plan(1, window(4, 3), 2, probe(SECOND, 500 * MS, compat), 2);
    plan.targets[0].family = family;
    let mut sim = Sim::new(&plan, 1, START);
    // Varnish takes a backend for healthy until it has looked at the assumed results.
    let mut healthy = true;
    let mut record = |sim: &Sim, report: Option<&Report>| {
        let history = sim.prober().history(TargetIndex(0));
        let was = healthy;
        healthy = sim.prober().probed_verdict(JudgeIndex(0)) == Verdict::Healthy;
        let record = VarnishRecord {
            name,
            changed: was != healthy,
            healthy,
            registers: &history.registers,
            threshold: 3,
            window: 4,
            last_ns: history.last_ns,
            average_s: history.average_s,
            text: report.map(|report| OutcomeText::of(report, 500 * MS, compat)),
        };
        record.to_string()
    };
    let mut records = vec![record(&sim, None), record(&sim, None)];
    for peer in peers {
        sim.set_peer(TargetIndex(0), peer.clone());
        let mut reports = vec![];
        while reports.is_empty() {
            reports = Log::run_for(&mut sim, MS).reports;
        }
        records.push(record(&sim, reports.first()));
    }
    records
}

/// The last record of a backend whose one probe meets this peer.
fn one(name: &str, peer: Peer) -> String {
    records(name, Family::Ipv4, VARNISH, &[peer]).remove(2)
}

const fn micros(count: Nanos) -> Nanos {
    count * 1000
}

const fn keeps_open(bytes: &'static [u8]) -> Peer {
    Peer::new(Behaviour::KeepsOpen(Cow::Borrowed(bytes)))
}

#[test]
fn golden_lines_are_those_of_varnish_711() {
    let good = |delay_us| answers(b"HTTP/1.1 200 OK\r\n\r\n").with_delay_ns(micros(delay_us));
    let peers = [good(4102), good(359)];
    assert_eq!(
        records("okclose", Family::Ipv4, VARNISH, &peers),
        [
            r#"okclose Went sick -------H 2 3 4 0.000000 0.000000 """#,
            r#"okclose Still sick -------H 2 3 4 0.000000 0.000000 """#,
            r#"okclose Went healthy 4---X-RH 3 3 4 0.004102 0.001367 "HTTP/1.1 200 OK""#,
            r#"okclose Still healthy 4---X-RH 4 3 4 0.000359 0.001115 "HTTP/1.1 200 OK""#,
        ]
    );
    let not_found = answers(b"HTTP/1.1 404 Not Found\r\n\r\n").with_delay_ns(micros(9804));
    assert_eq!(
        one("s404", not_found),
        r#"s404 Still sick 4---X-R- 2 3 4 0.009804 0.000000 "HTTP/1.1 404 Not Found""#
    );
    assert_eq!(
        one("empty", answers(b"")),
        r#"empty Still sick 4---X--- 2 3 4 0.000000 0.000000 "Empty response""#
    );
    assert_eq!(
        one("rst", Peer::new(Behaviour::Resets(Cow::Borrowed(b"")))),
        "rst Still sick 4---Xr-- 2 3 4 0.000000 0.000000 \
         \"Read error 104 (Connection reset by peer)\""
    );
    assert_eq!(
        one("keepalive", keeps_open(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")),
        "keepalive Still sick 4---Xr-- 2 3 4 0.000000 0.000000 \
         \"Poll error 110 (Connection timed out)\""
    );
    assert_eq!(
        one("refused", Peer::new(Behaviour::Refuses)),
        "refused Still sick -------- 2 3 4 0.000000 0.000000 \
         \"Open error 111 (Connection refused)\""
    );
    assert_eq!(
        records("uds", Family::Unix, VARNISH, &[good(12_911)])[2],
        r#"uds Went healthy --U-X-RH 3 3 4 0.012911 0.004304 "HTTP/1.1 200 OK""#
    );
    let bad = |delay_us| answers(b"HTTP/1.1 500 X\r\n\r\n").with_delay_ns(micros(delay_us));
    assert_eq!(
        records("flip", Family::Ipv4, VARNISH, &[good(1161), bad(500), bad(428)])[4],
        r#"flip Went sick 4---X-R- 2 3 4 0.000428 0.000387 "HTTP/1.1 500 X""#
    );
}

#[test]
fn every_row_of_the_table_of_replies_is_as_on_varnish_711() {
    let reply = |bytes: &'static [u8]| answers(bytes);
    let drips = Behaviour::Drips { response: Cow::Borrowed(OK), gap_ns: 100 * MS };
    let early = Behaviour::Resets(Cow::Borrowed(b"HTTP/1.1 200 OK\r\n\r\n"));
    let table = [
        (reply(b"HTTP/1.1 200 OK\r\n\r\n"), "4---X-RH", "HTTP/1.1 200 OK"),
        (reply(b"HTTP/1.1 200\r\n\r\n"), "4---X-RH", "HTTP/1.1 200"),
        (reply(b"HTTP/1.1 200 \r\n"), "4---X-RH", "HTTP/1.1 200 "),
        (reply(b"HTTP/2 200\r\n\r\n"), "4---X-RH", "HTTP/2 200"),
        (reply(b"HTTP/1.1 200 OK\n\n"), "4---X-RH", "HTTP/1.1 200 OK"),
        (reply(b"HTTP/1.1 0200 OK\r\n\r\n"), "4---X-RH", "HTTP/1.1 0200 OK"),
        (reply(b"HTTP/1.1 200x\r\n\r\n"), "4---X-RH", "HTTP/1.1 200x"),
        (reply(b"HTTP/inf 200 OK\r\n\r\n"), "4---X-RH", "HTTP/inf 200 OK"),
        (
            reply(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
            "4---X-R-",
            "HTTP/1.1 100 Continue",
        ),
        (reply(b"HTTP/1.1 404 Not Found\r\n\r\n"), "4---X-R-", "HTTP/1.1 404 Not Found"),
        (reply(b"FROBOZ 200 OK\r\n\r\n"), "4---X-R-", "FROBOZ 200 OK"),
        (reply(b"\r\nHTTP/1.1 200 OK\r\n\r\n"), "4---X-R-", ""),
        (reply(b"HTTP/1.1 -4294967096 OK\r\n"), "4---X-RH", "HTTP/1.1 -4294967096 OK"),
        (reply(b"HTTP/1.1 65736 OK\r\n"), "4---X-R-", "HTTP/1.1 65736 OK"),
        (reply(b""), "4---X---", "Empty response"),
        (
            Peer::new(Behaviour::Resets(Cow::Borrowed(b""))),
            "4---Xr--",
            "Read error 104 (Connection reset by peer)",
        ),
        (Peer::new(early), "4---Xr--", "Read error 104 (Connection reset by peer)"),
        (Peer::new(Behaviour::Hangs), "4---Xr--", "Poll error 110 (Connection timed out)"),
        (keeps_open(OK), "4---Xr--", "Poll error 110 (Connection timed out)"),
        (Peer::new(drips), "4---Xr--", "Poll error 110 (Connection timed out)"),
        (Peer::new(Behaviour::Refuses), "--------", "Open error 111 (Connection refused)"),
        (Peer::new(Behaviour::BlackHole), "--------", "Open error 110 (Connection timed out)"),
        // After a good reply; Varnish completes it by the old bytes, and says healthy.
        (reply(b"H"), "4---X-R-", "H"),
    ];
    let good = answers(b"HTTP/1.1 200 OK\r\n\r\n");
    for (peer, bits, text) in table {
        let records = records("b", Family::Ipv4, VARNISH, &[good.clone(), peer]);
        let record = records.last().expect("a record a peer");
        assert!(record.starts_with(&format!("b Still healthy {bits} ")), "{record}");
        assert!(record.ends_with(&format!(" \"{text}\"")), "{record}");
    }
}

#[test]
fn long_reason_is_cut_and_a_large_body_is_drained_whatever_its_framing_says() {
    let mut response = b"HTTP/1.1 200 ".to_vec();
    response.extend([b'x'; 300]);
    response.extend(b"\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n");
    response.extend([b'z'; 1_000_000]);
    let peer = Peer::new(Behaviour::Answers(Cow::Owned(response.clone())));
    let text = format!("\"HTTP/1.1 200 {}\"", "x".repeat(114));
    let record = one("b", peer);
    assert!(record.starts_with("b Went healthy 4---X-RH "), "{record}");
    assert!(record.ends_with(&text), "{record}");
    // Where the peer resets at the end of it, the probe had read so far.
    let record = one("b", Peer::new(Behaviour::Resets(Cow::Owned(response))));
    assert!(record.contains(" sick 4---Xr-- "), "{record}");
}

#[test]
fn c00113_server_that_never_closes_is_sick_or_healthy_by_expect_close() {
    for (compat, verdict, bits) in
        [(VARNISH, Verdict::Sick, "4---Xr--"), (LENIENT, Verdict::Healthy, "4---X-RH")]
    {
        let plan = plan(1, window(3, 1), 0, probe(100 * MS, 500 * MS, compat), 2);
        let mut sim = Sim::new(&plan, 1, START);
        sim.set_peer(TargetIndex(0), keeps_open(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
        let log = Log::run_for(&mut sim, 2 * SECOND);
        assert_eq!(sim.prober().verdict(JudgeIndex(0)), verdict);
        let history = sim.prober().history(TargetIndex(0));
        assert_eq!(Bits(&history.registers).to_string(), bits);
        // Judged at the timeout, and the next one an interval after that.
        let starts = log.starts_of(0);
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 600 * MS), "{starts:?}");
        let last_ns = if verdict == Verdict::Healthy { 500 * MS } else { 0 };
        assert_eq!(history.last_ns, last_ns);
    }
}

#[test]
fn server_that_says_nothing_is_empty_where_no_close_is_expected() {
    let records = records("b", Family::Ipv4, LENIENT, &[Peer::new(Behaviour::Hangs)]);
    assert_eq!(records[2], r#"b Still sick 4---X--- 2 3 4 0.000000 0.000000 "Empty response""#);
}

#[test]
fn period_runs_from_one_probes_end_to_the_next_ones_start() {
    let slow = Peer::HEALTHY.with_delay_ns(300 * MS);
    for (compat, period_ns) in [(VARNISH, 1300 * MS), (Compat::Off, SECOND)] {
        let plan = plan(1, window(1, 1), 0, probe(SECOND, 2 * SECOND, compat), 2);
        let mut sim = Sim::new(&plan, 1, START);
        sim.set_peer(TargetIndex(0), slow.clone());
        let log = Log::run_for(&mut sim, 20 * SECOND);
        let starts = log.starts_of(0);
        assert!(starts[0] < START + SECOND);
        assert!(13 <= starts.len());
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == period_ns), "{starts:?}");
    }
}

#[test]
fn probe_longer_than_its_interval_is_neither_overlapped_nor_skipped() {
    let plan = plan(1, window(1, 1), 0, probe(100 * MS, SECOND, VARNISH), 2);
    let mut sim = Sim::new(&plan, 1, START);
    sim.set_peer(TargetIndex(0), Peer::new(Behaviour::Hangs));
    let log = Log::run_for(&mut sim, 10 * SECOND);
    let starts = log.starts_of(0);
    assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 1100 * MS), "{starts:?}");
    let counters = sim.prober().counters();
    assert_eq!((counters.overlapped, counters.slept_through, counters.no_slot), (0, 0, 0));
}

#[test]
fn first_probes_are_spread_as_ever() {
    let plan = plan(1000, window(1, 1), 0, probe(5 * SECOND, SECOND, VARNISH), 64);
    let mut sim = Sim::new(&plan, 1, START);
    let log = Log::run_for(&mut sim, 2 * SECOND);
    assert_eq!(log.starts.len(), 1000);
    // 100 expected in each fifth of a second.
    for fifth in 0..10 {
        let span = START + fifth * 200 * MS..START + (fifth + 1) * 200 * MS;
        let count = log.starts.iter().filter(|(at_ns, _)| span.contains(at_ns)).count();
        assert!((60..150).contains(&count), "{fifth}: {count}");
    }
}

#[test]
fn fault_of_this_host_is_no_result_here_either() {
    let peers = [Peer::new(Behaviour::NoConnect { errno: 99 })];
    let records = records("b", Family::Ipv4, VARNISH, &peers);
    assert_eq!(
        records[2],
        "b Still sick -------H 2 3 4 0.000000 0.000000 \
         \"Local error 99 (Cannot assign requested address)\""
    );
}

#[test]
fn assumed_results_weigh_on_the_average_at_most_as_three() {
    // 8 ms / (initial + 1), but at least a quarter of it.
    for (initial, threshold, average_s) in
        [(0, 3, 0.008), (1, 3, 0.004), (3, 3, 0.002), (9, 3, 0.002), (9, 9, 0.002)]
    {
        let plan = plan(1, window(9, threshold), initial, probe(SECOND, SECOND, VARNISH), 2);
        let mut sim = Sim::new(&plan, 1, START);
        sim.set_peer(TargetIndex(0), Peer::HEALTHY.with_delay_ns(8 * MS));
        while Log::run_for(&mut sim, MS).reports.is_empty() {}
        let history = sim.prober().history(TargetIndex(0));
        assert!((history.average_s - average_s).abs() < 1e-12, "{initial}: {}", history.average_s);
    }
}

/// Over TCP the same peer is a black hole; Varnish's words for the full queue are those of a connect
/// that does not wait.
#[test]
fn unix_socket_whose_queue_stays_full_has_no_room() {
    let full = Peer::new(Behaviour::BlackHole);
    let record = records("b", Family::Unix, VARNISH, &[full]).remove(2);
    assert_eq!(
        record,
        "b Still sick -------- 2 3 4 0.000000 0.000000 \
         \"Open error 11 (Resource temporarily unavailable)\""
    );
}
