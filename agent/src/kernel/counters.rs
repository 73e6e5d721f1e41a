//! Counters of services, backends and the rest, summed over the CPUs that kept them.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use sickbay_shared::abi::{
    self, BackendCounters, EmbryonicEntry, EmbryonicLine, FlowEntry, GlobalCounters,
    ServiceCounters,
};
use sickbay_shared::embryonic::family_of;
use sickbay_shared::limits::{EMBRYONIC_LIFE_NS, EMBRYONIC_LINES};
use sickbay_shared::pod::Pod;

use super::error::KernelError;
use super::pins::MAPS_FOLDER;
use super::syscall;
use crate::board::coarse_now_ns;

/// The counters of one instance, read from its pinned maps; its agent need not run.
#[derive(Debug)]
pub struct Counters {
    services: OwnedFd,
    backends: OwnedFd,
    global: OwnedFd,
    /// The map of each address family's flows that have begun, and its room.
    flows: [(OwnedFd, u32); 2],
    embryonic: OwnedFd,
    cpu_count: usize,
}

/// The entries of one address family's flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowEntries {
    /// Entries of flows that have begun, void ones among them.
    pub flows: u64,
    /// Entries of SYNs whose flow has sent nothing else yet, and still may.
    pub embryonic: u64,
    /// How many flows that have begun there is room for: beyond it the least recently used gives
    /// way, and the kernel tells nobody.
    pub room: u32,
}

impl Counters {
    /// Opens the counters of the instance whose maps are pinned under `pin_directory`.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: not pinned there, may not be opened, or of another layout.
    pub fn open(pin_directory: &Path) -> Result<Self, KernelError> {
        let maps = pin_directory.join(MAPS_FOLDER);
        Ok(Self {
            services: open::<ServiceCounters>(&maps, abi::SERVICE_COUNTERS)?,
            backends: open::<BackendCounters>(&maps, abi::BACKEND_COUNTERS)?,
            global: open::<GlobalCounters>(&maps, abi::GLOBAL_COUNTERS)?,
            flows: [flows(&maps, abi::FLOWS_V4)?, flows(&maps, abi::FLOWS_V6)?],
            embryonic: open::<EmbryonicLine>(&maps, abi::EMBRYONIC)?,
            cpu_count: syscall::possible_cpu_count().map_err(failed(abi::GLOBAL_COUNTERS))?
                as usize,
        })
    }

    /// The counters of service `index`.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: there is no such service.
    pub fn service(&self, index: u32) -> Result<ServiceCounters, KernelError> {
        self.one(&self.services, index).map_err(failed(abi::SERVICE_COUNTERS))
    }

    /// The counters of backend `index`.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: there is no such backend.
    pub fn backend(&self, index: u32) -> Result<BackendCounters, KernelError> {
        self.one(&self.backends, index).map_err(failed(abi::BACKEND_COUNTERS))
    }

    /// The counters of packets that belong to no service.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: the map cannot be read.
    pub fn global(&self) -> Result<GlobalCounters, KernelError> {
        self.one(&self.global, 0).map_err(failed(abi::GLOBAL_COUNTERS))
    }

    /// The counters of the first `count` backends, in one system call.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: the map cannot be read.
    pub fn backends(&self, count: u32) -> Result<Vec<BackendCounters>, KernelError> {
        self.many(&self.backends, count).map_err(failed(abi::BACKEND_COUNTERS))
    }

    /// The counters of the first `count` services, in one system call.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: the map cannot be read.
    pub fn services(&self, count: u32) -> Result<Vec<ServiceCounters>, KernelError> {
        self.many(&self.services, count).map_err(failed(abi::SERVICE_COUNTERS))
    }

    /// All counters of packets added up, of the first `services` services and of those that belong to
    /// none: another number whenever a packet was counted.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: a map cannot be read.
    pub(super) fn total(&self, services: u32) -> Result<u64, KernelError> {
        let numbers = |value: &[u8]| value.chunks_exact(8).map(word).fold(0, u64::wrapping_add);
        let of_services = self.services(services)?;
        let of_services = of_services.iter().map(|counters| numbers(counters.as_bytes()));
        Ok(of_services.fold(numbers(self.global()?.as_bytes()), u64::wrapping_add))
    }

    /// The entries of IPv4's flows and of IPv6's, counted now: some milliseconds.
    ///
    /// # Errors
    ///
    /// [`KernelError::Map`]: a map cannot be read.
    pub fn flow_entries(&self) -> Result<[FlowEntries; 2], KernelError> {
        let [v4, v6] = self.embryonic_entries().map_err(failed(abi::EMBRYONIC))?;
        let of = |(map, room): &(OwnedFd, u32), embryonic| {
            let flows = syscall::count_entries(map.as_fd()).map_err(failed(abi::FLOWS_V4))?;
            Ok::<_, KernelError>(FlowEntries { flows, embryonic, room: *room })
        };
        Ok([of(&self.flows[0], v4)?, of(&self.flows[1], v6)?])
    }

    /// Entries of SYNs that are not void, of IPv4 and of IPv6.
    fn embryonic_entries(&self) -> io::Result<[u64; 2]> {
        let mut bytes = vec![0; size_of::<EmbryonicLine>() * EMBRYONIC_LINES as usize];
        syscall::look_up_batch(self.embryonic.as_fd(), &mut bytes)?;
        let now_ns = coarse_now_ns();
        let mut counts = [0; 2];
        for bytes in bytes.chunks_exact(size_of::<EmbryonicEntry>()) {
            let entry = EmbryonicEntry::from_bytes(bytes).expect("as long as the type");
            let is_young = now_ns < entry.said(now_ns).seen_ns.saturating_add(EMBRYONIC_LIFE_NS);
            match family_of(entry.tag()) {
                4 if is_young => counts[0] += 1,
                6 if is_young => counts[1] += 1,
                // Void, or none.
                _ => {}
            }
        }
        Ok(counts)
    }

    fn one<T: Pod>(&self, map: &OwnedFd, index: u32) -> io::Result<T> {
        let mut bytes = vec![0; size_of::<T>() * self.cpu_count];
        syscall::look_up(map.as_fd(), &index.to_ne_bytes(), &mut bytes)?;
        Ok(sum(&bytes))
    }

    fn many<T: Pod>(&self, map: &OwnedFd, count: u32) -> io::Result<Vec<T>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        let entry_bytes = size_of::<T>() * self.cpu_count;
        let mut bytes = vec![0; entry_bytes * count as usize];
        let read = syscall::look_up_batch(map.as_fd(), &mut bytes)?;
        Ok(bytes.chunks_exact(entry_bytes).take(read as usize).map(sum).collect())
    }
}

fn open<T: Pod>(maps: &Path, name: &'static str) -> Result<OwnedFd, KernelError> {
    let map = syscall::pinned(&maps.join(name)).map_err(failed(name))?;
    let info = syscall::map_info(map.as_fd()).map_err(failed(name))?;
    if info.value_size as usize != size_of::<T>() {
        let reason = format!(
            "its values have {} bytes, not {}: use the sickbay that started it",
            info.value_size,
            size_of::<T>()
        );
        return Err(KernelError::Map { map: name, reason });
    }
    Ok(map)
}

/// A family's map of flows that have begun, and how many it has room for.
fn flows(maps: &Path, name: &'static str) -> Result<(OwnedFd, u32), KernelError> {
    let map = open::<FlowEntry>(maps, name)?;
    let info = syscall::map_info(map.as_fd()).map_err(failed(name))?;
    Ok((map, info.entries_max))
}

fn failed(map: &'static str) -> impl Fn(io::Error) -> KernelError {
    move |error| KernelError::Map { map, reason: error.to_string() }
}

/// The sum of the values of all CPUs, number by number: counters are nothing but u64.
pub(super) fn sum<T: Pod>(bytes: &[u8]) -> T {
    let mut total = vec![0; size_of::<T>()];
    for value in bytes.chunks_exact(size_of::<T>()) {
        for (sum, number) in total.chunks_exact_mut(8).zip(value.chunks_exact(8)) {
            let added = word(sum).wrapping_add(word(number));
            sum.copy_from_slice(&added.to_ne_bytes());
        }
    }
    T::from_bytes(&total).expect("as long as the type")
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("chunks of eight"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_summed_number_by_number() {
        let first = GlobalCounters { not_ip: 1, not_service: 5, ..GlobalCounters::default() };
        let second =
            GlobalCounters { not_ip: 2, broken_table: u64::MAX, ..GlobalCounters::default() };
        let bytes = [first.as_bytes(), second.as_bytes()].concat();
        let expected = GlobalCounters {
            not_ip: 3,
            not_service: 5,
            broken_table: u64::MAX,
            ..GlobalCounters::default()
        };
        assert_eq!(sum::<GlobalCounters>(&bytes), expected);
    }
}
