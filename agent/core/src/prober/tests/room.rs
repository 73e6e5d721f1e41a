//! Slots, queues and missed slots.

use super::*;

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
    assert_eq!(bench.prober.history(third).indeterminate as usize, reports.len());
    assert_eq!(bench.prober.counters().no_slot, reports.len() as u64);
    assert!(2 <= bench.prober.counters().overlapped);
    // It kept its turn: the next free slot is its own.
    bench.failed(one, Phase::Connect, ECANCELED);
    bench.close(one);
    assert_eq!(bench.poll(), Some(Command::Start { slot: one, target: third }));
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

#[test]
fn room_that_comes_with_the_next_slot_is_in_time() {
    let mut bench = Bench::new(&plan(3, 2, HTTP));
    let (one, two) = (bench.start(), bench.start());
    while bench.now < START + SECOND {
        bench.now = bench.prober.next_wake();
        while let Some(command) = bench.poll() {
            assert!(matches!(command, Command::Cancel { .. }), "{command:?}");
        }
    }
    // The third was due and waits; the others' connections close only now, as its next slot comes.
    let third = (0..3)
        .map(TargetIndex)
        .find(|&target| bench.prober.targets[target.0 as usize].place() == Place::Waiting);
    let third = third.expect("one target waits");
    bench.now = bench.prober.targets[third.0 as usize].due_ns();
    for slot in [one, two] {
        bench.failed(slot, Phase::Connect, ECANCELED);
        bench.report();
    }
    for slot in [one, two] {
        assert_eq!(bench.prober.slots.next_wanted(), Some(Command::Close { slot }));
        bench.event(slot, Event::Closed);
    }
    assert!(matches!(bench.poll(), Some(Command::Start { target, .. }) if target == third));
    assert_eq!(bench.prober.counters().no_slot, 0);
}
