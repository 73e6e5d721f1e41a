//! Backends that enter a pool: ready before any slot names them.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use sickbay_shared::abi;
use sickbay_shared::limits::WORD_BACKENDS;

use super::super::parts::PATIENCE;
use super::turn::Entering;
use super::{
    ControlError, Fleet, Members, MembersChanged, Nanos, State, Turn, layout, monotonic_now,
    refused, taken,
};
use crate::config::{self, Newcomer};
use crate::control::members::NewBackend;
use crate::fleet::Backend;
use crate::membership::Membership;
use crate::shard::{Joining, PlaceError};

/// How long a next hop is waited for: its neighbour has been asked just now.
const NEXT_HOP_WAIT: Duration = Duration::from_secs(1);

impl Members {
    pub(super) fn add(
        &self,
        state: &mut State,
        pool: &str,
        backends: &[NewBackend],
    ) -> Result<MembersChanged, ControlError> {
        let fleet = self.parts.fleet();
        let Some(pool) = fleet.pools.iter().position(|it| it.name == pool) else {
            let known = config::nearest(pool, fleet.pools.iter().map(|it| it.name.as_str()));
            return refused(format!("there is no pool {}: {known}", config::quoted(pool)));
        };
        if backends.is_empty() {
            return refused("no backend was named: write ADDRESS:PORT".to_owned());
        }
        let read = |new: &NewBackend| {
            config::newcomer(&new.address, new.name.as_deref(), new.weight)
                .map_err(|what| ControlError::Refused { what })
        };
        let newcomers = backends.iter().map(read).collect::<Result<Vec<Newcomer>, _>>()?;
        let entering = entering(&state.pools[pool], &fleet, pool, newcomers, &[], monotonic_now())?;
        let done = self.carry_out(state, &Turn { entering: vec![entering], ..Turn::default() })?;
        Ok(MembersChanged { names: done.added, notes: done.notes })
    }

    /// Records, next hops and bits of those that are new.
    pub(super) fn make_ready(
        &self,
        grown: &Fleet,
        entered: &[(Backend, u32)],
    ) -> Result<(), ControlError> {
        if entered.is_empty() {
            return Ok(());
        }
        if (self.parts.board.header().target_count as usize) < grown.targets.len() {
            return refused(PlaceError::Full.to_string());
        }
        let probed = entered.iter().filter(|(backend, _)| !backend.judged.is_empty());
        let joining: Vec<Joining> = probed.map(|(it, _)| Joining::of(grown, it)).collect();
        let placed = match self.parts.with_shards(|shards| shards.place(&joining)) {
            Some(Ok(placed)) => placed,
            Some(Err(error)) => return refused(error.to_string()),
            None => return taken(None),
        };
        let own = joining.iter().map(|it| it.backend).zip(placed.iter().copied());
        let shard_of: HashMap<u32, usize> = own.collect();
        for (backend, generation) in entered {
            let shard = shard_of.get(&backend.index).copied().unwrap_or(layout::UNPROBED_SHARD);
            let record = layout::backend_record(backend, shard, *generation);
            self.parts.board.write_backend(backend.index, &record);
        }
        let serves = |pool| layout::serves(grown, pool);
        let steered = entered.iter().filter(|(backend, _)| serves(backend.pool));
        let hops = steered.filter_map(|(it, _)| Some((it.index, it.address.inet()?.ip())));
        self.find_next_hops(hops.collect());
        let placed = placed.into_iter().zip(joining).collect();
        taken(self.parts.with_shards(|shards| shards.join(placed)))?;
        for (backend, _) in entered.iter().filter(|(it, _)| it.judged.is_empty()) {
            self.parts.unprobed.join(grown, backend);
        }
        Ok(())
    }

    /// Waits for those next hops that can be had at once. One that cannot is told when it answers;
    /// until then its packets are dropped and counted, as for any other backend.
    fn find_next_hops(&self, addresses: Vec<(u32, IpAddr)>) {
        if addresses.is_empty() {
            return;
        }
        let indices: Vec<u32> = addresses.iter().map(|(index, _)| *index).collect();
        if self.parts.with_neighbours(|it| it.change(addresses, Vec::new(), PATIENCE)).is_none() {
            return;
        }
        let limit = Instant::now() + NEXT_HOP_WAIT;
        let known = |index: &u32| {
            let record = self.parts.board.backend(*index).unwrap_or_default();
            record.next_hop & abi::NEXT_HOP_VALID != 0
        };
        while !indices.iter().all(known) && Instant::now() < limit {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Leaves nothing of those that could not enter; whether that could be made sure of.
    pub(super) fn unmake(&self, entered: &[(Backend, u32)]) -> bool {
        let indices: Vec<u32> = entered.iter().map(|(backend, _)| backend.index).collect();
        // Those that did not join are passed over.
        let parted = self.parts.with_shards(|shards| shards.part(&indices));
        if matches!(parted, Some(Err(_))) || self.parts.forget_next_hops(&indices) == Some(false) {
            return false;
        }
        self.parts.unprobed.part(&indices);
        for (backend, generation) in entered {
            self.parts.board.write_backend(backend.index, &layout::vacant_record(*generation));
        }
        true
    }
}

/// Those who enter a pool, checked as far as they can be before anything is changed; those of
/// `leaving` leave it at the same time.
pub(super) fn entering(
    membership: &Membership,
    fleet: &Fleet,
    pool: usize,
    newcomers: Vec<Newcomer>,
    leaving: &[u32],
    now: Nanos,
) -> Result<Entering, ControlError> {
    let settings = &fleet.pools[pool];
    let mut entering = Entering { pool, fresh: Vec::new(), again: Vec::new() };
    let seats = membership.seats().iter();
    let gone: HashSet<u32> =
        seats.filter(|seat| seat.gone_ns.is_some()).map(|seat| seat.backend.index()).collect();
    let members = &fleet.backends[settings.backends.clone()];
    for newcomer in newcomers {
        let known =
            members.iter().find(|it| it.address == newcomer.address && gone.contains(&it.index));
        match known {
            Some(known) if newcomer.name.as_ref().is_some_and(|name| *name != known.name) => {
                return refused(format!(
                    "{} is still leaving as {}.{}: add it by that name, or when its drain has ended",
                    newcomer.address, settings.name, known.name
                ));
            }
            Some(known) if entering.again.iter().any(|(it, _)| it.index == known.index) => {
                return refused(format!("{} is named twice", newcomer.address));
            }
            Some(known) => entering.again.push((known.clone(), newcomer.weight)),
            None => entering.fresh.push(newcomer),
        }
    }
    let room = membership.room(now);
    if room < entering.fresh.len() {
        return refused(format!(
            "pool {} has room for {room} more backends now, and {} are to be added: it reserves {} \
             places, those of removed backends are free when their drain has ended; a restart makes \
             more room",
            settings.name,
            entering.fresh.len(),
            settings.word_count * WORD_BACKENDS,
        ));
    }
    let stay = |it: &&Backend| !gone.contains(&it.index) && !leaving.contains(&it.index);
    let revived = entering.again.iter().map(|(backend, _)| backend);
    let staying = members.iter().filter(stay).chain(revived);
    config::check_apart(&settings.name, staying, &entering.fresh)
        .and_then(|()| config::check_fits(fleet, pool, &entering.fresh))
        .map_err(|what| ControlError::Refused { what })?;
    Ok(entering)
}
