//! Keeping a schedule: every target once a second, by one core.

use std::time::Duration;

use anyhow::Result;

use super::bare::{self, Sockets};
use super::prober;
use super::targets::Kind;
use super::{Stage, rounded};
use crate::allocation;
use crate::report::Report;

const INTERVAL_NS: u64 = 1_000_000_000;
/// The agent's own number, unless its file says another.
const IN_FLIGHT: u32 = 1024;
/// Until every target has been probed and memory has what it needs.
const WARM_UP: Duration = Duration::from_secs(3);
/// Lateness at most, for 999 of 1000.
const LATENESS_NS_MAX: u64 = 5_000_000;

/// What the machine lets the bare loop do is looked at in spells as long as a backlog takes to grow.
const SPELL: Duration = Duration::from_millis(50);
const SPELLS: usize = 60;

/// How full a core is in the second measurement, in percent of the bare loop's ceiling.
const LOAD_PERCENT: f64 = 70.0;

/// Has one engine probe its targets once a second, and looks how late it is: all that it is asked
/// for, and where this machine cannot do so many, as many as leave it some room too.
///
/// # Errors
/// When it ends.
pub(super) fn measure(stage: &Stage, report: &mut Report, ceiling: f64) -> Result<()> {
    let count = stage.extent.schedule_targets;
    measure_one(stage, report, count, "schedule")?;
    let lesser = (ceiling * LOAD_PERCENT / 100_000.0) as u32 * 1000;
    if (1..count).contains(&lesser) {
        measure_one(stage, report, lesser, "schedule_with_room")?;
    }
    Ok(())
}

fn measure_one(stage: &Stage, report: &mut Report, count: u32, name: &str) -> Result<()> {
    let what = (count, Kind::Http);
    let (own, gauge) = prober::start(&stage.home, stage.cpu, what, INTERVAL_NS, IN_FLIGHT)?;
    own.resume()?;
    std::thread::sleep(WARM_UP);
    let seen_before = gauge.seen();
    gauge.look(true);
    let before = (gauge.counters.enters(), gauge.counters.probes(), allocation::calls());
    std::thread::sleep(stage.extent.schedule_span);
    let after = (gauge.counters.enters(), gauge.counters.probes(), allocation::calls());
    gauge.look(false);
    let window = own.watch(&stage.farm, Duration::from_millis(500))?;
    let seen = gauge.seen();
    own.stop()?;
    let (ceiling, lowest) = bare_ceiling(stage, what)?;
    report.figure(format!("{name}_bare_ceiling"), ceiling);
    report.figure(format!("{name}_bare_lowest"), lowest);

    let probes = after.1 - before.1;
    let late = |quantile| seen.lateness_ns.value_at_quantile(quantile);
    let missed = seen.missed - seen_before.missed;
    let allocations = after.2 - before.2;
    for (rank, quantile) in
        [("p50", 0.5), ("p99", 0.99), ("p99_9", 0.999), ("p99_99", 0.9999), ("max", 1.0)]
    {
        report.figure(format!("{name}_lateness_{rank}_us"), late(quantile) / 1000);
    }
    report.figure(format!("{name}_targets"), count);
    report.figure(format!("{name}_probes"), probes);
    report.figure(format!("{name}_missed"), missed);
    report.figure(format!("{name}_not_good"), seen.bad);
    report.figure(format!("{name}_cpu_percent"), (window.cpu_share() * 100.0).round());
    report.figure(
        format!("{name}_system_calls_per_probe"),
        rounded((after.0 - before.0) as f64 / probes.max(1) as f64),
    );
    report.figure(format!("{name}_allocations"), allocations);
    report
        .figure(format!("{name}_allocations_per_probe"), allocations as f64 / probes.max(1) as f64);
    report.notes.push(format!(
        "{count} targets at 1 s on one core: {probes} probes, {missed} missed, {} not good; late by \
         {} us p50, {} us p99, {} us p99.9, {} us p99.99; {:.0} % of the CPU; {:.2} system calls and \
         {allocations} allocations in all",
        seen.bad,
        late(0.5) / 1000,
        late(0.99) / 1000,
        late(0.999) / 1000,
        late(0.9999) / 1000,
        window.cpu_share() * 100.0,
        (after.0 - before.0) as f64 / probes.max(1) as f64,
    ));
    report.promise(allocations == 0, || format!("{allocations} allocations in {probes} probes"));
    report.promise(seen.bad == 0, || format!("{} probes found a good target bad", seen.bad));
    let kept = missed == 0 && late(0.999) < LATENESS_NS_MAX;
    if !kept {
        // A machine that others use as well is late for their reasons.
        report.notes.push(format!(
            "the schedule was NOT kept; {count} probes/s are due, and the bare loop right after it \
             does {ceiling} at full speed, {lowest} in the worst of {SPELLS} spells of {SPELL:?}"
        ));
    }
    report.figure(format!("{name}_kept"), kept);
    Ok(())
}

/// Probes a second of the bare loop at full speed over as many targets, now: a machine that others
/// use as well is another one a minute later. The median of many spells, and the worst of them.
fn bare_ceiling(stage: &Stage, what: (u32, Kind)) -> Result<(u64, u64)> {
    let bare = bare::start(&stage.home, stage.cpu, what, super::IN_FLIGHT, Sockets::Kept)?;
    bare.window(&stage.farm, SPELL)?;
    bare.resume()?;
    let mut spells = Vec::with_capacity(SPELLS);
    for _ in 0..SPELLS {
        let spell = bare.watch(&stage.farm, SPELL)?;
        spells.push(spell.probes(false) * 1_000_000_000 / spell.wall_ns);
    }
    bare.stop()?;
    spells.sort_unstable();
    Ok((spells[SPELLS / 2], spells[0]))
}
