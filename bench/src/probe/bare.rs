//! A bare loop of linked operations: what a probe costs when nothing is decided. Sockets, options,
//! order and number of operations are the engine's, or those of a prober that makes a socket for
//! each probe; deadlines are kept in the order of their starts and enforced by a cancel. No schedule,
//! no parser (a response is good when it begins with `HTTP/1.1 200`), no register.
#![expect(unsafe_code, reason = "io_uring reads and writes memory that the entries point to")]

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use io_uring::types::{DestinationSlot, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use nix::sys::socket::{SockaddrIn, SockaddrLike as _};
use sickbay::engine::monotonic_now;
use sickbay_lab::farm::Farm;
use sickbay_lab::namespace::Namespace;
use sickbay_lab::network::Family;

use super::subject::{Gate, Subject};
use super::targets::{Kind, request};

const ENTRIES: u32 = 1024;
const TIMEOUT_NS: u64 = 1_000_000_000;
/// Operations of a chain at most.
const CHAIN: usize = 6;
const WANTED: usize = 64;
/// From one target to the next: as spread as a schedule has them, which is not in memory's order.
const STRIDE: usize = 7919;
const BATCH: Duration = Duration::from_micros(200);
const LINGER: libc::linger = libc::linger { l_onoff: 1, l_linger: 0 };
static RST: libc::linger = LINGER;
static NO_QUICK_ACK: i32 = 0;
static DEFER: i32 = 1;
static NOWHERE: libc::sockaddr = libc::sockaddr { sa_family: 0, sa_data: [0; 14] };

/// The last operation of a probe, or one that failed.
const PROBE: u64 = 1 << 32;
const CLOSE: u64 = 2 << 32;
const CANCEL: u64 = 3 << 32;

/// What becomes of a probe's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sockets {
    /// It is reset, and connects again: as the engine does it.
    Kept,
    /// It is closed by RST, and the next probe makes one.
    Fresh,
}

/// Starts one over so many targets, with so many probes in flight; it stands still.
pub(crate) fn start(
    home: &Namespace,
    cpu: usize,
    (count, kind): (u32, Kind),
    slot_count: u32,
    sockets: Sockets,
) -> Result<Subject> {
    Subject::thread("bare", home, cpu, move |gate| {
        Loop::new(count, kind, slot_count, sockets)?.run(gate)
    })
}

struct Loop {
    uring: IoUring,
    kind: Kind,
    addresses: Box<[SockaddrIn]>,
    requests: Box<[Box<[u8]>]>,
    buffers: Box<[[u8; 2048]]>,
    next_target: usize,
    sockets: Sockets,
    slots: Box<[Slot]>,
    /// The chain that is being made.
    chain: Vec<squeue::Entry>,
    /// When a start has its deadline; some are over by then.
    deadlines: VecDeque<(u64, u32, u32)>,
    /// Slots that are free, or are to be closed.
    free: Vec<u32>,
    ended: Vec<u32>,
    failed: u64,
    good: u64,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// Probes begun in it.
    starts: u32,
    under_way: bool,
    has_socket: bool,
}

impl Loop {
    fn new(count: u32, kind: Kind, slot_count: u32, sockets: Sockets) -> Result<Self> {
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(2 * ENTRIES)
            .build(ENTRIES)?;
        uring.submitter().register_files_sparse(slot_count)?;
        let address = |index| match Farm::address(Family::V4, index) {
            SocketAddr::V4(address) => SockaddrIn::from(address),
            SocketAddr::V6(_) => unreachable!("it was asked for IPv4"),
        };
        Ok(Self {
            uring,
            kind,
            addresses: (0..count).map(address).collect(),
            requests: (0..count).map(|index| request(index).into_bytes().into()).collect(),
            buffers: vec![[0; 2048]; slot_count as usize].into(),
            next_target: 0,
            sockets,
            slots: vec![Slot::default(); slot_count as usize].into(),
            chain: Vec::with_capacity(CHAIN),
            deadlines: VecDeque::with_capacity(4 * slot_count as usize),
            free: (0..slot_count).collect(),
            ended: Vec::with_capacity(slot_count as usize),
            failed: 0,
            good: 0,
        })
    }

    fn run(&mut self, gate: &Arc<Gate>) -> Result<()> {
        while gate.pass() {
            self.turn()?;
        }
        // What points into this memory is to be over before it goes.
        while self.free.len() < self.slots.len() {
            self.reap();
            self.close_ended()?;
            self.expire()?;
            self.submit()?;
        }
        ensure!(self.failed <= self.good, "{} of {} probes failed", self.failed, self.good);
        Ok(())
    }

    fn turn(&mut self) -> Result<()> {
        self.reap();
        self.expire()?;
        self.close_ended()?;
        while CHAIN <= self.room()
            && let Some(slot) = self.free.pop()
        {
            self.start(slot)?;
        }
        self.submit()
    }

    fn submit(&mut self) -> Result<()> {
        let timeout = Timespec::from(Duration::from_millis(1));
        let batch = u32::try_from(BATCH.as_micros()).expect("it is short");
        let arguments = SubmitArgs::new().timespec(&timeout).min_wait_usec(batch);
        match self.uring.submitter().submit_with_args(WANTED, &arguments) {
            Err(error)
                if !matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EBUSY | libc::EINTR)
                ) =>
            {
                Err(error).context("the bare loop's ring")
            }
            _ => Ok(()),
        }
    }

    fn room(&mut self) -> usize {
        let queue = self.uring.submission();
        queue.capacity() - queue.len()
    }

    fn reap(&mut self) {
        for entry in self.uring.completion() {
            let slot = (entry.user_data() & 0xffff_ffff) as u32;
            match entry.user_data() & !0xffff_ffff {
                PROBE => {
                    let good = match self.kind {
                        Kind::Tcp => entry.result() == 0,
                        Kind::Http => {
                            12 <= entry.result()
                                && self.buffers[slot as usize].starts_with(b"HTTP/1.1 200")
                        }
                    };
                    self.good += u64::from(good);
                    self.failed += u64::from(!good);
                    self.slots[slot as usize].under_way = false;
                    self.ended.push(slot);
                }
                CLOSE => self.free.push(slot),
                _ => {}
            }
        }
    }

    /// Cancels probes whose deadline has passed.
    fn expire(&mut self) -> Result<()> {
        let now = monotonic_now();
        while let Some((deadline_ns, slot, start)) = self.deadlines.front().copied()
            && deadline_ns <= now
        {
            let Slot { starts, under_way, .. } = self.slots[slot as usize];
            if starts == start && under_way {
                if self.room() == 0 {
                    return Ok(());
                }
                let cancel = opcode::AsyncCancel::new(PROBE | u64::from(slot)).build();
                self.push(&[cancel.user_data(CANCEL)])?;
            }
            self.deadlines.pop_front();
        }
        Ok(())
    }

    fn close_ended(&mut self) -> Result<()> {
        while 0 < self.room()
            && let Some(slot) = self.ended.pop()
        {
            let end = match self.sockets {
                Sockets::Kept => {
                    let length = size_of_val(&NOWHERE) as libc::socklen_t;
                    opcode::Connect::new(Fixed(slot), &raw const NOWHERE, length).build()
                }
                Sockets::Fresh => opcode::Close::new(Fixed(slot)).build(),
            };
            self.push(&[end.user_data(CLOSE | u64::from(slot))])?;
        }
        Ok(())
    }

    fn start(&mut self, slot: u32) -> Result<()> {
        let target = self.next_target;
        self.next_target = (target + STRIDE) % self.addresses.len();
        let place = DestinationSlot::try_from_slot_target(slot).expect("slots are few");
        let linked = |entry: squeue::Entry| {
            let flags = squeue::Flags::IO_LINK | squeue::Flags::SKIP_SUCCESS;
            entry.user_data(PROBE | u64::from(slot)).flags(flags)
        };
        let last = |entry: squeue::Entry| entry.user_data(PROBE | u64::from(slot));
        let entry = &mut self.slots[slot as usize];
        let is_new = self.sockets == Sockets::Fresh || !entry.has_socket;
        *entry = Slot { starts: entry.starts.wrapping_add(1), under_way: true, has_socket: true };
        let starts = entry.starts;
        let mut chain = std::mem::take(&mut self.chain);
        chain.clear();
        if is_new {
            let socket = opcode::Socket::new(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP);
            chain.push(linked(socket.file_index(Some(place)).build()));
            chain.extend(self.options(slot).into_iter().flatten().map(linked));
        }
        let address = &self.addresses[target];
        let connect = opcode::Connect::new(Fixed(slot), address.as_ptr(), address.len()).build();
        if self.kind == Kind::Tcp {
            chain.push(last(connect));
        } else {
            let request = &self.requests[target];
            let length = u32::try_from(request.len()).expect("a request is short");
            let send = opcode::Send::new(Fixed(slot), request.as_ptr(), length)
                .flags(libc::MSG_NOSIGNAL | libc::MSG_WAITALL)
                .build();
            let buffer = self.buffers[slot as usize].as_mut_ptr();
            let receive = opcode::Recv::new(Fixed(slot), buffer, 2048).build();
            chain.extend([linked(connect), linked(send), last(receive)]);
        }
        self.push(&chain)?;
        self.chain = chain;
        self.deadlines.push_back((monotonic_now() + TIMEOUT_NS, slot, starts));
        Ok(())
    }

    /// What a new socket is told: how its close is to end, and to put its ACKs off.
    fn options(&self, slot: u32) -> [Option<squeue::Entry>; 2] {
        let tcp = libc::IPPROTO_TCP;
        let late = match self.sockets {
            Sockets::Kept => option(slot, tcp, libc::TCP_DEFER_ACCEPT, &DEFER),
            Sockets::Fresh => option(slot, tcp, libc::TCP_QUICKACK, &NO_QUICK_ACK),
        };
        let rst = option(slot, libc::SOL_SOCKET, libc::SO_LINGER, &RST);
        [(self.sockets == Sockets::Fresh).then_some(rst), (self.kind == Kind::Http).then_some(late)]
    }

    fn push(&mut self, entries: &[squeue::Entry]) -> Result<()> {
        // SAFETY: every pointer leads into this loop's boxes, which live until all slots are free
        // (see `run`), or to a static.
        unsafe { self.uring.submission().push_multiple(entries) }.context("the queue is full")
    }
}

fn option<T>(slot: u32, level: i32, name: i32, value: &'static T) -> squeue::Entry {
    opcode::SetSockOpt::new(
        Fixed(slot),
        level as u32,
        name as u32,
        std::ptr::from_ref(value).cast(),
        size_of::<T>() as u32,
    )
    .build()
}
