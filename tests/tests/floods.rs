//! What a flood may not buy in the kernel: lasting entries, more answers and records than the
//! budgets say.

use std::collections::HashMap;
use std::net::IpAddr;

use nix::sched::{CpuSet, sched_getcpu, sched_setaffinity};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use sickbay_shared::abi::{
    ALL_SICK_DROP, ALL_SICK_RESET, BackendRef, DROP_NONE_TAKES_NEW, MODE_DSR, Service,
    ServiceCounters, ServiceKey, Slot,
};
use sickbay_shared::embryonic::tag;
use sickbay_shared::limits::{EMBRYONIC_LINES, EMBRYONIC_WAYS};
use sickbay_shared::model::frame::{ACK, Frame, SYN};
use sickbay_shared::model::{Bytes, ModelTables};
use sickbay_shared::packet::{PROTOCOL_TCP, parse};
use sickbay_shared::tables::Store;
use sickbay_tests::steering::{Entrance, Steering};

/// One pool of two backends, and a service of one slot, the first one's, who is sick.
fn tables() -> ModelTables {
    let mut tables = ModelTables::new(1);
    let pool = tables.add_pool(0, 1);
    tables.add_backend(0, pool, 1);
    tables.add_backend(1, pool, 1);
    tables.put_health(0, false);
    tables.slots.push(Slot::settled(BackendRef::new(0, 1)));
    let mut address = [0; 16];
    address[..4].copy_from_slice(&[192, 0, 2, 1]);
    let key = ServiceKey { address, port: [0, 80], protocol: PROTOCOL_TCP, family: 4 };
    let service = Service {
        pool,
        slot_count: 1,
        mode: MODE_DSR,
        all_sick: ALL_SICK_DROP,
        ..Service::default()
    };
    tables.put_service(key, service);
    tables
}

fn packet(client: u32, flags: u8) -> Vec<u8> {
    let [_, high, middle, low] = client.to_be_bytes();
    let source = (IpAddr::from([10, high, middle, low]), 40_000);
    Frame::tcp(source, (IpAddr::from([192, 0, 2, 1]), 80), flags).bytes()
}

fn service_counters(steering: &Steering) -> ServiceCounters {
    steering.counters().services.borrow().get(&0).copied().unwrap_or_default()
}

/// Budgets are each CPU's own: all that follows runs on one.
fn stay_on_this_cpu() {
    let mut cpus = CpuSet::new();
    cpus.set(sched_getcpu().expect("every Linux says")).expect("a CPU of this machine");
    sched_setaffinity(Pid::from_raw(0), &cpus).expect("a thread may stay where it is");
}

fn second() -> i64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC_COARSE).expect("the coarse clock").tv_sec()
}

/// What `run` comes to within one second of the clock.
fn within_a_second<T>(mut run: impl FnMut() -> T) -> T {
    for _ in 0..100 {
        let before = second();
        let result = run();
        if second() == before {
            return result;
        }
    }
    panic!("a hundred tries took more than a second each");
}

#[test]
fn flood_of_syns_flushes_no_flow_that_has_begun() {
    let mut steering = Steering::load();
    steering.put(&tables());
    let flows = 1_000;
    for client in 0..flows {
        steering.run(Entrance::Xdp, &packet(client, SYN));
        steering.run(Entrance::Xdp, &packet(client, ACK));
    }
    assert_eq!(service_counters(&steering).promoted, u64::from(flows));
    // Twice as many as there is room for embryonic ones.
    let room = EMBRYONIC_LINES * EMBRYONIC_WAYS as u32;
    let end = flows + 2 * room;
    for client in flows..end {
        steering.run(Entrance::Xdp, &packet(client, SYN));
    }
    let entries = steering.entries();
    let lasting = |entries: &HashMap<(Store, _), _>| {
        entries.keys().filter(|(store, _)| *store == Store::Flows).count()
    };
    assert_eq!(lasting(&entries), flows as usize);
    assert!(entries.len() > (room * 9 / 10) as usize, "only {} entries", entries.len());
    // Whoever has come of late is there: chance gives few of the lines five of so many.
    let late = end - room / 8..end;
    let there = |client| {
        let frame = packet(client, SYN);
        let flow = parse(&Bytes::new(&frame)).expect("a frame without fault").flow;
        entries.contains_key(&(Store::Embryonic, tag(&flow, 0)))
    };
    let lost = late.clone().filter(|&client| !there(client)).count();
    assert!(lost * 1_000 < late.len(), "{lost} of {} of the last have no entry", late.len());
    let before = service_counters(&steering);
    for client in 0..flows {
        steering.run(Entrance::Xdp, &packet(client, ACK));
    }
    let after = service_counters(&steering);
    assert_eq!(after.affinity_hit - before.affinity_hit, u64::from(flows));
    assert_eq!(after.affinity_miss, 0);
}

#[test]
fn purse_of_three_pays_for_three_in_a_second() {
    stay_on_this_cpu();
    let mut steering = Steering::load();
    let mut tables = tables();
    tables.header.embryonic_inserts_per_second = 3;
    let inserted = within_a_second(|| {
        steering.put(&tables);
        (0..10).for_each(|client| drop(steering.run(Entrance::Xdp, &packet(client, SYN))));
        service_counters(&steering)
    });
    assert_eq!((inserted.entries_written, inserted.entries_refused), (3, 7));

    tables.put_health(1, false);
    tables.services[0].all_sick = ALL_SICK_RESET;
    tables.header.replies_per_second = 3;
    let answered = within_a_second(|| {
        steering.put(&tables);
        (0..10).for_each(|client| drop(steering.run(Entrance::Xdp, &packet(client, SYN))));
        service_counters(&steering)
    });
    assert_eq!((answered.reset, answered.reset_over_budget), (3, 7));

    tables.services[0].all_sick = ALL_SICK_DROP;
    tables.header.drop_records_per_second = 3;
    let records = within_a_second(|| {
        steering.put(&tables);
        (0..10).for_each(|client| drop(steering.run(Entrance::Xdp, &packet(client, SYN))));
        steering.drops()
    });
    let reasons: Vec<u8> = records.iter().map(|record| record.reason).collect();
    assert_eq!(reasons, [DROP_NONE_TAKES_NEW; 3]);
    assert_eq!(service_counters(&steering).all_sick_dropped, 10);
}

#[test]
fn record_without_room_is_counted_and_the_oldest_stay() {
    let mut steering = Steering::load();
    let mut tables = tables();
    tables.put_health(1, false);
    steering.put(&tables);
    for client in 0..100 {
        steering.run(Entrance::Xdp, &packet(client, SYN));
    }
    let records = steering.drops();
    // Of a ring of one page, a record takes its 64 bytes and a header of eight.
    assert_eq!(records.len(), 4096 / 72);
    let sources = records.iter().map(|record| record.source[3]);
    assert!(sources.eq(0..56), "the first that came");
    let lost = steering.counters().global.borrow().drop_records_lost;
    assert_eq!(lost, 44);
}
