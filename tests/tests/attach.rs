//! Attaching, refusing, taking over and detaching, against the kernel.
#![expect(clippy::unwrap_used, reason = "the helpers of a test panic as the test does")]

use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use aya::Ebpf;
use aya::programs::Xdp;
use sickbay::fleet::{Program, XdpMode};
use sickbay::kernel::syscall::{self, pinned};
use sickbay::kernel::{
    AttachedMode, Datapath, FLOW_MAPS, KernelError, Sizes, TcHook, detach, object,
};
use sickbay::netlink::XdpModeInForce;
use sickbay_tests::datapath::{attachment, host_with_pair, in_force, ip, link, small_sizes};

const NATIVE: Program = Program::Xdp(XdpMode::Native);
const GENERIC: Program = Program::Xdp(XdpMode::Generic);
const AUTO: Program = Program::Xdp(XdpMode::Auto);

/// Whether this kernel has TCX links: since 6.6.
fn has_tcx() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (6, 6) <= (numbers.next().unwrap(), numbers.next().unwrap())
}

fn mode_in_force(interface: &str) -> Option<XdpModeInForce> {
    in_force(interface).map(|(mode, _)| mode)
}

fn map_id(pin: &Path) -> u32 {
    syscall::map_info(pinned(pin).unwrap().as_fd()).unwrap().id
}

#[test]
fn native_and_generic_are_what_was_asked_for() {
    let host = host_with_pair();
    let mut datapath = host.load().unwrap();
    let attached = datapath.attach(&[attachment("one", NATIVE), attachment("two", GENERIC)]);
    let attached = attached.unwrap();
    assert_eq!(attached[0].mode, AttachedMode::XdpNative);
    assert_eq!(attached[1].mode, AttachedMode::XdpGeneric);
    assert!(attached.iter().all(|attached| !attached.taken_over && attached.note.is_none()));
    assert_eq!(mode_in_force("one"), Some(XdpModeInForce::Native));
    assert_eq!(mode_in_force("two"), Some(XdpModeInForce::Generic));
    let (_, program) = link(&host.pins("main").join("links/one-xdp"));
    assert_eq!(in_force("one").map(|(_, id)| id), Some(program));
    let permissions = host.pins("main").metadata().unwrap().permissions();
    assert_eq!(permissions.mode() & 0o777, 0o700);
}

#[test]
fn auto_is_native_where_the_driver_can_and_says_why_where_it_cannot() {
    let host = host_with_pair();
    let mut datapath = host.load().unwrap();
    let attached = datapath.attach(&[attachment("one", AUTO), attachment("lo", AUTO)]).unwrap();
    assert_eq!((attached[0].mode, &attached[0].note), (AttachedMode::XdpNative, &None));
    assert_eq!(attached[1].mode, AttachedMode::XdpGeneric);
    let note = attached[1].note.as_ref().unwrap();
    println!("{note}");
    assert!(note.starts_with("generic, because native failed: "), "{note}");
    assert_eq!(mode_in_force("lo"), Some(XdpModeInForce::Generic));
}

#[test]
fn native_is_refused_where_the_driver_cannot_and_nothing_stays() {
    let host = host_with_pair();
    let mut datapath = host.load().unwrap();
    let error = datapath.attach(&[attachment("one", NATIVE), attachment("lo", NATIVE)]);
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("cannot attach to lo (xdp native): "), "{error}");
    assert!(!error.contains('\n'), "{error}");
    assert_eq!((mode_in_force("one"), mode_in_force("lo")), (None, None));
    drop(datapath);
    assert_eq!(host.pinned(), [""; 0]);
}

#[test]
fn a_foreign_program_is_refused_by_name_and_left_alone() {
    let host = host_with_pair();
    let object = object().unwrap();
    let mut foreign = Ebpf::load(object).unwrap();
    let program: &mut Xdp = foreign.program_mut("sickbay_xdp").unwrap().try_into().unwrap();
    program.load().unwrap();
    let pin = host.bpf().join("foreign");
    program.pin(&pin).unwrap();
    ip(&format!("link set dev two xdpgeneric pinned {}", pin.display()));
    let (_, id) = in_force("two").unwrap();

    let mut datapath = host.load().unwrap();
    let wanted = [attachment("one", NATIVE), attachment("two", NATIVE)];
    let error = datapath.attach(&wanted).unwrap_err();
    assert!(matches!(error, KernelError::ForeignProgram { program_id, .. } if program_id == id));
    let text = error.to_string();
    assert!(text.contains(&format!("id {id}")) && text.contains("\"sickbay_xdp\""), "{text}");
    assert!(text.contains("`ip link set dev two xdpgeneric off`"), "{text}");
    assert!(!text.contains('\n'), "{text}");
    assert_eq!(mode_in_force("one"), None);
    assert_eq!(in_force("two"), Some((XdpModeInForce::Generic, id)));
    drop(datapath);
    assert_eq!(host.pinned(), ["foreign"]);

    ip("link set dev two xdpgeneric off");
    host.load().unwrap().attach(&wanted).unwrap();
}

#[test]
fn a_program_of_another_instance_is_foreign() {
    let host = host_with_pair();
    let object = object().unwrap();
    let other = host.pins("other");
    let mut foreign = Datapath::load(object, &small_sizes(), &other, &[]).unwrap();
    foreign.attach(&[attachment("two", NATIVE)]).unwrap();
    let (_, id) = in_force("two").unwrap();
    let error = host.load().unwrap().attach(&[attachment("two", NATIVE)]).unwrap_err();
    assert!(matches!(error, KernelError::ForeignProgram { program_id, .. } if program_id == id));
    assert!(!host.pins("main").exists());
    assert_eq!(in_force("two"), Some((XdpModeInForce::Native, id)));
}

#[test]
fn an_interface_that_does_not_exist_is_refused_with_those_that_do() {
    let host = host_with_pair();
    let mut datapath = host.load().unwrap();
    let error = datapath.attach(&[attachment("one", NATIVE), attachment("ones", NATIVE)]);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("\"ones\"") && text.contains("did you mean \"one\"?"), "{text}");
    assert!(text.contains("lo") && text.contains("two"), "{text}");
    assert_eq!(mode_in_force("one"), None);
    drop(datapath);
    assert_eq!(host.pinned(), [""; 0]);
}

#[test]
fn detach_leaves_nothing_and_says_what_it_removed() {
    let host = host_with_pair();
    let mut datapath = host.load().unwrap();
    let program = Program::Tc;
    datapath.attach(&[attachment("one", NATIVE), attachment("two", program)]).unwrap();
    let (_, id) = in_force("one").unwrap();
    drop(datapath);
    assert_eq!(mode_in_force("one"), Some(XdpModeInForce::Native), "it outlives its agent");

    let removed = detach(&host.pins("main")).unwrap();
    let texts: Vec<_> = removed.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], format!("detached program {id} from one (xdp)"));
    if has_tcx() {
        assert!(texts[1].starts_with("detached program ") && texts[1].ends_with("from two (tcx)"));
    } else {
        assert_eq!(texts[1], "detached from two (clsact)");
    }
    assert_eq!(texts[2], "unpinned 26 maps");
    assert_eq!(texts[3], format!("removed {}", host.pins("main").display()));
    assert_eq!(mode_in_force("one"), None);
    assert_eq!(host.pinned(), [""; 0]);
    assert_eq!(detach(&host.pins("main")).unwrap(), []);
}

#[test]
fn detach_works_while_the_agent_runs() {
    let host = host_with_pair();
    let mut datapath = host.load().unwrap();
    datapath.attach(&[attachment("one", GENERIC), attachment("two", Program::Tc)]).unwrap();
    detach(&host.pins("main")).unwrap();
    assert_eq!(mode_in_force("one"), None);
    assert_eq!(host.pinned(), [""; 0]);
    drop(datapath);
}

#[test]
fn a_new_agent_takes_the_links_of_a_dead_one_over_in_place() {
    let host = host_with_pair();
    // Without TCX there is no link for traffic control; its filter has a test of its own below.
    let (wanted, pins) = if has_tcx() {
        (
            vec![attachment("one", NATIVE), attachment("two", Program::Tc)],
            vec!["one-xdp", "two-tcx"],
        )
    } else {
        (vec![attachment("one", NATIVE)], vec!["one-xdp"])
    };
    let links = || -> Vec<(u32, u32)> {
        pins.iter().map(|pin| link(&host.pins("main").join("links").join(pin))).collect()
    };
    let mut dead = host.load().unwrap();
    dead.attach(&wanted).unwrap();
    let before = links();
    drop(dead);

    let mut datapath = host.load().unwrap();
    assert_eq!(links(), before, "in force until the new agent attaches");
    let attached = datapath.attach(&wanted).unwrap();
    assert!(attached.iter().all(|attached| attached.taken_over));
    let modes = [AttachedMode::XdpNative, AttachedMode::Tcx];
    assert!(attached.iter().map(|attached| attached.mode).eq(modes.into_iter().take(pins.len())));
    let after = links();
    for (before, after) in before.iter().zip(&after) {
        assert_eq!(after.0, before.0, "the same link");
        assert_ne!(after.1, before.1, "another program");
    }
    assert_eq!(in_force("one"), Some((XdpModeInForce::Native, after[0].1)));
}

#[test]
fn a_new_agent_changes_mode_and_drops_what_is_not_configured_any_more() {
    let host = host_with_pair();
    let mut dead = host.load().unwrap();
    dead.attach(&[attachment("one", NATIVE), attachment("two", NATIVE)]).unwrap();
    drop(dead);
    let mut datapath = host.load().unwrap();
    let attached = datapath.attach(&[attachment("one", GENERIC)]).unwrap();
    assert!(!attached[0].taken_over);
    assert_eq!(mode_in_force("one"), Some(XdpModeInForce::Generic));
    assert_eq!(mode_in_force("two"), None);
    assert!(!host.pins("main").join("links/two-xdp").exists());
}

#[test]
fn a_link_whose_interface_went_away_is_replaced() {
    let host = host_with_pair();
    let mut dead = host.load().unwrap();
    dead.attach(&[attachment("one", NATIVE)]).unwrap();
    drop(dead);
    ip("link del one");
    ip("link add one type veth peer name two");
    let mut datapath = host.load().unwrap();
    let attached = datapath.attach(&[attachment("one", NATIVE)]).unwrap();
    assert!(!attached[0].taken_over);
    assert_eq!(mode_in_force("one"), Some(XdpModeInForce::Native));
    drop(datapath);
    ip("link del one");
    detach(&host.pins("main")).unwrap();
    assert_eq!(host.pinned(), [""; 0]);
}

#[test]
fn an_interface_with_a_dot_is_attached_and_detached() {
    let host = host_with_pair();
    // Kernels before 6.2 rename no interface that is up.
    ip("link set one down");
    ip("link set one name one.100");
    ip("link set one.100 up");
    let mut datapath = host.load().unwrap();
    datapath.attach(&[attachment("one.100", NATIVE)]).unwrap();
    assert_eq!(mode_in_force("one.100"), Some(XdpModeInForce::Native));
    let removed = detach(&host.pins("main")).unwrap();
    assert!(removed[0].to_string().ends_with(" from one.100 (xdp)"), "{removed:?}");
    assert_eq!(mode_in_force("one.100"), None);
}

#[test]
fn an_instance_with_a_dot_is_refused_with_the_reason() {
    let host = host_with_pair();
    let object = object().unwrap();
    let error = Datapath::load(object, &small_sizes(), &host.pins("a.b"), &[]);
    let text = error.unwrap_err().to_string();
    assert!(text.contains("no names with a dot, as \"a.b\" has"), "{text}");
    assert_eq!(host.pinned(), [""; 0]);
}

#[test]
fn two_agents_of_one_instance_are_refused_and_two_instances_are_not() {
    let host = host_with_pair();
    let first = host.load().unwrap();
    let error = host.load().unwrap_err();
    assert!(matches!(error, KernelError::Running { .. }), "{error}");
    assert!(error.to_string().contains("--instance"), "{error}");
    let object = object().unwrap();
    Datapath::load(object, &small_sizes(), &host.pins("other"), &[]).unwrap();
    assert!(first.board().is_ok(), "the first one is untouched");
}

#[test]
fn a_failed_start_leaves_what_a_dead_agent_left() {
    let host = host_with_pair();
    let mut dead = host.load().unwrap();
    dead.attach(&[attachment("one", NATIVE)]).unwrap();
    drop(dead);
    let flows = host.pins("main").join("maps/FLOWS_V4");
    let before = (host.pinned(), in_force("one"), map_id(&flows));

    let object = object().unwrap();
    let sizes = Sizes { backends: 1 << 21, ..small_sizes() };
    let error = Datapath::load(object, &sizes, &host.pins("main"), &[]).unwrap_err();
    assert!(error.to_string().contains("2097152 backends"), "{error}");
    let garbage = b"not an object";
    let error = Datapath::load(garbage, &small_sizes(), &host.pins("main"), &FLOW_MAPS);
    let text = error.unwrap_err().to_string();
    assert!(text.starts_with("cannot load the eBPF programs: ") && !text.contains('\n'), "{text}");
    let mut datapath = host.load().unwrap();
    datapath.attach(&[attachment("nothing", NATIVE)]).unwrap_err();
    drop(datapath);
    assert_eq!((host.pinned(), in_force("one"), map_id(&flows)), before);
}

#[test]
fn flow_entries_are_kept_when_asked_for_and_when_their_room_is_unchanged() {
    let host = host_with_pair();
    let mut dead = host.load().unwrap();
    dead.attach(&[]).unwrap();
    drop(dead);
    let (v4, targets) =
        (host.pins("main").join("maps/FLOWS_V4"), host.pins("main").join("maps/TARGETS"));
    let before = (map_id(&v4), map_id(&targets));
    let flow_maps = || FLOW_MAPS.map(|name| map_id(&host.pins("main").join("maps").join(name)));
    let flow_maps_before = flow_maps();
    let object = object().unwrap();
    let mut kept = Datapath::load(object, &small_sizes(), &host.pins("main"), &FLOW_MAPS).unwrap();
    kept.attach(&[]).unwrap();
    assert_eq!(map_id(&v4), before.0);
    assert_eq!(flow_maps(), flow_maps_before);
    assert_ne!(map_id(&targets), before.1);
    drop(kept);
    let sizes = Sizes { flows: 2048, ..small_sizes() };
    let grown = Datapath::load(object, &sizes, &host.pins("main"), &FLOW_MAPS).unwrap();
    assert_ne!(map_id(&v4), before.0);
    drop(grown);
}

#[test]
fn without_tcx_a_filter_is_attached_taken_over_and_removed() {
    let host = host_with_pair();
    let filters = || {
        let output = std::process::Command::new("tc")
            .args(["filter", "show", "dev", "one", "ingress"])
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().filter(|line| line.contains("sickbay_tc")).count()
    };
    for taken_over in [false, true] {
        let mut datapath = host.load().unwrap();
        datapath.set_tc_hook(TcHook::Clsact);
        let attached = datapath.attach(&[attachment("one", Program::Tc)]).unwrap();
        assert_eq!(attached[0].mode, AttachedMode::Clsact);
        assert_eq!(attached[0].taken_over, taken_over);
        drop(datapath);
        assert_eq!(filters(), 1, "it outlives its agent, once");
    }
    let removed = detach(&host.pins("main")).unwrap();
    assert_eq!(removed[0].to_string(), "detached from one (clsact)");
    assert_eq!(filters(), 0);
    assert_eq!(host.pinned(), [""; 0]);
}
