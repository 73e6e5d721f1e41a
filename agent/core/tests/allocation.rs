//! After `Prober::new` nothing is allocated, whatever happens: counted by the allocator itself.
#![expect(unsafe_code, reason = "a counting global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use sickbay_core::command::{Command, Event, LocalFault, Outcome, Override, Phase};
use sickbay_core::plan::{
    Compat, Family, JudgeIndex, JudgeSpec, Nanos, OnUnknown, Pace, Plan, ProbeIndex, ProbeKind,
    ProbeSpec, Room, Rule, SlotIndex, TargetIndex, TargetSpec,
};
use sickbay_core::prober::Prober;

struct Counting;

thread_local! {
    /// Of this thread alone: the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is handed to the system's allocator unchanged; counting touches one cell of
// the thread, which is made without allocating and never dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from `System.alloc` or `System.realloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the pointer came from this allocator with this layout; the caller vouches for
        // the size.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MS: Nanos = 1_000_000;
const TARGETS: u32 = 500;
/// Fewer than 500 targets want, so that queues fill.
const SLOTS: u32 = 24;

fn plan() -> Plan {
    let target = |index: u32| TargetSpec {
        identity: u128::from(index) << 64 | 1,
        // Of HTTP's half one in four as Varnish's, which is never closed and so times out.
        probe: ProbeIndex(if index % 8 == 6 { 2 } else { index % 2 }),
        family: Family::Ipv6,
        second: None,
        initial: 1,
    };
    let judge = |index| JudgeSpec {
        target: TargetIndex(index),
        rule: Rule::Window { window: 4, threshold: 2 },
        on_unknown: OnUnknown::Sick,
    };
    let http = ProbeKind::http(200);
    let probe = |kind, compat| ProbeSpec {
        interval_ns: 100 * MS,
        timeout_ns: 50 * MS,
        kind,
        pace: Pace::STEADY,
        compat,
    };
    Plan {
        probes: vec![
            probe(http.clone(), Compat::Off),
            probe(ProbeKind::Tcp, Compat::Off),
            probe(http, Compat::VARNISH),
        ],
        targets: (0..TARGETS).map(target).collect(),
        judges: (0..TARGETS).map(judge).collect(),
        slot_count: SLOTS,
        phase_seed: 3,
        past: Vec::new(),
        room: Room { targets: 8, judges: 8 },
    }
}

/// What a slot was told to do, and when.
#[derive(Clone, Copy)]
enum Told {
    Nothing,
    Start(TargetIndex),
    Receive,
    Discard,
    Cancel,
    Close,
}

/// Answers what a slot was told, each target in its own way; false when it never answers.
fn answer(prober: &mut Prober, slot: SlotIndex, told: Told, now: Nanos) -> bool {
    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    let event = match told {
        Told::Nothing => return false,
        Told::Close => Event::Closed,
        Told::Cancel => Event::Failed { phase: Phase::Connect, errno: 125 },
        Told::Discard => Event::Discarded { byte_count: 5 },
        Told::Receive => Event::Received(b"hello"),
        // Every eighth refuses, one is this host's fault, one never answers; TCP and HTTP take
        // turns among the rest, HTTP in two pieces.
        // Of the guests every second one never answers, the others refuse.
        Told::Start(TargetIndex(index)) if TARGETS <= index && index % 2 == 0 => return false,
        Told::Start(TargetIndex(index)) if TARGETS <= index => {
            Event::Failed { phase: Phase::Connect, errno: 111 }
        }
        Told::Start(TargetIndex(index)) => match index % 8 {
            0 => Event::Failed { phase: Phase::Connect, errno: 111 },
            1 => Event::Failed { phase: Phase::Socket, errno: 24 },
            2 => return false,
            3 | 5 | 7 => Event::Connected,
            _ => Event::Received(HEAD),
        },
    };
    prober.on_event(slot, event, now);
    true
}

/// Eight guests: one comes or goes every few turns.
fn come_and_go(
    prober: &mut Prober,
    guests: &mut [Option<(TargetIndex, JudgeIndex)>; 8],
    turn: u64,
    now: Nanos,
) {
    if !turn.is_multiple_of(13) {
        return;
    }
    let number = turn / 13;
    let guest = &mut guests[(number % 8) as usize];
    if let Some((target, judge)) = guest.take() {
        prober.remove_judge(judge, now);
        return prober.remove_target(target, now);
    }
    let rule = Rule::Window { window: 4, threshold: 2 };
    let spec = TargetSpec {
        identity: u128::from(number) << 64 | 2,
        probe: ProbeIndex((number % 3) as u32),
        family: Family::Ipv4,
        second: None,
        initial: 2,
    };
    // One that still waits for its end may be in the way.
    if let Some(target) = prober.add_target(&spec, rule, now) {
        let spec = JudgeSpec { target, rule, on_unknown: OnUnknown::Keep };
        *guest = prober.add_judge(&spec, now).map(|judge| (target, judge));
        assert!(guest.is_some(), "as many judges as targets");
    }
}

#[test]
fn nothing_is_allocated_after_new() {
    let mut now = 1_000_000 * MS;
    let plan = plan();
    let mut prober = Prober::new(&plan, now);
    let mut told = [Told::Nothing; SLOTS as usize];
    let mut outcomes = [0_u32; 6];
    let mut guests = [None; 8];
    let before = ALLOCATIONS.get();
    for turn in 0..40_000_u64 {
        now += MS;
        for slot in 0..SLOTS {
            let place = &mut told[slot as usize];
            if answer(&mut prober, SlotIndex(slot), *place, now) {
                *place = Told::Nothing;
            }
        }
        while let Some(command) = prober.poll_command(now) {
            let (slot, what) = match command {
                Command::Start { slot, target } | Command::StartSecond { slot, target, .. } => {
                    (slot, Told::Start(target))
                }
                Command::Receive { slot } => (slot, Told::Receive),
                Command::Discard { slot } => (slot, Told::Discard),
                Command::Cancel { slot } => (slot, Told::Cancel),
                Command::Close { slot } => (slot, Told::Close),
            };
            told[slot.0 as usize] = what;
        }
        if turn % 97 == 0 {
            let words = [Override::Healthy, Override::Sick, Override::Auto];
            let judge = JudgeIndex((turn % u64::from(TARGETS)) as u32);
            prober.on_override(judge, words[(turn % 3) as usize], now);
        }
        come_and_go(&mut prober, &mut guests, turn, now);
        while let Some(report) = prober.poll_report() {
            outcomes[match report.outcome {
                Outcome::Connected => 0,
                Outcome::Answered { .. } => 1,
                Outcome::Failed { .. } => 2,
                Outcome::TimedOut { .. } => 3,
                Outcome::Indeterminate(LocalFault::Errno { .. }) => 4,
                Outcome::Indeterminate(_) => 5,
                other => panic!("{other:?} was not asked for"),
            }] += 1;
        }
        while prober.poll_change().is_some() {}
    }
    let allocations = ALLOCATIONS.get() - before;
    // Every kind of end came up, so every path was gone.
    assert!(outcomes.iter().all(|&count| 1000 < count), "{outcomes:?}");
    assert_eq!(allocations, 0);
}
