//! Files that change: noticed by inotify, and by a look once a second where that sees nothing
//! (network file systems, a directory that was not there).
//!
//! What is looked at is the file that the path leads to: its device, inode, size and times. So a
//! file that is written in place, replaced by a rename, or led to by another symbolic link is
//! noticed alike. inotify only says when to look: it watches the directories of the path and of
//! every link on the way. Nothing is read before two looks have found the same: an editor may be in
//! the middle of it.
#![expect(unsafe_code, reason = "tokio wants it promised that a descriptor stays open")]

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd as _, AsRawFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, timeout};

use super::{Blackboard, Source, file};

/// Between two looks when nothing is told.
const LOOK: Duration = Duration::from_secs(1);
/// From a change that is told to the look at it, and to the next one: what comes together is seen
/// together.
const SETTLE: Duration = Duration::from_millis(100);
/// Links that are followed; the kernel's own limit.
const LINKS_MAX: usize = 40;

/// What is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    /// The configuration file.
    Configuration(PathBuf),
    /// A file of backends.
    List { path: PathBuf, may_be_empty: bool },
}

impl Watched {
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Configuration(path) | Self::List { path, .. } => path,
        }
    }

    /// Acts on a change of it.
    fn read(&self, board: &Blackboard) {
        match self {
            Self::Configuration(_) => board.tell_configuration(),
            Self::List { path, may_be_empty } => {
                let may_be_empty = *may_be_empty;
                let source = Source::File { path: path.clone(), may_be_empty };
                board.tell(&source, file::answer(path, may_be_empty));
            }
        }
    }
}

/// The configuration file as it was acted upon last, whoever looks at it.
#[derive(Clone, Default)]
pub(super) struct Remembered(Arc<Mutex<Known>>);

/// A file as it was acted upon: the outer `None` = not yet, the inner one = it was not there.
type Known = Option<Option<Signature>>;

impl Remembered {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at these files until it is dropped. The configuration is as it is at the first look of all;
/// the lists are read once in any case.
pub(super) async fn look_on(files: Vec<Watched>, remembered: Remembered, board: Arc<Blackboard>) {
    let mut looks: Vec<Look> =
        files.into_iter().map(|file| Look::new(file, &mut remembered.lock())).collect();
    let mut bell = Bell::default();
    loop {
        bell.hang(looks.iter().map(|look| look.what.path()));
        let mut unsettled = false;
        for look in &mut looks {
            match look.look() {
                Seen::Same => {}
                Seen::Changing => unsettled = true,
                Seen::Changed => {
                    if matches!(look.what, Watched::Configuration(_)) {
                        *remembered.lock() = look.known;
                    }
                    look.what.read(&board);
                }
            }
        }
        if !unsettled {
            // It makes no difference whether it rang or the time was over.
            let _rang = timeout(LOOK, bell.wait()).await;
        }
        sleep(SETTLE).await;
        bell.hush();
    }
}

/// A file as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Signature([i64; 7]);

impl Signature {
    /// `None` = it is not there, or may not be looked at.
    fn of(path: &Path) -> Option<Self> {
        let it = fs::metadata(path).ok()?;
        let number = |id: u64| i64::from_ne_bytes(id.to_ne_bytes());
        let times = [it.mtime(), it.mtime_nsec(), it.ctime(), it.ctime_nsec()];
        let [modified, modified_ns, changed, changed_ns] = times;
        let (device, inode, size) = (number(it.dev()), number(it.ino()), number(it.size()));
        Some(Self([device, inode, size, modified, modified_ns, changed, changed_ns]))
    }
}

/// What a look found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    Same,
    /// Not as it was; perhaps not as it will be.
    Changing,
    /// Not as it was, and as it was found the last time.
    Changed,
}

/// One file, and what was found of it.
struct Look {
    what: Watched,
    known: Known,
    /// As it was at the last look, when that found a change.
    found: Known,
}

impl Look {
    fn new(what: Watched, remembered: &mut Known) -> Self {
        let known = match &what {
            Watched::Configuration(path) => {
                Some(*remembered.get_or_insert_with(|| Signature::of(path)))
            }
            Watched::List { .. } => None,
        };
        Self { what, known, found: None }
    }

    fn look(&mut self) -> Seen {
        let now = Signature::of(self.what.path());
        if self.known == Some(now) {
            self.found = None;
            return Seen::Same;
        }
        if self.found != Some(now) {
            self.found = Some(now);
            return Seen::Changing;
        }
        (self.known, self.found) = (Some(now), None);
        Seen::Changed
    }
}

/// Rings when something happens in one of its directories.
#[derive(Default)]
struct Bell {
    directories: BTreeSet<(PathBuf, Option<(u64, u64)>)>,
    inotify: Option<AsyncFd<Descriptor>>,
}

struct Descriptor(Inotify);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl Bell {
    /// Has it ring for the directories of these paths, as they are now. One that is not there is
    /// left to the looks; so is everything when there is no inotify to be had.
    fn hang<'a>(&mut self, paths: impl Iterator<Item = &'a Path>) {
        let directories: BTreeSet<PathBuf> = paths.flat_map(directories).collect();
        let which = |directory: PathBuf| {
            let id = fs::metadata(&directory).ok().map(|it| (it.dev(), it.ino()));
            (directory, id)
        };
        let directories = directories.into_iter().map(which).collect();
        if self.directories == directories {
            return;
        }
        self.directories = directories;
        self.inotify = self
            .open()
            .inspect_err(|errno| {
                tracing::warn!("files are looked at once a second: there is no inotify: {errno}");
            })
            .ok();
    }

    fn open(&self) -> Result<AsyncFd<Descriptor>, Errno> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let told = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MODIFY
            | AddWatchFlags::IN_ATTRIB
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF;
        for (directory, id) in &self.directories {
            if id.is_some()
                && let Err(errno) = inotify.add_watch(directory, told)
            {
                tracing::debug!("{} has no inotify: {errno}", directory.display());
            }
        }
        // SAFETY: `Descriptor` gives the same descriptor each time, and owns it: it stays open until
        // the AsyncFd, which owns that, has taken it out of its poll.
        let bell = unsafe { AsyncFd::register(Descriptor(inotify)) };
        bell.map_err(|_| Errno::EBADF)
    }

    /// Waits until it rings.
    async fn wait(&self) {
        match &self.inotify {
            Some(inotify) => {
                // An error of it would ring for ever.
                let Ok(mut ready) = inotify.readable().await else {
                    return sleep(LOOK).await;
                };
                ready.clear_ready();
            }
            None => sleep(LOOK).await,
        }
    }

    /// Forgets what it rang for: a look follows.
    fn hush(&self) {
        if let Some(inotify) = &self.inotify {
            while inotify.get_ref().0.read_events().is_ok() {}
        }
    }
}

/// The directories in which it is decided what `path` leads to: its own, and that of each symbolic
/// link on the way.
fn directories(path: &Path) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    let mut ahead = vec![path.to_owned()];
    for _ in 0..LINKS_MAX {
        let Some(path) = ahead.pop() else {
            break;
        };
        let mut above = path.ancestors().skip(1).filter(|it| !it.as_os_str().is_empty());
        let parent = above.next().unwrap_or(Path::new(".")).to_owned();
        directories.insert(parent.clone());
        // A directory on the way may be a link too: "..data" of a mounted ConfigMap is.
        for step in [path.as_path()].into_iter().chain(path.ancestors().skip(1)) {
            if let Ok(target) = fs::read_link(step) {
                let beside = step.parent().unwrap_or(Path::new("."));
                directories.insert(beside.to_owned());
                let rest = path.strip_prefix(step).unwrap_or(Path::new(""));
                let led = beside.join(target);
                ahead.push(if rest.as_os_str().is_empty() { led } else { led.join(rest) });
            }
        }
    }
    directories
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn look(path: &Path) -> Look {
        let list = Watched::List { path: path.to_owned(), may_be_empty: false };
        let mut look = Look::new(list, &mut None);
        assert_eq!(
            [look.look(), look.look(), look.look()],
            [Seen::Changing, Seen::Changed, Seen::Same]
        );
        look
    }

    #[test]
    fn change_is_acted_upon_when_two_looks_have_found_the_same() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("web.list");
        fs::write(&path, "a").expect("a file");
        let mut look = look(&path);
        for text in ["ab", "abc"] {
            fs::write(&path, text).expect("a file");
            assert_eq!(look.look(), Seen::Changing, "{text}");
        }
        assert_eq!([look.look(), look.look()], [Seen::Changed, Seen::Same]);
        fs::remove_file(&path).expect("it is there");
        assert_eq!(
            [look.look(), look.look(), look.look()],
            [Seen::Changing, Seen::Changed, Seen::Same]
        );
    }

    #[test]
    fn file_that_takes_the_place_of_another_is_a_change() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, new) = (directory.path().join("web.list"), directory.path().join("new"));
        fs::write(&path, "a").expect("a file");
        let mut look = look(&path);
        fs::write(&new, "b").expect("a file");
        fs::rename(&new, &path).expect("it can be renamed");
        assert_eq!([look.look(), look.look()], [Seen::Changing, Seen::Changed]);
    }

    #[test]
    fn link_to_another_directory_is_a_change_and_is_listened_to() {
        let root = tempfile::tempdir().expect("a directory");
        let root = fs::canonicalize(root.path()).expect("it is there");
        for version in ["v1", "v2"] {
            fs::create_dir(root.join(version)).expect("a directory");
            fs::write(root.join(version).join("web.list"), version).expect("a file");
        }
        symlink("v1", root.join("..data")).expect("a link");
        symlink("..data/web.list", root.join("web.list")).expect("a link");
        let path = root.join("web.list");
        let mut look = look(&path);
        let listened = directories(&path);
        assert!(listened.contains(&root) && listened.contains(&root.join("..data")));
        assert!(listened.contains(&root.join("v1")), "{listened:?}");
        symlink("v2", root.join("..data_tmp")).expect("a link");
        fs::rename(root.join("..data_tmp"), root.join("..data")).expect("it can be renamed");
        assert_eq!([look.look(), look.look()], [Seen::Changing, Seen::Changed]);
        assert!(directories(&path).contains(&root.join("v2")));
    }

    #[test]
    fn configuration_is_known_as_it_stood_when_it_was_looked_at_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("sickbay.toml");
        fs::write(&path, "a").expect("a file");
        let mut known = None;
        let of = |known: &mut Known| Look::new(Watched::Configuration(path.clone()), known);
        assert_eq!(of(&mut known).look(), Seen::Same);
        fs::write(&path, "ab").expect("a file");
        assert_eq!(of(&mut known).look(), Seen::Changing, "between two who look");
    }
}
