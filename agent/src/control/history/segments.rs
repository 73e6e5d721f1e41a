//! The history's files: their names, what a crash left at their end, and how much there may be.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    fchown,
};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::LINE_BYTES_MAX;
use crate::control::readers;

/// Of the bound, what one segment takes at most: the oldest is removed as a whole.
const SEGMENTS: u64 = 8;
/// What is looked at in one go to find the last whole line.
const WINDOW_BYTES: u64 = 4 * LINE_BYTES_MAX as u64;

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Segment {
    /// The number of its first event.
    pub first: u64,
    /// Where it stands.
    pub path: PathBuf,
    /// Its length in bytes.
    pub length: u64,
}

/// The segments as they were found, the newest one open for writing.
#[derive(Debug)]
pub struct Opened {
    /// The newest.
    pub file: File,
    /// Which that is.
    pub newest: Segment,
    /// The others, the oldest first.
    pub older: VecDeque<Segment>,
    /// The number of the next event.
    pub next: u64,
    /// Bytes of a line that was not whole, cut off.
    pub cut: u64,
}

/// What is known of the newest segment by whoever wrote it: behind it stands what was written in
/// part, and is to be written anew.
#[derive(Clone, Debug)]
pub struct Known {
    /// Where it stands.
    pub path: PathBuf,
    /// Its length, as far as it is known to be written.
    pub length: u64,
    /// The number of the next event.
    pub next: u64,
}

/// The most that a segment may take where all of them may take `bytes_max`.
#[must_use]
pub const fn segment_bytes_max(bytes_max: u64) -> u64 {
    bytes_max / SEGMENTS
}

/// The segments of a directory, the oldest first. What has another name is passed over.
///
/// # Errors
///
/// The directory cannot be read.
pub fn list(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(first) = name.to_str().and_then(first_of) else { continue };
        // Not followed: a link is none of ours.
        let metadata = fs::symlink_metadata(entry.path())?;
        if metadata.is_file() {
            found.push(Segment { first, path: entry.path(), length: metadata.len() });
        }
    }
    found.sort();
    Ok(found)
}

/// Makes the directory if need be, opens its newest segment, cuts off what is no whole line at its
/// end (or what is not known to be written), and removes the oldest ones beyond the bound.
///
/// # Errors
///
/// What the file system refuses; [`io::ErrorKind::PermissionDenied`] too when the directory is
/// another user's or open to others.
pub fn open(directory: &Path, bytes_max: u64, known: Option<&Known>) -> io::Result<Opened> {
    own_directory(directory)?;
    let mut older = VecDeque::from(list(directory)?);
    let Some(mut newest) = older.pop_back() else {
        let (file, newest) = create(directory, 1)?;
        return Ok(Opened { file, newest, older, next: 1, cut: 0 });
    };
    let file = options().open(&newest.path)?;
    let is_it = |known: &&Known| known.path == newest.path && known.length <= newest.length;
    let (length, next) = match known.filter(is_it) {
        Some(known) => (known.length, known.next),
        None => {
            let (length, last) = sound(&file, newest.length)?;
            (length, last.map_or(newest.first, |last| last + 1))
        }
    };
    let cut = newest.length - length;
    if 0 < cut {
        file.set_len(length)?;
        newest.length = length;
    }
    trim(&mut older, newest.length, bytes_max)?;
    Ok(Opened { file, newest, older, next, cut })
}

/// A new segment whose first event is the `first`th.
///
/// # Errors
///
/// What the file system refuses.
pub fn create(directory: &Path, first: u64) -> io::Result<(File, Segment)> {
    let path = directory.join(format!("events-{first:020}.jsonl"));
    let file = options().create(true).open(&path)?;
    let above = fs::metadata(directory)?;
    if above.mode() & readers::GROUP_READS != 0 {
        // Whatever the umask: its readers are the directory's.
        if file.metadata()?.gid() != above.gid() {
            fchown(&file, None, Some(above.gid()))?;
        }
        file.set_permissions(Permissions::from_mode(0o640))?;
    }
    let length = file.metadata()?.len();
    Ok((file, Segment { first, path, length }))
}

/// Removes the oldest segments until a newest one of any length fits the bound as well.
///
/// # Errors
///
/// One cannot be removed.
pub fn trim(older: &mut VecDeque<Segment>, newest: u64, bytes_max: u64) -> io::Result<()> {
    let own = newest.max(segment_bytes_max(bytes_max));
    let mut sum: u64 = older.iter().map(|segment| segment.length).sum();
    while bytes_max < sum + own
        && let Some(oldest) = older.front()
    {
        match fs::remove_file(&oldest.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        sum -= oldest.length;
        older.pop_front();
    }
    Ok(())
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    options.read(true).append(true).mode(0o600).custom_flags(flags);
    options
}

/// Of `events-00000000000000000042.jsonl`: 42.
fn first_of(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("events-")?.strip_suffix(".jsonl")?;
    let is_number = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| digits.parse().ok()).flatten()
}

/// Makes the directory with mode 0700, or makes sure that nobody else writes to it.
fn own_directory(directory: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let found = fs::symlink_metadata(directory)?;
    if !found.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let uid = nix::unistd::geteuid().as_raw();
    if found.uid() != uid || found.mode() & 0o022 != 0 {
        let mode = found.mode() & 0o7777;
        let what = format!("it belongs to uid {} with mode {mode:03o}", found.uid());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}

/// The length up to the end of the last line that is whole, and the number of its event.
///
/// A crash leaves half a line; a power cut may leave zeros, or nothing of what was written last. So
/// whole is what ends by LF and is JSON with an order.
fn sound(file: &File, length: u64) -> io::Result<(u64, Option<u64>)> {
    let mut end = length;
    while 0 < end {
        let start = end.saturating_sub(WINDOW_BYTES);
        let mut window = vec![0; usize::try_from(end - start).expect("a window is short")];
        file.read_exact_at(&mut window, start)?;
        let (found, searched) = last_line(&window, start == 0);
        if let Some((stop, order)) = found {
            return Ok((start + stop as u64, Some(order)));
        }
        // What begins before this window, once more with its beginning; but always go on.
        let next = start + searched as u64;
        end = if next < end { next } else { start };
    }
    Ok((0, None))
}

/// The last whole line of a window: where it ends, and its order. Without one, up to where lines are
/// still to be looked for.
fn last_line(window: &[u8], is_first: bool) -> (Option<(usize, u64)>, usize) {
    let mut stop = window.len();
    while let Some(newline) = window[..stop].iter().rposition(|byte| *byte == b'\n') {
        let begin = match window[..newline].iter().rposition(|byte| *byte == b'\n') {
            Some(before) => before + 1,
            None if is_first => 0,
            None => return (None, newline + 1),
        };
        if let Ok(Numbered { order }) = serde_json::from_slice(&window[begin..newline]) {
            return (Some((newline + 1, order)), 0);
        }
        stop = begin;
    }
    (None, 0)
}

/// As much of an event as every version of it has.
#[derive(Deserialize)]
struct Numbered {
    order: u64,
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use tempfile::TempDir;

    use super::*;
    use crate::control::history::HistoryEvent;
    use crate::control::history::tests::event;

    const MIB: u64 = 1 << 20;

    fn line(order: u64) -> Vec<u8> {
        HistoryEvent::new(order, event("web.b1", "HTTP/1.1 500 No")).line().into_bytes()
    }

    /// A directory whose only segment holds these bytes.
    fn left(bytes: &[u8]) -> (TempDir, PathBuf) {
        let root = TempDir::new().unwrap();
        let directory = root.path().join("history/one");
        own_directory(&directory).unwrap();
        let (mut file, _) = create(&directory, 1).unwrap();
        file.write_all(bytes).unwrap();
        (root, directory)
    }

    #[track_caller]
    fn assert_repaired(bytes: &[u8], whole: &[u8], next: u64) {
        let (_root, directory) = left(bytes);
        let opened = open(&directory, MIB, None).unwrap();
        assert_eq!(opened.cut as usize, bytes.len() - whole.len());
        assert_eq!(opened.next, next);
        assert_eq!(fs::read(&opened.newest.path).unwrap(), whole);
        assert_eq!(opened.newest.length as usize, whole.len());
    }

    #[test]
    fn line_that_a_crash_tore_is_cut_off_and_the_numbers_go_on() {
        let two = [line(1), line(2)].concat();
        assert_repaired(&two, &two, 3);
        let third = line(3);
        for torn in [1, third.len() / 2, third.len() - 1] {
            assert_repaired(&[&two, &third[..torn]].concat(), &two, 3);
        }
        assert_repaired(&third[..10], b"", 1);
        assert_repaired(b"", b"", 1);
    }

    #[test]
    fn zeros_and_other_rubbish_of_a_power_cut_are_cut_off() {
        let whole = [line(1), line(2)].concat();
        for rubbish in [&[0; 5000][..], &[b'x'; 200_000], b"\n\n{}\n{\"order\":\"7\"}\n", b"{\n"] {
            assert_repaired(&[&whole, rubbish].concat(), &whole, 3);
        }
        let zeros_with_lines = [&[0; 100_000][..], b"\n", &[0; 100_000], b"\n"].concat();
        assert_repaired(&[&whole, &zeros_with_lines[..]].concat(), &whole, 3);
        assert_repaired(&[0; 300_000], b"", 1);
    }

    #[test]
    fn long_segment_is_repaired_at_its_end() {
        let whole: Vec<u8> = (1..=2_000).flat_map(line).collect();
        assert!(3 * WINDOW_BYTES < whole.len() as u64);
        assert_repaired(&[&whole, &line(2_001)[..7]].concat(), &whole, 2_001);
    }

    #[test]
    fn what_was_written_in_part_is_cut_off_to_be_written_anew() {
        let (_root, directory) = left(&[line(1), line(2), line(3), vec![b'{']].concat());
        let path = list(&directory).unwrap()[0].path.clone();
        let length = line(1).len() as u64;
        let known = Known { path, length, next: 2 };
        let opened = open(&directory, MIB, Some(&known)).unwrap();
        assert_eq!((opened.newest.length, opened.next), (length, 2));
        assert_eq!(fs::read(&opened.newest.path).unwrap(), line(1));
        // Of another segment it says nothing.
        let (_root, directory) = left(&[line(1), line(2)].concat());
        assert_eq!(open(&directory, MIB, Some(&known)).unwrap().next, 3);
    }

    #[test]
    fn event_of_a_later_version_is_left_as_it_is() {
        let later = b"{\"order\":9,\"what\":{\"nobody\":\"knows\"}}\n";
        assert_repaired(later, later, 10);
    }

    #[test]
    fn oldest_segments_go_when_the_whole_would_pass_its_bound() {
        let (_root, directory) = left(b"");
        fs::remove_file(directory.join("events-00000000000000000001.jsonl")).unwrap();
        for first in [1, 10, 100, 1_000] {
            let (mut file, _) = create(&directory, first).unwrap();
            file.write_all(&vec![b'x'; 310_000]).unwrap();
        }
        fs::write(directory.join("README"), "an operator's").unwrap();
        let (mut file, _) = create(&directory, 20_000).unwrap();
        file.write_all(&line(20_000)).unwrap();
        // Three of 310,000 bytes and an eighth of a MiB are more than a MiB; two are not.
        let opened = open(&directory, MIB, None).unwrap();
        let firsts: Vec<u64> = opened.older.iter().map(|segment| segment.first).collect();
        assert_eq!((firsts, opened.next), (vec![100, 1_000], 20_001));
        assert_eq!(list(&directory).unwrap().len(), 3);
        assert!(directory.join("README").exists());
    }

    #[test]
    fn directory_is_made_for_us_alone_and_a_shared_one_is_refused() {
        let (root, directory) = left(b"");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&root.path().join("history"))), (0o700, 0o700));
        assert_eq!(mode(&list(&directory).unwrap()[0].path), 0o600);
        fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
        let error = open(&directory, MIB, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("mode 777"), "{error}");
    }

    #[test]
    fn new_segment_has_the_group_of_a_directory_that_a_group_reads() {
        // Of base-passwd: any number but this process' own.
        const GROUP: u32 = 60;
        let (_root, directory) = left(b"");
        std::os::unix::fs::chown(&directory, None, Some(GROUP)).expect("tests run as root");
        let made = |first| create(&directory, first).unwrap().0.metadata().unwrap();
        assert_ne!(made(20).gid(), GROUP, "nobody is to read this one");
        // Without the bit that a service manager may forbid.
        fs::set_permissions(&directory, Permissions::from_mode(0o750)).unwrap();
        let found = made(30);
        assert_eq!((found.gid(), found.mode() & 0o777), (GROUP, 0o640));
    }

    #[test]
    fn link_is_not_followed() {
        let (root, directory) = left(b"");
        let outside = root.path().join("outside");
        fs::write(&outside, line(1)).unwrap();
        let link = directory.join("events-00000000000000000009.jsonl");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        assert_eq!(list(&directory).unwrap().len(), 1, "a link is none of ours");
        assert!(create(&directory, 9).is_err());
    }
}
