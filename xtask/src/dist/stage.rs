//! The tree that becomes the package: what goes where, and with which mode.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::control::{self, Facts};
use super::run_quietly;
use crate::build_ebpf;

const DOCUMENTS: &str = "usr/share/doc/sickbay";
const MANUAL: &str = "usr/share/man/man8";
/// Files as they stand in the project, and where they go.
const FILES: [(&str, &str); 5] = [
    ("agent/package/sickbay.service", "usr/lib/systemd/system/sickbay.service"),
    ("agent/package/sickbay@.service", "usr/lib/systemd/system/sickbay@.service"),
    ("agent/package/default", "etc/default/sickbay"),
    ("agent/sickbay.example.toml", "usr/share/doc/sickbay/examples/sickbay.toml"),
    ("CHANGELOG.md", "usr/share/doc/sickbay/changelog"),
];
/// What dpkg asks about before it replaces an operator's changes. The configuration itself is not
/// in the package, so nothing can overwrite it.
const CONFFILES: &str = "/etc/default/sickbay\n";
/// Shells, and where each looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/sickbay"),
    ("zsh", "usr/share/zsh/vendor-completions/_sickbay"),
    ("fish", "usr/share/fish/vendor_completions.d/sickbay.fish"),
];
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];

/// Puts everything but the control files into `stage`. The pages are the binary's own.
pub(super) fn fill(stage: &Path, binary: &Path) -> Result<()> {
    let project = build_ebpf::workspace_directory();
    put(stage, "usr/bin/sickbay", &fs::read(binary)?, 0o755)?;
    let installed = stage.join("usr/bin/sickbay");
    // Symbols of functions stay out: they would be two thirds of the package.
    run_quietly(Command::new("strip").arg("--strip-unneeded").arg(&installed))?;
    for (from, to) in FILES {
        let bytes = fs::read(project.join(from)).with_context(|| format!("cannot read {from}"))?;
        put(stage, to, &bytes, 0o644)?;
    }
    for entry in fs::read_dir(project.join("agent/docs"))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).context("a page's name")?;
        put(stage, &format!("{DOCUMENTS}/{name}"), &fs::read(&path)?, 0o644)?;
    }
    put(stage, &format!("{DOCUMENTS}/copyright"), control::copyright().as_bytes(), 0o644)?;
    make_directory(&stage.join("etc/sickbay"))?;
    let manual = stage.join(MANUAL);
    make_directory(&manual)?;
    generate(binary, &["man", &manual.to_string_lossy()])?;
    for (shell, path) in COMPLETIONS {
        put(stage, path, &generate(binary, &["completions", shell])?, 0o644)?;
    }
    let mut compress = Command::new("gzip");
    compress.args(["-9", "--no-name"]).arg(stage.join(DOCUMENTS).join("changelog"));
    compress.args(files(&manual)?);
    run_quietly(&mut compress)?;
    for page in files(&manual)? {
        fs::set_permissions(page, fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Adds the control files to a tree that is otherwise complete.
pub(super) fn add_control(stage: &Path, facts: &Facts<'_>) -> Result<()> {
    let sums = sums(stage)?;
    put(stage, "DEBIAN/control", facts.control().as_bytes(), 0o644)?;
    put(stage, "DEBIAN/conffiles", CONFFILES.as_bytes(), 0o644)?;
    put(stage, "DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    for name in SCRIPTS {
        let from = build_ebpf::workspace_directory().join("agent/package").join(name);
        put(stage, &format!("DEBIAN/{name}"), &fs::read(from)?, 0o755)?;
    }
    Ok(())
}

/// Bytes of all files below `directory`.
pub(super) fn size(directory: &Path) -> Result<u64> {
    files(directory)?.iter().map(|path| Ok(fs::metadata(path)?.len())).sum()
}

/// Runs the binary to generate something; what it prints.
fn generate(binary: &Path, words: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(binary).arg("generate").args(words).output();
    let output = output.with_context(|| format!("cannot start {}", binary.display()))?;
    ensure!(output.status.success(), "`sickbay generate {}` failed", words.join(" "));
    Ok(output.stdout)
}

/// MD5 sums of all files but conffiles, as dpkg --verify reads them.
fn sums(stage: &Path) -> Result<String> {
    let paths = files(stage)?;
    let inside = paths.iter().filter_map(|path| path.strip_prefix(stage).ok());
    let listed =
        inside.filter(|path| !CONFFILES.lines().any(|conf| conf == format!("/{}", path.display())));
    let output = Command::new("md5sum").args(listed).current_dir(stage).output();
    let output = output.context("cannot start md5sum")?;
    ensure!(output.status.success(), "md5sum failed");
    Ok(String::from_utf8(output.stdout)?)
}

/// All files below `directory`, sorted.
fn files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() { directories.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    Ok(found)
}

fn put(stage: &Path, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
    let path = stage.join(path);
    make_directory(path.parent().context("a file stands in a directory")?)?;
    fs::write(&path, bytes)?;
    Ok(fs::set_permissions(&path, fs::Permissions::from_mode(mode))?)
}

/// Makes a directory, and those above it, with the modes of a package whatever the umask is.
fn make_directory(directory: &Path) -> Result<()> {
    let missing: Vec<&Path> = directory.ancestors().take_while(|path| !path.exists()).collect();
    fs::create_dir_all(directory)?;
    for path in missing {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}
