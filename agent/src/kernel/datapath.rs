//! The datapath of one instance: loaded, pinned, attached; taken over from an agent that died.

use std::os::fd::AsFd as _;
use std::path::Path;

use sickbay_shared::abi::{self, AddressPrefixKey, Pool, PortPrefixKey, Service, ServiceKey};

use super::aya::{DropRing, Loaded};
use super::counters::Counters;
use super::error::KernelError;
use super::pins::Pins;
use super::sizes::Sizes;
use super::syscall;
use crate::board::{Board, BoardError};

/// What becomes of the flow entries that an agent before this one left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Flows {
    /// They are dropped with the old maps.
    #[default]
    Fresh,
    /// They are kept, when their maps have the wanted room: right only when every backend index
    /// and generation still names the same backend (compare [`Board::backend`] of the old board).
    Keep,
}

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
    pub(super) tc_hook: TcHook,
    pub(super) attached: bool,
}

impl Datapath {
    /// Loads the programs of `object` with maps of `sizes`, and pins the maps. What an agent
    /// before this one left stays in force until [`Datapath::attach`]; to read its history, open
    /// its board ([`Board::open`]) before this call.
    ///
    /// # Errors
    ///
    /// Too many of something, no BPF file system, another agent runs, or the kernel refuses. Then
    /// nothing is left behind.
    pub fn load(
        object: &[u8],
        sizes: &Sizes,
        pin_directory: &Path,
        flows: Flows,
    ) -> Result<Self, KernelError> {
        if let Some((what, count, limit)) = sizes.excess() {
            return Err(KernelError::TooMany { what, count, limit });
        }
        let mut pins = Pins::prepare(pin_directory)?;
        let mut kept = Vec::new();
        let mut old_maps = false;
        let loaded = (|| {
            old_maps = pins.set_old_maps_aside()?;
            if flows == Flows::Keep {
                keep_flows(&pins, sizes, &mut kept)?;
            }
            Loaded::load(object, sizes, &pins)
        })();
        match loaded {
            Ok(loaded) => Ok(Self {
                loaded,
                pins,
                old_maps,
                kept,
                tc_hook: TcHook::default(),
                attached: false,
            }),
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

/// Keeps the flow maps that were set aside and have the wanted room.
fn keep_flows(pins: &Pins, sizes: &Sizes, kept: &mut Vec<&'static str>) -> Result<(), KernelError> {
    const ENTRY: usize = size_of::<abi::FlowEntry>();
    let maps = [
        (abi::FLOWS_V4, ENTRY),
        (abi::FLOWS_V6, ENTRY),
        (abi::EMBRYONIC_V4, ENTRY),
        (abi::EMBRYONIC_V6, ENTRY),
        (abi::EMBRYONIC_SEEN, size_of::<u64>()),
    ];
    for (name, value_size) in maps {
        let info = syscall::pinned(&pins.old_map(name))
            .and_then(|map| syscall::map_info(map.as_fd()))
            .ok();
        let fits = info.is_some_and(|info| {
            Some(info.entries_max) == sizes.entries(name) && info.value_size as usize == value_size
        });
        if fits {
            pins.keep_old_map(name)?;
            kept.push(name);
        }
    }
    Ok(())
}
