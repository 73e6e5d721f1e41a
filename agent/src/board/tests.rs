//! Tests of the board in memory; tests/tests/board.rs holds it against the kernel's maps.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::kernel::Sizes;

fn sizes() -> Sizes {
    Sizes { shards: 2, backends: 4096, targets: 8, pools: 2, slots: 1021, ..Sizes::default() }
}

fn board() -> Board {
    Board::in_memory(&sizes()).unwrap()
}

#[test]
fn only_a_real_change_is_a_change() {
    let board = board();
    assert!(board.set_takes_new(65, 1, true));
    assert!(!board.set_takes_new(65, 1, true));
    assert!(board.takes_new(65));
    assert!(!board.takes_new(64) && !board.takes_new(66) && !board.takes_new(1));
    assert_eq!((board.pool_count(0), board.pool_count(1)), (0, 1));
    assert_eq!((board.group_count(1), board.group_count(32)), (1, 0));
    assert!(board.set_takes_new(65, 1, false));
    assert!(!board.set_takes_new(65, 1, false));
    assert_eq!((board.pool_count(1), board.group_count(1)), (0, 0));
}

#[test]
fn the_three_bitmaps_are_apart() {
    let board = board();
    assert!(board.set_serves_old(7, true));
    assert!(!board.takes_new(7) && board.serves_old(7) && !board.allowed(7));
    assert!(board.set_allowed(8, true));
    assert!(!board.serves_old(8) && board.allowed(8));
    assert_eq!(board.pool_count(0), 0);
}

#[test]
fn counts_are_the_set_bits_whoever_flips_them() {
    const THREADS: u32 = 4;
    const FLIPS: u32 = 20_000;
    let board = board();
    let seed = RandomState::new().hash_one(0);
    println!("seed {seed}");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let board = &board;
            scope.spawn(move || {
                let mut random = seed ^ u64::from(thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for _ in 0..FLIPS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    // Each thread owns the backends of its remainder, in both halves.
                    let backend = (random as u32 % 4096) / THREADS * THREADS + thread;
                    board.set_takes_new(backend, backend / 2048, random >> 40 & 1 == 1);
                }
            });
        }
    });
    for pool in 0..2 {
        let first = pool * 2048;
        let set = (first..first + 2048).filter(|&backend| board.takes_new(backend)).count() as u64;
        assert_eq!(board.pool_count(pool), set, "pool {pool}");
        assert_eq!(u64::from(board.group_count(pool * GROUP_WORDS)), set, "group {pool}");
        assert!(0 < set && set < 2048, "the flips did something: {set}");
    }
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let board = board();
    let record = TargetRecord {
        registers: [1, 2, 3, 4, 5, 6, 7, 0xff],
        identity: [9; 16],
        last_result_ns: 10,
        average_s: 0.25,
        cause: 3,
        state: 2,
        ..TargetRecord::default()
    };
    board.write_target(5, &record);
    assert_eq!(board.read_target(5), Some(TargetRecord { sequence: 2, ..record }));
    board.write_target(5, &record);
    assert_eq!(board.read_target(5), Some(TargetRecord { sequence: 4, ..record }));
    assert_eq!(board.read_target(4), Some(TargetRecord::default()));
    assert_eq!(board.read_target(8), None);
}

#[test]
fn a_record_whose_writer_died_is_not_read_until_it_is_written_again() {
    let board = board();
    board.targets.words(0).unwrap()[SEQUENCE_WORD].store(7, Ordering::Relaxed);
    assert_eq!(board.read_target(0), None);
    board.write_target(0, &TargetRecord::default());
    assert_eq!(board.read_target(0).map(|record| record.sequence), Some(8));
}

#[test]
fn a_reader_never_sees_half_a_record() {
    let board = board();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..20_000_u64 {
                let record = TargetRecord {
                    registers: [round; 8],
                    last_result_ns: round,
                    changed_ns: round,
                    ..TargetRecord::default()
                };
                board.write_target(3, &record);
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            // Under a writer that never rests a read may give up; it must not tear.
            if let Some(record) = board.read_target(3) {
                assert_eq!(record.registers, [record.changed_ns; 8]);
                assert_eq!(record.last_result_ns, record.changed_ns);
            }
        }
    });
    assert_eq!(board.read_target(3).map(|record| record.changed_ns), Some(19_999));
}

#[test]
fn a_strange_header_is_not_believed() {
    let board = board();
    assert!(matches!(board.checked_header(), Err(BoardError::Magic { found: 0 })));
    board.write_header(&Header { shard_count: 2, ..Header::default() }).unwrap();
    let header = board.checked_header().unwrap();
    // 1.1: the larger number in the upper half.
    assert_eq!((header.shard_count, header.abi_version), (2, 0x0001_0001));
    assert_eq!(header.magic.to_le_bytes(), *b"sickbay\0");
    for other in [0x0000_0063, 0x0000_0000, 0x0002_0000, 0x0063_0001] {
        board.header.store(0, &Header { abi_version: other, ..header });
        let error = board.checked_header().unwrap_err();
        assert!(matches!(error, BoardError::Version { found } if found == other), "{error}");
    }
    let error = BoardError::Version { found: 0x0063_0001 }.to_string();
    assert!(error.starts_with("its maps have layout 99.1, this sickbay reads 1.1: "), "{error}");
    // A minor adds: what an older reader knows of stands where it stood.
    board.header.store(0, &Header { abi_version: 0x0001_0007, ..header });
    assert_eq!(board.checked_header().unwrap().abi_version, 0x0001_0007);
    board.header.store(0, &Header { boot_id: [0; 16], ..header });
    assert!(matches!(board.checked_header(), Err(BoardError::Boot)));
}

#[test]
fn a_heartbeat_is_the_coarse_clock() {
    let board = board();
    assert_eq!(board.last_beat_ns(1), 0);
    let before = coarse_now_ns();
    board.beat(1);
    let after = coarse_now_ns();
    assert!((before..=after).contains(&board.last_beat_ns(1)));
    assert_eq!(board.last_beat_ns(0), 0);
}

#[test]
fn a_next_hop_is_written_beside_what_the_record_says() {
    let board = board();
    let record = Backend { generation: 3, pool: 1, family: 4, ..Backend::default() };
    board.write_backend(2, &record);
    let next_hop = NextHop {
        mac: [2, 0, 0, 0, 0, 0x15],
        source_mac: [2, 0, 0, 0, 0, 0x16],
        interface_index: 11,
    };
    board.set_next_hop(2, Some(next_hop));
    let expected = Backend {
        next_hop: 0x0001_1500_0000_0002,
        source_mac: 0x0000_1600_0000_0002,
        interface_index: 11,
        ..record
    };
    assert_eq!(board.backend(2), Some(expected));
    board.set_next_hop(2, None);
    assert_eq!(board.backend(2), Some(Backend { next_hop: 0, ..expected }));
}

#[test]
fn slots_are_written_from_the_first_on() {
    let board = board();
    board.write_slots(1019, &[Slot(5), Slot(6)]);
    assert_eq!(board.slot(1018), Some(Slot(0)));
    assert_eq!(board.slot(1019), Some(Slot(5)));
    assert_eq!(board.slot(1020), Some(Slot(6)));
    assert_eq!(board.slot(1021), None);
}
