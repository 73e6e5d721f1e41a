//! Content, banners, and intervals that follow what is found.

use super::*;
use crate::content::{Content, Lack};
use crate::pattern::Pattern;
use crate::statuses::Statuses;

const NOT_FOUND: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";

/// One target that is healthy by 2 of 3, every second; with what `pace` says.
fn paced(pace: Pace) -> Bench {
    let mut plan = plan(1, 2, HTTP);
    plan.probes[0].pace = pace;
    Bench::new(&plan)
}

/// The moments at which probes with these answers were due, after the first one.
fn moments(bench: &mut Bench, answers: &[&[u8]]) -> Vec<Nanos> {
    answers.iter().map(|answer| bench.probe(Event::Received(answer)).scheduled_ns).collect()
}

fn gaps(moments: &[Nanos]) -> Vec<Nanos> {
    moments.windows(2).map(|pair| (pair[1] - pair[0]) / MS).collect()
}

#[test]
fn probe_hurries_while_the_last_result_disagrees_and_then_goes_back_to_its_grid() {
    let mut bench = paced(Pace { fast_ns: Some(100 * MS), ..Pace::STEADY });
    // Warming, then healthy; one bad result that changes nothing; good again.
    let due = moments(&mut bench, &[OK, OK, OK, NOT_FOUND, OK, OK, OK]);
    let gaps = gaps(&due);
    assert_eq!(gaps[0], 100, "no verdict yet");
    assert!((100..1100).contains(&gaps[1]), "back to the grid: {gaps:?}");
    assert_eq!(gaps[2], 1000, "calm");
    assert_eq!(gaps[3], 100, "bad, but still healthy");
    assert!((100..1100).contains(&gaps[4]), "back to the grid: {gaps:?}");
    assert_eq!(gaps[5], 1000, "calm");
    // It is the grid it came from.
    assert_eq!((due[6] - due[2]) % SECOND, 0);
}

#[test]
fn probe_slows_down_while_its_target_is_sick() {
    let mut bench = paced(Pace { sick_ns: Some(4 * SECOND), ..Pace::STEADY });
    let bad: &[&[u8]] = &[NOT_FOUND, NOT_FOUND, NOT_FOUND, NOT_FOUND, OK, OK, OK, OK];
    let gaps = gaps(&moments(&mut bench, bad));
    assert_eq!(gaps[0], 1000, "warming");
    assert!((1000..5000).contains(&gaps[1]), "on to the slow grid: {gaps:?}");
    assert_eq!(gaps[2], 4000, "sick");
    assert_eq!(gaps[3], 4000, "sick");
    // Without a fast interval a result that disagrees asks for the plain one.
    assert!((1000..2000).contains(&gaps[4]), "good, but still sick: {gaps:?}");
    assert_eq!(&gaps[5..], [1000, 1000]);
}

#[test]
fn fast_probe_that_outlasts_its_interval_does_not_overlap() {
    let mut bench = paced(Pace { fast_ns: Some(50 * MS), ..Pace::STEADY });
    moments(&mut bench, &[OK, OK, OK]);
    let slot = bench.start();
    let started_ns = bench.now;
    bench.now += 170 * MS;
    assert_eq!(bench.poll(), None);
    bench.event(slot, Event::Received(NOT_FOUND));
    bench.report();
    bench.close(slot);
    let next = bench.start();
    assert_eq!(bench.now - started_ns, 200 * MS);
    bench.event(next, Event::Received(OK));
}

#[test]
fn jitter_moves_each_probe_and_keeps_the_average_rate() {
    let mut steady = paced(Pace::STEADY);
    let grid = moments(&mut steady, &[OK; 200]);
    let mut bench = paced(Pace { jitter_percent: 20, ..Pace::STEADY });
    let due = moments(&mut bench, &[OK; 200]);
    let late: Vec<_> = due.iter().zip(&grid).map(|(due, slot)| due - slot).collect();
    assert!(late.iter().all(|late| *late < 200 * MS), "{late:?}");
    let sum: Nanos = late.iter().sum();
    // 200 draws below 200 ms: 100 ms on average, and not all the same.
    assert!((80..120).contains(&(sum / 200 / MS)), "{}", sum / 200 / MS);
    assert!(late.windows(2).any(|pair| pair[0] != pair[1]));
    let mut again = paced(Pace { jitter_percent: 20, ..Pace::STEADY });
    assert_eq!(moments(&mut again, &[OK; 200]), due);
}

#[test]
fn every_expected_status_is_good_and_no_other() {
    let expected = Statuses::only(200).with(300, 399);
    let kind = ProbeKind::Http { expected, head: false, content: Content::ANY };
    let mut bench = Bench::new(&plan(1, 2, kind));
    for (answer, status, good) in [
        (OK, 200, true),
        (NOT_FOUND, 404, false),
        (b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\n\r\n", 301, true),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, false),
    ] {
        let outcome = bench.probe(Event::Received(answer)).outcome;
        assert_eq!(outcome, Outcome::Answered { status, good });
    }
}

#[test]
fn response_without_what_it_must_hold_is_bad() {
    let content = Content { body: Pattern::new(b"ok"), ..Content::ANY };
    let kind = ProbeKind::Http { expected: Statuses::only(200), head: false, content };
    let mut bench = Bench::new(&plan(1, 2, kind));
    let good = Outcome::Answered { status: 200, good: true };
    assert_eq!(bench.probe(Event::Received(OK)).outcome, good);
    let other = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno";
    let lacking = Outcome::Lacking { status: 200, what: Lack::Body };
    assert_eq!(bench.probe(Event::Received(other)).outcome, lacking);
    assert_eq!(bench.history().registers, [3, 0, 0, 0, 3, 0, 3, 2]);
    // With another status that is what is told.
    let not_found = Outcome::Answered { status: 404, good: false };
    assert_eq!(bench.probe(Event::Received(NOT_FOUND)).outcome, not_found);
}

#[test]
fn banner_is_awaited_over_several_receives() {
    let expected = Pattern::new(b"+PONG").expect("a pattern");
    let mut bench = Bench::new(&plan(1, 2, ProbeKind::Banner { expected, bytes_max: 8 }));
    let slot = bench.start();
    bench.event(slot, Event::Received(b"+PO"));
    assert_eq!(bench.poll(), Some(Command::Receive { slot }));
    bench.event(slot, Event::Received(b"NG\r\n"));
    let report = bench.report();
    assert_eq!(report.outcome, Outcome::Matched);
    bench.close(slot);
    assert_eq!(bench.history().registers, [1, 0, 0, 0, 1, 0, 1, 1]);
    assert_eq!(bench.probe(Event::Received(b"-ERR 123")).outcome, Outcome::Mismatched);
    assert_eq!(bench.probe(Event::Received(b"-ERR +PONG")).outcome, Outcome::Mismatched);
    assert_eq!(bench.probe(Event::Received(b"")).outcome, Outcome::Empty);
}
