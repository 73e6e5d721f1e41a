//! Varnish's documented cases and its own test cases, by their names.

use super::*;

/// One target, and the peers that its probes meet, one after the other.
fn histories(rule: Rule, initial: u8, probe: ProbeSpec, peers: &[Peer]) -> Vec<(String, Verdict)> {
    let mut sim = Sim::new(&plan(1, rule, initial, probe, 2), 1, START);
    let mut seen = vec![];
    for peer in peers {
        sim.set_peer(TargetIndex(0), peer.clone());
        while Log::run_for(&mut sim, MS).reports.is_empty() {}
        let registers = sim.prober().history(TargetIndex(0)).registers;
        seen.push((Bits(&registers).to_string(), sim.prober().verdict(JudgeIndex(0))));
    }
    seen
}

#[test]
fn golden_lines_of_varnishlog() {
    // Window 4, threshold 3, initial 2, as run on varnish 7.1.1.
    let rule = window(4, 3);
    let seen = |peer: Peer| histories(rule, 2, http(SECOND, 500 * MS), &[peer]).remove(0);
    let sick = |bits: &str| (bits.to_owned(), Verdict::Sick);
    assert_eq!(seen(Peer::HEALTHY), ("4---X-RH".to_owned(), Verdict::Healthy));
    assert_eq!(seen(answers(b"HTTP/1.1 404 Not Found\r\n\r\n")), sick("4---X-R-"));
    assert_eq!(seen(answers(b"FROBOZ 200 OK\r\n\r\n")), sick("4---X-R-"));
    assert_eq!(seen(answers(b"")), sick("4---X---"));
    assert_eq!(seen(Peer::new(Behaviour::Resets(Cow::Borrowed(b"")))), sick("4---Xr--"));
    assert_eq!(seen(Peer::new(Behaviour::Hangs)), sick("4---Xr--"));
    assert_eq!(seen(Peer::new(Behaviour::Refuses)), sick("--------"));
    assert_eq!(seen(Peer::new(Behaviour::BlackHole)), sick("--------"));
}

#[test]
fn c00017_register_counts_goods_refusals_and_protocol_errors() {
    let good = answers(b"HTTP/1.1 200 OK\r\n\r\n");
    let peers = [
        vec![good; 8],
        vec![answers(b"HTTP/1.1 404 Not Found\r\n\r\n"); 3],
        vec![answers(b"FROBOZ 200 OK\r\n\r\n"); 2],
        vec![answers(b"HTTP/1.1 200 \r\n\r\n"); 2],
    ]
    .concat();
    let mut sim = Sim::new(&plan(1, window(8, 3), 2, http(SECOND, 500 * MS), 2), 1, START);
    for peer in peers {
        sim.set_peer(TargetIndex(0), peer);
        while Log::run_for(&mut sim, MS).reports.is_empty() {}
    }
    let registers = sim.prober().history(TargetIndex(0)).registers;
    // HHHHHHHHHH-----HH: two assumed and eight good, five bad, two good.
    assert_eq!(registers[7], 0b1_1111_1111_1000_0011);
    assert_eq!(registers[0], 0b111_1111_1111_1111);
}

#[test]
fn v00014_is_sick_until_the_second_good_probe() {
    let seen = histories(window(3, 2), 0, http(SECOND, 500 * MS), &[answers(b""), Peer::HEALTHY]);
    assert_eq!(seen[1].1, Verdict::Sick);
    let peers = [Peer::HEALTHY, Peer::HEALTHY];
    let seen = histories(window(3, 2), 0, http(SECOND, 500 * MS), &peers);
    assert_eq!([seen[0].1, seen[1].1], [Verdict::Warming, Verdict::Healthy]);
}

#[test]
fn r03402_drip_past_the_timeout_is_sick() {
    // 38 bytes, 50 ms from one to the next: 1.9 s in all, never silent for long.
    let drip = Behaviour::Drips { response: Cow::Borrowed(OK), gap_ns: 50 * MS };
    let peers = [Peer::new(drip)];
    let seen = histories(window(1, 1), 0, http(5 * SECOND, SECOND), &peers);
    assert_eq!(seen, [("4---Xr--".to_owned(), Verdict::Sick)]);
    let seen = histories(window(1, 1), 0, http(5 * SECOND, 2 * SECOND), &peers);
    assert_eq!(seen, [("4---X-RH".to_owned(), Verdict::Healthy)]);
}

#[test]
fn c00113_server_that_never_closes_is_judged_by_its_framing() {
    let keeps = |bytes| [Peer::new(Behaviour::KeepsOpen(Cow::Borrowed(bytes)))];
    let probe = http(SECOND, 500 * MS);
    let seen = histories(window(3, 1), 0, probe.clone(), &keeps(OK));
    assert_eq!(seen[0].1, Verdict::Healthy);
    // Without framing only the close would end it.
    let seen = histories(window(3, 1), 0, probe, &keeps(b"HTTP/1.1 200 OK\r\n\r\nhello"));
    assert_eq!(seen, [("4---Xr--".to_owned(), Verdict::Sick)]);
}

#[test]
fn r02976_short_interval_is_not_starved_by_a_long_one() {
    let mut plan = plan(2, window(1, 1), 0, http(SECOND, 500 * MS), 2);
    plan.probes.push(http(24 * 3600 * SECOND, SECOND));
    plan.targets[1].probe = ProbeIndex(1);
    let mut sim = Sim::new(&plan, 1, START);
    sim.set_peer(TargetIndex(1), Peer::new(Behaviour::BlackHole));
    let log = Log::run(&mut sim, START + 3600 * SECOND);
    assert_eq!(log.starts_of(0).len(), 3600);
    // Its first probe, and its grid's slot if that falls within this hour.
    assert!((1..=2).contains(&log.starts_of(1).len()));
}

/// r02976: a probe with a short interval is not starved by one that waits a day, both in one
/// prober. Two places in flight: the dead one takes its whole timeout in one of them.
#[test]
fn probe_each_second_is_not_starved_by_a_dead_one_each_day() {
    const DAY: Nanos = 24 * 3600 * SECOND;
    let mut plan = plan(2, window(2, 1), 0, http(SECOND, 500 * MS), 2);
    plan.probes.push(http(DAY, 3600 * SECOND));
    plan.targets[1].probe = ProbeIndex(1);
    let mut sim = Sim::new(&plan, 1, START);
    sim.set_peer(TargetIndex(1), Peer::new(Behaviour::BlackHole));
    let log = Log::run(&mut sim, START + 2 * DAY);
    let quick = log.starts_of(0);
    assert_eq!(quick.len() as u64, 2 * DAY / SECOND, "each second of two days");
    let gaps = quick.windows(2).map(|pair| pair[1] - pair[0]);
    assert_eq!(gaps.max(), Some(SECOND));
    assert_eq!(log.starts_of(1).len(), 2, "and the other each day");
}
