//! Programs over maps of their own, run packet by packet: what they would do, without an interface.

use std::os::fd::{AsFd as _, BorrowedFd};

use ::aya::maps::{Map, MapData};
use ::aya::programs::{TestRun as _, TestRunOptions};
use sickbay_shared::abi;

use super::{Loaded, map_failed, one_line};
use crate::kernel::error::KernelError;
use crate::kernel::syscall;

/// How many bytes a program may add to a packet.
const GROWTH_BYTES: usize = 64;

/// Which program a packet comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kernel) enum Entrance {
    /// Of an interface's driver.
    Xdp,
    /// Of traffic control.
    Tc,
}

impl Entrance {
    /// The program's name in the object.
    pub(in crate::kernel) const fn program(self) -> &'static str {
        match self {
            Self::Xdp => abi::XDP_PROGRAM,
            Self::Tc => abi::TC_PROGRAM,
        }
    }
}

/// What came of a packet.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::kernel) struct Ran {
    /// What the program returned.
    pub(in crate::kernel) action: u32,
    /// The packet afterwards.
    pub(in crate::kernel) frame: Vec<u8>,
}

impl Loaded {
    /// Runs a program on a packet, as if it had come by loopback.
    pub(in crate::kernel) fn run(
        &mut self,
        entrance: Entrance,
        frame: &[u8],
    ) -> Result<Ran, String> {
        let mut after = vec![0; frame.len() + GROWTH_BYTES];
        let options = TestRunOptions {
            data_in: Some(frame),
            data_out: Some(&mut after),
            ..TestRunOptions::default()
        };
        let result = match entrance {
            Entrance::Xdp => self.xdp().and_then(|program| program.test_run(options)),
            Entrance::Tc => self.tc().and_then(|program| program.test_run(options)),
        };
        let result = result.map_err(|error| one_line(&error))?;
        after.truncate(result.data_size_out as usize);
        Ok(Ran { action: result.return_value, frame: after })
    }

    /// Writes a value into a map.
    pub(in crate::kernel) fn write(
        &self,
        name: &'static str,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), KernelError> {
        let map = self.descriptor(name)?;
        syscall::map_info(map)
            .and_then(|info| syscall::update(map, &info, key, value))
            .map_err(|error| map_failed(name, &error))
    }

    /// Reads the value of an array's element, for each CPU where it has one for each.
    pub(in crate::kernel) fn read(
        &self,
        name: &'static str,
        index: u32,
    ) -> Result<Vec<u8>, KernelError> {
        let map = self.descriptor(name)?;
        let read = || {
            let mut value = vec![0; syscall::value_bytes(&syscall::map_info(map)?)?];
            syscall::look_up(map, &index.to_ne_bytes(), &mut value)?;
            Ok::<_, std::io::Error>(value)
        };
        read().map_err(|error| map_failed(name, &error))
    }

    fn descriptor(&self, name: &'static str) -> Result<BorrowedFd<'_>, KernelError> {
        let data = self.ebpf.map(name).and_then(data);
        data.map(|data| data.fd().as_fd()).ok_or(KernelError::NotInObject { name })
    }
}

/// What stands behind a map of a kind that sickbay has.
const fn data(map: &Map) -> Option<&MapData> {
    match map {
        Map::Array(data) | Map::HashMap(data) | Map::PerCpuArray(data) => Some(data),
        _ => None,
    }
}
