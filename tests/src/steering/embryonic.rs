//! The entries of SYNs, in this process's memory: the map has no keys.

use std::collections::HashMap;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU64, Ordering};

use aya::maps::Map;
use sickbay::board::{Mapped, coarse_now_ns};
use sickbay_shared::abi::{EmbryonicEntry, EmbryonicLine, FlowEntry};
use sickbay_shared::embryonic::{Line, line_of, put};
use sickbay_shared::limits::{EMBRYONIC_LINES, EMBRYONIC_WAYS};

/// The map.
pub(super) struct Embryonic(Mapped<EmbryonicLine>);

impl Embryonic {
    pub(super) fn of(map: &Map) -> Self {
        let Map::Array(map) = map else { panic!("the map of SYNs' entries is no array") };
        Self(Mapped::of_map(map.fd().as_fd(), EMBRYONIC_LINES).expect("it can be mapped"))
    }

    /// Puts these entries, by their flows' tags, and no others.
    pub(super) fn put(&self, entries: impl Iterator<Item = (u64, FlowEntry)>) {
        for line in 0..EMBRYONIC_LINES {
            self.words(line).iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        for (tag, entry) in entries {
            put(&InMemory(self.words(line_of(tag))), tag, entry.backend, entry.seen_ns);
        }
    }

    /// Those that are there.
    pub(super) fn all(&self) -> HashMap<u64, FlowEntry> {
        let now_ns = coarse_now_ns();
        let lines = (0..EMBRYONIC_LINES).map(|line| InMemory(self.words(line)));
        let entries = lines.flat_map(|line| {
            (0..EMBRYONIC_WAYS)
                .map(move |way| EmbryonicEntry { check: line.check(way), whom: line.whom(way) })
        });
        let used = entries.filter(|entry| entry.whom != 0);
        used.map(|entry| (entry.tag(), entry.said(now_ns))).collect()
    }

    fn words(&self, line: u32) -> &[AtomicU64] {
        self.0.words(line).expect("a line of the map")
    }
}

/// A line: the two words of each entry.
struct InMemory<'map>(&'map [AtomicU64]);

impl Line for InMemory<'_> {
    fn check(&self, way: usize) -> u64 {
        self.0[2 * way].load(Ordering::Relaxed)
    }

    fn whom(&self, way: usize) -> u64 {
        self.0[2 * way + 1].load(Ordering::Relaxed)
    }

    fn put(&self, way: usize, entry: EmbryonicEntry) {
        self.0[2 * way].store(entry.check, Ordering::Relaxed);
        self.0[2 * way + 1].store(entry.whom, Ordering::Relaxed);
    }
}
