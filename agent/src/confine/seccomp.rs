//! System calls that a running agent is refused. The only file that names the crate `seccompiler`.
//!
//! A list of what is denied, not of what is allowed: which calls the C library makes changes with
//! its version, and an agent that is killed for a new one judges nobody. What is denied answers
//! EPERM. Operations that go through a ring are not system calls, and pass this filter: the probing
//! rings are restricted on their own (`engine/uring.rs`), the control plane's is held by Landlock
//! and by the capabilities.

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// System calls that are refused, with the reason for all of them.
#[derive(Clone, Copy, Debug)]
pub struct Denied {
    /// What nobody does any more with them.
    pub why: &'static str,
    /// Name and number of each.
    pub calls: &'static [(&'static str, i64)],
}

/// Pairs of a name and a number out of the names of libc's constants.
macro_rules! calls {
    ($($name:ident),+ $(,)?) => { &[$((stringify!($name), libc::$name as i64)),+] };
}

/// What is refused.
pub const DENIED: &[Denied] = &[
    Denied { why: "run another program", calls: calls![SYS_execve, SYS_execveat] },
    #[cfg(target_arch = "x86_64")]
    Denied { why: "become two processes", calls: calls![SYS_fork, SYS_vfork] },
    Denied {
        why: "look into or hold another process",
        calls: calls![
            SYS_ptrace,
            SYS_process_vm_readv,
            SYS_process_vm_writev,
            SYS_process_madvise,
            SYS_kcmp,
            SYS_pidfd_getfd,
        ],
    },
    Denied {
        why: "change what is mounted",
        calls: calls![
            SYS_mount,
            SYS_umount2,
            SYS_pivot_root,
            SYS_chroot,
            SYS_move_mount,
            SYS_open_tree,
            SYS_fsopen,
            SYS_fsconfig,
            SYS_fsmount,
            SYS_fspick,
            SYS_mount_setattr,
        ],
    },
    Denied { why: "enter or leave a namespace", calls: calls![SYS_unshare, SYS_setns] },
    Denied {
        why: "change the kernel's code",
        calls: calls![
            SYS_init_module,
            SYS_finit_module,
            SYS_delete_module,
            SYS_kexec_load,
            SYS_kexec_file_load,
        ],
    },
    Denied {
        why: "stop or change the machine",
        calls: calls![
            SYS_reboot,
            SYS_swapon,
            SYS_swapoff,
            SYS_acct,
            SYS_quotactl,
            SYS_quotactl_fd,
            SYS_sethostname,
            SYS_setdomainname,
            SYS_settimeofday,
            SYS_clock_settime,
            SYS_clock_adjtime,
            SYS_adjtimex,
            SYS_syslog,
            SYS_vhangup,
        ],
    },
    #[cfg(target_arch = "x86_64")]
    Denied { why: "reach devices by port", calls: calls![SYS_iopl, SYS_ioperm, SYS_modify_ldt] },
    Denied { why: "reach keys", calls: calls![SYS_add_key, SYS_request_key, SYS_keyctl] },
    Denied {
        why: "widen the kernel's surface",
        calls: calls![SYS_userfaultfd, SYS_perf_event_open, SYS_personality],
    },
    Denied {
        why: "go around a file's path",
        calls: calls![SYS_open_by_handle_at, SYS_fanotify_init],
    },
];

/// x86-64's second set of numbers for the same calls (x32) has this bit; kernels that are built
/// with it take both.
#[cfg(target_arch = "x86_64")]
const X32_BIT: i64 = 0x4000_0000;
/// Those of them that have a number of their own there (arch/x86/entry/syscalls/syscall_64.tbl):
/// execve, ptrace, kexec_load, process_vm_readv, process_vm_writev, execveat.
#[cfg(target_arch = "x86_64")]
const X32_OWN: [i64; 6] = [520, 521, 528, 539, 540, 545];

/// Refuses them to this thread, and to those that it starts, for ever. Calls of another
/// architecture (i386) end the process.
///
/// # Errors
///
/// The kernel refuses, or has no filters ([`io::ErrorKind::Unsupported`]).
pub(super) fn refuse() -> io::Result<()> {
    for filter in filters()? {
        apply_filter(&filter).map_err(|error| match error {
            seccompiler::Error::Prctl(source) | seccompiler::Error::Seccomp(source) => told(source),
            other => io::Error::other(other),
        })?;
    }
    Ok(())
}

fn told(source: io::Error) -> io::Error {
    match source.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS) => io::Error::new(io::ErrorKind::Unsupported, source),
        _ => source,
    }
}

/// Two filters, since each has one answer for what it refuses.
fn filters() -> io::Result<[BpfProgram; 2]> {
    let mut denied: BTreeMap<i64, Vec<SeccompRule>> =
        numbers().into_iter().map(|number| (number, Vec::new())).collect();
    // No process and no namespace by clone: threads share everything. Its flags are the first
    // argument everywhere that this is built for.
    let thread = libc::CLONE_THREAD as u64;
    let is_process =
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(thread), 0);
    let rule = is_process.and_then(|condition| SeccompRule::new(vec![condition]));
    denied.insert(libc::SYS_clone, vec![rule.map_err(io::Error::other)?]);
    // Its flags stand in memory, where no filter looks. Who is told that there is none uses clone.
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([compile(denied, libc::EPERM)?, compile(clone3, libc::ENOSYS)?])
}

fn numbers() -> Vec<i64> {
    let all = DENIED.iter().flat_map(|denied| denied.calls).map(|(_, number)| *number);
    #[cfg(target_arch = "x86_64")]
    let all = {
        let both = all.flat_map(|number| [number, number | X32_BIT]);
        let clones = [libc::SYS_clone, libc::SYS_clone3];
        both.chain(X32_OWN.into_iter().chain(clones).map(|number| number | X32_BIT))
    };
    all.collect()
}

fn compile(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> io::Result<BpfProgram> {
    let architecture =
        TargetArch::try_from(std::env::consts::ARCH).map_err(|_| io::ErrorKind::Unsupported)?;
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, answer, architecture)
        .and_then(BpfProgram::try_from)
        .map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_confined_agent_must_be_refused_is_refused() {
        let numbers = numbers();
        for number in [
            libc::SYS_execve,
            libc::SYS_execveat,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_kexec_load,
            libc::SYS_init_module,
            libc::SYS_keyctl,
            libc::SYS_userfaultfd,
            libc::SYS_process_vm_writev,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_reboot,
            libc::SYS_swapon,
        ] {
            assert!(numbers.contains(&number), "{number}");
        }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn second_numbers_of_the_same_calls_are_no_way_around() {
        let numbers = numbers();
        // execve is 59 and, on x32, 520 (syscall_64.tbl).
        for number in [59, 59 | 0x4000_0000, 520 | 0x4000_0000] {
            assert!(numbers.contains(&number), "{number:#x}");
        }
    }
}
