//! Next hops: by which MAC and interface each backend is reached, kept fresh.
//!
//! One thread asks the kernel once for everything (routes, interfaces, neighbours), tells each
//! backend's next hop, then listens for changes. Neighbours that the kernel has not confirmed of
//! late are resolved anew every half minute, as traffic that never passes this host's stack would
//! otherwise let them expire.
//!
//! A neighbour that stops answering keeps its last MAC: whether a backend is sick is for the
//! probes to say, and a frame to a dead host harms nobody.

/// What is known of routes, interfaces and neighbours, and what follows for each backend.
mod table;

use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Sender, bounded};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};
use thiserror::Error;

use self::table::Table;
use crate::board::NextHop;
use crate::netlink::{Netlink, NetlinkError, Notice, Notices};

/// How often neighbours that are not fresh are resolved anew.
const RESOLVE_EVERY: Duration = Duration::from_secs(30);
/// How often those of which the kernel has no usable entry are, until it has.
const RESOLVE_MISSING_EVERY: Duration = Duration::from_secs(1);
/// Neighbours that are resolved in one such period; with more, it grows.
const RESOLVE_MISSING_COUNT: u32 = 1000;
/// Routes change in bursts: look them up again this long after the first change.
const ROUTES_SETTLE: Duration = Duration::from_millis(200);
/// Of its time the thread spends at most one part in so many on looking everything up.
const LOOKUP_SHARE: u32 = 10;

/// Why a backend has no next hop.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq, Hash)]
pub enum Unresolved {
    /// The address is this host's own.
    #[error("{0} is an address of this host: mode dsr needs its backends on other hosts")]
    Local(IpAddr),
    /// No route.
    #[error("no route to {0}: add one, or correct the address")]
    NoRoute(IpAddr),
    /// The interface the route leads to has no MAC.
    #[error(
        "{address} is reached by interface {interface_index}, which has no MAC: mode dsr needs \
         Ethernet"
    )]
    NoMac {
        /// The backend's address.
        address: IpAddr,
        /// The interface.
        interface_index: u32,
    },
    /// The neighbour has not answered yet.
    #[error(
        "{neighbour} on interface {interface_index}, the next hop to {address}, does not answer \
         ARP or neighbour discovery"
    )]
    Silent {
        /// The backend's address.
        address: IpAddr,
        /// Who is asked: the address itself, or the gateway to it.
        neighbour: IpAddr,
        /// Where it is asked.
        interface_index: u32,
    },
}

/// What is told of a backend.
pub type Resolution = Result<NextHop, Unresolved>;

/// The thread that keeps next hops fresh. Dropping it stops it.
#[derive(Debug)]
pub struct Neighbours {
    orders: Arc<Orders>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread is told.
#[derive(Debug)]
struct Orders {
    /// Wakes it.
    event: EventFd,
    stop: AtomicBool,
    changes: Mutex<Vec<Change>>,
}

/// Backends that come or go.
#[derive(Debug)]
struct Change {
    come: Vec<(u32, IpAddr)>,
    go: Vec<u32>,
    /// Told when it is done.
    done: Sender<()>,
}

impl Neighbours {
    /// Looks up the next hop of each `(index, address)` and tells all of them before it returns;
    /// then tells changes from a thread of its own, until dropped. Works in the network namespace
    /// of the thread that calls it.
    ///
    /// # Errors
    ///
    /// The kernel does not answer, or a thread cannot be started.
    pub fn start(
        backends: Vec<(u32, IpAddr)>,
        mut tell: impl FnMut(u32, Resolution) + Send + 'static,
    ) -> Result<Self, NetlinkError> {
        let spoilt = |error: std::io::Error| NetlinkError::new("watch neighbours", error);
        // Listening first: what changes while the first round runs is not missed.
        let notices = Notices::open()?;
        let mut watch = Watch {
            notices,
            netlink: Netlink::open()?,
            table: Table::new(backends),
            routes_due: None,
            lookup_cost: Duration::ZERO,
        };
        watch.ask_everything()?;
        watch.resolve(false);
        watch.table.take_changes(&mut tell);
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let event = EventFd::from_flags(flags).map_err(|errno| spoilt(errno.into()))?;
        let (stop, changes) = (AtomicBool::new(false), Mutex::default());
        let orders = Arc::new(Orders { event, stop, changes });
        let taken = Arc::clone(&orders);
        let thread = std::thread::Builder::new()
            .name("neighbours".to_owned())
            .spawn(move || watch.run(&taken, &mut tell))
            .map_err(spoilt)?;
        Ok(Self { orders, thread: Some(thread) })
    }

    /// Looks up these as well from now on, and no more those; none of the latter is told of after
    /// it returns. Of the former it has told what is known at once: one whose neighbour the kernel
    /// has yet to ask is told again when that has answered. Returns whether the thread took it
    /// within `limit`.
    pub fn change(&self, come: Vec<(u32, IpAddr)>, go: Vec<u32>, limit: Duration) -> bool {
        let (done, is_done) = bounded(1);
        let changes = &self.orders.changes;
        changes.lock().unwrap_or_else(PoisonError::into_inner).push(Change { come, go, done });
        self.orders.wake();
        is_done.recv_timeout(limit).is_ok()
    }
}

impl Orders {
    fn wake(&self) {
        // A full event counter wakes the thread as well as one more would.
        let _ = self.event.write(1);
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Release);
        self.orders.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches neighbours panicked");
        }
    }
}

struct Watch {
    notices: Notices,
    netlink: Netlink,
    table: Table,
    /// When routes are to be looked up again.
    routes_due: Option<Instant>,
    /// How long looking everything up took the last time.
    lookup_cost: Duration,
}

impl Watch {
    fn run(mut self, orders: &Orders, tell: &mut dyn FnMut(u32, Resolution)) {
        let mut resolve_due = Instant::now() + RESOLVE_EVERY;
        let mut missing_due = Instant::now() + RESOLVE_MISSING_EVERY;
        loop {
            let wake = [Some(resolve_due), Some(missing_due), self.routes_due];
            let wake = wake.into_iter().flatten().min().expect("two are always there");
            self.wait(&orders.event, wake);
            if orders.stop.load(Ordering::Acquire) {
                return;
            }
            self.take_orders(orders, tell);
            let round = self.take_notices().and_then(|()| {
                let now = Instant::now();
                if self.routes_due.is_some_and(|due| due <= now) {
                    self.routes_due = None;
                    self.ask_everything()?;
                    self.resolve(false);
                }
                if missing_due <= now {
                    let count = self.resolve(false);
                    missing_due = now + RESOLVE_MISSING_EVERY * (1 + count / RESOLVE_MISSING_COUNT);
                }
                if resolve_due <= now {
                    resolve_due = now + RESOLVE_EVERY;
                    self.ask_neighbours()?;
                    self.resolve(true);
                }
                Ok(())
            });
            if let Err(error) = round {
                tracing::warn!("next hops: {error}; asking again");
                self.routes_due = Some(Instant::now() + RESOLVE_MISSING_EVERY);
            }
            self.table.take_changes(tell);
        }
    }

    fn take_orders(&mut self, orders: &Orders, tell: &mut dyn FnMut(u32, Resolution)) {
        let changes = &orders.changes;
        let changes = std::mem::take(&mut *changes.lock().unwrap_or_else(PoisonError::into_inner));
        for Change { come, go, done } in changes {
            self.table.remove(&go);
            if let Err(error) = self.add(come) {
                tracing::warn!("next hops: {error}; asking again");
                self.routes_due = Some(Instant::now() + RESOLVE_MISSING_EVERY);
            }
            self.table.take_changes(tell);
            // Whoever asked may have stopped waiting.
            let _asker_is_gone = done.try_send(());
        }
    }

    fn add(&mut self, backends: Vec<(u32, IpAddr)>) -> Result<(), NetlinkError> {
        for address in self.table.add(backends) {
            let route = self.netlink.route(address)?;
            self.table.route(address, route);
        }
        self.ask_neighbours()?;
        self.resolve(false);
        Ok(())
    }

    fn wait(&self, event: &EventFd, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, or the last part of a millisecond would be waited for by spinning.
        let timeout =
            PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        let mut fds = [
            PollFd::new(self.notices.as_fd(), PollFlags::POLLIN),
            PollFd::new(event.as_fd(), PollFlags::POLLIN),
        ];
        if let Err(errno) = poll(&mut fds, timeout)
            && errno != nix::errno::Errno::EINTR
        {
            tracing::error!("waiting for changes of neighbours: {errno}");
            std::thread::sleep(RESOLVE_MISSING_EVERY);
        }
        // Nothing to read is as good.
        let _was_not_woken = event.read();
    }

    fn take_notices(&mut self) -> Result<(), NetlinkError> {
        let soon = Instant::now() + ROUTES_SETTLE.max(self.lookup_cost * LOOKUP_SHARE);
        for notice in self.notices.drain()? {
            match notice {
                Notice::Neighbour(neighbour) => self.table.neighbour(&neighbour),
                Notice::Interface(interface) => {
                    self.table.interface(interface.index, interface.mac);
                    // An interface that goes down takes its routes along without a word (IPv4).
                    self.routes_due.get_or_insert(soon);
                }
                Notice::InterfaceGone(index) => {
                    self.table.interface(index, None);
                    self.routes_due.get_or_insert(soon);
                }
                Notice::Routes => {
                    self.routes_due.get_or_insert(soon);
                }
                Notice::Lost => {
                    self.routes_due.get_or_insert(soon);
                }
            }
        }
        Ok(())
    }

    /// Asks for interfaces, routes and neighbours anew.
    fn ask_everything(&mut self) -> Result<(), NetlinkError> {
        let start = Instant::now();
        let interfaces = self.netlink.interfaces()?;
        self.table.interfaces(interfaces.iter().map(|interface| (interface.index, interface.mac)));
        for address in self.table.addresses() {
            let route = self.netlink.route(address)?;
            self.table.route(address, route);
        }
        self.ask_neighbours()?;
        self.lookup_cost = start.elapsed();
        Ok(())
    }

    fn ask_neighbours(&mut self) -> Result<(), NetlinkError> {
        // Entries that the kernel dropped are in no list.
        self.table.expire();
        for neighbour in self.netlink.neighbours()? {
            self.table.neighbour(&neighbour);
        }
        Ok(())
    }

    /// Has the kernel resolve neighbours it has no usable entry of, and with `stale` those it has
    /// not confirmed of late. Returns how many.
    fn resolve(&mut self, stale: bool) -> u32 {
        let unresolved = self.table.unresolved(stale);
        for &(interface_index, neighbour) in &unresolved {
            // A full neighbour table (net.ipv4.neigh.default.gc_thresh3) refuses some for now.
            if let Err(error) = self.netlink.resolve(interface_index, neighbour) {
                tracing::debug!(interface_index, %neighbour, "{error}");
            }
        }
        u32::try_from(unresolved.len()).unwrap_or(u32::MAX)
    }
}
