//! The package under a real systemd, the first process of a PID namespace of its own: its sandbox,
//! its groups, its watchdog and its restarts, while a client goes on connecting.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use nix::unistd::Pid;
use serde_json::Value;
use sickbay_lab::clock::wait_until;
use sickbay_lab::configuration::Configuration;
use sickbay_lab::load::{Load, Plan};
use sickbay_lab::network::{Family, Network};
use sickbay_lab::nginx::Nginx;
use sickbay_lab::private;
use sickbay_lab::record::Flow;
use sickbay_lab::stage::serve;
use sickbay_tests::datapath::link;
use sickbay_tests::figures::show;

use super::root::{Root, package};

/// A boot, a start and a restart are over by then, busy as the machine may be.
const PATIENCE: Duration = Duration::from_secs(60);
/// A group that every Debian has; its number (base-passwd).
const GROUP: &str = "games";
const GROUP_NUMBER: &str = "60";
/// A user in no group.
const USER: &str = "54321";
/// Where units are that come before those of packages.
const UNITS: &str = "etc/systemd/system";
/// What the units of packages are wanted by is not wanted here: some of them set the kernel's own
/// values, which are not this namespace's.
const WANTED: [(&str, &str); 3] = [
    ("sysinit.target", "systemd-journald.service"),
    ("sockets.target", "systemd-journald.socket"),
    ("sockets.target", "systemd-journald-dev-log.socket"),
];
const CONFIGURATION: &str = "etc/sickbay/sickbay.toml";
const DROP_IN: &str = "etc/systemd/system/sickbay.service.d";
/// Given to a watchdog's abort, which a stopped process does not hear: the unit's own time is 20 s.
const QUICK: &str = "[Service]\nWatchdogSec=5s\nTimeoutAbortSec=1s\n";

/// What systemd needs of the kernel before it is started; `$1` is its root.
const BOOT: &str = "
mount -t proc proc $1/proc
mount -t sysfs sysfs $1/sys
mount -t cgroup2 cgroup2 $1/sys/fs/cgroup
mount -t bpf bpf $1/sys/fs/bpf
mount -t tmpfs tmpfs $1/run
mount -t tmpfs tmpfs $1/tmp
mount -t tmpfs tmpfs $1/dev
mkdir $1/dev/shm $1/dev/pts $1/dev/mqueue $1/dev/hugepages
mount -t devpts devpts $1/dev/pts
ln -s pts/ptmx $1/dev/ptmx
for device in null zero full random urandom tty; do cp -a /dev/$device $1/dev/; done
exec env -i container=lab PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot $1 /lib/systemd/systemd --system
";

/// A host that systemd has booted, with the package installed. Dropping it switches it off.
struct Host {
    keeper: Child,
    systemd: Pid,
    _servers: Vec<Option<Nginx>>,
    network: Network,
}

impl Host {
    fn boot() -> Self {
        private::require();
        let root = Root::new("systemd");
        for units in [UNITS, "usr/lib/systemd/system"] {
            let entries = std::fs::read_dir(root.path(units)).unwrap();
            let paths = entries.map(|entry| entry.unwrap().path());
            for path in paths.filter(|path| path.extension().is_some_and(|it| it == "wants")) {
                std::fs::remove_dir_all(path).unwrap();
            }
        }
        let units = root.path(UNITS);
        symlink("/usr/lib/systemd/system/basic.target", units.join("default.target")).unwrap();
        for (target, unit) in WANTED {
            let wants = units.join(format!("{target}.wants"));
            std::fs::create_dir_all(&wants).unwrap();
            symlink(format!("/usr/lib/systemd/system/{unit}"), wants.join(unit)).unwrap();
        }
        let network = Network::new(2).unwrap();
        let servers = serve(&network);
        let mut unshare = Command::new("unshare");
        unshare.args(["--pid", "--mount", "--cgroup", "--ipc", "--uts", "--fork"]);
        unshare.args(["--kill-child=SIGKILL", "--", "sh", "-ec", BOOT, "boot"]).arg(root.path(""));
        unshare.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let keeper = network.host.namespace.spawn(&mut unshare).unwrap();
        let children = format!("/proc/{0}/task/{0}/children", keeper.id());
        let systemd = wait_until("the first process is there", PATIENCE, || {
            std::fs::read_to_string(&children).ok()?.split_whitespace().next()?.parse().ok()
        });
        let systemd = Pid::from_raw(systemd.unwrap());
        let host = Self { keeper, systemd, _servers: servers, network };
        wait_until("systemd has booted", PATIENCE, || {
            let state = host.try_run(&["systemctl", "is-system-running"]);
            (state.stdout == b"running\n").then_some(())
        })
        .unwrap();
        host
    }

    fn try_run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("nsenter");
        command.args(["--target", &self.systemd.to_string(), "--root", "--wd=/"]);
        command.args(["--pid", "--mount", "--net", "--cgroup", "--ipc", "--uts", "--"]);
        command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap()
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}\n{}", self.journal());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What a command said that had to fail.
    #[track_caller]
    fn refused(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        assert!(!output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    fn journal(&self) -> String {
        let words = ["journalctl", "--no-pager", "--unit", "sickbay*", "--output", "cat"];
        String::from_utf8(self.try_run(&words).stdout).unwrap()
    }

    /// A file as the booted system sees it.
    fn path(&self, path: &str) -> PathBuf {
        Path::new("/proc").join(self.systemd.to_string()).join("root").join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Changes the unit by a drop-in of this name.
    fn drop_in(&self, name: &str, text: &str) {
        self.write(&format!("{DROP_IN}/{name}.conf"), text);
        self.run(&["systemctl", "daemon-reload"]);
    }

    fn property(&self, name: &str) -> String {
        let value = self.run(&["systemctl", "show", "--value", "--property", name, "sickbay"]);
        value.trim_end().to_owned()
    }

    /// Waits until another process than this one is ready; its number.
    #[track_caller]
    fn wait_for_another_than(&self, process: &str) -> String {
        let ready = || {
            let now = self.property("MainPID");
            let active = self.property("ActiveState") == "active";
            (active && now != process && now != "0").then_some(now)
        };
        match wait_until("another process is ready", PATIENCE, ready) {
            Ok(now) => now,
            Err(error) => panic!("{error}\n{}", self.journal()),
        }
    }

    #[track_caller]
    fn wait_for_healthy(&self) {
        let healthy = || {
            let status = self.try_run(&["sickbay", "status", "--output", "json"]).stdout;
            let status: Value = serde_json::from_slice(&status).ok()?;
            (status["healthy_count"] == 2).then_some(())
        };
        wait_until("two backends are healthy", PATIENCE, healthy)
            .unwrap_or_else(|error| panic!("{error}\n{}", self.journal()));
    }

    /// `sickbay` as a user who is in these groups.
    fn as_user(&self, groups: &[&str], words: &[&str]) -> Output {
        let mut all = vec!["setpriv", "--reuid", USER, "--regid", USER];
        all.extend(groups);
        all.extend(["--", "sickbay"]);
        all.extend(words);
        self.try_run(&all)
    }

    /// The program of the one link that is pinned.
    fn program(&self) -> u32 {
        let links = self.path("sys/fs/bpf/sickbay/default/links");
        let pins = std::fs::read_dir(links).unwrap().map(|entry| entry.unwrap().path());
        let [pin] = &pins.collect::<Vec<PathBuf>>()[..] else { panic!("one interface, one link") };
        link(pin).1
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // unshare takes its child along, and that one all others of its namespace.
        let _ended = self.keeper.kill();
        let _ended = self.keeper.wait();
    }
}

/// The usual configuration as an operator has it: everything where the unit expects it.
fn configuration(network: &Network) -> String {
    let usual = Configuration {
        instance: "default".to_owned(),
        agent: format!("read_group = \"{GROUP}\"\n"),
        ..Configuration::usual()
    };
    let text = usual.text(network);
    let directories = ["pin_directory", "run_directory", "state_directory"];
    let lines = text.lines().filter(|line| !directories.iter().any(|key| line.starts_with(key)));
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
fn package_under_systemd_starts_reloads_is_restarted_and_goes_while_clients_connect() {
    let host = Host::boot();
    std::fs::copy(package(), host.path("sickbay.deb")).unwrap();
    host.run(&["rm", "-r", "/etc/dpkg/dpkg.cfg.d"]);
    host.run(&["dpkg", "--install", "/sickbay.deb"]);
    host.write(CONFIGURATION, &configuration(&host.network));
    host.drop_in("quick", QUICK);
    not_of_the_group_is_refused_and_says_what_to_do(&host);
    host.drop_in("readers", &format!("[Service]\nSupplementaryGroups={GROUP}\n"));
    host.run(&["systemctl", "restart", "sickbay"]);
    host.wait_for_healthy();
    let vip = Network::vip(Family::V4);
    // A packet that a busy machine drops comes again after a second, and is not what this is about.
    let plan = Plan { timeout: PATIENCE, ..Plan::usual(vip) };
    let load = Load::start(&host.network.client.namespace, &plan);

    members_of_the_group_look(&host);
    reload_is_told_apart_from_one_that_is_refused(&host);
    version_that_fails_its_self_check_changes_nothing(&host);
    hung_and_killed_agents_are_started_again(&host);
    package_is_upgraded(&host);
    instance_of_the_template_runs_beside(&host);
    host.wait_for_healthy();
    let record = load.stop();
    let connections = record.short.len() + record.fixed.len();
    show(&format!("under systemd: {connections} connections, {} kept ones", record.kept.len()));
    let failures = record.failures(0, u64::MAX);
    assert!(failures.is_empty(), "{failures:#?}\n{}", host.journal());
    assert!(100 < connections && record.kept.iter().all(Flow::stayed));

    host.run(&["dpkg", "--remove", "sickbay"]);
    assert!(!host.path("sys/fs/bpf/sickbay").exists(), "everything is taken off");
    assert_eq!(host.run(&["systemctl", "is-system-running"]), "running\n");
}

/// A group that the unit does not give is no reason to run without it.
fn not_of_the_group_is_refused_and_says_what_to_do(host: &Host) {
    host.refused(&["systemctl", "start", "sickbay"]);
    host.run(&["systemctl", "stop", "sickbay"]);
    let remedy = format!("(systemd: SupplementaryGroups={GROUP})");
    assert!(host.journal().contains(&remedy), "{}", host.journal());
}

fn members_of_the_group_look(host: &Host) {
    let member = ["--groups", GROUP_NUMBER];
    for words in [&["status"][..], &["backend", "list"], &["history", "--since", "1h"]] {
        let output = host.as_user(&member, words);
        assert!(output.status.success() && !output.stdout.is_empty(), "{words:?}: {output:?}");
        let output = host.as_user(&["--clear-groups"], words);
        assert!(!output.status.success() && output.stdout.is_empty(), "{words:?}: {output:?}");
    }
    let changes = host.as_user(&member, &["backend", "drain", "web.backend-1"]);
    assert!(!changes.status.success());
}

fn reload_is_told_apart_from_one_that_is_refused(host: &Host) {
    let text = std::fs::read_to_string(host.path(CONFIGURATION)).unwrap();
    let process = host.property("MainPID");
    host.write(CONFIGURATION, &text.replace("threshold = 3", "threshold = 30"));
    host.refused(&["systemctl", "reload", "sickbay"]);
    host.write(CONFIGURATION, &text.replace("threshold = 3", "threshold = 2"));
    host.run(&["systemctl", "reload", "sickbay"]);
    host.wait_for_healthy();
    assert_eq!(
        (host.property("MainPID"), host.property("ActiveState")),
        (process, "active".into())
    );
}

/// The unit's own capabilities suffice to find out, and to leave everything as it is.
fn version_that_fails_its_self_check_changes_nothing(host: &Host) {
    let blind = private::target_directory().unwrap().join("bpf/blind.bpf.o");
    std::fs::copy(blind, host.path("usr/share/blind.bpf.o")).unwrap();
    let before = host.program();
    let run = "/usr/bin/sickbay run -c /etc/sickbay/sickbay.toml";
    let start = format!("[Service]\nExecStart=\nExecStart={run} --object /usr/share/blind.bpf.o\n");
    host.drop_in("worse", &start);
    host.refused(&["systemctl", "restart", "sickbay"]);
    assert_eq!(host.program(), before);
    assert!(host.journal().contains("failed their self-check"), "{}", host.journal());
    let errors = ["journalctl", "--no-pager", "--unit", "sickbay", "--priority", "err"];
    let errors = host.run(&errors);
    assert!(errors.contains("failed their self-check"), "it is told as an error: {errors}");
    std::fs::remove_file(host.path(&format!("{DROP_IN}/worse.conf"))).unwrap();
    host.run(&["systemctl", "daemon-reload"]);
    host.run(&["systemctl", "restart", "sickbay"]);
    assert_ne!(host.program(), before, "the next version steers");
    host.wait_for_healthy();
}

fn hung_and_killed_agents_are_started_again(host: &Host) {
    for (signal, result) in [("SIGSTOP", "watchdog"), ("SIGKILL", "signal")] {
        let process = host.property("MainPID");
        host.run(&["systemctl", "kill", "--kill-whom=main", "--signal", signal, "sickbay"]);
        let next = host.wait_for_another_than(&process);
        show(&format!("{signal} to {process}: systemd has started {next}"));
        let said = format!("Failed with result '{result}'");
        assert!(host.journal().contains(&said), "{said}: {}", host.journal());
        host.wait_for_healthy();
    }
}

fn package_is_upgraded(host: &Host) {
    let process = host.property("MainPID");
    host.run(&["dpkg", "--install", "/sickbay.deb"]);
    host.wait_for_another_than(&process);
    host.wait_for_healthy();
    assert!(host.journal().contains("taken up: 2 of 2 histories"), "{}", host.journal());
}

fn instance_of_the_template_runs_beside(host: &Host) {
    let probes =
        "[probe.tcp]\ntype = \"tcp\"\n[pool.edge]\nprobe = \"tcp\"\nbackends = [\"127.0.0.1:9\"]\n";
    host.write("etc/sickbay/edge.toml", probes);
    host.run(&["systemctl", "start", "sickbay@edge"]);
    let listed = host.run(&["sickbay", "backend", "list", "--instance", "edge"]);
    assert!(listed.contains("127.0.0.1:9"), "{listed}");
    host.run(&["systemctl", "reload", "sickbay@edge"]);
    host.run(&["systemctl", "stop", "sickbay@edge"]);
}
