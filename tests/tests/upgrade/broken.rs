//! A version that does not do what it is to do never steers, or not for long.

use std::io::Write as _;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use sickbay_lab::configuration::{Configuration, Program};
use sickbay_lab::network::{Family, Network};
use sickbay_lab::record::Flow;
use sickbay_lab::stage::{PATIENCE, Stage};

use super::{keeping, links, pinned, refused, variant};

/// Nobody's: its packets pass to the host itself, whoever steers.
const ANY_PORT: u16 = 9;

/// Everything that is pinned, by name and id.
fn everything(stage: &Stage) -> impl PartialEq + std::fmt::Debug + use<> {
    let ids =
        |folder: &str| pinned(&stage.agent.pin_directory().join(folder), super::layout::map_id);
    (links(stage), ids("maps"), stage.agent.pin_directory().join("maps-old").exists())
}

#[track_caller]
fn assert_says_what_stays(said: &str, stage: &Stage) {
    let last = said.lines().last().unwrap();
    let instance = stage.agent.instance();
    assert!(last.starts_with("sickbay: "), "{said}");
    assert!(last.contains("what steers goes on as it is"), "{last}");
    assert!(last.contains(&format!("`sickbay detach --instance {instance}`")), "{last}");
}

#[test]
fn program_that_asks_for_no_health_is_refused_before_anything_is_touched() {
    let mut stage = Stage::new(3, &Configuration::usual()).unwrap();
    let load = stage.load(Family::V4);
    load.wait_for_connections(200, 0, PATIENCE).unwrap();
    stage.agent.crash().unwrap();
    let before = everything(&stage);
    stage.agent.set_launch(keeping(Some(variant("blind"))));
    let said = refused(&mut stage);
    assert_eq!(everything(&stage), before);
    let named =
        "failed their self-check (sickbay_xdp, a SYN where all are sick: it returned 3, not 1)";
    let steered = "failed their self-check (sickbay_xdp, a SYN past a sick backend: ";
    assert!(said.contains(named) || said.contains(steered), "{said}");
    assert_says_what_stays(&said, &stage);
    // The one that is well goes on where the one before stood.
    stage.agent.set_launch(keeping(None));
    stage.agent.start_again().unwrap();
    assert!(stage.agent.said().contains("taken up: 3 of 3 histories"), "{}", stage.agent.said());
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0);
    assert!(record.kept.iter().all(Flow::stayed));
}

/// Datagrams from the client to the virtual address, some hundred a second, until dropped.
struct Drizzle(Arc<AtomicBool>);

impl Drizzle {
    fn start(stage: &Stage) -> Self {
        let client = stage.network.client.namespace.clone();
        let to = SocketAddr::new(Network::vip(Family::V4).ip(), ANY_PORT);
        let stopping = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stopping);
        thread::spawn(move || {
            let socket = client.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap();
            while !stopped.load(Ordering::Relaxed) {
                // Nobody answers but the host, who says so.
                let _refused = socket.send_to(b"?", to);
                thread::sleep(Duration::from_millis(2));
            }
        });
        Self(stopping)
    }
}

impl Drop for Drizzle {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn program_that_does_nothing_on_its_interface_is_taken_back() {
    let mut stage = Stage::new(3, &Configuration::usual()).unwrap();
    let _drizzle = Drizzle::start(&stage);
    stage.agent.crash().unwrap();
    let before = links(&stage);
    stage.agent.set_launch(keeping(Some(variant("idle"))));
    let said = refused(&mut stage);
    assert!(said.contains("the program that was put in the place of the one before"), "{said}");
    assert!(said.contains("the one before was put back"), "{said}");
    assert_says_what_stays(&said, &stage);
    assert_eq!(links(&stage), before, "the same links, with the same programs");
    let load = stage.load(Family::V4);
    load.wait_for_connections(100, 0, PATIENCE).unwrap();
    let record = load.stop();
    assert_eq!(record.failed_count(0, u64::MAX), 0, "the one before steers");
    stage.agent.set_launch(keeping(None));
    stage.agent.start_again().unwrap();
    assert!(stage.agent.said().contains("taken up: 3 of 3 histories"), "{}", stage.agent.said());
}

#[test]
fn what_turned_is_turned_back_when_a_later_interface_fails() {
    for program in [Program::Xdp, Program::Tc] {
        let configuration = Configuration { program, ..Configuration::usual() };
        let mut stage = Stage::new(2, &configuration).unwrap();
        let load = stage.load(Family::V4);
        load.wait_for_connections(200, 0, PATIENCE).unwrap();
        stage.agent.crash().unwrap();
        let before = links(&stage);
        // Loopback's driver has no XDP: it is attached to last, and refuses.
        let mut text = stage.agent.configuration().unwrap();
        text.push_str(
            "\n[[attach]]\ninterface = \"lo\"\nprogram = \"xdp\"\nxdp_mode = \"native\"\n",
        );
        stage.agent.rewrite(&text).unwrap();
        stage.agent.set_launch(keeping(None));
        let said = refused(&mut stage);
        assert!(said.contains("cannot attach to lo (xdp native): "), "{said}");
        assert_says_what_stays(&said, &stage);
        assert_eq!(links(&stage), before, "the same links, with the same programs");
        let record = load.stop();
        assert_eq!(record.failed_count(0, u64::MAX), 0);
        assert!(record.kept.iter().all(Flow::stayed));
    }
}

#[test]
fn file_that_is_no_object_is_refused_in_one_line() {
    let mut stage = Stage::new(1, &Configuration::usual()).unwrap();
    stage.agent.crash().unwrap();
    let before = everything(&stage);
    let file = sickbay_lab::private::scratch().join("garbage.bpf.o");
    std::fs::File::create(&file).unwrap().write_all(b"not an object").unwrap();
    for (object, wanted) in [
        (file.clone(), "cannot load the eBPF programs: "),
        (file.with_extension("missing"), "cannot read the eBPF object "),
    ] {
        stage.agent.set_launch(keeping(Some(object)));
        let said = refused(&mut stage);
        assert!(said.contains(wanted), "{said}");
        assert_says_what_stays(&said, &stage);
        assert_eq!(everything(&stage), before);
    }
}
