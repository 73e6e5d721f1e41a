//! What was decided of a packet, with all that is counted of it, and what the entry point does.

use crate::abi::BackendRef;
use crate::packet::Unread;
use crate::tables::NextHop;

/// What was decided of a packet, with all that is counted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Passed, for this reason.
    Unread(Unread),
    /// Passed: to no service.
    NotService,
    /// Answered: an echo request to the address of a service.
    EchoAnswered,
    /// Dropped or refused, or passed in `observe`.
    Dropped(Dropped),
    /// Sent to a backend, or passed in `observe`, or dropped when its next hop is not known.
    Steered(Steered),
}

/// A packet that goes to no backend, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped {
    /// Why.
    pub reason: Reason,
    /// Service index.
    pub service: u32,
    /// The sick backend whose flow is ended; [`BackendRef::NONE`] where there is none.
    pub backend: BackendRef,
    /// The service only observes.
    pub observe: bool,
    /// Whether a record of it was put.
    pub record: Record,
}

/// Why a packet goes to no backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Reason {
    /// The service has no usable slot, pool or backend record.
    BrokenTable,
    /// A new flow, and no backend takes any: dropped.
    NoneTakesNew,
    /// A new flow, and no backend takes any: refused by an answer (`all_sick = reset`).
    NoneTakesNewRefused,
    /// An established flow of a sick backend: ended by an answer (`on_sick = reset`).
    BackendSick,
    /// One of these two, and the budget for answers is spent: dropped.
    ReplyOverBudget,
}

impl Reason {
    /// All, each at the place of its number.
    pub const ALL: [Self; 5] = [
        Self::BrokenTable,
        Self::NoneTakesNew,
        Self::NoneTakesNewRefused,
        Self::BackendSick,
        Self::ReplyOverBudget,
    ];
}

/// What came of the record of a packet that reached no backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Record {
    /// None was taken: the packet reached a backend, or the budget for records is spent.
    NotTaken,
    /// It was put.
    Put,
    /// It found no room.
    Lost,
}

impl Record {
    /// The one of this number.
    #[inline(always)]
    pub(super) const fn named(number: u32) -> Self {
        match number {
            0 => Self::NotTaken,
            1 => Self::Put,
            _ => Self::Lost,
        }
    }
}

/// A packet's backend, and how it came to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steered {
    /// Service index.
    pub service: u32,
    /// The service only observes.
    pub observe: bool,
    /// The backend.
    pub backend: BackendRef,
    /// Whom it might have gone to: the backend of its slot; of [`Path::Moved`], the sick one.
    pub left: BackendRef,
    /// How it came to the backend.
    pub path: Path,
    /// What became of the flow's entry.
    pub entry: Entry,
    /// The same of the entry by which the rest of a datagram follows its first fragment.
    pub fragment: Entry,
    /// The backend is sick and keeps the flow.
    pub kept_on_sick: bool,
    /// Where the packet goes.
    pub next_hop: NextHop,
    /// Bytes of the packet, link layer included.
    pub size_bytes: u32,
    /// Whether a record of it was put, because its next hop is not known.
    pub record: Record,
}

/// How a packet came to its backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Path {
    /// A new flow: its slot's backend, which takes new flows.
    Current,
    /// A new flow: another of the table, by re-hashing.
    Rehashed,
    /// A new flow: the k-th of those that take new flows.
    Searched,
    /// A new flow: one of the backup pool.
    Backup,
    /// A new flow, though too few take new flows: one that is allowed (`panic_threshold`).
    PanicOpen,
    /// A new flow, though none takes new flows: one that is allowed (`all_sick = open`).
    Open,
    /// A new flow: its slot's backend, the verdict against it being stale (`stale = open`).
    StaleOpen,
    /// A new flow, by the entry that the same SYN left a moment ago.
    SynAgain,
    /// An established flow, by its entry.
    Entry,
    /// An established flow without an entry, by its slot.
    Slot,
    /// An established flow whose backend is sick: another that takes new flows (`on_sick = rehash`).
    Moved,
    /// A later fragment: after the first of its datagram.
    Fragment,
    /// An ICMP error: after the flow that it tells of.
    IcmpError,
}

impl Path {
    /// All, each at the place of its number.
    pub const ALL: [Self; 13] = [
        Self::Current,
        Self::Rehashed,
        Self::Searched,
        Self::Backup,
        Self::PanicOpen,
        Self::Open,
        Self::StaleOpen,
        Self::SynAgain,
        Self::Entry,
        Self::Slot,
        Self::Moved,
        Self::Fragment,
        Self::IcmpError,
    ];

    /// Whether a new flow that came this way has a backend that takes new flows.
    #[inline(always)]
    #[must_use]
    pub const fn takes_new(self) -> bool {
        matches!(self, Self::Current | Self::Rehashed | Self::Searched | Self::Backup)
    }
}

/// What became of a flow's entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Entry {
    /// There was none and there is none, or it stays (its stamp apart).
    Untouched,
    /// Written.
    Written,
    /// Could not be written, or the budget for it is spent.
    Refused,
    /// The embryonic one moved to the lasting store.
    Promoted,
    /// Deleted: the tuple's new flow follows its slot.
    Deleted,
}

impl Entry {
    /// All, each at the place of its number.
    pub const ALL: [Self; 5] =
        [Self::Untouched, Self::Written, Self::Refused, Self::Promoted, Self::Deleted];
}

const _: () = {
    let mut number = 0;
    while number < Path::ALL.len() {
        assert!(Path::ALL[number] as usize == number);
        number += 1;
    }
    number = 0;
    while number < Reason::ALL.len() {
        assert!(Reason::ALL[number] as usize == number);
        assert!(Entry::ALL[number] as usize == number);
        number += 1;
    }
};

/// What the entry point does with the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hand it on as if the program were not there.
    Pass,
    /// Drop it.
    Drop,
    /// Answer it in the backend's name, so that its sender knows: a RST, or ICMP's port
    /// unreachable. What cannot be answered is dropped.
    Refuse,
    /// Turn the echo request that it is into its reply, and send it back.
    AnswerEcho,
    /// Send it to this next hop; nothing but the two MACs changes. The TTL stays: the packet does
    /// not leave its link, and the backend sees what the client sent.
    Forward(NextHop),
}

impl Outcome {
    /// What the entry point does.
    #[inline(always)]
    #[must_use]
    pub const fn action(&self) -> Action {
        match self {
            Self::Unread(_) | Self::NotService => Action::Pass,
            Self::EchoAnswered => Action::AnswerEcho,
            Self::Dropped(dropped) => dropped.action(),
            Self::Steered(steered) => steered.action(),
        }
    }
}

impl Dropped {
    #[inline(always)]
    const fn action(&self) -> Action {
        if self.observe {
            return Action::Pass;
        }
        match self.reason {
            Reason::BrokenTable | Reason::NoneTakesNew | Reason::ReplyOverBudget => Action::Drop,
            Reason::NoneTakesNewRefused | Reason::BackendSick => Action::Refuse,
        }
    }
}

impl Steered {
    #[inline(always)]
    const fn action(&self) -> Action {
        if self.observe {
            Action::Pass
        } else if self.next_hop.is_known() {
            Action::Forward(self.next_hop)
        } else {
            Action::Drop
        }
    }
}

/// An [`Action`] as a number, for a call that is checked apart: of one that sends the packet on, the
/// backend, whose next hop the caller looks up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step(pub u32);

impl Step {
    /// [`Action::Pass`]
    pub const PASS: Self = Self(0);
    /// [`Action::Drop`]
    pub const DROP: Self = Self(1);
    /// [`Action::Refuse`]
    pub const REFUSE: Self = Self(2);
    /// [`Action::AnswerEcho`]
    pub const ANSWER_ECHO: Self = Self(3);
    const FORWARD: u32 = 1 << 31;

    /// What the entry point does.
    #[inline(always)]
    #[must_use]
    pub const fn of(outcome: &Outcome) -> Self {
        match (outcome.action(), outcome) {
            (Action::Forward(_), Outcome::Steered(steered)) => {
                Self(Self::FORWARD | steered.backend.index())
            }
            (Action::Pass, _) => Self::PASS,
            (Action::Refuse, _) => Self::REFUSE,
            (Action::AnswerEcho, _) => Self::ANSWER_ECHO,
            (Action::Drop | Action::Forward(_), _) => Self::DROP,
        }
    }

    /// The index of the backend that the packet is sent on to, if it is.
    #[inline(always)]
    #[must_use]
    pub const fn backend_index(self) -> Option<u32> {
        if self.0 & Self::FORWARD != 0 { Some(self.0 & !Self::FORWARD) } else { None }
    }
}
