//! One probe: what its events come to.

use super::*;

#[test]
fn good_answer_is_shifted_in_and_reported_and_its_slot_closed() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    let started = bench.now;
    bench.now += 3 * MS;
    bench.event(slot, Event::Received(OK));
    let report = bench.report();
    assert_eq!(report.outcome, Outcome::Answered { status: 200, good: true });
    assert_eq!(report.line.as_bytes(), b"HTTP/1.1 200 OK");
    assert_eq!((report.started_ns, report.duration_ns), (started, 3 * MS));
    assert_eq!(report.scheduled_ns, started);
    assert_eq!(bench.history().registers, [1, 0, 0, 0, 1, 0, 1, 1]);
    assert_eq!(bench.history().average_s, 0.003);
    assert_eq!((bench.history().last_ns, bench.history().last_result_ns), (3 * MS, bench.now));
    assert_eq!(bench.prober.in_flight_count(), 1);
    bench.close(slot);
    assert_eq!(bench.prober.in_flight_count(), 0);
    assert_eq!(bench.start(), slot);
    assert_eq!(bench.now, started + SECOND);
}

#[test]
fn answer_in_pieces_is_received_piece_by_piece() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    bench.event(slot, Event::Received(&OK[..10]));
    assert_eq!(bench.poll(), Some(Command::Receive { slot }));
    assert_eq!(bench.poll(), None);
    bench.event(slot, Event::Received(&OK[10..OK.len() - 1]));
    assert_eq!(bench.poll(), Some(Command::Receive { slot }));
    bench.event(slot, Event::Received(&OK[OK.len() - 1..]));
    assert_eq!(bench.report().outcome, Outcome::Answered { status: 200, good: true });
}

#[test]
fn each_end_has_its_outcome() {
    let answer = Outcome::Answered { status: 404, good: false };
    let table = [
        (Event::Received(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), answer),
        (Event::Received(b"FROBOZ 200 OK\r\n"), Outcome::Malformed(Malformed::StatusLine)),
        (Event::Received(b""), Outcome::Empty),
        (
            Event::Failed { phase: Phase::Connect, errno: ECONNREFUSED },
            Outcome::Failed { phase: Phase::Connect, errno: ECONNREFUSED },
        ),
        (
            Event::Failed { phase: Phase::Receive, errno: 104 },
            Outcome::Failed { phase: Phase::Receive, errno: 104 },
        ),
    ];
    for (event, expected) in table {
        let mut bench = Bench::new(&plan(1, 2, HTTP));
        assert_eq!(bench.probe(event).outcome, expected);
        assert_eq!(bench.history().outcome, Some(expected));
        assert_eq!(bench.history().average_s, 0.0);
    }
}

#[test]
fn response_cut_short_is_truncated() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    bench.event(slot, Event::Received(&OK[..20]));
    assert_eq!(bench.poll(), Some(Command::Receive { slot }));
    bench.event(slot, Event::Received(b""));
    assert_eq!(bench.report().outcome, Outcome::Truncated);
}

#[test]
fn open_connection_is_good_for_tcp() {
    let mut bench = Bench::new(&plan(1, 2, ProbeKind::Tcp));
    assert_eq!(bench.probe(Event::Connected).outcome, Outcome::Connected);
    assert_eq!(bench.history().registers, [1, 0, 0, 0, 0, 0, 0, 1]);
}

#[test]
fn deadline_cancels_and_what_was_cancelled_ends_the_probe() {
    for phase in [Phase::Connect, Phase::Send, Phase::Receive] {
        let mut bench = Bench::new(&plan(1, 2, HTTP));
        let slot = bench.start();
        let started = bench.now;
        assert_eq!(bench.next(), Command::Cancel { slot });
        assert_eq!(bench.now, started + 200 * MS);
        assert_eq!(bench.prober.poll_report(), None);
        bench.failed(slot, phase, ECANCELED);
        assert_eq!(bench.report().outcome, Outcome::TimedOut { phase });
        bench.close(slot);
        assert_eq!(bench.prober.in_flight_count(), 0);
    }
}

#[test]
fn answer_wins_over_the_cancel_that_chases_it() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    assert_eq!(bench.next(), Command::Cancel { slot });
    bench.event(slot, Event::Received(OK));
    assert_eq!(bench.report().outcome, Outcome::Answered { status: 200, good: true });
    bench.close(slot);
    assert_eq!(bench.poll(), None);
}

#[test]
fn answer_that_came_before_the_loop_looked_wins_however_late_the_loop() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    bench.now += 10 * SECOND;
    bench.event(slot, Event::Received(OK));
    assert_eq!(bench.report().outcome, Outcome::Answered { status: 200, good: true });
    bench.close(slot);
}

#[test]
fn refusal_that_crosses_the_cancel_is_the_peers() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    assert_eq!(bench.next(), Command::Cancel { slot });
    bench.failed(slot, Phase::Connect, ECONNREFUSED);
    let expected = Outcome::Failed { phase: Phase::Connect, errno: ECONNREFUSED };
    assert_eq!(bench.report().outcome, expected);
}

#[test]
fn part_of_an_answer_after_the_deadline_is_a_timeout() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    assert_eq!(bench.next(), Command::Cancel { slot });
    bench.event(slot, Event::Received(&OK[..10]));
    assert_eq!(bench.report().outcome, Outcome::TimedOut { phase: Phase::Receive });
    bench.close(slot);
}

#[test]
fn receive_not_taken_at_the_deadline_goes_out_with_the_cancel_behind_it() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    bench.event(slot, Event::Received(&OK[..10]));
    bench.now += 201 * MS;
    assert_eq!(bench.poll(), Some(Command::Receive { slot }));
    assert_eq!(bench.poll(), Some(Command::Cancel { slot }));
    // The rest had been there all along.
    bench.event(slot, Event::Received(&OK[10..]));
    assert_eq!(bench.report().outcome, Outcome::Answered { status: 200, good: true });
}

#[test]
fn cancel_not_taken_when_the_answer_comes_is_dropped() {
    let mut bench = Bench::new(&plan(2, 2, HTTP));
    let (one, other) = (bench.start(), bench.start());
    bench.now += 300 * MS;
    // The first cancel is taken; the ring is full; both answers come.
    assert!(matches!(bench.poll(), Some(Command::Cancel { .. })));
    bench.event(one, Event::Received(OK));
    bench.event(other, Event::Received(OK));
    assert!(matches!(bench.poll(), Some(Command::Close { .. })));
    assert!(matches!(bench.poll(), Some(Command::Close { .. })));
    assert_eq!(bench.poll(), None);
}

#[test]
fn timeout_seen_by_a_loop_late_by_more_than_half_of_it_says_nothing() {
    for (late_ns, expected) in [
        (100 * MS, Outcome::TimedOut { phase: Phase::Connect }),
        (100 * MS + 1, Outcome::Indeterminate(LocalFault::LoopLate)),
    ] {
        let mut bench = Bench::new(&plan(1, 2, HTTP));
        let slot = bench.start();
        bench.now += 200 * MS + late_ns;
        assert_eq!(bench.poll(), Some(Command::Cancel { slot }));
        bench.failed(slot, Phase::Connect, ECANCELED);
        assert_eq!(bench.report().outcome, expected);
    }
}

#[test]
fn socket_that_cannot_be_made_is_local_and_has_nothing_to_close() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    bench.failed(slot, Phase::Socket, 24);
    let expected = Outcome::Indeterminate(LocalFault::Errno { errno: 24 });
    assert_eq!(bench.report().outcome, expected);
    assert_eq!(bench.prober.in_flight_count(), 0);
    assert_eq!(bench.poll(), None);
    assert_eq!(bench.history().registers, [0; 8]);
    assert_eq!((bench.history().last_result_ns, bench.history().indeterminate), (0, 1));
    // Both slots can still be had.
    bench.start();
    bench.now += SECOND;
    bench.poll();
    assert_eq!(bench.prober.in_flight_count(), 1);
}

#[test]
fn local_errno_shifts_nothing_and_is_counted_until_the_next_result() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    bench.probe(Event::Received(OK));
    for count in 1..=3 {
        let report = bench.probe(Event::Failed { phase: Phase::Connect, errno: 99 });
        assert_eq!(report.outcome, Outcome::Indeterminate(LocalFault::Errno { errno: 99 }));
        assert_eq!(bench.history().indeterminate, count);
        assert_eq!(bench.history().registers[HAPPY], 1);
        assert_eq!(bench.history().last_ns, 0);
    }
    bench.probe(Event::Received(OK));
    assert_eq!(bench.history().indeterminate, 0);
    assert_eq!(bench.history().registers[HAPPY], 0b11);
}
