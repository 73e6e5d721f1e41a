//! What an agent has published: its pinned maps, read as any other process may read them.

use std::path::Path;

use anyhow::{Context, Result};
use aya::maps::{Array, Map, MapData, PerCpuArray};
use sickbay_shared::abi::{self, BackendCounters, Header, ServiceCounters, TargetRecord};
use sickbay_shared::pod::Pod;

const HEADER_BYTES: usize = size_of::<Header>();
const TARGET_BYTES: usize = size_of::<TargetRecord>();
const BACKEND_COUNTERS_BYTES: usize = size_of::<BackendCounters>();
const SERVICE_COUNTERS_BYTES: usize = size_of::<ServiceCounters>();
/// A record is written in well under a microsecond; more looks than this mean a dead writer.
const LOOKS_MAX: usize = 1000;

/// The pinned maps of one instance. Reading takes a system call a value.
pub struct Board {
    header: Array<MapData, [u8; HEADER_BYTES]>,
    targets: Array<MapData, [u8; TARGET_BYTES]>,
    backend_counters: PerCpuArray<MapData, [u8; BACKEND_COUNTERS_BYTES]>,
    service_counters: PerCpuArray<MapData, [u8; SERVICE_COUNTERS_BYTES]>,
}

impl Board {
    /// Opens the maps pinned below `directory`, the instance's own.
    ///
    /// # Errors
    /// When they are not there yet, or are no maps of this layout.
    pub fn open(directory: &Path) -> Result<Self> {
        let array = |name| -> Result<Map> { Ok(Map::Array(pinned(directory, name)?)) };
        let per_cpu = |name| -> Result<Map> { Ok(Map::PerCpuArray(pinned(directory, name)?)) };
        Ok(Self {
            header: array(abi::HEADER)?.try_into()?,
            targets: array(abi::TARGETS)?.try_into()?,
            backend_counters: per_cpu(abi::BACKEND_COUNTERS)?.try_into()?,
            service_counters: per_cpu(abi::SERVICE_COUNTERS)?.try_into()?,
        })
    }

    /// The header.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn header(&self) -> Result<Header> {
        decoded(&self.header.get(&0, 0)?)
    }

    /// The history of a target, whole: never a record that is half written.
    ///
    /// # Errors
    /// When the map cannot be read, or its writer died while writing.
    pub fn target(&self, index: u32) -> Result<TargetRecord> {
        for _ in 0..LOOKS_MAX {
            let before: TargetRecord = decoded(&self.targets.get(&index, 0)?)?;
            let after: TargetRecord = decoded(&self.targets.get(&index, 0)?)?;
            if before.sequence.is_multiple_of(2) && before.sequence == after.sequence {
                return Ok(after);
            }
        }
        anyhow::bail!("target {index} is being written without end")
    }

    /// What the kernel did with a backend's packets, over all CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn backend_counters(&self, index: u32) -> Result<BackendCounters> {
        let mut sum = BackendCounters::default();
        for bytes in self.backend_counters.get(&index, 0)?.iter() {
            let counters: BackendCounters = decoded(bytes)?;
            sum.steered_packets += counters.steered_packets;
            sum.steered_bytes += counters.steered_bytes;
            sum.new_flows += counters.new_flows;
            sum.skipped += counters.skipped;
            sum.diverted_in += counters.diverted_in;
            sum.unresolved += counters.unresolved;
        }
        Ok(sum)
    }

    /// What the kernel did with a service's packets, over all CPUs.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn service_counters(&self, index: u32) -> Result<ServiceCounters> {
        let mut sum = ServiceCounters::default();
        for bytes in self.service_counters.get(&index, 0)?.iter() {
            let counters: ServiceCounters = decoded(bytes)?;
            sum.steered_packets += counters.steered_packets;
            sum.steered_bytes += counters.steered_bytes;
            sum.new_flows += counters.new_flows;
            sum.skipped += counters.skipped;
            sum.fell_back += counters.fell_back;
            sum.all_sick_open += counters.all_sick_open;
            sum.all_sick_dropped += counters.all_sick_dropped;
            sum.affinity_hit += counters.affinity_hit;
            sum.affinity_miss += counters.affinity_miss;
            sum.entries_written += counters.entries_written;
            sum.entries_refused += counters.entries_refused;
            sum.unresolved += counters.unresolved;
            sum.kept_on_sick += counters.kept_on_sick;
            sum.backup += counters.backup;
            sum.panic_open += counters.panic_open;
            sum.stale_open += counters.stale_open;
            sum.moved_off_sick += counters.moved_off_sick;
            sum.reset += counters.reset;
            sum.reset_over_budget += counters.reset_over_budget;
            sum.promoted += counters.promoted;
            sum.fragments += counters.fragments;
            sum.icmp_errors += counters.icmp_errors;
        }
        Ok(sum)
    }
}

fn pinned(directory: &Path, name: &str) -> Result<MapData> {
    let path = directory.join("maps").join(name);
    MapData::from_pin(&path).with_context(|| format!("cannot open the map {}", path.display()))
}

fn decoded<T: Pod>(bytes: &[u8]) -> Result<T> {
    T::from_bytes(bytes).context("a map's value has another size than this build's ABI")
}
