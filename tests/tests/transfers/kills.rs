//! An agent that is killed again and again under traffic: nothing is lost, moved or left behind.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use sickbay_lab::clock::{monotonic_ns, wait_until};
use sickbay_lab::configuration::{Configuration, Program};
use sickbay_lab::network::Family;
use sickbay_lab::record::Flow;
use sickbay_lab::stage::{PATIENCE, Stage};
use sickbay_shared::abi;
use sickbay_tests::figures;

const KILLS: usize = 50;
/// Over TC, where only the link is another.
const KILLS_WITH_TC: usize = 20;

/// The names of the files in a folder.
fn names(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// How many descriptors the agent has open.
fn descriptors(stage: &Stage) -> usize {
    let status = stage.agent.ask_json(&["status"]).unwrap();
    names(Path::new(&format!("/proc/{}/fd", status["pid"]))).len()
}

/// How many maps and programs the whole system has.
fn kernel_objects() -> (usize, usize) {
    (aya::maps::loaded_maps().count(), aya::programs::loaded_programs().count())
}

fn killed_agent_loses_moves_and_leaves_nothing(program: Program, kills: usize) {
    let configuration = Configuration { program, ..Configuration::usual() };
    let mut stage = Stage::new(4, &configuration).unwrap();
    stage.servers[3].take().unwrap().stop().unwrap();
    stage.wait_for_healthy(3).unwrap();
    let load = stage.load(Family::V4);
    load.wait_for_connections(200, 0, PATIENCE).unwrap();
    stage.agent.crash().unwrap();
    stage.agent.start_again().unwrap();
    let open = descriptors(&stage);
    let objects = wait_until("the kernel has freed what was killed", PATIENCE, || {
        let before = kernel_objects();
        std::thread::sleep(Duration::from_millis(300));
        (before == kernel_objects()).then_some(before)
    })
    .unwrap();
    let pins = stage.agent.pin_directory();
    let links = names(&pins.join("links"));
    let mut killed_ns = Vec::new();
    for _ in 1..kills {
        stage.agent.crash().unwrap();
        killed_ns.push(monotonic_ns());
        stage.agent.start_again().unwrap();
        // Otherwise a history ages from life to life, where lives are short and starts are slow.
        wait_until("each has a result of this life", PATIENCE, || {
            let board = stage.agent.board().ok()?;
            let last_ns = |index| board.target(index).map_or(0, |it| it.last_result_ns);
            let begun_ns = *killed_ns.last()?;
            (0..4).all(|index| begun_ns < last_ns(index)).then_some(())
        })
        .unwrap();
    }
    let record = load.stop();
    let failed: Vec<_> = record.connections().filter(|attempt| attempt.result.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}\nkilled at {killed_ns:?}");
    assert_eq!(record.kept.len(), 64);
    assert!(record.kept.iter().all(Flow::stayed));
    assert_eq!(record.answered_count("backend-4", 0, u64::MAX), 0, "it was sick all along");
    // That of the question itself may be there, or not any more.
    let now = descriptors(&stage);
    assert!(now <= open + 1, "{now} descriptors, and {open} at first");
    // The kernel frees what a killed process held after a grace period.
    wait_until("maps and programs are as many as they were", PATIENCE, || {
        (kernel_objects() == objects).then_some(())
    })
    .unwrap();
    let folders = ["links", "maps", "programs"].map(str::to_owned);
    assert_eq!(names(&pins), BTreeSet::from(folders));
    assert_eq!(names(&pins.join("maps")).len(), abi::MAPS.len());
    assert_eq!(names(&pins.join("links")), links);
    let said = stage.agent.said();
    assert_eq!(said.matches("went sick").count(), 1, "no verdict changed by a restart: {said}");
    // A history that was just being written is told, and not believed.
    let whole = said.matches("taken up: 4 of 4 histories").count();
    let torn = said.matches("were being written when their agent died").count();
    assert_eq!(whole + torn, kills, "{said}");
    let connections = record.connections().count();
    figures::show(&format!(
        "{kills} kills with {program:?}: {connections} connections and {} kept ones, 0 failed, 0 \
         moved",
        record.kept.len()
    ));
}

#[test]
fn killed_agent_loses_moves_and_leaves_nothing_with_xdp() {
    killed_agent_loses_moves_and_leaves_nothing(Program::Xdp, KILLS);
}

#[test]
fn killed_agent_loses_moves_and_leaves_nothing_with_tc() {
    killed_agent_loses_moves_and_leaves_nothing(Program::Tc, KILLS_WITH_TC);
}
