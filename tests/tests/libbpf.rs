//! The object through libbpf, the loader that is not aya: it opens, loads, and decides packets.
#![expect(clippy::unwrap_used, reason = "the helpers of a test panic as the test does")]

use std::path::PathBuf;

use libbpf_rs::{Map, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};
use sickbay_shared::abi::{self, EmbryonicLine, GlobalCounters, ServiceCounters};
use sickbay_shared::limits::EMBRYONIC_LINES;
use sickbay_shared::model::ModelTables;
use sickbay_shared::model::fixtures::{self, Fate};
use sickbay_shared::pod::Pod;
use sickbay_tests::steering::sum;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;
/// Backend indices of the fixtures.
const BACKENDS: u32 = 128;

fn loaded() -> Object {
    let path: PathBuf = sickbay_tests::steering::object();
    let mut builder = ObjectBuilder::default();
    let mut open = builder.open_file(&path).unwrap_or_else(|error| {
        panic!("opening {} (after xtask build-ebpf): {error}", path.display())
    });
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if [abi::BACKENDS, abi::BACKEND_COUNTERS].contains(&name.as_str()) {
            map.set_max_entries(BACKENDS).expect("a size");
        }
    }
    open.load().expect("libbpf loads the object (as root)")
}

#[test]
fn every_map_and_program_of_the_abi_loads_under_libbpf() {
    let object = loaded();
    let mut maps: Vec<String> =
        object.maps().map(|map| map.name().to_string_lossy().into_owned()).collect();
    maps.retain(|name| abi::MAPS.contains(&name.as_str()));
    maps.sort();
    let mut wanted = abi::MAPS.to_vec();
    wanted.sort_unstable();
    assert_eq!(maps, wanted);
    let mut programs: Vec<String> =
        object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect();
    programs.retain(|name| name.starts_with("sickbay_"));
    programs.sort();
    assert_eq!(programs, [abi::EXPLAIN_PROGRAM, abi::TC_PROGRAM, abi::XDP_PROGRAM]);
}

#[test]
fn packet_of_no_service_passes_and_is_counted_under_libbpf() {
    let object = loaded();
    // Ethernet, IPv4 (no options), TCP SYN from 192.0.2.1:1024 to 198.51.100.1:80.
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1]);
    frame.extend([4, 0, 0, 80, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0xff, 0xff, 0, 0, 0, 0]);
    let mut output = vec![0; 256];
    let mut programs = object.progs_mut();
    let program = programs.find(|program| program.name() == abi::XDP_PROGRAM).unwrap();
    let ran = program
        .test_run(ProgramInput {
            data_in: Some(&frame),
            data_out: Some(&mut output),
            ..ProgramInput::default()
        })
        .unwrap();
    assert_eq!(ran.return_value, XDP_PASS);
    assert_eq!(ran.data.unwrap(), frame);
    let counters = object.maps().find(|map| map.name() == abi::GLOBAL_COUNTERS).unwrap();
    let values = counters.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    let passed: u64 =
        values.iter().map(|value| GlobalCounters::from_bytes(value).unwrap().not_service).sum();
    assert_eq!(passed, 1);
}

#[test]
fn fixtures_meet_their_fate_under_libbpf() {
    let object = loaded();
    let mut ran = 0;
    for fixture in fixtures::all() {
        // The clock goes on here: what has an age is for the test that shifts it.
        let tables = &fixture.tables;
        let aged = !tables.entries.borrow().is_empty()
            || !tables.fragments.borrow().is_empty()
            // Nor does anything here take away what a first fragment leaves.
            || !fixture.fragments.is_empty()
            || tables.services.iter().any(|service| service.stale != 0);
        if aged || tables.full || tables.drops_full || fixture.frame.len() < 15 {
            continue;
        }
        put(&object, &fixture.tables);
        let before = service_counters(&object);
        let mut output = vec![0; 2_048];
        let ran_program = program(&object)
            .test_run(ProgramInput {
                data_in: Some(&fixture.frame),
                data_out: Some(&mut output),
                ..ProgramInput::default()
            })
            .unwrap();
        let action = match fixture.fate {
            Fate::Pass => XDP_PASS,
            Fate::Drop => XDP_DROP,
            Fate::Answer => XDP_TX,
            Fate::To(_) => XDP_REDIRECT,
        };
        assert_eq!(ran_program.return_value, action, "{}", fixture.description);
        let mut expected = before;
        for (index, counters) in &fixture.services {
            let service = &mut expected[*index as usize];
            *service = sum([*service, *counters].iter());
        }
        assert_eq!(service_counters(&object), expected, "{}", fixture.description);
        ran += 1;
    }
    println!("{ran} fixtures ran under libbpf");
    assert!(60 <= ran, "only {ran}");
}

fn program(object: &Object) -> ProgramMut<'_> {
    let mut programs = object.progs_mut();
    programs.find(|program| program.name() == abi::XDP_PROGRAM).unwrap()
}

fn map<'object>(object: &'object Object, name: &str) -> Map<'object> {
    object.maps().find(|map| map.name() == name).unwrap_or_else(|| panic!("no map {name}"))
}

fn put(object: &Object, tables: &ModelTables) {
    let bitmaps = [
        (abi::TAKES_NEW, &tables.takes_new),
        (abi::SERVES_OLD, &tables.serves_old),
        (abi::ALLOWED, &tables.allowed),
        (abi::POOL_COUNTS, &tables.pool_counts),
    ];
    for (name, words) in bitmaps {
        put_array(object, name, words);
    }
    put_array(object, abi::HEADER, &[tables.header]);
    put_array(object, abi::GROUP_COUNTS, &tables.group_counts);
    put_array(object, abi::POOLS, &tables.pools);
    put_array(object, abi::BACKENDS, &tables.backends);
    put_array(object, abi::SLOTS, &tables.slots);
    put_array(object, abi::SERVICES, &tables.services);
    let keys = tables.service_keys.iter().map(|(key, index)| (*key, *index)).collect::<Vec<_>>();
    put_keys(object, abi::SERVICE_KEYS, &keys);
    put_keys(object, abi::ADDRESS_PREFIXES, &tables.address_prefixes);
    put_keys(object, abi::PORT_PREFIXES, &tables.port_prefixes);
    for name in [abi::FLOWS_V4, abi::FLOWS_V6] {
        clear(object, name);
    }
    clear_embryonic(object);
}

fn clear_embryonic(object: &Object) {
    let keys: Vec<u8> = (0..EMBRYONIC_LINES).flat_map(u32::to_ne_bytes).collect();
    let zeros = vec![0; size_of::<EmbryonicLine>() * EMBRYONIC_LINES as usize];
    let map = map(object, abi::EMBRYONIC);
    map.update_batch(&keys, &zeros, EMBRYONIC_LINES, MapFlags::ANY, MapFlags::ANY).unwrap();
}

fn put_array<T: Pod>(object: &Object, name: &str, values: &[T]) {
    let map = map(object, name);
    for (index, value) in (0_u32..).zip(values) {
        let written = map.update(&index.to_ne_bytes(), value.as_bytes(), MapFlags::ANY);
        written.unwrap_or_else(|error| panic!("{name}[{index}]: {error}"));
    }
}

fn put_keys<K: Pod>(object: &Object, name: &str, entries: &[(K, u32)]) {
    clear(object, name);
    for (key, value) in entries {
        let written = map(object, name).update(key.as_bytes(), &value.to_ne_bytes(), MapFlags::ANY);
        written.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

fn clear(object: &Object, name: &str) {
    let map = map(object, name);
    for key in map.keys().collect::<Vec<_>>() {
        map.delete(&key).unwrap();
    }
}

/// The counters of the first services, added up over the CPUs.
fn service_counters(object: &Object) -> Vec<ServiceCounters> {
    let of_service = |index: u32| {
        let map = map(object, abi::SERVICE_COUNTERS);
        let values = map.lookup_percpu(&index.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        let of_cpu = |value: &Vec<u8>| ServiceCounters::from_bytes(value).unwrap();
        sum(values.iter().map(of_cpu).collect::<Vec<_>>().iter())
    };
    (0..8).map(of_service).collect()
}
