//! What an operator does by hand about a program that stays attached: said behind every failure
//! after which one may, in these words alone.

use std::path::{Path, PathBuf};

use super::detach::LinkKind;
use super::pins::{LINKS_FOLDER, name_of};
use super::syscall;
use std::os::fd::AsFd as _;

/// Priority of our filter where TC has no links: by this it is found again, and taken off by hand.
pub(super) const CLSACT_PRIORITY: u16 = 49_001;
/// Where instances are pinned unless they are told otherwise.
const USUAL_DIRECTORY: &str = "/sys/fs/bpf/sickbay";

/// What goes on steering for the instance pinned at `pin_directory`, and how it is taken off with
/// `sickbay` and without it, in a line; `None`: nothing does.
#[must_use]
pub fn what_stays(pin_directory: &Path) -> Option<String> {
    let pins = pins(pin_directory);
    if pins.is_empty() {
        return None;
    }
    let each: Vec<String> = pins.iter().filter_map(|pin| attached(pin)).collect();
    Some(format!(
        "what steers goes on as it is, by the last verdicts ({}); `{}` takes it off, without \
         sickbay `{}`",
        each.join(", "),
        detach_command(pin_directory),
        commands(pin_directory, &pins).join(" && "),
    ))
}

/// The command that takes everything of the instance pinned at `pin_directory` out of the kernel.
#[must_use]
pub fn detach_command(pin_directory: &Path) -> String {
    let instance = name_of(pin_directory);
    match pin_directory.parent() {
        Some(parent) if parent != Path::new(USUAL_DIRECTORY) => {
            format!("sickbay detach --instance {instance} --pin-directory {}", parent.display())
        }
        _ => format!("sickbay detach --instance {instance}"),
    }
}

/// What takes a link off: with its last pin it is gone.
pub(super) fn unpin(pin: &Path) -> String {
    format!("rm {}", pin.display())
}

/// What takes our filter off an interface where TC has no links.
pub(super) fn remove_filter(interface: &str) -> String {
    format!("tc filter del dev {interface} ingress pref {CLSACT_PRIORITY}")
}

/// What takes an XDP program off that no link holds.
pub(super) fn remove_xdp(interface: &str, generic: bool) -> String {
    let hook = if generic { "xdpgeneric" } else { "xdp" };
    format!("ip link set dev {interface} {hook} off")
}

/// The commands that do without sickbay what its `detach` does: filters first, then the pins.
fn commands(pin_directory: &Path, pins: &[PathBuf]) -> Vec<String> {
    let filters = pins.iter().filter_map(|pin| match LinkKind::parse(&name_of(pin))? {
        (interface, LinkKind::Clsact) => Some(remove_filter(&interface)),
        _ => None,
    });
    filters.chain([format!("rm -r {}", pin_directory.display())]).collect()
}

/// `eth0: xdp, program 12`
fn attached(pin: &Path) -> Option<String> {
    let (interface, kind) = LinkKind::parse(&name_of(pin))?;
    let program = || {
        let link = syscall::pinned(pin).ok()?;
        Some(syscall::link_info(link.as_fd()).ok()?.program_id)
    };
    match (kind, program()) {
        (LinkKind::Xdp | LinkKind::Tcx, Some(id)) => {
            Some(format!("{interface}: {}, program {id}", kind.name()))
        }
        _ => Some(format!("{interface}: {}", kind.name())),
    }
}

/// The pinned links, by name.
fn pins(pin_directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(pin_directory.join(LINKS_FOLDER));
    let mut pins: Vec<_> =
        entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    pins.sort_unstable();
    pins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_said_where_nothing_stays() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(what_stays(&directory.path().join("main")), None);
        std::fs::create_dir_all(directory.path().join("main/links")).unwrap();
        assert_eq!(what_stays(&directory.path().join("main")), None);
    }

    #[test]
    fn what_stays_is_named_with_the_commands_that_take_it_off() {
        let directory = tempfile::tempdir().unwrap();
        let instance = directory.path().join("main");
        std::fs::create_dir_all(instance.join("links")).unwrap();
        for pin in ["eth0:7-xdp", "eth1-clsact"] {
            std::fs::write(instance.join("links").join(pin), "").unwrap();
        }
        let said = what_stays(&instance).unwrap();
        assert!(said.contains("(eth0.7: xdp, eth1: clsact)"), "{said}");
        let parent = directory.path().display();
        let command = format!("`sickbay detach --instance main --pin-directory {parent}`");
        assert!(said.contains(&command), "{said}");
        let by_hand =
            format!("`tc filter del dev eth1 ingress pref 49001 && rm -r {}`", instance.display());
        assert!(said.ends_with(&by_hand) && !said.contains('\n'), "{said}");
    }

    #[test]
    fn usual_directory_is_not_named() {
        let command = detach_command(Path::new("/sys/fs/bpf/sickbay/edge"));
        assert_eq!(command, "sickbay detach --instance edge");
    }
}
