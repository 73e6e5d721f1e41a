//! Whether an object's programs do what they are to do: asked before anything is attached, and
//! before what an agent before this one left is touched.
//!
//! Both programs are loaded over maps of their own, in which a small world stands: three services,
//! of which one is well, one has its slots on a sick backend, and one has nobody else. A few packets
//! whose end is written down here come by, and each must come to it; then the counters must say the
//! same. Nothing of it is seen by the maps in force, and all of it goes with the check.

/// The packets, and what is to come of them.
mod packets;
/// The tables.
mod world;

use sickbay_shared::abi::{self, GlobalCounters, ServiceCounters};
use sickbay_shared::pod::Pod;

use super::aya::{Entrance, Loaded, Ran};
use super::counters;
use super::error::KernelError;

use packets::Case;

/// Runs the check.
///
/// # Errors
///
/// [`KernelError::SelfCheck`] names the packet and what came of it; or the kernel refuses the
/// programs.
pub fn self_check(object: &[u8]) -> Result<(), KernelError> {
    let mut loaded = Loaded::load(object, &world::sizes(), None)?;
    world::lay_out(&loaded)?;
    // Of other clients each: a flow that was diverted once has an entry.
    for (entrance, client_port) in [(Entrance::Xdp, 40_000), (Entrance::Tc, 40_001)] {
        for case in &packets::cases(client_port) {
            check(&mut loaded, entrance, case)?;
        }
    }
    check_counters(&loaded)
}

fn check(loaded: &mut Loaded, entrance: Entrance, case: &Case) -> Result<(), KernelError> {
    let program = entrance.program();
    let failed =
        |came: String| KernelError::SelfCheck { what: format!("{program}, {}: {came}", case.name) };
    let ran = loaded.run(entrance, &case.frame).map_err(failed)?;
    let wanted = Ran { action: case.end.action(entrance), frame: case.end.frame(&case.frame) };
    if ran.action != wanted.action {
        return Err(failed(format!("it returned {}, not {}", ran.action, wanted.action)));
    }
    if ran.frame != wanted.frame {
        return Err(failed("the packet it left is not the right one".to_owned()));
    }
    Ok(())
}

/// What the packets must have been counted as, over both programs.
fn check_counters(loaded: &Loaded) -> Result<(), KernelError> {
    let service = |index: u32| read::<ServiceCounters>(loaded, abi::SERVICE_COUNTERS, index);
    let global: GlobalCounters = read(loaded, abi::GLOBAL_COUNTERS, 0)?;
    let (well, diverting, forlorn) =
        (service(world::WELL)?, service(world::DIVERTING)?, service(world::FORLORN)?);
    // Each twice: by either program.
    for (what, counted, wanted) in [
        ("packets that are no IP", global.not_ip, 2),
        ("packets to nobody's address", global.not_service, 2),
        ("packets cut short", global.truncated, 2),
        ("steered packets of the service that is well", well.steered_packets, 4),
        ("steered packets of the service with a sick backend", diverting.steered_packets, 4),
        ("new flows that went past the sick backend", diverting.skipped, 4),
        ("dropped packets of the service without a backend", forlorn.all_sick_dropped, 4),
        ("steered packets of that one", forlorn.steered_packets, 0),
    ] {
        if counted != wanted {
            let what = format!("it counted {counted} {what}, not {wanted}");
            return Err(KernelError::SelfCheck { what });
        }
    }
    Ok(())
}

fn read<T: Pod>(loaded: &Loaded, name: &'static str, index: u32) -> Result<T, KernelError> {
    Ok(counters::sum(&loaded.read(name, index)?))
}
