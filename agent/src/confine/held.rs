//! What a process holds, as the kernel tells it: /proc/PID/status of each of its threads. What was
//! meant is not asked.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;

/// What one thread holds, or all of a process together: the most that any of them does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Effective capabilities, a bit each.
    pub effective: u64,
    /// The bounding set, a bit each.
    pub bounding: u64,
    /// Whether nothing can be gained by running a program.
    pub no_new_privileges: bool,
    /// 0: no filter of system calls; 1: strict; 2: filtered (seccomp(2)).
    pub seccomp: u32,
}

impl Held {
    /// Out of the text of a status file; `None` when a line is missing.
    #[must_use]
    pub fn parse(status: &str) -> Option<Self> {
        let line = |key: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
            found.map(str::trim)
        };
        let mask = |key| u64::from_str_radix(line(key)?, 16).ok();
        Some(Self {
            effective: mask("CapEff")?,
            bounding: mask("CapBnd")?,
            no_new_privileges: line("NoNewPrivs")? == "1",
            // Without CONFIG_SECCOMP there is no such line.
            seccomp: line("Seccomp").and_then(|mode| mode.parse().ok()).unwrap_or(0),
        })
    }

    /// What either holds.
    #[must_use]
    const fn or(self, other: Self) -> Self {
        Self {
            effective: self.effective | other.effective,
            bounding: self.bounding | other.bounding,
            no_new_privileges: self.no_new_privileges && other.no_new_privileges,
            seccomp: if self.seccomp < other.seccomp { self.seccomp } else { other.seccomp },
        }
    }
}

/// What this process holds, all of its threads together.
///
/// # Errors
///
/// /proc is not there, or tells less than a kernel that is supported.
pub fn by_this_process() -> io::Result<Held> {
    let mut all: Option<Held> = None;
    for task in fs::read_dir("/proc/self/task")? {
        match thread(&task?.path()) {
            // It has ended since it was listed.
            Err(error) if is_gone(&error) => {}
            held => {
                let held = held?;
                all = Some(all.map_or(held, |all| all.or(held)));
            }
        }
    }
    all.ok_or_else(|| io::ErrorKind::NotFound.into())
}

fn thread(task: &Path) -> io::Result<Held> {
    let status = fs::read_to_string(task.join("status"))?;
    Held::parse(&status).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "Name:\tsickbay\nCapInh:\t0000000000000000\nCapPrm:\t000000c000001000\n\
                          CapEff:\t000000c000001000\nCapBnd:\t000000c000001000\n\
                          CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n\
                          Seccomp_filters:\t2\n";

    #[test]
    fn status_is_read_line_by_line() {
        let held = Held::parse(STATUS).expect("all lines are there");
        let set = 1 << 12 | 1 << 38 | 1 << 39;
        let expected = Held { effective: set, bounding: set, no_new_privileges: true, seccomp: 2 };
        assert_eq!(held, expected);
        assert_eq!(Held::parse("Name:\tx\n"), None);
        let without = STATUS.replace("Seccomp:\t2\n", "");
        assert_eq!(Held::parse(&without).map(|held| held.seccomp), Some(0));
    }

    #[test]
    fn process_holds_what_any_of_its_threads_holds() {
        let held = Held::parse(STATUS).expect("all lines are there");
        let free = Held { effective: 1, bounding: 2, no_new_privileges: false, seccomp: 0 };
        let both = held.or(free);
        assert_eq!(both.effective, held.effective | 1);
        assert_eq!(both.bounding, held.bounding | 2);
        assert_eq!((both.no_new_privileges, both.seccomp), (false, 0));
        assert!(by_this_process().is_ok());
    }
}
