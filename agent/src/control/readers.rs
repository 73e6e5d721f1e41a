//! The group whose members may look at a running agent, and change nothing.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use super::history::segments;

/// On a directory: what is made in it has its group.
const SET_GROUP: u32 = 0o2000;
/// On a directory: its group reads it. The history's directory with this bit is one that [`Readers`]
/// read.
pub const GROUP_READS: u32 = 0o040;

/// A group whose members may look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readers {
    /// Its name.
    pub name: String,
    /// Its number.
    pub gid: u32,
}

/// Why a group cannot look.
#[derive(Debug, thiserror::Error)]
pub enum ReadersError {
    /// There is none of this name.
    #[error(
        "there is no group {name:?}, which read_group names: make it with `groupadd --system \
         {name}`, or name another"
    )]
    NoGroup {
        /// The name.
        name: String,
    },
    /// Something cannot be given to it.
    #[error(
        "cannot let the group {name:?} of read_group look at {}: {source}; start with CAP_CHOWN or \
         as a member (systemd: SupplementaryGroups={name}), or remove read_group", path.display()
    )]
    Refused {
        /// The name.
        name: String,
        /// What it was to look at.
        path: PathBuf,
        /// Why it may not.
        source: io::Error,
    },
}

impl Readers {
    /// The group of this name.
    ///
    /// # Errors
    ///
    /// There is none, as far as the user database tells.
    pub fn named(name: &str) -> Result<Self, ReadersError> {
        let found = nix::unistd::Group::from_name(name).ok().flatten();
        let group = found.ok_or_else(|| ReadersError::NoGroup { name: name.to_owned() })?;
        Ok(Self { name: name.to_owned(), gid: group.gid.as_raw() })
    }

    /// Lets them connect to the admin socket at `socket`, in a directory that nobody else enters.
    ///
    /// # Errors
    ///
    /// The file system refuses.
    pub(super) fn let_ask(&self, socket: &Path) -> Result<(), ReadersError> {
        self.give(socket, 0o660)?;
        let directory = socket.parent().unwrap_or(socket);
        self.give(directory, 0o710)?;
        self.open_above(directory)
    }

    /// Lets them read the history in this directory, what stands there and what will.
    ///
    /// # Errors
    ///
    /// The file system refuses.
    pub(super) fn let_read_history(&self, directory: &Path) -> Result<(), ReadersError> {
        self.give(directory, 0o750)?;
        // By this bit a new segment has the group, also when this process may give nothing away any
        // more. Where a service manager forbids it (RestrictSUIDSGID=), the process is a member, and
        // whoever makes a segment gives it away.
        let _forbidden = fs::set_permissions(directory, Permissions::from_mode(SET_GROUP | 0o750));
        let listed = segments::list(directory).map_err(|source| self.refused(directory, source))?;
        listed.iter().try_for_each(|segment| self.give(&segment.path, 0o640))?;
        self.open_above(directory)
    }

    /// What agents made for themselves alone has more than one instance below it: others may pass
    /// through, not list it.
    fn open_above(&self, directory: &Path) -> Result<(), ReadersError> {
        let Some(above) = directory.parent() else { return Ok(()) };
        let found = fs::metadata(above).map_err(|source| self.refused(above, source))?;
        let ours = found.uid() == nix::unistd::geteuid().as_raw();
        if ours && found.mode() & 0o7777 == 0o700 {
            let open = fs::set_permissions(above, Permissions::from_mode(0o711));
            open.map_err(|source| self.refused(above, source))?;
        }
        Ok(())
    }

    fn give(&self, path: &Path, mode: u32) -> Result<(), ReadersError> {
        chown(path, None, Some(self.gid))
            .and_then(|()| fs::set_permissions(path, Permissions::from_mode(mode)))
            .map_err(|source| self.refused(path, source))
    }

    fn refused(&self, path: &Path, source: io::Error) -> ReadersError {
        ReadersError::Refused { name: self.name.clone(), path: path.to_owned(), source }
    }
}

/// Closes a history that readers once had to everyone but its owner.
///
/// # Errors
///
/// The file system refuses.
pub(super) fn close_history(directory: &Path) -> io::Result<()> {
    if fs::metadata(directory)?.mode() & GROUP_READS == 0 {
        return Ok(());
    }
    fs::set_permissions(directory, Permissions::from_mode(0o700))
}
