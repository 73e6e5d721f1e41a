//! The allocator: large arrays stand on huge pages, and go back to the kernel when they are freed.
//!
//! A probe touches a dozen places of arrays that have a line or more for each target. At 200,000
//! targets hardly one of those places is in a page that the processor still knows: what that costs
//! comes to a tenth of a probe, the kernel's part included. Where the kernel has no huge pages to
//! give, nothing but that changes.
#![expect(unsafe_code, reason = "a global allocator is one by an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The size of a huge page on x86-64, and on arm64 with pages of 4 KiB.
const HUGE_BYTES: usize = 2 << 20;
/// From so many bytes on an array is mapped by itself: what is lost where the used part of it ends,
/// since there is room for more, is little then.
const LARGE_BYTES: usize = 4 * HUGE_BYTES;

/// The system's allocator for all that is small, mappings of huge pages for what is large.
#[derive(Clone, Copy, Debug)]
pub struct HugePages;

// SAFETY: what is small is handed to the system's allocator as it came, and what is large to `map`
// and `unmap`; a layout tells which, so that memory goes back where it came from.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller keeps the trait's conditions, which are the system's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_large(layout) {
            // The kernel gives none but zeroed pages, when they are touched.
            return map(layout.size());
        }
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that this size is one of a layout.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if !is_large(layout) && !is_large(wanted) {
            // SAFETY: as above.
            return unsafe { System.realloc(old, layout, size) };
        }
        // SAFETY: its size is not 0, by the caller's promise.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both are valid for the lesser size, and the new one is nobody else's.
            unsafe { ptr::copy_nonoverlapping(old, new, layout.size().min(size)) };
            // SAFETY: the caller gives it up with this layout.
            unsafe { self.dealloc(old, layout) };
        }
        new
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        if is_large(layout) {
            return unmap(memory, layout.size().next_multiple_of(HUGE_BYTES));
        }
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn is_large(layout: Layout) -> bool {
    LARGE_BYTES <= layout.size() && layout.align() <= HUGE_BYTES
}

/// A mapping of at least so many bytes that begins where a huge page does; null when there is none.
fn map(bytes: usize) -> *mut u8 {
    let (Some(kept), Some(all)) =
        (bytes.checked_next_multiple_of(HUGE_BYTES), bytes.checked_add(2 * HUGE_BYTES))
    else {
        return ptr::null_mut();
    };
    let all = all.next_multiple_of(HUGE_BYTES);
    let (access, kind) =
        (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping touches no memory that is in use.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), all, access, kind, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    let mapped = mapped.cast::<u8>();
    let before = mapped.align_offset(HUGE_BYTES);
    let memory = mapped.wrapping_add(before);
    unmap(mapped, before);
    unmap(memory.wrapping_add(kept), all - before - kept);
    // Not for its end: a huge page there would mostly be nobody's.
    let whole = bytes / HUGE_BYTES * HUGE_BYTES;
    // SAFETY: it is this mapping's own memory. A kernel without huge pages refuses, and that is all.
    let _refused = unsafe { libc::madvise(memory.cast(), whole, libc::MADV_HUGEPAGE) };
    memory
}

/// Gives back what `map` gave, or a part that was not wanted.
fn unmap(memory: *mut u8, bytes: usize) {
    if bytes == 0 {
        return;
    }
    // SAFETY: whoever calls this had it from `map` and uses it no more. To give back a whole mapping
    // or one of its ends does not fail; were it to, the memory would stay as it is.
    let _stays = unsafe { libc::munmap(memory.cast(), bytes) };
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of the smaps entry that begins at `address`: its size, and whether it wants huge pages.
    fn mapping(address: usize) -> Option<bool> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let covers = |line: &str| {
            let (from, rest) = line.split_once('-')?;
            let (until, _) = rest.split_once(' ')?;
            let from = usize::from_str_radix(from, 16).ok()?;
            Some((from..usize::from_str_radix(until, 16).ok()?).contains(&address))
        };
        let mut lines = maps.lines().skip_while(|line| covers(line) != Some(true));
        lines.next()?;
        let flags = lines.find(|line| line.starts_with("VmFlags:"))?;
        Some(flags.split(' ').any(|flag| flag == "hg"))
    }

    #[test]
    fn large_memory_is_zeroed_aligned_kept_over_a_change_of_size_and_given_back() {
        for bytes in [LARGE_BYTES, LARGE_BYTES + 1, 5 * HUGE_BYTES - 1, 9 * HUGE_BYTES] {
            let layout = Layout::from_size_align(bytes, 64).unwrap();
            // SAFETY: the layout is not empty, and what is given back is used no more.
            unsafe {
                let memory = HugePages.alloc_zeroed(layout);
                assert_eq!(memory.align_offset(HUGE_BYTES), 0);
                assert_eq!(mapping(memory.addr()), Some(true), "it wants huge pages");
                assert_eq!((*memory, *memory.add(bytes - 1)), (0, 0));
                memory.write_bytes(7, bytes);
                let larger = HugePages.realloc(memory, layout, 2 * bytes);
                assert_eq!((*larger, *larger.add(bytes - 1), *larger.add(bytes)), (7, 7, 0));
                let layout = Layout::from_size_align(2 * bytes, 64).unwrap();
                let small = HugePages.realloc(larger, layout, 100);
                assert_eq!((*small, *small.add(99)), (7, 7));
                assert_ne!(mapping(larger.addr()), Some(true), "it has gone back");
                HugePages.dealloc(small, Layout::from_size_align(100, 64).unwrap());
            }
        }
    }

    #[test]
    fn more_than_there_can_be_is_refused() {
        let layout = Layout::from_size_align(isize::MAX as usize - 4096, 1).unwrap();
        // SAFETY: the layout is not empty.
        assert!(unsafe { HugePages.alloc(layout) }.is_null());
    }
}
