//! A private host for one test: network namespace, interfaces, BPF file system.
//!
//! Namespaces belong to the thread that makes them, and each test has a thread of its own, so
//! tests run side by side and all they made is gone when their thread ends.

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use sickbay::fleet::{Attachment, Program};
use sickbay::kernel::syscall::{link_info, pinned};
use sickbay::kernel::{Datapath, KernelError, Sizes, object};
use sickbay::netlink::{XdpModeInForce, interfaces};

/// Network and mounts of the calling thread, apart from everybody else's.
#[derive(Debug)]
pub struct PrivateHost {
    directory: tempfile::TempDir,
}

impl PrivateHost {
    /// Gives this thread its own network namespace, and its own BPF file system.
    ///
    /// # Panics
    ///
    /// Without the privilege to do so: tests that need a kernel fail where they cannot run.
    #[expect(clippy::new_without_default, reason = "it changes the thread, it makes no value")]
    #[must_use]
    pub fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
            .expect("root, to make private namespaces: run `cargo xtask test` as root");
        let none: Option<&str> = None;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .expect("root may make its mounts private");
        let directory = tempfile::tempdir().expect("a temporary directory");
        mount(Some("bpf"), directory.path(), Some("bpf"), MsFlags::empty(), none)
            .expect("the kernel has a BPF file system");
        ip("link set lo up");
        Self { directory }
    }

    /// The root of this thread's BPF file system.
    #[must_use]
    pub fn bpf(&self) -> &Path {
        self.directory.path()
    }

    /// The pin directory of the instance `name`.
    #[must_use]
    pub fn pins(&self, name: &str) -> PathBuf {
        self.bpf().join("sickbay").join(name)
    }

    /// Loads the embedded object for the instance `main`.
    ///
    /// # Errors
    ///
    /// What [`Datapath::load`] says.
    pub fn load(&self) -> Result<Datapath, KernelError> {
        let object = object().expect("built with the object: run `cargo xtask build-ebpf`");
        Datapath::load(object, &small_sizes(), &self.pins("main"), &[])
    }

    /// Everything on the BPF file system, relative to its root.
    #[must_use]
    pub fn pinned(&self) -> Vec<String> {
        fn walk(root: &Path, folder: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).expect("a folder of our own") {
                let path = entry.expect("a folder of our own").path();
                let name = path.strip_prefix(root).expect("below the root");
                found.push(name.to_string_lossy().into_owned());
                if path.is_dir() {
                    walk(root, &path, found);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.bpf(), self.bpf(), &mut found);
        // The kernel puts these into the root of each file system it mounts by itself.
        found.retain(|name| name != "maps.debug" && name != "progs.debug");
        found.sort_unstable();
        found
    }
}

impl Drop for PrivateHost {
    fn drop(&mut self) {
        // The mount goes with the thread's namespace anyhow; without this the directory under it
        // could not be removed.
        if let Err(errno) = nix::mount::umount2(self.bpf(), nix::mount::MntFlags::MNT_DETACH) {
            eprintln!("umount {}: {errno}", self.bpf().display());
        }
    }
}

/// Maps as small as tests need.
#[must_use]
pub fn small_sizes() -> Sizes {
    Sizes {
        shards: 2,
        backends: 128,
        targets: 128,
        services: 4,
        slots: 4096,
        pools: 2,
        flows: 1024,
        service_keys: 4,
        ..Sizes::default()
    }
}

/// An attachment to `interface`.
#[must_use]
pub fn attachment(interface: &str, program: Program) -> Attachment {
    Attachment { interface: interface.to_owned(), program }
}

/// A host with a pair of veth interfaces, `one` and `two`.
#[must_use]
pub fn host_with_pair() -> PrivateHost {
    let host = PrivateHost::new();
    ip("link add one type veth peer name two");
    ip("link set one up");
    ip("link set two up");
    host
}

/// Mode and program id of XDP that the kernel tells of an interface.
///
/// # Panics
/// When there is no such interface.
#[must_use]
pub fn in_force(interface: &str) -> Option<(XdpModeInForce, u32)> {
    let all = interfaces().expect("the kernel lists its interfaces");
    let found = all.iter().find(|found| found.name == interface).expect("it is one of them");
    found.xdp.map(|xdp| (xdp.mode, xdp.program_id))
}

/// Id and program of the link pinned at `pin`.
///
/// # Panics
/// When no link is pinned there.
#[must_use]
pub fn link(pin: &Path) -> (u32, u32) {
    let link = pinned(pin).expect("something is pinned there");
    let info = link_info(link.as_fd()).expect("it is a link");
    (info.id, info.program_id)
}

/// Runs `ip` with these arguments in the calling thread's network namespace.
///
/// # Panics
///
/// When it fails.
#[track_caller]
pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.expect("iproute2 is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Another host: a thread with a network namespace of its own, which waits until dropped.
#[derive(Debug)]
pub struct Neighbour {
    /// Path of its network namespace, for `ip link set … netns`.
    pub namespace: String,
    work: Option<mpsc::Sender<String>>,
    done: mpsc::Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Neighbour {
    /// Makes the namespace.
    ///
    /// # Panics
    ///
    /// Without the privilege to do so.
    #[must_use]
    pub fn start() -> Self {
        let (work, take_work) = mpsc::channel::<String>();
        let (tell_done, done) = mpsc::channel();
        let (tell_thread, thread_id) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).expect("root, to make private namespaces");
            tell_thread.send(nix::unistd::gettid()).expect("the test waits for it");
            while let Ok(arguments) = take_work.recv() {
                ip(&arguments);
                tell_done.send(()).expect("the test waits for it");
            }
        });
        let thread_id = thread_id.recv().expect("the thread made its namespace");
        Self {
            namespace: format!("/proc/{}/task/{thread_id}/ns/net", std::process::id()),
            work: Some(work),
            done,
            thread: Some(thread),
        }
    }

    /// Runs `ip` with these arguments over there.
    ///
    /// # Panics
    ///
    /// When it fails.
    pub fn ip(&self, arguments: &str) {
        let work = self.work.as_ref().expect("it runs until dropped");
        work.send(arguments.to_owned()).expect("it runs until dropped");
        self.done.recv().unwrap_or_else(|_| panic!("ip {arguments} failed over there"));
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.work.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            eprintln!("a command failed in {}", self.namespace);
        }
    }
}

/// Waits until `reached`, which must come true within `limit`.
///
/// # Panics
///
/// When it does not.
#[track_caller]
pub fn wait_until(what: &str, limit: Duration, mut reached: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !reached() {
        assert!(Instant::now() < end, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
