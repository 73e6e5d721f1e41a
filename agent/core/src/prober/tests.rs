use super::*;
use crate::command::{ChangeCause, Malformed};
use crate::plan::{Family, JudgeSpec, OnUnknown, ProbeIndex, Rule, TargetSpec};

const MS: Nanos = 1_000_000;
const SECOND: Nanos = 1000 * MS;
/// Where the virtual clock of these tests starts.
const START: Nanos = 1000 * SECOND;
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ECANCELED: i32 = 125;
const ECONNREFUSED: i32 = 111;

const HTTP: ProbeKind = ProbeKind::Http {
    expected_status: 200,
    head: false,
};

/// Targets with one judge each (2 of 3, nothing assumed), an interval of 1 s, a timeout of 200 ms.
fn plan(target_count: u32, slot_count: u32, kind: ProbeKind) -> Plan {
    let rule = Rule::Window {
        window: 3,
        threshold: 2,
    };
    let target = |index| TargetSpec {
        identity: u128::from(index),
        probe: ProbeIndex(0),
        family: Family::Ipv4,
        initial: 0,
    };
    let judge = |index| JudgeSpec {
        target: TargetIndex(index),
        rule,
        on_unknown: OnUnknown::Keep,
    };
    Plan {
        probes: vec![ProbeSpec {
            interval_ns: SECOND,
            timeout_ns: 200 * MS,
            kind,
        }],
        targets: (0..target_count).map(target).collect(),
        judges: (0..target_count).map(judge).collect(),
        slot_count,
        phase_seed: 1,
    }
}

/// A prober with a clock and what it said.
struct Bench {
    prober: Prober,
    now: Nanos,
}

impl Bench {
    fn new(plan: &Plan) -> Self {
        Self {
            prober: Prober::new(plan, START),
            now: START,
        }
    }

    fn poll(&mut self) -> Option<Command> {
        self.prober.poll_command(self.now)
    }

    /// Moves on to the next command and takes it.
    #[track_caller]
    fn next(&mut self) -> Command {
        for _ in 0..1000 {
            if let Some(command) = self.poll() {
                return command;
            }
            self.now = self.prober.next_wake();
        }
        panic!("no command comes");
    }

    /// Moves on to the next start and takes it.
    #[track_caller]
    fn start(&mut self) -> SlotIndex {
        match self.next() {
            Command::Start { slot, .. } => slot,
            other => panic!("{other:?} is no start"),
        }
    }

    fn event(&mut self, slot: SlotIndex, event: Event<'_>) {
        self.prober.on_event(slot, event, self.now);
    }

    fn failed(&mut self, slot: SlotIndex, phase: Phase, errno: i32) {
        self.event(slot, Event::Failed { phase, errno });
    }

    /// The one report there must be.
    #[track_caller]
    fn report(&mut self) -> Report {
        let report = self.prober.poll_report().expect("a report");
        assert_eq!(self.prober.poll_report(), None);
        report
    }

    /// Takes the close and answers it.
    #[track_caller]
    fn close(&mut self, slot: SlotIndex) {
        assert_eq!(self.poll(), Some(Command::Close { slot }));
        self.event(slot, Event::Closed);
    }

    /// One whole probe that ends so at once.
    #[track_caller]
    fn probe(&mut self, event: Event<'_>) -> Report {
        let slot = self.start();
        self.event(slot, event);
        let report = self.report();
        self.close(slot);
        report
    }

    fn history(&self) -> &History {
        self.prober.history(TargetIndex(0))
    }

    fn verdict(&self) -> Verdict {
        self.prober.verdict(JudgeIndex(0))
    }

    fn changes(&mut self) -> Vec<Change> {
        std::iter::from_fn(|| self.prober.poll_change()).collect()
    }
}

#[test]
fn good_answer_is_shifted_in_and_reported_and_its_slot_closed() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    let started = bench.now;
    bench.now += 3 * MS;
    bench.event(slot, Event::Received(OK));
    let report = bench.report();
    assert_eq!(
        report.outcome,
        Outcome::Answered {
            status: 200,
            good: true
        }
    );
    assert_eq!(report.line.as_bytes(), b"HTTP/1.1 200 OK");
    assert_eq!((report.started_ns, report.duration_ns), (started, 3 * MS));
    assert_eq!(report.scheduled_ns, started);
    assert_eq!(bench.history().registers, [1, 0, 0, 0, 1, 0, 1, 1]);
    assert_eq!(bench.history().average_s, 0.003);
    assert_eq!(
        (bench.history().last_ns, bench.history().last_result_ns),
        (3 * MS, bench.now)
    );
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
    assert_eq!(
        bench.report().outcome,
        Outcome::Answered {
            status: 200,
            good: true
        }
    );
}

#[test]
fn each_end_has_its_outcome() {
    let answer = Outcome::Answered {
        status: 404,
        good: false,
    };
    let table = [
        (
            Event::Received(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"),
            answer,
        ),
        (
            Event::Received(b"FROBOZ 200 OK\r\n"),
            Outcome::Malformed(Malformed::StatusLine),
        ),
        (Event::Received(b""), Outcome::Empty),
        (
            Event::Failed {
                phase: Phase::Connect,
                errno: ECONNREFUSED,
            },
            Outcome::Failed {
                phase: Phase::Connect,
                errno: ECONNREFUSED,
            },
        ),
        (
            Event::Failed {
                phase: Phase::Receive,
                errno: 104,
            },
            Outcome::Failed {
                phase: Phase::Receive,
                errno: 104,
            },
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
    assert_eq!(
        bench.report().outcome,
        Outcome::Answered {
            status: 200,
            good: true
        }
    );
    bench.close(slot);
    assert_eq!(bench.poll(), None);
}

#[test]
fn answer_that_came_before_the_loop_looked_wins_however_late_the_loop() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    bench.now += 10 * SECOND;
    bench.event(slot, Event::Received(OK));
    assert_eq!(
        bench.report().outcome,
        Outcome::Answered {
            status: 200,
            good: true
        }
    );
    bench.close(slot);
}

#[test]
fn refusal_that_crosses_the_cancel_is_the_peers() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    assert_eq!(bench.next(), Command::Cancel { slot });
    bench.failed(slot, Phase::Connect, ECONNREFUSED);
    let expected = Outcome::Failed {
        phase: Phase::Connect,
        errno: ECONNREFUSED,
    };
    assert_eq!(bench.report().outcome, expected);
}

#[test]
fn part_of_an_answer_after_the_deadline_is_a_timeout() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let slot = bench.start();
    assert_eq!(bench.next(), Command::Cancel { slot });
    bench.event(slot, Event::Received(&OK[..10]));
    assert_eq!(
        bench.report().outcome,
        Outcome::TimedOut {
            phase: Phase::Receive
        }
    );
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
    assert_eq!(
        bench.report().outcome,
        Outcome::Answered {
            status: 200,
            good: true
        }
    );
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
        (
            100 * MS,
            Outcome::TimedOut {
                phase: Phase::Connect,
            },
        ),
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
    assert_eq!(
        (
            bench.history().last_result_ns,
            bench.history().indeterminate
        ),
        (0, 1)
    );
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
        let report = bench.probe(Event::Failed {
            phase: Phase::Connect,
            errno: 99,
        });
        assert_eq!(
            report.outcome,
            Outcome::Indeterminate(LocalFault::Errno { errno: 99 })
        );
        assert_eq!(bench.history().indeterminate, count);
        assert_eq!(bench.history().registers[HAPPY], 1);
        assert_eq!(bench.history().last_ns, 0);
    }
    bench.probe(Event::Received(OK));
    assert_eq!(bench.history().indeterminate, 0);
    assert_eq!(bench.history().registers[HAPPY], 0b11);
}

#[test]
fn slot_is_used_again_only_once_it_is_closed() {
    let mut bench = Bench::new(&plan(3, 2, HTTP));
    let (one, two) = (bench.start(), bench.start());
    assert_ne!(one, two);
    bench.event(one, Event::Received(OK));
    bench.now += 2 * SECOND;
    bench.event(two, Event::Received(OK));
    assert!(matches!(bench.poll(), Some(Command::Close { .. })));
    assert!(matches!(bench.poll(), Some(Command::Close { .. })));
    assert_eq!(bench.poll(), None);
    bench.event(two, Event::Closed);
    assert!(matches!(bench.poll(), Some(Command::Start { slot, .. }) if slot == two));
    assert_eq!(bench.poll(), None);
}

#[test]
fn first_verdict_comes_when_a_faultless_backend_would_have_it() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    assert_eq!(
        (bench.verdict(), bench.prober.warming_count()),
        (Verdict::Warming, 1)
    );
    bench.probe(Event::Received(OK));
    assert_eq!(bench.verdict(), Verdict::Warming);
    assert_eq!(bench.changes(), []);
    bench.probe(Event::Received(b""));
    assert_eq!(
        (bench.verdict(), bench.prober.warming_count()),
        (Verdict::Sick, 0)
    );
    let change = Change {
        judge: JudgeIndex(0),
        verdict: Verdict::Sick,
        before: Verdict::Warming,
        unknown: false,
        cause: ChangeCause::Probe,
    };
    assert_eq!(bench.changes(), [change]);
    bench.probe(Event::Received(OK));
    assert_eq!(bench.verdict(), Verdict::Healthy);
}

#[test]
fn indeterminate_probes_do_not_count_towards_the_first_verdict() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    for _ in 0..5 {
        bench.probe(Event::Failed {
            phase: Phase::Connect,
            errno: 99,
        });
    }
    assert_eq!(bench.verdict(), Verdict::Warming);
}

#[test]
fn override_wins_at_once_and_the_register_when_it_ends() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    let change = |verdict, before, cause| Change {
        judge: JudgeIndex(0),
        verdict,
        before,
        unknown: false,
        cause,
    };
    bench
        .prober
        .on_override(JudgeIndex(0), Override::Healthy, bench.now);
    assert_eq!(
        (bench.verdict(), bench.prober.warming_count()),
        (Verdict::Healthy, 0)
    );
    let told = change(Verdict::Healthy, Verdict::Warming, ChangeCause::Override);
    assert_eq!(bench.changes(), [told]);
    // Probing goes on underneath, and says nothing.
    bench.probe(Event::Received(b""));
    bench.probe(Event::Received(b""));
    assert_eq!(
        (bench.verdict(), bench.changes()),
        (Verdict::Healthy, vec![])
    );
    bench
        .prober
        .on_override(JudgeIndex(0), Override::Auto, bench.now);
    let told = change(Verdict::Sick, Verdict::Healthy, ChangeCause::Override);
    assert_eq!(bench.changes(), [told]);
    // To the same verdict: no change.
    bench
        .prober
        .on_override(JudgeIndex(0), Override::Sick, bench.now);
    assert_eq!(bench.changes(), []);
    assert_eq!(bench.prober.override_of(JudgeIndex(0)), Override::Sick);
    bench
        .prober
        .on_override(JudgeIndex(0), Override::Auto, bench.now);
    bench.probe(Event::Received(OK));
    bench.probe(Event::Received(OK));
    let told = change(Verdict::Healthy, Verdict::Sick, ChangeCause::Probe);
    assert_eq!(bench.changes(), [told]);
}

#[test]
fn override_taken_back_while_warming_is_warming_again() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    bench
        .prober
        .on_override(JudgeIndex(0), Override::Sick, bench.now);
    assert_eq!(
        (bench.verdict(), bench.prober.warming_count()),
        (Verdict::Sick, 0)
    );
    bench
        .prober
        .on_override(JudgeIndex(0), Override::Auto, bench.now);
    assert_eq!(
        (bench.verdict(), bench.prober.warming_count()),
        (Verdict::Warming, 1)
    );
    // Nobody took the change in between: one is told, from the first state to the last.
    let [change] = bench.changes()[..] else {
        panic!("one change")
    };
    assert_eq!(
        (change.before, change.verdict),
        (Verdict::Warming, Verdict::Warming)
    );
}

#[test]
fn silence_makes_unknown_and_the_policy_decides() {
    for (policy, silent) in [
        (OnUnknown::Keep, Verdict::Healthy),
        (OnUnknown::Sick, Verdict::Sick),
    ] {
        let mut plan = plan(1, 2, HTTP);
        plan.judges[0].on_unknown = policy;
        let mut bench = Bench::new(&plan);
        bench.probe(Event::Received(OK));
        bench.probe(Event::Received(OK));
        bench.changes();
        let heard = bench.now;
        while !bench.history().unknown {
            assert_eq!(bench.verdict(), Verdict::Healthy);
            let slot = bench.start();
            bench.failed(slot, Phase::Connect, 99);
            bench.report();
            bench.close(slot);
        }
        // 30 s is more than ten intervals, and is seen at the target's next slot.
        assert_eq!(bench.now - heard, 30 * SECOND);
        assert!(bench.history().unknown);
        assert_eq!(bench.verdict(), silent);
    }
}

#[test]
fn silence_and_its_end_are_told_even_where_the_verdict_holds() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    bench.probe(Event::Received(OK));
    bench.probe(Event::Received(OK));
    bench.changes();
    let mut silences = vec![];
    for _ in 0..40 {
        bench.probe(Event::Failed {
            phase: Phase::Connect,
            errno: 99,
        });
        silences.extend(bench.changes());
    }
    let change = |unknown, cause| Change {
        judge: JudgeIndex(0),
        verdict: Verdict::Healthy,
        before: Verdict::Healthy,
        unknown,
        cause,
    };
    assert_eq!(silences, [change(true, ChangeCause::Silence)]);
    bench.probe(Event::Received(OK));
    assert_eq!(bench.changes(), [change(false, ChangeCause::Probe)]);
    assert!(!bench.history().unknown);
}

#[test]
fn silence_from_the_very_start_is_noticed() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    while !bench.history().unknown {
        bench.probe(Event::Failed {
            phase: Phase::Connect,
            errno: 99,
        });
        assert!(bench.now - START <= 32 * SECOND);
    }
    assert!(30 * SECOND <= bench.now - START);
    assert_eq!(bench.verdict(), Verdict::Warming);
}

#[test]
fn one_register_serves_judges_with_different_rules() {
    let mut plan = plan(1, 2, HTTP);
    let judge = |rule| JudgeSpec {
        target: TargetIndex(0),
        rule,
        on_unknown: OnUnknown::Keep,
    };
    plan.judges = vec![
        judge(Rule::Window {
            window: 1,
            threshold: 1,
        }),
        judge(Rule::Consecutive { fall: 2, rise: 2 }),
    ];
    let mut bench = Bench::new(&plan);
    let mut seen = vec![];
    for event in [OK, OK, b"", OK, b"", b""] {
        bench.probe(Event::Received(event));
        seen.push([JudgeIndex(0), JudgeIndex(1)].map(|judge| bench.prober.verdict(judge)));
    }
    let (healthy, sick, warming) = (Verdict::Healthy, Verdict::Sick, Verdict::Warming);
    let expected = [
        [healthy, warming],
        [healthy, healthy],
        [sick, healthy],
        [healthy, healthy],
        [sick, healthy],
        [sick, sick],
    ];
    assert_eq!(seen, expected);
}

#[test]
fn initial_is_assumed_and_does_not_bias_the_average() {
    let mut plan = plan(1, 2, HTTP);
    plan.judges[0].rule = Rule::Window {
        window: 4,
        threshold: 3,
    };
    plan.targets[0].initial = 2;
    let mut bench = Bench::new(&plan);
    assert_eq!(bench.history().registers, [0, 0, 0, 0, 0, 0, 0, 0b11]);
    let slot = bench.start();
    bench.now += 4 * MS;
    bench.event(slot, Event::Received(OK));
    // Varnish would say 4 ms / 3.
    assert_eq!(bench.history().average_s, 0.004);
    assert_eq!(bench.verdict(), Verdict::Healthy);
    assert_eq!(bench.history().registers, [1, 0, 0, 0, 1, 0, 1, 0b111]);
}

#[test]
fn initial_at_the_threshold_is_usable_before_any_probe() {
    let mut plan = plan(1, 2, HTTP);
    plan.targets[0].initial = 9;
    let bench = Bench::new(&plan);
    assert_eq!(
        (bench.verdict(), bench.prober.warming_count()),
        (Verdict::Healthy, 0)
    );
    assert_eq!(bench.history().registers[HAPPY], 0b11);
}

#[test]
fn target_without_room_until_its_next_slot_is_reported_and_shifts_nothing() {
    let mut bench = Bench::new(&plan(3, 2, HTTP));
    let (one, two) = (bench.start(), bench.start());
    // The engine is stuck: nothing is answered, not even the cancels.
    let mut reports = vec![];
    while bench.now < START + 3 * SECOND {
        bench.now = bench.prober.next_wake().max(bench.now + MS);
        while bench.poll().is_some() {}
        reports.extend(std::iter::from_fn(|| bench.prober.poll_report()));
    }
    assert!(2 <= reports.len());
    let third = reports[0].target;
    for pair in reports.windows(2) {
        assert_eq!(pair[1].scheduled_ns - pair[0].scheduled_ns, SECOND);
    }
    for report in &reports {
        assert_eq!(report.target, third);
        assert_eq!(report.outcome, Outcome::Indeterminate(LocalFault::NoSlot));
    }
    assert_eq!(bench.prober.history(third).registers, [0; 8]);
    assert_eq!(
        bench.prober.history(third).indeterminate as usize,
        reports.len()
    );
    assert_eq!(bench.prober.counters().no_slot, reports.len() as u64);
    assert!(2 <= bench.prober.counters().overlapped);
    // It kept its turn: the next free slot is its own.
    bench.failed(one, Phase::Connect, ECANCELED);
    bench.close(one);
    assert_eq!(
        bench.poll(),
        Some(Command::Start {
            slot: one,
            target: third
        })
    );
    bench.failed(two, Phase::Connect, ECANCELED);
}

#[test]
fn loop_that_slept_probes_once_and_counts_the_slots_it_missed() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    bench.probe(Event::Received(OK));
    let last = bench.now;
    bench.now = last + 5 * SECOND + 500 * MS;
    let slot = bench.start();
    assert_eq!(bench.now, last + 5 * SECOND + 500 * MS);
    assert_eq!(bench.prober.counters().slept_through, 4);
    bench.event(slot, Event::Received(OK));
    assert_eq!(bench.report().scheduled_ns, last + SECOND);
    bench.close(slot);
    bench.start();
    assert_eq!(bench.now, last + 6 * SECOND);
}

#[test]
fn reports_that_nobody_takes_stop_new_starts_and_are_not_lost() {
    let mut bench = Bench::new(&plan(8, 2, HTTP));
    for _ in 0..50 {
        bench.now += 100 * MS;
        while let Some(command) = bench.poll() {
            match command {
                Command::Start { slot, .. } => bench.event(slot, Event::Received(OK)),
                Command::Close { slot } => bench.event(slot, Event::Closed),
                other => panic!("{other:?}"),
            }
        }
    }
    let started = bench.prober.counters().started;
    assert_eq!(started, 4, "twice the slots");
    let reports: Vec<Report> = std::iter::from_fn(|| bench.prober.poll_report()).collect();
    assert_eq!(reports.len(), 4);
    assert!(bench.poll().is_some());
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "slot 1 is Free and was told Closed")]
fn event_that_fits_no_command_stops_a_debug_build() {
    let mut bench = Bench::new(&plan(1, 2, HTTP));
    bench.event(SlotIndex(1), Event::Closed);
}
