//! Runs of a program, each with the next flow's packet, and how long the fastest ones take.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use libbpf_rs::{Link, MapCore as _, MapFlags, Object, ProgramInput, ProgramMut};
use sickbay_shared::pod::Pod as _;

use super::kernel::{self, EMBRYONIC, map, program};
use super::world::Family;

/// Flows that can take turns.
pub(crate) const REPLAYED_MAX: u32 = 1 << 19;
/// Packets of a block: some ms.
const BLOCK_PACKETS: u32 = 10_000;
const REPLAY: &str = "sickbay_replay";

/// A program under the replaying one, which has maps of its own.
pub(crate) struct Replay {
    object: Object,
    /// A program of a test-run of many packets is entered into the XDP dispatcher and taken out
    /// again (15 to 25 ms) unless it is there anyway, as the program of an interface.
    _attached: Link,
    frame: Vec<u8>,
}

impl Replay {
    /// The object of the replaying program; also has what is measured beside.
    pub(crate) fn object() -> Result<Object> {
        let size = |name: &str| match name {
            "REPLAYED" => Some(REPLAYED_MAX),
            "INSERTED" => Some(EMBRYONIC),
            _ => None,
        };
        let programs = [REPLAY, kernel::NOTHING, kernel::INSERT, "sickbay_witness"];
        kernel::load("replay.bpf.o", size, &programs, None)
    }

    /// Replays packets to one of the replaying object's own programs.
    pub(crate) fn of_own(name: &str, interface_index: i32) -> Result<Self> {
        let object = Self::object()?;
        measure_own(&object, name)?;
        Self::attach(object, interface_index)
    }

    /// Replays packets to `measured`.
    pub(crate) fn of(measured: &ProgramMut<'_>, interface_index: i32) -> Result<Self> {
        let object = Self::object()?;
        put_measured(&object, measured)?;
        Self::attach(object, interface_index)
    }

    fn attach(object: Object, interface_index: i32) -> Result<Self> {
        let attached = object
            .progs_mut()
            .find(|program| program.name() == REPLAY)
            .context("no replaying program")?
            .attach_xdp(interface_index)?;
        Ok(Self { object, _attached: attached, frame: Vec::new() })
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

    /// One packet; what the program returned.
    pub(crate) fn run_once(&self) -> Result<u32> {
        self.run(1)
    }

    /// ns of each packet of a block, the call's own time shared among them: what does not belong to
    /// the program is in the floor's block too.
    pub(crate) fn block_ns(&self) -> Result<f64> {
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

/// Puts one of the object's own programs into the measured one's place.
fn measure_own(object: &Object, name: &str) -> Result<()> {
    put_measured(object, &program(object, name))
}

/// Puts a program into the measured one's place.
pub(crate) fn put_measured(object: &Object, measured: &ProgramMut<'_>) -> Result<()> {
    use std::os::fd::{AsFd as _, AsRawFd as _};
    let fd = u32::try_from(measured.as_fd().as_raw_fd())?;
    let place = map(object, "MEASURED");
    place.update(&0_u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
    Ok(())
}

/// Makes the n-th idle veth in this network namespace; its first end's index.
pub(crate) fn idle_interface(number: u32) -> Result<i32> {
    let (one, other) = (format!("idle{number}"), format!("idle{number}far"));
    let words = ["link", "add", &one, "type", "veth", "peer", "name", &other];
    ensure!(std::process::Command::new("ip").args(words).status()?.success(), "no veth");
    Ok(i32::try_from(nix::net::if_::if_nametoindex(one.as_str())?)?)
}
