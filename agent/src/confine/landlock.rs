//! Files that a running agent may reach. The only file that names the crate `landlock`.

use std::path::{Path, PathBuf};

use ::landlock::{
    ABI, Access as _, AccessFs, BitFlags, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

/// The newest rights that are handled: a kernel that knows fewer holds the agent to those it knows.
/// Connecting to a unix socket by its path (ABI 9) is left alone, since backends may be anywhere.
const RIGHTS: ABI = ABI::V5;

/// What may be done below a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Files are read, directories listed.
    Read,
    /// Empty directories are removed.
    RemoveDirectories,
    /// Files and directories are read, written, made, moved and removed.
    Write,
}

impl Reach {
    fn rights(self) -> BitFlags<AccessFs> {
        match self {
            Self::Read => AccessFs::ReadFile | AccessFs::ReadDir,
            Self::RemoveDirectories => AccessFs::RemoveDir.into(),
            // By name, so that what a later kernel adds is refused: nothing is run, no device and no
            // socket is made.
            Self::Write => {
                AccessFs::ReadFile
                    | AccessFs::ReadDir
                    | AccessFs::WriteFile
                    | AccessFs::Truncate
                    | AccessFs::MakeDir
                    | AccessFs::MakeReg
                    | AccessFs::RemoveDir
                    | AccessFs::RemoveFile
                    | AccessFs::Refer
            }
        }
    }
}

/// What may be done below one path, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Where.
    pub path: PathBuf,
    /// What.
    pub reach: Reach,
}

/// What every agent reads, and what for.
pub const ALWAYS_READ: [(&str, &str); 6] = [
    ("/etc", "names of users, hosts and services; files there are replaced, so not one by one"),
    ("/proc", "its own state, sysctls"),
    ("/sys", "the kernel's types (BTF), the CPUs there are"),
    ("/usr/lib", "modules of the C library that look up names, loaded when first needed"),
    ("/lib", "the same"),
    ("/lib64", "the same"),
];

/// Where an agent works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Places {
    /// Directories that its configuration's files stand in, and what operators let it read besides.
    pub read: Vec<PathBuf>,
    /// Directories whose contents it changes: pins, admin socket, state.
    pub written: Vec<PathBuf>,
    /// Those of them that it removes at its end, with the one above when that is empty.
    pub removed: Vec<PathBuf>,
}

/// What may be done where.
#[must_use]
pub fn rules(places: &Places) -> Vec<Rule> {
    let always = ALWAYS_READ.iter().map(|(path, _)| Path::new(path));
    let read = always.chain(places.read.iter().map(PathBuf::as_path));
    let mut rules: Vec<Rule> =
        read.map(|path| Rule { path: path.to_owned(), reach: Reach::Read }).collect();
    let written = places.written.iter();
    rules.extend(written.map(|path| Rule { path: path.clone(), reach: Reach::Write }));
    // A directory is removed by leave of the one above it.
    let above = places.removed.iter().flat_map(|removed| removed.ancestors().skip(1).take(2));
    let above = above.map(|path| Rule { path: path.to_owned(), reach: Reach::RemoveDirectories });
    rules.extend(above);
    rules
}

/// Holds this thread, and those that it starts, to `rules` for ever, and keeps signals inside
/// (ABI 6). Paths that do not exist are passed over. Returns the ABI that it is held by; `None`:
/// this kernel has no Landlock, or does not use it.
///
/// # Errors
///
/// The kernel refuses.
pub(super) fn hold(rules: &[Rule]) -> Result<Option<u32>, RulesetError> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(RIGHTS))?
        .scope(Scope::Signal)?
        .create()?;
    for Rule { path, reach } in rules {
        if let Ok(place) = PathFd::new(path) {
            ruleset = ruleset.add_rule(PathBeneath::new(place, reach.rights()))?;
        }
    }
    let status = ruleset.restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => None,
        (_, LandlockStatus::Available { effective_abi, .. }) => Some(effective_abi as u32),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_little_and_what_is_read_is_named() {
        let places = Places {
            read: vec!["/srv/lists".into()],
            written: vec!["/sys/fs/bpf/sickbay/main".into(), "/var/lib/sickbay/main".into()],
            removed: vec!["/sys/fs/bpf/sickbay/main".into()],
        };
        let rules = rules(&places);
        let of = |reach| {
            let rules = rules.iter().filter(move |rule| rule.reach == reach);
            rules.map(|rule| rule.path.to_str().expect("text")).collect::<Vec<_>>()
        };
        assert_eq!(of(Reach::Write), ["/sys/fs/bpf/sickbay/main", "/var/lib/sickbay/main"]);
        assert_eq!(of(Reach::RemoveDirectories), ["/sys/fs/bpf/sickbay", "/sys/fs/bpf"]);
        assert!(of(Reach::Read).contains(&"/srv/lists"));
        assert!(!of(Reach::Read).contains(&"/"));
    }
}
