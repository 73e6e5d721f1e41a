//! Opening a board: from pinned maps, or in memory of its own.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use sickbay_shared::abi;
use sickbay_shared::pod::Pod;

use super::pools::Panics;
use super::{Board, BoardError, Mapped};
use crate::kernel::{MAPS_FOLDER, Sizes, syscall};

/// `BPF_MAP_TYPE_ARRAY` of `enum bpf_map_type`.
const MAP_TYPE_ARRAY: u32 = 2;
/// `BPF_F_MMAPABLE` (5.5).
const FLAG_MMAPABLE: u32 = 1 << 10;

impl Board {
    /// The board of the instance whose maps are pinned under `pin_directory`, as many entries as
    /// its maps have. Its header is not checked: a new board has none yet; a reader of another's
    /// board calls [`Board::checked_header`].
    ///
    /// # Errors
    ///
    /// [`BoardError::Map`]: a map is not pinned there, may not be opened, or is not what the ABI
    /// says.
    pub fn open(pin_directory: &Path) -> Result<Self, BoardError> {
        Self::open_maps(&pin_directory.join(MAPS_FOLDER))
    }

    /// The board of the maps that are pinned in the folder `maps`; otherwise as [`Board::open`].
    ///
    /// # Errors
    ///
    /// As [`Board::open`].
    pub fn open_maps(maps: &Path) -> Result<Self, BoardError> {
        let header = mapped(maps, abi::HEADER)?;
        let pool_counts: Mapped<u64> = mapped(maps, abi::POOL_COUNTS)?;
        Ok(Self {
            header,
            panics: Panics::none(pool_counts.count()),
            pool_counts,
            heartbeats: mapped(maps, abi::HEARTBEATS)?,
            takes_new: mapped(maps, abi::TAKES_NEW)?,
            serves_old: mapped(maps, abi::SERVES_OLD)?,
            allowed: mapped(maps, abi::ALLOWED)?,
            group_counts: mapped(maps, abi::GROUP_COUNTS)?,
            slots: mapped(maps, abi::SLOTS)?,
            backends: mapped(maps, abi::BACKENDS)?,
            targets: mapped(maps, abi::TARGETS)?,
        })
    }

    /// A board that no kernel map backs: for an instance that probes without steering, and for
    /// tests.
    ///
    /// # Errors
    ///
    /// [`BoardError::Map`]: no memory.
    pub fn in_memory(sizes: &Sizes) -> Result<Self, BoardError> {
        let header = anonymous(sizes, abi::HEADER)?;
        let pool_counts: Mapped<u64> = anonymous(sizes, abi::POOL_COUNTS)?;
        Ok(Self {
            header,
            panics: Panics::none(pool_counts.count()),
            pool_counts,
            heartbeats: anonymous(sizes, abi::HEARTBEATS)?,
            takes_new: anonymous(sizes, abi::TAKES_NEW)?,
            serves_old: anonymous(sizes, abi::SERVES_OLD)?,
            allowed: anonymous(sizes, abi::ALLOWED)?,
            group_counts: anonymous(sizes, abi::GROUP_COUNTS)?,
            slots: anonymous(sizes, abi::SLOTS)?,
            backends: anonymous(sizes, abi::BACKENDS)?,
            targets: anonymous(sizes, abi::TARGETS)?,
        })
    }
}

fn mapped<T: Pod>(maps: &Path, name: &'static str) -> Result<Mapped<T>, BoardError> {
    let open = || {
        let map = syscall::pinned(&maps.join(name))?;
        let info = syscall::map_info(map.as_fd())?;
        if info.map_type != MAP_TYPE_ARRAY || info.flags & FLAG_MMAPABLE == 0 {
            return Err(io::Error::other("not an array that can be mapped to memory"));
        }
        if info.value_size as usize != size_of::<T>() {
            return Err(io::Error::other(format!(
                "its values have {} bytes, not {}",
                info.value_size,
                size_of::<T>()
            )));
        }
        Mapped::of_map(map.as_fd(), info.entries_max)
    };
    open().map_err(|source| BoardError::Map { name, source })
}

fn anonymous<T: Pod>(sizes: &Sizes, name: &'static str) -> Result<Mapped<T>, BoardError> {
    let count = sizes.entries(name).expect("Sizes knows every map of the board");
    Mapped::anonymous(count).map_err(|source| BoardError::Map { name, source })
}
