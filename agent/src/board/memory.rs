//! Memory that the agent, the kernel program and readers share: arrays of plain old data.
#![expect(unsafe_code, reason = "mmap(2) of a map, and atomics over what it gives")]

use std::io;
use std::marker::PhantomData;
use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nix::sys::mman::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use sickbay_shared::pod::Pod;

/// An array of `T` in shared memory: the values of a `BPF_F_MMAPABLE` array map.
///
/// Nothing in it is ever borrowed as a `T`: other threads, other processes and the kernel write to
/// it at any time, so every access is an atomic access to one of its words. Whether several words
/// belong together is the business of whoever uses it.
#[derive(Debug)]
pub struct Mapped<T: Pod> {
    start: NonNull<AtomicU64>,
    count: u32,
    bytes: NonZeroUsize,
    elements: PhantomData<T>,
}

// SAFETY: the memory stays mapped until drop, belongs to no thread; access is atomic.
unsafe impl<T: Pod> Send for Mapped<T> {}
// SAFETY: as above: every access through a shared reference is an atomic one.
unsafe impl<T: Pod> Sync for Mapped<T> {}

impl<T: Pod> Mapped<T> {
    /// Words from one element to the next: an array map rounds its values up to 8 bytes
    /// (kernel/bpf/arraymap.c, `elem_size`).
    const STRIDE_WORDS: usize = size_of::<T>().div_ceil(size_of::<u64>());

    /// The `count` values of the array map behind `fd`, which must be mmapable and have at least
    /// that many of this size; the caller checked that.
    ///
    /// # Errors
    ///
    /// The kernel does not map it: it is not mmapable, or shorter, or there is no memory.
    pub fn of_map(fd: BorrowedFd<'_>, count: u32) -> io::Result<Self> {
        let bytes = Self::bytes(count)?;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap(
                None,
                bytes,
                ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
                MapFlags::MAP_SHARED,
                fd,
                0,
            )
        }?;
        Ok(Self { start: start.cast(), count, bytes, elements: PhantomData })
    }

    /// `count` zero values that no map backs.
    pub(super) fn anonymous(count: u32) -> io::Result<Self> {
        let bytes = Self::bytes(count)?;
        let (protection, flags) =
            (ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, MapFlags::MAP_PRIVATE);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { mmap_anonymous(None, bytes, protection, flags) }?;
        Ok(Self { start: start.cast(), count, bytes, elements: PhantomData })
    }

    /// Elements in the array.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The words of element `index`; `None` past the end.
    #[must_use]
    pub fn words(&self, index: u32) -> Option<&[AtomicU64]> {
        if index >= self.count {
            return None;
        }
        let first = index as usize * Self::STRIDE_WORDS;
        // SAFETY: `bytes` covers `count` elements of STRIDE_WORDS words, and index < count. A page
        // is aligned for u64. The memory lives as long as `self`, and all access is atomic.
        Some(unsafe {
            std::slice::from_raw_parts(self.start.add(first).as_ptr(), Self::STRIDE_WORDS)
        })
    }

    /// Element `index`, word by word: a concurrent writer may tear it. `None` past the end.
    #[must_use]
    pub fn load(&self, index: u32) -> Option<T> {
        let mut bytes = [0_u8; 256];
        const { assert!(size_of::<T>() <= 256) };
        for (word, room) in self.words(index)?.iter().zip(bytes.chunks_exact_mut(8)) {
            room.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        T::from_bytes(&bytes[..size_of::<T>()])
    }

    /// Stores element `index`, word by word, in ascending order. `false` past the end.
    pub fn store(&self, index: u32, value: &T) -> bool {
        let Some(words) = self.words(index) else {
            return false;
        };
        for (word, bytes) in words.iter().zip(value.as_bytes().chunks(8)) {
            let mut whole = [0_u8; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_ne_bytes(whole), Ordering::Release);
        }
        true
    }

    fn bytes(count: u32) -> io::Result<NonZeroUsize> {
        NonZeroUsize::new(count as usize * Self::STRIDE_WORDS * size_of::<u64>())
            .ok_or_else(|| io::Error::other("an array of no values cannot be mapped"))
    }
}

impl Mapped<u64> {
    /// Word `index`; `None` past the end.
    #[must_use]
    pub fn word(&self, index: u32) -> Option<&AtomicU64> {
        self.words(index)?.first()
    }
}

impl Mapped<u32> {
    /// Number `index`; `None` past the end.
    #[must_use]
    pub fn number(&self, index: u32) -> Option<&AtomicU32> {
        let word = self.words(index)?.first()?;
        // SAFETY: the value is the first four of the element's eight bytes; the kernel program
        // and this agent access only those, so accesses of different sizes do not mix.
        Some(unsafe { AtomicU32::from_ptr(std::ptr::from_ref(word).cast::<u32>().cast_mut()) })
    }
}

impl<T: Pod> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: `start` and `bytes` are what mmap gave; no borrow of the memory outlives `self`.
        let unmapped = unsafe { munmap(self.start.cast(), self.bytes.get()) };
        debug_assert!(unmapped.is_ok(), "munmap of an own mapping cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use sickbay_shared::abi::{Backend, Slot};

    use super::*;

    #[test]
    fn values_come_back_as_they_were_stored() {
        let mapped = Mapped::<Backend>::anonymous(3).unwrap();
        let backend = Backend { next_hop: 7, pool: 9, family: 6, ..Backend::default() };
        assert!(mapped.store(1, &backend));
        assert_eq!(mapped.load(0), Some(Backend::default()));
        assert_eq!(mapped.load(1), Some(backend));
        assert_eq!(mapped.load(2), Some(Backend::default()));
    }

    #[test]
    fn nothing_is_past_the_end() {
        let mapped = Mapped::<Slot>::anonymous(2).unwrap();
        assert!(mapped.store(1, &Slot(1)));
        assert!(!mapped.store(2, &Slot(1)));
        assert_eq!(mapped.load(2), None);
        assert!(mapped.words(u32::MAX).is_none());
    }

    #[test]
    fn small_numbers_stand_eight_bytes_apart() {
        let mapped = Mapped::<u32>::anonymous(2).unwrap();
        let address = |index| mapped.number(index).unwrap().as_ptr().addr();
        assert_eq!(address(1) - address(0), 8);
    }

    #[test]
    fn an_empty_array_is_refused() {
        assert!(Mapped::<u64>::anonymous(0).is_err());
    }
}
