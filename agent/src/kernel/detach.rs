//! Removing everything of an instance: links, maps, directories. Works with or without its agent.

use std::fs;
use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use super::attach::AttachedMode;
use super::aya;
use super::by_hand;
use super::error::KernelError;
use super::pins::{
    LINKS_FOLDER, MAPS_FOLDER, OLD_MAPS_FOLDER, PROGRAMS_FOLDER, failed, name_of, remove_pins_in,
};
use super::syscall;

/// Something that [`detach`] removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removed {
    /// A program was taken off an interface.
    Link {
        /// The interface.
        interface: String,
        /// `xdp`, `tcx` or `clsact`.
        hook: &'static str,
        /// The program's id, when the link told it.
        program_id: Option<u32>,
    },
    /// Maps were unpinned.
    Maps {
        /// How many.
        count: usize,
    },
    /// A directory.
    Directory {
        /// Its path.
        path: PathBuf,
    },
}

impl std::fmt::Display for Removed {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Link { interface, hook, program_id: Some(id) } => {
                write!(out, "detached program {id} from {interface} ({hook})")
            }
            Self::Link { interface, hook, program_id: None } => {
                write!(out, "detached from {interface} ({hook})")
            }
            Self::Maps { count } => write!(out, "unpinned {count} maps"),
            Self::Directory { path } => write!(out, "removed {}", path.display()),
        }
    }
}

/// Takes the programs of the instance with this pin directory off their interfaces, unpins its
/// maps and removes its directories. Tells what it removed: nothing, when there was nothing.
///
/// # Errors
///
/// Something could not be removed; the text says how to do that by hand. Calling it again goes on.
pub fn detach(pin_directory: &Path) -> Result<Vec<Removed>, KernelError> {
    let mut removed = Vec::new();
    let links = pin_directory.join(LINKS_FOLDER);
    let mut pins = match fs::read_dir(&links) {
        Ok(entries) => entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()
            .map_err(failed("read", &links))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(source) => return Err(failed("read", &links)(source)),
    };
    pins.sort_unstable();
    for pin in pins {
        removed.extend(remove_link(&pin)?);
    }
    let mut count = 0;
    remove_pins_in(&pin_directory.join(PROGRAMS_FOLDER))?;
    for folder in [MAPS_FOLDER, OLD_MAPS_FOLDER] {
        count += remove_pins_in(&pin_directory.join(folder))?.len();
    }
    if 0 < count {
        removed.push(Removed::Maps { count });
    }
    remove_directory(&links)?;
    if remove_directory(pin_directory)? {
        removed.push(Removed::Directory { path: pin_directory.to_owned() });
    }
    // The directory of all instances goes with the last one.
    if let Some(parent) = pin_directory.parent().filter(|parent| name_of(parent) == "sickbay")
        && fs::remove_dir(parent).is_ok()
    {
        removed.push(Removed::Directory { path: parent.to_owned() });
    }
    Ok(removed)
}

/// How a program is held to its interface, and so what its pin is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkKind {
    /// An XDP link.
    Xdp,
    /// A TCX link.
    Tcx,
    /// A filter of clsact; the pin is the program's.
    Clsact,
}

impl LinkKind {
    pub(super) const fn of(mode: AttachedMode) -> Self {
        match mode {
            AttachedMode::XdpNative | AttachedMode::XdpGeneric => Self::Xdp,
            AttachedMode::Tcx => Self::Tcx,
            AttachedMode::Clsact => Self::Clsact,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Xdp => "xdp",
            Self::Tcx => "tcx",
            Self::Clsact => "clsact",
        }
    }

    /// The name of the pin for `interface`. The BPF file system takes no dots, which VLAN
    /// interfaces have; interface names have no colons (net/core/dev.c, `dev_valid_name`).
    pub(super) fn pin_name(self, interface: &str) -> String {
        format!("{}-{}", interface.replace('.', ":"), self.name())
    }

    /// Interface and kind that a pin's name tells.
    pub(super) fn parse(pin_name: &str) -> Option<(String, Self)> {
        let (interface, kind) = pin_name.rsplit_once('-')?;
        let all = [Self::Xdp, Self::Tcx, Self::Clsact];
        let kind = all.into_iter().find(|candidate| candidate.name() == kind)?;
        Some((interface.replace(':', "."), kind))
    }
}

/// Detaches what is pinned at `pin` and removes the pin; `None` when there is none.
pub(super) fn remove_link(pin: &Path) -> Result<Option<Removed>, KernelError> {
    if !pin.exists() {
        return Ok(None);
    }
    let name = name_of(pin);
    let Some((interface, kind)) = LinkKind::parse(&name) else {
        fs::remove_file(pin).map_err(failed("remove", pin))?;
        return Ok(None);
    };
    let program_id = match kind {
        LinkKind::Xdp | LinkKind::Tcx => Some(detach_link(pin, &interface)?),
        LinkKind::Clsact => {
            remove_filter(&interface)?;
            None
        }
    };
    fs::remove_file(pin).map_err(failed("remove", pin))?;
    Ok(Some(Removed::Link { interface, hook: kind.name(), program_id }))
}

/// Detaches a link whoever holds it: without that, an agent that still has it open would keep it
/// attached when the pin is gone.
fn detach_link(pin: &Path, interface: &str) -> Result<u32, KernelError> {
    let detach = || {
        let link = syscall::pinned(pin)?;
        let info = syscall::link_info(link.as_fd())?;
        match syscall::detach_link(link.as_fd()) {
            // The interface went away, and the attachment with it.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOLINK | libc::EINVAL)) => {}
            result => result?,
        }
        Ok(info.program_id)
    };
    detach().map_err(|source: io::Error| KernelError::Detach {
        interface: interface.to_owned(),
        reason: source.to_string(),
        by_hand: by_hand::unpin(pin),
    })
}

fn remove_filter(interface: &str) -> Result<(), KernelError> {
    if nix::net::if_::if_nametoindex(interface).is_err() {
        // The interface went away, and its filters with it.
        return Ok(());
    }
    aya::remove_filter(interface).map_err(|error| KernelError::Detach {
        interface: interface.to_owned(),
        reason: error.to_string(),
        by_hand: by_hand::remove_filter(interface),
    })
}

/// Removes an empty directory; returns whether there was one.
fn remove_directory(path: &Path) -> Result<bool, KernelError> {
    match fs::remove_dir(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(failed("remove", path)(source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_tells_interface_and_hook_though_interfaces_have_dashes() {
        assert_eq!(LinkKind::parse("eth0-xdp"), Some(("eth0".to_owned(), LinkKind::Xdp)));
        assert_eq!(LinkKind::parse("br-lan-tcx"), Some(("br-lan".to_owned(), LinkKind::Tcx)));
        assert_eq!(LinkKind::parse("eth0-other"), None);
        assert_eq!(LinkKind::Clsact.pin_name("br-lan"), "br-lan-clsact");
        assert_eq!(LinkKind::Xdp.pin_name("eth0.100"), "eth0:100-xdp");
        assert_eq!(LinkKind::parse("eth0:100-xdp"), Some(("eth0.100".to_owned(), LinkKind::Xdp)));
    }

    #[test]
    fn there_is_nothing_to_remove_where_nothing_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sickbay/main");
        assert_eq!(detach(&path).unwrap(), []);
    }

    #[test]
    fn what_was_removed_is_said() {
        let link = Removed::Link { interface: "eth0".into(), hook: "xdp", program_id: Some(7) };
        assert_eq!(link.to_string(), "detached program 7 from eth0 (xdp)");
        assert_eq!(Removed::Maps { count: 17 }.to_string(), "unpinned 17 maps");
    }
}
