//! One version of the kernel object in the place of another, under traffic: nothing is lost, and a
//! version that will not do is refused or taken back before it does harm.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking; the lint spares only the #[test] functions themselves"
)]

/// A version that does not do what it is to do.
mod broken;
/// What every failure says of what stays attached.
mod by_hand;
/// What was left has another layout.
mod layout;
/// iperf3 goes on while versions change, and loses nothing.
mod lossless;
/// Flow entries go along to a map of another size.
mod moving;

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use sickbay::kernel::syscall;
use sickbay_lab::agent::Launch;
use sickbay_lab::private;
use sickbay_lab::stage::Stage;

/// The object of an earlier commit, which `cargo xtask earlier-object` made, unpacked.
fn earlier_object() -> PathBuf {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/earlier.bpf.o.gz");
    let unpacked = private::scratch().join("earlier.bpf.o");
    if !unpacked.exists() {
        let done = Command::new("gzip").arg("-dc").arg(&packed).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        std::fs::write(&unpacked, done.stdout).unwrap();
    }
    unpacked
}

/// A broken variant of today's, which `cargo xtask build-ebpf` made.
fn variant(name: &str) -> PathBuf {
    private::target_directory().unwrap().join("bpf").join(format!("{name}.bpf.o"))
}

/// How an agent is started that leaves what it attached, with this object in place of its own.
fn keeping(object: Option<PathBuf>) -> Launch {
    Launch { object, keeps: true, ..Launch::default() }
}

/// The pinned links of the stage's agent: by name, the link's id and its program's.
fn links(stage: &Stage) -> BTreeMap<String, (u32, u32)> {
    pinned(&stage.agent.pin_directory().join("links"), |path| {
        let info = syscall::link_info(syscall::pinned(path).unwrap().as_fd()).unwrap();
        (info.id, info.program_id)
    })
}

/// What `look` makes of each pin in a folder, by name.
fn pinned<T>(folder: &Path, look: impl Fn(&Path) -> T) -> BTreeMap<String, T> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    entries.map(|path| (name(&path), look(&path))).collect()
}

/// Starts the agent again, which must fail; what it said since.
#[track_caller]
fn refused(stage: &mut Stage) -> String {
    stage.agent.start_in_vain().unwrap()
}
