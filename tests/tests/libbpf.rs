//! The object through libbpf, the loader that is not aya: it opens, loads, and decides a packet.

use std::path::PathBuf;

use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput};
use sickbay_shared::abi::{self, GlobalCounters};
use sickbay_shared::pod::Pod;

const XDP_PASS: u32 = 2;

fn loaded() -> Object {
    let path: PathBuf = sickbay_tests::steering::object();
    let mut builder = ObjectBuilder::default();
    let open = builder.open_file(&path).unwrap_or_else(|error| {
        panic!("opening {} (after xtask build-ebpf): {error}", path.display())
    });
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
