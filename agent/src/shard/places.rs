//! Which shard has what, and room for what: kept by whoever asks the shards, so that a backend is
//! refused before anything of it is begun.

use std::collections::{HashMap, HashSet};

use super::{Joining, ShardPlan, split};

/// All shards' backends and targets.
#[derive(Debug)]
pub(super) struct Places {
    /// By backend index.
    backends: HashMap<u32, Seat>,
    /// By index of the fleet's target.
    targets: HashMap<u32, TargetPlace>,
    shards: Vec<Load>,
}

#[derive(Debug)]
struct Seat {
    shard: usize,
    targets: Box<[u32]>,
}

#[derive(Debug)]
struct TargetPlace {
    shard: usize,
    /// Judges that look at it.
    users: u32,
    /// Its probes per 1000 s.
    rate: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Load {
    rate: u64,
    targets: usize,
    targets_max: usize,
    judges: usize,
    judges_max: usize,
}

/// Why a backend has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// Every shard that it could join is full.
    #[error("no probing thread has room for more targets; restart the agent to make room")]
    Full,
    /// Other backends' probes of the same address are on several shards.
    #[error(
        "its probes are made for other backends already, by several threads, and one must own it; \
         restart the agent to add it"
    )]
    Split,
}

impl Places {
    pub(super) fn of(plans: &[ShardPlan]) -> Self {
        let shards = vec![Load::default(); plans.len()];
        let mut places = Self { backends: HashMap::new(), targets: HashMap::new(), shards };
        for (shard, plan) in plans.iter().enumerate() {
            let room = plan.plan.room;
            let load = &mut places.shards[shard];
            load.targets_max = plan.targets.len() + room.targets as usize;
            load.judges_max = plan.owned.len() + room.judges as usize;
            for (target, spec) in plan.targets.iter().zip(&plan.plan.targets) {
                let rate = split::rate(plan.plan.probes[spec.probe.0 as usize].interval_ns);
                let place = TargetPlace { shard, users: 0, rate };
                places.targets.insert(number(*target), place);
                places.shards[shard].rate += rate;
                places.shards[shard].targets += 1;
            }
            let mut judged: HashMap<u32, Vec<u32>> = HashMap::new();
            for (backend, judge) in plan.owned.iter().zip(&plan.plan.judges) {
                let target = number(plan.targets[judge.target.0 as usize]);
                judged.entry(*backend).or_default().push(target);
            }
            for (backend, targets) in judged {
                places.seat(shard, backend, targets.into());
            }
        }
        places
    }

    pub(super) fn shard_of(&self, backend: u32) -> Option<usize> {
        self.backends.get(&backend).map(|seat| seat.shard)
    }

    pub(super) fn target_count(&self, shard: usize) -> u32 {
        self.shards.get(shard).map_or(0, |load| number(load.targets))
    }

    /// The shard of each of these, as they would join one after the other.
    pub(super) fn place(&self, joining: &[Joining]) -> Result<Vec<usize>, PlaceError> {
        let mut loads = self.shards.clone();
        // Targets that one before has brought, with their shard.
        let mut brought: HashMap<u32, usize> = HashMap::new();
        let mut placed = Vec::with_capacity(joining.len());
        for one in joining {
            let known = |target: u32| {
                let place = self.targets.get(&target).map(|place| place.shard);
                place.or_else(|| brought.get(&target).copied())
            };
            let shards: HashSet<usize> =
                one.judged.iter().filter_map(|judged| known(judged.target)).collect();
            let new: Vec<(u32, u64)> = one
                .judged
                .iter()
                .filter(|judged| known(judged.target).is_none())
                .map(|judged| (judged.target, judged.rate))
                .collect();
            if 1 < shards.len() {
                return Err(PlaceError::Split);
            }
            let fits = |load: &Load| {
                load.targets + new.len() <= load.targets_max
                    && load.judges + one.judged.len() <= load.judges_max
            };
            let shard = match shards.into_iter().next() {
                Some(shard) => Some(shard).filter(|shard| fits(&loads[*shard])),
                None => (0..loads.len())
                    .filter(|shard| fits(&loads[*shard]))
                    .min_by_key(|shard| (loads[*shard].rate, *shard)),
            };
            let shard = shard.ok_or(PlaceError::Full)?;
            let load = &mut loads[shard];
            load.targets += new.len();
            load.judges += one.judged.len();
            load.rate += new.iter().map(|(_, rate)| rate).sum::<u64>();
            brought.extend(new.into_iter().map(|(target, _)| (target, shard)));
            placed.push(shard);
        }
        Ok(placed)
    }

    pub(super) fn join(&mut self, shard: usize, joining: &Joining) {
        for judged in &joining.judged {
            self.targets.entry(judged.target).or_insert_with(|| {
                self.shards[shard].rate += judged.rate;
                self.shards[shard].targets += 1;
                TargetPlace { shard, users: 0, rate: judged.rate }
            });
        }
        let targets = joining.judged.iter().map(|judged| judged.target).collect();
        self.seat(shard, joining.backend, targets);
    }

    pub(super) fn part(&mut self, backend: u32) {
        let Some(Seat { shard, targets }) = self.backends.remove(&backend) else {
            return;
        };
        let load = &mut self.shards[shard];
        load.judges -= targets.len();
        for target in targets {
            let place = self.targets.get_mut(&target).expect("a seat's targets have places");
            place.users -= 1;
            if place.users == 0 {
                load.targets -= 1;
                load.rate -= place.rate;
                self.targets.remove(&target);
            }
        }
    }

    fn seat(&mut self, shard: usize, backend: u32, targets: Box<[u32]>) {
        self.shards[shard].judges += targets.len();
        for target in &targets {
            self.targets.get_mut(target).expect("a seat's targets have places").users += 1;
        }
        self.backends.insert(backend, Seat { shard, targets });
    }
}

fn number(count: usize) -> u32 {
    u32::try_from(count).expect("targets are counted in u32")
}
