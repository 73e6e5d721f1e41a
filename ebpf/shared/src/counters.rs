//! Counters: which of them a packet moves, as a function of what was decided of it.

use crate::abi::{BackendCounters, BackendRef, GlobalCounters, ServiceCounters};
use crate::packet::Unread;
use crate::steer::{Dropped, Entry, Outcome, Path, Reason, Record, Steered};

/// Where the counters stand. One that does not exist is not moved.
pub trait Counters: Sized {
    /// The counters of packets that belong to no service.
    fn global(&self, count: impl FnOnce(&mut GlobalCounters));
    /// A service's.
    fn service(&self, index: u32, count: impl FnOnce(&mut ServiceCounters));
    /// A backend's.
    fn backend(&self, index: u32, count: impl FnOnce(&mut BackendCounters));

    /// [`count_how`], called so that it is checked apart; see
    /// [`Tables::service_by_prefix`](crate::tables::Tables::service_by_prefix).
    #[inline(always)]
    fn steered(
        &self,
        service: u32,
        backend: BackendRef,
        left: BackendRef,
        how: How,
        size_bytes: u32,
    ) {
        count_how(self, service, backend, left, how, size_bytes);
    }
}

/// Moves the counters of one packet.
#[inline(always)]
pub fn count<C: Counters>(outcome: &Outcome, counters: &C) {
    match outcome {
        Outcome::Unread(reason) => count_unread(*reason, counters),
        Outcome::EchoAnswered => counters.global(|all| all.echo_answered += 1),
        Outcome::NotService => counters.global(|all| all.not_service += 1),
        Outcome::Dropped(dropped) => count_dropped(dropped, counters),
        Outcome::Steered(steered) => count_steered(steered, counters),
    }
}

/// Moves the counter of a packet that passes for this reason.
#[inline(always)]
pub fn count_unread<C: Counters>(reason: Unread, counters: &C) {
    counters.global(|all| match reason {
        Unread::NotIp => all.not_ip += 1,
        Unread::NotTcpUdp => all.not_tcp_udp += 1,
        Unread::NotRead => all.not_read += 1,
        Unread::Truncated => all.truncated += 1,
        Unread::IcmpUnrelated => all.icmp_unrelated += 1,
        Unread::FragmentUnknown => all.fragment_unknown += 1,
    });
}

#[inline(always)]
fn count_dropped<C: Counters>(dropped: &Dropped, counters: &C) {
    count_record(dropped.record, counters);
    if dropped.reason == Reason::BrokenTable {
        counters.global(|all| all.broken_table += 1);
        return;
    }
    let has_backend = dropped.backend != BackendRef::NONE;
    counters.service(dropped.service, |service| {
        service.skipped += u64::from(!has_backend);
        match dropped.reason {
            Reason::BrokenTable => {}
            Reason::NoneTakesNew => service.all_sick_dropped += 1,
            Reason::NoneTakesNewRefused | Reason::BackendSick => service.reset += 1,
            Reason::ReplyOverBudget => service.reset_over_budget += 1,
        }
    });
    if dropped.reason == Reason::BackendSick {
        counters.backend(dropped.backend.index(), |backend| backend.reset += 1);
    }
}

#[inline(always)]
fn count_record<C: Counters>(record: Record, counters: &C) {
    if record == Record::Lost {
        counters.global(|all| all.drop_records_lost += 1);
    }
}

#[inline(always)]
fn count_steered<C: Counters>(steered: &Steered, counters: &C) {
    count_record(steered.record, counters);
    let (service, backend, left) = (steered.service, steered.backend, steered.left);
    let how = How::of(steered);
    if how.is_plain() {
        count_plain(steered, counters);
    } else if how.is_rehashed() {
        count_rehashed(steered, counters);
    } else {
        counters.steered(service, backend, left, how, steered.size_bytes);
    }
}

/// What most packets move; inline, because it is a tenth of their time.
#[inline(always)]
fn count_plain<C: Counters>(steered: &Steered, counters: &C) {
    let bytes = u64::from(steered.size_bytes);
    counters.service(steered.service, |service| {
        match steered.path {
            Path::Current => service.new_flows += 1,
            Path::Entry => service.affinity_hit += 1,
            _ => service.affinity_miss += 1,
        }
        service.steered_packets += 1;
        service.steered_bytes += bytes;
    });
    counters.backend(steered.backend.index(), |backend| {
        backend.new_flows += u64::from(steered.path == Path::Current);
        backend.steered_packets += 1;
        backend.steered_bytes += bytes;
    });
}

/// What most new flows move that do not go to their slot's backend; inline likewise.
#[inline(always)]
fn count_rehashed<C: Counters>(steered: &Steered, counters: &C) {
    let bytes = u64::from(steered.size_bytes);
    let diverted = u64::from(steered.backend != steered.left);
    counters.service(steered.service, |service| {
        service.new_flows += 1;
        service.skipped += 1;
        service.entries_written += u64::from(steered.entry == Entry::Written);
        service.entries_refused += u64::from(steered.entry == Entry::Refused);
        service.steered_packets += 1;
        service.steered_bytes += bytes;
    });
    counters.backend(steered.backend.index(), |backend| {
        backend.new_flows += 1;
        backend.diverted_in += diverted;
        backend.steered_packets += 1;
        backend.steered_bytes += bytes;
    });
    counters.backend(steered.left.index(), |backend| backend.skipped += diverted);
}

/// How a packet was steered, as far as it is counted, as one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct How(pub u32);

impl How {
    const KNOWN: u32 = 1 << 16;
    const KEPT_ON_SICK: u32 = 1 << 17;
    const FRAGMENT_WRITTEN: u32 = 1 << 18;
    const FRAGMENT_REFUSED: u32 = 1 << 19;

    #[inline(always)]
    const fn of(steered: &Steered) -> Self {
        let known = if steered.next_hop.is_known() { Self::KNOWN } else { 0 };
        let kept_on_sick = if steered.kept_on_sick { Self::KEPT_ON_SICK } else { 0 };
        let fragment = match steered.fragment {
            Entry::Written => Self::FRAGMENT_WRITTEN,
            Entry::Refused => Self::FRAGMENT_REFUSED,
            _ => 0,
        };
        let (path, entry) = (steered.path as u32, steered.entry as u32);
        Self(path | entry << 8 | known | kept_on_sick | fragment)
    }

    /// Whether the packet followed its slot or its entry, to a backend that is well and known, and
    /// nothing was remembered.
    #[inline(always)]
    const fn is_plain(self) -> bool {
        self.0 >> 8 == Self::KNOWN >> 8 | Entry::Untouched as u32
            && (self.came_by(Path::Current)
                || self.came_by(Path::Entry)
                || self.came_by(Path::Slot))
    }

    /// Whether it is of a new flow that re-hashing gave to another backend, and that is known.
    #[inline(always)]
    const fn is_rehashed(self) -> bool {
        const ENTRY: u32 = 0xff << 8;
        self.0 & !ENTRY == Self::KNOWN | Path::Rehashed as u32 && !self.left_entry(Entry::Promoted)
    }

    #[inline(always)]
    const fn came_by(self, path: Path) -> bool {
        self.0 & 0xff == path as u32
    }

    #[inline(always)]
    const fn left_entry(self, entry: Entry) -> bool {
        self.0 >> 8 & 0xff == entry as u32
    }

    /// Whether a new flow came.
    #[inline(always)]
    const fn opens(self) -> bool {
        !(self.came_by(Path::Entry)
            || self.came_by(Path::Slot)
            || self.came_by(Path::Moved)
            || self.came_by(Path::Fragment)
            || self.came_by(Path::IcmpError))
    }
}

/// Moves the counters of a packet that was steered; see [`Counters::steered`].
#[inline(always)]
pub fn count_how<C: Counters>(
    counters: &C,
    service: u32,
    backend: BackendRef,
    left: BackendRef,
    how: How,
    size_bytes: u32,
) {
    let known = how.0 & How::KNOWN != 0;
    let bytes = u64::from(size_bytes);
    let (opens, again) = (how.opens(), how.came_by(Path::SynAgain));
    let diverted = opens && !again && backend != left;
    counters.service(service, |service| {
        count_path(how, service);
        if how.left_entry(Entry::Written) {
            service.entries_written += 1;
        } else if how.left_entry(Entry::Refused) {
            service.entries_refused += 1;
        } else if how.left_entry(Entry::Promoted) {
            service.promoted += 1;
        }
        if how.0 & How::FRAGMENT_WRITTEN != 0 {
            service.entries_written += 1;
        } else if how.0 & How::FRAGMENT_REFUSED != 0 {
            service.entries_refused += 1;
        }
        if how.0 & How::KEPT_ON_SICK != 0 {
            service.kept_on_sick += 1;
        }
        if known {
            service.steered_packets += 1;
            service.steered_bytes += bytes;
        } else {
            service.unresolved += 1;
        }
    });
    counters.backend(backend.index(), |backend| {
        if opens {
            backend.new_flows += 1;
        }
        if diverted {
            backend.diverted_in += 1;
        }
        if known {
            backend.steered_packets += 1;
            backend.steered_bytes += bytes;
        } else {
            backend.unresolved += 1;
        }
    });
    let moved = how.came_by(Path::Moved);
    if diverted || moved {
        counters.backend(left.index(), |backend| {
            backend.skipped += u64::from(diverted);
            backend.moved_away += u64::from(moved);
        });
    }
}

#[inline(always)]
const fn count_path(how: How, service: &mut ServiceCounters) {
    if how.came_by(Path::Slot) {
        service.affinity_miss += 1;
        return;
    }
    if how.came_by(Path::Entry) {
        service.affinity_hit += 1;
        return;
    }
    if how.came_by(Path::Moved) {
        service.moved_off_sick += 1;
        return;
    }
    if how.came_by(Path::Fragment) {
        service.fragments += 1;
        return;
    }
    if how.came_by(Path::IcmpError) {
        service.icmp_errors += 1;
        return;
    }
    service.new_flows += 1;
    if how.came_by(Path::Current) {
        return;
    }
    if how.came_by(Path::SynAgain) {
        service.affinity_hit += 1;
        return;
    }
    service.skipped += 1;
    if how.came_by(Path::Searched) {
        service.fell_back += 1;
    } else if how.came_by(Path::Backup) {
        service.backup += 1;
    } else if how.came_by(Path::PanicOpen) {
        service.panic_open += 1;
    } else if how.came_by(Path::Open) {
        service.all_sick_open += 1;
    } else if how.came_by(Path::StaleOpen) {
        service.stale_open += 1;
    }
}
