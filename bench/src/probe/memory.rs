//! What a target costs in memory while nothing happens: an engine over many targets that are probed
//! once an hour.

use anyhow::{Context as _, Result};
use sickbay_core::plan::Nanos;

use super::Stage;
use super::prober;
use super::targets::Kind;
use crate::allocation;
use crate::report::Report;

const INTERVAL_NS: Nanos = 3_600_000_000_000;
/// The agent's own number, unless its file says another.
const IN_FLIGHT: u32 = 1024;
/// What one idle target may cost.
const TARGET_BYTES_MAX: u64 = 640;
/// What everything may cost at [`PROMISED_COUNT`] targets.
const BYTES_MAX: u64 = 64_000_000;
const PROMISED_COUNT: u32 = 100_000;

/// Compares this process before and after an engine with many targets stands.
///
/// # Errors
/// When it cannot start.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> Result<()> {
    let count = stage.extent.memory_targets;
    let cost_of = |count: u32| -> Result<(u64, u64)> {
        let before = (allocation::live_bytes(), resident_bytes()?);
        let (own, _) =
            prober::start(&stage.home, stage.cpu, (count, Kind::Http), INTERVAL_NS, IN_FLIGHT)?;
        own.window(&stage.farm, std::time::Duration::from_millis(100))?;
        let after = (allocation::live_bytes(), resident_bytes()?);
        own.stop()?;
        Ok((after.0.saturating_sub(before.0), after.1.saturating_sub(before.1)))
    };
    // What an engine costs with hardly any target is no target's.
    let (empty_heap, empty_resident) = cost_of(1)?;
    let (heap, resident) = cost_of(count)?;
    let of_each = |all: u64, empty: u64| all.saturating_sub(empty) / u64::from(count);
    let heap_of_each = of_each(heap, empty_heap);
    let resident_of_each = of_each(resident, empty_resident);
    report.figure("memory_targets", count);
    report.figure("heap_bytes_per_idle_target_with_room", heap_of_each);
    report.figure("resident_bytes_per_idle_target", resident_of_each);
    report.figure("resident_mb_per_10000_targets", resident_of_each as f64 / 100.0);
    report.figure("resident_mb_in_all", resident as f64 / 1e6);
    report.notes.push(format!(
        "{count} idle targets: {resident_of_each} bytes of resident memory each; the whole engine {:.1} \
         MB. It asked for {heap_of_each} bytes each, with room for as many targets more, most of which \
         is not touched before they come",
        resident as f64 / 1e6
    ));
    report.promise(resident_of_each <= TARGET_BYTES_MAX, || {
        format!("an idle target costs {resident_of_each} bytes, more than {TARGET_BYTES_MAX}")
    });
    report.promise(PROMISED_COUNT < count || resident <= BYTES_MAX, || {
        format!("{count} idle targets take {resident} bytes, more than {BYTES_MAX}")
    });
    Ok(())
}

/// Resident memory of this process.
fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|it| it.trim().strip_suffix(" kB")).context("no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? * 1024)
}
