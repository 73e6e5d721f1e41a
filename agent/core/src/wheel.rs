//! Timers: a ring of ticks for what comes soon, and a hierarchical timing wheel for what comes later,
//! over indices.
//!
//! A tick is 1 ms. The ring has a place for each of the next 15 to 16 seconds' ticks, so that a timer of
//! a usual interval is put where it fires and never moved: in memory that no cache holds, moving costs
//! as much as firing, and a wheel whose levels begin at fixed times moves all that wait for such a time
//! at once. What is farther off stands in a wheel of spans of 1,024 ticks: six levels of 64 places, on
//! the level of the highest digit (base 64) in which its span differs from the last one in the ring; it
//! comes down a level each time that digit is reached, and into the ring with its span.
//!
//! Insert and remove are O(1). Lists are intrusive, over indices below a capacity given at the start:
//! nothing is allocated later. A timer never fires early, and at most one tick late; one whose time is a
//! whole number of ticks fires exactly then.

use self::lists::{List, Lists};
use self::places::Places;
use crate::plan::Nanos;

/// Timers by the place where they stand.
mod lists;
/// Which places of the ring hold timers.
mod places;

/// Length of a tick.
pub const TICK_NS: Nanos = 1_000_000;

/// Places of the ring.
const NEAR: usize = 1 << NEAR_BITS;
const NEAR_BITS: u32 = 14;
/// Ticks of a span, as a power of two.
const SPAN_BITS: u32 = 10;
/// The ring holds what is left of the present span, and so many whole ones after it.
const SPANS_AHEAD: u64 = (1 << (NEAR_BITS - SPAN_BITS)) - 1;
const DIGIT_BITS: u32 = 6;
/// Places of a level.
const FAR: usize = 1 << DIGIT_BITS;
/// All times in ns are less than 2^45 ticks, or 2^35 spans: the highest level never wraps.
const LEVELS: usize = 6;
const _: () = assert!((Nanos::MAX / TICK_NS) >> SPAN_BITS < 1 << (LEVELS as u32 * DIGIT_BITS));

/// Timers, each an index, armed at most once.
#[derive(Debug)]
pub struct Wheel {
    /// The present tick; in its place of the ring stand those that have fired and were not taken yet.
    now_tick: u64,
    /// The last span whose timers stand in the ring.
    last_span: u64,
    lists: Lists,
    near: Places,
    /// Which places of a level hold timers.
    far: [u64; LEVELS],
    armed_count: u32,
}

impl Wheel {
    /// A wheel for the timers 0 .. `capacity`, none armed, at `now`.
    #[must_use]
    pub fn new(capacity: u32, now: Nanos) -> Self {
        let now_tick = now / TICK_NS;
        Self {
            now_tick,
            last_span: (now_tick >> SPAN_BITS) + SPANS_AHEAD,
            lists: Lists::new(NEAR + LEVELS * FAR, capacity),
            near: Places::new(),
            far: [0; LEVELS],
            armed_count: 0,
        }
    }

    /// Arms a timer that is not armed. A time that has passed fires at the next [`Self::pop`].
    pub fn arm(&mut self, index: u32, at_ns: Nanos) {
        debug_assert!(!self.is_armed(index), "timer {index} is armed already");
        self.lists.set_tick(index, at_ns.div_ceil(TICK_NS));
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
        self.lists.is_listed(index)
    }

    /// Timers armed.
    #[must_use]
    pub fn armed_count(&self) -> u32 {
        self.armed_count
    }

    /// Takes the next timer whose time has come, and disarms it.
    pub fn pop(&mut self, now: Nanos) -> Option<u32> {
        if self.fired().is_none() {
            self.advance(now / TICK_NS);
        }
        let index = self.fired()?;
        self.unlink(index);
        self.armed_count -= 1;
        Some(index)
    }

    /// When to call [`Self::pop`] next: never later than the next timer, at times earlier (timers
    /// far off come nearer level by level); `Nanos::MAX` when none is armed.
    #[must_use]
    pub fn next_wake(&self) -> Nanos {
        if self.fired().is_some() {
            return 0;
        }
        let far = self.next_far().map(|(level, place)| self.entry_tick(level, place));
        match self.next_near().into_iter().chain(far).min() {
            Some(tick) => tick.saturating_mul(TICK_NS),
            None => Nanos::MAX,
        }
    }

    /// The next of those that have fired.
    fn fired(&self) -> Option<u32> {
        self.lists.first(near_list(self.now_tick))
    }

    /// Moves to `tick`, of which none before has any timer. Stops at the first tick that has some, so
    /// that timers fire in the order of their ticks.
    fn advance(&mut self, tick: u64) {
        while self.fired().is_none() {
            let near = self.next_near().unwrap_or(u64::MAX);
            // First what comes into the ring: it may be due as early.
            if let Some((level, place)) = self.next_far()
                && self.entry_tick(level, place) <= tick.min(near)
            {
                self.move_to(self.entry_tick(level, place));
                self.bring_nearer(level, place);
            } else if near <= tick {
                self.move_to(near);
            } else {
                return self.move_to(tick);
            }
        }
    }

    /// Goes on to `tick`, before which nothing is due and no span comes into the ring.
    fn move_to(&mut self, tick: u64) {
        self.now_tick = self.now_tick.max(tick);
        self.last_span = (self.now_tick >> SPAN_BITS) + SPANS_AHEAD;
    }

    /// Puts the timers of a level's place where they belong now: on a lower level, or in the ring.
    fn bring_nearer(&mut self, level: usize, place: usize) {
        self.far[level] &= !(1 << place);
        let mut next = self.lists.take(far_list(level, place));
        while let Some(index) = next {
            next = self.lists.next(index);
            self.link(index);
        }
    }

    /// The tick of the ring's first timers, when none have fired.
    fn next_near(&self) -> Option<u64> {
        let from = self.now_tick + 1;
        let start = from as usize % NEAR;
        let place = self.near.first_from(start)?;
        Some(from + ((place + NEAR - start) % NEAR) as u64)
    }

    /// The place of the levels whose time comes first. Timers of a lower level share more digits with
    /// the last span in the ring than those of a higher one, so they are all earlier.
    fn next_far(&self) -> Option<(usize, usize)> {
        let level = self.far.iter().position(|&places| places != 0)?;
        Some((level, self.far[level].trailing_zeros() as usize))
    }

    /// The tick at which the first span of a level's place comes into the ring.
    fn entry_tick(&self, level: usize, place: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        // The digits above this level, shared with the last span in the ring.
        let above = self.last_span >> shift >> DIGIT_BITS << DIGIT_BITS << shift;
        let span = above | (place as u64) << shift;
        (span - SPANS_AHEAD) << SPAN_BITS
    }

    fn link(&mut self, index: u32) {
        let tick = self.lists.tick(index).max(self.now_tick);
        let span = tick >> SPAN_BITS;
        if span <= self.last_span {
            self.near.set(tick as usize % NEAR);
            self.lists.push(index, near_list(tick));
            return;
        }
        let highest = 63 - (span ^ self.last_span).leading_zeros();
        let level = (highest / DIGIT_BITS) as usize;
        let place = (span >> (DIGIT_BITS * level as u32)) as usize % FAR;
        self.far[level] |= 1 << place;
        self.lists.push(index, far_list(level, place));
    }

    fn unlink(&mut self, index: u32) {
        let list = self.lists.remove(index);
        if self.lists.first(list).is_some() {
            return;
        }
        match usize::from(list.0).checked_sub(NEAR) {
            None => self.near.clear(usize::from(list.0)),
            Some(far) => self.far[far / FAR] &= !(1 << (far % FAR)),
        }
    }
}

/// The list of a tick in the ring.
fn near_list(tick: u64) -> List {
    List((tick % NEAR as u64) as u16)
}

fn far_list(level: usize, place: usize) -> List {
    List((NEAR + level * FAR + place) as u16)
}

#[cfg(test)]
mod tests;
