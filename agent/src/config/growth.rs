//! Backends that a fleet gets while it runs: the same rules, one line for what is wrong.

use std::collections::HashSet;
use std::net::SocketAddr;

use super::assembly::{Targets, probed_at};
use super::backend_list::{self, WEIGHT_MAX};
use super::{endpoint, name};
use crate::fleet::{Backend, Fleet};

/// A backend that is to become a member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// Its name; the address as written when `None`.
    pub name: Option<String>,
    /// Where its flows go.
    pub address: SocketAddr,
    /// Its share relative to the others, 1 ..= 1000.
    pub weight: u32,
}

impl Newcomer {
    /// What it is called.
    #[must_use]
    pub fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }
}

/// A newcomer from what an operator wrote.
///
/// # Errors
///
/// What is wrong, and how to mend it, in one line.
pub fn newcomer(
    address: &str,
    name: Option<&str>,
    weight: Option<u32>,
) -> Result<Newcomer, String> {
    let line = |(problem, mend): (String, String)| format!("{problem}: {mend}");
    let address = endpoint::endpoint(address).map_err(line)?;
    if let Some(fault) = name.and_then(name::backend_fault) {
        return Err(format!(
            "{fault}: name it with 1 to 64 letters, digits, \"-\", \"_\", \".\", \":\""
        ));
    }
    let weight = weight.unwrap_or(1);
    if !(1..=WEIGHT_MAX).contains(&i64::from(weight)) {
        return Err(format!("weight {weight} is out of range: write 1 to {WEIGHT_MAX}"));
    }
    Ok(Newcomer { name: name.map(str::to_owned), address, weight })
}

/// The newcomers of a list, one a line as in a pool's `backends_file`.
///
/// # Errors
///
/// The first line that names none: where, what and how to mend it, in one line.
pub fn newcomers(list: &str, file: &str) -> Result<Vec<Newcomer>, String> {
    let (listed, faults) = backend_list::parse(list);
    if let Some(fault) = faults.first() {
        let (problem, mend) = &fault.fault;
        return Err(format!("{file}:{}:{}: {problem}: {mend}", fault.line, fault.column));
    }
    let newcomer = |listed: backend_list::Listed| Newcomer {
        name: listed.name,
        address: listed.address,
        weight: listed.weight,
    };
    Ok(listed.into_iter().map(newcomer).collect())
}

/// Whether these can join a pool that has `members`: whether one clashes with a member by address
/// or name, or with another of them.
///
/// # Errors
///
/// Which one clashes, in one line.
pub fn check_apart<'a>(
    pool: &str,
    members: impl Iterator<Item = &'a Backend> + Clone,
    newcomers: &[Newcomer],
) -> Result<(), String> {
    let mut addresses: HashSet<SocketAddr> = members.clone().map(|it| it.address).collect();
    let mut names: HashSet<String> = members.map(|it| it.name.clone()).collect();
    for newcomer in newcomers {
        let (address, name) = (newcomer.address, newcomer.called());
        if !addresses.insert(address) {
            return Err(format!("backend {address} is in pool {pool} already"));
        }
        if !names.insert(name.clone()) {
            return Err(format!(
                "backend name {name} is taken in pool {pool}: give --name another"
            ));
        }
    }
    Ok(())
}

/// The fleet with these in `pool`, each with the index that it was given, behind those it has. As
/// many fit as the pool reserves indices.
#[must_use]
pub fn grow(fleet: &Fleet, pool: usize, newcomers: &[(u32, Newcomer)]) -> Fleet {
    let mut targets = Targets::resume(fleet);
    let settings = &fleet.pools[pool];
    let mut joining = Vec::with_capacity(newcomers.len());
    for (index, newcomer) in newcomers {
        let probed = probed_at(newcomer.address, settings.probe_port);
        let more = settings.more_probes.iter();
        joining.push(Backend {
            name: newcomer.called(),
            pool,
            address: newcomer.address,
            weight: newcomer.weight,
            target: targets.of(probed, settings.probe, None),
            more_targets: more.map(|probe| targets.of(probed, *probe, None)).collect(),
            index: *index,
        });
    }
    let list = targets.list;
    let mut grown = Fleet { targets: list, ..fleet.clone() };
    grown.insert(pool, joining);
    grown
}
