//! From the fleet that runs to the one that a configuration wants: who enters, leaves and is
//! weighed. What else differs cannot be changed while the agent runs.

use std::collections::{HashMap, HashSet};

use super::growth::{Newcomer, check_fits, grow};
use crate::address::Address;
use crate::fleet::{Backend, Fleet, Pool, Service};

/// What becomes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolDifference {
    /// Index into [`Fleet::pools`].
    pub pool: usize,
    /// Who enters.
    pub entering: Vec<Newcomer>,
    /// The indices of those who leave.
    pub leaving: Vec<u32>,
    /// The indices of those who get another weight, with it.
    pub weighed: Vec<(u32, u32)>,
}

/// What makes of the fleet `now` the fleet `wanted`: the pools of which anything is to change.
/// Backends whose indices are in `gone` are leaving `now` already, and no members.
///
/// # Errors
///
/// What differs that only a restart can change, in one line.
pub fn difference(
    now: &Fleet,
    gone: &[u32],
    wanted: &Fleet,
) -> Result<Vec<PoolDifference>, String> {
    if let Some(what) = other_than_members(now, wanted) {
        return Err(format!(
            "{what} not as they run: only backends and their weights can be changed while the agent \
             runs; restart it for the rest"
        ));
    }
    let mut differences = Vec::new();
    for (pool, (ours, theirs)) in now.pools.iter().zip(&wanted.pools).enumerate() {
        let members: HashMap<&Address, &Backend> = now.backends[ours.backends.clone()]
            .iter()
            .filter(|backend| !gone.contains(&backend.index))
            .map(|backend| (&backend.address, backend))
            .collect();
        let mut difference = PoolDifference { pool, ..PoolDifference::default() };
        let mut staying = HashSet::with_capacity(members.len());
        let mut entering = Vec::new();
        for backend in &wanted.backends[theirs.backends.clone()] {
            let Some(member) = members.get(&backend.address) else {
                entering.push(backend);
                continue;
            };
            if member.name != backend.name {
                let (pool, old, new) = (&ours.name, &member.name, &backend.name);
                return Err(format!(
                    "backend {pool}.{old} is called {new}: names can only be changed by a restart, \
                     or by removing the backend first"
                ));
            }
            check_probed(now, member, wanted, backend, &ours.name)?;
            if member.weight != backend.weight {
                difference.weighed.push((member.index, backend.weight));
            }
            staying.insert(&backend.address);
        }
        let leaves = |backend: &&&Backend| !staying.contains(&backend.address);
        difference.leaving = members.values().filter(leaves).map(|it| it.index).collect();
        difference.leaving.sort_unstable();
        difference.entering = entering.iter().map(|backend| newcomer(backend)).collect();
        check_entering(now, pool, &difference.entering, wanted, &entering)?;
        if difference != (PoolDifference { pool, ..PoolDifference::default() }) {
            differences.push(difference);
        }
    }
    Ok(differences)
}

/// What of the rest differs.
fn other_than_members(now: &Fleet, wanted: &Fleet) -> Option<&'static str> {
    let place = |fleet: &Fleet| {
        (fleet.instance.clone(), fleet.pin_directory.clone(), fleet.run_directory.clone())
    };
    let threads = |fleet: &Fleet| (fleet.shards, fleet.in_flight);
    // Where a pool and a table stand follows from how many members there were at the start, and
    // which probes are used from who they are.
    let pool = |pool: &Pool| {
        let probes = Vec::new();
        // What its sources are is followed, whether or not that changes who is in it.
        let sources = Vec::new();
        Pool { probes, sources, backends: 0..0, first_word: 0, word_count: 0, ..pool.clone() }
    };
    let pools = |fleet: &Fleet| fleet.pools.iter().map(pool).collect::<Vec<_>>();
    let service = |it: &Service| Service { slot_first: 0, slot_count: 0, ..it.clone() };
    let services = |fleet: &Fleet| fleet.services.iter().map(service).collect::<Vec<_>>();
    let told = now.observe == wanted.observe;
    if place(now) != place(wanted) || threads(now) != threads(wanted) || !told {
        Some("[agent]'s settings are")
    } else if now.probes != wanted.probes {
        Some("the probes are")
    } else if pools(now) != pools(wanted) {
        Some("the pools, their backends aside, are")
    } else if services(now) != services(wanted) {
        Some("the services are")
    } else if now.attachments != wanted.attachments {
        Some("the attachments are")
    } else {
        None
    }
}

/// A backend that stays is probed as it was.
fn check_probed(
    now: &Fleet,
    ours: &Backend,
    wanted: &Fleet,
    theirs: &Backend,
    pool: &str,
) -> Result<(), String> {
    fn probed<'a>(
        fleet: &'a Fleet,
        backend: &'a Backend,
    ) -> impl Iterator<Item = (usize, &'a Address, &'a [u8])> {
        backend.judged.iter().map(|judged| {
            let target = &fleet.targets[judged.target];
            (judged.probe, &target.address, target.request.as_slice())
        })
    }
    if probed(now, ours).eq(probed(wanted, theirs)) {
        return Ok(());
    }
    Err(format!(
        "backend {pool}.{} is to be probed at another address, by other probes, or by a request of \
         its own: that can only be set by a restart",
        theirs.name
    ))
}

/// Those who enter are probed as their pool's probes say, or they would be probed otherwise than
/// after a restart.
fn check_entering(
    now: &Fleet,
    pool: usize,
    newcomers: &[Newcomer],
    wanted: &Fleet,
    entering: &[&Backend],
) -> Result<(), String> {
    check_fits(now, pool, newcomers)?;
    if newcomers.is_empty() {
        return Ok(());
    }
    let mut rest = now.clone();
    let addresses: HashSet<&Address> = newcomers.iter().map(|it| &it.address).collect();
    let taken = |it: &&Backend| it.pool == pool && addresses.contains(&it.address);
    let again: Vec<u32> = rest.backends.iter().filter(taken).map(|it| it.index).collect();
    rest.remove(&again);
    let tried: Vec<(u32, Newcomer)> = newcomers.iter().cloned().map(|it| (0, it)).collect();
    let grown = grow(&rest, pool, &tried)?;
    let end = grown.pools[pool].backends.end;
    let made = &grown.backends[end - entering.len()..end];
    for (ours, theirs) in made.iter().zip(entering) {
        check_probed(&grown, ours, wanted, theirs, &now.pools[pool].name)?;
    }
    Ok(())
}

fn newcomer(backend: &Backend) -> Newcomer {
    let named = backend.name != backend.address.to_string();
    Newcomer {
        name: named.then(|| backend.name.clone()),
        address: backend.address.clone(),
        weight: backend.weight,
        origin: backend.origin.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Overrides, parse};
    use crate::fleet::Origin;

    fn fleet(probe: &str, backends: &str, rest: &str) -> Fleet {
        let text = format!(
            "[probe.p]\n{probe}\n[pool.a]\nprobe = \"p\"\nbackends = [{backends}]\n\
             [pool.b]\nprobe = \"p\"\nbackends = [\"192.0.2.9:80\"]\n{rest}"
        );
        parse(&text, Path::new("t.toml"), &Overrides::default()).expect("it is right").fleet
    }

    const TWO: &str = "\"192.0.2.1:80\", { address = \"192.0.2.2:80\", name = \"two\" }";

    fn newcomer(address: &str, weight: u32) -> Newcomer {
        let (address, origin) = (address.parse().expect("an address"), Origin::Configured);
        Newcomer { name: None, address, weight, origin }
    }

    #[test]
    fn same_configuration_differs_in_nothing() {
        assert_eq!(difference(&fleet("", TWO, ""), &[], &fleet("", TWO, "")), Ok(vec![]));
    }

    #[test]
    fn those_who_enter_leave_and_are_weighed_are_told_by_pool() {
        let wanted = "{ address = \"192.0.2.2:80\", name = \"two\", weight = 3 }, \"192.0.2.3:80\"";
        let change = PoolDifference {
            pool: 0,
            entering: vec![newcomer("192.0.2.3:80", 1)],
            leaving: vec![0],
            weighed: vec![(1, 3)],
        };
        let now = fleet("", TWO, "");
        assert_eq!(difference(&now, &[], &fleet("", wanted, "")), Ok(vec![change]));
    }

    #[test]
    fn last_one_with_a_probe_of_its_own_can_leave_and_nobody_enters_with_one() {
        let probes = "[probe.own]\nurl = \"/own\"\n";
        let own = "\"192.0.2.1:80\", { address = \"192.0.2.2:80\", probe = \"own\" }";
        let (both, first) = (fleet("", own, probes), fleet("", "\"192.0.2.1:80\"", probes));
        let leaves = PoolDifference { leaving: vec![1], ..PoolDifference::default() };
        assert_eq!(difference(&both, &[], &first), Ok(vec![leaves]));
        let what = "backend a.192.0.2.2:80 is to be probed at another address, by other probes";
        let error = difference(&first, &[], &both).expect_err("its pool's probe is another");
        assert!(error.starts_with(what), "{error}");
        let stays = fleet("", &own.replace("\"own\"", "[\"p\", \"own\"]"), probes);
        assert!(difference(&both, &[], &stays).expect_err("one more").starts_with(what));
    }

    #[test]
    fn one_that_is_leaving_enters_again_and_leaves_no_second_time() {
        let now = fleet("", TWO, "");
        let again = vec![newcomer("192.0.2.1:80", 1)];
        let change = PoolDifference { entering: again, ..PoolDifference::default() };
        assert_eq!(difference(&now, &[0], &now), Ok(vec![change]));
        let two = "{ address = \"192.0.2.2:80\", name = \"two\" }";
        assert_eq!(difference(&now, &[0], &fleet("", two, "")), Ok(vec![]));
    }

    #[test]
    fn what_only_a_restart_can_change_is_refused_in_one_line() {
        let service = "[service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"a\"\n";
        let named = "\"192.0.2.1:80\", { address = \"192.0.2.2:80\", name = \"second\" }";
        let elsewhere = "\"192.0.2.1:80\", { address = \"192.0.2.2:80\", name = \"two\", \
                         probe_address = \"192.0.2.2:81\" }";
        let enters = "\"192.0.2.1:80\", { address = \"192.0.2.2:80\", name = \"two\" }, \
                      { address = \"192.0.2.3:80\", probe_address = \"192.0.2.3:81\" }";
        let now = fleet("", TWO, "");
        for (wanted, what) in [
            (fleet("interval = \"9s\"", TWO, ""), "the probes are not as they run: only"),
            (fleet("", TWO, service), "the services are not as they run: only backends"),
            (fleet("", TWO, "[agent]\nin_flight = 7\n"), "[agent]'s settings are not"),
            (fleet("", TWO, "[[attach]]\ninterface = \"lo\"\n"), "the attachments are not"),
            (fleet("", named, ""), "backend a.two is called second: names can only"),
            (fleet("", elsewhere, ""), "backend a.two is to be probed at another address"),
            (fleet("", enters, ""), "backend a.192.0.2.3:80 is to be probed at another"),
        ] {
            let error = difference(&now, &[], &wanted).expect_err(what);
            assert!(error.starts_with(what), "{error}");
            assert_eq!(error.lines().count(), 1);
        }
    }
}
