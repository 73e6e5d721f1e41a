//! Packets whose expected fate is written out, on the host.

use std::collections::HashMap;
use std::vec::Vec;

use crate::abi::BackendRef;
use crate::counters::count;
use crate::model::fixtures::{Fate, Fixture, all};
use crate::model::{Buffer, Bytes, ModelCounters, ModelTables};
use crate::packet::{Packet, parse};
use crate::reply::{answer_echo, refuse};
use crate::steer::{Action, decide};
use crate::tables::{NextHop, Store};

#[test]
fn every_fixture_meets_its_fate_and_moves_its_counters_alone() {
    let fixtures = all();
    assert!(230 <= fixtures.len(), "only {} fixtures", fixtures.len());
    for fixture in fixtures {
        run(&fixture);
    }
}

fn run(fixture: &Fixture) {
    let Fixture { description, tables, .. } = fixture;
    let counters = ModelCounters::default();
    let outcome = decide(&Bytes::new(&fixture.frame), tables, tables);
    count(&outcome, &counters);
    let action = match fixture.fate {
        Fate::Pass => Action::Pass,
        Fate::Drop => Action::Drop,
        Fate::Answer => return_of_answer(fixture, outcome.action()),
        Fate::To(index) => Action::Forward(NextHop {
            next_hop: u64::from_le_bytes([2, 0, 0, 0, 0, index as u8, 1, 0]),
            source_mac: u64::from_le_bytes([6, 0, 0, 0, 0, index as u8, 0, 0]),
            interface_index: 10 + index,
        }),
    };
    assert_eq!(outcome.action(), action, "{description}: {outcome:?}");
    let expected = ModelCounters {
        global: fixture.global.into(),
        services: fixture.services.iter().copied().collect::<HashMap<_, _>>().into(),
        backends: fixture.backends.iter().copied().collect::<HashMap<_, _>>().into(),
    };
    assert_eq!(counters, expected, "{description}: {outcome:?}");
    assert_eq!(left(tables), fixture.entries, "{description}: {outcome:?}");
    let fragments: Vec<_> = tables.fragments.borrow().values().copied().collect();
    let fragments: Vec<_> =
        fragments.iter().map(|entry| (entry.backend.index(), entry.service)).collect();
    assert_eq!(fragments, fixture.fragments, "{description}: {outcome:?}");
    let reasons: Vec<u8> = tables.drops.borrow().iter().map(|record| record.reason).collect();
    assert_eq!(reasons, fixture.records, "{description}: {outcome:?}");
}

/// The action that makes of the packet what the fixture says.
fn return_of_answer(fixture: &Fixture, action: Action) -> Action {
    let mut buffer = Buffer { frame: fixture.frame.clone() };
    let headers = parse(&buffer).expect("what is answered was read");
    let answered = match action {
        Action::Refuse => refuse(&mut buffer, &headers),
        Action::AnswerEcho => answer_echo(&mut buffer, &headers),
        _ => false,
    };
    assert!(answered, "{}: {action:?}", fixture.description);
    assert_eq!(buffer.frame, fixture.answer, "{}", fixture.description);
    action
}

/// Where entries are left, and of which backends.
fn left(tables: &ModelTables) -> Vec<(Store, BackendRef)> {
    let mut entries: Vec<_> =
        tables.entries.borrow().iter().map(|((store, _), entry)| (*store, entry.backend)).collect();
    entries.sort_by_key(|(store, _)| *store == Store::Flows);
    entries
}

#[test]
fn tag_beside_the_packet_counts_as_one() {
    let fixtures = all();
    let tagged = fixtures
        .iter()
        .find(|fixture| fixture.description.starts_with("two VLAN tags"))
        .expect("a fixture of that name");
    let packet = Bytes { frame: &tagged.frame, tags_taken_off: 1 };
    assert_eq!(decide(&packet, &tagged.tables, &tagged.tables).action(), Action::Pass);
    assert_eq!(packet.size_bytes(), 62);
}
