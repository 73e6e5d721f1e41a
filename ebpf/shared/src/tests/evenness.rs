//! Every living backend is found, and none more often than another.

use std::collections::HashSet;
use std::vec;
use std::vec::Vec;

use sickbay_core::maglev::{self, Member};

use crate::abi::{Backend, BackendRef, HASH_BY_FLOW, HASH_BY_SOURCE, Service, Slot};
use crate::hash::remix;
use crate::model::ModelTables;
use crate::packet::{Flow, PROTOCOL_TCP};
use crate::search::{kth_bit, kth_by_counts, slot};
use crate::select::choose;
use crate::steer::{self, Path};
use crate::tables::Bitmap;

/// A pool of `count` backends whose table has ten slots of each, and its service.
fn pool_of(count: u32) -> (ModelTables, Service) {
    let words = count.div_ceil(64).next_power_of_two();
    let mut tables = ModelTables::new(words);
    let pool = tables.add_pool(0, words);
    for index in 0..count {
        let backend = tables.add_backend(index, pool, 1);
        for _ in 0..10 {
            tables.slots.push(Slot::settled(backend));
        }
    }
    let slot_count = tables.slots.len() as u32;
    let service = Service { pool, slot_count, ..Service::default() };
    tables.services.push(service);
    (tables, service)
}

/// How many of `flows` new flows each backend gets.
fn share(tables: &ModelTables, service: &Service, flows: u64) -> Vec<u32> {
    let mut shares = vec![0; tables.backends.len()];
    for flow in 0..flows {
        let hash = remix(flow, 1);
        let slot = tables.slots[(flow % u64::from(service.slot_count)) as usize];
        let (backend, _) = choose(tables, 0, slot, hash, 0);
        assert_ne!(backend, BackendRef::NONE);
        shares[backend.index() as usize] += 1;
    }
    shares
}

#[test]
fn last_two_of_a_thousand_share_evenly() {
    let (mut tables, service) = pool_of(1000);
    (0..1000).filter(|index| ![123, 877].contains(index)).for_each(|index| {
        tables.put_health(index, false);
    });
    let shares = share(&tables, &service, 20_000);
    // 10,000 each; five standard deviations are 354.
    assert!((9_646..=10_354).contains(&shares[123]), "{}", shares[123]);
    assert_eq!(shares[123] + shares[877], 20_000);
}

#[test]
fn half_of_a_pool_takes_the_load_of_the_other_half_evenly() {
    let (mut tables, service) = pool_of(64);
    (0..64).step_by(2).for_each(|index| tables.put_health(index, false));
    let shares = share(&tables, &service, 64_000);
    for index in (1..64).step_by(2) {
        // 2,000 each; five standard deviations are 220.
        assert!((1_780..=2_220).contains(&shares[index]), "{index}: {}", shares[index]);
    }
}

/// A hundred backends in a Maglev table of 65,537 slots, half of them dead: design.md's measure.
#[test]
fn half_dead_the_living_carry_at_most_1_3_of_their_mean() {
    let members: Vec<Member> =
        (0..100).map(|member| Member { identity: remix(member, 7), weight: 1 }).collect();
    let mut tables = ModelTables::new(2);
    let pool = tables.add_pool(0, 2);
    let backends: Vec<BackendRef> =
        (0..100).map(|index| tables.add_backend(index, pool, 1)).collect();
    let table = maglev::fill(&members, 1, 65_537);
    tables.slots = table.iter().map(|at| Slot::settled(backends[*at as usize])).collect();
    tables.services.push(Service { pool, slot_count: 65_537, ..Service::default() });
    for seed in 0..5 {
        // Fifty at random: those with the lowest draws.
        let mut order: Vec<u32> = (0..100).collect();
        order.sort_by_key(|index| remix(u64::from(*index), seed));
        for (place, index) in (0..).zip(&order) {
            tables.put_health(*index, 50 <= place);
        }
        let shares = share_by_hash(&tables, 500_000);
        assert!(order[..50].iter().all(|dead| shares[*dead as usize] == 0));
        let (least, most) = order[50..].iter().fold((u32::MAX, 0), |(least, most), index| {
            let share = shares[*index as usize];
            (least.min(share), most.max(share))
        });
        // 10,000 each on average.
        assert!(most <= 13_000, "seed {seed}: {least} to {most}");
        assert!(7_000 <= least, "seed {seed}: {least} to {most}");
    }
}

/// How many of `flows` new flows each backend gets, each from the slot of its hash.
fn share_by_hash(tables: &ModelTables, flows: u64) -> Vec<u32> {
    let mut shares = vec![0; tables.backends.len()];
    for flow in 0..flows {
        let hash = remix(flow, 99);
        let slot = slot(tables, 0, tables.services[0].slot_count, hash).expect("a slot");
        let (backend, _) = choose(tables, 0, slot, hash, 0);
        shares[backend.index() as usize] += 1;
    }
    shares
}

#[test]
fn backup_pool_shares_the_flows_of_few_slots_evenly() {
    let (mut tables, _) = pool_of(64);
    // The backup pool is the same pool's other half; the slots of the first backend alone are
    // diverted, whose hashes lie side by side.
    let spare = tables.add_pool(1, 1);
    tables.takes_new.push(0);
    tables.serves_old.push(0);
    tables.allowed.push(0);
    tables.backends.resize(128, Backend::default());
    let backup_slot_first = tables.slots.len() as u32;
    for index in 64..74 {
        let backend = tables.add_backend(index, spare, 1);
        (0..10).for_each(|_| tables.slots.push(Slot::settled(backend)));
    }
    let service = &mut tables.services[0];
    (service.backup_pool, service.backup_slot_count) = (spare, 100);
    service.backup_slot_first = backup_slot_first;
    (0..64).for_each(|index| tables.put_health(index, false));
    let mut shares = vec![0; 128];
    for flow in 0..10_000 {
        // The first sixty-fourth of all hashes.
        let hash = remix(flow, 1) >> 6;
        let (backend, path) = choose(&tables, 0, tables.slots[0], hash, 0);
        assert_eq!(path, Path::Backup);
        shares[backend.index() as usize] += 1;
    }
    for share in &shares[64..74] {
        // 1,000 each; five standard deviations are 150.
        assert!((850..=1_150).contains(share), "{shares:?}");
    }
}

#[test]
fn hash_by_source_keeps_a_client_on_one_backend() {
    let (tables, service) = pool_of(64);
    let backends_of = |hash_by: u8| {
        let service = Service { hash_by, ..service };
        let backend_of = |port: u32| {
            let flow = Flow::v4(0x0763_33c6, 0x0102_00c0, port, PROTOCOL_TCP);
            let hash = steer::hash(&service, &flow);
            let slot = slot(&tables, 0, service.slot_count, hash).expect("a slot");
            choose(&tables, 0, slot, hash, 0).0.index()
        };
        (0..1_000).map(backend_of).collect::<HashSet<_>>().len()
    };
    assert_eq!(backends_of(HASH_BY_SOURCE), 1);
    assert_eq!(backends_of(HASH_BY_FLOW), 64);
}

#[test]
fn largest_pool_finds_its_last_three_through_the_groups() {
    let (mut tables, service) = pool_of(65_536);
    let living = [5, 40_000, 65_535];
    (0..65_536).filter(|index| !living.contains(index)).for_each(|index| {
        tables.put_health(index, false);
    });
    let shares = share(&tables, &service, 3_000);
    for index in living {
        // 1,000 each; five standard deviations are 129.
        let share = shares[index as usize];
        assert!((871..=1_129).contains(&share), "{index}: {share}");
    }
}

#[test]
fn fail_open_shares_evenly_among_the_allowed() {
    let (mut tables, service) = pool_of(5_000);
    (0..5_000).for_each(|index| tables.put_health(index, false));
    let allowed = [0, 63, 64, 4_999];
    (0..5_000).filter(|index| !allowed.contains(index)).for_each(|index| {
        tables.put_bit(Bitmap::Allowed, index, false);
    });
    let shares = share(&tables, &service, 4_000);
    for index in allowed {
        // 1,000 each; five standard deviations are 137.
        let share = shares[index as usize];
        assert!((863..=1_137).contains(&share), "{index}: {share}");
    }
}

#[test]
fn count_ahead_of_the_bits_takes_the_last_bit_seen() {
    let (mut tables, _) = pool_of(4_096);
    (0..4_096).filter(|index| ![3, 9].contains(index)).for_each(|index| {
        tables.put_health(index, false);
    });
    assert_eq!(kth_by_counts(&tables, 0, 64, 0), 3);
    assert_eq!(kth_by_counts(&tables, 0, 64, 1), 9);
    // The agent has cleared the bit of backend 9 and not yet lowered the count of its group.
    tables.takes_new[0] = 1 << 3;
    assert_eq!(kth_by_counts(&tables, 0, 64, 1), 3);
}

#[test]
fn group_emptied_under_the_search_is_made_good_by_a_scan() {
    let (mut tables, _) = pool_of(4_096);
    (0..4_096).for_each(|index| tables.put_health(index, false));
    tables.put_health(4_000, true);
    // Counts of the first group that its bits no longer bear out.
    tables.group_counts[0] = 1_000_000;
    tables.pool_counts[0] = 1_000_000;
    let sick = Slot::settled(BackendRef::new(7, 1));
    for flow in 0..100 {
        let (backend, path) = choose(&tables, 0, sick, remix(flow, 1), 0);
        assert_eq!(backend, BackendRef::new(4_000, 1));
        assert!(matches!(path, Path::Rehashed | Path::Searched), "{path:?}");
    }
}

#[test]
fn kth_bit_is_the_kth() {
    let words = [1, 1 << 63, u64::MAX, 0x8000_0001_0000_8000, 0x5555_aaaa_0ff0_1234];
    for word in words.into_iter().chain((0..1_000).map(|seed| remix(seed, 3))) {
        let set: Vec<u32> = (0..64).filter(|bit| word >> bit & 1 == 1).collect();
        for (k, bit) in set.iter().enumerate() {
            assert_eq!(kth_bit(word, k as u32), *bit, "{word:#x}, {k}");
        }
    }
}
