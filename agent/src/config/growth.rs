//! Backends that a fleet gets while it runs: the same rules, one line for what is wrong.

use std::collections::HashSet;

use super::assembly::{Targets, inet_only, probed_at, requests_too_long};
use super::{WEIGHT_MAX, endpoint, name};
use crate::address::Address;
use crate::discovery::{self, file::Listed};
use crate::fleet::{Backend, Fleet, Judged, Origin};

/// A backend that is to become a member of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// Its name; the address as written when `None`.
    pub name: Option<String>,
    /// Where its flows go.
    pub address: Address,
    /// Its share relative to the others, 1 ..= 1000.
    pub weight: u32,
    /// Who names it.
    pub origin: Origin,
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
    let (name, origin) = (name.map(str::to_owned), Origin::Operator);
    Ok(Newcomer { name, address, weight, origin })
}

/// The newcomers of a list, one a line as in a pool's `backends_file`.
///
/// # Errors
///
/// The first line that names none: where, what and how to mend it, in one line.
pub fn newcomers(list: &str, file: &str) -> Result<Vec<Newcomer>, String> {
    let (listed, faults) = discovery::list::parse(list);
    if let Some(fault) = faults.first() {
        let (problem, mend) = &fault.fault;
        return Err(format!("{file}:{}:{}: {problem}: {mend}", fault.line, fault.column));
    }
    let newcomer = |listed: Listed| Newcomer {
        name: listed.name,
        address: listed.address,
        weight: listed.weight,
        origin: Origin::Operator,
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
    let mut addresses: HashSet<&Address> = members.clone().map(|it| &it.address).collect();
    let mut names: HashSet<String> = members.map(|it| it.name.clone()).collect();
    for newcomer in newcomers {
        let (address, name) = (&newcomer.address, newcomer.called());
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

/// Whether these can be probed and steered to as the others of a pool are.
///
/// # Errors
///
/// What hinders, in one line.
pub fn check_fits(fleet: &Fleet, pool: usize, newcomers: &[Newcomer]) -> Result<(), String> {
    if newcomers.is_empty() {
        return Ok(());
    }
    let settings = &fleet.pools[pool];
    let name = &settings.name;
    let Some(probes) = &settings.own_probes else {
        return Err(format!(
            "pool {name} names no probe, each of its backends has its own: write the new one into \
             the configuration and restart the agent, or add probe = \"NAME\" to the pool"
        ));
    };
    let is_unix = |it: &&Newcomer| it.address.inet().is_none();
    let Some(Newcomer { address, .. }) = newcomers.iter().find(is_unix) else {
        return Ok(());
    };
    if let Some(service) = fleet.services.iter().find(|service| service.pool == pool) {
        return Err(format!(
            "no flow can be steered to {address}, and service {} is over pool {name}: add it to a \
             pool that is only probed",
            service.name
        ));
    }
    let told = probes.iter().flat_map(|probe| inet_only(&fleet.probes[*probe].socket));
    if let Some(key) = settings.probe_port.map(|_| "probe_port").into_iter().chain(told).next() {
        return Err(format!(
            "{key} of pool {name} has no meaning for {address}: add it to a pool without"
        ));
    }
    Ok(())
}

/// The fleet with these in `pool`, each with the index that it was given, behind those it has. As
/// many fit as the pool reserves indices.
///
/// # Errors
///
/// Their requests are too long, in one line.
///
/// # Panics
///
/// When [`check_fits`] refuses them.
pub fn grow(fleet: &Fleet, pool: usize, newcomers: &[(u32, Newcomer)]) -> Result<Fleet, String> {
    let mut targets = Targets::resume(fleet);
    let settings = &fleet.pools[pool];
    let probes = settings.own_probes.as_ref().expect("check_fits asks for them");
    let mut joining = Vec::with_capacity(newcomers.len());
    for (index, newcomer) in newcomers {
        let probed = probed_at(&newcomer.address, settings.probe_port);
        let judged = |&probe: &usize| Judged { target: targets.of(&probed, probe, None), probe };
        joining.push(Backend {
            name: newcomer.called(),
            pool,
            address: newcomer.address.clone(),
            weight: newcomer.weight,
            judged: probes.iter().map(judged).collect(),
            index: *index,
            origin: newcomer.origin.clone(),
        });
    }
    if !targets.fit() {
        return Err(format!("{}: add fewer backends", requests_too_long()));
    }
    let list = targets.list;
    let mut grown = Fleet { targets: list, ..fleet.clone() };
    grown.insert(pool, joining);
    Ok(grown)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Overrides, parse};

    fn fleet(pool: &str) -> Fleet {
        let text = format!(
            "[probe.p]\n[probe.q]\nurl = \"/q\"\n[probe.bound]\nsource = \"127.0.0.1\"\n\
             [pool.a]\nbackends = [{{ address = \"192.0.2.1:80\", probe = \"q\" }}]\n{pool}"
        );
        parse(&text, Path::new("t.toml"), &Overrides::default()).expect("it is right").fleet
    }

    fn one(address: &str) -> Vec<Newcomer> {
        vec![newcomer(address, None, None).expect("an address")]
    }

    #[test]
    fn newcomer_is_judged_by_the_pools_probes_and_not_by_those_of_a_member() {
        let now = fleet("probe = [\"p\", \"q\"]\n");
        assert_eq!(check_fits(&now, 0, &one("192.0.2.2:80")), Ok(()));
        assert_eq!(now.pools[0].probes, [2], "the member's own");
        let grown = grow(&now, 0, &[(1, one("192.0.2.2:80").remove(0))]).expect("it fits");
        let [member, new] = &grown.backends[..] else { panic!("two backends") };
        assert_eq!(member.judged[..], [Judged { target: 0, probe: 2 }]);
        assert_eq!(
            new.judged[..],
            [Judged { target: 1, probe: 1 }, Judged { target: 2, probe: 2 }]
        );
        assert!(grown.targets[2].request.starts_with(b"GET /q HTTP/1.1\r\nHost: 192.0.2.2\r\n"));
        assert_eq!(grown.pools[0].probes, [2, 1]);
        let mut shrunk = grown;
        shrunk.remove(&[1]);
        assert_eq!(shrunk.pools[0].probes, [2]);
    }

    #[test]
    fn newcomer_of_a_pool_without_a_probe_has_nothing_to_be_probed() {
        let now = fleet("probe = \"none\"\n");
        assert_eq!(check_fits(&now, 0, &one("192.0.2.2:80")), Ok(()));
        let grown = grow(&now, 0, &[(1, one("192.0.2.2:80").remove(0))]).expect("it fits");
        assert_eq!((grown.backends[1].judged.len(), grown.targets.len()), (0, 1));
    }

    #[test]
    fn unix_socket_joins_a_pool_that_is_only_probed() {
        let now = fleet("probe = \"p\"\n");
        assert_eq!(check_fits(&now, 0, &one("unix:/run/a.sock")), Ok(()));
        let grown = grow(&now, 0, &[(1, one("unix:/run/a.sock").remove(0))]).expect("it fits");
        assert_eq!(grown.targets[1].address, grown.backends[1].address);
        assert!(grown.targets[1].request.starts_with(b"GET / HTTP/1.1\r\nHost: 0.0.0.0\r\n"));
    }

    #[test]
    fn newcomer_that_nothing_says_how_to_probe_or_steer_to_is_refused_in_one_line() {
        let service = "[service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"a\"\n";
        for (pool, address, what) in [
            ("", "192.0.2.2:80", "pool a names no probe, each of its backends has its own: "),
            (
                &format!("probe = \"p\"\n{service}"),
                "unix:@x",
                "no flow can be steered to unix:@x, and service s is over pool a: ",
            ),
            (
                "probe = \"p\"\nprobe_port = 81\n",
                "unix:@x",
                "probe_port of pool a has no meaning for unix:@x: ",
            ),
            ("probe = \"bound\"\n", "unix:@x", "source of pool a has no meaning for unix:@x: "),
        ] {
            let now = fleet(pool);
            let error = check_fits(&now, 0, &one(address)).expect_err(what);
            assert!(error.starts_with(what), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
