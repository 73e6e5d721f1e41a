//! The pin directory: made, locked, undone.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::statfs::{BPF_FS_MAGIC, statfs};

use super::error::KernelError;
use super::left;

/// Folder of the pin directory in which every map is pinned by its name.
pub const MAPS_FOLDER: &str = "maps";
/// Folder of the pin directory in which the links are pinned.
pub const LINKS_FOLDER: &str = "links";
/// Folder of the pin directory in which the programs are pinned that the links run.
pub(super) const PROGRAMS_FOLDER: &str = "programs";
/// Where the maps of an agent that died stand while a new agent loads. No dot: the BPF file system
/// reserves names with dots (kernel/bpf/inode.c, `bpf_lookup`).
pub(super) const OLD_MAPS_FOLDER: &str = "maps-old";

/// Whether `path`, or the nearest parent of it that exists, is on a BPF file system.
#[must_use]
pub fn on_bpf_file_system(path: &Path) -> bool {
    path.ancestors()
        .find_map(|path| statfs(path).ok())
        .is_some_and(|found| found.filesystem_type() == BPF_FS_MAGIC)
}

/// The pin directory of one instance, held by its agent.
#[derive(Debug)]
pub(super) struct Pins {
    directory: PathBuf,
    /// Directories that were made, outermost first.
    made: Vec<PathBuf>,
    /// Held as long as this agent lives; the kernel releases it when the agent dies.
    _lock: Flock<File>,
}

impl Pins {
    /// Makes the pin directory (0700) and its folders, and locks it.
    pub(super) fn prepare(directory: &Path) -> Result<Self, KernelError> {
        if !on_bpf_file_system(directory) {
            return Err(KernelError::NoBpfFileSystem { path: directory.to_owned() });
        }
        if let Some(name) = name_with_dot(directory) {
            return Err(KernelError::PinName { path: directory.to_owned(), name });
        }
        let mut made = Vec::new();
        let lock = make_directories(directory, &mut made).and_then(|()| lock(directory));
        let lock = match lock {
            Ok(lock) => lock,
            Err(error) => {
                remove_empty(&made);
                return Err(error);
            }
        };
        let mut pins = Self { directory: directory.to_owned(), made, _lock: lock };
        for folder in [MAPS_FOLDER, LINKS_FOLDER] {
            let path = directory.join(folder);
            if let Err(error) = make_directories(&path, &mut pins.made) {
                pins.abandon();
                return Err(error);
            }
        }
        Ok(pins)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Where the map `name` is pinned.
    pub(super) fn map(&self, name: &str) -> PathBuf {
        self.directory.join(MAPS_FOLDER).join(name)
    }

    /// Where the link called `name` is pinned.
    pub(super) fn link(&self, name: &str) -> PathBuf {
        self.directory.join(LINKS_FOLDER).join(name)
    }

    /// Where the programs that the links run are pinned.
    pub(super) fn programs(&self) -> PathBuf {
        self.directory.join(PROGRAMS_FOLDER)
    }

    /// Makes room for the programs that the links run from now on.
    pub(super) fn drop_programs(&self) -> Result<(), KernelError> {
        let programs = self.programs();
        remove_pins_in(&programs)?;
        make_directories(&programs, &mut Vec::new())
    }

    /// Every link that is pinned: name and path.
    pub(super) fn links(&self) -> Vec<(String, PathBuf)> {
        let Ok(entries) = fs::read_dir(self.directory.join(LINKS_FOLDER)) else {
            return Vec::new();
        };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        paths.map(|path| (name_of(&path), path)).collect()
    }

    /// Moves the maps of an agent that died out of the way; its program keeps using them.
    /// Returns whether there were any.
    pub(super) fn set_old_maps_aside(&self) -> Result<bool, KernelError> {
        let maps = self.directory.join(MAPS_FOLDER);
        let old = self.directory.join(OLD_MAPS_FOLDER);
        if is_empty(&maps) {
            // The last agent died between this and the end of its load: those in `old` count.
            return Ok(old.exists());
        }
        if old.exists() && !left::is_whole(&maps) {
            // It died before it had laid its own out: those in `old` are in force.
            self.put_back_kept(&maps)?;
            remove_pins_in(&maps)?;
            make_directories(&maps, &mut Vec::new())?;
            return Ok(true);
        }
        remove_pins_in(&old)?;
        fs::rename(&maps, &old).map_err(failed("move", &maps))?;
        make_directories(&maps, &mut Vec::new())?;
        Ok(true)
    }

    /// Moves what had been kept of the old maps back to them.
    fn put_back_kept(&self, maps: &Path) -> Result<(), KernelError> {
        for entry in fs::read_dir(maps).map_err(failed("read", maps))? {
            let path = entry.map_err(failed("read", maps))?.path();
            let old = self.old_map(&name_of(&path));
            if !old.exists() {
                fs::rename(&path, &old).map_err(failed("move", &path))?;
            }
        }
        Ok(())
    }

    /// Moves one map back from those set aside, for the new program to go on with.
    pub(super) fn keep_old_map(&self, name: &str) -> Result<(), KernelError> {
        let old = self.old_map(name);
        fs::rename(&old, self.map(name)).map_err(failed("move", &old))
    }

    /// Where the map `name` that was set aside is pinned.
    pub(super) fn old_map(&self, name: &str) -> PathBuf {
        self.directory.join(OLD_MAPS_FOLDER).join(name)
    }

    /// Puts the maps that were set aside back in their place, `kept` first.
    pub(super) fn put_old_maps_back(&self, kept: &[&str]) -> Result<(), KernelError> {
        let maps = self.directory.join(MAPS_FOLDER);
        for name in kept {
            let path = self.map(name);
            if path.exists() {
                fs::rename(&path, self.old_map(name)).map_err(failed("move", &path))?;
            }
        }
        remove_pins_in(&maps)?;
        let old = self.directory.join(OLD_MAPS_FOLDER);
        fs::rename(&old, &maps).map_err(failed("move", &old))
    }

    /// Unpins the maps that were set aside.
    pub(super) fn drop_old_maps(&self) -> Result<(), KernelError> {
        remove_pins_in(&self.directory.join(OLD_MAPS_FOLDER)).map(drop)
    }

    /// Undoes what this agent made: its maps, and the directories it made.
    pub(super) fn abandon(&mut self) {
        // Nothing more can be done about a failure here, and `sickbay detach` removes the rest.
        let _ = remove_pins_in(&self.directory.join(MAPS_FOLDER));
        let links = self.directory.join(LINKS_FOLDER);
        if is_empty(&links) {
            self.made.extend([links, self.directory.join(MAPS_FOLDER)]);
        }
        remove_empty(&self.made);
    }
}

/// Removes every pin in `folder` and the folder itself; returns the names. Missing is fine.
pub(super) fn remove_pins_in(folder: &Path) -> Result<Vec<String>, KernelError> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(failed("read", folder)(source)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed("read", folder))?.path();
        fs::remove_file(&path).map_err(failed("remove", &path))?;
        names.push(name_of(&path));
    }
    fs::remove_dir(folder).map_err(failed("remove", folder))?;
    names.sort_unstable();
    Ok(names)
}

/// The last part of a path, for texts.
pub(super) fn name_of(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Makes an error of a failed file operation.
pub(super) fn failed(action: &'static str, path: &Path) -> impl Fn(io::Error) -> KernelError {
    let path = path.to_owned();
    move |source| KernelError::Pins { action, path: path.clone(), source }
}

/// The part of `path` on the BPF file system that has a dot in its name.
fn name_with_dot(path: &Path) -> Option<String> {
    path.ancestors().take_while(|path| !path.exists()).map(name_of).find(|name| name.contains('.'))
}

/// Makes `path` and its missing parents, 0700, and notes which it made.
fn make_directories(path: &Path, made: &mut Vec<PathBuf>) -> Result<(), KernelError> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_directories(parent, made)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => made.push(path.to_owned()),
        // Another instance made the same parent at the same time.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(source) => return Err(failed("make", path)(source)),
    }
    Ok(())
}

/// Removes the directories that are empty, innermost first.
fn remove_empty(made: &[PathBuf]) {
    let mut made: Vec<_> = made.iter().collect();
    made.sort_unstable_by_key(|path| std::cmp::Reverse(path.components().count()));
    for path in made {
        // One that others put something in stays, as it should.
        let _ = fs::remove_dir(path);
    }
}

/// Takes the directory for this process, until it ends.
pub(super) fn lock(directory: &Path) -> Result<Flock<File>, KernelError> {
    let file = File::open(directory).map_err(failed("open", directory))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        nix::errno::Errno::EWOULDBLOCK => KernelError::Running { path: directory.to_owned() },
        errno => failed("lock", directory)(errno.into()),
    })
}

fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ordinary_directory_is_refused_with_the_mount_command() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("sickbay").join("main");
        let error = Pins::prepare(&wanted).unwrap_err().to_string();
        assert!(error.contains("mount -t bpf bpf /sys/fs/bpf"), "{error}");
        assert!(error.contains(&*wanted.to_string_lossy()), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(!directory.path().join("sickbay").exists());
    }

    #[test]
    fn a_name_with_a_dot_is_found_below_what_exists() {
        let directory = tempfile::tempdir().unwrap();
        assert!(name_of(directory.path()).starts_with('.'), "what exists does not count");
        let path = directory.path();
        assert_eq!(name_with_dot(&path.join("sickbay/a.b")), Some("a.b".to_owned()));
        assert_eq!(name_with_dot(&path.join("sickbay/a-b")), None);
        assert_eq!(name_with_dot(path), None);
    }

    #[test]
    fn what_is_not_empty_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let (outer, inner) = (directory.path().join("a"), directory.path().join("a/b"));
        let mut made = Vec::new();
        make_directories(&inner, &mut made).unwrap();
        assert_eq!(made, [outer.clone(), inner.clone()]);
        fs::write(outer.join("other"), "").unwrap();
        remove_empty(&made);
        assert!(outer.exists() && !inner.exists());
    }

    #[test]
    fn the_directory_is_locked_once() {
        let directory = tempfile::tempdir().unwrap();
        let first = lock(directory.path()).unwrap();
        let second = lock(directory.path()).unwrap_err();
        assert!(matches!(second, KernelError::Running { .. }), "{second}");
        drop(first);
        lock(directory.path()).unwrap();
    }
}
