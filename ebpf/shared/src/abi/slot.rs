//! Backend references and the slots of the Maglev tables.

use core::mem::size_of;

use crate::limits::{BACKEND_INDEX_BITS, BACKENDS_MAX};

/// A backend index with the generation of its use: index:20 | generation:12.
///
/// Generation 0 is never given out, so the zero value names no backend.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct BackendRef(pub u32);

impl BackendRef {
    /// Names no backend.
    pub const NONE: Self = Self(0);
    /// Largest generation; the next one is 1 again.
    pub const GENERATION_MAX: u32 = (1 << (32 - BACKEND_INDEX_BITS)) - 1;

    /// The reference to `index` in its use `generation` (1 ..= [`Self::GENERATION_MAX`]).
    #[inline(always)]
    #[must_use]
    pub const fn new(index: u32, generation: u32) -> Self {
        Self((index & (BACKENDS_MAX - 1)) | (generation << BACKEND_INDEX_BITS))
    }

    /// The backend index.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> u32 {
        self.0 & (BACKENDS_MAX - 1)
    }

    /// The generation of the index's use; 0 = no backend.
    #[inline(always)]
    #[must_use]
    pub const fn generation(self) -> u32 {
        self.0 >> BACKEND_INDEX_BITS
    }
}

/// One Maglev slot, read and written as one u64. `current` ≠ `previous` means that it drains.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Slot(pub u64);

impl Slot {
    /// A slot whose flows all belong to `backend`.
    #[inline(always)]
    #[must_use]
    pub const fn settled(backend: BackendRef) -> Self {
        Self::new(backend, backend)
    }

    /// A slot of `current` whose older flows still belong to `previous`.
    #[inline(always)]
    #[must_use]
    pub const fn new(current: BackendRef, previous: BackendRef) -> Self {
        Self((previous.0 as u64) << 32 | current.0 as u64)
    }

    /// Whom new flows belong to.
    #[inline(always)]
    #[must_use]
    pub const fn current(self) -> BackendRef {
        BackendRef(self.0 as u32)
    }

    /// Whom flows without an entry belong to.
    #[inline(always)]
    #[must_use]
    pub const fn previous(self) -> BackendRef {
        BackendRef((self.0 >> 32) as u32)
    }

    /// Whether flows of `previous` may still live.
    #[inline(always)]
    #[must_use]
    pub const fn drains(self) -> bool {
        self.current().0 != self.previous().0
    }
}

const _: () = {
    assert!(size_of::<BackendRef>() == 4);
    assert!(size_of::<Slot>() == 8);
};
