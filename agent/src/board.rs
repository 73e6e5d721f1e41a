//! The board: the mmapped maps where verdicts, histories and heartbeats stand.
//!
//! A verdict reaches the kernel as one atomic or/and on a word of map memory: no system call, no
//! rebuild. Each bit, each target record and each heartbeat has one owning shard, the only one that
//! writes it; the counts are shared, and kept by atomic adds and compare-exchanges. Readers (the kernel program, other
//! threads, other processes that open the pinned maps) read at any time.

/// Memory that the agent, the kernel program and readers share.
mod memory;
/// Opening a board: from pinned maps, or in memory of its own.
mod open;
/// How many of each pool take new flows, and whether that is too few.
mod pools;

use std::sync::atomic::{Ordering, fence};

use nix::time::{ClockId, clock_gettime};
use sickbay_shared::abi::{
    ABI_VERSION, Backend, Header, Heartbeat, MAGIC, NEXT_HOP_VALID, Slot, TargetRecord, register,
};
use sickbay_shared::limits::{GROUP_WORDS, WORD_BACKENDS};
use thiserror::Error;

pub use self::memory::Mapped;
pub use self::pools::PanicCounts;

use self::pools::Panics;

/// Reads of one target record before [`Board::read_target`] gives up: a writer needs some 20 ns
/// for a record, so that many collisions in a row mean that it died while writing.
const READ_TRIES: u32 = 1000;

/// Why a board cannot be used.
#[derive(Debug, Error)]
pub enum BoardError {
    /// A map is not there, or not what the ABI says.
    #[error("the board's map {name}: {source}")]
    Map {
        /// Its name.
        name: &'static str,
        /// What is wrong.
        source: std::io::Error,
    },
    /// The header was written by something else.
    #[error("these maps are not a sickbay board (first word {found:#x}); was it ever started?")]
    Magic {
        /// The first word found.
        found: u64,
    },
    /// The header was written by a version whose layout is another.
    #[error(
        "its maps have layout {}, this sickbay reads {}: use the version that made them",
        version_text(*found), version_text(ABI_VERSION)
    )]
    Version {
        /// The version found: major:16 | minor:16.
        found: u32,
    },
    /// The stamps on the board are of another boot.
    #[error("this board was written before the last boot")]
    Boot,
}

/// What the program asks of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Bits {
    /// It takes new flows.
    pub takes_new: bool,
    /// It serves the flows it has.
    pub serves_old: bool,
    /// Fail-open may choose it.
    pub allowed: bool,
}

/// All mmapped maps of one instance. Shared between threads behind an `Arc`.
#[derive(Debug)]
pub struct Board {
    header: Mapped<Header>,
    heartbeats: Mapped<Heartbeat>,
    takes_new: Mapped<u64>,
    serves_old: Mapped<u64>,
    allowed: Mapped<u64>,
    group_counts: Mapped<u32>,
    pool_counts: Mapped<u64>,
    panics: Panics,
    slots: Mapped<Slot>,
    backends: Mapped<Backend>,
    targets: Mapped<TargetRecord>,
}

/// The verdict bits. Only the shard that owns a backend calls the setters for it.
impl Board {
    /// Puts the bits of `backend` of pool `pool`. The one that new flows ask for is the first to go and
    /// the last to come: who gets a new flow serves it from its first packet on.
    ///
    /// # Panics
    ///
    /// When the board has no such backend or pool.
    pub fn set_bits(&self, backend: u32, pool: u32, bits: Bits) {
        let Bits { takes_new, serves_old, allowed } = bits;
        if !takes_new {
            self.set_takes_new(backend, pool, false);
        }
        self.set_serves_old(backend, serves_old);
        self.set_allowed(backend, allowed);
        if takes_new {
            self.set_takes_new(backend, pool, true);
        }
    }

    /// Says whether `backend` of pool `pool` takes new flows. One atomic or/and; when the bit
    /// really changed, the counts of its group and pool follow. Returns whether it changed.
    ///
    /// # Panics
    ///
    /// When the board has no such backend or pool.
    pub fn set_takes_new(&self, backend: u32, pool: u32, takes: bool) -> bool {
        if !set_bit(&self.takes_new, backend, takes) {
            return false;
        }
        let group = self.group_counts.number(group_of(backend)).expect("a group for each word");
        // The bit comes first: a reader that trusts a count too small or too large by one takes
        // the last bit it saw.
        if takes {
            group.fetch_add(1, Ordering::Release);
        } else {
            group.fetch_sub(1, Ordering::Release);
        }
        self.count_in_pool(pool, takes);
        true
    }

    /// Says whether `backend` serves the flows it has. Returns whether that is a change.
    ///
    /// # Panics
    ///
    /// When the board has no such backend.
    pub fn set_serves_old(&self, backend: u32, serves: bool) -> bool {
        set_bit(&self.serves_old, backend, serves)
    }

    /// Says whether fail-open may choose `backend`. Returns whether that is a change.
    ///
    /// # Panics
    ///
    /// When the board has no such backend.
    pub fn set_allowed(&self, backend: u32, allowed: bool) -> bool {
        set_bit(&self.allowed, backend, allowed)
    }

    /// Whether `backend` takes new flows; `false` past the end.
    #[must_use]
    pub fn takes_new(&self, backend: u32) -> bool {
        bit(&self.takes_new, backend)
    }

    /// Whether `backend` serves the flows it has; `false` past the end.
    #[must_use]
    pub fn serves_old(&self, backend: u32) -> bool {
        bit(&self.serves_old, backend)
    }

    /// Whether fail-open may choose `backend`; `false` past the end.
    #[must_use]
    pub fn allowed(&self, backend: u32) -> bool {
        bit(&self.allowed, backend)
    }

    /// Backends of the group that bitmap word `word` lies in that take new flows; 0 past the end.
    #[must_use]
    pub fn group_count(&self, word: u32) -> u32 {
        let number = self.group_counts.number(word / GROUP_WORDS);
        number.map_or(0, |count| count.load(Ordering::Acquire))
    }
}

/// Targets: their histories.
impl Board {
    /// Writes the record of target `index`; `record.sequence` is ignored, the board keeps its own.
    /// `happy` is stored last, then the sequence becomes even. Only the target's shard calls this.
    ///
    /// # Panics
    ///
    /// When the board has no such target.
    pub fn write_target(&self, index: u32, record: &TargetRecord) {
        const HAPPY: usize = register::HAPPY;
        let words = self.targets.words(index).expect("the target is on the board");
        let sequence = &words[SEQUENCE_WORD];
        // A writer that died in the middle left it odd.
        let writing = sequence.load(Ordering::Relaxed) | 1;
        sequence.store(writing, Ordering::Relaxed);
        fence(Ordering::Release);
        let values = record_words(record);
        for (position, (word, value)) in words.iter().zip(values).enumerate() {
            if position != HAPPY && position != SEQUENCE_WORD {
                word.store(value, Ordering::Relaxed);
            }
        }
        words[HAPPY].store(values[HAPPY], Ordering::Release);
        sequence.store(writing.wrapping_add(1), Ordering::Release);
    }

    /// The record of target `index`, whole; `None` past the end, and when its writer died while
    /// writing it.
    #[must_use]
    pub fn read_target(&self, index: u32) -> Option<TargetRecord> {
        let words = self.targets.words(index)?;
        let sequence = &words[SEQUENCE_WORD];
        for _ in 0..READ_TRIES {
            let before = sequence.load(Ordering::Acquire);
            if before % 2 == 0 {
                let record = self.targets.load(index)?;
                fence(Ordering::Acquire);
                if sequence.load(Ordering::Relaxed) == before {
                    return Some(record);
                }
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// Header and heartbeats.
impl Board {
    /// Writes the header; magic, version and boot id are filled in.
    ///
    /// # Errors
    ///
    /// When the boot id cannot be read from /proc.
    pub fn write_header(&self, header: &Header) -> std::io::Result<()> {
        let whole =
            Header { magic: MAGIC, abi_version: ABI_VERSION, boot_id: boot_id()?, ..*header };
        self.header.store(0, &whole);
        Ok(())
    }

    /// Says that another configuration is in force: the header's generation grows by one.
    pub fn raise_generation(&self) {
        const GENERATION_WORD: usize = core::mem::offset_of!(Header, generation) / 8;
        let words = self.header.words(0).expect("a board has a header");
        words[GENERATION_WORD].fetch_add(1, Ordering::AcqRel);
    }

    /// The header, as it stands.
    #[must_use]
    pub fn header(&self) -> Header {
        self.header.load(0).unwrap_or_default()
    }

    /// The header, when what stands on the board can be believed: magic, layout and boot are ours.
    ///
    /// # Errors
    ///
    /// [`BoardError::Magic`], [`BoardError::Version`], [`BoardError::Boot`]; or /proc cannot be
    /// read.
    pub fn checked_header(&self) -> Result<Header, BoardError> {
        let header = self.header();
        if header.magic != MAGIC {
            return Err(BoardError::Magic { found: header.magic });
        }
        check_version(header.abi_version)?;
        let boot = boot_id().map_err(|source| BoardError::Map { name: "HEADER", source })?;
        if header.boot_id != boot { Err(BoardError::Boot) } else { Ok(header) }
    }

    /// Says that shard `shard` lives: stamps its heartbeat with [`coarse_now_ns`].
    ///
    /// # Panics
    ///
    /// When the board has no such shard.
    pub fn beat(&self, shard: u32) {
        let words = self.heartbeats.words(shard).expect("the shard is on the board");
        words[0].store(coarse_now_ns(), Ordering::Release);
    }

    /// The last heartbeat of shard `shard` in ns of CLOCK_MONOTONIC_COARSE; 0 = none yet.
    #[must_use]
    pub fn last_beat_ns(&self, shard: u32) -> u64 {
        self.heartbeats.load(shard).map_or(0, |heartbeat| heartbeat.beat_ns)
    }
}

/// Tables and backend records.
impl Board {
    /// Writes a table, or part of one, from slot `first` on. Each slot changes in one store.
    ///
    /// # Panics
    ///
    /// When the board has fewer slots.
    pub fn write_slots(&self, first: u32, slots: &[Slot]) {
        for (index, slot) in (first..).zip(slots) {
            assert!(self.slots.store(index, slot), "slot {index} is on the board");
        }
    }

    /// Slot `index`; `None` past the end.
    #[must_use]
    pub fn slot(&self, index: u32) -> Option<Slot> {
        self.slots.load(index)
    }

    /// Writes the record of backend `index`, next hop included.
    ///
    /// # Panics
    ///
    /// When the board has no such backend.
    pub fn write_backend(&self, index: u32, backend: &Backend) {
        assert!(self.backends.store(index, backend), "backend {index} is on the board");
    }

    /// The record of backend `index`; `None` past the end.
    #[must_use]
    pub fn backend(&self, index: u32) -> Option<Backend> {
        self.backends.load(index)
    }

    /// Says by which MAC and interface backend `index` is reached; `None`: it is not known, and
    /// its packets are dropped and counted. One thread writes next hops.
    ///
    /// # Panics
    ///
    /// When the board has no such backend.
    pub fn set_next_hop(&self, index: u32, next_hop: Option<NextHop>) {
        let words = self.backends.words(index).expect("the backend is on the board");
        let [hop, source, interface, ..] = words else { unreachable!("a record is 64 bytes") };
        let Some(next_hop) = next_hop else {
            hop.store(0, Ordering::Release);
            return;
        };
        let generation = interface.load(Ordering::Relaxed) & !u64::from(u32::MAX);
        let wanted_interface = generation | u64::from(next_hop.interface_index);
        let wanted_source = mac_word(next_hop.source_mac);
        if interface.load(Ordering::Relaxed) != wanted_interface
            || source.load(Ordering::Relaxed) != wanted_source
        {
            // No packet may leave by one interface with the MACs of another.
            hop.store(0, Ordering::Release);
            source.store(wanted_source, Ordering::Release);
            interface.store(wanted_interface, Ordering::Release);
        }
        hop.store(mac_word(next_hop.mac) | NEXT_HOP_VALID, Ordering::Release);
    }
}

/// How a backend is reached on the link layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NextHop {
    /// The MAC of the backend, or of the gateway to it.
    pub mac: [u8; 6],
    /// The MAC of the interface its packets leave by.
    pub source_mac: [u8; 6],
    /// The interface its packets leave by.
    pub interface_index: u32,
}

/// Whether maps of this version can be read: a minor adds, so that each of a major reads the others.
///
/// # Errors
///
/// [`BoardError::Version`]: it is of another major.
pub(crate) fn check_version(found: u32) -> Result<(), BoardError> {
    if found >> 16 == ABI_VERSION >> 16 { Ok(()) } else { Err(BoardError::Version { found }) }
}

/// `1.0`
fn version_text(version: u32) -> String {
    format!("{}.{}", version >> 16, version & 0xffff)
}

/// CLOCK_MONOTONIC_COARSE in ns: the clock of heartbeats and of `bpf_ktime_get_coarse_ns`.
#[must_use]
pub fn coarse_now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).expect("every Linux has this clock");
    let seconds = u64::try_from(now.tv_sec()).expect("monotonic time is not negative");
    let nanos = u64::try_from(now.tv_nsec()).expect("monotonic time is not negative");
    seconds * 1_000_000_000 + nanos
}

/// A MAC in the low six bytes of a word, its first byte lowest.
const fn mac_word(mac: [u8; 6]) -> u64 {
    u64::from_le_bytes([mac[0], mac[1], mac[2], mac[3], mac[4], mac[5], 0, 0])
}

/// The kernel's id of this boot.
fn boot_id() -> std::io::Result<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    u128::from_str_radix(&digits, 16)
        .map(u128::to_be_bytes)
        .map_err(|_| std::io::Error::other(format!("boot_id {text:?} is not a UUID")))
}

/// The word of a [`TargetRecord`] that holds its sequence.
const SEQUENCE_WORD: usize = core::mem::offset_of!(TargetRecord, sequence) / 8;
const RECORD_WORDS: usize = size_of::<TargetRecord>() / 8;

fn record_words(record: &TargetRecord) -> [u64; RECORD_WORDS] {
    use sickbay_shared::pod::Pod as _;
    let mut words = [0; RECORD_WORDS];
    for (word, bytes) in words.iter_mut().zip(record.as_bytes().chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"));
    }
    words
}

const fn group_of(backend: u32) -> u32 {
    backend / WORD_BACKENDS / GROUP_WORDS
}

/// Sets or clears one bit; returns whether that changed it.
fn set_bit(bitmap: &Mapped<u64>, backend: u32, value: bool) -> bool {
    let word = bitmap.word(backend / WORD_BACKENDS).expect("the backend is on the board");
    let bit = 1 << (backend % WORD_BACKENDS);
    let before = if value {
        word.fetch_or(bit, Ordering::AcqRel)
    } else {
        word.fetch_and(!bit, Ordering::AcqRel)
    };
    (before & bit != 0) != value
}

fn bit(bitmap: &Mapped<u64>, backend: u32) -> bool {
    bitmap
        .word(backend / WORD_BACKENDS)
        .is_some_and(|word| word.load(Ordering::Acquire) >> (backend % WORD_BACKENDS) & 1 == 1)
}

#[cfg(test)]
mod tests;
