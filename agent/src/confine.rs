//! What a running agent gives up when it has started: capabilities, system calls, files.
//!
//! In: what the configuration says of it, and where the agent works. What it comes to holds for the
//! calling thread and those that it starts, and cannot be taken back, so it is done before the
//! first other thread. What each part keeps or refuses, and why, stands in a table of its file; the
//! rings of the probing threads restrict themselves (`engine/uring.rs`).

use std::io;

/// Capabilities.
mod capabilities;
/// What a process holds.
mod held;
/// Files.
mod landlock;
/// System calls.
mod seccomp;

pub use self::capabilities::{Capability, KEPT, by_name, kept, names, names_in, permitted};
pub use self::held::{Held, by_this_process};
pub use self::landlock::{ALWAYS_READ, Places, Reach, Rule, rules};
pub use self::seccomp::{DENIED, Denied};

/// What is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Privilege {
    /// All capabilities but [`KEPT`].
    pub drop_capabilities: bool,
    /// Capabilities that are kept besides.
    pub keep: Vec<Capability>,
    /// The system calls in [`DENIED`].
    pub seccomp: bool,
    /// All files but those of [`rules`].
    pub landlock: bool,
    /// Directories that files may be read from besides, by a reload.
    pub readable: Vec<std::path::PathBuf>,
}

impl Default for Privilege {
    /// Everything is given up.
    fn default() -> Self {
        let (keep, readable) = (Vec::new(), Vec::new());
        Self { drop_capabilities: true, keep, seccomp: true, landlock: true, readable }
    }
}

/// What came of it that nobody else can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confined {
    /// By which version of Landlock files are held; `None` = they are not.
    pub landlock_abi: Option<u32>,
}

/// Why nothing could be given up.
#[derive(Debug, thiserror::Error)]
#[error("cannot give up {what}: {reason}; `{key} = false` in [privilege] goes on without that")]
pub struct ConfineError {
    what: &'static str,
    reason: String,
    key: &'static str,
}

/// Gives it up. What this kernel does not have is passed over with a warning.
///
/// # Errors
///
/// The kernel refuses what it has.
pub fn confine(privilege: &Privilege, places: &Places) -> Result<Confined, ConfineError> {
    nix::sys::prctl::set_no_new_privs()
        .map_err(|errno| refused("new privileges", "seccomp")(io::Error::from(errno)))?;
    let mut confined = Confined::default();
    if privilege.landlock {
        confined.landlock_abi =
            landlock::hold(&rules(places)).map_err(refused("files", "landlock"))?;
        if confined.landlock_abi.is_none() {
            tracing::warn!("this kernel has no Landlock in use: files are not confined");
        }
    }
    if privilege.drop_capabilities {
        let drop = |held| capabilities::keep_only(&kept(&held, &privilege.keep));
        permitted().and_then(drop).map_err(refused("capabilities", "drop_capabilities"))?;
    }
    if privilege.seccomp {
        match seccomp::refuse() {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                tracing::warn!("this kernel takes no filter of system calls: none is refused");
            }
            done => done.map_err(refused("system calls", "seccomp"))?,
        }
    }
    Ok(confined)
}

fn refused<E: std::fmt::Display>(
    what: &'static str,
    key: &'static str,
) -> impl Fn(E) -> ConfineError {
    move |error| ConfineError { what, reason: error.to_string(), key }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = include_str!("../docs/privilege.md");

    /// The rows of the page's tables, a cell's text each.
    fn rows() -> Vec<Vec<&'static str>> {
        let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        rows.map(|row| row.split(" | ").collect()).collect()
    }

    #[test]
    fn page_for_operators_has_every_capability_with_its_reason() {
        for (capability, why) in KEPT {
            let row = [format!("`{capability}`"), why.to_owned()];
            assert!(rows().iter().any(|it| *it == row), "{row:?}");
        }
    }

    #[test]
    fn page_for_operators_has_every_denied_call_with_its_reason() {
        for Denied { why, calls } in DENIED {
            let rows = rows();
            let row = rows.iter().find(|row| row[0] == *why).expect(why);
            let listed: Vec<&str> = row[1].split([',', ';']).map(str::trim).collect();
            for (name, _) in *calls {
                let name = name.trim_start_matches("SYS_");
                assert!(listed.contains(&name), "{name} is not in {listed:?}");
            }
        }
    }

    #[test]
    fn page_for_operators_has_every_place_that_is_read() {
        for (path, _) in ALWAYS_READ {
            assert!(PAGE.contains(&format!("`{path}`")), "{path}");
        }
    }
}
