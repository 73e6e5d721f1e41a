//! Members that come and go with what their pool's sources say.
//!
//! What changes is the difference between two answers, not between an answer and the members: who
//! was added or removed by an operator stays so until his source says something else of him.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use super::turn::{Done, Named};
use super::{ControlError, Members, State, Turn, enter, monotonic_now, refused};
use crate::address::Address;
use crate::config::{self, Newcomer, PoolDifference, Regrowth};
use crate::discovery::{Answer, Blackboard, Sourced};
use crate::fleet::{Backend, Fleet, Origin, Pool};

/// What was refused is tried again after this: places become free when drains end.
const AGAIN: Duration = Duration::from_secs(5);

/// What came of following the sources.
pub(in crate::run) enum Followed {
    /// Members are as the sources say, as far as they can be.
    Done,
    /// That takes more than a change of members: the pool has no room, or a backend another name.
    Succeed(Box<Fleet>),
}

/// What sources said that could not be put in force.
#[derive(Debug)]
pub(super) struct Declined {
    sources: Vec<Sourced>,
    at: Instant,
}

/// What has changed in a pool.
struct News {
    difference: PoolDifference,
    named: Named,
    /// By index: those that are called otherwise now.
    renamed: Vec<(u32, String)>,
}

impl Members {
    /// Has the members be those whom their sources name now. What cannot be is logged, once.
    pub(in crate::run) fn follow(&self, board: &Blackboard) -> Followed {
        let fleet = self.parts.fleet();
        let heard: Vec<(usize, Vec<Sourced>)> = (0..fleet.pools.len())
            .filter_map(|pool| Some((pool, heard(&fleet.pools[pool], board)?)))
            .collect();
        if heard.is_empty() {
            return Followed::Done;
        }
        let mut state = self.state();
        for (pool, sources) in heard {
            if state.declined.get(&pool).is_some_and(|it| it.is_of(&sources) && !it.is_old()) {
                continue;
            }
            match self.follow_pool(&mut state, pool, sources.clone()) {
                Ok(Followed::Done) => {
                    state.declined.remove(&pool);
                }
                Ok(succeed) => {
                    // Should that fail, it is not tried at once again.
                    let _told_there = state.decline(pool, sources);
                    return succeed;
                }
                Err(error) => {
                    if state.decline(pool, sources) {
                        let name = &fleet.pools[pool].name;
                        tracing::error!("pool {name} does not follow its sources: {error}");
                    }
                }
            }
        }
        Followed::Done
    }

    fn follow_pool(
        &self,
        state: &mut State,
        pool: usize,
        sources: Vec<Sourced>,
    ) -> Result<Followed, ControlError> {
        let (fleet, now) = (self.parts.fleet(), monotonic_now());
        let gone: HashSet<u32> = state.leaving().into_iter().collect();
        let News { difference, named, renamed } = news(&fleet, pool, sources, &gone)?;
        if !renamed.is_empty() || !state.has_room(&fleet, &difference, now) {
            config::check_fits(&fleet, pool, &difference.entering)
                .map_err(|what| ControlError::Refused { what })?;
            let gone: Vec<u32> = gone.into_iter().collect();
            let regrowth = Regrowth { difference, renamed, sources: named.sources };
            let wanted = config::regrow(&fleet, &gone, regrowth)
                .map_err(|what| ControlError::Refused { what })?;
            return Ok(Followed::Succeed(Box::new(wanted)));
        }
        let PoolDifference { entering, leaving, weighed, .. } = difference;
        let own = |index: u32| {
            let found = fleet.backends.iter().find(|backend| backend.index == index);
            found.expect("the difference is told by the fleet's indices").clone()
        };
        let turn = Turn {
            entering: vec![enter::entering(
                &state.pools[pool],
                &fleet,
                pool,
                entering,
                &leaving,
                now,
            )?],
            leaving: leaving.into_iter().map(own).collect(),
            weighed: weighed.into_iter().map(|(index, weight)| (own(index), weight)).collect(),
            named: vec![named],
            empties: true,
        };
        let Done { added, removed, weighed, notes: _told_already } =
            self.carry_out(state, &turn)?;
        if !(added.is_empty() && removed.is_empty() && weighed.is_empty()) {
            self.parts.board.raise_generation();
            tracing::info!(
                "pool {} follows its sources: {} added, {} removed, {} with another weight",
                fleet.pools[pool].name,
                added.len(),
                removed.len(),
                weighed.len()
            );
        }
        Ok(Followed::Done)
    }
}

impl State {
    /// Remembers what could not be put in force; whether that is new.
    fn decline(&mut self, pool: usize, sources: Vec<Sourced>) -> bool {
        let known = self.declined.get(&pool).is_some_and(|it| it.is_of(&sources));
        self.declined.insert(pool, Declined { sources, at: Instant::now() });
        !known
    }
}

impl Declined {
    fn is_of(&self, sources: &[Sourced]) -> bool {
        self.sources.len() == sources.len()
            && self.sources.iter().zip(sources).all(|(ours, theirs)| {
                ours.source == theirs.source && is_same(&ours.answer, &theirs.answer)
            })
    }

    fn is_old(&self) -> bool {
        AGAIN <= self.at.elapsed()
    }
}

/// What the pool's sources say now, if that is not what its members are of.
fn heard(pool: &Pool, board: &Blackboard) -> Option<Vec<Sourced>> {
    let mut differs = false;
    let hear = |sourced: &Sourced| {
        let now = board.answer(&sourced.source).or_else(|| sourced.answer.clone());
        differs |= !is_same(&now, &sourced.answer);
        Sourced { source: sourced.source.clone(), answer: now }
    };
    let heard: Vec<Sourced> = pool.sources.iter().map(hear).collect();
    differs.then_some(heard)
}

/// Whether these are one: the board has another only when it says something else.
fn is_same(ours: &Option<Answer>, theirs: &Option<Answer>) -> bool {
    match (ours, theirs) {
        (Some(ours), Some(theirs)) => Answer::ptr_eq(ours, theirs),
        (None, None) => true,
        _ => false,
    }
}

/// Who is named by any of the sources; by several, what the first one says of him.
fn named(sources: &[Sourced]) -> HashMap<&Address, &Newcomer> {
    let all = sources.iter().rev().filter_map(|sourced| sourced.answer.as_ref());
    all.flat_map(|answer| answer.iter()).map(|it| (&it.address, it)).collect()
}

/// What makes of the pool's members those whom `sources` name; `gone` are leaving already.
fn news(
    fleet: &Fleet,
    pool: usize,
    sources: Vec<Sourced>,
    gone: &HashSet<u32>,
) -> Result<News, ControlError> {
    let settings = &fleet.pools[pool];
    let (before, after) = (named(&settings.sources), named(&sources));
    let members: HashMap<&Address, &Backend> = fleet.backends[settings.backends.clone()]
        .iter()
        .filter(|backend| !gone.contains(&backend.index))
        .map(|backend| (&backend.address, backend))
        .collect();
    let mut difference = PoolDifference { pool, ..PoolDifference::default() };
    let mut renamed = Vec::new();
    // In the sources' order, which says who stands where.
    let mut seen = HashSet::new();
    let in_order = sources.iter().filter_map(|sourced| sourced.answer.as_ref());
    for newcomer in in_order.flat_map(|answer| answer.iter()) {
        if !seen.insert(&newcomer.address) {
            continue;
        }
        let known = before.get(&newcomer.address);
        match members.get(&newcomer.address) {
            // An operator has removed him: he stays away until his source names him anew.
            None if known.is_some() => {}
            None => difference.entering.push(newcomer.clone()),
            Some(member) if member.origin == Origin::Configured => {
                if known.is_none() && matches!(newcomer.origin, Origin::File(_)) {
                    let (address, origin) = (&newcomer.address, &newcomer.origin);
                    return refused(format!(
                        "{origin} lists {address}, which is in the pool already: remove one of the \
                         two"
                    ));
                }
            }
            Some(member) => {
                if known.is_none_or(|known| known.weight != newcomer.weight)
                    && member.weight != newcomer.weight
                {
                    difference.weighed.push((member.index, newcomer.weight));
                }
                if member.name != newcomer.called() {
                    renamed.push((member.index, newcomer.called()));
                }
            }
        }
    }
    let leaves = |backend: &&&Backend| {
        let address = &backend.address;
        backend.origin.is_source() && before.contains_key(address) && !after.contains_key(address)
    };
    difference.leaving = members.values().filter(leaves).map(|it| it.index).collect();
    difference.leaving.sort_unstable();
    let is_configured = |address: &Address| {
        members.get(address).is_some_and(|member| member.origin == Origin::Configured)
    };
    let origins = after
        .into_iter()
        .filter(|(address, _)| !is_configured(address))
        .map(|(address, newcomer)| (address.clone(), newcomer.origin.clone()))
        .collect();
    Ok(News { difference, named: Named { pool, sources, origins }, renamed })
}
