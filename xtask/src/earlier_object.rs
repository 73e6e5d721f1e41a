//! `cargo xtask earlier-object`: the kernel object of an earlier commit, which the tests of upgrades
//! put today's in the place of.
//!
//! It is kept in the project, and not built by the tests: a shallow clone has no earlier commit, and
//! an object stays what it was whatever compiler comes later. Made anew when the ABI's major changes,
//! since another major is refused, before a map joins the ABI, of a commit whose object has it, and
//! with every release.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::build_ebpf;

/// Where it is kept, and which commit it is of.
const OBJECT: &str = "tests/fixtures/earlier.bpf.o.gz";
const COMMIT: &str = "tests/fixtures/earlier.commit";

/// Of which commit.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The commit, in git's words
    #[arg(default_value = "HEAD^")]
    commit: String,
}

/// Builds it in a worktree of its own, and keeps it without what only a debugger reads.
///
/// # Errors
/// When git does not know the commit, its object does not build, or a tool is not there.
pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let project = build_ebpf::workspace_directory();
    let named = format!("{}^{{commit}}", arguments.commit);
    let commit = git(&["rev-parse", "--verify", &named])?;
    let worktree = Worktree::new(&commit)?;
    let object = build_ebpf::build_at(&worktree.0)?;
    let small = worktree.0.join("earlier.bpf.o");
    let mut strip = Command::new(objcopy()?);
    checked(strip.arg("--strip-debug").arg(&object).arg(&small))?;
    checked(Command::new("gzip").args(["-9", "--no-name", "--force"]).arg(&small))?;
    fs::create_dir_all(project.join(OBJECT).parent().context("it has a folder")?)?;
    fs::copy(small.with_extension("o.gz"), project.join(OBJECT))?;
    let said = git(&["log", "-1", "--format=%H %cs %s", &commit])?;
    fs::write(project.join(COMMIT), format!("{said}\n"))?;
    let bytes = fs::metadata(project.join(OBJECT))?.len();
    println!("object:     {OBJECT} ({bytes} bytes), of {said}");
    Ok(ExitCode::SUCCESS)
}

/// A checkout of one commit, until dropped.
struct Worktree(PathBuf);

impl Worktree {
    fn new(commit: &str) -> Result<Self> {
        let directory = build_ebpf::target_directory().join("earlier");
        if directory.exists() {
            drop(Self(directory.clone()));
        }
        git(&["worktree", "add", "--detach", "--force", &directory.to_string_lossy(), commit])?;
        Ok(Self(directory))
    }
}

impl Drop for Worktree {
    fn drop(&mut self) {
        let directory = self.0.to_string_lossy().into_owned();
        if let Err(error) = git(&["worktree", "remove", "--force", &directory]) {
            println!("{directory} stays: {error:#}");
        }
    }
}

/// The LLVM tool that knows eBPF's objects: beside the linker's LLVM, or on PATH.
fn objcopy() -> Result<PathBuf> {
    let beside = build_ebpf::llvm_tool("llvm-objcopy");
    let candidates = beside.into_iter().chain([PathBuf::from("llvm-objcopy")]);
    let runs = |tool: &PathBuf| Command::new(tool).arg("--version").output().is_ok();
    let found = candidates.into_iter().find(runs);
    found.context("no llvm-objcopy: `apt-get install llvm-22`")
}

fn git(words: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.args(words).current_dir(build_ebpf::workspace_directory());
    let output = command.output().context("cannot start git")?;
    let error = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`git {}`: {}", words.join(" "), error.trim());
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn checked(command: &mut Command) -> Result<()> {
    let program = Path::new(command.get_program()).display().to_string();
    let status = command.status().with_context(|| format!("cannot start {program}"))?;
    ensure!(status.success(), "{program} failed");
    Ok(())
}
