//! The Debian package, installed, upgraded and removed in a root of its own.

use std::path::Path;
use std::process::Command;

use sickbay_tests::figures::show;

use super::Service;
use super::root::{Root, package};

/// Every file of the package but its manual pages.
const FILES: [&str; 13] = [
    "/etc/default/sickbay",
    "/usr/bin/sickbay",
    "/usr/lib/systemd/system/sickbay.service",
    "/usr/lib/systemd/system/sickbay@.service",
    "/usr/share/bash-completion/completions/sickbay",
    "/usr/share/doc/sickbay/changelog.gz",
    "/usr/share/doc/sickbay/configuration.md",
    "/usr/share/doc/sickbay/copyright",
    "/usr/share/doc/sickbay/examples/sickbay.toml",
    "/usr/share/doc/sickbay/quick-start.md",
    "/usr/share/fish/vendor_completions.d/sickbay.fish",
    "/usr/share/man/man8/sickbay.8.gz",
    "/usr/share/zsh/vendor-completions/_sickbay",
];
/// What the binary may link against; the package depends on these.
const LIBRARIES: [&str; 5] =
    ["linux-vdso.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "/lib64/ld-linux-x86-64.so.2"];
const CONFIGURATION: &str = "etc/sickbay/sickbay.toml";
const DEFAULTS: &str = "etc/default/sickbay";

fn check_contents(package: &Path) {
    let listed = Command::new("dpkg-deb").arg("--contents").arg(package).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let mut pages = 0;
    let mut files = Vec::new();
    for line in listed.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (mode, owner, path) = (fields[0], fields[1], fields[5].trim_start_matches('.'));
        assert_eq!(owner, "root/root", "{line}");
        let expected = match (mode.starts_with('d'), path) {
            (true, _) => "drwxr-xr-x",
            (false, "/usr/bin/sickbay") => "-rwxr-xr-x",
            (false, _) => "-rw-r--r--",
        };
        assert_eq!(mode, expected, "{line}");
        if path.starts_with("/usr/share/man/man8/sickbay-") {
            pages += 1;
        } else if !mode.starts_with('d') {
            files.push(path);
        }
    }
    for path in FILES {
        assert!(files.contains(&path), "{path} is missing: {files:?}");
    }
    assert!(12 < pages, "{listed}");
    // The configuration is the operator's: the package holds the place for it, and no more.
    assert!(listed.contains("./etc/sickbay/\n") && !listed.contains("./etc/sickbay/s"), "{listed}");
    let bytes = std::fs::metadata(package).unwrap().len();
    show(&format!("package of the tests' binary: {bytes} bytes, {} files", files.len() + pages));
}

fn check_installed(root: &Root) {
    assert!(root.run(&["sickbay", "--version"]).starts_with("sickbay "));
    assert_eq!(root.run(&["dpkg", "--verify", "sickbay"]), "");
    let libraries = root.run(&["ldd", "/usr/bin/sickbay"]);
    for line in libraries.lines() {
        let name = line.split_whitespace().next().unwrap();
        assert!(LIBRARIES.contains(&name), "the package does not depend on {line}");
    }
    let page = root.run(&["man", "--warnings", "sickbay-run"]);
    assert!(page.contains("--detach-on-exit") && page.contains("SYNOPSIS"), "{page}");
    let main = root.run(&["man", "sickbay"]);
    let example = "  sickbay check -c sickbay.toml                  Is it right?";
    assert!(main.contains(example), "{main}");
    let completed = "source /usr/share/bash-completion/completions/sickbay; COMP_WORDS=(sickbay ba); \
                     COMP_CWORD=1; _sickbay sickbay ba sickbay; echo \"${COMPREPLY[@]}\"";
    assert_eq!(root.run(&["bash", "-c", completed]), "backend\n");
    root.run(&["sickbay", "check", "-c", "/usr/share/doc/sickbay/examples/sickbay.toml"]);
    for unit in ["sickbay.service", "sickbay@.service"] {
        let unit = format!("/usr/lib/systemd/system/{unit}");
        let verified = root.try_run(&["systemd-analyze", "verify", &unit]);
        assert!(verified.status.success(), "{verified:?}");
    }
    let wanted = root.path("etc/systemd/system/multi-user.target.wants");
    let enabled = std::fs::read_dir(wanted).unwrap().map(|entry| entry.unwrap().file_name());
    let enabled = enabled.filter(|name| name.to_string_lossy().starts_with("sickbay"));
    assert_eq!(enabled.count(), 0, "an installation enables nothing");
}

#[test]
fn package_keeps_what_the_operator_wrote_and_takes_steering_along_when_it_goes() {
    let root = Root::new("package");
    root.share_kernel_mounts();
    let package = package();
    check_contents(package);
    std::fs::copy(package, root.path("sickbay.deb")).unwrap();
    root.run(&["dpkg", "--install", "/sickbay.deb"]);
    check_installed(&root);

    // Steering that stays attached without its agent, and an operator's own files.
    let mut service = Service::start();
    service.wait_for("READY=1");
    assert!(service.stop().success());
    let pins = service.pins();
    assert!(pins.join("links").exists());
    let text = std::fs::read_to_string(service.configuration()).unwrap();
    std::fs::write(root.path(CONFIGURATION), &text).unwrap();
    let changed = format!("{}SICKBAY_LOG=debug\n", root.read(DEFAULTS));
    std::fs::write(root.path(DEFAULTS), &changed).unwrap();

    root.run(&["dpkg", "--install", "/sickbay.deb"]);
    assert_eq!((root.read(DEFAULTS), root.read(CONFIGURATION)), (changed.clone(), text.clone()));
    assert!(pins.join("links").exists(), "an upgrade leaves steering as it is");

    root.run(&["dpkg", "--remove", "sickbay"]);
    assert!(!pins.exists(), "what was attached has gone with the package");
    assert!(!root.path("usr/bin/sickbay").exists());
    assert_eq!((root.read(DEFAULTS), root.read(CONFIGURATION)), (changed, text.clone()));

    root.run(&["dpkg", "--purge", "sickbay"]);
    assert!(!root.path(DEFAULTS).exists());
    assert_eq!(root.read(CONFIGURATION), text, "what the package did not bring it does not take");
}
