//! The cases: what is sent, to which tables, and what must become of it.

use sickbay_shared::abi::ServiceCounters;

use super::world::{Family, Packet, Slots};

/// What a flow's packets meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// To no service.
    NotService,
    /// A new connection, to its slot's backend.
    SynFirst,
    /// A new connection to a sick slot, whose entry is refused: what choosing alone costs.
    SynDiverted,
    /// The same, and its entry is written: a flow that was never seen before.
    SynDivertedNew,
    /// The same SYN again, by its entry.
    SynAgain,
    /// An established connection, by its slot.
    Established,
    /// One with an entry.
    EstablishedEntry,
    /// A datagram, by its slot.
    Datagram,
    /// A datagram whose slot's backend is sick: another one, by its entry.
    DatagramDiverted,
    /// A new connection, and nobody takes it.
    Dropped,
}

impl Way {
    /// In the table.
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::NotService => "not a VIP",
            Self::SynFirst => "SYN, first choice",
            Self::SynDiverted => "SYN, diverted, no entry",
            Self::SynDivertedNew => "SYN, diverted, entered",
            Self::SynAgain => "SYN, diverted, again",
            Self::Established => "established, by slot",
            Self::EstablishedEntry => "established, by entry",
            Self::Datagram => "UDP, by slot",
            Self::DatagramDiverted => "UDP, diverted, by entry",
            Self::Dropped => "SYN, none takes it: drop",
        }
    }

    /// In the figures' names.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::NotService => "not_vip",
            Self::SynFirst => "syn_first",
            Self::SynDiverted => "syn_diverted",
            Self::SynDivertedNew => "syn_diverted_entered",
            Self::SynAgain => "syn_diverted_again",
            Self::Established => "established",
            Self::EstablishedEntry => "established_entry",
            Self::Datagram => "udp",
            Self::DatagramDiverted => "udp_diverted",
            Self::Dropped => "drop",
        }
    }

    /// What is sent.
    pub(crate) const fn packet(self) -> Packet {
        match self {
            Self::NotService => Packet::NotService,
            Self::SynFirst
            | Self::SynDiverted
            | Self::SynDivertedNew
            | Self::SynAgain
            | Self::Dropped => Packet::Syn,
            Self::Established | Self::EstablishedEntry => Packet::Ack,
            Self::Datagram | Self::DatagramDiverted => Packet::Datagram,
        }
    }

    /// Whose slots its flows have.
    pub(crate) const fn slots(self) -> Slots {
        match self {
            Self::NotService => Slots::Any,
            Self::SynFirst | Self::Established | Self::Datagram => Slots::Well,
            _ => Slots::Sick,
        }
    }

    /// Of the packets that were sent, those that went this way, by the services' counters.
    pub(crate) const fn went(self, counters: &ServiceCounters) -> u64 {
        match self {
            Self::NotService => 0,
            Self::SynFirst => counters.new_flows - counters.skipped - counters.affinity_hit,
            Self::SynDiverted => counters.entries_refused,
            Self::SynDivertedNew => counters.entries_written,
            Self::Established | Self::Datagram => counters.affinity_miss,
            Self::SynAgain | Self::EstablishedEntry | Self::DatagramDiverted => {
                counters.affinity_hit
            }
            Self::Dropped => counters.all_sick_dropped,
        }
    }
}

/// One line's measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    pub(crate) way: Way,
    pub(crate) family: Family,
    /// Backends of the pool.
    pub(crate) backends: u32,
    /// So many of a hundred are sick.
    pub(crate) sick_percent: u32,
    /// Flows that take turns.
    pub(crate) flows: u32,
}
