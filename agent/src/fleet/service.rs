//! Services: what traffic is steered, to which pool, by which rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sickbay_core::plan::Nanos;

use super::Traffic;

/// A service (VIP): what traffic is steered, to which pool, by which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Name in the configuration.
    pub name: String,
    /// Which packets are its own.
    pub traffic: Traffic,
    /// Index into [`Fleet::pools`](super::Fleet::pools).
    pub pool: usize,
    /// The pool that takes new flows when `pool` has none that does.
    pub backup: Option<BackupTable>,
    /// What is done with its packets.
    pub mode: Mode,
    /// By what a flow's slot is found.
    pub hash: HashBy,
    /// What new flows get when no backend takes any.
    pub all_sick: AllSick,
    /// What becomes of established TCP flows of a sick backend.
    pub on_sick_tcp: OnSick,
    /// The same for UDP and every other protocol.
    pub on_sick_udp: OnSick,
    /// What a verdict is worth whose shard has given no sign of life for `stale_after_ns`.
    pub stale: Stale,
    /// See `stale`.
    pub stale_after_ns: Nanos,
    /// Entries of flows other than TCP's that are idle for longer are void.
    pub udp_idle_ns: Nanos,
    /// Seed of table and flow hash; two hosts with one configuration agree.
    pub seed: u64,
    /// First slot of its table.
    pub slot_first: u32,
    /// Slots of its table, a prime.
    pub slot_count: u32,
    /// Whether the configuration says how many slots; else they follow from the pool's members.
    pub sized: bool,
}

/// A service's backup pool and the table over it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupTable {
    /// Index into [`Fleet::pools`](super::Fleet::pools).
    pub pool: usize,
    /// First slot of the table.
    pub slot_first: u32,
    /// Slots of the table, a prime.
    pub slot_count: u32,
}

/// What is done with a service's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Count what would be done; pass everything.
    #[default]
    Observe,
    /// Direct server return over L2.
    Dsr,
}

impl Mode {
    /// As it is written in a configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Dsr => "dsr",
        }
    }
}

/// By what a flow's slot is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HashBy {
    /// Addresses, ports and protocol: every flow for itself.
    #[default]
    Flow,
    /// The client's address alone: all of its flows go to one backend.
    Source,
}

/// What new flows get when no backend of the pool takes any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AllSick {
    /// A backend all the same, from those that are allowed.
    #[default]
    Open,
    /// Nothing: the packet is dropped.
    Drop,
    /// A refusal: TCP gets a RST, UDP an ICMP port unreachable.
    Reset,
}

impl AllSick {
    /// As it is written in a configuration.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Drop => "drop",
            Self::Reset => "reset",
        }
    }
}

/// What becomes of established flows whose backend turns sick.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnSick {
    /// They go on until they close.
    Keep,
    /// They go to another backend, which knows nothing of them.
    Rehash,
    /// The client is told that it is over: by a RST, or an ICMP port unreachable.
    Reset,
}

/// What a verdict is worth when the agent has given no sign of life for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Stale {
    /// The last one holds.
    #[default]
    Last,
    /// It condemns nobody: a backend that is allowed takes its flows.
    Open,
}
