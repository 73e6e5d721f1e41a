//! What the agent gives up once it has started, and what it is to say when it misses that.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use crate::confine::{self, Capability, ConfineError, Confined, Places, Privilege};
use crate::fleet::Fleet;

/// Where names of hosts are looked up; often a link to below /run.
const RESOLVER: &str = "/etc/resolv.conf";

/// What is to be given up.
pub(super) struct GivingUp {
    privilege: Privilege,
    places: Places,
}

impl GivingUp {
    /// Of an agent of this fleet, whose configuration's files stand in `read`.
    pub(super) fn of(fleet: &Fleet, read: &[PathBuf]) -> Self {
        let privilege = fleet.privilege.clone();
        let resolver = Path::new(RESOLVER).canonicalize().ok();
        let resolver = resolver.as_deref().and_then(Path::parent).map(Path::to_owned);
        let read = read.iter().chain(&privilege.readable).cloned().chain(resolver).collect();
        let removed = vec![fleet.pin_directory.clone(), fleet.run_directory.clone()];
        let written = removed.iter().chain([&fleet.state_directory]).cloned().collect();
        Self { privilege, places: Places { read, written, removed } }
    }

    /// Gives it up, for this thread and all that are started after it.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub(super) fn carry_out(self) -> Result<Confined, ConfineError> {
        if self.privilege.landlock {
            for directory in &self.places.written {
                // What is not there now could not be made later. One that cannot be made is told of
                // by whoever wants to write there.
                let _not_made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
            }
        }
        confine::confine(&self.privilege, &self.places)
    }
}

/// The capabilities that an agent goes on with, a bit each.
///
/// # Errors
///
/// The kernel does not tell which it has.
pub(super) fn lasting_capabilities(privilege: &Privilege) -> anyhow::Result<u64> {
    let permitted = confine::permitted()?;
    let lasting = match privilege.drop_capabilities {
        true => confine::kept(&permitted, &privilege.keep),
        false => permitted,
    };
    Ok(lasting.iter().map(Capability::bitmask).sum())
}

/// Whether a running agent can pin where `fleet` says: a directory that was taken away under it has
/// another in its place at best, which it may not touch.
///
/// # Errors
///
/// It is gone.
pub(super) fn check_pins(fleet: &Fleet) -> anyhow::Result<()> {
    anyhow::ensure!(
        !fleet.privilege.landlock || fleet.pin_directory.exists(),
        "the pins at {} are gone (by `sickbay detach`?), and the running agent has given up making \
         that directory (see [privilege]): restart it",
        fleet.pin_directory.display()
    );
    Ok(())
}

/// What an operator is told besides when a reload was refused and `error` says that something is not
/// permitted: that a restart may help, since the agent has given up what it does not need.
pub(super) fn remedy(privilege: &Privilege, error: &str) -> &'static str {
    // As std shows EPERM and EACCES.
    let is_refusal = ["(os error 1)", "(os error 13)"].iter().any(|text| error.contains(text));
    match (is_refusal, privilege.landlock || privilege.drop_capabilities) {
        (true, true) => {
            "; the running agent has given up what it does not need (see [privilege]): restart it"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restart_is_the_remedy_only_for_what_was_given_up() {
        let denied = "/srv/a.list: cannot be read: Permission denied (os error 13)";
        let everything = Privilege::default();
        assert!(remedy(&everything, denied).ends_with(": restart it"));
        assert_eq!(remedy(&everything, "No such file or directory (os error 2)"), "");
        let nothing =
            Privilege { drop_capabilities: false, landlock: false, ..Privilege::default() };
        assert_eq!(remedy(&nothing, denied), "");
    }
}
