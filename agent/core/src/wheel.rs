//! Timers: a hierarchical timing wheel over indices.
//!
//! Eight levels of 64 places, ticks of 1 ms: a timer stands on the level of the highest digit (base
//! 64) in which its tick differs from the present one, and comes down a level each time that digit
//! is reached. Insert and remove are O(1); a timer is moved at most once a level. Lists are
//! intrusive, over indices below a capacity given at the start: nothing is allocated later.
//!
//! A timer never fires early, and at most one tick late; one whose time is a whole number of ticks
//! fires exactly then.

use crate::plan::Nanos;

/// Length of a tick.
pub const TICK_NS: Nanos = 1_000_000;

const DIGIT_BITS: u32 = 6;
const PLACES: usize = 1 << DIGIT_BITS;
/// 64^8 ticks are 8,900 years: the highest level never wraps.
const LEVELS: usize = 8;
/// The list of timers that have fired and were not taken yet comes after all places.
const FIRED: u16 = (LEVELS * PLACES) as u16;
/// Not armed.
const UNARMED: u16 = u16::MAX;
/// End of a list.
const NONE: u32 = u32::MAX;

/// A timing wheel; timers are indices, each armed at most once.
#[derive(Debug)]
pub struct Wheel {
    now_tick: u64,
    heads: [u32; LEVELS * PLACES + 1],
    /// Last of the fired list, which is first in, first out.
    fired_tail: u32,
    /// Which places of a level hold timers.
    occupied: [u64; LEVELS],
    /// Up to the highest index that was armed yet, in memory for all: those of targets that may come
    /// take none before.
    timers: Vec<Timer>,
    armed_count: u32,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    tick: u64,
    next: u32,
    previous: u32,
    list: u16,
}

impl Timer {
    const UNARMED: Self = Self { tick: 0, next: NONE, previous: NONE, list: UNARMED };
}

impl Wheel {
    /// A wheel for the timers 0 .. `capacity`, none armed, at `now`.
    #[must_use]
    pub fn new(capacity: u32, now: Nanos) -> Self {
        Self {
            now_tick: now / TICK_NS,
            heads: [NONE; LEVELS * PLACES + 1],
            fired_tail: NONE,
            occupied: [0; LEVELS],
            timers: Vec::with_capacity(capacity as usize),
            armed_count: 0,
        }
    }

    /// Arms a timer that is not armed. A time that has passed fires at the next [`Self::pop`].
    pub fn arm(&mut self, index: u32, at_ns: Nanos) {
        debug_assert!(!self.is_armed(index), "timer {index} is armed already");
        if self.timers.len() <= index as usize {
            assert!((index as usize) < self.timers.capacity(), "timer {index} has no place");
            self.timers.resize(index as usize + 1, Timer::UNARMED);
        }
        self.timers[index as usize].tick = at_ns.div_ceil(TICK_NS);
        self.link(index);
        self.armed_count += 1;
    }

    /// Disarms a timer; no harm if it is not armed.
    pub fn disarm(&mut self, index: u32) {
        if self.is_armed(index) {
            self.unlink(index);
            self.armed_count -= 1;
        }
    }

    /// Whether a timer is armed; one that fired is until it is popped.
    #[must_use]
    pub fn is_armed(&self, index: u32) -> bool {
        self.timers.get(index as usize).is_some_and(|timer| timer.list != UNARMED)
    }

    /// Timers armed.
    #[must_use]
    pub fn armed_count(&self) -> u32 {
        self.armed_count
    }

    /// Takes the next timer whose time has come, and disarms it.
    pub fn pop(&mut self, now: Nanos) -> Option<u32> {
        if self.heads[usize::from(FIRED)] == NONE {
            self.advance(now / TICK_NS);
        }
        let index = self.heads[usize::from(FIRED)];
        if index == NONE {
            return None;
        }
        self.unlink(index);
        self.armed_count -= 1;
        Some(index)
    }

    /// When to call [`Self::pop`] next: never later than the next timer, at times earlier (timers
    /// far off come nearer level by level); `Nanos::MAX` when none is armed.
    #[must_use]
    pub fn next_wake(&self) -> Nanos {
        if self.heads[usize::from(FIRED)] != NONE {
            return 0;
        }
        match self.next_place() {
            Some((level, place)) => self.place_tick(level, place).saturating_mul(TICK_NS),
            None => Nanos::MAX,
        }
    }

    /// Moves to `tick`, firing what is due by then. Stops at the first tick that fires any, so that
    /// timers fire in the order of their ticks.
    fn advance(&mut self, tick: u64) {
        while let Some((level, place)) = self.next_place() {
            let start = self.place_tick(level, place);
            if tick < start {
                break;
            }
            self.now_tick = start;
            self.empty(level, place);
            if self.heads[usize::from(FIRED)] != NONE {
                return;
            }
        }
        self.now_tick = self.now_tick.max(tick);
    }

    /// Puts a place's timers where they belong now: on a lower level, or among the fired.
    fn empty(&mut self, level: usize, place: usize) {
        let list = level * PLACES + place;
        let mut index = self.heads[list];
        self.heads[list] = NONE;
        self.occupied[level] &= !(1 << place);
        while index != NONE {
            let next = self.timers[index as usize].next;
            self.link(index);
            index = next;
        }
    }

    /// The place whose time comes first. Timers of a lower level share more digits with the present
    /// tick than those of a higher one, so they are all earlier.
    fn next_place(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&places| places != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    /// The first tick of a place.
    fn place_tick(&self, level: usize, place: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        // The digits above this level, shared with the present tick. Level 7 has 22 bits above.
        let above = self.now_tick >> shift >> DIGIT_BITS << DIGIT_BITS << shift;
        above | (place as u64) << shift
    }

    fn link(&mut self, index: u32) {
        let tick = self.timers[index as usize].tick;
        if tick <= self.now_tick {
            self.link_fired(index);
            return;
        }
        let highest = 63 - (tick ^ self.now_tick).leading_zeros();
        let level = (highest / DIGIT_BITS) as usize;
        debug_assert!(level < LEVELS, "a time of {tick} ms is past the highest level");
        let place = (tick >> (DIGIT_BITS * level as u32)) as usize % PLACES;
        let list = level * PLACES + place;
        let head = self.heads[list];
        if head != NONE {
            self.timers[head as usize].previous = index;
        }
        let timer = &mut self.timers[index as usize];
        (timer.next, timer.previous, timer.list) = (head, NONE, list as u16);
        self.heads[list] = index;
        self.occupied[level] |= 1 << place;
    }

    fn link_fired(&mut self, index: u32) {
        let tail = self.fired_tail;
        let timer = &mut self.timers[index as usize];
        (timer.next, timer.previous, timer.list) = (NONE, tail, FIRED);
        match tail {
            NONE => self.heads[usize::from(FIRED)] = index,
            tail => self.timers[tail as usize].next = index,
        }
        self.fired_tail = index;
    }

    fn unlink(&mut self, index: u32) {
        let Timer { next, previous, list, .. } = self.timers[index as usize];
        match previous {
            NONE => self.heads[usize::from(list)] = next,
            previous => self.timers[previous as usize].next = next,
        }
        if next != NONE {
            self.timers[next as usize].previous = previous;
        } else if list == FIRED {
            self.fired_tail = previous;
        }
        if list != FIRED && self.heads[usize::from(list)] == NONE {
            self.occupied[usize::from(list) / PLACES] &= !(1 << (usize::from(list) % PLACES));
        }
        let timer = &mut self.timers[index as usize];
        (timer.next, timer.previous, timer.list) = (NONE, NONE, UNARMED);
    }
}

#[cfg(test)]
mod tests;
