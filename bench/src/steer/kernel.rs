//! The kernel programs that are measured, all over one set of maps, and the peer with its own.
//!
//! Loaded by libbpf, which can give one object's maps to another: so that the program with the health
//! test and the one without it read the same memory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{Map, MapCore as _, MapFlags, Object, ObjectBuilder, ProgramMut};
use sickbay::board::Board;
use sickbay::kernel::{MAPS_FOLDER, Sizes};
use sickbay_lab::private;
use sickbay_shared::abi;
use sickbay_shared::limits::{FLOW_MARKS_LINES, GROUP_WORDS, POOL_BACKENDS_MAX, WORD_BACKENDS};
use sickbay_shared::pod::Pod;

use super::replay::Measured;

/// Entries of the peer's map of flows, and of ours that last.
pub(crate) const FLOWS: u32 = Sizes::FLOWS_DEFAULT;
/// Entries of the LRU hash that is only inserted into.
pub(crate) const INSERTED: u32 = 16_384;
/// The programs by their names in the objects.
pub(crate) const NOTHING: &str = "sickbay_nothing";
/// See [`NOTHING`].
pub(crate) const INSERT: &str = "sickbay_insert";
/// See [`NOTHING`].
pub(crate) const PEER: &str = "sickbay_peer";

const SERVICES: u32 = 8;
const SHARDS: u32 = 1;

/// Loaded objects, and the board over the maps.
pub(crate) struct Kernel {
    /// The first one's maps are all the others' too.
    steering: Vec<Object>,
    untested: Vec<Object>,
    peer: Object,
    board: Board,
}

impl Kernel {
    /// Loads everything, with tables of `slots` slots; the steering program, and the one without the
    /// health test, so many times.
    pub(crate) fn load(slots: u32, loads: usize) -> Result<Self> {
        let programs = [abi::XDP_PROGRAM];
        let mut first = load("sickbay.bpf.o", |name| size(name, slots), &programs, None)?;
        let again = |file| load(file, |_| None, &programs, Some(&first));
        let untested = (0..loads).map(|_| again("untested.bpf.o")).collect::<Result<_>>()?;
        let more: Vec<Object> =
            (1..loads).map(|_| again("sickbay.bpf.o")).collect::<Result<_>>()?;
        let peer =
            load("peer.bpf.o", |name| (name == "PEER_FLOWS").then_some(FLOWS), &[PEER], None)?;
        let board = pin(&mut first)?;
        let steering = std::iter::once(first).chain(more).collect();
        Ok(Self { steering, untested, peer, board })
    }

    /// The board over the maps: what the agent writes them by.
    pub(crate) const fn board(&self) -> &Board {
        &self.board
    }

    /// The steering program.
    pub(crate) fn steering(&self) -> Result<Measured> {
        Measured::new(self.steering.iter().map(|object| program(object, abi::XDP_PROGRAM)))
    }

    /// The steering program without the health test.
    pub(crate) fn untested(&self) -> Result<Measured> {
        Measured::new(self.untested.iter().map(|object| program(object, abi::XDP_PROGRAM)))
    }

    /// The peer.
    pub(crate) fn peer(&self) -> Result<Measured> {
        Measured::new([program(&self.peer, PEER)])
    }

    /// A map of the steering program.
    pub(crate) fn map(&self, name: &str) -> Map<'_> {
        map(&self.steering[0], name)
    }

    /// A map of the peer.
    pub(crate) fn peer_map(&self, name: &str) -> Map<'_> {
        map(&self.peer, name)
    }
}

/// A map of an object.
///
/// # Panics
///
/// When it has none of this name.
pub(crate) fn map<'object>(object: &'object Object, name: &str) -> Map<'object> {
    let found = object.maps().find(|map| map.name() == name);
    found.unwrap_or_else(|| panic!("no map {name} in the object"))
}

/// A program of an object.
///
/// # Panics
///
/// When it has none of this name.
pub(crate) fn program<'object>(object: &'object Object, name: &str) -> ProgramMut<'object> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.unwrap_or_else(|| panic!("no program {name} in the object"))
}

/// Loads these programs of an object that `cargo xtask build-ebpf` made; maps take the sizes that
/// `size_of` gives, or are another object's.
pub(crate) fn load(
    file: &str,
    size_of: impl Fn(&str) -> Option<u32>,
    programs: &[&str],
    maps_of: Option<&Object>,
) -> Result<Object> {
    let path: PathBuf = private::target_directory()?.join("bpf").join(file);
    ensure!(path.is_file(), "no {}: `cargo xtask build-ebpf` makes it", path.display());
    let mut open = ObjectBuilder::default().open_file(&path)?;
    for mut program in open.progs_mut() {
        let wanted = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(wanted);
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(owner) = maps_of
            && let Some(owned) = owner.maps().find(|map| map.name() == name.as_str())
        {
            use std::os::fd::AsFd as _;
            map.reuse_fd(owned.as_fd())?;
        } else if let Some(entries) = size_of(&name) {
            map.set_max_entries(entries)?;
        }
    }
    open.load().with_context(|| format!("the kernel refuses {}", path.display()))
}

/// Writes values from the array's first element on.
pub(crate) fn put_array<T: Pod>(map: &Map<'_>, values: &[T]) -> Result<()> {
    let keys: Vec<u8> = (0_u32..).take(values.len()).flat_map(u32::to_ne_bytes).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.as_bytes().iter().copied()).collect();
    let count = u32::try_from(values.len())?;
    map.update_batch(&keys, &bytes, count, MapFlags::ANY, MapFlags::ANY)?;
    Ok(())
}

/// Entries of a map of the steering object.
fn size(name: &str, slots: u32) -> Option<u32> {
    const WORDS: u32 = POOL_BACKENDS_MAX / WORD_BACKENDS;
    Some(match name {
        abi::TAKES_NEW | abi::SERVES_OLD | abi::ALLOWED => WORDS,
        abi::GROUP_COUNTS => WORDS / GROUP_WORDS,
        abi::BACKENDS | abi::BACKEND_COUNTERS => POOL_BACKENDS_MAX,
        abi::SERVICES | abi::SERVICE_KEYS | abi::SERVICE_COUNTERS => SERVICES,
        abi::HEARTBEATS => SHARDS,
        abi::SLOTS => slots,
        abi::FLOWS_V4 | abi::FLOWS_V6 => FLOWS,
        abi::FLOW_MARKS => FLOW_MARKS_LINES,
        _ => return None,
    })
}

/// Pins the maps as the agent does, and opens the board over them.
fn pin(object: &mut Object) -> Result<Board> {
    let directory = Path::new("/sys/fs/bpf/bench");
    let maps = directory.join(MAPS_FOLDER);
    if maps.exists() {
        // Of a measurement before this one.
        fs::remove_dir_all(&maps)?;
    }
    fs::create_dir_all(&maps)?;
    for mut map in object.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if abi::MAPS.contains(&name.as_str()) {
            map.pin(maps.join(&name)).with_context(|| format!("cannot pin {name}"))?;
        }
    }
    Ok(Board::open(directory)?)
}
