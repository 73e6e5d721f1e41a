//! What a piece of work allocates, counted by the allocator itself.
#![expect(unsafe_code, reason = "a counting global allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    // Of this thread alone: the test harness has threads of its own.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// Bytes allocated less those freed; a thread may free what another one allocated.
    static HELD: Cell<i64> = const { Cell::new(0) };
    static PEAK: Cell<i64> = const { Cell::new(0) };
}

fn held(more: usize, less: usize) {
    let held = HELD.get() + more as i64 - less as i64;
    HELD.set(held);
    PEAK.set(PEAK.get().max(held));
}

// SAFETY: every call is handed to the system's allocator unchanged; counting touches cells of the
// thread, which are made without allocating and never dropped.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        held(layout.size(), 0);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        held(layout.size(), 0);
        // SAFETY: the caller keeps `alloc_zeroed`'s contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        held(0, layout.size());
        // SAFETY: the pointer came from `System` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        held(size, layout.size());
        // SAFETY: the pointer came from this allocator with this layout; the caller vouches for
        // the size.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spent {
    /// How many times.
    pub allocations: u64,
    /// The most that was held at once, in bytes, above what was held before.
    pub peak_bytes: u64,
}

/// Does the work and says what this thread allocated for it.
pub fn measured<T>(work: impl FnOnce() -> T) -> (T, Spent) {
    let (allocations, before) = (ALLOCATIONS.get(), HELD.get());
    PEAK.set(before);
    let result = work();
    let peak_bytes = u64::try_from(PEAK.get() - before).unwrap_or(0);
    (result, Spent { allocations: ALLOCATIONS.get() - allocations, peak_bytes })
}

/// Does the work, which must not allocate.
///
/// # Panics
///
/// When it does.
pub fn without_allocating<T>(work: impl FnOnce() -> T) -> T {
    let (result, spent) = measured(work);
    assert_eq!(spent.allocations, 0, "the core allocates nothing");
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_is_what_was_held_at_once() {
        let (kept, spent) = measured(|| {
            drop(vec![1_u8; 1 << 20]);
            let mut kept = Vec::<u8>::with_capacity(1000);
            kept.reserve_exact(2000);
            kept
        });
        assert_eq!(spent, Spent { allocations: 3, peak_bytes: 1 << 20 });
        let ((), spent) = measured(|| drop(kept));
        assert_eq!(spent, Spent { allocations: 0, peak_bytes: 0 });
    }

    #[test]
    #[should_panic(expected = "the core allocates nothing")]
    fn a_box_is_an_allocation() {
        without_allocating(|| std::hint::black_box(Box::new(1)));
    }
}
