use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const MS: Nanos = TICK_NS;

#[test]
fn timer_fires_at_its_tick_and_not_before() {
    let mut wheel = Wheel::new(1, 0);
    wheel.arm(0, 5 * MS);
    assert_eq!(wheel.next_wake(), 5 * MS);
    assert_eq!(wheel.pop(5 * MS - 1), None);
    assert_eq!(wheel.pop(5 * MS), Some(0));
    assert_eq!(wheel.pop(9 * MS), None);
    assert_eq!(wheel.next_wake(), Nanos::MAX);
}

#[test]
fn time_within_a_tick_rounds_up() {
    let mut wheel = Wheel::new(1, 0);
    wheel.arm(0, 5 * MS + 1);
    assert_eq!(wheel.pop(6 * MS - 1), None);
    assert_eq!(wheel.pop(6 * MS), Some(0));
}

#[test]
fn past_time_fires_at_once() {
    let mut wheel = Wheel::new(1, 900 * MS);
    wheel.arm(0, 3 * MS);
    assert_eq!(wheel.next_wake(), 0);
    assert_eq!(wheel.pop(900 * MS), Some(0));
}

#[test]
fn disarmed_timer_does_not_fire_even_once_fired() {
    let mut wheel = Wheel::new(3, 0);
    for index in 0..3 {
        wheel.arm(index, 2 * MS);
    }
    wheel.disarm(1);
    let first = wheel.pop(2 * MS).unwrap();
    let other = 2 - first;
    // Fired, not popped yet.
    wheel.disarm(other);
    assert_eq!(wheel.pop(3 * MS), None);
    assert_eq!(wheel.armed_count(), 0);
    wheel.disarm(other);
    assert_eq!(wheel.armed_count(), 0);
}

#[test]
fn far_timers_come_down_the_levels() {
    // Just below, at and above each level's span, from a present that is no round number.
    let now = 123_456_789 * MS;
    let spans = (0..7).map(|level| 64_u64.pow(level));
    let levels = (0..5).map(|level| 1_024 * 64_u64.pow(level));
    let ahead: Vec<u64> = spans
        .chain(levels)
        .chain([15_360, 16_384])
        .flat_map(|span| [span, span + 1, 63 * span, 64 * span - 1])
        .collect();
    let mut wheel = Wheel::new(ahead.len() as u32, now);
    for (index, &ticks) in (0..).zip(&ahead) {
        wheel.arm(index, now + ticks * MS);
    }
    let mut due: Vec<(u64, u32)> = ahead.iter().copied().zip(0..).collect();
    due.sort_unstable();
    for &(ticks, _) in &due {
        // Only ever woken when the wheel asks for it.
        let mut fired = None;
        while fired.is_none() {
            let wake = wheel.next_wake();
            assert!(wake <= now + ticks * MS, "{wake} is after {ticks} ticks");
            fired = wheel.pop(wake);
            if fired.is_some() {
                assert!(wake == 0 || wake == now + ticks * MS);
            }
        }
        assert_eq!(ahead[fired.unwrap() as usize], ticks);
    }
}

#[test]
fn timer_of_a_usual_interval_stands_where_it_fires() {
    // Wherever the present lies between two spans: nobody wakes before the timer's own tick.
    for now in (0..3_000).step_by(37) {
        for ticks in [1, 999, 1_000, 5_000, 15_000] {
            let mut wheel = Wheel::new(1, now * MS);
            wheel.arm(0, (now + ticks) * MS);
            assert_eq!(wheel.next_wake(), (now + ticks) * MS, "{now} + {ticks}");
        }
    }
}

#[test]
fn loop_that_sleeps_past_many_timers_takes_them_in_their_order() {
    let ahead = [3, 900, 16_000, 17_000, 40_000, 5_000_000, 5_000_001];
    let mut wheel = Wheel::new(ahead.len() as u32, 77 * MS);
    for index in (0..ahead.len()).rev() {
        wheel.arm(index as u32, (77 + ahead[index]) * MS);
    }
    let fired: Vec<u32> = std::iter::from_fn(|| wheel.pop(10_000_000 * MS)).collect();
    assert_eq!(fired, (0..ahead.len() as u32).collect::<Vec<u32>>());
}

#[test]
fn timer_at_the_end_of_time_waits_for_it() {
    for now in [0, 77 * MS, Nanos::MAX / 2] {
        let mut wheel = Wheel::new(2, now);
        wheel.arm(0, Nanos::MAX);
        wheel.arm(1, Nanos::MAX - 2 * MS);
        assert!(wheel.next_wake() <= Nanos::MAX - 2 * MS);
        assert_eq!(wheel.pop(Nanos::MAX - 4 * MS), None);
        assert_eq!(wheel.pop(Nanos::MAX), Some(1));
        assert_eq!(wheel.pop(Nanos::MAX), None, "its tick ends after the last ns");
        wheel.disarm(0);
        assert_eq!((wheel.armed_count(), wheel.next_wake()), (0, Nanos::MAX));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Arm(u32, u64),
    Disarm(u32),
    Advance(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let span = (0_u32..40).prop_flat_map(|bits| 0..=1_u64 << bits);
    prop_oneof![
        (0..20_u32, span.clone()).prop_map(|(index, ns)| Step::Arm(index, ns)),
        (0..20_u32).prop_map(Step::Disarm),
        span.prop_map(Step::Advance),
    ]
}

proptest! {
    #[test]
    fn wheel_agrees_with_a_sorted_set(steps in proptest::collection::vec(step(), 1..200)) {
        let mut now: Nanos = 1_000_000_007;
        let mut wheel = Wheel::new(20, now);
        let mut set = BTreeSet::new();
        for step in steps {
            match step {
                Step::Arm(index, after_ns) => {
                    if !wheel.is_armed(index) {
                        wheel.arm(index, now + after_ns);
                        set.insert(((now + after_ns).div_ceil(MS) * MS, index));
                    }
                }
                Step::Disarm(index) => {
                    wheel.disarm(index);
                    set.retain(|&(_, other)| other != index);
                }
                Step::Advance(by_ns) => {
                    now += by_ns;
                    let mut fired = BTreeSet::new();
                    while let Some(index) = wheel.pop(now) {
                        fired.insert(index);
                    }
                    let due = set.iter().filter(|&&(at_ns, _)| at_ns <= now);
                    prop_assert_eq!(fired, due.map(|&(_, index)| index).collect());
                    set.retain(|&(at_ns, _)| now < at_ns);
                }
            }
            let first = set.first().map_or(Nanos::MAX, |&(at_ns, _)| at_ns);
            prop_assert!(wheel.next_wake() <= first);
            prop_assert_eq!(wheel.armed_count() as usize, set.len());
        }
    }
}
