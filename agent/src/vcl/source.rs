//! The files of a VCL: which may be included, what is said of those that may not, and where a byte
//! of them stands.
//!
//! An include is confined to the folder of the first file, links followed. Of a file that cannot
//! be used only the name is told, as the include writes it: an agent that runs as root, or with
//! capabilities, must not become a way to read another user's files. Who may read is decided by
//! the real user (access(2)), and on the file that was opened, not on its path.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::config::Lines;

/// Bytes of all files of a VCL together. The largest in production are below 1 MiB.
pub(super) const BYTES_MAX: usize = 16 << 20;
/// Files that one VCL may consist of, counted once per include.
pub(super) const FILES_MAX: usize = 1024;
/// Includes within includes.
pub(super) const DEPTH_MAX: usize = 32;

/// One file's text under its name.
#[derive(Debug)]
pub(super) struct Source {
    /// As it is shown.
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
    /// Where it really is; `None` for text that came from no file.
    place: Option<PathBuf>,
    lines: Lines,
}

impl Source {
    /// Text that came from no file, and includes none.
    pub(super) fn of_text(name: &str, bytes: Vec<u8>) -> Self {
        let lines = Lines::new(&bytes);
        Self { name: name.to_owned(), bytes, place: None, lines }
    }

    /// The first file of a VCL.
    ///
    /// # Errors
    ///
    /// Why it cannot be read, in a few words.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let told = |error: io::Error| error.to_string();
        access(path, AccessFlags::R_OK).map_err(|errno| told(errno.into()))?;
        let file = File::open(path).map_err(told)?;
        if !is_readable_by_user(&file) {
            return Err(told(io::ErrorKind::PermissionDenied.into()));
        }
        let place = real_place(&file).map_err(told)?;
        let bytes = read(file, BYTES_MAX)?;
        let lines = Lines::new(&bytes);
        Ok(Self { name: shown(path), bytes, place: Some(place), lines })
    }

    /// The file that an include of `written` means, which stands in the file `self`; `first` is the
    /// VCL's first file, and `room` what may still be read.
    ///
    /// Varnish looks in `vcl_path`, or, behind `./`, beside the including file; here the folder of
    /// the first file is that path.
    ///
    /// # Errors
    ///
    /// Why it cannot be read, in a few words.
    pub(super) fn include(
        &self,
        written: &[u8],
        first: &Self,
        room: usize,
    ) -> Result<Self, String> {
        let outside = || "outside the folder of the first file".to_owned();
        let folder = |source: &Self| source.place.as_deref()?.parent().map(Path::to_owned);
        let confines = folder(first).ok_or_else(outside)?;
        let beside = if written.starts_with(b"./") { folder(self) } else { None };
        let path = Path::new(std::ffi::OsStr::from_bytes(written));
        let path = beside.as_ref().unwrap_or(&confines).join(path);
        let told = |error: io::Error| error.to_string();
        // Before anything is said of it: what does not exist and what is outside differ only for
        // those who may look there.
        access(&path, AccessFlags::R_OK).map_err(|errno| told(errno.into()))?;
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        let file = file.map_err(told)?;
        let place = real_place(&file).map_err(told)?;
        if !place.starts_with(&confines) {
            return Err(outside());
        }
        if !file.metadata().map_err(told)?.is_file() {
            return Err("not a regular file".to_owned());
        }
        if !is_readable_by_user(&file) {
            return Err(told(io::ErrorKind::PermissionDenied.into()));
        }
        let (name, bytes) = (shown(&path), read(file, room)?);
        let lines = Lines::new(&bytes);
        Ok(Self { name, bytes, place: Some(place), lines })
    }

    /// Whether both are the same file.
    pub(super) fn is_same_file(&self, other: &Self) -> bool {
        self.place.is_some() && self.place == other.place
    }

    /// Line and column, both from 1, the column in characters, of the byte at `offset`.
    pub(super) fn position(&self, offset: usize) -> (usize, usize) {
        self.lines.position(&self.bytes, offset)
    }
}

/// The whole file, up to `room` bytes.
fn read(file: File, room: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let limit = room as u64 + 1;
    file.take(limit).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if room < bytes.len() {
        return Err(format!("the files together are larger than {} MiB", BYTES_MAX >> 20));
    }
    Ok(bytes)
}

/// Whether the real user may read what is open here. (Access rights through the path are another
/// question; the paths are checked as well.)
fn is_readable_by_user(file: &File) -> bool {
    access(descriptor_path(file).as_path(), AccessFlags::R_OK).is_ok()
}

/// Where the open file is, links followed.
fn real_place(file: &File) -> io::Result<PathBuf> {
    std::fs::read_link(descriptor_path(file))
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// A path as it is shown: what would break the line or move the cursor is escaped.
pub(super) fn shown(path: &Path) -> String {
    path.to_string_lossy()
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect()
}
