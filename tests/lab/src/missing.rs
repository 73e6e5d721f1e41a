//! A kernel that lacks a system call, for one command: what an agent on such a kernel would meet.
#![expect(unsafe_code, reason = "a child's seccomp filter is set between fork and exec")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// `struct seccomp_data` begins with the system call's number (seccomp(2)).
const NUMBER_OFFSET: u32 = 0;
const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Makes `command` meet a kernel without this system call: every call of it ends with ENOSYS, as
/// on a kernel that was built without it.
///
/// # Panics
/// With a number that is none.
pub fn without_system_call(command: &mut Command, number: libc::c_long) {
    let number = u32::try_from(number).expect("system call numbers are small and positive");
    let statement = |code, value| libc::sock_filter { code, jt: 0, jf: 0, k: value };
    let missing = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    let filter = [
        statement(LOAD, NUMBER_OFFSET),
        libc::sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: number },
        statement(RETURN, missing),
        statement(RETURN, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let mut filter = filter;
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: prctl copies the program, which outlives the call; root needs no
        // PR_SET_NO_NEW_PRIVS.
        let result = unsafe {
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program)
        };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec it only makes one system call on memory of its own.
    unsafe { command.pre_exec(install) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_system_call_is_missing() {
        let mut command = Command::new("uname");
        without_system_call(&mut command, libc::SYS_uname);
        // Without root, the filter cannot be set, and the command does not start.
        if let Ok(output) = command.output() {
            assert!(!output.status.success());
            let error = String::from_utf8(output.stderr).unwrap();
            assert!(error.contains("not implemented"), "{error}");
        }
    }
}
