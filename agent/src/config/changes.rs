//! What a configuration changes of the fleet that runs, in words: for `sickbay reload` and its
//! `--dry-run`.

use std::collections::{BTreeMap, HashMap};

use crate::address::Address;
use crate::fleet::{Attachment, Backend, Fleet, Pool, Program, Service, XdpMode};

/// What is changed, each by its name: `pool.backend` for members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Who enters.
    pub added: Vec<String>,
    /// Who leaves.
    pub removed: Vec<String>,
    /// Who gets another weight.
    pub weighed: Vec<String>,
    /// What is changed besides members and weights, a line each.
    pub changed: Vec<String>,
    /// What is followed otherwise, a line each: that touches nothing that runs.
    pub followed: Vec<String>,
}

/// What makes of the fleet `now` the fleet `wanted`. Backends whose indices are in `gone` are
/// leaving `now` already, and no members.
///
/// # Errors
///
/// What differs that no running agent can change, in one line.
pub fn changes(now: &Fleet, gone: &[u32], wanted: &Fleet) -> Result<Changes, String> {
    let directories = |fleet: &Fleet| {
        let Fleet { pin_directory, run_directory, state_directory, .. } = fleet.clone();
        (pin_directory, run_directory, state_directory)
    };
    if now.instance != wanted.instance || directories(now) != directories(wanted) {
        return Err(
            "instance and directories are not as they run: only a restart changes them".to_owned()
        );
    }
    if now.observe != wanted.observe {
        return Err(
            "metrics, history or log_format are not as they run: only a restart changes them"
                .to_owned(),
        );
    }
    if now.read_group != wanted.read_group {
        return Err("read_group is not as it runs: only a restart changes it".to_owned());
    }
    if now.privilege != wanted.privilege {
        return Err("privilege is not as it was given up: only a restart changes it".to_owned());
    }
    let mut told = Changes::default();
    tell_settings(now, wanted, &mut told.changed);
    tell_by_name("probe", &probes(now), &probes(wanted), &mut told.changed);
    tell_by_name("pool", &pools(now), &pools(wanted), &mut told.changed);
    tell_by_name("service", &services(now), &services(wanted), &mut told.changed);
    let attachments = |fleet: &Fleet| -> BTreeMap<String, String> {
        fleet.attachments.iter().map(|it| (it.interface.clone(), program(it))).collect()
    };
    tell_by_name("attachment", &attachments(now), &attachments(wanted), &mut told.changed);
    tell_members(now, gone, wanted, &mut told);
    tell_followed(now, wanted, &mut told.followed);
    Ok(told)
}

fn tell_settings(now: &Fleet, wanted: &Fleet, lines: &mut Vec<String>) {
    let of = |fleet: &Fleet| {
        [
            ("shards", fleet.shards.to_string()),
            ("in_flight", fleet.in_flight.to_string()),
            ("start_timeout", format!("{}ms", fleet.start_timeout_ns / 1_000_000)),
        ]
    };
    for ((name, before), (_, after)) in of(now).into_iter().zip(of(wanted)) {
        if before != after {
            lines.push(format!("agent.{name}: {before} to {after}"));
        }
    }
    if now.steering != wanted.steering {
        lines.push("steering changed".to_owned());
    }
    if now.guard != wanted.guard {
        lines.push("guard changed".to_owned());
    }
}

/// What is looked at, and how.
fn tell_followed(now: &Fleet, wanted: &Fleet, lines: &mut Vec<String>) {
    if now.watch_config != wanted.watch_config {
        lines.push(format!("agent.watch_config: {} to {}", now.watch_config, wanted.watch_config));
    }
    if now.dns != wanted.dns {
        lines.push("dns changed".to_owned());
    }
    let sources = |fleet: &Fleet| -> BTreeMap<String, String> {
        let of = |pool: &Pool| {
            let sources = pool.sources.iter().map(|sourced| sourced.source.to_string());
            (pool.name.clone(), sources.collect::<Vec<_>>().join(", "))
        };
        fleet.pools.iter().map(of).collect()
    };
    let (before, after) = (sources(now), sources(wanted));
    let stays = after.iter().filter(|(pool, _)| before.contains_key(*pool));
    for (pool, sources) in stays.filter(|(pool, sources)| before.get(*pool) != Some(sources)) {
        let sources = if sources.is_empty() { "no sources" } else { sources };
        lines.push(format!("pool {pool} now follows {sources}"));
    }
}

/// A line for each name that was added, removed, or stands for something else now.
fn tell_by_name(
    kind: &str,
    now: &BTreeMap<String, String>,
    wanted: &BTreeMap<String, String>,
    lines: &mut Vec<String>,
) {
    for (name, before) in now {
        match wanted.get(name) {
            None => lines.push(format!("{kind} {name} removed")),
            Some(after) if before != after => lines.push(format!("{kind} {name} changed")),
            Some(_) => {}
        }
    }
    let added = wanted.keys().filter(|name| !now.contains_key(*name));
    lines.extend(added.map(|name| format!("{kind} {name} added")));
}

/// Probes by name; those of a VCL's backends have names of their own too.
fn probes(fleet: &Fleet) -> BTreeMap<String, String> {
    fleet.probes.iter().map(|probe| (probe.name.clone(), format!("{probe:?}"))).collect()
}

/// Pools by name, their members and places aside.
fn pools(fleet: &Fleet) -> BTreeMap<String, String> {
    let settings = |pool: &Pool| {
        let named = |probe: &usize| fleet.probes[*probe].name.as_str();
        let own: Option<Vec<&str>> =
            pool.own_probes.as_ref().map(|probes| probes.iter().map(named).collect());
        let Pool { probe_port, drain_ns, panic, may_be_empty, .. } = pool;
        format!("{own:?} {probe_port:?} {drain_ns} {panic:?} {may_be_empty}")
    };
    fleet.pools.iter().map(|pool| (pool.name.clone(), settings(pool))).collect()
}

/// Services by name, with their pools' names; where their tables stand aside.
fn services(fleet: &Fleet) -> BTreeMap<String, String> {
    let settings = |service: &Service| {
        let pool = |pool: usize| fleet.pools[pool].name.clone();
        let backup = service.backup.map(|backup| pool(backup.pool));
        let bare = Service {
            pool: 0,
            backup: None,
            slot_first: 0,
            slot_count: if service.sized { service.slot_count } else { 0 },
            ..service.clone()
        };
        format!("{} {backup:?} {bare:?}", pool(service.pool))
    };
    fleet.services.iter().map(|service| (service.name.clone(), settings(service))).collect()
}

fn program(attachment: &Attachment) -> String {
    match attachment.program {
        Program::Xdp(XdpMode::Auto) => "xdp".to_owned(),
        other => format!("{other:?}"),
    }
}

/// Who enters, leaves and is weighed; of a backend that stays, whether it is probed otherwise.
fn tell_members(now: &Fleet, gone: &[u32], wanted: &Fleet, told: &mut Changes) {
    type Key<'a> = (&'a str, &'a Address);
    fn members<'a>(
        fleet: &'a Fleet,
        counts: impl Fn(&Backend) -> bool,
    ) -> Vec<(Key<'a>, &'a Backend)> {
        let members = fleet.backends.iter().filter(|backend| counts(backend));
        members.map(|it| ((fleet.pools[it.pool].name.as_str(), &it.address), it)).collect()
    }
    let before = members(now, |backend| !gone.contains(&backend.index));
    let after = members(wanted, |_| true);
    let full_name = |(pool, _): Key<'_>, backend: &Backend| format!("{pool}.{}", backend.name);
    let known: HashMap<Key<'_>, &Backend> = before.iter().copied().collect();
    let stays: HashMap<Key<'_>, &Backend> = after.iter().copied().collect();
    for (key, backend) in &after {
        let Some(member) = known.get(key) else {
            told.added.push(full_name(*key, backend));
            continue;
        };
        if member.weight != backend.weight {
            told.weighed.push(full_name(*key, backend));
        }
        if member.name != backend.name {
            let (old, new) = (full_name(*key, member), full_name(*key, backend));
            told.changed.push(format!("backend {old} is called {new}"));
        }
        if probed(now, member) != probed(wanted, backend) {
            told.changed.push(format!("backend {} is probed otherwise", full_name(*key, backend)));
        }
    }
    let leaves = before.iter().filter(|(key, _)| !stays.contains_key(key));
    told.removed.extend(leaves.map(|(key, backend)| full_name(*key, backend)));
}

/// What is probed of a backend: by which probes, where, with which request.
fn probed<'a>(fleet: &'a Fleet, backend: &Backend) -> Vec<(&'a str, &'a Address, &'a [u8])> {
    let judged = backend.judged.iter().map(|judged| {
        let target = &fleet.targets[judged.target];
        let probe = fleet.probes[judged.probe].name.as_str();
        (probe, &target.address, target.request.as_slice())
    });
    judged.collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::{Overrides, parse};

    fn fleet(text: &str) -> Fleet {
        parse(text, Path::new("t.toml"), &Overrides::default()).expect("it is right").fleet
    }

    const BASE: &str = "[probe.p]\ninterval = \"2s\"\n[pool.a]\nprobe = \"p\"\n\
                        backends = [\"192.0.2.1:80\", { address = \"192.0.2.2:80\", name = \"two\" }]\n";
    const SERVICE: &str = "[service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"a\"\n";

    fn told(now: &str, wanted: &str) -> Changes {
        changes(&fleet(now), &[], &fleet(wanted)).expect("it can be changed")
    }

    #[test]
    fn same_configuration_changes_nothing() {
        assert_eq!(told(BASE, BASE), Changes::default());
        let more = format!("{BASE}[pool.A]\nprobe = \"p\"\nbackends = [\"192.0.2.9:80\"]\n");
        let of = |text: &str| told(text, &format!("{text}{SERVICE}")).changed;
        assert_eq!(of(BASE), ["service s added"]);
        assert_eq!(of(&more), ["service s added"], "wherever its pool stands");
    }

    #[test]
    fn each_change_is_told_by_name() {
        let lists =
            |changed: &[&str]| changed.iter().map(|it| (*it).to_owned()).collect::<Vec<String>>();
        for (wanted, changed) in [
            (BASE.replace("2s", "3s"), lists(&["probe p changed"])),
            (BASE.replace("[pool.a]\n", "[pool.a]\ndrain = \"9s\"\n"), lists(&["pool a changed"])),
            (BASE.replace("pool.a", "pool.b"), lists(&["pool a removed", "pool b added"])),
            (BASE.replace("\"two\"", "\"second\""), lists(&["backend a.two is called a.second"])),
            (
                BASE.replace("name = \"two\"", "name = \"two\", probe_address = \"192.0.2.2:81\""),
                lists(&["backend a.two is probed otherwise"]),
            ),
            (format!("[agent]\nshards = 3\n{BASE}"), lists(&["agent.shards: 0 to 3"])),
            (format!("{BASE}[[attach]]\ninterface = \"lo\"\n"), lists(&["attachment lo added"])),
        ] {
            assert_eq!(told(BASE, &wanted).changed, changed, "{wanted}");
        }
    }

    #[test]
    fn members_are_told_by_full_name() {
        let wanted = BASE
            .replace("\"192.0.2.1:80\", ", "\"192.0.2.3:80\", ")
            .replace("name = \"two\"", "name = \"two\", weight = 4");
        let told = told(BASE, &wanted);
        assert_eq!(told.added, ["a.192.0.2.3:80"]);
        assert_eq!(told.removed, ["a.192.0.2.1:80"]);
        assert_eq!(told.weighed, ["a.two"]);
        assert_eq!(told.changed, [] as [&str; 0]);
    }

    #[test]
    fn what_the_control_plane_has_at_its_start_is_for_a_restart() {
        for (line, what) in [
            ("run_directory = \"/tmp/x\"", "instance and directories are not as they run"),
            ("metrics = \"127.0.0.1:9990\"", "metrics, history or log_format are not"),
            ("history_bytes = 2097152", "metrics, history or log_format are not"),
            ("read_group = \"sickbay\"", "read_group is not as it runs"),
            ("[privilege]\nseccomp = false", "privilege is not as it was given up"),
        ] {
            let other = format!("[agent]\n{line}\n{BASE}");
            let error = changes(&fleet(BASE), &[], &fleet(&other)).expect_err("a restart's");
            assert!(error.starts_with(what), "{error}");
        }
    }
}
