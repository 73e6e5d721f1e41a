//! What was left has another layout: another major is refused before anything is touched, another
//! minor is taken up.

use std::os::fd::AsFd as _;
use std::path::Path;

use sickbay::kernel::syscall;
use sickbay_lab::configuration::Configuration;
use sickbay_lab::stage::Stage;
use sickbay_shared::abi::{self, Header};
use sickbay_shared::pod::Pod as _;

use super::{keeping, links, pinned, refused};

/// Arrays that no packet writes and nobody else does while no agent runs.
const STILL: [&str; 9] = [
    abi::HEADER,
    abi::HEARTBEATS,
    abi::TAKES_NEW,
    abi::SERVES_OLD,
    abi::POOLS,
    abi::SERVICES,
    abi::SLOTS,
    abi::BACKENDS,
    abi::TARGETS,
];

/// The id of the map pinned at `path`.
pub(super) fn map_id(path: &Path) -> u32 {
    syscall::map_info(syscall::pinned(path).unwrap().as_fd()).unwrap().id
}

/// Id and contents of every map that stands still, and the links.
fn everything(stage: &Stage) -> impl PartialEq + std::fmt::Debug + use<> {
    let look = |path: &Path| {
        let map = syscall::pinned(path).unwrap();
        let info = syscall::map_info(map.as_fd()).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let mut bytes = Vec::new();
        if STILL.contains(&name) {
            let value_bytes = syscall::value_bytes(&info).unwrap();
            bytes.resize(value_bytes * info.entries_max as usize, 0);
            assert_eq!(syscall::look_up_batch(map.as_fd(), &mut bytes).unwrap(), info.entries_max);
        }
        (info.id, bytes)
    };
    (pinned(&stage.agent.pin_directory().join("maps"), look), links(stage))
}

/// Says in the pinned header that another version wrote it.
fn forge(stage: &Stage, version: u32) {
    let map = syscall::pinned(&stage.agent.pin_directory().join("maps").join(abi::HEADER)).unwrap();
    let info = syscall::map_info(map.as_fd()).unwrap();
    let header = Header { abi_version: version, ..stage.agent.board().unwrap().header().unwrap() };
    syscall::update(map.as_fd(), &info, &0_u32.to_ne_bytes(), header.as_bytes()).unwrap();
}

#[test]
fn another_major_is_refused_and_nothing_is_touched() {
    let mut stage = Stage::new(2, &Configuration::usual()).unwrap();
    stage.agent.crash().unwrap();
    stage.agent.set_launch(keeping(None));
    for (version, told) in [(2 << 16, "2.0"), (2 << 16 | 5, "2.5"), (5, "0.5")] {
        forge(&stage, version);
        let before = everything(&stage);
        let said = refused(&mut stage);
        let last = said.lines().last().unwrap();
        let wanted = format!(
            "sickbay: what an agent before this one left cannot be taken up: its maps have layout \
             {told}, this sickbay reads 1.1: use the version that made them; what steers goes on"
        );
        assert!(last.starts_with(&wanted), "{last}");
        assert!(last.contains("`sickbay detach --instance "), "{last}");
        assert_eq!(everything(&stage), before);
        assert!(!stage.agent.pin_directory().join("maps-old").exists());
    }
    // The version that made them goes on.
    forge(&stage, abi::ABI_VERSION);
    stage.agent.start_again().unwrap();
    assert!(stage.agent.said().contains("taken up: 2 of 2 histories"), "{}", stage.agent.said());
}

/// Before 1.1, two LRU hashes were in the place of [`abi::EMBRYONIC`].
#[test]
fn maps_that_a_minor_has_dropped_go_and_those_it_has_added_come() {
    let mut stage = Stage::new(2, &Configuration::usual()).unwrap();
    stage.agent.set_launch(keeping(None));
    stage.agent.crash().unwrap();
    forge(&stage, 1 << 16);
    let maps = stage.agent.pin_directory().join("maps");
    let flows = map_id(&maps.join(abi::FLOWS_V4));
    for (was, is) in [(abi::EMBRYONIC, "EMBRYONIC_V4"), (abi::FRAGMENTS, "EMBRYONIC_V6")] {
        std::fs::rename(maps.join(was), maps.join(is)).unwrap();
    }
    stage.agent.start_again().unwrap();
    assert!(stage.agent.said().contains("taken up: 2 of 2 histories"), "{}", stage.agent.said());
    let mut left: Vec<_> = pinned(&maps, |_| ()).into_keys().collect();
    left.sort_unstable();
    let mut wanted = abi::MAPS.map(str::to_owned).to_vec();
    wanted.sort_unstable();
    assert_eq!(left, wanted);
    assert_eq!(map_id(&maps.join(abi::FLOWS_V4)), flows, "flows go along");
    let embryonic = syscall::pinned(&maps.join(abi::EMBRYONIC)).unwrap();
    let room = syscall::map_info(embryonic.as_fd()).unwrap().entries_max;
    assert_eq!(room, sickbay_shared::limits::EMBRYONIC_LINES);
    assert!(!stage.agent.pin_directory().join("maps-old").exists());
}

#[test]
fn another_minor_is_taken_up() {
    let mut stage = Stage::new(2, &Configuration::usual()).unwrap();
    stage.agent.set_launch(keeping(None));
    stage.agent.crash().unwrap();
    forge(&stage, abi::ABI_VERSION + 7);
    let before = links(&stage);
    stage.agent.start_again().unwrap();
    assert!(stage.agent.said().contains("taken up: 2 of 2 histories"), "{}", stage.agent.said());
    let header = stage.agent.board().unwrap().header().unwrap();
    assert_eq!(header.abi_version, abi::ABI_VERSION, "it writes its own");
    for (name, (link, program)) in links(&stage) {
        assert_eq!(before[&name].0, link);
        assert_ne!(before[&name].1, program);
    }
}
