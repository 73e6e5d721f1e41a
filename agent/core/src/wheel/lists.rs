//! Timers by the place where they stand: doubly linked lists through the timers themselves.

/// A list, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct List(pub(super) u16);

/// In no list.
const NOWHERE: List = List(u16::MAX);
/// End of a list.
const NONE: u32 = u32::MAX;

/// All timers, and the lists that they stand in.
#[derive(Debug)]
pub(super) struct Lists {
    heads: Box<[u32]>,
    /// Up to the highest index that was armed yet, in memory for all: those of targets that may come
    /// take none before.
    timers: Vec<Timer>,
}

#[derive(Clone, Copy, Debug)]
struct Timer {
    tick: u64,
    next: u32,
    previous: u32,
    list: List,
}

impl Timer {
    const UNARMED: Self = Self { tick: 0, next: NONE, previous: NONE, list: NOWHERE };
}

impl Lists {
    /// So many lists, all empty, for the timers 0 .. `capacity`.
    pub(super) fn new(list_count: usize, capacity: u32) -> Self {
        assert!(list_count < usize::from(NOWHERE.0), "more lists than numbers");
        Self {
            heads: vec![NONE; list_count].into_boxed_slice(),
            timers: Vec::with_capacity(capacity as usize),
        }
    }

    /// Sets the tick of a timer that is in no list.
    pub(super) fn set_tick(&mut self, index: u32, tick: u64) {
        if self.timers.len() <= index as usize {
            assert!((index as usize) < self.timers.capacity(), "timer {index} has no place");
            self.timers.resize(index as usize + 1, Timer::UNARMED);
        }
        self.timers[index as usize].tick = tick;
    }

    pub(super) fn tick(&self, index: u32) -> u64 {
        self.timers[index as usize].tick
    }

    /// Whether a timer is in a list.
    pub(super) fn is_listed(&self, index: u32) -> bool {
        self.timers.get(index as usize).is_some_and(|timer| timer.list != NOWHERE)
    }

    pub(super) fn first(&self, list: List) -> Option<u32> {
        some(self.heads[usize::from(list.0)])
    }

    /// The one after it in its list.
    pub(super) fn next(&self, index: u32) -> Option<u32> {
        some(self.timers[index as usize].next)
    }

    /// Empties a list, whose timers are each to be put into another one; gives the first.
    pub(super) fn take(&mut self, list: List) -> Option<u32> {
        some(std::mem::replace(&mut self.heads[usize::from(list.0)], NONE))
    }

    /// Puts a timer first in a list. It is in no other, or in one that was taken.
    pub(super) fn push(&mut self, index: u32, list: List) {
        let head = std::mem::replace(&mut self.heads[usize::from(list.0)], index);
        if head != NONE {
            self.timers[head as usize].previous = index;
        }
        let timer = &mut self.timers[index as usize];
        (timer.next, timer.previous, timer.list) = (head, NONE, list);
    }

    /// Takes a timer out of its list, and says which one that was.
    pub(super) fn remove(&mut self, index: u32) -> List {
        let timer = &mut self.timers[index as usize];
        let Timer { next, previous, list, .. } = *timer;
        debug_assert!(list != NOWHERE, "timer {index} is in no list");
        (timer.next, timer.previous, timer.list) = (NONE, NONE, NOWHERE);
        match previous {
            NONE => self.heads[usize::from(list.0)] = next,
            previous => self.timers[previous as usize].next = next,
        }
        if next != NONE {
            self.timers[next as usize].previous = previous;
        }
        list
    }
}

fn some(index: u32) -> Option<u32> {
    (index != NONE).then_some(index)
}
