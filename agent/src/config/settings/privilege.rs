//! `[privilege]` as it is written.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::confine::Privilege;

/// What the agent gives up when it has started. All of it may be left out; a change needs a restart.
/// No setting allows new privileges again (no_new_privs), and the probing rings always take their
/// own operations alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PrivilegeSettings {
    /// Whether all capabilities are given up but CAP_NET_ADMIN, CAP_PERFMON and CAP_BPF, which a
    /// reload needs.
    pub drop_capabilities: bool,
    /// Capabilities that are kept besides: CAP_DAC_OVERRIDE to probe unix sockets, or to read files
    /// at a reload, that belong to other users.
    #[schemars(example = ["CAP_DAC_OVERRIDE"])]
    pub keep: Vec<String>,
    /// Whether system calls are refused that a running agent does not make: to run a program, to
    /// trace, to mount, to load a module and the like.
    pub seccomp: bool,
    /// Whether files are out of reach (Landlock) but for reading where the configuration's files
    /// stand at the start, below /etc, /proc, /sys and the C library's, and writing below the
    /// agent's own directories.
    pub landlock: bool,
    /// Directories that a reload may read files from besides.
    #[schemars(example = ["/srv/sickbay"])]
    pub readable: Vec<String>,
}

impl Default for PrivilegeSettings {
    fn default() -> Self {
        let Privilege { drop_capabilities, seccomp, landlock, .. } = Privilege::default();
        Self { drop_capabilities, keep: Vec::new(), seccomp, landlock, readable: Vec::new() }
    }
}
