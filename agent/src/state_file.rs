//! Small files below the state directory: put in place by a rename, so that an agent that dies
//! meanwhile leaves the one before.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Puts `bytes` in place of what the file had; the directory is made when it is not there.
///
/// # Errors
///
/// What the system says.
pub(crate) fn write(directory: &Path, file: &str, bytes: &[u8]) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let new = directory.join(format!("{file}.new"));
    let put = || {
        let mut options = OpenOptions::new();
        let mut written = options.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
        written.write_all(bytes)?;
        written.sync_data()?;
        fs::rename(&new, directory.join(file))
    };
    let done = put();
    if done.is_err() {
        // Half of it is of no use; that it cannot be removed either changes nothing.
        let _is_left = fs::remove_file(&new);
    }
    done
}

/// What the file has; `None` when it is not there.
///
/// # Errors
///
/// It cannot be read, or has more than `bytes_max` bytes: then we have not written it.
pub(crate) fn read(directory: &Path, file: &str, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let path = directory.join(file);
    let length = match fs::metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?.len(),
    };
    if bytes_max < length {
        return Err(io::Error::other(format!("it has {length} bytes")));
    }
    fs::read(&path).map(Some)
}
