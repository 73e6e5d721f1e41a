//! A fleet that takes the place of the one before because a pool has outgrown its room, or because a
//! backend is called otherwise: what no change of members can do.

use sickbay_shared::limits::WORD_BACKENDS;

use super::assembly::place_words;
use super::difference::PoolDifference;
use super::growth::{Newcomer, grow};
use crate::discovery::Sourced;
use crate::fleet::Fleet;

/// What becomes of one pool.
#[derive(Debug)]
pub struct Regrowth {
    /// Who enters, leaves and is weighed.
    pub difference: PoolDifference,
    /// By index: those that are called otherwise.
    pub renamed: Vec<(u32, String)>,
    /// What its members come from, with what each said.
    pub sources: Vec<Sourced>,
}

/// The fleet with this change, every index given out anew, as if it had been configured so. Those
/// whose indices are in `gone` are no members, and are left out.
///
/// # Errors
///
/// There are too many backends, or their requests are too long, in one line.
///
/// # Panics
///
/// When [`check_fits`](super::check_fits) refuses those who enter.
pub fn regrow(fleet: &Fleet, gone: &[u32], regrowth: Regrowth) -> Result<Fleet, String> {
    let Regrowth { difference, renamed, sources } = regrowth;
    let PoolDifference { pool, entering, leaving, weighed } = difference;
    let mut rest = fleet.clone();
    rest.remove(&[gone, &leaving].concat());
    for backend in &mut rest.backends {
        if let Some((_, weight)) = weighed.iter().find(|(index, _)| *index == backend.index) {
            backend.weight = *weight;
        }
        if let Some((_, name)) = renamed.iter().find(|(index, _)| *index == backend.index) {
            backend.name.clone_from(name);
        }
    }
    // Their indices are given out below, with all others.
    let entering: Vec<(u32, Newcomer)> = entering.into_iter().map(|it| (0, it)).collect();
    let mut grown = grow(&rest, pool, &entering)?;
    grown.pools[pool].sources = sources;
    drop_unused_targets(&mut grown);
    let counts: Vec<usize> = grown.pools.iter().map(|pool| pool.backends.len()).collect();
    for (pool, (first_word, word_count)) in grown.pools.iter_mut().zip(place_words(&counts)?) {
        (pool.first_word, pool.word_count) = (first_word, word_count);
        let own = &mut grown.backends[pool.backends.clone()];
        for (index, backend) in (first_word * WORD_BACKENDS..).zip(own) {
            backend.index = index;
        }
    }
    Ok(grown)
}

/// Every target is probed, so those of backends that are gone must not be among them.
fn drop_unused_targets(fleet: &mut Fleet) {
    let mut places = vec![None; fleet.targets.len()];
    let mut kept = Vec::with_capacity(fleet.targets.len());
    for backend in &mut fleet.backends {
        for judged in &mut backend.judged {
            let place = *places[judged.target].get_or_insert_with(|| {
                kept.push(fleet.targets[judged.target].clone());
                kept.len() - 1
            });
            judged.target = place;
        }
    }
    fleet.targets = kept;
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Overrides, newcomer, parse};

    fn fleet(backends: &str) -> Fleet {
        let text = format!(
            "[probe.p]\n[pool.a]\nprobe = \"p\"\nbackends = [{backends}]\n\
             [pool.b]\nprobe = \"p\"\nbackends = [\"192.0.2.9:80\"]\n"
        );
        parse(&text, Path::new("t.toml"), &Overrides::default()).expect("it is right").fleet
    }

    #[test]
    fn regrown_fleet_stands_as_if_it_had_been_configured_so() {
        let now = fleet("\"192.0.2.1:80\", \"192.0.2.2:80\", \"192.0.2.3:80\"");
        let entering: Vec<Newcomer> = (1..=100)
            .map(|host| newcomer(&format!("198.51.100.{host}:80"), None, None).expect("sound"))
            .collect();
        let difference = PoolDifference {
            pool: 0,
            entering,
            leaving: vec![now.backends[0].index],
            weighed: vec![(now.backends[1].index, 7)],
        };
        let renamed = vec![(now.backends[1].index, "two".to_owned())];
        let gone = [now.backends[2].index];
        let grown = regrow(&now, &gone, Regrowth { difference, renamed, sources: Vec::new() })
            .expect("there is room");
        let mut lines =
            vec!["{ address = \"192.0.2.2:80\", name = \"two\", weight = 7 }".to_owned()];
        lines.extend((1..=100).map(|host| format!("\"198.51.100.{host}:80\"")));
        let wanted = fleet(&lines.join(", "));
        assert_eq!(grown.targets.len(), wanted.targets.len());
        let places = |fleet: &Fleet| -> Vec<(u32, u32)> {
            fleet.pools.iter().map(|pool| (pool.first_word, pool.word_count)).collect()
        };
        assert_eq!(places(&grown), places(&wanted));
        let shown = |fleet: &Fleet| -> Vec<(String, u32, u32, String)> {
            let target =
                |it: &crate::fleet::Backend| fleet.targets[it.judged[0].target].address.to_string();
            let all = fleet.backends.iter();
            all.map(|it| (it.name.clone(), it.weight, it.index, target(it))).collect()
        };
        assert_eq!(shown(&grown), shown(&wanted));
    }
}
