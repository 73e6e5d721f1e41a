//! What would become of a flow's packet, as it is shown: slot, backend, entry, skips and why.

use serde::{Deserialize, Serialize};

/// What would become of a packet now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowView {
    /// `steered`, `dropped`, `refused`, `passed` (to no service), `echo` or `unread`.
    pub outcome: String,
    /// Why, for programs: `current`, `rehashed`, `none_takes_new` and so on; empty for `passed`.
    pub why: String,
    /// Why, for people.
    pub because: String,
    /// The service; `None` = it is to none.
    pub service: Option<FlowServiceView>,
    /// The flow's slot in the service's table.
    pub slot: Option<FlowSlotView>,
    /// What is remembered of the flow.
    pub entry: Option<FlowEntryView>,
    /// What would become of what is remembered: `untouched`, `written`, `promoted`, `deleted`.
    pub entry_change: String,
    /// Where it goes: `pool.backend`; of a flow that is ended, the sick one.
    pub backend: Option<FlowBackendView>,
    /// Whom it might have gone to, and does not.
    pub skipped: Option<String>,
    /// Which of the re-hashed tries finds a backend that takes new flows, from 1; `None` = none does.
    pub try_that_finds: Option<u32>,
    /// The next hop's MAC; `None` = not known, and then the packet is dropped.
    pub next_hop: Option<String>,
    /// The interface it leaves by.
    pub interface: Option<String>,
    /// The service only observes: whatever stands here, the packet is passed.
    pub observe: bool,
}

/// The service that a packet is for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowServiceView {
    /// Its name.
    pub name: String,
    /// What it takes: `198.51.100.1 port 80 tcp`.
    pub traffic: String,
    /// `observe` or `dsr`.
    pub mode: String,
    /// Its pool.
    pub pool: String,
    /// Backends of the pool that take new flows.
    pub healthy: u64,
    /// Whether the pool panics.
    pub panics: bool,
    /// Its backup pool.
    pub backup: Option<String>,
    /// Backends of the backup pool that take new flows.
    pub backup_healthy: u64,
}

/// A flow's slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowSlotView {
    /// Its number in the table.
    pub index: u32,
    /// Slots of the table.
    pub count: u32,
    /// Whose new flows are.
    pub backend: FlowBackendView,
    /// Whose older flows still are, while the slot drains.
    pub drains_from: Option<String>,
    /// Since the last sign of life of whoever judges the slot's backend, in ms; `None` of
    /// [`NOBODY`].
    pub verdict_age_ms: Option<u64>,
}

/// Whom the slots of a pool without members name.
pub const NOBODY: &str = "nobody";

/// A backend, as the kernel sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowBackendView {
    /// `pool.backend`, or its index when it has no name any more.
    pub name: String,
    /// Whether it takes new flows.
    pub takes_new: bool,
    /// Whether it serves the flows it has.
    pub serves_old: bool,
    /// Whether it may be chosen when none takes new flows.
    pub allowed: bool,
}

/// What is remembered of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEntryView {
    /// Whose it is.
    pub backend: FlowBackendView,
    /// Nothing but a SYN was seen of it yet.
    pub embryonic: bool,
    /// Since its last stamp, in ms.
    pub age_ms: u64,
}
