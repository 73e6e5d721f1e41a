//! `cargo xtask build-ebpf`: the one way a kernel object is made.
//!
//! Asks every rustc it can find for its library source and takes the first that has it; what the
//! toolchain is called does not matter. bpf-linker is taken from PATH, from `target/tools`, or
//! built there against the LLVM that suits the chosen rustc.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use anyhow::{Context, Result, bail, ensure};

/// The packages of Debian 12 that build the objects, in the order apt is told of them, and why.
const PACKAGES: [(&str, &str); 6] = [
    ("rustc-web", "a rustc whose library source the distribution carries"),
    ("rust-web-src", "that library source, from which core is built for the eBPF machine"),
    ("cargo-web", "the cargo that belongs to that rustc"),
    ("llvm-22-dev", "the LLVM that bpf-linker links against"),
    ("libpolly-22-dev", "a part of that LLVM which Debian packs apart"),
    ("libzstd-dev", "a library that this LLVM links against"),
];
/// How many of [`PACKAGES`] make the compiler; the others make the linker.
const COMPILER_PACKAGES: usize = 3;

const LINKER_VERSION: &str = "0.13.0";
/// The LLVM releases that this bpf-linker can be built against.
const LINKER_LLVM: std::ops::RangeInclusive<u32> = 21..=23;
const TARGET: &str = "bpfel-unknown-none";
/// Types for the verifier, which the linker makes out of what a debugger would read.
const FLAGS: &str = "-C debuginfo=2 -C link-arg=--btf";
/// The binaries of the package, and the objects they become.
const OBJECTS: [(&str, &str); 8] = [
    ("sickbay-ebpf", "sickbay.bpf.o"),
    ("sickbay-meter", "meter.bpf.o"),
    ("sickbay-replay", "replay.bpf.o"),
    ("sickbay-untested", "untested.bpf.o"),
    ("sickbay-blind", "blind.bpf.o"),
    ("sickbay-idle", "idle.bpf.o"),
    ("sickbay-peer", "peer.bpf.o"),
    ("sickbay-farm", "farm.bpf.o"),
];

/// Builds the objects and says with what.
///
/// # Errors
///
/// No rustc with its library source, no bpf-linker nor an LLVM to build it with (the message names
/// the packages to install), or a failed build.
pub(crate) fn run() -> Result<()> {
    let build = Build { project: workspace_directory(), into: build_directory(), flags: FLAGS };
    build.run()?;
    for (binary, object) in OBJECTS {
        let from = build_directory().join(TARGET).join("release").join(binary);
        let to = object_path(object);
        fs::copy(&from, &to).with_context(|| format!("copying {}", from.display()))?;
        println!("object:     {} ({} bytes)", to.display(), fs::metadata(&to)?.len());
    }
    Ok(())
}

/// Builds the steering object of another checkout of the project, which stays as it is; where the
/// object is. No path of this machine is in it.
///
/// # Errors
///
/// As [`run`].
pub(crate) fn build_at(project: &Path) -> Result<PathBuf> {
    let into = target_directory().join("bpf/earlier");
    let cargo_home = env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|it| it + "/.cargo"));
    let flags = format!(
        "{FLAGS} --remap-path-prefix={}=sickbay --remap-path-prefix={}=cargo",
        project.display(),
        cargo_home.context("neither CARGO_HOME nor HOME is set")?
    );
    Build { project, into: into.clone(), flags: &flags }.run()?;
    Ok(into.join(TARGET).join("release").join(OBJECTS[0].0))
}

/// A tool of the LLVM that the linker is built against.
pub(crate) fn llvm_tool(name: &str) -> Option<PathBuf> {
    let prefix = LINKER_LLVM
        .filter_map(|major| output(format!("llvm-config-{major}"), &["--prefix"]))
        .next()?;
    Some(Path::new(&prefix).join("bin").join(name))
}

/// One build of the package's binaries.
struct Build<'a> {
    /// Where the project is checked out.
    project: &'a Path,
    /// The target directory.
    into: PathBuf,
    flags: &'a str,
}

impl Build<'_> {
    fn run(&self) -> Result<()> {
        let toolchains = toolchains();
        let Some((toolchain, linker)) = choose(&toolchains) else {
            let names: Vec<&str> = missing_packages().iter().map(|package| package.0).collect();
            bail!(
                "no rustc with its library source, or no bpf-linker for it; mend: \
                 `apt-get install {}`, or rustup's nightly with rust-src and a bpf-linker on PATH",
                names.join(" ")
            );
        };
        println!("rustc:      {}", toolchain.description);
        let linker = match linker {
            Linker::Found { path, version } => {
                println!("bpf-linker: {version}");
                path
            }
            Linker::Buildable { llvm, prefix } => {
                println!("bpf-linker: {LINKER_VERSION}, built now against LLVM {llvm}");
                install_linker(llvm, &prefix)?
            }
        };
        self.compile(toolchain, &linker)
    }

    fn compile(&self, toolchain: &Toolchain, linker: &Path) -> Result<()> {
        let status = Command::new(&toolchain.cargo)
            .args(["build", "--quiet", "--package", "sickbay-ebpf", "--bins", "--release"])
            .args(["--target", TARGET, "-Z", "build-std=core", "--target-dir"])
            .arg(&self.into)
            .current_dir(self.project)
            // The outer cargo's choices of toolchain and flags do not hold for this target.
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("RUSTUP_TOOLCHAIN")
            .env_remove("RUSTC_WRAPPER")
            .env("RUSTC", &toolchain.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", self.flags)
            .env("CARGO_TARGET_BPFEL_UNKNOWN_NONE_LINKER", linker)
            .status()
            .with_context(|| format!("running {}", toolchain.cargo.display()))?;
        ensure!(status.success(), "building the kernel objects failed; the output above says why");
        Ok(())
    }
}

/// The Debian packages that this machine lacks for building the objects, each with its reason.
///
/// Empty when [`run`] has what it needs, wherever it comes from.
pub(crate) fn missing_packages() -> Vec<(&'static str, &'static str)> {
    let toolchains = toolchains();
    let (compiler, linker) = PACKAGES.split_at(COMPILER_PACKAGES);
    let mut missing = Vec::new();
    if toolchains.is_empty() {
        missing.extend_from_slice(compiler);
    }
    if found_linker().is_none() && choose(&toolchains).is_none() {
        missing.extend_from_slice(linker);
    }
    missing
}

/// A rustc with its library source.
struct Toolchain {
    description: String,
    rustc: PathBuf,
    cargo: PathBuf,
    llvm: u32,
}

enum Linker {
    Found { path: PathBuf, version: String },
    Buildable { llvm: u32, prefix: String },
}

/// The first toolchain for which there is a linker, or an LLVM to build one with.
fn choose(toolchains: &[Toolchain]) -> Option<(&Toolchain, Linker)> {
    if let Some((path, version)) = found_linker() {
        return Some((toolchains.first()?, Linker::Found { path, version }));
    }
    toolchains.iter().find_map(|toolchain| {
        let (llvm, prefix) = suiting_llvm(toolchain.llvm)?;
        Some((toolchain, Linker::Buildable { llvm, prefix }))
    })
}

/// Every usable toolchain: the active one, rustup's others (nightly first), the distribution's.
fn toolchains() -> Vec<Toolchain> {
    let mut sysroots: Vec<String> = Vec::new();
    let mut add = |sysroot: Option<String>| {
        if let Some(sysroot) = sysroot
            && !sysroots.contains(&sysroot)
        {
            sysroots.push(sysroot);
        }
    };
    add(output("rustc", &["--print", "sysroot"]));
    let listed = output("rustup", &["toolchain", "list"]).unwrap_or_default();
    let mut names: Vec<&str> =
        listed.lines().filter_map(|line| line.split_whitespace().next()).collect();
    names.sort_by_key(|name| !name.starts_with("nightly"));
    for name in names {
        add(output("rustup", &["run", name, "rustc", "--print", "sysroot"]));
    }
    add(output("/usr/bin/rustc", &["--print", "sysroot"]));
    sysroots.iter().filter_map(|sysroot| toolchain(Path::new(sysroot))).collect()
}

/// The toolchain of this sysroot, if it has its source, its cargo and a version that serves.
fn toolchain(sysroot: &Path) -> Option<Toolchain> {
    let source = sysroot.join("lib/rustlib/src/rust/library/core/src/lib.rs");
    let rustc = sysroot.join("bin/rustc");
    let cargo = sysroot.join("bin/cargo");
    if !source.exists() || !cargo.exists() {
        return None;
    }
    let text = output(&rustc, &["--version", "--verbose"])?;
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let release = field("release: ")?;
    let llvm = field("LLVM version: ")?.split('.').next()?.parse().ok()?;
    let minor: u32 = release.split('.').nth(1)?.parse().ok()?;
    let needed: u32 = env!("CARGO_PKG_RUST_VERSION").split('.').nth(1)?.parse().ok()?;
    if minor < needed || *LINKER_LLVM.end() < llvm {
        return None;
    }
    let origin = if sysroot == Path::new("/usr") { "the distribution's" } else { "rustup's" };
    let description = format!("{} ({origin}, LLVM {llvm})", text.lines().next()?);
    Some(Toolchain { description, rustc, cargo, llvm })
}

/// bpf-linker on PATH or in `target/tools`, with what it calls itself.
fn found_linker() -> Option<(PathBuf, String)> {
    let built = tools_directory().join("bin/bpf-linker");
    [PathBuf::from("bpf-linker"), built].into_iter().find_map(|path| {
        let version = output(&path, &["--version"])?;
        Some((path, version.trim_start_matches("bpf-linker ").to_owned()))
    })
}

/// The oldest installed LLVM that reads what this rustc's LLVM writes, and its prefix.
fn suiting_llvm(rustc_llvm: u32) -> Option<(u32, String)> {
    LINKER_LLVM.filter(|major| rustc_llvm <= *major).find_map(|major| {
        let complete = |prefix: &String| {
            Path::new(prefix).join("lib/libPolly.a").exists()
                && Path::new("/usr/include/zstd.h").exists()
        };
        let prefix = output(format!("llvm-config-{major}"), &["--prefix"])?;
        Some((major, prefix)).filter(|(_, prefix)| complete(prefix))
    })
}

fn install_linker(llvm: u32, prefix: &str) -> Result<PathBuf> {
    let status = Command::new("cargo")
        .args(["install", "bpf-linker", "--locked", "--version", LINKER_VERSION])
        .args(["--no-default-features", "--features", &format!("llvm-{llvm}")])
        .arg("--root")
        .arg(tools_directory())
        .env("LLVM_PREFIX", prefix)
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("RUSTFLAGS")
        .status()
        .context("running cargo install bpf-linker")?;
    ensure!(status.success(), "cargo install bpf-linker failed; its output above says why");
    Ok(tools_directory().join("bin/bpf-linker"))
}

/// What the command prints, trimmed; `None` when it is not there or fails.
fn output(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

pub(crate) fn workspace_directory() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Where cargo and this program put what they build.
pub(crate) fn target_directory() -> PathBuf {
    match env::var_os("CARGO_TARGET_DIR") {
        Some(directory) => workspace_directory().join(directory),
        None => workspace_directory().join("target"),
    }
}

/// Where the kernel object of this name is, once it is built.
pub(crate) fn object_path(object: &str) -> PathBuf {
    target_directory().join("bpf").join(object)
}

fn build_directory() -> PathBuf {
    target_directory().join("bpf/build")
}

fn tools_directory() -> PathBuf {
    target_directory().join("tools")
}
