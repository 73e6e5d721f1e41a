//! This host's links and gateways: a thread that tells when one is lost.
//!
//! Told of: an interface that ran and has no carrier, was set down or is gone; a gateway on the way
//! to a backend that does not answer ARP or neighbour discovery. What it means is for whoever is
//! told.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::EventFd;

use crate::netlink::{Netlink, NetlinkError, Notice, Notices, Route};

/// What was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lost {
    /// An interface, by its name.
    Carrier(String),
    /// A gateway.
    Gateway(IpAddr),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Carrier(name) => write!(f, "interface {name} has lost its carrier"),
            Self::Gateway(address) => write!(f, "gateway {address} does not answer"),
        }
    }
}

/// The thread that watches. Dropping it stops it.
#[derive(Debug)]
pub struct Links {
    stop: Arc<(AtomicBool, EventFd)>,
    thread: Option<JoinHandle<()>>,
}

impl Links {
    /// Watches the links of the calling thread's network namespace and the gateways to `backends`
    /// from now on, and tells of each loss, until dropped.
    ///
    /// # Errors
    ///
    /// The kernel does not answer, or a thread cannot be started.
    pub fn watch(
        backends: impl Iterator<Item = IpAddr>,
        mut tell: impl FnMut(Lost) + Send + 'static,
    ) -> Result<Self, NetlinkError> {
        let spoilt = |error: std::io::Error| NetlinkError::new("watch links", error);
        // Listening first: what changes while the first round runs is not missed.
        let notices = Notices::open()?;
        let mut netlink = Netlink::open()?;
        let mut state = State::default();
        for interface in netlink.interfaces()? {
            state.interface(interface.index, interface.name, interface.running);
        }
        for address in backends.collect::<HashSet<_>>() {
            if let Route::Via { neighbour, .. } = netlink.route(address)?
                && neighbour != address
            {
                state.gateways.insert(neighbour);
            }
        }
        let event = EventFd::new().map_err(|errno| spoilt(errno.into()))?;
        let stop = Arc::new((AtomicBool::new(false), event));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("links".to_owned())
            .spawn(move || {
                while !stopped.0.load(Ordering::Acquire) {
                    wait(&notices, &stopped.1);
                    for notice in notices.drain().unwrap_or_default() {
                        if let Some(lost) = state.take(notice) {
                            tell(lost);
                        }
                    }
                }
            })
            .map_err(spoilt)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.stop.0.store(true, Ordering::Release);
        // A full event counter wakes the thread as well as one more would.
        let _ = self.stop.1.write(1);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches links panicked");
        }
    }
}

/// Waits for a notice or the end; an error of the wait is waited out.
fn wait(notices: &Notices, stop: &EventFd) {
    let mut fds = [
        PollFd::new(notices.as_fd(), PollFlags::POLLIN),
        PollFd::new(stop.as_fd(), PollFlags::POLLIN),
    ];
    if let Err(errno) = poll(&mut fds, PollTimeout::NONE)
        && errno != nix::errno::Errno::EINTR
    {
        tracing::error!("waiting for changes of links: {errno}");
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// What is known of the links.
#[derive(Debug, Default)]
struct State {
    /// Names of the interfaces that run.
    running: HashMap<u32, String>,
    gateways: HashSet<IpAddr>,
}

impl State {
    fn take(&mut self, notice: Notice) -> Option<Lost> {
        match notice {
            Notice::Interface(interface) => {
                self.interface(interface.index, interface.name, interface.running)
            }
            Notice::InterfaceGone(index) => self.running.remove(&index).map(Lost::Carrier),
            Notice::Neighbour(neighbour) => {
                let is_lost = neighbour.mac.is_none() && self.gateways.contains(&neighbour.address);
                is_lost.then_some(Lost::Gateway(neighbour.address))
            }
            Notice::Routes | Notice::Lost => None,
        }
    }

    fn interface(&mut self, index: u32, name: String, running: bool) -> Option<Lost> {
        if running {
            self.running.insert(index, name);
            return None;
        }
        self.running.remove(&index).map(Lost::Carrier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::{Interface, Neighbour};

    fn interface(running: bool) -> Notice {
        let name = "eth0".to_owned();
        Notice::Interface(Interface { index: 2, name, mac: None, up: true, running, xdp: None })
    }

    #[test]
    fn interface_is_lost_once_and_only_if_it_ran() {
        let mut state = State::default();
        assert_eq!(state.take(interface(false)), None);
        assert_eq!(state.take(interface(true)), None);
        assert_eq!(state.take(interface(false)), Some(Lost::Carrier("eth0".to_owned())));
        assert_eq!(state.take(interface(false)), None);
        state.take(interface(true));
        let gone = state.take(Notice::InterfaceGone(2));
        assert_eq!(gone, Some(Lost::Carrier("eth0".to_owned())));
    }

    #[test]
    fn gateway_is_lost_when_it_has_no_mac_and_other_neighbours_do_not_matter() {
        let gateway = IpAddr::from([192, 0, 2, 1]);
        let mut state = State { gateways: HashSet::from([gateway]), ..State::default() };
        let told = |address, mac| {
            Notice::Neighbour(Neighbour { interface_index: 2, address, mac, fresh: false })
        };
        assert_eq!(state.take(told(gateway, Some([2; 6]))), None);
        assert_eq!(state.take(told(IpAddr::from([192, 0, 2, 9]), None)), None);
        assert_eq!(state.take(told(gateway, None)), Some(Lost::Gateway(gateway)));
    }
}
