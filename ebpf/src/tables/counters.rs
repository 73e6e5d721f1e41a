//! Counters: each CPU's own.
#![expect(unsafe_code, reason = "map values are shared memory; the helpers hand out pointers")]

use aya_ebpf::btf_maps::PerCpuArray;
use sickbay_shared::abi::{BackendCounters, BackendRef, GlobalCounters, ServiceCounters};
use sickbay_shared::counters::{Counters, How};

use super::{Maps, calls};
use crate::maps;

impl Counters for Maps {
    #[inline(always)]
    fn global(&self, count: impl FnOnce(&mut GlobalCounters)) {
        move_counters(&maps::GLOBAL_COUNTERS, 0, count);
    }

    #[inline(always)]
    fn service(&self, index: u32, count: impl FnOnce(&mut ServiceCounters)) {
        move_counters(&maps::SERVICE_COUNTERS, index, count);
    }

    #[inline(always)]
    fn backend(&self, index: u32, count: impl FnOnce(&mut BackendCounters)) {
        move_counters(&maps::BACKEND_COUNTERS, index, count);
    }

    #[inline(always)]
    fn steered(
        &self,
        service: u32,
        backend: BackendRef,
        left: BackendRef,
        how: How,
        size_bytes: u32,
    ) {
        calls::sickbay_count(service, backend.0, left.0, how.0, size_bytes);
    }
}

#[inline(always)]
fn move_counters<T, const ENTRIES: usize>(
    map: &PerCpuArray<T, ENTRIES>,
    index: u32,
    count: impl FnOnce(&mut T),
) {
    if let Some(counters) = map.get_ptr_mut(index) {
        // SAFETY: this CPU's own element; programs of one CPU do not run inside one another.
        count(unsafe { &mut *counters });
    }
}
