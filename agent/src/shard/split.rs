//! A fleet over its shards: who probes what, with room for what joins later.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nix::unistd::gethostname;
use sickbay_core::hash;
use sickbay_core::plan::{JudgeSpec, Nanos, Plan, ProbeIndex, Room, TargetIndex, TargetSpec};
use sickbay_shared::limits::SHARDS_MAX;

use super::ShardPlan;
use super::thread::allowed_cpus;
use crate::engine::Endpoint;
use crate::fleet::{Fleet, ProxyHeader, Target};

/// Room that each shard has at least, if the fleet has as much: a few backends must not fail to
/// join because their target's shard has had its share.
const ROOM_MIN: usize = 64;

/// How many shards the fleet gets on this host: what it asks for, or one a CPU that this process
/// may use; at least one, and no more than there are targets.
#[must_use]
pub fn shard_count(fleet: &Fleet) -> usize {
    let wanted = match fleet.shards {
        0 => allowed_cpus().len(),
        wanted => wanted as usize,
    };
    wanted.min(SHARDS_MAX as usize).clamp(1, fleet.targets.len().max(1))
}

/// The fleet over `shard_count` shards, balanced by probes per second. Every target and every
/// backend that is probed is in exactly one of them. The same fleet gives the same split.
///
/// # Panics
/// If `shard_count` is 0.
#[must_use]
pub fn split(fleet: &Fleet, shard_count: usize) -> Vec<ShardPlan> {
    assert!(0 < shard_count, "at least one shard");
    let owned = assign_targets(fleet, shard_count);
    let mut backends_of_target = vec![Vec::new(); fleet.targets.len()];
    for (index, backend) in fleet.backends.iter().enumerate() {
        for judged in &backend.judged {
            backends_of_target[judged.target].push((index, judged.probe));
        }
    }
    let plan = |targets| shard_plan(fleet, targets, &backends_of_target, shard_count);
    owned.into_iter().map(plan).collect()
}

/// Which targets each shard gets: the heaviest first, each to the shard with the least load. Those
/// of one backend stay together.
fn assign_targets(fleet: &Fleet, shard_count: usize) -> Vec<Vec<usize>> {
    let interval_ns = |target: &usize| fleet.probes[fleet.targets[*target].probe].spec.interval_ns;
    let mut order: Vec<usize> = (0..fleet.targets.len()).collect();
    order.sort_by_key(|target| (interval_ns(target), *target));

    let leaders = leaders(fleet);
    let mut placed = vec![None; fleet.targets.len()];
    let mut loads: BinaryHeap<_> = (0..shard_count).map(|shard| Reverse((0_u64, shard))).collect();
    let mut owned = vec![Vec::new(); shard_count];
    for target in order {
        let rate = rate(interval_ns(&target));
        let shard = match placed[leaders[target]] {
            // The few that come with others are not weighed: the next ones even it out.
            Some(shard) => shard,
            None => {
                let Reverse((load, shard)) = loads.pop().expect("as many as there are shards");
                loads.push(Reverse((load + rate, shard)));
                shard
            }
        };
        placed[leaders[target]] = Some(shard);
        owned[shard].push(target);
    }
    for targets in &mut owned {
        targets.sort_unstable();
    }
    owned
}

/// Probes per 1000 s, at least 1: intervals are at least 10 ms, so a million targets stay far below
/// u64.
pub(super) fn rate(interval_ns: Nanos) -> u64 {
    (1_000_000_000_000 / interval_ns.max(1)).max(1)
}

/// For each target one that stands for all which backends with several probes hold together.
fn leaders(fleet: &Fleet) -> Vec<usize> {
    fn leader(parents: &mut [usize], mut target: usize) -> usize {
        while parents[target] != target {
            parents[target] = parents[parents[target]];
            target = parents[target];
        }
        target
    }
    let mut parents: Vec<usize> = (0..fleet.targets.len()).collect();
    for backend in &fleet.backends {
        for pair in backend.judged.windows(2) {
            let (first, second) =
                (leader(&mut parents, pair[0].target), leader(&mut parents, pair[1].target));
            parents[second] = first;
        }
    }
    (0..parents.len()).map(|target| leader(&mut parents, target)).collect()
}

fn shard_plan(
    fleet: &Fleet,
    targets: Vec<usize>,
    backends_of_target: &[Vec<(usize, usize)>],
    shard_count: usize,
) -> ShardPlan {
    let mut judges = Vec::new();
    let mut judge_specs = Vec::new();
    for (local, target) in targets.iter().enumerate() {
        for (backend, probe) in &backends_of_target[*target] {
            let probe = &fleet.probes[*probe];
            judges.push(*backend);
            judge_specs.push(JudgeSpec {
                target: TargetIndex(u32::try_from(local).expect("indices are u32")),
                rule: probe.rule,
                on_unknown: probe.on_unknown,
            });
        }
    }
    let room = room_of_a_shard(fleet, shard_count);
    let plan = Plan {
        probes: fleet.probes.iter().map(|probe| probe.spec.clone()).collect(),
        targets: targets.iter().map(|target| target_spec(&fleet.targets[*target])).collect(),
        judges: judge_specs,
        slot_count: fleet.in_flight.max(2),
        phase_seed: phase_seed(&fleet.instance),
        past: Vec::new(),
        room: Room { targets: room, judges: room },
    };
    let endpoints = targets.iter().map(|target| endpoint(fleet, *target)).collect();
    let owned = judges.iter().map(|backend| fleet.backends[*backend].index).collect();
    ShardPlan { plan, endpoints, targets, judges, owned }
}

/// Targets, and as many judges, that one shard has room for besides its own. Twice its share of the
/// fleet's: which shard a target is on is not free once another backend has it.
fn room_of_a_shard(fleet: &Fleet, shard_count: usize) -> u32 {
    let room = fleet.target_room();
    let share = 2 * room.div_ceil(shard_count) + ROOM_MIN;
    u32::try_from(room.min(share)).expect("indices are u32")
}

/// How a target is reached.
pub(super) fn endpoint(fleet: &Fleet, target: usize) -> Endpoint {
    let target = &fleet.targets[target];
    Endpoint {
        address: target.address.clone(),
        // What gets the flows is what is probed.
        second: None,
        request: target.request.clone(),
        proxy_v1: fleet.probes[target.probe].proxy_header == Some(ProxyHeader::V1Own),
        close: fleet.probes[target.probe].close,
        socket: fleet.probes[target.probe].socket.clone(),
    }
}

pub(super) fn target_spec(target: &Target) -> TargetSpec {
    TargetSpec {
        identity: target.identity,
        probe: ProbeIndex(u32::try_from(target.probe).expect("indices are u32")),
        family: target.address.family(),
        second: None,
        initial: target.initial,
    }
}

/// The same at every start of one instance on one host, another on every other host.
fn phase_seed(instance: &str) -> u64 {
    let host = gethostname().unwrap_or_default();
    hash::seeded(hash::identity(host.as_encoded_bytes(), 0, instance.as_bytes()), 0)
}
