//! Entries of SYNs, in the map's lines.
#![expect(unsafe_code, reason = "map values are shared memory; the helpers hand out pointers")]

use core::ptr::addr_of_mut;

use sickbay_shared::abi::{BackendRef, EmbryonicEntry, EmbryonicLine};
use sickbay_shared::embryonic::{self, Line};
use sickbay_shared::packet::Flow;

use crate::maps;

/// A line of the map.
struct InMap(*mut EmbryonicLine);

impl InMap {
    #[inline(always)]
    fn of(tag: u64) -> Option<Self> {
        maps::EMBRYONIC.get_ptr_mut(embryonic::line_of(tag)).map(Self)
    }

    #[inline(always)]
    fn way(&self, way: usize) -> *mut EmbryonicEntry {
        // SAFETY: the map's element lives as long as the program, and has as many ways.
        unsafe { addr_of_mut!((*self.0).ways).cast::<EmbryonicEntry>().add(way) }
    }
}

impl Line for InMap {
    #[inline(always)]
    fn check(&self, way: usize) -> u64 {
        // SAFETY: an aligned word of the map's element; so for the others below.
        unsafe { (&raw const (*self.way(way)).check).read_volatile() }
    }

    #[inline(always)]
    fn whom(&self, way: usize) -> u64 {
        // SAFETY: see above.
        unsafe { (&raw const (*self.way(way)).whom).read_volatile() }
    }

    #[inline(always)]
    fn put(&self, way: usize, entry: EmbryonicEntry) {
        let place = self.way(way);
        // SAFETY: see above.
        unsafe {
            (&raw mut (*place).check).write_volatile(entry.check);
            (&raw mut (*place).whom).write_volatile(entry.whom);
        }
    }
}

/// See [`embryonic::tag`].
#[inline(always)]
pub(super) fn tag(flow: &Flow) -> u64 {
    let boot_id = match maps::HEADER.get_ptr(0) {
        // SAFETY: an aligned field of the map's element, which lives as long as the program; the agent
        // writes it before anything is attached.
        Some(header) => unsafe { (&raw const (*header).boot_id).cast::<[u64; 2]>().read() },
        None => [0; 2],
    };
    embryonic::tag(flow, embryonic::seed(boot_id))
}

/// See [`embryonic::find`].
#[inline(always)]
pub(super) fn find(tag: u64) -> u64 {
    InMap::of(tag).map_or(0, |line| embryonic::find(&line, tag))
}

/// Puts the entry of this tag, or with no backend stamps the one that is there; whether it could.
#[inline(always)]
pub(super) fn put(tag: u64, backend: BackendRef, now_ns: u64) -> bool {
    let Some(line) = InMap::of(tag) else {
        return false;
    };
    let mut backend = backend;
    if backend == BackendRef::NONE {
        backend = BackendRef(embryonic::find(&line, tag) as u32);
    }
    if backend == BackendRef::NONE {
        return false;
    }
    embryonic::put(&line, tag, backend, now_ns);
    true
}

/// See [`embryonic::delete`].
#[inline(always)]
pub(super) fn delete(tag: u64) {
    if let Some(line) = InMap::of(tag) {
        embryonic::delete(&line, tag);
    }
}
