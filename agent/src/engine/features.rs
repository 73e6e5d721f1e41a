//! What this host has for a ring, and what it must have for what is asked of it.

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket as open, sockopt};

use super::endpoint::Endpoint;
use super::error::EngineError;

/// What the running kernel has of that which is used when it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Socket options can be set on the ring (6.7), so probes can have an interface and a mark, and
    /// a handshake's last ACK goes with the request.
    pub socket_options: bool,
    /// Sockets can be bound on the ring (6.11), so probes can have a source address.
    pub bind: bool,
    /// The ring refuses every operation that no probe needs (tried).
    pub restricted: bool,
}

impl Features {
    /// Whether every endpoint can be probed as it wants to be.
    pub(super) fn check<'a>(
        self,
        endpoints: impl Iterator<Item = &'a Endpoint> + Clone,
    ) -> Result<(), EngineError> {
        let mut marks = endpoints.clone().filter_map(|endpoint| endpoint.socket.mark);
        let options = "setting socket options on the ring (6.7)";
        for endpoint in endpoints {
            if endpoint.socket.source.is_some() && !self.bind {
                return Err(EngineError::setting_needs("source", "IORING_OP_BIND (6.11)"));
            }
            if endpoint.socket.interface.is_some() && !self.socket_options {
                return Err(EngineError::setting_needs("interface", options));
            }
        }
        let Some(mark) = marks.next() else {
            return Ok(());
        };
        if !self.socket_options {
            return Err(EngineError::setting_needs("mark", options));
        }
        let flags = SockFlag::SOCK_CLOEXEC;
        open(AddressFamily::Inet, SockType::Stream, flags, None)
            .and_then(|tried| setsockopt(&tried, sockopt::Mark, &mark))
            .map_err(|errno| EngineError::MarkForbidden { source: errno.into() })
    }
}

/// The kernel holds a ring's table of direct descriptors to RLIMIT_NOFILE, though its sockets take
/// no number of the process.
pub(super) fn raise_descriptor_limit(slots: u32) -> Result<(), EngineError> {
    let needed = u64::from(slots);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).map_err(|errno| EngineError::Call {
        call: "getrlimit(RLIMIT_NOFILE)",
        source: errno.into(),
    })?;
    if hard < needed {
        return Err(EngineError::DescriptorLimit { slots, limit: hard });
    }
    // Named ones take a number of the process too, while they connect.
    if soft < 2 * needed && soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).map_err(|errno| EngineError::Call {
            call: "setrlimit(RLIMIT_NOFILE)",
            source: errno.into(),
        })?;
    }
    Ok(())
}
