//! The kernel, out of the distribution's package. Unpacked beside the build, never installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::RELEASE;

/// The package that depends on the newest kernel of Debian 12 for virtual machines.
const META_PACKAGE: &str = "linux-image-cloud-amd64";
/// Modules that the tests use, in the order they are loaded.
const MODULES: [&str; 4] = [
    "kernel/drivers/net/veth.ko",
    "kernel/net/sched/sch_ingress.ko",
    "kernel/net/sched/cls_bpf.ko",
    "kernel/net/sched/act_bpf.ko",
];

/// An unpacked kernel.
pub(super) struct Kernel {
    /// The image that boots.
    pub(super) image: PathBuf,
    /// The modules, in the order they are loaded.
    pub(super) modules: Vec<PathBuf>,
}

/// The kernel, downloaded and unpacked below `directory` unless it is there.
///
/// # Errors
/// When the package archive has none of [`RELEASE`], or it cannot be fetched or unpacked.
pub(super) fn unpack(directory: &Path) -> Result<Kernel> {
    let package = package()?;
    let place = directory.join(&package);
    let done = place.join("unpacked");
    if !done.exists() {
        // What a run that was broken off left.
        if place.exists() {
            fs::remove_dir_all(&place)?;
        }
        fs::create_dir_all(&place).with_context(|| format!("creating {}", place.display()))?;
        download(&package, &place)?;
        fs::write(&done, "")?;
    }
    let version = package.trim_start_matches("linux-image-");
    let modules = place.join("lib/modules").join(version);
    Ok(Kernel {
        image: place.join("boot").join(format!("vmlinuz-{version}")),
        modules: MODULES.iter().map(|module| modules.join(module)).collect(),
    })
}

/// The package that [`META_PACKAGE`] stands for now.
fn package() -> Result<String> {
    let output = Command::new("apt-cache")
        .args(["depends", "--important", META_PACKAGE])
        .output()
        .context("cannot start apt-cache, which finds the kernel's package")?;
    let text = String::from_utf8_lossy(&output.stdout);
    named(&text).map(str::to_owned).with_context(|| {
        format!(
            "{META_PACKAGE} stands for no kernel {RELEASE} here, which is Debian 12's own; \
             mend: apt-get update, or name the other suites to run them"
        )
    })
}

/// The kernel package that `apt-cache depends` names.
fn named(text: &str) -> Option<&str> {
    let wanted = format!("linux-image-{RELEASE}.");
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|package| package.starts_with(&wanted))
}

fn download(package: &str, place: &Path) -> Result<()> {
    println!("$ apt-get download {package}");
    run(Command::new("apt-get").args(["download", "--quiet", package]).current_dir(place))?;
    let archive = fs::read_dir(place)?
        .map(|entry| entry.map(|entry| entry.path()))
        .find(|path| path.as_ref().is_ok_and(|path| path.extension() == Some("deb".as_ref())))
        .with_context(|| format!("apt-get left no package in {}", place.display()))??;
    run(Command::new("dpkg-deb").arg("--extract").arg(&archive).arg(place))?;
    fs::remove_file(archive)?;
    Ok(())
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_owned();
    let status = command.status().with_context(|| format!("cannot start {}", name.display()))?;
    ensure!(status.success(), "{} failed ({status})", name.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_of_the_release_is_found() {
        let text = "linux-image-cloud-amd64\n  Depends: linux-image-6.1.0-57-cloud-amd64\n";
        assert_eq!(named(text), Some("linux-image-6.1.0-57-cloud-amd64"));
    }

    #[test]
    fn kernel_of_another_release_is_not_taken_for_it() {
        for text in ["  Depends: linux-image-6.12.0-1-cloud-amd64\n", ""] {
            assert_eq!(named(text), None);
        }
    }
}
