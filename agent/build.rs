//! Embeds the eBPF object in the agent.
//!
//! The object is made by `cargo xtask build-ebpf` alone. Where it is looked for: the path in
//! `SICKBAY_EBPF_OBJECT`; else `bpf/sickbay.bpf.o` in the workspace's target directory. Without
//! one, nothing is embedded, the agent still builds, and it says so when it is to steer.

use std::env;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rerun-if-env-changed=SICKBAY_EBPF_OBJECT");
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_DIR");
    let object = match env::var_os("SICKBAY_EBPF_OBJECT") {
        Some(path) => given_object(&PathBuf::from(path)),
        None => built_object(),
    };
    let path = object.unwrap_or_else(|| {
        let stub = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("none.o");
        std::fs::write(&stub, []).expect("cargo made OUT_DIR for us to write to");
        stub
    });
    println!("cargo::rustc-env=SICKBAY_EMBEDDED_OBJECT={}", path.display());
}

/// The object that the environment names; a path that names nothing is a mistake, not a wish for
/// the stub.
fn given_object(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).expect("a path that is not empty");
    println!("cargo::rerun-if-changed={}", path.display());
    if !path.is_file() {
        println!("cargo::error=SICKBAY_EBPF_OBJECT names {}, no such file", path.display());
    }
    Some(path)
}

/// What `cargo xtask build-ebpf` left behind, if it ran.
fn built_object() -> Option<PathBuf> {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let workspace = manifest.parent().expect("the agent is a folder of the workspace");
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| workspace.join("target"), |target| workspace.join(target));
    let folder = target.join("bpf");
    let object = folder.join("sickbay.bpf.o");
    if object.is_file() {
        println!("cargo::rerun-if-changed={}", object.display());
        return Some(object);
    }
    // Cargo runs a script at every build when a path it watches does not exist, so the folder is
    // made and watched: an object that is built into it later is noticed.
    std::fs::create_dir_all(&folder).ok()?;
    println!("cargo::rerun-if-changed={}", folder.display());
    None
}
