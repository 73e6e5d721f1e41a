//! Who stands where after a restart by another configuration.

use std::net::IpAddr;
use std::path::Path;

use sickbay_core::plan::Nanos;
use sickbay_shared::abi::{BackendRef, Header};
use sickbay_shared::limits::WORD_BACKENDS;

use super::*;
use crate::board::Board;
use crate::config::{Overrides, parse};
use crate::kernel::Sizes;
use crate::service_keys::address_bytes;

const SECOND: Nanos = 1_000_000_000;
const NOW: Nanos = 1000 * SECOND;
const SERVICE: &str = "[service.s]\naddress = \"198.51.100.1\"\nport = 80\npool = \"b\"\n";

/// Pool b with these backends, a service over it, and `rest`.
fn fleet(backends: &[u8], rest: &str) -> Fleet {
    let listed: Vec<String> =
        backends.iter().map(|last| format!("\"192.0.2.{last}:80\"")).collect();
    let text = format!(
        "[probe.p]\ninterval = \"1s\"\ntimeout = \"500ms\"\n[pool.b]\nprobe = \"p\"\ndrain = \"60s\"\nbackends = [{}]\n{SERVICE}{rest}",
        listed.join(", ")
    );
    parse(&text, Path::new("t.toml"), &Overrides::default()).expect("it is right").fleet
}

/// What an agent of this fleet leaves, each backend's index and generation as `seats` says.
fn left(fleet: &Fleet, seats: &[(u32, u32)]) -> Estate {
    let sizes = Sizes::of(fleet, 1);
    let board = Board::in_memory(&sizes).expect("memory");
    for (backend, &(index, generation)) in fleet.backends.iter().zip(seats) {
        let inet = backend.address.inet().expect("an IP address");
        let (address, family) = address_bytes(inet.ip());
        let record = abi::Backend {
            generation,
            last_generation: generation,
            address,
            family,
            port: inet.port().to_be_bytes(),
            identity: backend.address.identity(),
            ..abi::Backend::default()
        };
        board.write_backend(index, &record);
        board.set_serves_old(index, true);
    }
    for service in &fleet.services {
        let slot = Slot::settled(BackendRef::new(seats[0].0, seats[0].1));
        board.write_slots(service.slot_first, &vec![slot; service.slot_count as usize]);
    }
    let pools = fleet.pools.iter().map(|pool| abi::Pool {
        first_word: pool.first_word,
        word_count: pool.word_count,
        identity: name_identity(&pool.name),
        ..abi::Pool::default()
    });
    let services = (0..).zip(&fleet.services).map(|(index, service)| abi::Service {
        index,
        hash_seed: service.seed,
        pool: u32::try_from(service.pool).expect("few"),
        slot_first: service.slot_first,
        slot_count: service.slot_count,
        identity: name_identity(&service.name),
        ..abi::Service::default()
    });
    let header = Header {
        backend_count: sizes.backends,
        target_count: sizes.targets,
        generation: 7,
        ..Header::default()
    };
    Estate::new(Left { pools: pools.collect(), services: services.collect(), board, header })
}

fn seats(arrangement: &Arrangement, pool: usize) -> Vec<(u32, u32, Option<Nanos>)> {
    let seats = arrangement.seats[pool].iter();
    seats.map(|it| (it.backend.index(), it.backend.generation(), it.gone_ns)).collect()
}

#[test]
fn whoever_was_there_keeps_index_and_generation_whatever_the_order() {
    let estate = left(&fleet(&[1, 2, 3], ""), &[(5, 2), (1, 1), (9, 4)]);
    let arranged =
        estate.arrange(fleet(&[3, 1, 2], ""), &Remaining::default(), NOW).expect("there is room");
    assert_eq!(seats(&arranged, 0), [(9, 4, None), (5, 2, None), (1, 1, None)]);
    let indices: Vec<u32> = arranged.fleet.backends.iter().map(|it| it.index).collect();
    assert_eq!(indices, [9, 5, 1]);
    assert_eq!((arranged.found, arranged.notes), (vec![true], vec![]));
}

#[test]
fn who_is_not_wanted_leaves_and_who_is_new_gets_an_index_of_its_own() {
    let estate = left(&fleet(&[1, 2], ""), &[(0, 3), (1, 1)]);
    let arranged =
        estate.arrange(fleet(&[2, 7], ""), &Remaining::default(), NOW).expect("there is room");
    let gone = Some(NOW + 60 * SECOND);
    assert_eq!(seats(&arranged, 0), [(1, 1, None), (2, 1, None), (0, 3, gone)]);
    let soon = NOW + 5 * SECOND;
    let remaining =
        Remaining { gone: [(BackendRef::new(0, 3), soon)].into(), ..Remaining::default() };
    let again = estate.arrange(fleet(&[2, 7], ""), &remaining, NOW).expect("there is room");
    assert_eq!(seats(&again, 0)[2], (0, 3, Some(soon)), "it was leaving before");
    let leaving = &arranged.fleet.backends[2];
    let inet = leaving.address.inet().expect("an IP address");
    assert_eq!((inet.ip(), inet.port()), ("192.0.2.1".parse::<IpAddr>().expect("one"), 80));
    assert_eq!((leaving.index, leaving.judged.len()), (0, 1), "judged as its pool's are");
}

#[test]
fn index_of_another_use_goes_on_with_the_next_generation() {
    let before = fleet(&[1, 2], "");
    let estate = left(&before, &[(0, 3), (1, 1)]);
    // Another name is another pool, on the same words by chance.
    let text = fleet(&[1, 2], "[pool.c]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n");
    let renamed = Fleet { pools: vec![text.pools[1].clone(), text.pools[0].clone()], ..text };
    let mut only = Fleet { services: Vec::new(), ..renamed };
    only.pools.truncate(1);
    only.pools[0].backends = 0..1;
    only.backends.truncate(1);
    only.pools[0].first_word = 0;
    let arranged = estate.arrange(only, &Remaining::default(), NOW).expect("there is room");
    assert_eq!(arranged.found, [false]);
    let [(index, generation, None)] = seats(&arranged, 0)[..] else { panic!("one member") };
    assert_eq!(generation, estate.last_generation(index) + 1);
}

#[test]
fn pools_stand_where_they_stood_and_a_new_one_beside_them() {
    let before = fleet(&[1, 2], "");
    assert_eq!(before.pools[0].first_word, 0);
    let estate = left(&before, &[(0, 1), (1, 1)]);
    let many: Vec<String> = (1..=100).map(|last| format!("\"192.0.3.{last}:80\"")).collect();
    let rest = format!("[pool.a]\nprobe = \"p\"\nbackends = [{}]\n", many.join(", "));
    let arranged =
        estate.arrange(fleet(&[1, 2], &rest), &Remaining::default(), NOW).expect("there is room");
    let [a, b] = &arranged.fleet.pools[..] else { panic!("two pools") };
    assert_eq!((b.name.as_str(), b.first_word, b.word_count), ("b", 0, 1));
    assert_eq!((a.first_word, a.word_count), (4, 4));
    assert_eq!(arranged.found, [false, true]);
    assert_eq!(arranged.fleet.backends[0].index, 4 * WORD_BACKENDS);
}

#[test]
fn pool_that_has_outgrown_its_place_moves_and_that_is_said() {
    let estate = left(&fleet(&[1, 2], ""), &[(0, 1), (1, 1)]);
    let all: Vec<u8> = (1..=65).collect();
    let arranged =
        estate.arrange(fleet(&all, ""), &Remaining::default(), NOW).expect("there is room");
    assert_eq!(arranged.found, [false]);
    assert!(arranged.notes[0].starts_with("pool b has 65 backends, those that leave included"));
    // Nobody has the index and generation of somebody else's flows.
    assert!(
        seats(&arranged, 0)
            .iter()
            .all(|&(index, generation, _)| { generation == estate.last_generation(index) + 1 })
    );
}

#[test]
fn table_keeps_its_size_as_long_as_it_is_even_enough_or_another_is_asked_for() {
    let size = |backends: &[u8], rest: &str| {
        let estate = left(&fleet(&[1, 2], ""), &[(0, 1), (1, 1)]);
        let arranged = estate
            .arrange(fleet(backends, rest), &Remaining::default(), NOW)
            .expect("there is room");
        (arranged.fleet.services[0].slot_count, arranged.notes.len())
    };
    assert_eq!(size(&[1, 2], ""), (1021, 0));
    let twenty: Vec<u8> = (1..=20).collect();
    assert_eq!(fleet(&twenty, "").services[0].slot_count, 2039);
    assert_eq!(size(&twenty, ""), (1021, 0));
    let sixty: Vec<u8> = (1..=60).collect();
    assert_eq!(size(&sixty, ""), (8191, 1), "less than 20 slots each");
    assert_eq!(size(&[1, 2], "table_size = 2039\n"), (2039, 1));
}

#[test]
fn second_table_begins_where_the_first_one_that_was_kept_ends() {
    let second = "[service.t]\naddress = \"198.51.100.2\"\nport = 80\npool = \"b\"\n";
    let estate = left(&fleet(&[1, 2], second), &[(0, 1), (1, 1)]);
    let twenty: Vec<u8> = (1..=20).collect();
    let arranged =
        estate.arrange(fleet(&twenty, second), &Remaining::default(), NOW).expect("there is room");
    let tables: Vec<_> =
        arranged.fleet.services.iter().map(|it| (it.slot_first, it.slot_count)).collect();
    assert_eq!(tables, [(0, 1021), (1021, 1021)]);
    let service = &arranged.fleet.services[0];
    let slots = estate.slots("b", service.seed, 1021).expect("it was there");
    assert!(slots.iter().all(|slot| slot.current() == BackendRef::new(0, 1)));
    assert_eq!(estate.slots("b", service.seed, 2039), None);
    assert_eq!(estate.slots("a", service.seed, 1021), None);
}

#[test]
fn history_is_believed_when_it_is_whole_young_and_says_something() {
    let fleet = fleet(&[1], "");
    let record = TargetRecord {
        registers: [1, 0, 0, 0, 1, 0, 1, 1],
        identity: fleet.targets[0].identity.to_be_bytes(),
        last_result_ns: NOW - 29 * SECOND,
        last_us: 250,
        cause: 2,
        detail: 200,
        state: abi::STATE_HEALTHY,
        ..TargetRecord::default()
    };
    let past = |record: &TargetRecord| {
        let mut estate = left(&fleet, &[(0, 1)]);
        estate.left.board.write_target(0, record);
        estate = Estate::new(estate.left);
        estate.past(&fleet, 0, TargetIndex(3), NOW)
    };
    let taken = past(&record).expect("it is young");
    assert_eq!((taken.target, taken.registers), (TargetIndex(3), record.registers));
    assert_eq!((taken.verdict, taken.last_ns), (Verdict::Healthy, 250_000));
    assert_eq!(taken.outcome, Some(Outcome::Answered { status: 200, good: true }));
    // Ten intervals, at least 30 s: then it would be unknown.
    for unbelieved in [
        TargetRecord { last_result_ns: NOW - 30 * SECOND, ..record },
        TargetRecord { last_result_ns: 0, ..record },
        TargetRecord { state: abi::STATE_UNKNOWN, ..record },
        TargetRecord { identity: [9; 16], ..record },
    ] {
        assert_eq!(past(&unbelieved), None, "{unbelieved:?}");
    }
}

#[test]
fn history_is_young_by_the_pace_of_its_state() {
    let believed = |pace: &str, state: u8, age_s: Nanos| {
        let text = format!(
            "[probe.p]\ninterval = \"1s\"\ntimeout = \"500ms\"\n{pace}\n\
             [pool.b]\nprobe = \"p\"\nbackends = [\"192.0.2.1:80\"]\n"
        );
        let parsed = parse(&text, Path::new("t.toml"), &Overrides::default());
        let fleet = parsed.expect("it is right").fleet;
        let estate = left(&fleet, &[(0, 1)]);
        let record = TargetRecord {
            identity: fleet.targets[0].identity.to_be_bytes(),
            last_result_ns: NOW - age_s * SECOND,
            state,
            ..TargetRecord::default()
        };
        estate.left.board.write_target(0, &record);
        Estate::new(estate.left).past(&fleet, 0, TargetIndex(0), NOW).is_some()
    };
    let (sick, slow) = (abi::STATE_SICK, "interval_sick = \"1m\"");
    // Ten intervals: of the one at which sick ones are probed.
    assert!(!believed("", sick, 45) && believed(slow, sick, 45));
    assert!(believed(slow, sick, 599) && !believed(slow, sick, 600));
    assert!(believed(slow, abi::STATE_HEALTHY, 29) && !believed(slow, abi::STATE_HEALTHY, 30));
}
