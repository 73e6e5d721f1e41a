//! Backends and the pools they stand in.

use core::mem::{offset_of, size_of};

/// Where a pool's bits stand in the bitmaps.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Pool {
    /// First word; a multiple of `word_count`, so that a pool lies within a group or on whole ones.
    pub first_word: u32,
    /// Words reserved: a power of two, at most
    /// [`POOL_WORDS_MAX`](crate::limits::POOL_WORDS_MAX).
    pub word_count: u32,
    /// Hash of its name: by this an agent finds the pools of the one before it; 0 = none.
    pub identity: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Flag in [`POOL_COUNTS`](super::POOL_COUNTS): fewer of the pool take new flows than its
/// `panic_threshold`, and no more since than end the panic: a service with `all_sick = open` chooses
/// from [`ALLOWED`](super::ALLOWED).
pub const POOL_PANICS: u64 = 1 << 32;

/// Where a backend's packets go.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backend {
    /// The next hop's MAC in the low six bytes (first byte of the MAC lowest), [`NEXT_HOP_VALID`]
    /// set when it is known. One u64, so that a change is one store.
    pub next_hop: u64,
    /// The MAC of the interface it leaves by, in the low six bytes.
    pub source_mac: u64,
    /// The interface it leaves by.
    pub interface_index: u32,
    /// Generation of this index's use; see [`BackendRef`].
    pub generation: u32,
    /// Network order; IPv4 in the first four bytes.
    pub address: [u8; 16],
    /// Network order.
    pub port: [u8; 2],
    /// 4 or 6.
    pub family: u8,
    /// The shard that owns this backend's bits.
    pub shard: u8,
    /// Pool index.
    pub pool: u32,
    /// Hash of its address and port, or of its socket's path: what the tables call it, and by what
    /// an agent finds the backends of the one before it; 0 = nobody uses this index.
    pub identity: u64,
    /// The last generation that was given to this index, so that none is given twice; it stays when
    /// the use is over. 0 = it was never used.
    pub last_generation: u32,
    /// Zero.
    pub reserved: u32,
}

/// Flag in [`Backend::next_hop`]: the MAC is known.
pub const NEXT_HOP_VALID: u64 = 1 << 48;

const _: () = {
    assert!(size_of::<Pool>() == 32);
    assert!(size_of::<Backend>() == 64);
    assert!(offset_of!(Backend, address) == 24);
    assert!(offset_of!(Pool, identity) == 8);
    assert!(offset_of!(Backend, pool) == 44);
    assert!(offset_of!(Backend, identity) == 48);
    assert!(offset_of!(Backend, last_generation) == 56);
};
