//! One agent per run directory: the directory, the lock in it, the place of the admin socket.
//!
//! The lock is flock(2) on a file, so the kernel lets go of it however the agent dies; what a dead
//! agent left is replaced by the next. Taken before anything else is touched, let go last.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _,
};
use std::path::{Path, PathBuf};

use super::{LOCK_NAME, SOCKET_NAME};

/// Longest path of a unix socket: `sun_path` less its closing NUL (unix(7)).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Times that a lock file may vanish under us before we give up.
const LOCK_TRIES_MAX: u32 = 16;

/// This agent's hold on its run directory. Dropped, it removes the socket, the lock and, when
/// nothing else is in it, the directory; and the one above, if it was made for this claim.
#[derive(Debug)]
pub struct Claim {
    directory: PathBuf,
    instance: String,
    lock: File,
    parent_made: bool,
}

impl Claim {
    /// Makes the directory (0700), takes its lock, and clears away a dead agent's socket.
    ///
    /// # Errors
    ///
    /// Another agent holds it, or the directory is not ours alone.
    pub fn new(directory: &Path, instance: &str) -> Result<Self, ClaimError> {
        let socket_bytes = directory.join(SOCKET_NAME).as_os_str().len();
        if SOCKET_PATH_BYTES_MAX < socket_bytes {
            return Err(ClaimError::PathTooLong {
                path: directory.join(SOCKET_NAME),
                bytes: socket_bytes,
            });
        }
        let parent_made = directory.parent().is_some_and(|parent| !parent.exists());
        let lock = take_lock(directory, instance)?;
        let (directory, instance) = (directory.to_owned(), instance.to_owned());
        let claim = Self { directory, instance, lock, parent_made };
        claim.write_owner()?;
        claim.remove_stale_socket()?;
        Ok(claim)
    }

    /// Where the admin socket stands.
    #[must_use]
    pub fn socket_path(&self) -> PathBuf {
        self.directory.join(SOCKET_NAME)
    }

    /// The claimed directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The instance that claimed it.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Whose lock it is, for the message that a second agent shows.
    fn write_owner(&self) -> Result<(), ClaimError> {
        let path = self.directory.join(LOCK_NAME);
        let mut lock = &self.lock;
        lock.set_len(0)
            .and_then(|()| lock.rewind())
            .and_then(|()| writeln!(lock, "{}\n{}", std::process::id(), self.instance))
            .map_err(|source| ClaimError::Io { what: "write", path, source })
    }

    fn remove_stale_socket(&self) -> Result<(), ClaimError> {
        let path = self.socket_path();
        match fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(&path)
                .map_err(|source| ClaimError::Io { what: "remove", path, source }),
            Ok(_) => Err(ClaimError::NotSocket { path }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(ClaimError::Io { what: "look at", path, source }),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let socket = self.socket_path();
        if fs::symlink_metadata(&socket).is_ok_and(|found| found.file_type().is_socket()) {
            warn_unless_gone(&socket, fs::remove_file(&socket));
        }
        // Removed while it is still locked: who opened it before sees by its inode that it is gone.
        let lock = self.directory.join(LOCK_NAME);
        warn_unless_gone(&lock, fs::remove_file(&lock));
        match fs::remove_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            removed => warn_unless_gone(&self.directory, removed),
        }
        if self.parent_made
            && let Some(parent) = self.directory.parent()
            && let Err(error) = fs::remove_dir(parent)
            && error.kind() != io::ErrorKind::DirectoryNotEmpty
        {
            warn_unless_gone(parent, Err(error));
        }
    }
}

/// Why a run directory could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another agent holds it.
    #[error(
        "another agent with instance {instance} is running, pid {}: stop it, or give this one \
         another instance name",
        pid.map_or_else(|| "unknown".to_owned(), |pid| pid.to_string())
    )]
    AlreadyRunning {
        /// Its instance.
        instance: String,
        /// Its process, if it has written it down yet.
        pid: Option<u32>,
    },
    /// Too long for a socket.
    #[error(
        "{path} has {bytes} bytes and a unix socket's path at most {SOCKET_PATH_BYTES_MAX}: \
         choose a shorter run directory"
    )]
    PathTooLong {
        /// The socket's path.
        path: PathBuf,
        /// Its length.
        bytes: usize,
    },
    /// Something else stands where the directory should.
    #[error("{path} is not a directory: remove it, or choose another run directory")]
    NotDirectory {
        /// What stands there.
        path: PathBuf,
    },
    /// Something else stands where the socket should.
    #[error("{path} is not a socket: remove it, or choose another run directory")]
    NotSocket {
        /// What stands there.
        path: PathBuf,
    },
    /// Another user's directory, or one that others write to.
    #[error(
        "{path} belongs to uid {owner} with mode {mode:03o}: it must be this user's (uid {uid}) \
         and not writable by others; remove it, or `chown {uid}` and `chmod 700` it"
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its permission bits.
        mode: u32,
        /// Who we are.
        uid: u32,
    },
    /// A file operation failed.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
}

/// Makes `directory` with mode 0700, or makes sure that it is ours alone.
fn own_directory(directory: &Path) -> Result<(), ClaimError> {
    let path = || directory.to_owned();
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(
        |source| match source.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
                ClaimError::NotDirectory { path: path() }
            }
            _ => ClaimError::Io { what: "make", path: path(), source },
        },
    )?;
    let found = fs::symlink_metadata(directory).map_err(|source| ClaimError::Io {
        what: "look at",
        path: path(),
        source,
    })?;
    if !found.is_dir() {
        return Err(ClaimError::NotDirectory { path: path() });
    }
    let uid = nix::unistd::geteuid().as_raw();
    let mode = found.mode() & 0o7777;
    if found.uid() != uid || mode & 0o022 != 0 {
        return Err(ClaimError::NotOurs { path: path(), owner: found.uid(), mode, uid });
    }
    if mode & 0o077 != 0 {
        // A service manager makes it 0755; nobody else wrote to it, so closing it is enough.
        fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
            .map_err(|source| ClaimError::Io { what: "chmod", path: path(), source })?;
    }
    Ok(())
}

/// The lock of `directory`, held; the directory is made for it.
///
/// A stopping agent removes its lock file and the directory: what vanishes under us is tried again.
fn take_lock(directory: &Path, instance: &str) -> Result<File, ClaimError> {
    for _ in 0..LOCK_TRIES_MAX {
        match own_directory(directory).and_then(|()| try_lock(directory, instance)) {
            Ok(Some(lock)) => return Ok(lock),
            Err(ClaimError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Ok(None) => {}
            Err(error) => return Err(error),
        }
    }
    let source = io::Error::other("other agents keep starting and stopping here");
    Err(ClaimError::Io { what: "lock", path: directory.join(LOCK_NAME), source })
}

/// The lock, held; `None` when the file was removed before it was.
fn try_lock(directory: &Path, instance: &str) -> Result<Option<File>, ClaimError> {
    let path = directory.join(LOCK_NAME);
    let failed = |what| {
        let path = path.clone();
        move |source| ClaimError::Io { what, path, source }
    };
    let mut lock = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .map_err(failed("open"))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(already_running(&mut lock, instance)),
        Err(TryLockError::Error(source)) => return Err(failed("lock")(source)),
    }
    let held = lock.metadata().map_err(failed("look at"))?;
    let there = fs::symlink_metadata(&path).map_err(failed("look at"))?;
    Ok((there.ino() == held.ino() && there.dev() == held.dev()).then_some(lock))
}

fn already_running(lock: &mut File, instance: &str) -> ClaimError {
    let mut text = String::new();
    // The holder may be writing it just now: then its pid stays unknown, which the message says.
    let read = lock.take(4096).read_to_string(&mut text);
    let mut lines = text.lines();
    let pid = lines.next().filter(|_| read.is_ok()).and_then(|line| line.parse().ok());
    let instance = lines.next().unwrap_or(instance).to_owned();
    ClaimError::AlreadyRunning { instance, pid }
}

fn warn_unless_gone(path: &Path, removed: io::Result<()>) {
    if let Err(error) = removed
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!("cannot remove {}: {error}", path.display());
    }
}
