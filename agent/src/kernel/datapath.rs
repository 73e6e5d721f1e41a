//! The datapath of one instance: loaded, pinned, attached; taken over from an agent that died.

use std::os::fd::AsFd as _;
use std::path::Path;

use sickbay_shared::abi::{self, AddressPrefixKey, Pool, PortPrefixKey, Service, ServiceKey};

use super::aya::{DropRing, Loaded};
use super::counters::Counters;
use super::error::KernelError;
use super::moving::Moving;
use super::pins::Pins;
use super::sizes::Sizes;
use super::syscall;
use super::watch::Watch;
use crate::board::{Board, BoardError};

/// The maps that packets write and the agent does not: flows and what is known of them. Kept by a
/// new agent ([`Datapath::load`]), they are right as long as every backend index and generation in
/// them names the same backend, or none.
pub const FLOW_MAPS: [&str; 6] = [
    // First: without the marks, nobody finds an entry.
    abi::FLOW_MARKS,
    abi::FLOWS_V4,
    abi::FLOWS_V6,
    abi::EMBRYONIC,
    abi::EMBRYONIC_SEEN,
    abi::FRAGMENTS,
];

/// Which hook TC programs are attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TcHook {
    /// A TCX link where the kernel has it (6.6), else clsact.
    #[default]
    Best,
    /// Always clsact.
    Clsact,
}

/// Programs and maps of one instance, pinned under its pin directory, which this process holds.
///
/// Dropped before [`Datapath::attach`] succeeded, it undoes everything it made and puts back what
/// it found. Dropped after, everything stays: programs go on by the last verdicts until a new agent
/// takes over or [`detach`](super::detach()) is called.
#[derive(Debug)]
pub struct Datapath {
    pub(super) loaded: Loaded,
    pub(super) pins: Pins,
    /// Whether maps of an agent before this one stand aside.
    pub(super) old_maps: bool,
    /// Which of those were kept.
    kept: Vec<&'static str>,
    /// Which of those are copied, since their room is another.
    pub(super) moving: Vec<Moving>,
    pub(super) watch: Watch,
    pub(super) tc_hook: TcHook,
    pub(super) attached: bool,
}

impl Datapath {
    /// Loads the programs of `object` with maps of `sizes`, and pins the maps. What an agent
    /// before this one left stays in force until [`Datapath::attach`]; to read its history, read
    /// what it left ([`Left::read`](super::Left::read)) before this call. Of its maps those called
    /// in `keep` are gone on with, where their room and their values are as wanted; flow entries go
    /// along to a map of another room when it is attached.
    ///
    /// # Errors
    ///
    /// Too many of something, no BPF file system, another agent runs, or the kernel refuses. Then
    /// nothing is left behind.
    pub fn load(
        object: &[u8],
        sizes: &Sizes,
        pin_directory: &Path,
        keep: &[&'static str],
    ) -> Result<Self, KernelError> {
        if let Some((what, count, limit)) = sizes.excess() {
            return Err(KernelError::TooMany { what, count, limit });
        }
        let mut pins = Pins::prepare(pin_directory)?;
        let mut kept = Vec::new();
        let mut old_maps = false;
        let loaded = (|| {
            old_maps = pins.set_old_maps_aside()?;
            keep_maps(&pins, sizes, keep, &mut kept)?;
            let loaded = Loaded::load(object, sizes, Some(&pins))?;
            let services = sizes.entries(abi::SERVICE_COUNTERS).unwrap_or_default();
            Ok((loaded, Watch::begin(&pins, services)?))
        })();
        match loaded {
            Ok((loaded, watch)) => {
                let rest = keep.iter().filter(|name| !kept.contains(*name));
                let moving =
                    rest.filter_map(|name| Moving::new(name, &pins.old_map(name), &pins.map(name)));
                let moving = moving.collect();
                let tc_hook = TcHook::default();
                Ok(Self { loaded, pins, old_maps, kept, moving, watch, tc_hook, attached: false })
            }
            Err(error) => {
                undo(&mut pins, old_maps, &kept);
                Err(error)
            }
        }
    }

    /// The board: every mmapped map.
    ///
    /// # Errors
    ///
    /// A map of the object is not what the ABI says.
    pub fn board(&self) -> Result<Board, BoardError> {
        Board::open(self.pins.directory())
    }

    /// The samples of dropped packets; they have one reader, and this is it.
    ///
    /// # Errors
    ///
    /// They were taken before.
    pub fn take_drops(&mut self) -> Result<DropRing, KernelError> {
        self.loaded.take_drops()
    }

    /// The counters.
    ///
    /// # Errors
    ///
    /// A map of the object is not what the ABI says.
    pub fn counters(&self) -> Result<Counters, KernelError> {
        Counters::open(self.pins.directory())
    }

    /// Puts a service in force, or changes its rules; no packet is its own before it has a key.
    ///
    /// # Errors
    ///
    /// There is no room for its index.
    pub fn set_service(&mut self, service: &Service) -> Result<(), KernelError> {
        self.loaded.set_service(service)
    }

    /// Says that packets of `key` are for the service `index`.
    ///
    /// # Errors
    ///
    /// The map is full.
    pub fn insert_service_key(&mut self, key: &ServiceKey, index: u32) -> Result<(), KernelError> {
        self.loaded.insert_service_key(key, index)
    }

    /// Says that addresses of prefix `key` have this number among the port prefixes.
    ///
    /// # Errors
    ///
    /// The map is full.
    pub fn insert_address_prefix(
        &mut self,
        key: &AddressPrefixKey,
        number: u32,
    ) -> Result<(), KernelError> {
        self.loaded.insert_address_prefix(key, number)
    }

    /// Says that packets of port prefix `key` are for the service `index`.
    ///
    /// # Errors
    ///
    /// The map is full.
    pub fn insert_port_prefix(
        &mut self,
        key: &PortPrefixKey,
        index: u32,
    ) -> Result<(), KernelError> {
        self.loaded.insert_port_prefix(key, index)
    }

    /// Says where pool `index` stands in the bitmaps.
    ///
    /// # Errors
    ///
    /// There is no room for that index.
    pub fn insert_pool(&mut self, index: u32, pool: &Pool) -> Result<(), KernelError> {
        self.loaded.insert_pool(index, pool)
    }

    /// Says which hook TC programs are attached to from now on.
    pub fn set_tc_hook(&mut self, hook: TcHook) {
        self.tc_hook = hook;
    }
}

impl Drop for Datapath {
    fn drop(&mut self) {
        if !self.attached {
            undo(&mut self.pins, self.old_maps, &self.kept);
        }
    }
}

/// Leaves the pin directory as it was found.
fn undo(pins: &mut Pins, old_maps: bool, kept: &[&'static str]) {
    if !old_maps {
        pins.abandon();
    } else if let Err(error) = pins.put_old_maps_back(kept) {
        tracing::warn!("{error}");
    }
}

/// Keeps those of the maps that were set aside which are wanted and fit.
fn keep_maps(
    pins: &Pins,
    sizes: &Sizes,
    wanted: &[&'static str],
    kept: &mut Vec<&'static str>,
) -> Result<(), KernelError> {
    for &name in wanted {
        let info = syscall::pinned(&pins.old_map(name))
            .and_then(|map| syscall::map_info(map.as_fd()))
            .ok();
        let fits = info.is_some_and(|info| {
            Some(info.entries_max) == sizes.entries(name)
                && Some(info.value_size as usize) == value_size(name)
        });
        if fits {
            pins.keep_old_map(name)?;
            kept.push(name);
        }
    }
    Ok(())
}

/// Bytes of a value of the maps that can be kept.
fn value_size(name: &str) -> Option<usize> {
    Some(match name {
        abi::FLOWS_V4 | abi::FLOWS_V6 => size_of::<abi::FlowEntry>(),
        abi::EMBRYONIC => size_of::<abi::EmbryonicLine>(),
        abi::EMBRYONIC_SEEN => size_of::<u64>(),
        abi::FLOW_MARKS => size_of::<abi::FlowMarks>(),
        abi::FRAGMENTS => size_of::<abi::FragmentEntry>(),
        abi::SERVICE_COUNTERS => size_of::<abi::ServiceCounters>(),
        abi::BACKEND_COUNTERS => size_of::<abi::BackendCounters>(),
        abi::GLOBAL_COUNTERS => size_of::<abi::GlobalCounters>(),
        _ => return None,
    })
}
