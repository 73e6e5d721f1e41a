//! Two CPUs that see packets of one flow in the same instant: what each of them does is done once.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use sickbay_shared::abi::{BackendRef, MODE_DSR, Service, ServiceCounters, ServiceKey, Slot};
use sickbay_shared::model::ModelTables;
use sickbay_shared::model::frame::{ACK, Frame, SYN};
use sickbay_shared::packet::PROTOCOL_TCP;
use sickbay_shared::tables::Store;
use sickbay_tests::steering::{Entrance, Runner, Steering};

/// Below the room for SYNs, so that few of them give way to others.
const FLOWS: u32 = 20_000;

/// Two backends, and a service of one slot: the first one's, who is sick. Flows have entries.
fn tables(family: u8) -> ModelTables {
    let mut tables = ModelTables::new(1);
    let pool = tables.add_pool(0, 1);
    tables.add_backend(0, pool, 1);
    tables.add_backend(1, pool, 1);
    tables.put_health(0, false);
    tables.slots.push(Slot::settled(BackendRef::new(0, 1)));
    tables.header.embryonic_inserts_per_second = u32::MAX;
    tables.header.flow_inserts_per_second = u32::MAX;
    let service = Service { pool, slot_count: 1, mode: MODE_DSR, ..Service::default() };
    let address = octets(vip(family));
    let key = ServiceKey { address, port: [0, 80], protocol: PROTOCOL_TCP, family };
    tables.put_service(key, service);
    tables
}

fn vip(family: u8) -> IpAddr {
    match family {
        4 => IpAddr::from([192, 0, 2, 1]),
        _ => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
    }
}

fn octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => {
            let mut octets = [0; 16];
            octets[..4].copy_from_slice(&address.octets());
            octets
        }
        IpAddr::V6(address) => address.octets(),
    }
}

/// A packet of a client's only flow.
fn packet(family: u8, client: u32, flags: u8) -> Vec<u8> {
    let [_, high, middle, low] = client.to_be_bytes();
    let source = match family {
        4 => IpAddr::from([10, high, middle, low]),
        _ => IpAddr::from([
            0x2001,
            0xdb8,
            0,
            0,
            0,
            1,
            u16::from_be_bytes([high, middle]),
            low.into(),
        ]),
    };
    Frame::tcp((source, 40_000), (vip(family), 80), flags).bytes()
}

/// Runs each client's second packet on two CPUs at once.
fn second_packets_in_pairs(runner: Runner<'_>, entrance: Entrance, family: u8) {
    let cpus = sched_getaffinity(Pid::from_raw(0)).expect("this thread has a mask");
    let cpus: Vec<usize> =
        (0..CpuSet::count()).filter(|cpu| cpus.is_set(*cpu).unwrap_or(false)).take(2).collect();
    assert_eq!(cpus.len(), 2, "with one CPU there is no race");
    let arrived = AtomicU32::new(0);
    let run = |cpu: usize| {
        let mut mask = CpuSet::new();
        mask.set(cpu).expect("a CPU of this machine");
        sched_setaffinity(Pid::from_raw(0), &mask).expect("a thread may move");
        for client in 0..FLOWS {
            let packet = packet(family, client, ACK);
            arrived.fetch_add(1, Ordering::AcqRel);
            while arrived.load(Ordering::Acquire) < 2 * (client + 1) {
                std::hint::spin_loop();
            }
            let _ran = runner.run(entrance, &packet);
        }
    };
    thread::scope(|scope| {
        for cpu in cpus {
            scope.spawn(move || run(cpu));
        }
    });
}

fn entry_is_promoted_once(entrance: Entrance, family: u8) {
    let mut steering = Steering::load();
    steering.put(&tables(family));
    for client in 0..FLOWS {
        steering.run(entrance, &packet(family, client, SYN));
    }
    let written = steering.entries().len() as u64;
    second_packets_in_pairs(steering.runner(), entrance, family);

    let services = steering.counters().services;
    let counters: ServiceCounters = services.borrow().get(&0).copied().expect("one service");
    // The slot is a sick backend's: a packet that found no entry would have gone there.
    assert_eq!(counters.affinity_hit, 2 * written, "packets that went where their SYN had gone");
    assert_eq!(counters.promoted, written);
    let entries = steering.entries();
    let lasting = entries.keys().filter(|(store, _)| *store == Store::Flows).count();
    assert_eq!((lasting as u64, entries.len() as u64), (written, written));
}

#[test]
fn entry_is_promoted_once_and_missed_by_nobody_over_ipv4() {
    entry_is_promoted_once(Entrance::Xdp, 4);
}

#[test]
fn entry_is_promoted_once_and_missed_by_nobody_over_ipv6() {
    entry_is_promoted_once(Entrance::Xdp, 6);
}
