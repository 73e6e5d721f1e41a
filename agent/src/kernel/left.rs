//! What an agent before this one left: its board, and the maps beside it that only the kernel reads.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use sickbay_shared::abi::{self, Header, Pool, Service};
use sickbay_shared::pod::Pod;

use super::pins::{MAPS_FOLDER, OLD_MAPS_FOLDER};
use super::syscall;
use crate::board::{Board, BoardError};

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
            match Self::of(&pin_directory.join(folder)) {
                Ok(left) => return Ok(Some(left)),
                Err(error @ BoardError::Version { .. }) => return Err(error),
                Err(error) => tracing::debug!(folder, "nothing to take up: {error}"),
            }
        }
        Ok(None)
    }

    fn of(maps: &Path) -> Result<Self, BoardError> {
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
    let header: Result<Vec<Header>, _> = values(maps, abi::HEADER);
    header.is_ok_and(|header| header.first().is_some_and(|header| header.magic == abi::MAGIC))
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
