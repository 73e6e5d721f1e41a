//! What a confined thread can do no more: the same that `sickbay run` gives up, given up by a
//! thread of this test, since all of it is a thread's own.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::process::Command;
use std::thread;

use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use sickbay::confine::{self, DENIED, Held, KEPT, Places, Privilege};
use tempfile::TempDir;

/// A directory to read, one to write, and one that nobody was told of; a file in each.
struct Ground {
    root: TempDir,
}

impl Ground {
    fn new() -> Self {
        let ground = Self { root: tempfile::tempdir().expect("a directory") };
        for name in ["read", "written", "other"] {
            fs::create_dir(ground.at(name)).expect("a directory");
            fs::write(ground.at(name).join("file"), name).expect("a file");
        }
        ground
    }

    fn at(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// What a thread that is confined to this ground makes of `attempt`.
    fn confined<T: Send>(&self, privilege: &Privilege, attempt: impl FnOnce() -> T + Send) -> T {
        let written = vec![self.at("written")];
        let places = Places { read: vec![self.at("read")], written, removed: Vec::new() };
        thread::scope(|scope| {
            let confined = scope.spawn(|| {
                confine::confine(privilege, &places).expect("it can be given up");
                attempt()
            });
            confined.join().expect("the attempt reports")
        })
    }
}

fn held() -> Held {
    let status = fs::read_to_string("/proc/thread-self/status").expect("/proc is read");
    Held::parse(&status).expect("every supported kernel tells")
}

#[test]
fn confined_thread_holds_no_more_than_the_list() {
    let listed = KEPT.iter().fold(0, |mask, (capability, _)| mask | capability.bitmask());
    let before = held();
    let may_drop = before.effective >> 8 & 1 == 1;
    let (own, heir) = Ground::new().confined(&Privilege::default(), || {
        // glibc is told that there is no clone3, and starts threads all the same.
        (held(), thread::spawn(held).join().expect("it reports"))
    });
    assert_eq!(own, heir, "a thread that it starts");
    assert_eq!(own.effective, before.effective & listed);
    if may_drop {
        assert_eq!(own.bounding, listed & before.bounding);
    }
    assert!(own.no_new_privileges);
    assert_eq!(own.seccomp, 2);
    assert_eq!(held(), before, "the thread that is not confined");
}

#[test]
fn confined_thread_reaches_its_own_files_alone() {
    let ground = Ground::new();
    let file = |name: &str| ground.at(name).join("file");
    ground.confined(&Privilege::default(), || {
        let refused = |done: io::Result<()>| done.expect_err("out of reach").kind();
        assert_eq!(fs::read_to_string(file("read")).expect("to be read"), "read");
        assert_eq!(refused(fs::write(file("read"), "x")), ErrorKind::PermissionDenied);
        assert_eq!(refused(fs::read(file("other")).map(drop)), ErrorKind::PermissionDenied);
        assert_eq!(refused(fs::read_dir("/").map(drop)), ErrorKind::PermissionDenied);
        assert_eq!(refused(fs::write(ground.at("new"), "x")), ErrorKind::PermissionDenied);
        let new = ground.at("written").join("new");
        fs::write(&new, "x").expect("to be written");
        fs::rename(&new, file("written")).expect("to be moved");
        fs::remove_file(file("written")).expect("to be removed");
        fs::read_dir("/sys").expect("what the kernel tells");
        fs::read_to_string("/proc/self/stat").expect("its own state");
    });
}

#[test]
fn confined_thread_runs_no_program() {
    let ground = Ground::new();
    let program = Command::new("/bin/true").status().expect("it is there");
    assert!(program.success());
    let error = ground.confined(&Privilege::default(), || {
        Command::new("/bin/true").status().expect_err("nothing is run").kind()
    });
    assert_eq!(error, ErrorKind::PermissionDenied);
}

#[test]
fn every_denied_call_is_refused_by_the_filter_alone() {
    let seccomp_alone =
        Privilege { drop_capabilities: false, landlock: false, ..Privilege::default() };
    // This one anybody may make: without a filter it succeeds.
    unshare(CloneFlags::CLONE_FS).expect("it shares nothing that others need");
    Ground::new().confined(&seccomp_alone, || {
        assert_eq!(unshare(CloneFlags::CLONE_FS), Err(Errno::EPERM));
        for (name, number) in DENIED.iter().flat_map(|denied| denied.calls) {
            assert_eq!(raw(*number), Errno::EPERM, "{name}");
        }
        assert_eq!(raw(libc::SYS_clone3), Errno::ENOSYS);
    });
}

#[test]
fn what_is_switched_off_is_not_given_up() {
    let nothing = Privilege {
        drop_capabilities: false,
        seccomp: false,
        landlock: false,
        ..Privilege::default()
    };
    let ground = Ground::new();
    let before = held();
    let after = ground.confined(&nothing, || {
        fs::read(ground.at("other").join("file")).expect("every file");
        held()
    });
    assert_eq!(after, Held { no_new_privileges: true, ..before });
}

/// The system call of this number, which must fail, with arguments that no call takes.
#[expect(unsafe_code, reason = "calls are made by number, whether libc has a function or not")]
fn raw(number: i64) -> Errno {
    // SAFETY: -1 is no address, no descriptor and no command: a call that got through would read
    // and write no memory of this process.
    let result = unsafe { libc::syscall(number, -1, -1, -1, -1, -1, -1) };
    assert_eq!(result, -1, "call {number} got through");
    Errno::last()
}
