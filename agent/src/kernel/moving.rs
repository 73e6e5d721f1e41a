//! Flow entries that move: a new map of another size takes the place of the old one.
//!
//! Before the links are turned all of the old map is copied; the old program goes on writing to it
//! meanwhile. Right after they are turned, what it has written since follows, over nothing that the
//! new program has written itself.

use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use sickbay_shared::abi::FlowEntry;
use sickbay_shared::limits::EMBRYONIC_LIFE_NS;
use sickbay_shared::pod::Pod as _;

use super::error::KernelError;
use super::syscall::{self, MapInfo};
use crate::board::coarse_now_ns;

/// One map whose entries go to another.
#[derive(Debug)]
pub(super) struct Moving {
    name: &'static str,
    from: OwnedFd,
    to: OwnedFd,
    to_info: MapInfo,
    /// When the copy began, by the clock of the entries' stamps.
    begun_ns: u64,
}

impl Moving {
    /// From the map pinned at `from` to the one at `to`; `None` where their kind, or what stands in
    /// them, is not the same.
    pub(super) fn new(name: &'static str, from: &Path, to: &Path) -> Option<Self> {
        let (from, to) = (syscall::pinned(from).ok()?, syscall::pinned(to).ok()?);
        let (info, to_info) =
            (syscall::map_info(from.as_fd()).ok()?, syscall::map_info(to.as_fd()).ok()?);
        let shape = |info: &MapInfo| (info.map_type, info.key_size, info.value_size);
        let is_of_flows = info.value_size as usize == size_of::<FlowEntry>();
        (is_of_flows && shape(&info) == shape(&to_info)).then_some(Self {
            name,
            from,
            to,
            to_info,
            begun_ns: 0,
        })
    }

    /// Copies every entry, as many as there is room for.
    pub(super) fn copy(&mut self) -> Result<(), KernelError> {
        self.begun_ns = coarse_now_ns();
        let mut copied = 0;
        let (to, info) = (&self.to, &self.to_info);
        syscall::read_entries(self.from.as_fd(), |keys, values, count| {
            copied += u64::from(count);
            syscall::update_entries(to.as_fd(), info, keys, values)
        })
        .map_err(|error| self.failed(&error))?;
        let room = u64::from(self.to_info.entries_max);
        if room < copied {
            tracing::warn!(
                "{}: {copied} entries, and room for {room}: {} flows go back to their slots",
                self.name,
                copied - room
            );
        } else {
            tracing::info!("{}: {copied} entries moved to a map with room for {room}", self.name);
        }
        Ok(())
    }

    /// Copies what was written since the copy began. An entry that came to last meanwhile still has
    /// the stamp of its SYN, which is younger than such an entry lives.
    pub(super) fn follow(&self) -> Result<(), KernelError> {
        let since_ns = self.begun_ns.saturating_sub(EMBRYONIC_LIFE_NS);
        let (key_size, value_size) =
            (self.to_info.key_size as usize, self.to_info.value_size as usize);
        syscall::read_entries(self.from.as_fd(), |keys, values, _| {
            for (key, value) in keys.chunks_exact(key_size).zip(values.chunks_exact(value_size)) {
                let entry = FlowEntry::from_bytes(value);
                if entry.is_some_and(|entry| since_ns <= entry.seen_ns) {
                    syscall::insert_new(self.to.as_fd(), &self.to_info, key, value)?;
                }
            }
            Ok(())
        })
        .map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &std::io::Error) -> KernelError {
        KernelError::Map { map: self.name, reason: format!("its entries cannot be moved: {error}") }
    }
}
