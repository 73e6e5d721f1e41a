//! Where pools and backends stand, so that those who were there before stand where they stood.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use sickbay_core::maglev::SLOTS_PER_LIGHTEST;
use sickbay_core::plan::Nanos;
use sickbay_shared::abi::{self, BackendRef};
use sickbay_shared::limits::{BACKENDS_MAX, WORD_BACKENDS};

use super::words::Words;
use super::{Estate, Remaining, name_identity};
use crate::address::Address;
use crate::config::{self, Newcomer};
use crate::fleet::{Backend, Fleet, Origin, Service};
use crate::membership::{Indices, Seat};

/// A table that was there is gone on with as long as it gives the lightest backend this share of
/// the slots it should have: a table of another size moves the flows that follow their slot.
const TABLE_SHARE_MIN: u64 = 5;

/// A fleet, arranged as an estate asks for.
#[derive(Debug)]
pub struct Arrangement {
    /// With those who are leaving behind the others of their pools.
    pub fleet: Fleet,
    /// By pool, in the order of the fleet's backends.
    pub seats: Vec<Vec<Seat>>,
    /// By pool: which of its indices were used up to which generation.
    pub indices: Vec<Indices>,
    /// By pool: whether it stands where it stood.
    pub found: Vec<bool>,
    /// What will disappoint.
    pub notes: Vec<String>,
}

impl Estate {
    /// Arranges `fleet`, as its configuration has it, so that whoever was there keeps its index.
    /// Those who were members and are not wanted leave at `now`, unless they were leaving before.
    ///
    /// # Errors
    ///
    /// There is no room for a pool that must stand elsewhere: its fleet fits into empty words only.
    pub fn arrange(
        &self,
        fleet: Fleet,
        remaining: &Remaining,
        now: Nanos,
    ) -> Result<Arrangement, Box<Fleet>> {
        let mut arrangement = Arrangement {
            seats: Vec::with_capacity(fleet.pools.len()),
            indices: Vec::with_capacity(fleet.pools.len()),
            found: vec![false; fleet.pools.len()],
            fleet,
            notes: Vec::new(),
        };
        if !self.place_pools(&mut arrangement) {
            return Err(Box::new(arrangement.fleet));
        }
        for pool in 0..arrangement.fleet.pools.len() {
            self.seat(&mut arrangement, pool, remaining, now);
        }
        self.keep_tables(&mut arrangement);
        Ok(arrangement)
    }

    /// Has each pool stand where it stood, if all fit there who stay, leave and enter; the others
    /// wherever there is room.
    fn place_pools(&self, arrangement: &mut Arrangement) -> bool {
        let mut words = Words::default();
        let fleet = &mut arrangement.fleet;
        for pool in 0..fleet.pools.len() {
            let Some(left) = self.pool(&fleet.pools[pool].name) else {
                continue;
            };
            let leaving = self.leaving(fleet, pool, left).len();
            let count = fleet.pools[pool].backends.len() + leaving;
            let room = (left.word_count * WORD_BACKENDS) as usize;
            if count <= room && words.take(left.first_word, left.word_count) {
                let placed = &mut fleet.pools[pool];
                (placed.first_word, placed.word_count) = (left.first_word, left.word_count);
                arrangement.found[pool] = true;
            } else {
                arrangement.notes.push(format!(
                    "pool {} has {count} backends, those that leave included, and had room for \
                     {room}: it moves, and so may its flows",
                    fleet.pools[pool].name
                ));
            }
        }
        let mut others: Vec<usize> =
            (0..fleet.pools.len()).filter(|pool| !arrangement.found[*pool]).collect();
        others.sort_by_key(|pool| std::cmp::Reverse(fleet.pools[*pool].word_count));
        others.into_iter().all(|pool| {
            let placed = &mut fleet.pools[pool];
            let first = words.find(placed.word_count, BACKENDS_MAX / WORD_BACKENDS);
            first.is_some_and(|first| {
                placed.first_word = first;
                true
            })
        })
    }

    /// Gives every backend of a pool its index: those who were there theirs, the others free ones.
    fn seat(&self, arrangement: &mut Arrangement, pool: usize, remaining: &Remaining, now: Nanos) {
        let left = arrangement.found[pool].then(|| self.pool(&arrangement.fleet.pools[pool].name));
        let left = left.flatten();
        let known: HashMap<u64, (u32, abi::Backend)> = left.map_or_else(HashMap::new, |left| {
            self.members(left).map(|(index, it)| (it.identity, (index, it))).collect()
        });
        let leaving =
            left.map_or_else(Vec::new, |left| self.leaving(&arrangement.fleet, pool, left));
        let settings = &arrangement.fleet.pools[pool];
        let drain_ns = settings.drain_ns;
        let first = settings.first_word * WORD_BACKENDS;
        let count = settings.word_count * WORD_BACKENDS;
        let in_use: HashSet<u32> = known.values().map(|(index, _)| *index).collect();
        let mut indices =
            Indices::resume(first, count, &in_use, |index| self.last_generation(index));
        let mut seats = Vec::new();
        for backend in &mut arrangement.fleet.backends[settings.backends.clone()] {
            let identity = backend.address.identity();
            let own = match known.get(&identity) {
                Some((index, record)) => BackendRef::new(*index, record.generation),
                None => indices.take(0).expect("there is room for all, or the pool had moved"),
            };
            backend.index = own.index();
            let weight = backend.weight;
            seats.push(Seat { backend: own, identity, weight, gone_ns: None, drained: false });
        }
        for (index, record) in &leaving {
            let backend = BackendRef::new(*index, record.generation);
            let longest_ns = now.saturating_add(drain_ns);
            let gone_ns = remaining.gone.get(&backend).map_or(longest_ns, |it| longest_ns.min(*it));
            let gone_ns = Some(gone_ns);
            let identity = record.identity;
            seats.push(Seat { backend, identity, weight: 1, gone_ns, drained: false });
        }
        if !leaving.is_empty() {
            arrangement.fleet = with_leaving(&arrangement.fleet, pool, &leaving);
        }
        // Indices of those who are neither wanted nor have a flow that could be led to them.
        let seated: HashSet<u32> = seats.iter().map(|seat| seat.backend.index()).collect();
        for (index, record) in known.values().filter(|(index, _)| !seated.contains(index)) {
            indices.give_back(BackendRef::new(*index, record.generation), now);
        }
        arrangement.seats.push(seats);
        arrangement.indices.push(indices);
    }

    /// Has tables keep the sizes they had where the configuration leaves them to us.
    fn keep_tables(&self, arrangement: &mut Arrangement) {
        let Arrangement { fleet, notes, .. } = arrangement;
        for index in 0..fleet.services.len() {
            let service = &fleet.services[index];
            let chosen = self.table_size(fleet, service, service.pool, service.slot_count, notes);
            let backup = service.backup.map(|backup| {
                let unsized_service = Service { sized: false, ..service.clone() };
                self.table_size(fleet, &unsized_service, backup.pool, backup.slot_count, notes)
            });
            let service = &mut fleet.services[index];
            service.slot_count = chosen;
            if let (Some(table), Some(count)) = (&mut service.backup, backup) {
                table.slot_count = count;
            }
        }
        let mut next = 0;
        let mut place = |count: u32| {
            next += count;
            next - count
        };
        for service in &mut fleet.services {
            service.slot_first = place(service.slot_count);
        }
        for backup in fleet.services.iter_mut().filter_map(|service| service.backup.as_mut()) {
            backup.slot_first = place(backup.slot_count);
        }
    }

    /// The size of a service's table over `pool`, for which the configuration says or chooses
    /// `wanted`.
    fn table_size(
        &self,
        fleet: &Fleet,
        service: &Service,
        pool: usize,
        wanted: u32,
        notes: &mut Vec<String>,
    ) -> u32 {
        let pool = &fleet.pools[pool];
        let sizes = self.table_sizes(&pool.name, service.seed);
        if sizes.is_empty() || sizes.contains(&wanted) {
            return wanted;
        }
        let weights = || fleet.backends[pool.backends.clone()].iter().map(|it| it.weight);
        let total: u64 = weights().map(u64::from).sum();
        let lightest = u64::from(weights().min().unwrap_or(1));
        let even = |size: &u32| {
            SLOTS_PER_LIGHTEST / TABLE_SHARE_MIN <= u64::from(*size) * lightest / total.max(1)
        };
        let kept = sizes.into_iter().filter(|_| !service.sized).find(even);
        kept.unwrap_or_else(|| {
            notes.push(format!(
                "service {}: its table over pool {} gets {wanted} slots: flows that have no entry \
                 may move",
                service.name, pool.name
            ));
            wanted
        })
    }

    /// The pool of this name.
    fn pool(&self, name: &str) -> Option<&abi::Pool> {
        let identity = name_identity(name);
        self.left.pools.iter().find(|pool| pool.identity == identity && pool.word_count != 0)
    }

    /// The indices in use of a pool, and who uses them.
    fn members<'a>(
        &'a self,
        pool: &'a abi::Pool,
    ) -> impl Iterator<Item = (u32, abi::Backend)> + 'a {
        let first = pool.first_word * WORD_BACKENDS;
        let indices = first..first + pool.word_count * WORD_BACKENDS;
        let records = indices.filter_map(|index| Some((index, self.left.board.backend(index)?)));
        records.filter(|(_, record)| record.identity != 0 && record.generation != 0)
    }

    /// Those of them whom the fleet does not want, and who may have flows.
    fn leaving(&self, fleet: &Fleet, pool: usize, left: &abi::Pool) -> Vec<(u32, abi::Backend)> {
        let settings = &fleet.pools[pool];
        let serves = fleet.services.iter().any(|service| {
            service.pool == pool || service.backup.is_some_and(|backup| backup.pool == pool)
        });
        if !serves {
            return Vec::new();
        }
        let wanted: HashSet<u64> = fleet.backends[settings.backends.clone()]
            .iter()
            .map(|backend| backend.address.identity())
            .collect();
        let leaves = |(_, record): &(u32, abi::Backend)| {
            record.family != 0 && !wanted.contains(&record.identity)
        };
        self.members(left).filter(leaves).collect()
    }
}

/// The fleet with those who leave: judged as their pool's backends are, or not at all where each of
/// these has a probe of its own.
fn with_leaving(fleet: &Fleet, pool: usize, leaving: &[(u32, abi::Backend)]) -> Fleet {
    let newcomer = |(index, record): &(u32, abi::Backend)| {
        let (address, origin) = (address_of(record), Origin::Left);
        (*index, Newcomer { name: None, address, weight: 1, origin })
    };
    let newcomers: Vec<(u32, Newcomer)> = leaving.iter().map(newcomer).collect();
    if fleet.pools[pool].own_probes.is_some()
        && let Ok(grown) = config::grow(fleet, pool, &newcomers)
    {
        return grown;
    }
    let backend = |(index, Newcomer { address, weight, origin, .. }): (u32, Newcomer)| {
        let (name, judged) = (address.to_string(), [].into());
        Backend { name, pool, address, weight, judged, index, origin }
    };
    let mut grown = fleet.clone();
    grown.insert(pool, newcomers.into_iter().map(backend).collect());
    grown
}

/// The address on a record of IPv4 or IPv6.
fn address_of(record: &abi::Backend) -> Address {
    let bytes = record.address;
    let ip = if record.family == 4 {
        IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
    } else {
        IpAddr::V6(Ipv6Addr::from(bytes))
    };
    SocketAddr::new(ip, u16::from_be_bytes(record.port)).into()
}
