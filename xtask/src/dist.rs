//! `cargo xtask dist`: a Debian package, built by dpkg-deb from a staged tree.

/// What the package's own files say.
mod control;
/// The tree that becomes the package.
mod stage;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::{build_ebpf, cargo};

/// What to pack, and where to.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Pack this binary, instead of building one with the kernel object embedded
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Where the package goes [default: target/dist]
    #[arg(long, value_name = "DIRECTORY")]
    output: Option<PathBuf>,
}

/// Builds the package and says where it is.
///
/// # Errors
/// When the objects or the binary do not build, the binary has no kernel object in it, or dpkg-deb
/// is not there.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let target = build_ebpf::target_directory();
    let binary = match &arguments.binary {
        Some(path) => path.clone(),
        None => build(&target)?,
    };
    let output = arguments.output.clone().unwrap_or_else(|| target.join("dist"));
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let output = output.canonicalize()?;
    let package = pack(&binary, &output)?;
    println!("package: {} ({} bytes)", package.display(), fs::metadata(&package)?.len());
    println!("install: apt-get install {}", package.display());
    Ok(ExitCode::SUCCESS)
}

/// The release binary, with the objects built before it in it.
fn build(target: &Path) -> Result<PathBuf> {
    build_ebpf::run()?;
    cargo::run(&["build", "--release", "--locked", "--package", "sickbay", "--bin", "sickbay"])?;
    Ok(target.join("release/sickbay"))
}

/// Packs the binary; where the package is.
fn pack(binary: &Path, output: &Path) -> Result<PathBuf> {
    let bytes = fs::read(binary).with_context(|| format!("cannot read {}", binary.display()))?;
    require_object(&bytes)?;
    let architecture = output_of("dpkg", &["--print-architecture"])?;
    let version = env!("CARGO_PKG_VERSION");
    let stage = output.join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage)?;
    }
    stage::fill(&stage, binary)?;
    let facts = control::Facts {
        version,
        architecture: &architecture,
        installed_kib: stage::size(&stage)?.div_ceil(1024),
        depends: &control::depends(&bytes)?,
    };
    stage::add_control(&stage, &facts)?;
    let package = output.join(format!("sickbay_{version}_{architecture}.deb"));
    let mut command = Command::new("dpkg-deb");
    command.args(["--root-owner-group", "--build"]).arg(&stage).arg(&package);
    // The same commit gives the same bytes, whenever it is packed.
    if let Ok(time) = output_of("git", &["log", "-1", "--format=%ct"]) {
        command.env("SOURCE_DATE_EPOCH", time);
    }
    run_quietly(&mut command)?;
    fs::remove_dir_all(&stage)?;
    Ok(package)
}

/// A binary without the object would install well and then steer nothing.
fn require_object(binary: &[u8]) -> Result<()> {
    let path = build_ebpf::object_path("sickbay.bpf.o");
    let object = fs::read(&path)
        .with_context(|| format!("{} is missing: cargo xtask build-ebpf", path.display()))?;
    let found = binary.windows(object.len()).any(|window| window == object);
    ensure!(
        found,
        "the binary does not hold {}: build it anew, after `cargo xtask build-ebpf`",
        path.display()
    );
    Ok(())
}

/// What a program prints, without the closing LF.
fn output_of(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(words)
        .current_dir(build_ebpf::workspace_directory())
        .output()
        .with_context(|| format!("cannot start {program}"))?;
    ensure!(output.status.success(), "`{program} {}` failed", words.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}

/// Runs a command to its end; what it says is shown when it fails.
fn run_quietly(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("cannot start {program}"))?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{program} failed: {}", said.trim_end());
    Ok(())
}
