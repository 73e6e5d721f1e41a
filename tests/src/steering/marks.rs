//! The marks of flows that may have entries, in this process's memory: too many to be written one by
//! one.

use std::collections::HashSet;
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;

use aya::maps::Map;
use sickbay::board::Mapped;
use sickbay_shared::abi::FlowMarks;
use sickbay_shared::limits::{FLOW_MARKS_BYTES, FLOW_MARKS_LINES};

/// The map.
pub(super) struct Marks(Mapped<FlowMarks>);

impl Marks {
    pub(super) fn of(map: &Map) -> Self {
        let Map::Array(map) = map else { panic!("the marks' map is no array") };
        Self(Mapped::of_map(map.fd().as_fd(), FLOW_MARKS_LINES).expect("the marks can be mapped"))
    }

    /// Sets these marks and no others; all when `None`.
    pub(super) fn put(&self, marks: Option<&HashSet<u32>>) {
        let every = if marks.is_none() { u64::MAX } else { 0 };
        for line in 0..FLOW_MARKS_LINES {
            for word in self.0.words(line).expect("a line of the map") {
                word.store(every, Ordering::Relaxed);
            }
        }
        for mark in marks.into_iter().flatten() {
            let words = self.0.words(mark / FLOW_MARKS_BYTES).expect("a line of the map");
            let byte = (mark % FLOW_MARKS_BYTES) as usize;
            words[byte / 8].fetch_or(in_word(byte, 1), Ordering::Relaxed);
        }
    }

    /// Those that are set.
    pub(super) fn all(&self) -> HashSet<u32> {
        let mut all = HashSet::new();
        for line in 0..FLOW_MARKS_LINES {
            let words = self.0.words(line).expect("a line of the map");
            let words: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
            let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
            let set = (0_u32..).zip(bytes).filter(|(_, byte)| *byte != 0);
            all.extend(set.map(|(byte, _)| line * FLOW_MARKS_BYTES + byte));
        }
        all
    }
}

/// A byte of memory, as part of the word that it lies in.
fn in_word(byte: usize, value: u8) -> u64 {
    let mut bytes = [0; 8];
    bytes[byte % 8] = value;
    u64::from_ne_bytes(bytes)
}
