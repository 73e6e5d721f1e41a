//! What this host must have: checked at start, refused by name, with the remedy.
//!
//! [`require`] collects the [`Facts`] and holds them against the [`Needs`]; what each fact means is
//! decided in a pure function. Which io_uring operations the kernel has is the engine's question.

use std::path::{Path, PathBuf};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use thiserror::Error;

use crate::confine;
use crate::kernel::on_bpf_file_system;

/// Oldest kernel that is supported: Debian 12's own.
pub const KERNEL_MIN: (u32, u32) = (6, 1);
/// Where the kernel shows its own types.
const BTF: &str = "/sys/kernel/btf/vmlinux";

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// What is to be done on this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// Where maps and links are to be pinned; `None`: no steering, so nothing of eBPF.
    pub pin_directory: Option<PathBuf>,
    /// Descriptors that must be open at the same time.
    pub descriptors: u64,
    /// Of the capabilities that are there, those that stay: the rings are made with them.
    pub lasting: u64,
}

/// Why this host will not do. One line each: what is missing, and the remedy.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum HostError {
    /// Too old a kernel, or none that tells its version.
    #[error(
        "kernel {found} is too old: sickbay needs {}.{} or newer", KERNEL_MIN.0, KERNEL_MIN.1
    )]
    Kernel {
        /// What uname says.
        found: String,
    },
    /// A capability is missing.
    #[error(
        "{name} is missing, needed to {purpose}: run as root, or grant it \
         (`AmbientCapabilities={name}` in a systemd unit)"
    )]
    Capability {
        /// Its name.
        name: &'static str,
        /// What for.
        purpose: &'static str,
    },
    /// No BPF file system.
    #[error(
        "{} is not on a BPF file system: mount one with `mount -t bpf bpf /sys/fs/bpf`, or set \
         pin_directory to where one is", path.display()
    )]
    BpfFileSystem {
        /// Where the pins are to be.
        path: PathBuf,
    },
    /// No BTF.
    #[error(
        "the kernel shows no BTF at {BTF}: use a kernel built with CONFIG_DEBUG_INFO_BTF=y (every \
         distribution's own is)"
    )]
    Btf,
    /// io_uring is switched off.
    #[error(
        "io_uring is disabled for this process (kernel.io_uring_disabled = {level}): allow it with \
         `sysctl -w kernel.io_uring_disabled=0`"
    )]
    IoUring {
        /// The sysctl's value.
        level: u32,
    },
    /// Too few descriptors.
    #[error(
        "{needed} descriptors are needed at once, the hard limit is {limit}: raise it (`ulimit -Hn \
         {needed}`, or LimitNOFILE={needed} in a systemd unit), or lower in_flight"
    )]
    Descriptors {
        /// How many are needed.
        needed: u64,
        /// How many there may be.
        limit: u64,
    },
}

/// What is known of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The kernel's release, as uname says it.
    pub kernel: String,
    /// The effective capabilities, a bit each.
    pub capabilities: u64,
    /// Whether the pin directory, or the nearest parent that exists, is on a BPF file system.
    pub pins_on_bpf: bool,
    /// Whether the kernel shows its BTF.
    pub btf: bool,
    /// The sysctl kernel.io_uring_disabled; 0 where there is none (before 6.6).
    pub io_uring_disabled: u32,
    /// The soft limit of descriptors, after it was raised to the hard one.
    pub descriptors: u64,
}

/// Checks that this host has what `needs` says; raises the soft limit of descriptors to the hard
/// one.
///
/// # Errors
///
/// The first thing that is missing.
pub fn require(needs: &Needs) -> Result<(), HostError> {
    judge(&collect(needs), needs)
}

/// Holds facts against needs.
///
/// # Errors
///
/// The first thing that is missing.
pub fn judge(facts: &Facts, needs: &Needs) -> Result<(), HostError> {
    if parse_version(&facts.kernel).is_none_or(|version| version < KERNEL_MIN) {
        return Err(HostError::Kernel { found: facts.kernel.clone() });
    }
    let has = |capability: u32| facts.capabilities >> capability & 1 == 1;
    let stays = |capability: u32| has(capability) && needs.lasting >> capability & 1 == 1;
    if 2 <= facts.io_uring_disabled || (facts.io_uring_disabled == 1 && !stays(CAP_SYS_ADMIN)) {
        return Err(HostError::IoUring { level: facts.io_uring_disabled });
    }
    if facts.descriptors < needs.descriptors {
        return Err(HostError::Descriptors { needed: needs.descriptors, limit: facts.descriptors });
    }
    let Some(pin_directory) = &needs.pin_directory else {
        return Ok(());
    };
    if !has(CAP_BPF) && !has(CAP_SYS_ADMIN) {
        let purpose = "load the eBPF programs";
        return Err(HostError::Capability { name: "CAP_BPF", purpose });
    }
    // The verifier lets programs subtract packet pointers only with this one (5.8).
    if !has(CAP_PERFMON) && !has(CAP_SYS_ADMIN) {
        let purpose = "have the kernel accept the eBPF programs";
        return Err(HostError::Capability { name: "CAP_PERFMON", purpose });
    }
    if !has(CAP_NET_ADMIN) {
        let purpose = "attach them to interfaces";
        return Err(HostError::Capability { name: "CAP_NET_ADMIN", purpose });
    }
    if !facts.pins_on_bpf {
        return Err(HostError::BpfFileSystem { path: pin_directory.clone() });
    }
    if !facts.btf {
        return Err(HostError::Btf);
    }
    Ok(())
}

/// Major and minor version of the running kernel; `None` when uname says nothing readable.
#[must_use]
pub fn kernel_version() -> Option<(u32, u32)> {
    parse_version(&release())
}

fn collect(needs: &Needs) -> Facts {
    Facts {
        kernel: release(),
        capabilities: confine::by_this_process().map_or(0, |held| held.effective),
        pins_on_bpf: needs.pin_directory.as_deref().is_some_and(on_bpf_file_system),
        btf: Path::new(BTF).exists(),
        io_uring_disabled: std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
            .ok()
            .and_then(|text| text.trim().parse().ok())
            .unwrap_or(0),
        descriptors: raise_descriptor_limit(),
    }
}

fn release() -> String {
    nix::sys::utsname::uname()
        .map(|name| name.release().to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// Raises the soft limit to the hard one; returns the soft limit then in force.
fn raise_descriptor_limit() -> u64 {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        return 0;
    };
    // A refusal leaves the soft limit, which is then what counts.
    if soft < hard && setrlimit(Resource::RLIMIT_NOFILE, hard, hard).is_ok() { hard } else { soft }
}

/// Major and minor of a release like `6.1.0-18-amd64`.
fn parse_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            kernel: "6.1.0-18-amd64".to_owned(),
            capabilities: 1 << CAP_BPF | 1 << CAP_PERFMON | 1 << CAP_NET_ADMIN,
            pins_on_bpf: true,
            btf: true,
            io_uring_disabled: 0,
            descriptors: 1024,
        }
    }

    fn steering() -> Needs {
        Needs {
            pin_directory: Some("/sys/fs/bpf/sickbay/main".into()),
            descriptors: 1024,
            lasting: u64::MAX,
        }
    }

    fn probing() -> Needs {
        Needs { pin_directory: None, descriptors: 1024, lasting: u64::MAX }
    }

    #[track_caller]
    fn refused(facts: &Facts, needs: &Needs) -> String {
        let text = judge(facts, needs).unwrap_err().to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    }

    #[test]
    fn a_good_host_is_good() {
        assert_eq!(judge(&good(), &steering()), Ok(()));
        assert_eq!(judge(&good(), &probing()), Ok(()));
    }

    #[test]
    fn an_old_kernel_is_refused() {
        for kernel in ["5.15.0-100-generic", "6.0.19", "4.19", "", "six"] {
            let facts = Facts { kernel: kernel.to_owned(), ..good() };
            let text = refused(&facts, &probing());
            assert!(text.contains(kernel) && text.contains("6.1 or newer"), "{text}");
        }
        for kernel in ["6.1", "6.18.5", "7.0.0-rc1", "6.12.3+deb13-cloud"] {
            let facts = Facts { kernel: kernel.to_owned(), ..good() };
            assert_eq!(judge(&facts, &steering()), Ok(()), "{kernel}");
        }
    }

    #[test]
    fn missing_capabilities_are_named() {
        for (name, capability) in
            [("CAP_BPF", CAP_BPF), ("CAP_PERFMON", CAP_PERFMON), ("CAP_NET_ADMIN", CAP_NET_ADMIN)]
        {
            let facts = Facts { capabilities: good().capabilities & !(1 << capability), ..good() };
            let text = refused(&facts, &steering());
            assert!(text.starts_with(&format!("{name} is missing, needed to ")), "{text}");
        }
        let facts = Facts { capabilities: 1 << CAP_SYS_ADMIN | 1 << CAP_NET_ADMIN, ..good() };
        assert_eq!(judge(&facts, &steering()), Ok(()));
    }

    #[test]
    fn probing_alone_needs_no_privilege_and_no_ebpf() {
        let facts = Facts { capabilities: 0, pins_on_bpf: false, btf: false, ..good() };
        assert_eq!(judge(&facts, &probing()), Ok(()));
    }

    #[test]
    fn a_missing_bpf_file_system_is_refused_with_the_mount_command() {
        let facts = Facts { pins_on_bpf: false, ..good() };
        let text = refused(&facts, &steering());
        assert!(text.contains("`mount -t bpf bpf /sys/fs/bpf`"), "{text}");
    }

    #[test]
    fn a_kernel_without_btf_is_refused() {
        let text = refused(&Facts { btf: false, ..good() }, &steering());
        assert!(text.contains("CONFIG_DEBUG_INFO_BTF"), "{text}");
    }

    #[test]
    fn a_disabled_io_uring_is_refused_with_the_sysctl() {
        let text = refused(&Facts { io_uring_disabled: 2, ..good() }, &probing());
        assert!(text.contains("sysctl -w kernel.io_uring_disabled=0"), "{text}");
        // Level 1 keeps out those without CAP_SYS_ADMIN only.
        let facts = Facts { io_uring_disabled: 1, ..good() };
        assert!(refused(&facts, &probing()).contains("io_uring"));
        let facts = Facts { capabilities: u64::MAX, ..facts };
        assert_eq!(judge(&facts, &probing()), Ok(()));
        // Given up before the rings are made, it does not count.
        let needs = Needs { lasting: !(1 << CAP_SYS_ADMIN), ..probing() };
        assert!(refused(&facts, &needs).contains("io_uring"));
    }

    #[test]
    fn too_few_descriptors_are_refused_with_the_number() {
        let needs = Needs { descriptors: 30_000, ..probing() };
        let text = refused(&Facts { descriptors: 20_000, ..good() }, &needs);
        assert!(text.contains("LimitNOFILE=30000") && text.contains("20000"), "{text}");
    }

    #[test]
    fn this_host_can_be_judged() {
        let facts = collect(&probing());
        assert!(parse_version(&facts.kernel).is_some(), "{facts:?}");
        assert!(0 < facts.descriptors, "{facts:?}");
    }
}
