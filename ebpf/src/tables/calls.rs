//! What the verifier checks apart: global functions, exported, so that their linkage says so, and
//! of numbers and of memory of a known size, which is all that the verifier takes for granted.
#![expect(unsafe_code, reason = "exported names are promises, and memory comes as pointers")]

use sickbay_shared::abi::{BackendRef, FragmentEntry};
use sickbay_shared::budget::Purse;
use sickbay_shared::counters::{How, count, count_how};
use sickbay_shared::packet::{FLOW_KEY_WORDS, Headers};
use sickbay_shared::steer::{End, Outcome, Step, decide_rest, record};
use sickbay_shared::tables::Bitmap;
use sickbay_shared::{search, select, service, steer};

use super::{Maps, embryonic, memory};

/// [`decide_rest`] to a [`Step`]'s number, all of it counted.
///
/// Apart for the stack's sake: what this needs of it is free again for an answer. Not exported, so
/// that the verifier walks through it knowing whose memory the headers are: keys are looked up by
/// pointers into them, and to a global function they would be nobody's in particular, which kernels
/// before 6.3 take for no key.
#[inline(never)]
pub(crate) fn decide(headers: &Headers, index: u32, hash: u64) -> u32 {
    decide_rest(headers, index, hash, &Maps, &Maps, &CountedStep)
}

/// Of an outcome, its step, once it is counted.
pub(crate) struct CountedStep;

impl End for CountedStep {
    type Made = u32;

    #[inline(always)]
    fn end(&self, outcome: Outcome) -> u32 {
        count(&outcome, &Maps);
        Step::of(&outcome).0
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_service_by_prefix(high: u64, low: u64, last: u32) -> u32 {
    service::find_by_prefix(&Maps, high, low, last)
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_divert(service: u32, current: u32, hash: u64, now_ns: u64) -> u64 {
    select::divert(&Maps, service, BackendRef(current), hash, now_ns).0
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_on_sick(
    service: u32,
    backend: u32,
    is_tcp: u32,
    now_ns: u64,
) -> u32 {
    u32::from(select::on_sick(&Maps, service, BackendRef(backend), is_tcp != 0, now_ns))
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_spend(purse: u32, now_ns: u64) -> u32 {
    u32::from(memory::spend(Purse::named(purse), now_ns))
}

/// Its first argument is memory of the caller's, which the verifier knows by its type.
#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_record(
    key: *const [u32; FLOW_KEY_WORDS],
    what: u64,
    whom: u64,
    now_ns: u64,
) -> u32 {
    // SAFETY: the caller's own, which lives until this returns; the verifier wants it not null.
    match unsafe { key.as_ref() } {
        Some(key) => record(&Maps, key, what, whom, now_ns),
        None => 0,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_first_fragment(headers: *const Headers, now_ns: u64) -> u64 {
    // SAFETY: see above.
    match unsafe { headers.as_ref() } {
        Some(headers) => steer::first_fragment(&Maps, headers, now_ns),
        None => 0,
    }
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_write_fragment(
    headers: *const Headers,
    seen_ns: u64,
    backend: u32,
    service: u32,
) -> u32 {
    // SAFETY: see above.
    let Some(headers) = (unsafe { headers.as_ref() }) else {
        return 0;
    };
    let entry = FragmentEntry { seen_ns, backend: BackendRef(backend), service };
    u32::from(memory::write_fragment(&headers.fragment_key(), &entry))
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_put_embryonic(tag: u64, backend: u32, now_ns: u64) -> u32 {
    u32::from(embryonic::put(tag, BackendRef(backend), now_ns))
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_delete_embryonic(tag: u64) -> u32 {
    embryonic::delete(tag);
    // A global function returns a number; nobody looks at this one.
    0
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_rehash(slot_first: u32, slot_count: u32, hash: u64) -> u32 {
    search::rehash_further(&Maps, slot_first, slot_count, hash).0
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_try_that_finds(
    slot_first: u32,
    slot_count: u32,
    hash: u64,
) -> u32 {
    search::try_that_finds(&Maps, slot_first, slot_count, hash)
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_kth_by_counts(first: u32, count: u32, k: u32) -> u32 {
    search::kth_by_counts(&Maps, first, count, k)
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_ones_in_group(bitmap: u32, first: u32, count: u32) -> u32 {
    search::ones_in_group(&Maps, named(bitmap), first, count)
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_any_by_scan(
    bitmap: u32,
    first: u32,
    count: u32,
    draw: u64,
) -> u32 {
    search::any_by_scan(&Maps, named(bitmap), first, count, draw)
}

#[unsafe(no_mangle)]
#[inline(never)]
pub(super) extern "C" fn sickbay_count(
    service: u32,
    backend: u32,
    left: u32,
    how: u32,
    size_bytes: u32,
) -> u32 {
    let (backend, left) = (BackendRef(backend), BackendRef(left));
    count_how(&Maps, service, backend, left, How(how), size_bytes);
    // A global function returns a number; nobody looks at this one.
    0
}

/// A bitmap that is searched, as the number that stands for it in these calls.
#[inline(always)]
pub(super) fn number(bitmap: Bitmap) -> u32 {
    u32::from(bitmap == Bitmap::Allowed)
}

#[inline(always)]
fn named(number: u32) -> Bitmap {
    if number == 0 { Bitmap::TakesNew } else { Bitmap::Allowed }
}
