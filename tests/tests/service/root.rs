//! A root file system to install the package in: this machine's, with a layer of memory over it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use nix::mount::{MsFlags, mount};
use sickbay_lab::agent::binary;
use sickbay_lab::private;

/// This machine's root under a layer of memory. The mounts go with the private environment.
pub(crate) struct Root(PathBuf);

impl Root {
    /// One of its own for whoever is called `name`.
    pub(crate) fn new(name: &str) -> Self {
        private::require();
        let scratch = private::scratch().join(format!("root-of-{name}"));
        let [root, upper, work] = ["root", "upper", "work"].map(|name| scratch.join(name));
        for directory in [&root, &upper, &work] {
            std::fs::create_dir_all(directory).unwrap();
        }
        let layers = format!("lowerdir=/,upperdir={},workdir={}", upper.display(), work.display());
        let flags = MsFlags::empty();
        mount(Some("overlay"), &root, Some("overlay"), flags, Some(layers.as_str())).unwrap();
        // Images of containers leave manuals and documents out.
        let rules = root.join("etc/dpkg/dpkg.cfg.d");
        for rule in std::fs::read_dir(rules).unwrap() {
            std::fs::remove_file(rule.unwrap().path()).unwrap();
        }
        Self(root)
    }

    /// Shows it what this process sees of devices, processes and the kernel.
    pub(crate) fn share_kernel_mounts(&self) {
        for directory in ["dev", "proc", "sys"] {
            let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
            let from = Path::new("/").join(directory);
            mount(Some(&from), &self.path(directory), None::<&str>, flags, None::<&str>).unwrap();
        }
    }

    pub(crate) fn try_run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("chroot");
        command.arg(&self.0).args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").output().unwrap()
    }

    #[track_caller]
    pub(crate) fn run(&self, words: &[&str]) -> String {
        let output = self.try_run(words);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {error}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap()
    }
}

/// The binary that the tests run, packed once; it has the object in it as the release has.
pub(crate) fn package() -> &'static Path {
    static PACKAGE: OnceLock<PathBuf> = OnceLock::new();
    PACKAGE.get_or_init(pack)
}

fn pack() -> PathBuf {
    let output = private::scratch().join("dist");
    let binary = binary().unwrap();
    let xtask = binary.with_file_name("xtask");
    let mut command = Command::new(xtask);
    command.arg("dist").arg("--binary").arg(&binary).arg("--output").arg(&output);
    let packed = command.output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let found = std::fs::read_dir(output).unwrap().map(|entry| entry.unwrap().path());
    let packages: Vec<PathBuf> = found.collect();
    assert_eq!(packages.len(), 1, "the package alone: {packages:?}");
    packages[0].clone()
}
