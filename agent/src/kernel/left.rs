//! What an agent before this one left: its board, and the maps beside it that only the kernel reads.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use sickbay_shared::abi::{self, Header, Pool, Service};
use sickbay_shared::pod::Pod;

use super::pins::{MAPS_FOLDER, OLD_MAPS_FOLDER};
use super::syscall;
use crate::board::{self, Board, BoardError};

/// What was left, and is still in force where it is attached.
#[derive(Debug)]
pub struct Left {
    /// Its board; the memory stays when the pins are gone.
    pub board: Board,
    /// The board's header, checked.
    pub header: Header,
    /// By pool index.
    pub pools: Vec<Pool>,
    /// By service index.
    pub services: Vec<Service>,
}

impl Left {
    /// Reads what is pinned under `pin_directory`; `None` when there is nothing, or nothing that was
    /// laid out to its end in this boot. An agent that died between two sets of maps leaves both:
    /// the newer one if it is whole.
    ///
    /// # Errors
    ///
    /// [`BoardError::Version`]: it has another layout, so nothing of it may be believed or replaced.
    pub fn read(pin_directory: &Path) -> Result<Option<Self>, BoardError> {
        for folder in [MAPS_FOLDER, OLD_MAPS_FOLDER] {
            let maps = pin_directory.join(folder);
            match Self::of(&maps) {
                Ok(left) => return Ok(Some(left)),
                Err(error @ BoardError::Version { .. }) => return Err(error),
                Err(error) if is_whole(&maps) => {
                    tracing::warn!("what an agent before this one left is not taken up: {error}");
                }
                Err(error) => tracing::debug!(folder, "nothing to take up: {error}"),
            }
        }
        Ok(None)
    }

    fn of(maps: &Path) -> Result<Self, BoardError> {
        // First: in another layout the header itself may have another size.
        if let Ok(version) = version_of(maps) {
            board::check_version(version)?;
        }
        let board = Board::open_maps(maps)?;
        let header = board.checked_header()?;
        Ok(Self {
            board,
            header,
            pools: values(maps, abi::POOLS)?,
            services: values(maps, abi::SERVICES)?,
        })
    }
}

/// Whether the maps of a folder were laid out to the end: their header is written last.
pub(super) fn is_whole(maps: &Path) -> bool {
    version_of(maps).is_ok()
}

/// Which layout the maps of a folder have, as every version's header says it: by its first twelve
/// bytes. An error where nothing was laid out.
fn version_of(maps: &Path) -> io::Result<u32> {
    const VERSION: usize = core::mem::offset_of!(Header, abi_version);
    let map = syscall::pinned(&maps.join(abi::HEADER))?;
    let mut bytes = vec![0; syscall::map_info(map.as_fd())?.value_size as usize];
    syscall::look_up(map.as_fd(), &0_u32.to_ne_bytes(), &mut bytes)?;
    let magic = bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes));
    let version = bytes.get(VERSION..).and_then(<[u8]>::first_chunk).copied();
    match version {
        Some(version) if magic == Some(abi::MAGIC) => Ok(u32::from_ne_bytes(version)),
        _ => Err(io::Error::other("its maps have no header of sickbay's")),
    }
}

/// Every value of an array that is pinned there.
fn values<T: Pod>(maps: &Path, name: &'static str) -> Result<Vec<T>, BoardError> {
    let read = |path: PathBuf| {
        let map = syscall::pinned(&path)?;
        let info = syscall::map_info(map.as_fd())?;
        if info.value_size as usize != size_of::<T>() {
            return Err(io::Error::other("its values have another size"));
        }
        let mut bytes = vec![0; size_of::<T>()];
        let value = |index: u32| {
            syscall::look_up(map.as_fd(), &index.to_ne_bytes(), &mut bytes)?;
            T::from_bytes(&bytes).ok_or_else(|| io::Error::other("too short"))
        };
        (0..info.entries_max).map(value).collect()
    };
    read(maps.join(name)).map_err(|source| BoardError::Map { name, source })
}
