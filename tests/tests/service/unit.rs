//! The unit file, and a process held to what it says without systemd: quicker than a boot.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use sickbay_lab::missing::only_system_calls;
use sickbay_tests::figures::show;

const UNIT: &str = include_str!("../../../agent/package/sickbay.service");
/// One of several instances.
const TEMPLATE: &str = include_str!("../../../agent/package/sickbay@.service");
/// What it says otherwise than [`UNIT`], key by key.
const OF_INSTANCE: [(&str, &str); 4] = [
    ("Description", "Probes backends and steers flows past sick ones in the kernel (%i)"),
    ("ConditionPathExists", "/etc/sickbay/%i.toml"),
    ("ExecStart", "/usr/bin/sickbay run -c /etc/sickbay/%i.toml --instance %i"),
    ("ExecReload", "/usr/bin/sickbay reload --instance %i"),
];
/// The worst that `systemd-analyze security` may say, of 10: what is left is root with three
/// capabilities, the host's network, and files that this user may read.
const EXPOSURE_MAX: f64 = 2.5;

/// The value of a key that stands once.
fn value(key: &str) -> &'static str {
    let values: Vec<&str> =
        UNIT.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect();
    assert_eq!(values.len(), 1, "{key} stands once");
    values[0]
}

/// `program` with no more capabilities and system calls than the unit gives.
pub(crate) fn confined(program: &OsStr) -> Command {
    let kept = value("CapabilityBoundingSet").split(' ');
    let kept = kept.map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()));
    let kept = kept.collect::<Vec<_>>().join(",");
    let mut command = Command::new("setpriv");
    command.args([&format!("--bounding-set=-all,{kept}"), "--no-new-privs", "--"]).arg(program);
    only_system_calls(&mut command, &allowed_numbers());
    command
}

/// The system calls of the unit's filter, by systemd's own sets.
fn allowed_numbers() -> Vec<u32> {
    let listed = printed(Command::new("systemd-analyze").args(["--no-pager", "syscall-filter"]));
    let sets = sets(&listed);
    let mut names = BTreeSet::new();
    let mut waiting: Vec<&str> = value("SystemCallFilter").split(' ').collect();
    while let Some(name) = waiting.pop() {
        if names.insert(name) && name.starts_with('@') {
            waiting.extend(&sets[name]);
        }
    }
    let numbers = numbers();
    let known: Vec<u32> = names.iter().filter_map(|name| numbers.get(*name).copied()).collect();
    assert!(100 < known.len(), "{names:?}");
    known
}

/// What each of systemd's sets has in it.
fn sets(listed: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut sets: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut current = "";
    for line in listed.lines().filter(|line| !line.trim_start().starts_with('#')) {
        if line.starts_with('@') {
            current = line.trim();
            sets.insert(current, Vec::new());
        } else if let (false, Some(members)) = (line.trim().is_empty(), sets.get_mut(current)) {
            members.push(line.trim());
        }
    }
    sets
}

/// This machine's numbers, as the kernel's header has them.
fn numbers() -> BTreeMap<String, u32> {
    let path = format!("/usr/include/{}-linux-gnu/asm/unistd_64.h", std::env::consts::ARCH);
    let header = std::fs::read_to_string(path).unwrap();
    let number = |line: &str| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    };
    header.lines().filter_map(number).collect()
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn confined_process_has_the_units_capabilities_and_system_calls() {
    let status = printed(confined(OsStr::new("cat")).arg("/proc/self/status"));
    let line = |key: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        found.trim_start_matches(':').trim().to_owned()
    };
    // CAP_NET_ADMIN is 12, CAP_PERFMON 38, CAP_BPF 39 (capability.h).
    let expected = format!("{:016x}", 1_u64 << 12 | 1 << 38 | 1 << 39);
    assert_eq!((line("CapBnd"), line("CapEff")), (expected.clone(), expected));
    assert_eq!((line("NoNewPrivs"), line("Seccomp")), ("1".to_owned(), "2".to_owned()));
    // To read the clock's state needs no capability, and is not in @system-service.
    let call = format!(
        "$state = \"\\0\" x 4096; exit(syscall({}, $state) < 0 ? $! : 0)",
        numbers()["adjtimex"]
    );
    let code = |mut command: Command| command.args(["-e", &call]).status().unwrap().code();
    assert_eq!(code(Command::new("perl")), Some(0));
    assert_eq!(code(confined(OsStr::new("perl"))), Some(nix::errno::Errno::EPERM as i32));
}

#[test]
fn unit_gives_the_capabilities_that_a_running_agent_keeps() {
    let given: BTreeSet<&str> = value("CapabilityBoundingSet").split(' ').collect();
    let kept = sickbay::confine::KEPT.map(|(capability, _)| capability.to_string());
    assert_eq!(given, kept.iter().map(String::as_str).collect());
}

#[test]
fn unit_is_little_exposed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/package/sickbay.service");
    let mut command = Command::new("systemd-analyze");
    let report = printed(command.args(["--no-pager", "security", "--offline=true"]).arg(path));
    let last = report.lines().rfind(|line| line.contains("Overall exposure level")).unwrap();
    let figure = last.split_whitespace().find_map(|word| word.parse::<f64>().ok()).unwrap();
    show(&format!("systemd-analyze security sickbay.service: {figure} of 10 (0 is best)"));
    assert!(figure <= EXPOSURE_MAX, "{report}");
}

#[test]
fn unit_of_an_instance_differs_in_its_names_alone() {
    let says = |unit: &'static str| {
        let lines = unit.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let mut wanted = says(UNIT);
    for (key, value) in OF_INSTANCE {
        let line = wanted.iter_mut().find(|line| line.starts_with(&format!("{key}="))).unwrap();
        *line = format!("{key}={value}");
    }
    assert_eq!(says(TEMPLATE), wanted);
    let instances = TEMPLATE.matches("%i").count();
    assert_eq!(instances, 5, "in no other place: {TEMPLATE}");
}

#[test]
fn unit_says_what_the_agent_relies_on() {
    assert_eq!(value("Type"), "notify");
    assert_eq!(value("ExecStart"), "/usr/bin/sickbay run -c /etc/sickbay/sickbay.toml");
    assert_eq!(value("ConditionPathExists"), "/etc/sickbay/sickbay.toml");
    let whole = |key| value(key).trim_end_matches('s').parse::<u64>().unwrap();
    assert!(1024 <= whole("LimitNOFILE") && 1 <= whole("WatchdogSec"));
    assert_eq!(value("LimitMEMLOCK"), "infinity");
}
