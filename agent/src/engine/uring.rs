//! The ring: the only file that names io_uring, with its folder.
//!
//! One ring a thread, with a sparse table of direct descriptors: slot i is direct descriptor i, so
//! no probe touches the process's descriptor table. A probe is one chain of linked operations that
//! posts exactly one completion. Addresses, requests and receive buffers stand in arenas that are
//! allocated with the ring and live until every operation that may touch them is over.
#![expect(unsafe_code, reason = "io_uring reads and writes memory that the entries point to")]

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, getsockname, socket as open,
};

use super::arenas::{Arenas, BIN_BYTES, RECEIVE_BYTES};
use super::endpoint::{Endpoint, RawAddress, inet, proxy_v1, raw_source};
use super::error::EngineError;
use super::features::{Features, raise_descriptor_limit};
use super::kept::Kept;
use super::op::{CHAIN_OPS_MAX, RingFull, Route, Step, Tag};
use crate::fleet::CloseMode;

use entry::{defer_ack, linked, quick_ack, reset, set_option, socket};

/// How long a ring that is dropped waits for its operations to end.
const DROP_WAIT: Duration = Duration::from_secs(2);

/// The entries that it is made of.
mod entry;
/// How a ring is made, and what it may then do.
mod setup;

/// The ring of one thread. It is bound to the thread that made it.
pub(super) struct Ring {
    uring: IoUring,
    arenas: ManuallyDrop<Arenas>,
    /// Operations whose one completion has not been taken yet.
    outstanding: u32,
    features: Features,
    /// Sockets that a probe leaves to the next one in its slot.
    kept: Kept,
    enter_count: u64,
    /// The chain that is being made; empty between two of them.
    chain: Vec<squeue::Entry>,
    /// Of slots that connect and whose own address is to be asked for, another descriptor of the
    /// socket: that of the ring takes no getsockname(2).
    named: Box<[Option<OwnedFd>]>,
}

impl Ring {
    /// A ring with `slots` places for probes of what stands at `places`; those of `None` are set
    /// later ([`Self::set_target`]).
    pub(super) fn new(slots: u32, places: &[Option<&Endpoint>]) -> Result<Self, EngineError> {
        raise_descriptor_limit(slots)?;
        let (uring, bind) = setup::set_up(slots)?;
        uring.submitter().register_files_sparse(slots).map_err(|source| {
            match source.raw_os_error() {
                Some(libc::ENOMEM) => EngineError::NoMemory { slots },
                Some(libc::EINVAL) => EngineError::missing("sparse direct descriptors (5.19)"),
                _ => EngineError::Call { call: "registering direct descriptors", source },
            }
        })?;
        let arenas = ManuallyDrop::new(Arenas::new(slots, places));
        setup::restrict_and_enable(&uring, bind)?;
        let mut ring = Self {
            uring,
            arenas,
            outstanding: 0,
            features: Features { socket_options: false, bind, restricted: false },
            kept: Kept::new(slots),
            enter_count: 0,
            chain: Vec::with_capacity(CHAIN_OPS_MAX),
            named: (0..slots).map(|_| None).collect(),
        };
        ring.features.restricted = ring.try_forbidden()?;
        ring.features.socket_options = ring.try_option()?;
        ring.features.check(places.iter().flatten().copied())?;
        Ok(ring)
    }

    /// Target `target` is here from now on. The kernel must be through with the one before it: the
    /// prober gives an index out again only when its last probe has been answered.
    pub(super) fn set_target(&mut self, target: u32, endpoint: &Endpoint) {
        self.arenas.set(target, endpoint);
    }

    /// What this kernel has of that which is used when it is there.
    pub(super) const fn features(&self) -> Features {
        self.features
    }

    /// System calls made so far to submit and to wait.
    pub(super) const fn enter_count(&self) -> u64 {
        self.enter_count
    }

    /// Whether the longest chain fits now.
    pub(super) fn has_room(&mut self) -> bool {
        let queue = self.uring.submission();
        CHAIN_OPS_MAX <= queue.capacity() - queue.len()
    }

    /// Pushes the chain that a probe begins with. It posts one completion: of the step that failed,
    /// or of the last one. The socket of [`Route::Named`] is open already ([`Self::open_named`]).
    pub(super) fn push_chain(
        &mut self,
        target: u32,
        route: Route,
        tag: impl Fn(Step) -> Tag,
    ) -> Result<(), RingFull> {
        let slot = Fixed(tag(Step::Socket).slot);
        let last = route.first_chain_end();
        let memory = self.arenas.target(target);
        let told = &memory.settings;
        let acks_late = route == Route::Exchange && self.puts_acks_off(target);
        let kind = if route == Route::Named { None } else { memory.kept_kind(acks_late) };
        let mut chain = std::mem::take(&mut self.chain);
        let mut link = |entry, step| chain.push(linked(entry, step, last, &tag));
        if !self.kept.has(slot.0, kind) {
            if route != Route::Named {
                link(socket(slot.0, &memory.address), Step::Socket);
            }
            for option in &told.options {
                link(set_option(slot.0, option), Step::Option);
            }
            if acks_late {
                link(defer_ack(slot.0), Step::Option);
            }
            if let Some(source) = &told.source {
                let (pointer, length) = source.parts();
                link(opcode::Bind::new(slot, pointer, length).build(), Step::Bind);
            }
        }
        let (pointer, length) = memory.address.parts();
        link(opcode::Connect::new(slot, pointer, length).build(), Step::Connect);
        if route == Route::Exchange {
            link(self.send(target, slot), Step::Send);
            link(self.receive(slot.0), Step::Receive);
        }
        self.push_chained(chain)?;
        self.kept.begin(slot.0, kind);
        Ok(())
    }

    /// Opens the socket of a probe whose own address will be asked for. In the ring it stands where
    /// every other does.
    ///
    /// # Errors
    /// The errno.
    pub(super) fn open_named(&mut self, target: u32, slot: u32) -> Result<(), i32> {
        let family = match self.arenas.target(target).address {
            RawAddress::Ipv4(_) => AddressFamily::Inet,
            RawAddress::Ipv6(_) => AddressFamily::Inet6,
            RawAddress::Unix(_) => AddressFamily::Unix,
        };
        let opened = open(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None);
        let opened = opened.map_err(|errno| errno as i32)?;
        let given = self.uring.submitter().register_files_update(slot, &[opened.as_raw_fd()]);
        given.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        self.named[slot as usize] = Some(opened);
        Ok(())
    }

    /// Writes the PROXY header of the slot's open connection into the slot's buffer; says how many
    /// bytes it has.
    ///
    /// # Errors
    /// The errno.
    pub(super) fn write_name(&mut self, slot: u32) -> Result<u32, i32> {
        let connected = self.named[slot as usize].take().ok_or(libc::EBADF)?;
        let local: SockaddrStorage =
            getsockname(connected.as_raw_fd()).map_err(|errno| errno as i32)?;
        let header = proxy_v1(inet(&local));
        let buffer = &self.arenas.buffers[slot as usize];
        // SAFETY: the slot's chain has completed, and pushing its next one needs `&mut self`,
        // which this function holds: the kernel neither writes nor reads here meanwhile.
        let bytes = unsafe { &mut *buffer.0.get() };
        bytes[..header.len()].copy_from_slice(header.as_bytes());
        Ok(header.len() as u32)
    }

    /// Pushes what follows once the header stands in the slot's buffer: header, request, receive.
    pub(super) fn push_request(
        &mut self,
        target: u32,
        header_length: u32,
        tag: impl Fn(Step) -> Tag,
    ) -> Result<(), RingFull> {
        let slot = Fixed(tag(Step::Send).slot);
        let header = self.arenas.buffers[slot.0 as usize].0.get().cast::<u8>();
        // In one segment with the request: a server that reads once then finds both.
        let more = if self.arenas.request(target).is_empty() { 0 } else { libc::MSG_MORE };
        let send = opcode::Send::new(slot, header, header_length)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL | more);
        let mut chain = std::mem::take(&mut self.chain);
        let mut link = |entry, step| chain.push(linked(entry, step, Step::Receive, &tag));
        link(send.build(), Step::Send);
        link(self.send(target, slot), Step::Send);
        link(self.receive(slot.0), Step::Receive);
        self.push_chained(chain)
    }

    /// Pushes one more receive into the slot's buffer, for the target at this place.
    pub(super) fn push_receive(&mut self, target: u32, tag: Tag) -> Result<(), RingFull> {
        let receive = self.receive(tag.slot).user_data(tag.pack());
        self.push_read(target, receive, tag)
    }

    /// Pushes a receive that throws away what is there. Of a TCP socket the kernel copies nothing
    /// (`man 7 tcp`: MSG_TRUNC, since 2.4); of a unix socket, and of one that a BPF program has
    /// taken over, it copies into memory that nobody reads.
    pub(super) fn push_discard(&mut self, target: u32, tag: Tag) -> Result<(), RingFull> {
        let bin = self.arenas.bin.get().cast::<u8>();
        let discard = opcode::Recv::new(Fixed(tag.slot), bin, BIN_BYTES as u32)
            .flags(libc::MSG_TRUNC)
            .build();
        self.push_read(target, discard.user_data(tag.pack()), tag)
    }

    /// Pushes what reads on. Before it, what has been read is acknowledged where that was put off.
    fn push_read(&mut self, target: u32, read: squeue::Entry, tag: Tag) -> Result<(), RingFull> {
        if self.puts_acks_off(target) {
            // By the read's own tag: should it fail, the read has.
            let flags = squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS;
            self.push(&[quick_ack(tag.slot).user_data(tag.pack()).flags(flags), read])?;
        } else {
            self.push(&[read])?;
        }
        self.outstanding += 1;
        Ok(())
    }

    /// Whether ACKs of connections to this target wait for something to go with.
    fn puts_acks_off(&self, target: u32) -> bool {
        self.features.socket_options && self.arenas.target(target).speaks_first()
    }

    /// Pushes what ends the slot's connection; says by which step it will be answered. By RST where
    /// that is asked for: a connect to nowhere is what TCP's ABORT is to the kernel
    /// (`tcp_disconnect`). The socket can then connect anew, and is left to the slot's next probe.
    pub(super) fn push_close(
        &mut self,
        target: u32,
        tag: impl Fn(Step) -> Tag,
    ) -> Result<Step, RingFull> {
        let slot = tag(Step::Close).slot;
        let memory = self.arenas.target(target);
        let by_rst = memory.settings.close == CloseMode::Rst && memory.address.is_inet();
        let reset = |step| reset(slot).user_data(tag(step).pack());
        let close = opcode::Close::new(Fixed(slot)).build().user_data(tag(Step::Close).pack());
        let answer = if self.kept.stays(slot) {
            self.push(&[reset(Step::Keep)])?;
            Step::Keep
        } else {
            if by_rst {
                // The close is to come whatever the reset says: that there is no socket, at worst.
                let flags = squeue::Flags::IO_HARDLINK | squeue::Flags::SKIP_SUCCESS;
                self.push(&[reset(Step::Reset).flags(flags), close])?;
            } else {
                self.push(&[close])?;
            }
            Step::Close
        };
        self.named[slot as usize] = None;
        self.outstanding += 1;
        Ok(answer)
    }

    /// The slot's socket is to go after all when its connection is ended.
    pub(super) fn keep_no_more(&mut self, slot: u32) {
        self.kept.spoil(slot);
    }

    /// Pushes a cancel of the operation that carries `victim`. It posts a completion only when it
    /// finds nothing. By user data, because that is one bucket of the kernel's table of waiting
    /// requests; by descriptor it walks the whole table (`poll.c: io_poll_file_find`).
    pub(super) fn push_cancel(&mut self, tag: Tag, victim: Tag) -> Result<(), RingFull> {
        let cancel = opcode::AsyncCancel::new(victim.pack()).build();
        let cancel = cancel.user_data(tag.pack()).flags(squeue::Flags::SKIP_SUCCESS);
        self.push(&[cancel])
    }

    /// Submits everything pushed, then waits until `want` completions are there or `timeout` has
    /// passed. With `batch`, fewer will do once that time has passed (kernel 6.12; before it the
    /// wait then ends even if none came).
    pub(super) fn submit_and_wait(
        &mut self,
        want: usize,
        batch: Option<Duration>,
        timeout: Duration,
    ) -> Result<(), EngineError> {
        self.enter_count += 1;
        let min_timeout = self.uring.params().is_feature_min_timeout();
        let timeout = match batch {
            Some(batch) if !min_timeout => Timespec::from(batch),
            _ => Timespec::from(timeout),
        };
        let mut arguments = SubmitArgs::new().timespec(&timeout);
        if let (Some(batch), true) = (batch, min_timeout) {
            arguments = arguments.min_wait_usec(batch.subsec_micros());
        }
        match self.uring.submitter().submit_with_args(want, &arguments) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // Time is up, a signal came, or the kernel wants its completions taken or its
                // memory back first: what was not submitted stays in the queue.
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(EngineError::Call { call: "io_uring_enter", source: error }),
            },
        }
    }

    /// The next completion: its tag, if it is one of ours, and its result.
    pub(super) fn pop_completion(&mut self) -> Option<(Option<Tag>, i32)> {
        let entry = self.uring.completion().next()?;
        let tag = Tag::unpack(entry.user_data());
        if let Some(tag) = tag {
            let awaited = !matches!(tag.step, Step::Cancel | Step::Reset);
            self.outstanding = self.outstanding.saturating_sub(u32::from(awaited));
            if entry.result() < 0 && tag.step.makes_a_socket() {
                self.kept.spoil(tag.slot);
            }
        }
        Some((tag, entry.result()))
    }

    /// The first `length` bytes of the slot's buffer, after a receive of so many completed.
    pub(super) fn received(&mut self, slot: u32, length: usize) -> &[u8] {
        let buffer = &self.arenas.buffers[slot as usize];
        // SAFETY: the slot's receive has completed, and pushing its next one needs `&mut self`,
        // which the returned borrow holds: the kernel writes nothing here meanwhile.
        let bytes = unsafe { &*buffer.0.get() };
        &bytes[..length]
    }

    fn push_chained(&mut self, mut chain: Vec<squeue::Entry>) -> Result<(), RingFull> {
        let pushed = self.push(&chain);
        chain.clear();
        self.chain = chain;
        pushed?;
        self.outstanding += 1;
        Ok(())
    }

    /// Sends the target's request; an empty one sends nothing and goes on.
    fn send(&self, target: u32, slot: Fixed) -> squeue::Entry {
        let request = self.arenas.request(target);
        let length = u32::try_from(request.len())
            .expect("validated configuration: a request is far below 4 GiB");
        opcode::Send::new(slot, request.as_ptr(), length)
            .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
            .build()
    }

    fn receive(&self, slot: u32) -> squeue::Entry {
        let buffer = self.arenas.buffers[slot as usize].0.get().cast::<u8>();
        opcode::Recv::new(Fixed(slot), buffer, RECEIVE_BYTES as u32).build()
    }

    fn push(&mut self, entries: &[squeue::Entry]) -> Result<(), RingFull> {
        // SAFETY: every pointer in the entries leads into `arenas`, which is neither moved nor
        // freed before the operations are over (see `drop`), or to a static.
        unsafe { self.uring.submission().push_multiple(entries) }.map_err(|_| RingFull)
    }

    /// Whether socket options can be set through the ring (6.7): tried, since no list tells.
    fn try_option(&mut self) -> Result<bool, EngineError> {
        let tag = |step| Tag { slot: 0, generation: 0, step }.pack();
        let entries = [
            socket(0, &raw_source([127, 0, 0, 1].into())).user_data(tag(Step::Socket)),
            defer_ack(0).user_data(tag(Step::Option)),
            opcode::Close::new(Fixed(0)).build().user_data(tag(Step::Close)),
        ];
        let mut settable = false;
        for entry in entries {
            let answer = self.carry_out_one(entry)?;
            let (tag, result) = answer.ok_or_else(|| EngineError::missing("direct sockets"))?;
            match tag.map(|tag| tag.step) {
                Some(Step::Option) => settable = result == 0,
                Some(Step::Socket) if result < 0 => {
                    let source = io::Error::from_raw_os_error(-result);
                    return Err(EngineError::Call { call: "making a socket", source });
                }
                _ => {}
            }
        }
        Ok(settable)
    }

    /// Whether the ring refuses an operation that no probe needs.
    fn try_forbidden(&mut self) -> Result<bool, EngineError> {
        let answer = self.carry_out_one(opcode::Nop::new().build())?;
        Ok(answer.is_some_and(|(_, result)| result == -libc::EACCES))
    }

    /// Carries out one operation on a ring that has no other.
    fn carry_out_one(
        &mut self,
        entry: squeue::Entry,
    ) -> Result<Option<(Option<Tag>, i32)>, EngineError> {
        self.push(&[entry]).expect("an empty ring has room for one entry");
        self.submit_and_wait(1, None, Duration::from_secs(5))?;
        Ok(self.pop_completion())
    }
}

impl Drop for Ring {
    /// Ends every operation before the memory it points into goes; if the kernel will not, the
    /// memory stays.
    fn drop(&mut self) {
        let deadline = Instant::now() + DROP_WAIT;
        while 0 < self.outstanding && Instant::now() < deadline {
            let everything = CancelBuilder::any();
            let limit = Some(Timespec::from(DROP_WAIT));
            // Not found means that nothing waits just now; the answers tell what is left.
            let _nothing_found = self.uring.submitter().register_sync_cancel(limit, everything);
            if self.submit_and_wait(1, None, Duration::from_millis(10)).is_err() {
                break;
            }
            while self.pop_completion().is_some() {}
        }
        if self.outstanding == 0 {
            // SAFETY: no operation is left that points into the arenas, and nobody uses them
            // after this.
            unsafe { ManuallyDrop::drop(&mut self.arenas) };
        } else {
            tracing::error!(
                operations = self.outstanding,
                "a ring was left with operations that do not end; its buffers stay allocated"
            );
        }
    }
}
