//! Every living backend is found, and none more often than another.

use std::vec;
use std::vec::Vec;

use crate::abi::{BackendRef, Service, Slot};
use crate::hash::remix;
use crate::model::ModelTables;
use crate::search::{kth_bit, kth_by_counts};
use crate::select::choose;
use crate::steer::Path;
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
