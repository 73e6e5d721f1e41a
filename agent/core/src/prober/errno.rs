//! Whose fault an errno is.

use crate::command::Phase;

/// Linux's numbers, the same on every architecture Rust's io_uring runs on but for MIPS, SPARC,
/// Alpha and PA-RISC, which have their own.
const EPERM: i32 = 1;
const EINTR: i32 = 4;
const ENOMEM: i32 = 12;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EAFNOSUPPORT: i32 = 97;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
const ENETDOWN: i32 = 100;
const ENOBUFS: i32 = 105;
const ECANCELED: i32 = 125;

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Blame {
    /// Nobody's: the deadline passed and the operation was cancelled.
    Deadline,
    /// This host's.
    Local,
    /// The peer's, or the network's between.
    Peer,
}

/// Whose fault `errno` in `phase` is; `expired` when the operation was to be cancelled.
pub(super) const fn blame(phase: Phase, errno: i32, expired: bool) -> Blame {
    if matches!(phase, Phase::Socket) {
        // No packet was sent: nothing is known of the peer.
        return Blame::Local;
    }
    match errno {
        // A cancelled connect may come back as interrupted.
        ECANCELED | EINTR if expired => Blame::Deadline,
        // Nobody asked for it.
        ECANCELED | EINTR => Blame::Local,
        EPERM | ENOMEM | EACCES | ENODEV | ENFILE | EMFILE | EAFNOSUPPORT | EADDRINUSE
        | EADDRNOTAVAIL | ENETDOWN | ENOBUFS => Blame::Local,
        _ => Blame::Peer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_errno_is_blamed_on_whom_it_says() {
        for errno in [24, 23, 105, 12, 99, 98, 97, 13, 1, 100, 19] {
            assert_eq!(blame(Phase::Connect, errno, false), Blame::Local, "{errno}");
            assert_eq!(blame(Phase::Receive, errno, true), Blame::Local, "{errno}");
        }
        // ECONNREFUSED, ECONNABORTED, EHOSTUNREACH, ENETUNREACH, ETIMEDOUT, ECONNRESET, EPIPE.
        for errno in [111, 103, 113, 101, 110, 104, 32] {
            assert_eq!(blame(Phase::Connect, errno, false), Blame::Peer, "{errno}");
            assert_eq!(blame(Phase::Receive, errno, true), Blame::Peer, "{errno}");
        }
    }

    #[test]
    fn nothing_that_fails_before_the_first_packet_is_the_peers_fault() {
        for errno in [111, 125, 24, 22] {
            assert_eq!(blame(Phase::Socket, errno, false), Blame::Local);
            assert_eq!(blame(Phase::Socket, errno, true), Blame::Local);
        }
    }

    #[test]
    fn cancelling_is_the_deadline_only_when_it_had_passed() {
        for errno in [125, 4] {
            assert_eq!(blame(Phase::Connect, errno, true), Blame::Deadline);
            assert_eq!(blame(Phase::Connect, errno, false), Blame::Local);
        }
    }
}
