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
    let missing = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.unsigned_abs();
    install(command, program(&[number], missing, libc::SECCOMP_RET_ALLOW));
}

/// Lets `command` make these system calls and no others: each of those ends with EPERM, as under a
/// service manager's filter that allows so many.
///
/// # Panics
/// With more of them than a filter has room for.
pub fn only_system_calls(command: &mut Command, numbers: &[u32]) {
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs();
    install(command, program(numbers, libc::SECCOMP_RET_ALLOW, refused));
}

/// A filter that answers `listed` to these numbers and `other` to the rest.
fn program(numbers: &[u32], listed: u32, other: u32) -> Vec<libc::sock_filter> {
    let statement = |code, value| libc::sock_filter { code, jt: 0, jf: 0, k: value };
    let mut program = vec![statement(LOAD, NUMBER_OFFSET)];
    for &number in numbers {
        program.push(libc::sock_filter { code: JUMP_IF_EQUAL, jt: 0, jf: 1, k: number });
        program.push(statement(RETURN, listed));
    }
    program.push(statement(RETURN, other));
    program
}

fn install(command: &mut Command, mut filter: Vec<libc::sock_filter>) {
    let length = u16::try_from(filter.len()).expect("a filter has at most 4096 instructions");
    let install = move || {
        let program = libc::sock_fprog { len: length, filter: filter.as_mut_ptr() };
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
