//! Backends that enter a pool: ready before any slot names them.

use std::net::IpAddr;

use super::{
    ControlError, Fleet, Instant, MemberEvent, Members, MembersChanged, Nanos, PATIENCE, Standing,
    State, changed, layout, monotonic_now, refused, taken,
};
use crate::config::{self, Newcomer};
use crate::control::members::NewBackend;
use crate::fleet::Backend;
use crate::membership::Entered;
use crate::shard::Joining;

/// How long a next hop is waited for: its neighbour has been asked just now.
const NEXT_HOP_WAIT: std::time::Duration = std::time::Duration::from_secs(1);

/// Those who enter a pool.
struct Entering {
    pool: usize,
    /// Those that are new to it.
    fresh: Vec<Newcomer>,
    /// Those that were leaving it, with the weight they are to have.
    again: Vec<(Backend, u32)>,
}

impl Members {
    pub(super) fn add(
        &self,
        state: &mut State,
        pool: &str,
        backends: &[NewBackend],
    ) -> Result<MembersChanged, ControlError> {
        let fleet = self.parts.fleet();
        let now = monotonic_now();
        let entering = read(state, &fleet, pool, backends, now)?;
        let pool = entering.pool;
        let entered: Vec<Entered> = entering
            .fresh
            .iter()
            .map(|newcomer| {
                let member = layout::member(newcomer.address, newcomer.weight);
                state.pools[pool].enter(member, now).expect("there was room just now")
            })
            .collect();
        let indices = entered.iter().map(|entered| entered.backend().index());
        let fresh: Vec<(u32, Newcomer)> = indices.zip(entering.fresh).collect();
        let grown = config::grow(&fleet, pool, &fresh).expect("it was tried just now");
        if let Err(error) = self.make_ready(&grown, pool, &entered) {
            entered.iter().for_each(|entered| state.pools[pool].take_back(entered.backend(), now));
            return Err(error);
        }
        if let Err(error) = self.revive(state, &entering.again, now) {
            self.unmake(&entered);
            entered.iter().for_each(|entered| state.pools[pool].take_back(entered.backend(), now));
            return Err(error);
        }
        Ok(self.put_in_force(state, grown, &entered, &entering.again, now))
    }

    /// Slots, fleet and journal, when all that enter are ready.
    fn put_in_force(
        &self,
        state: &mut State,
        mut grown: Fleet,
        entered: &[Entered],
        again: &[(Backend, u32)],
        now: Nanos,
    ) -> MembersChanged {
        for entered in entered {
            let index = entered.backend().index();
            if let Ok(before) = self.parts.counters.backend(index) {
                state.counted_before.insert(index, before);
            }
        }
        for (revived, weight) in again {
            let own = grown.backends.iter_mut().find(|it| it.index == revived.index);
            own.expect("one that is leaving is in the fleet").weight = *weight;
        }
        let concerned = |backend: &&Backend| {
            entered.iter().any(|it| it.backend().index() == backend.index)
                || again.iter().any(|(revived, _)| revived.index == backend.index)
        };
        let chosen: Vec<Backend> = grown.backends.iter().filter(concerned).cloned().collect();
        self.retable(state, &grown, &chosen, now);
        self.tell(&grown, &chosen, now, |backend| MemberEvent::Added {
            address: backend.address,
            weight: backend.weight,
        });
        let done = changed(&grown, &chosen, self.notes(state, &grown, &chosen));
        self.parts.set_fleet(grown);
        done
    }

    /// Records, next hops and bits of those that are new; undone when a shard does not take them.
    fn make_ready(
        &self,
        grown: &Fleet,
        pool: usize,
        entered: &[Entered],
    ) -> Result<(), ControlError> {
        if entered.is_empty() {
            return Ok(());
        }
        let fresh: Vec<&Backend> = entered
            .iter()
            .map(|entered| {
                let index = entered.backend().index();
                let found = grown.backends.iter().find(|backend| backend.index == index);
                found.expect("the fleet was grown by it")
            })
            .collect();
        let joining: Vec<Joining> =
            fresh.iter().map(|backend| Joining::of(grown, backend)).collect();
        let placed = match self.parts.with_shards(|shards| shards.place(&joining)) {
            Some(Ok(placed)) => placed,
            Some(Err(error)) => return refused(error.to_string()),
            None => return taken(None),
        };
        for ((backend, shard), entered) in fresh.iter().zip(&placed).zip(entered) {
            let shard = u32::try_from(*shard).expect("at most 256 shards");
            let record = layout::backend_record(backend, shard, entered.backend().generation());
            self.parts.board.write_backend(backend.index, &record);
        }
        if layout::services_of(grown, pool).next().is_some() {
            let addresses = fresh.iter().map(|it| (it.index, it.address.ip())).collect();
            self.find_next_hops(addresses);
        }
        let placed = placed.into_iter().zip(joining).collect();
        let joined = taken(self.parts.with_shards(|shards| shards.join(placed)));
        if joined.is_err() {
            self.unmake(entered);
        }
        joined
    }

    /// Waits for those next hops that can be had at once. One that cannot is told when it answers;
    /// until then its packets are dropped and counted, as for any other backend.
    fn find_next_hops(&self, addresses: Vec<(u32, IpAddr)>) {
        let indices: Vec<u32> = addresses.iter().map(|(index, _)| *index).collect();
        if self.parts.with_neighbours(|it| it.change(addresses, Vec::new(), PATIENCE)).is_none() {
            return;
        }
        let limit = Instant::now() + NEXT_HOP_WAIT;
        let known = |index: &u32| {
            let record = self.parts.board.backend(*index).unwrap_or_default();
            record.next_hop & sickbay_shared::abi::NEXT_HOP_VALID != 0
        };
        while !indices.iter().all(known) && Instant::now() < limit {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Nothing is left of those that could not enter.
    fn unmake(&self, entered: &[Entered]) {
        let indices: Vec<u32> = entered.iter().map(|it| it.backend().index()).collect();
        // Those that did not join are passed over, and a shard that has ended clears nothing.
        let _told_already = self.parts.with_shards(|shards| shards.part(&indices));
        self.parts.with_neighbours(|it| it.change(Vec::new(), indices.clone(), PATIENCE));
        for index in indices {
            self.parts.board.write_backend(index, &sickbay_shared::abi::Backend::default());
        }
    }

    /// Those that were leaving have their places again.
    fn revive(
        &self,
        state: &mut State,
        again: &[(Backend, u32)],
        now: Nanos,
    ) -> Result<(), ControlError> {
        let standings: Vec<_> =
            again.iter().map(|(backend, _)| (backend.index, Standing::Full)).collect();
        if !standings.is_empty() {
            taken(self.parts.with_shards(|shards| shards.set_standings(&standings)))?;
        }
        for (backend, weight) in again {
            let member = layout::member(backend.address, *weight);
            let entered = state.pools[backend.pool].enter(member, now);
            debug_assert!(matches!(entered, Ok(Entered::Again(_))), "{entered:?}");
        }
        Ok(())
    }
}

/// What an operator wrote, checked as far as it can be before anything is changed.
fn read(
    state: &State,
    fleet: &Fleet,
    pool: &str,
    backends: &[NewBackend],
    now: Nanos,
) -> Result<Entering, ControlError> {
    let Some(index) = fleet.pools.iter().position(|it| it.name == pool) else {
        let known = config::nearest(pool, fleet.pools.iter().map(|it| it.name.as_str()));
        return refused(format!("there is no pool {}: {known}", config::quoted(pool)));
    };
    if backends.is_empty() {
        return refused("no backend was named: write ADDRESS:PORT".to_owned());
    }
    let mut entering = Entering { pool: index, fresh: Vec::new(), again: Vec::new() };
    let seats = state.pools[index].seats();
    let leaving = |backend: &Backend| {
        let mut own = seats.iter().filter(|seat| seat.backend.index() == backend.index);
        own.any(|seat| seat.gone_ns.is_some())
    };
    let members = &fleet.backends[fleet.pools[index].backends.clone()];
    for new in backends {
        let newcomer = config::newcomer(&new.address, new.name.as_deref(), new.weight);
        let newcomer = newcomer.map_err(|what| ControlError::Refused { what })?;
        let known = members.iter().find(|it| it.address == newcomer.address && leaving(it));
        match known {
            Some(known) if newcomer.name.as_ref().is_some_and(|name| *name != known.name) => {
                return refused(format!(
                    "{} is still leaving as {pool}.{}: add it by that name, or when its drain has \
                     ended",
                    newcomer.address, known.name
                ));
            }
            Some(known) if entering.again.iter().any(|(it, _)| it.index == known.index) => {
                return refused(format!("{} is named twice", newcomer.address));
            }
            Some(known) => entering.again.push((known.clone(), newcomer.weight)),
            None => entering.fresh.push(newcomer),
        }
    }
    let room = state.pools[index].room(now);
    if room < entering.fresh.len() {
        let reserved = fleet.pools[index].word_count * sickbay_shared::limits::WORD_BACKENDS;
        return refused(format!(
            "pool {pool} has room for {room} more backends now, and {} are to be added: it reserves \
             {reserved} places, those of removed backends are free when their drain has ended; a \
             restart makes more room",
            entering.fresh.len()
        ));
    }
    let tried: Vec<(u32, Newcomer)> = entering.fresh.iter().cloned().map(|it| (0, it)).collect();
    config::grow(fleet, index, &tried).map_err(|what| ControlError::Refused { what })?;
    Ok(entering)
}
