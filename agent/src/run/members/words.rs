//! What operators said over backends, kept in a file so that the next agent says it too.
//!
//! One JSON file, written anew at each change. A backend is found again by its pool's name and its
//! address.

use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sickbay_core::plan::Nanos;

use crate::control::said::{Said, now_unix_ms};
use crate::control::view::Admin;
use crate::fleet::{Backend, Fleet};
use crate::state_file;

/// The file's name in its directory.
const FILE: &str = "words.json";
/// Version of its format.
const VERSION: u32 = 1;
/// A file that is larger was not written by us: a word has some 400 bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// All that is kept.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Kept {
    version: u32,
    /// The boot whose monotonic clock the times are of.
    boot: String,
    pub(super) words: Vec<KeptWord>,
}

/// What was said over one backend.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptWord {
    /// Its pool's name.
    pub(super) pool: String,
    /// Its address, as it is written in a configuration.
    pub(super) address: String,
    /// Its health was set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) health: Option<KeptHealth>,
    /// It was drained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) drain: Option<KeptDrain>,
}

/// A backend's health as it was set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptHealth {
    pub(super) health: Admin,
    pub(super) said: Said,
    /// When it ends by itself, CLOCK_MONOTONIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until_ns: Option<Nanos>,
}

/// A backend's drain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct KeptDrain {
    /// It is for maintenance.
    pub(super) maintenance: bool,
    pub(super) said: Said,
    /// When its time is over, CLOCK_MONOTONIC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) until_ns: Option<Nanos>,
}

impl KeptWord {
    /// Of `backend`, over which nothing is said yet.
    pub(super) fn of(fleet: &Fleet, backend: &Backend) -> Self {
        Self {
            pool: fleet.pools[backend.pool].name.clone(),
            address: backend.address.written(),
            health: None,
            drain: None,
        }
    }

    /// Whether it was said over this backend.
    pub(super) fn is_over(&self, fleet: &Fleet, backend: &Backend) -> bool {
        self.pool == fleet.pools[backend.pool].name && self.address == backend.address.written()
    }
}

/// Puts what is kept in place of what was.
pub(super) fn write(directory: &Path, words: Vec<KeptWord>) -> io::Result<()> {
    if words.is_empty() {
        return match fs::remove_file(directory.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    let kept = Kept { version: VERSION, boot: boot()?, words };
    state_file::write(directory, FILE, &serde_json::to_vec_pretty(&kept)?)
}

/// What was kept, its times by this boot's clock as it is at `now`. Nothing when there is no file.
pub(super) fn read(directory: &Path, now: Nanos) -> io::Result<Vec<KeptWord>> {
    let Some(bytes) = state_file::read(directory, FILE, FILE_BYTES_MAX)? else {
        return Ok(Vec::new());
    };
    let Kept { version, boot: written_in, mut words } = serde_json::from_slice(&bytes)?;
    if version != VERSION {
        return Err(io::Error::other(format!("it has version {version}, not {VERSION}")));
    }
    if written_in != boot()? {
        let unix_ms = now_unix_ms();
        // Another boot's monotonic times mean nothing; the wall clock's do.
        let until_ns = |said: &Said| {
            let left_ms = said.until_unix_ms?.saturating_sub(unix_ms);
            Some(now.saturating_add(left_ms.saturating_mul(1_000_000)))
        };
        for word in &mut words {
            if let Some(health) = &mut word.health {
                health.until_ns = until_ns(&health.said);
            }
            if let Some(drain) = &mut word.drain {
                drain.until_ns = until_ns(&drain.said);
            }
        }
    }
    Ok(words)
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word() -> KeptWord {
        let said = Said {
            by: "root".to_owned(),
            at_unix_ms: now_unix_ms(),
            reason: Some("disk\nswap".to_owned()),
            until_unix_ms: Some(now_unix_ms() + 60_000),
        };
        KeptWord {
            pool: "web".to_owned(),
            address: "192.0.2.1:80".to_owned(),
            health: Some(KeptHealth {
                health: Admin::Sick,
                said: said.clone(),
                until_ns: Some(77),
            }),
            drain: Some(KeptDrain { maintenance: true, said, until_ns: None }),
        }
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_leaves_no_file() {
        let root = tempfile::tempdir().expect("a directory");
        let directory = root.path().join("state/default");
        assert_eq!(read(&directory, 5).expect("no file yet"), []);
        // Once: it is said when it is made.
        let word = word();
        write(&directory, vec![word.clone()]).expect("it is written");
        assert_eq!(read(&directory, 5).expect("it is there"), [word]);
        let names = |directory: &Path| fs::read_dir(directory).expect("it is there").count();
        assert_eq!(names(&directory), 1);
        write(&directory, Vec::new()).expect("it is removed");
        assert_eq!(names(&directory), 0);
    }

    #[test]
    fn times_of_another_boot_go_by_the_wall_clock() {
        let root = tempfile::tempdir().expect("a directory");
        let kept = Kept { version: VERSION, boot: "another".to_owned(), words: vec![word()] };
        let text = serde_json::to_string(&kept).expect("plain data");
        fs::write(root.path().join(FILE), text).expect("a file");
        let words = read(root.path(), 1_000).expect("it is there");
        let until_ns = words[0].health.as_ref().expect("it was set").until_ns.expect("a time");
        assert!((50_000_000_000..=60_000_001_000).contains(&until_ns), "{until_ns}");
    }

    #[test]
    fn file_of_another_version_or_torn_is_an_error() {
        let root = tempfile::tempdir().expect("a directory");
        let file = root.path().join(FILE);
        fs::write(&file, "{\"version\":2,\"boot\":\"x\",\"words\":[]}").expect("a file");
        let error = read(root.path(), 0).expect_err("another version").to_string();
        assert!(error.contains("version 2"), "{error}");
        fs::write(&file, "{\"version\":1,").expect("a file");
        read(root.path(), 0).expect_err("torn");
    }
}
