//! Choosing a backend for a new flow: the slot's, or one in its place, evenly; and whether the flows
//! of a sick backend may stay.
//!
//! The slot's own backend if it takes new flows: most flows ask no more. Else, in this order: the
//! same one after all, when the verdict against it is stale and the service opens then; another of
//! the pool; one of the backup pool; and when neither has any, or too few, what `all_sick` says.

use crate::abi::{ALL_SICK_OPEN, BackendRef, ON_SICK_KEEP, POOL_PANICS, STALE_OPEN, Service, Slot};
use crate::hash::{below, remix};
use crate::limits::{BACKENDS_MAX, REHASH_TRIES};
use crate::search::{self, NOT_FOUND};
use crate::steer::Path;
use crate::tables::{Bitmap, Tables, bit};

/// Names no backend, because the tables contradict each other: no index is in generation 0.
pub const BROKEN: BackendRef = BackendRef::new(BACKENDS_MAX - 1, 0);

/// The turns of a flow's hash: the re-hashed tries, then the search, then the backup pool's slot.
const SEARCH_TURN: u32 = REHASH_TRIES + 1;
const BACKUP_TURN: u32 = REHASH_TRIES + 2;

/// Chooses a backend for a new flow with `hash`, whose slot is `slot`, and says how it came to it.
///
/// [`BackendRef::NONE`] when no backend takes new flows and the service does not open or has none
/// that is allowed; [`BROKEN`] when the pool or the record of the chosen is not there. (Sentinels,
/// because LLVM merges the absent halves of enums into registers that the verifier finds unset.)
#[inline(always)]
pub fn choose<T: Tables>(
    tables: &T,
    service_index: u32,
    slot: Slot,
    hash: u64,
    now_ns: u64,
) -> (BackendRef, Path) {
    let current = slot.current();
    if bit(tables, Bitmap::TakesNew, current) {
        return (current, Path::Current);
    }
    tables.divert(service_index, current, hash, now_ns).parts()
}

/// A backend and the path to it as one number, which is what a function that the verifier checks
/// apart can return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice(pub u64);

impl Choice {
    const NONE: Self = Self::new(BackendRef::NONE, Path::Open);
    const BROKEN: Self = Self::new(BROKEN, Path::Open);

    #[inline(always)]
    const fn new(backend: BackendRef, path: Path) -> Self {
        Self(backend.0 as u64 | (path as u64) << 32)
    }

    /// Both again.
    #[inline(always)]
    #[must_use]
    pub const fn parts(self) -> (BackendRef, Path) {
        let path = match (self.0 >> 32) as u8 {
            REHASHED => Path::Rehashed,
            SEARCHED => Path::Searched,
            BACKUP => Path::Backup,
            PANIC_OPEN => Path::PanicOpen,
            STALE_OPEN_PATH => Path::StaleOpen,
            _ => Path::Open,
        };
        (BackendRef(self.0 as u32), path)
    }
}

const REHASHED: u8 = Path::Rehashed as u8;
const SEARCHED: u8 = Path::Searched as u8;
const BACKUP: u8 = Path::Backup as u8;
const PANIC_OPEN: u8 = Path::PanicOpen as u8;
const STALE_OPEN_PATH: u8 = Path::StaleOpen as u8;

/// Chooses in place of `current`, which does not take new flows.
#[inline(always)]
pub fn divert<T: Tables>(
    tables: &T,
    service_index: u32,
    current: BackendRef,
    hash: u64,
    now_ns: u64,
) -> Choice {
    let Some(service) = tables.service(service_index) else {
        return Choice::BROKEN;
    };
    if is_acquitted(tables, service, current, now_ns) {
        return Choice::new(current, Path::StaleOpen);
    }
    if tables.pool(service.pool).is_none() {
        return Choice::BROKEN;
    }
    let own = tables.pool_count(service.pool);
    if supplies(service, own) {
        let table = (service.slot_first, service.slot_count);
        let choice = search_pool(tables, service.pool, table, own as u32, hash);
        if choice != Choice::NONE {
            return choice;
        }
    }
    let choice = search_backup(tables, service, hash);
    if choice != Choice::NONE || service.all_sick != ALL_SICK_OPEN {
        return choice;
    }
    // Looked up again, this and the pool: the stack of so many calls has no room to keep them.
    let panics = tables.pool_count(service.pool) as u32 != 0;
    let path = if panics { Path::PanicOpen } else { Path::Open };
    if bit(tables, Bitmap::Allowed, current) {
        return Choice::new(current, path);
    }
    let Some(pool) = tables.pool(service.pool) else {
        return Choice::BROKEN;
    };
    let draw = remix(hash, SEARCH_TURN);
    let found = tables.any_by_scan(Bitmap::Allowed, pool.first_word, pool.word_count, draw);
    if found == NOT_FOUND { Choice::NONE } else { Choice::new(reference(tables, found), path) }
}

/// What becomes of an established flow of the sick `backend`: [`ON_SICK_KEEP`] or its like.
///
/// Where new flows are given to sick backends, those that are there may stay.
#[inline(always)]
pub fn on_sick<T: Tables>(
    tables: &T,
    service_index: u32,
    backend: BackendRef,
    is_tcp: bool,
    now_ns: u64,
) -> u8 {
    let Some(service) = tables.service(service_index) else {
        return ON_SICK_KEEP;
    };
    let policy = if is_tcp { service.on_sick_tcp } else { service.on_sick_udp };
    if policy == ON_SICK_KEEP
        || is_acquitted(tables, service, backend, now_ns)
        || fails_open(tables, service)
    {
        return ON_SICK_KEEP;
    }
    policy
}

/// Whether the verdict against a backend is stale, and condemns nobody then (`stale = open`). A
/// backend that an operator has drained or forced sick stays condemned.
#[inline(always)]
fn is_acquitted<T: Tables>(
    tables: &T,
    service: &Service,
    backend: BackendRef,
    now_ns: u64,
) -> bool {
    if service.stale != STALE_OPEN || !bit(tables, Bitmap::Allowed, backend) {
        return false;
    }
    let beat_ns = tables.sign_of_life_ns(backend.index());
    beat_ns.saturating_add(service.stale_after_ns) <= now_ns
}

/// Whether new flows are given to whoever is allowed, because too few take them.
#[inline(always)]
fn fails_open<T: Tables>(tables: &T, service: &Service) -> bool {
    service.all_sick == ALL_SICK_OPEN
        && !supplies(service, tables.pool_count(service.pool))
        && (service.backup_slot_count == 0
            || !supplies(service, tables.pool_count(service.backup_pool)))
}

/// Whether a pool of this count is to be chosen from: some take new flows, and enough.
#[inline(always)]
const fn supplies(service: &Service, pool_count: u64) -> bool {
    let panics = pool_count & POOL_PANICS != 0 && service.all_sick == ALL_SICK_OPEN;
    pool_count as u32 != 0 && !panics
}

/// One of the backup pool: its own slot's backend if that takes new flows, else another of it.
#[inline(always)]
fn search_backup<T: Tables>(tables: &T, service: &Service, hash: u64) -> Choice {
    if service.backup_slot_count == 0 {
        return Choice::NONE;
    }
    let count = tables.pool_count(service.backup_pool);
    if !supplies(service, count) {
        return Choice::NONE;
    }
    // Flows that come here may be those of few slots: their hashes lie close together.
    let hash = remix(hash, BACKUP_TURN);
    let table = (service.backup_slot_first, service.backup_slot_count);
    let Some(slot) = search::slot(tables, table.0, table.1, hash) else {
        return Choice::BROKEN;
    };
    if bit(tables, Bitmap::TakesNew, slot.current()) {
        return Choice::new(slot.current(), Path::Backup);
    }
    let (found, _) = search_pool(tables, service.backup_pool, table, count as u32, hash).parts();
    if found == BackendRef::NONE { Choice::NONE } else { Choice::new(found, Path::Backup) }
}

/// One of a pool of which `count` backends take new flows, whatever `table` (first slot, slots)
/// brings first.
#[inline(always)]
fn search_pool<T: Tables>(
    tables: &T,
    pool_index: u32,
    table: (u32, u32),
    count: u32,
    hash: u64,
) -> Choice {
    let other = search::rehash(tables, table.0, table.1, hash);
    if other != BackendRef::NONE {
        return Choice::new(other, Path::Rehashed);
    }
    let Some(pool) = tables.pool(pool_index) else {
        return Choice::BROKEN;
    };
    let draw = remix(hash, SEARCH_TURN);
    let mut found = tables.kth_by_counts(pool.first_word, pool.word_count, below(draw, count));
    if found == NOT_FOUND {
        // Counts and bits are separate stores: this group was emptied in between.
        found = tables.any_by_scan(Bitmap::TakesNew, pool.first_word, pool.word_count, draw);
    }
    if found == NOT_FOUND {
        return Choice::NONE;
    }
    Choice::new(reference(tables, found), Path::Searched)
}

#[inline(always)]
fn reference<T: Tables>(tables: &T, index: u32) -> BackendRef {
    let generation = tables.generation(index);
    if generation == 0 { BROKEN } else { BackendRef::new(index, generation) }
}
