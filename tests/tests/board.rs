//! The board against the kernel's maps: what is written by memory is read by the kernel.
#![expect(clippy::unwrap_used, reason = "the helpers of a test panic as the test does")]

use std::net::IpAddr;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use aya::maps::{Array, Map, MapData, PerCpuArray, PerCpuValues};
use sickbay::board::{Board, BoardError, NextHop};
use sickbay::kernel::memory::{map_bytes, one_map_bytes};
use sickbay::kernel::syscall::{look_up, pinned, possible_cpu_count};
use sickbay::kernel::{Counters, Datapath, Sizes, object};
use sickbay::neighbours::{Neighbours, Unresolved};
use sickbay_shared::abi::{
    ADDRESS_PREFIXES, Backend, BackendCounters, BackendRef, GlobalCounters, Header, PORT_PREFIXES,
    Pool, Service, ServiceCounters, ServiceKey, Slot, TargetRecord,
};
use sickbay_shared::pod::Pod;
use sickbay_tests::datapath::{Neighbour, PrivateHost, ip, small_sizes, wait_until};
use sickbay_tests::figures::show;

/// Reads `map[key]` by system call.
fn read<T: Pod>(host: &PrivateHost, map: &str, key: &[u8]) -> T {
    let map = pinned(&host.pins("main").join("maps").join(map)).unwrap();
    let mut bytes = vec![0; size_of::<T>()];
    look_up(map.as_fd(), key, &mut bytes).unwrap();
    T::from_bytes(&bytes).unwrap()
}

fn element<T: Pod>(host: &PrivateHost, map: &str, index: u32) -> T {
    read(host, map, &index.to_ne_bytes())
}

fn opened(host: &PrivateHost, map: &str) -> MapData {
    MapData::from_pin(host.pins("main").join("maps").join(map)).unwrap()
}

#[test]
fn what_is_written_by_memory_is_read_by_the_kernel() {
    let host = PrivateHost::new();
    let datapath = host.load().unwrap();
    let board = datapath.board().unwrap();

    board.set_takes_new(65, 1, true);
    board.set_takes_new(64, 1, true);
    board.set_takes_new(64, 1, false);
    board.set_serves_old(0, true);
    board.set_allowed(127, true);
    assert_eq!(element::<u64>(&host, "TAKES_NEW", 0), 0);
    assert_eq!(element::<u64>(&host, "TAKES_NEW", 1), 0b10);
    assert_eq!(element::<u64>(&host, "SERVES_OLD", 0), 1);
    assert_eq!(element::<u64>(&host, "ALLOWED", 1), 1 << 63);
    assert_eq!(element::<u64>(&host, "POOL_COUNTS", 0), 0);
    assert_eq!(element::<u64>(&host, "POOL_COUNTS", 1), 1);
    assert_eq!(element::<u32>(&host, "GROUP_COUNTS", 0), 1);

    let slot = Slot::settled(BackendRef::new(5, 1));
    board.write_slots(4095, &[slot]);
    assert_eq!(element::<Slot>(&host, "SLOTS", 4095), Slot(0x0010_0005_0010_0005));

    let backend = Backend { generation: 1, family: 4, pool: 1, ..Backend::default() };
    board.write_backend(3, &backend);
    let next_hop = NextHop { mac: [2, 0, 0, 0, 0, 3], source_mac: [2; 6], interface_index: 9 };
    board.set_next_hop(3, Some(next_hop));
    let read = element::<Backend>(&host, "BACKENDS", 3);
    assert_eq!((read.next_hop, read.source_mac), (0x0001_0300_0000_0002, 0x0202_0202_0202));
    assert_eq!((read.interface_index, read.generation, read.pool), (9, 1, 1));

    let record = TargetRecord { registers: [7; 8], state: 2, ..TargetRecord::default() };
    board.write_target(2, &record);
    let read = element::<TargetRecord>(&host, "TARGETS", 2);
    assert_eq!(read, TargetRecord { sequence: 2, ..record });
}

#[test]
fn small_counts_stand_where_the_kernel_looks_for_them() {
    let host = PrivateHost::new();
    let object = object().unwrap();
    let sizes = Sizes { backends: 3 * 2048, ..small_sizes() };
    let datapath = Datapath::load(object, &sizes, &host.pins("main"), &[]).unwrap();
    let board = datapath.board().unwrap();
    board.set_takes_new(2 * 2048, 0, true);
    board.set_takes_new(2048, 0, true);
    board.set_takes_new(2 * 2048 + 1, 0, true);
    let counts = [0, 1, 2].map(|group| element::<u32>(&host, "GROUP_COUNTS", group));
    assert_eq!(counts, [0, 1, 2]);
}

#[test]
fn what_the_kernel_writes_is_read_by_memory() {
    let host = PrivateHost::new();
    let datapath = host.load().unwrap();
    let board = datapath.board().unwrap();
    let mut words = Array::<_, u64>::try_from(Map::Array(opened(&host, "TAKES_NEW"))).unwrap();
    words.set(1, 1 << 3, 0).unwrap();
    assert!(board.takes_new(67) && !board.takes_new(3));
}

#[test]
fn header_and_heartbeat_are_where_readers_look() {
    let host = PrivateHost::new();
    let datapath = host.load().unwrap();
    let board = datapath.board().unwrap();
    let unwritten = Board::open(&host.pins("main")).unwrap().checked_header();
    assert!(matches!(unwritten, Err(BoardError::Magic { found: 0 })));
    board.write_header(&Header { shard_count: 2, ..Header::default() }).unwrap();
    board.beat(1);
    let header = element::<Header>(&host, "HEADER", 0);
    assert_eq!(header.magic.to_le_bytes(), *b"sickbay\0");
    assert_eq!((header.abi_version, header.shard_count), (0x0001_0001, 2));
    let other = Board::open(&host.pins("main")).unwrap();
    assert_eq!(other.checked_header().unwrap(), header);
    assert_eq!(other.last_beat_ns(0), 0);
    assert!(0 < other.last_beat_ns(1));
    let beats: [u64; 8] = {
        let map = pinned(&host.pins("main").join("maps/HEARTBEATS")).unwrap();
        let mut bytes = [0; 64];
        look_up(map.as_fd(), &1_u32.to_ne_bytes(), &mut bytes).unwrap();
        std::array::from_fn(|word| u64::from_ne_bytes(bytes[word * 8..][..8].try_into().unwrap()))
    };
    assert_eq!(beats, [other.last_beat_ns(1), 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn a_board_that_was_never_pinned_cannot_be_opened() {
    let host = PrivateHost::new();
    let error = Board::open(&host.pins("main")).unwrap_err().to_string();
    assert!(error.starts_with("the board's map HEADER: No such file"), "{error}");
}

#[test]
fn services_and_pools_are_found_by_their_keys() {
    let host = PrivateHost::new();
    let mut datapath = host.load().unwrap();
    let pool = Pool { first_word: 2, word_count: 2, ..Pool::default() };
    datapath.insert_pool(1, &pool).unwrap();
    assert_eq!(element::<Pool>(&host, "POOLS", 1), pool);
    let error = datapath.insert_pool(2, &pool).unwrap_err().to_string();
    assert!(error.starts_with("map POOLS: "), "{error}");

    let key = ServiceKey { address: [9; 16], port: [0, 80], protocol: 6, family: 6 };
    let service = Service { hash_seed: 3, index: 1, slot_count: 1021, ..Service::default() };
    datapath.set_service(&service).unwrap();
    assert_eq!(element::<Service>(&host, "SERVICES", 1), service);
    let beyond = datapath.set_service(&Service { index: 4, ..service }).unwrap_err().to_string();
    assert!(beyond.starts_with("map SERVICES: "), "{beyond}");
    datapath.insert_service_key(&key, 1).unwrap();
    assert_eq!(read::<u32>(&host, "SERVICE_KEYS", key.as_bytes()), 1);
    for port in 0..4 {
        let other = ServiceKey { port: [1, port], ..key };
        let inserted = datapath.insert_service_key(&other, 1);
        assert_eq!(inserted.is_ok(), port < 3, "room for four: {inserted:?}");
    }
}

/// Sets one value per CPU: `value` on the first, `value` again on the last if there are two.
fn set_counters<const BYTES: usize, T: Pod>(host: &PrivateHost, map: &str, index: u32, value: T) {
    let data = opened(host, map);
    let mut counters = PerCpuArray::<_, [u8; BYTES]>::try_from(Map::PerCpuArray(data)).unwrap();
    let bytes: [u8; BYTES] = value.as_bytes().try_into().unwrap();
    let values = vec![bytes; possible_cpu_count().unwrap() as usize];
    counters.set(index, PerCpuValues::try_from(values).unwrap(), 0).unwrap();
}

#[test]
fn counters_are_summed_over_the_cpus() {
    let host = PrivateHost::new();
    let datapath = host.load().unwrap();
    let cpus = u64::from(possible_cpu_count().unwrap());
    let service =
        ServiceCounters { steered_packets: 3, kept_on_sick: 5, ..ServiceCounters::default() };
    set_counters::<256, _>(&host, "SERVICE_COUNTERS", 2, service);
    let backend = BackendCounters { skipped: 7, unresolved: 1, ..BackendCounters::default() };
    set_counters::<64, _>(&host, "BACKEND_COUNTERS", 127, backend);
    let global = GlobalCounters { not_ip: 2, broken_table: 1, ..GlobalCounters::default() };
    set_counters::<128, _>(&host, "GLOBAL_COUNTERS", 0, global);

    let counters = datapath.counters().unwrap();
    let service = ServiceCounters {
        steered_packets: 3 * cpus,
        kept_on_sick: 5 * cpus,
        ..ServiceCounters::default()
    };
    assert_eq!(counters.service(2).unwrap(), service);
    assert_eq!(counters.service(1).unwrap(), ServiceCounters::default());
    assert!(counters.service(4).is_err());
    let services = counters.services(4).unwrap();
    assert_eq!((services.len(), services[2]), (4, service));
    let backend =
        BackendCounters { skipped: 7 * cpus, unresolved: cpus, ..BackendCounters::default() };
    assert_eq!(counters.backend(127).unwrap(), backend);
    let backends = counters.backends(128).unwrap();
    assert_eq!((backends.len(), backends[127]), (128, backend));
    assert_eq!(backends[126], BackendCounters::default());
    assert_eq!(counters.backends(1000).unwrap().len(), 128);
    let global =
        GlobalCounters { not_ip: 2 * cpus, broken_table: cpus, ..GlobalCounters::default() };
    assert_eq!(counters.global().unwrap(), global);
}

#[test]
fn the_counters_of_65536_backends_are_read_at_once() {
    let host = PrivateHost::new();
    let object = object().unwrap();
    let sizes = Sizes { backends: 65_536, ..small_sizes() };
    let _datapath = Datapath::load(object, &sizes, &host.pins("main"), &[]).unwrap();
    let last = BackendCounters { new_flows: 1, ..BackendCounters::default() };
    set_counters::<64, _>(&host, "BACKEND_COUNTERS", 65_535, last);
    let counters = Counters::open(&host.pins("main")).unwrap();
    let start = Instant::now();
    let all = counters.backends(65_536).unwrap();
    println!("65,536 backends' counters in {:?}", start.elapsed());
    assert_eq!(all.len(), 65_536);
    assert_eq!(all[65_535].new_flows, u64::from(possible_cpu_count().unwrap()));
    assert!(all[..65_535].iter().all(|counters| *counters == BackendCounters::default()));
}

/// What the kernel itself says that a map takes, in bytes.
fn memlock(host: &PrivateHost, map: &str) -> u64 {
    let map = pinned(&host.pins("main").join("maps").join(map)).unwrap();
    let path = format!("/proc/self/fdinfo/{}", map.as_raw_fd());
    let text = std::fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("memlock:")).unwrap();
    line.trim().parse().unwrap()
}

#[test]
fn maps_take_the_memory_that_check_tells() {
    let host = PrivateHost::new();
    let object = object().unwrap();
    let sizes = Sizes {
        backends: 65_536,
        targets: 65_536,
        slots: 1 << 20,
        services: 64,
        flows: Sizes::FLOWS_DEFAULT,
        ..small_sizes()
    };
    let _datapath = Datapath::load(object, &sizes, &host.pins("main"), &[]).unwrap();
    let cpus = possible_cpu_count().unwrap();
    let mut total = 0;
    for (name, entries) in sizes.maps() {
        let (told, taken) = (one_map_bytes(name, entries, cpus), memlock(&host, name));
        total += taken;
        // The tries are told as full, and are empty here. Each map has a head of its own.
        let full = ![ADDRESS_PREFIXES, PORT_PREFIXES].contains(&name);
        let near = taken.abs_diff(told) <= 8192 + told / 100;
        assert!(near || !full, "{name}: {taken} bytes are taken, {told} were told");
    }
    let told = map_bytes(&sizes, cpus);
    assert!(total.abs_diff(told) <= told / 50, "{total} bytes are taken, {told} were told");
    show(&format!("maps for 65,536 backends: the kernel says {total} bytes, `check` {told}"));
}

#[test]
fn next_hops_are_found_followed_and_written_to_the_board() {
    let host = PrivateHost::new();
    let other = Neighbour::start();
    ip("link add one address 02:00:00:00:00:01 type veth peer name two");
    ip(&format!("link set two netns {}", other.namespace));
    ip("address add 192.0.2.1/24 dev one");
    ip("address add 2001:db8::1/64 dev one nodad");
    ip("link set one up");
    other.ip("link set two address 02:00:00:00:00:02");
    other.ip("address add 192.0.2.2/24 dev two");
    other.ip("address add 2001:db8::2/64 dev two nodad");
    other.ip("link set two up");
    ip("route add 198.51.100.0/24 via 192.0.2.2");
    let index = nix::net::if_::if_nametoindex("one").unwrap();

    let addresses =
        ["192.0.2.2", "2001:db8::2", "198.51.100.7", "192.0.2.1", "203.0.113.1", "192.0.2.9"];
    let backends = addresses.iter().map(|text| text.parse::<IpAddr>().unwrap());
    let backends: Vec<_> = (0..).zip(backends).collect();
    let (tell, told) = mpsc::channel();
    let start = Neighbours::start(backends, move |backend, resolution| {
        tell.send((backend, resolution)).unwrap();
    });
    let neighbours = start.unwrap();
    let mut known = [None; 6];
    let mut reached = |expected: [Option<[u8; 6]>; 3]| {
        let mut macs = [None; 3];
        wait_until("next hops", Duration::from_secs(10), || {
            for (backend, resolution) in told.try_iter() {
                known[backend as usize] = Some(resolution);
            }
            macs = [0, 1, 2].map(|backend: usize| {
                known[backend].and_then(Result::ok).map(|hop: NextHop| {
                    assert_eq!(hop.source_mac, [2, 0, 0, 0, 0, 1]);
                    assert_eq!(hop.interface_index, index);
                    hop.mac
                })
            });
            macs == expected
        });
    };
    reached([Some([2, 0, 0, 0, 0, 2]); 3]);
    other.ip("link set two address 02:00:00:00:00:12");
    // A MAC that changes is announced by the traffic of its owner; here, by a flush.
    ip("neigh flush dev one");
    reached([Some([2, 0, 0, 0, 0, 0x12]); 3]);
    drop(neighbours);

    let local = "192.0.2.1".parse().unwrap();
    assert_eq!(known[3], Some(Err(Unresolved::Local(local))));
    let unrouted = "203.0.113.1".parse().unwrap();
    assert_eq!(known[4], Some(Err(Unresolved::NoRoute(unrouted))));
    let silent: IpAddr = "192.0.2.9".parse().unwrap();
    let expected =
        Unresolved::Silent { address: silent, neighbour: silent, interface_index: index };
    assert_eq!(known[5], Some(Err(expected)));
    drop(host);
}
