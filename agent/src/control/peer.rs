//! Who is at the other end of the admin socket, as the kernel saw it when it connected.
#![expect(unsafe_code, reason = "no crate here asks for SO_PEERGROUPS")]

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Groups asked for first; more are asked for with as much room as the kernel says.
const GROUPS_USUAL: usize = 64;

/// The supplementary groups of the peer of a unix socket (SO_PEERGROUPS, Linux 4.13): those of its
/// process at connect(2), whatever it has become since. No user database is asked.
///
/// # Errors
///
/// What the kernel says.
pub(super) fn supplementary_groups(socket: BorrowedFd<'_>) -> io::Result<Vec<libc::gid_t>> {
    let mut groups: Vec<libc::gid_t> = vec![0; GROUPS_USUAL];
    // Once more when there was not room enough; the peer's groups do not change any more.
    for _ in 0..2 {
        let room = groups.len() * size_of::<libc::gid_t>();
        let mut bytes = libc::socklen_t::try_from(room).expect("some hundred bytes");
        // SAFETY: the kernel writes at most `bytes` bytes to where `groups` has as many, which are
        // whole numbers however they are written; both live until the call is over.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let error = io::Error::last_os_error();
        let count = bytes as usize / size_of::<libc::gid_t>();
        match done {
            0 => {
                groups.truncate(count);
                return Ok(groups);
            }
            _ if error.raw_os_error() == Some(libc::ERANGE) => groups.resize(count, 0),
            _ => return Err(error),
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn groups_of_the_peer_are_those_of_its_process() {
        let (_peer, here) = UnixStream::pair().expect("a pair");
        let mut told = supplementary_groups(here.as_fd()).expect("the kernel tells");
        let mut own: Vec<libc::gid_t> =
            nix::unistd::getgroups().expect("its own").iter().map(|gid| gid.as_raw()).collect();
        told.sort_unstable();
        own.sort_unstable();
        assert_eq!(told, own);
    }
}
