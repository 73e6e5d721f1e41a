//! The root file system: the test programs, what they start, the libraries of all of them, and a
//! start script; packed as the kernel unpacks it (cpio, "newc").

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::kernel::Kernel;
use super::{DONE, PROGRAMS};
use crate::build_ebpf;
use crate::test::programs::Built;

/// The steering programs.
const OBJECT: &str = "sickbay.bpf.o";
/// Of one piece, without libraries.
const BUSYBOX: &str = "/bin/busybox";
/// What test programs start.
const TOOLS: [&str; 3] = ["ip", "tc", "ethtool"];
/// Some fixtures' entries are so many seconds old; a machine that has just booted has no such past.
const PAST_SECONDS: u32 = 110;
/// As many descriptors as the tests on an ordinary machine may have.
const DESCRIPTORS: u32 = 20_000;

/// Packs everything into one file below `directory`.
///
/// # Errors
/// When something is missing, or cannot be copied.
pub(super) fn build(
    built: &Built,
    only: Option<&str>,
    kernel: &Kernel,
    directory: &Path,
) -> Result<PathBuf> {
    let root = directory.join("root");
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    for folder in ["bin", "dev", "modules", "proc", "run", "sys", "tests", "tmp", "usr/sbin"] {
        fs::create_dir_all(root.join(folder))?;
    }
    copy(Path::new(BUSYBOX), &root.join("bin/busybox"))?;
    let mut dynamic = Vec::new();
    for (name, _) in PROGRAMS {
        let program = built.programs.iter().find(|program| program.name == name);
        let program = program.with_context(|| format!("cargo built no test program {name}"))?;
        strip(&program.path, &root.join("tests").join(name))?;
        dynamic.push(program.path.clone());
    }
    for tool in TOOLS {
        let path = found(tool).with_context(|| format!("{tool} is not in PATH"))?;
        copy(&path, &root.join("usr/sbin").join(tool))?;
        dynamic.push(path);
    }
    for library in libraries(&dynamic)? {
        let to = root.join(library.strip_prefix("/").unwrap_or(&library));
        fs::create_dir_all(to.parent().context("a library has a folder")?)?;
        copy(&library, &to)?;
    }
    copy(&build_ebpf::object_path(OBJECT), &root.join("tests").join(OBJECT))?;
    for module in &kernel.modules {
        let name = module.file_name().context("a module has a name")?;
        copy(module, &root.join("modules").join(name))?;
    }
    let init = root.join("init");
    fs::write(&init, script(kernel, only))?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
    pack(&root, &directory.join("initrd"))
}

/// What runs as process 1.
fn script(kernel: &Kernel, only: Option<&str>) -> String {
    let mut script = format!(
        "#!{BUSYBOX} sh\n\
         {BUSYBOX} --install -s /bin\n\
         export PATH=/usr/sbin:/bin SICKBAY_EBPF_OBJECT=/tests/{OBJECT}\n\
         mount -t proc proc /proc\n\
         mount -t sysfs sys /sys\n\
         mount -t devtmpfs dev /dev\n\
         mount -t tmpfs run /run\n\
         mount -t tmpfs tmp /tmp\n\
         mount -t bpf bpf /sys/fs/bpf\n\
         ulimit -n {DESCRIPTORS}\n"
    );
    for module in &kernel.modules {
        if let Some(name) = module.file_name() {
            let _infallible = writeln!(script, "insmod /modules/{}", name.display());
        }
    }
    let _infallible = write!(
        script,
        "ip link set lo up\n\
         echo \"kernel $(uname -r)\"\n\
         sleep {PAST_SECONDS}\n"
    );
    for (name, tests) in PROGRAMS {
        let tests = only.map_or_else(|| tests.join(" "), |only| format!("'{only}'"));
        let _infallible =
            write!(script, "echo '-- {name}'\n/tests/{name} --test-threads=1 {tests}\n");
    }
    let _infallible = write!(script, "echo '{DONE}'\npoweroff -f\n");
    script
}

/// The shared libraries of these programs.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd").args(programs).output().context("cannot start ldd")?;
    ensure!(output.status.success(), "ldd failed: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    // `name => /path (address)`, or `/path (address)`; lines of a program end in a colon.
    let path =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(text.lines().filter(|line| !line.ends_with(':')).filter_map(path).collect())
}

/// Copies a program without its debugging information, which is most of it.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("strip").arg("-o").arg(to).arg(from).status();
    let status = status.context("cannot start strip")?;
    ensure!(status.success(), "strip of {} failed ({status})", from.display());
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("copying {}", from.display()))?;
    Ok(())
}

fn found(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|path| path.is_file())
}

fn pack(root: &Path, archive: &Path) -> Result<PathBuf> {
    let mut names = Vec::new();
    list(root, Path::new("."), &mut names)?;
    let mut cpio = Command::new(BUSYBOX)
        .args(["cpio", "-o", "-H", "newc"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(File::create(archive)?)
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start busybox")?;
    let mut input = cpio.stdin.take().context("standard input is piped")?;
    std::io::Write::write_all(&mut input, names.join("\n").as_bytes())?;
    drop(input);
    let status = cpio.wait()?;
    ensure!(status.success(), "packing {} failed ({status})", archive.display());
    Ok(archive.to_owned())
}

/// Everything below `folder`, folders before what is in them.
fn list(root: &Path, folder: &Path, names: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name = folder.join(entry.file_name());
        names.push(name.display().to_string());
        if entry.file_type()?.is_dir() {
            list(root, &name, names)?;
        }
    }
    Ok(())
}
