//! What the agent's process holds, as the kernel tells it.

use serde::{Deserialize, Serialize};

use crate::confine;

/// What the process holds: the most that any of its threads does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivilegeView {
    /// Effective capabilities, by name.
    pub capabilities: Vec<String>,
    /// The bounding set, by name.
    pub bounding: Vec<String>,
    /// Whether nothing can be gained by running a program.
    pub no_new_privileges: bool,
    /// 0: system calls are not filtered; 1: strict; 2: filtered (as in /proc/PID/status).
    pub seccomp: u32,
    /// The version of Landlock that files are held by; `None` = they are not.
    pub landlock_abi: Option<u32>,
}

impl PrivilegeView {
    /// Of this process; `None` when /proc does not tell. By which Landlock it is held the kernel
    /// tells only whoever asks for it.
    #[must_use]
    pub fn of_this_process(landlock_abi: Option<u32>) -> Option<Self> {
        let held = confine::by_this_process().ok()?;
        Some(Self {
            capabilities: confine::names_in(held.effective),
            bounding: confine::names_in(held.bounding),
            no_new_privileges: held.no_new_privileges,
            seccomp: held.seccomp,
            landlock_abi,
        })
    }
}
