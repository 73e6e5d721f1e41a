//! Why an engine cannot start or go on: by name, with the remedy.

use std::io;

/// Why an engine cannot start or go on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The administrator switched io_uring off.
    #[error(
        "io_uring is disabled on this host (kernel.io_uring_disabled = {setting}); \
         allow it with: sysctl -w kernel.io_uring_disabled=0"
    )]
    Disabled {
        /// The sysctl's value.
        setting: String,
    },
    /// Something else refused the ring: a seccomp filter, as a rule.
    #[error(
        "io_uring is refused to this process, by a seccomp filter as a rule; allow the system \
         calls io_uring_setup, io_uring_enter and io_uring_register (a container: its seccomp \
         profile; systemd: SystemCallFilter=)"
    )]
    Forbidden,
    /// The kernel is too old or was built without it.
    #[error(
        "kernel {release} lacks {feature}; run kernel 6.1 or newer, built with CONFIG_IO_URING"
    )]
    FeatureMissing {
        /// What is missing.
        feature: &'static str,
        /// The running kernel.
        release: String,
    },
    /// More probes in flight than descriptors.
    #[error(
        "{slots} probes in flight need as many descriptors, and the hard limit (RLIMIT_NOFILE) is \
         {limit}; lower in_flight, or raise the limit (systemd: LimitNOFILE=)"
    )]
    DescriptorLimit {
        /// Probes in flight that were asked for.
        slots: u32,
        /// The hard limit.
        limit: u64,
    },
    /// No descriptor for the ring itself.
    #[error(
        "no descriptor is left for a ring ({source}); close some, or raise the limit (systemd: \
         LimitNOFILE=, host: sysctl fs.file-max)"
    )]
    NoDescriptor {
        /// EMFILE or ENFILE.
        source: io::Error,
    },
    /// The kernel gave no memory for the ring.
    #[error("no memory for a ring of {slots} probes in flight; lower in_flight or free memory")]
    NoMemory {
        /// Probes in flight that were asked for.
        slots: u32,
    },
    /// Anything else the kernel said.
    #[error("io_uring: {call} failed: {source}")]
    Call {
        /// Which call.
        call: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The shard's thread could not be started or pinned.
    #[error("the thread of shard {shard} could not be {action}: {source}")]
    Thread {
        /// Which shard.
        shard: usize,
        /// Started, or pinned to its core.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// A shard's thread panicked: a bug in sickbay.
    #[error("shard {shard} panicked; this is a bug: report it with the lines before this one")]
    Panicked {
        /// Which shard.
        shard: usize,
    },
}

impl EngineError {
    /// What an io_uring_setup that failed means.
    pub(super) fn from_setup(source: io::Error, slots: u32) -> Self {
        match source.raw_os_error() {
            Some(libc::EPERM) => match read_trimmed("/proc/sys/kernel/io_uring_disabled") {
                Some(setting) if setting != "0" => Self::Disabled { setting },
                _ => Self::Forbidden,
            },
            Some(libc::ENOSYS) => Self::missing("io_uring"),
            Some(libc::EINVAL) => Self::missing(
                "io_uring with IORING_SETUP_SINGLE_ISSUER and IORING_SETUP_DEFER_TASKRUN (6.1)",
            ),
            Some(libc::EMFILE | libc::ENFILE) => Self::NoDescriptor { source },
            Some(libc::ENOMEM) => Self::NoMemory { slots },
            _ => Self::Call { call: "io_uring_setup", source },
        }
    }

    /// The running kernel lacks `feature`.
    pub(super) fn missing(feature: &'static str) -> Self {
        let release = read_trimmed("/proc/sys/kernel/osrelease");
        Self::FeatureMissing { feature, release: release.unwrap_or_else(|| "(unknown)".into()) }
    }
}

fn read_trimmed(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup_failing_with(errno: i32) -> String {
        EngineError::from_setup(io::Error::from_raw_os_error(errno), 4096).to_string()
    }

    #[test]
    fn refusal_names_the_remedy() {
        assert!(setup_failing_with(libc::EINVAL).contains("run kernel 6.1 or newer"));
        assert!(setup_failing_with(libc::ENOSYS).contains("lacks io_uring;"));
        assert!(setup_failing_with(libc::EMFILE).contains("LimitNOFILE="));
        assert!(setup_failing_with(libc::ENOMEM).contains("lower in_flight"));
    }

    #[test]
    fn errors_are_one_line() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL, libc::EMFILE, libc::EIO] {
            assert!(!setup_failing_with(errno).contains('\n'));
        }
    }
}
