//! Probes that behave as Varnish's, event by event.

use proptest::prelude::*;

use super::*;

fn compat_plan(compat: Compat) -> Plan {
    let mut plan = plan(1, 2, HTTP);
    plan.probes[0].compat = compat;
    plan
}

/// One probe whose answer comes in these pieces, and then the close.
fn answered(pieces: &[&[u8]]) -> (Report, Registers) {
    let mut bench = Bench::new(&compat_plan(Compat::VARNISH));
    let slot = bench.start();
    let mut command = Command::Receive { slot };
    for piece in pieces.iter().chain([&&b""[..]]) {
        bench.event(
            slot,
            match command {
                Command::Receive { .. } => Event::Received(piece),
                Command::Discard { .. } => Event::Discarded { byte_count: piece.len() as u64 },
                other => panic!("{other:?} is not how a response goes on"),
            },
        );
        if !piece.is_empty() {
            command = bench.poll().expect("the response goes on");
        }
    }
    let report = bench.report();
    bench.close(slot);
    (report, bench.history().registers)
}

#[test]
fn only_the_close_ends_a_response() {
    let (report, registers) = answered(&[OK, OK, b"and more"]);
    assert_eq!(report.outcome, Outcome::Answered { status: 200, good: true });
    assert_eq!(report.line.as_bytes(), b"HTTP/1.1 200 OK");
    assert_eq!(registers, [1, 0, 0, 0, 1, 0, 1, 1]);
}

#[test]
fn what_follows_the_first_line_is_thrown_away_and_no_sooner() {
    let whole_line = [b'x'; 127];
    let cases: [(&[u8], bool); 6] = [
        (b"HTTP/1.1 200 OK", false),
        (b"HTTP/1.1 200 OK\r", true),
        (b"HTTP/1.1 200 OK\n", true),
        (b"HTTP/1.1 200\0", true),
        (&whole_line[..126], false),
        (&whole_line, true),
    ];
    for (said, over) in cases {
        let mut bench = Bench::new(&compat_plan(Compat::VARNISH));
        let slot = bench.start();
        bench.event(slot, Event::Received(said));
        let discard = Command::Discard { slot };
        let expected = if over { discard } else { Command::Receive { slot } };
        assert_eq!(bench.poll(), Some(expected), "{}", said.escape_ascii());
    }
}

#[test]
fn bytes_that_still_come_at_the_deadline_are_told_from_silence() {
    for compat in [Compat::VARNISH, Compat::Varnish { expect_close: false }] {
        let mut bench = Bench::new(&compat_plan(compat));
        let slot = bench.start();
        bench.event(slot, Event::Received(OK));
        assert_eq!(bench.next(), Command::Discard { slot });
        assert_eq!(bench.next(), Command::Cancel { slot });
        bench.event(slot, Event::Discarded { byte_count: 3 });
        assert_eq!(bench.report().outcome, Outcome::Truncated);
        assert_eq!(bench.history().registers, [1, 0, 0, 0, 1, 1, 0, 0]);
    }
}

#[test]
fn close_that_crosses_the_cancel_counts() {
    let mut bench = Bench::new(&compat_plan(Compat::VARNISH));
    let slot = bench.start();
    bench.event(slot, Event::Received(OK));
    assert_eq!(bench.next(), Command::Discard { slot });
    assert_eq!(bench.next(), Command::Cancel { slot });
    bench.event(slot, Event::Discarded { byte_count: 0 });
    assert_eq!(bench.report().outcome, Outcome::Answered { status: 200, good: true });
}

#[test]
fn request_not_taken_in_time_is_a_short_write() {
    // Cancelled before any of it was sent, and after some was.
    for errno in [ECANCELED, 32] {
        let mut bench = Bench::new(&compat_plan(Compat::VARNISH));
        let slot = bench.start();
        assert_eq!(bench.next(), Command::Cancel { slot });
        bench.failed(slot, Phase::Send, errno);
        assert_eq!(bench.report().outcome, Outcome::TimedOut { phase: Phase::Send });
        assert_eq!(bench.history().registers, [1, 0, 0, 0, 0, 0, 0, 0]);
    }
}

#[test]
fn late_loop_says_nothing_of_a_silent_peer_and_something_of_one_that_spoke() {
    let compat = Compat::Varnish { expect_close: false };
    for (said, expected) in [
        (&b""[..], Outcome::Indeterminate(LocalFault::LoopLate)),
        (OK, Outcome::Answered { status: 200, good: true }),
    ] {
        let mut bench = Bench::new(&compat_plan(compat));
        let slot = bench.start();
        if !said.is_empty() {
            bench.event(slot, Event::Received(said));
            assert!(matches!(bench.poll(), Some(Command::Discard { .. })));
        }
        bench.now += 10 * SECOND;
        assert_eq!(bench.poll(), Some(Command::Cancel { slot }));
        bench.failed(slot, Phase::Receive, ECANCELED);
        assert_eq!(bench.report().outcome, expected);
    }
}

proptest! {
    #[test]
    fn any_split_of_the_bytes_gives_the_same_outcome(
        version in "HTTP/[0-9a-fpinxt.+-]{1,6}",
        rest in "[ \\t]{0,2}[0-9+-]{0,5}[ -~]{0,140}[\r\n]{0,2}[\x00-\x7f]{0,40}",
        mut cuts in proptest::collection::vec(0_usize..200, 0..6),
    ) {
        let bytes = (version + &rest).into_bytes();
        cuts.retain(|cut| 0 < *cut && *cut < bytes.len());
        cuts.sort_unstable();
        cuts.dedup();
        cuts.push(bytes.len());
        let mut first = 0;
        let mut pieces = vec![];
        for cut in cuts {
            pieces.push(&bytes[first..cut]);
            first = cut;
        }
        prop_assert_eq!(answered(&pieces), answered(&[&bytes]));
    }
}

/// A target with an IPv4 address and an IPv6 one.
fn dual(compat: Compat) -> Bench {
    let mut plan = compat_plan(compat);
    plan.targets[0].second = Some(Family::Ipv6);
    Bench::new(&plan)
}

/// Takes the close of the first address and the start to the second.
fn turned(bench: &mut Bench, slot: SlotIndex, connect_only: bool) {
    assert_eq!(bench.prober.poll_report(), None, "it is not over");
    bench.close(slot);
    let target = TargetIndex(0);
    assert_eq!(bench.poll(), Some(Command::StartSecond { slot, target, connect_only }));
}

#[test]
fn second_address_is_tried_when_the_first_refuses() {
    let mut bench = dual(Compat::VARNISH);
    let slot = bench.start();
    bench.failed(slot, Phase::Connect, ECONNREFUSED);
    turned(&mut bench, slot, false);
    bench.event(slot, Event::Received(OK));
    assert_eq!(bench.poll(), Some(Command::Discard { slot }));
    bench.event(slot, Event::Discarded { byte_count: 0 });
    assert_eq!(bench.report().outcome, Outcome::Answered { status: 200, good: true });
    assert_eq!(bench.history().registers, [0, 1, 0, 0, 1, 0, 1, 1]);
    bench.close(slot);
    // The next probe begins with the first address again.
    let slot = bench.start();
    bench.event(slot, Event::Received(b""));
    assert_eq!(bench.history().registers, [1, 2, 0, 0, 3, 0, 2, 2]);
}

#[test]
fn last_error_is_told_when_both_addresses_fail() {
    let mut bench = dual(Compat::VARNISH);
    let slot = bench.start();
    bench.failed(slot, Phase::Connect, ECONNREFUSED);
    turned(&mut bench, slot, false);
    bench.failed(slot, Phase::Connect, 113);
    let report = bench.report();
    assert_eq!(report.outcome, Outcome::Failed { phase: Phase::Connect, errno: 113 });
    assert_eq!(bench.history().registers, [0; 8]);
    bench.close(slot);
}

#[test]
fn two_black_holes_take_twice_the_timeout_and_a_late_connection_is_late() {
    for opens in [false, true] {
        let mut bench = dual(Compat::VARNISH);
        let slot = bench.start();
        let start = bench.now;
        assert_eq!(bench.next(), Command::Cancel { slot });
        bench.failed(slot, Phase::Connect, ECANCELED);
        turned(&mut bench, slot, true);
        if opens {
            bench.event(slot, Event::Connected);
            assert_eq!(bench.report().outcome, Outcome::OpenedLate);
            assert_eq!(bench.history().registers, [0, 1, 0, 0, 0, 0, 0, 0]);
        } else {
            assert_eq!(bench.next(), Command::Cancel { slot });
            assert_eq!(bench.now - start, 2 * 200 * MS);
            bench.failed(slot, Phase::Connect, ECANCELED);
            let report = bench.report();
            assert_eq!(report.outcome, Outcome::TimedOut { phase: Phase::Connect });
            assert_eq!(report.duration_ns, 400 * MS);
        }
        bench.close(slot);
    }
}

#[test]
fn second_address_is_not_tried_without_varnishs_behaviour() {
    let mut bench = dual(Compat::Off);
    let slot = bench.start();
    bench.failed(slot, Phase::Connect, ECONNREFUSED);
    let failed = Outcome::Failed { phase: Phase::Connect, errno: ECONNREFUSED };
    assert_eq!(bench.report().outcome, failed);
}
