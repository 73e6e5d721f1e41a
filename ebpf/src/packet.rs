//! Packets in the kernel: the bytes between two pointers, behind the check the verifier wants.
#![expect(unsafe_code, reason = "packet bytes lie between two raw pointers")]

use core::mem::MaybeUninit;

use sickbay_shared::packet::{Headers, Packet};
use sickbay_shared::reply::Rewrite;

/// What an entry point is handed: where the packet is, and what can be done to it.
pub(crate) trait Context: Copy {
    /// Address of the first byte that can be read and written directly.
    fn data(self) -> usize;
    /// Address behind the last such byte.
    fn data_end(self) -> usize;
    /// Bytes of the whole packet, which may be more.
    fn size_bytes(self) -> u32;
    /// See [`Packet::tags_taken_off`].
    fn tags_taken_off(self) -> usize;
    /// See [`Rewrite::trim`]; all that is left can be read and written directly.
    fn trim(self, size_bytes: u32) -> bool;
    /// See [`Rewrite::grow_front`].
    fn grow_front(self, bytes: u32) -> bool;
    /// See [`Packet::read_into`].
    fn read_into(self, headers: &mut Headers) -> u32;
    /// See [`Packet::walk_extensions`].
    fn walk_extensions(self, start: usize, next: u8) -> u64;
    /// See [`Rewrite::sum_words`].
    fn sum_words(self, start: usize, end: usize) -> u64;
}

/// A packet's bytes that can be read and written directly.
pub(crate) struct Bytes<C> {
    context: C,
    data: usize,
    data_end: usize,
}

impl<C: Context> Bytes<C> {
    /// The packet of a context.
    #[inline(always)]
    pub(crate) fn of(context: C) -> Self {
        Self { context, data: context.data(), data_end: context.data_end() }
    }

    /// Writes a value at `offset`; whether the packet has room there.
    #[inline(always)]
    pub(crate) fn put<T>(&mut self, offset: usize, value: T) -> bool {
        let start = self.data + offset;
        if self.data_end < start + size_of::<T>() {
            return false;
        }
        // SAFETY: the bytes lie below data_end, as just checked; the verifier checks it again, and
        // lets unaligned stores into packets pass where the machine has them.
        unsafe { (start as *mut T).write(value) };
        true
    }

    /// Where the bytes are now; the pointers to where they were are void.
    #[inline(always)]
    fn look_again(&mut self) {
        *self = Self::of(self.context);
    }
}

/// [`Headers::EMPTY`] in this room, by eight stores: left to itself, the compiler calls a function
/// that stores byte by byte.
#[inline(always)]
pub(crate) fn empty(room: &mut MaybeUninit<Headers>) -> &mut Headers {
    const WORDS: usize = size_of::<Headers>() / size_of::<u64>();
    let words = room.as_mut_ptr().cast::<u64>();
    for word in 0..WORDS {
        // SAFETY: one of the words that the headers consist of, which are aligned to them.
        unsafe { words.add(word).write_volatile(0) }
    }
    // SAFETY: all is written, and zeros are what EMPTY is of.
    unsafe { room.assume_init_mut() }
}

impl<C: Context> Packet for Bytes<C> {
    #[inline(always)]
    fn bytes<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        let start = self.data + offset;
        if self.data_end < start + N {
            return None;
        }
        // SAFETY: the N bytes lie below data_end, as just checked; the verifier checks it again.
        Some(unsafe { (start as *const [u8; N]).read() })
    }

    #[inline(always)]
    fn words<const N: usize>(&self, offset: usize) -> Option<[u32; N]> {
        let start = self.data + offset;
        if self.data_end < start + 4 * N {
            return None;
        }
        // SAFETY: as above. The eBPF machine's loads of packet bytes need no alignment where the
        // verifier lets them pass (kernels with efficient unaligned access; others refuse to load
        // the program). Byte-wise loads would cost four instructions a byte.
        Some(unsafe { (start as *const [u32; N]).read() })
    }

    #[inline(always)]
    fn copy_words<const N: usize>(&self, offset: usize, into: &mut [u32; N]) -> bool {
        let start = self.data + offset;
        if self.data_end < start + 4 * N {
            return false;
        }
        let (from, to) = (start as *const u64, into.as_mut_ptr().cast::<u64>());
        for pair in 0..N / 2 {
            // SAFETY: within the packet and the array, of N words each; for the alignment of the one
            // see above, that of the other is the caller's promise. Volatile, or all are loaded
            // before any is stored, and lie on the stack in between.
            unsafe { to.add(pair).write(from.add(pair).read_volatile()) }
        }
        true
    }

    #[inline(always)]
    fn size_bytes(&self) -> u32 {
        self.context.size_bytes()
    }

    #[inline(always)]
    fn tags_taken_off(&self) -> usize {
        self.context.tags_taken_off()
    }

    #[inline(always)]
    fn read_into(&self, headers: &mut Headers) -> u32 {
        self.context.read_into(headers)
    }

    #[inline(always)]
    fn walk_extensions(&self, start: usize, next: u8) -> u64 {
        self.context.walk_extensions(start, next)
    }
}

impl<C: Context> Rewrite for Bytes<C> {
    #[inline(always)]
    fn put_words<const N: usize>(&mut self, offset: usize, words: [u32; N]) -> bool {
        // By pointers of its own: see `reply::Link`.
        self.look_again();
        self.put(offset, words)
    }

    #[inline(always)]
    fn trim(&mut self, size_bytes: usize) -> bool {
        let trimmed = self.context.trim(size_bytes as u32);
        self.look_again();
        trimmed
    }

    #[inline(always)]
    fn grow_front(&mut self, bytes: usize) -> bool {
        let grown = self.context.grow_front(bytes as u32);
        self.look_again();
        grown
    }

    #[inline(always)]
    fn sum_words(&self, start: usize, end: usize) -> u64 {
        self.context.sum_words(start, end)
    }
}
