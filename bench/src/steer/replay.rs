//! Runs of a program, each with the next flow's packet, and how long the fastest ones take.
//!
//! One replaying program for all that is measured, floor included: where the kernel put its code is
//! the same for all then. Where it put theirs differs with each load, by up to 5 ns of a packet's 60; so
//! what is compared closely is loaded several times.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ProgramInput, ProgramMut};
use sickbay_shared::pod::Pod as _;

use super::kernel::{self, INSERTED, map, program};
use super::world::Family;

/// Flows that can take turns. The floor's blocks pass over every other one, and those that are left
/// are still more than any map of flows holds: by its next turn, a flow has lost its entry.
pub(crate) const REPLAYED_MAX: u32 = 1 << 20;
/// Packets of a block: some ms.
const BLOCK_PACKETS: u32 = 10_000;
const REPLAY: &str = "sickbay_replay";

/// The replaying program, and its maps.
pub(crate) struct Replay {
    object: Object,
    /// A program of a test-run of many packets is entered into the XDP dispatcher and taken out
    /// again (15 to 25 ms) unless it is there anyway, as the program of an interface.
    _attached: Link,
    frame: Vec<u8>,
}

/// A program that is measured, as often as it was loaded.
pub(crate) struct Measured {
    loaded: Vec<OwnedFd>,
}

impl Measured {
    /// One that was loaded so many times.
    pub(crate) fn new<'object>(
        programs: impl IntoIterator<Item = ProgramMut<'object>>,
    ) -> Result<Self> {
        let descriptors = programs.into_iter().map(|program| program.as_fd().try_clone_to_owned());
        Ok(Self { loaded: descriptors.collect::<Result<_, _>>()? })
    }

    /// Puts the program into the place where a replaying object calls it: as it was loaded first,
    /// second and so on.
    pub(crate) fn put(&self, object: &Object, turn: u32) -> Result<()> {
        let loaded = &self.loaded[turn as usize % self.loaded.len()];
        let fd = u32::try_from(loaded.as_raw_fd())?;
        let place = map(object, "MEASURED");
        place.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        Ok(())
    }
}

impl Replay {
    /// The object of the replaying program; also has what is measured beside.
    pub(crate) fn object() -> Result<Object> {
        let size = |name: &str| match name {
            "REPLAYED" => Some(REPLAYED_MAX),
            "INSERTED" => Some(INSERTED),
            _ => None,
        };
        let programs = [REPLAY, kernel::NOTHING, kernel::INSERT, "sickbay_witness"];
        kernel::load("replay.bpf.o", size, &programs, None)
    }

    /// The replaying program, entered into the dispatcher by this interface.
    pub(crate) fn new(interface_index: i32) -> Result<Self> {
        let object = Self::object()?;
        let attached = object
            .progs_mut()
            .find(|program| program.name() == REPLAY)
            .context("no replaying program")?
            .attach_xdp(interface_index)?;
        Ok(Self { object, _attached: attached, frame: Vec::new() })
    }

    /// One of the replaying object's own programs.
    pub(crate) fn own(&self, name: &str) -> Result<Measured> {
        Measured::new([program(&self.object, name)])
    }

    /// From now on replays these flows, one after the other and again from the first.
    pub(crate) fn take(&mut self, family: Family, frame: &[u8], flows: &[u64]) -> Result<()> {
        kernel::put_array(&map(&self.object, "REPLAYED"), flows)?;
        let turn = [0, flows.len() as u64, u64::from(family.number())];
        let bytes: Vec<u8> = turn.iter().flat_map(|word| word.as_bytes().iter().copied()).collect();
        map(&self.object, "TURN").update(&0_u32.to_ne_bytes(), &bytes, MapFlags::ANY)?;
        self.frame = frame.to_vec();
        Ok(())
    }

    /// One packet to a program; what that returned.
    pub(crate) fn run_once(&self, measured: &Measured) -> Result<u32> {
        measured.put(&self.object, 0)?;
        self.run(1)
    }

    /// ns of each packet of a block, the call's own time shared among them: what does not belong to
    /// the program is in the floor's block too. Another `turn`, another time that it was loaded.
    pub(crate) fn block_ns(&self, measured: &Measured, turn: u32) -> Result<f64> {
        measured.put(&self.object, turn)?;
        let start = Instant::now();
        self.run(BLOCK_PACKETS)?;
        Ok(start.elapsed().as_nanos() as f64 / f64::from(BLOCK_PACKETS))
    }

    fn run(&self, packets: u32) -> Result<u32> {
        let input =
            ProgramInput { data_in: Some(&self.frame), repeat: packets, ..ProgramInput::default() };
        let output = program(&self.object, REPLAY).test_run(input)?;
        ensure!(output.return_value != 0, "the replaying program gave up");
        Ok(output.return_value)
    }
}

/// Makes an idle veth in this network namespace; its first end's index.
pub(crate) fn idle_interface() -> Result<i32> {
    let words = ["link", "add", "idle", "type", "veth", "peer", "name", "idlefar"];
    ensure!(std::process::Command::new("ip").args(words).status()?.success(), "no veth");
    Ok(i32::try_from(nix::net::if_::if_nametoindex("idle")?)?)
}
