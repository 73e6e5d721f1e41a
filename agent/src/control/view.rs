//! What is shown of backends, services and the agent: the JSON of the socket and of `-o json`.
//!
//! Numbers that need all 64 bits (registers, monotonic times) are decimal strings: a JSON number is
//! a double to most readers, exact to 2^53 only.

use serde::{Deserialize, Serialize};
use sickbay_core::command::{Override, Verdict};
use sickbay_shared::abi;

use super::members::StandingView;
use super::said::Said;

/// The kernel's counters, summed over CPUs.
mod counters;
/// What would become of a flow's packet.
mod flow;
/// What the process holds.
mod privilege;
/// Registers and the rules over them.
mod registers;

pub use counters::{BackendCountersView, GlobalCountersView, ServiceCountersView};
pub use flow::{FlowBackendView, FlowEntryView, FlowServiceView, FlowSlotView, FlowView, NOBODY};
pub use privilege::PrivilegeView;
pub use registers::{RegistersView, RuleView};

/// A backend: what is configured, what its probes say, what the kernel did with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackendView {
    /// `pool.backend`.
    pub name: String,
    /// Its pool's name.
    pub pool: String,
    /// Where its flows go: `ADDRESS:PORT`, `unix:/FILE` or `unix:@NAME`.
    pub address: String,
    /// Share of new flows relative to the others of its pool.
    pub weight: u32,
    /// Its bit in the bitmaps.
    pub index: u32,
    /// The operator's word.
    pub admin: Admin,
    /// Who set that, when it is not left to the probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_said: Option<Said>,
    /// Who drained it, or has it in maintenance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_said: Option<Said>,
    /// How it stands in its pool.
    #[serde(default)]
    pub standing: StandingView,
    /// When that ends: a drain with a limit, or the drain of one that was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standing_until_unix_ms: Option<u64>,
    /// What its probes say, whatever the operator's word.
    pub state: ProbeState,
    /// Whether the kernel gives it new flows: word and probes together.
    pub takes_new: bool,
    /// Good results among those the rule looks at.
    pub good: u8,
    /// `threshold` and `window`, or `fall` and `rise`; `None` = it has no probe and is healthy
    /// without one.
    #[serde(flatten)]
    pub rule: Option<RuleView>,
    /// Varnish's eight registers. Without a probe `bits_H` is all ones, as the gauge `VBE.*.happy`
    /// of Varnish trunk is then (#4201; that of 7.1.1 is 0).
    pub registers: RegistersView,
    /// Moving average over good probes, in seconds.
    pub average_s: f64,
    /// Time of the last complete reception, in seconds; 0 when the last probe had none.
    pub last_s: f64,
    /// When the verdict last changed, by probes or by an operator; `None` = never yet.
    pub last_change_unix_ms: Option<u64>,
    /// The same on CLOCK_MONOTONIC, in ns, read after the verdict's store: a packet that leaves
    /// later meets the new verdict. 0 = never yet.
    #[serde(with = "decimal")]
    pub last_change_ns: u64,
    /// What the last probe came to, escaped; empty before the first.
    pub cause: String,
    /// Who named it: `configuration`, `operator`, `file PATH`, `name NAME`, or `before`, an agent
    /// that is gone.
    #[serde(default)]
    pub origin: String,
    /// What the kernel did with it; `None` when nothing is attached.
    pub counters: Option<BackendCountersView>,
}

impl BackendView {
    /// The registers in the order and type that [`crate::graph::block`] takes.
    #[must_use]
    pub fn register_array(&self) -> [u64; 8] {
        self.registers.into()
    }
}

/// An operator's word over the probed state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Admin {
    /// As probed.
    Auto,
    /// Healthy whatever the probes say.
    Healthy,
    /// Sick whatever the probes say.
    Sick,
}

impl Admin {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Healthy => "healthy",
            Self::Sick => "sick",
        }
    }
}

impl From<Override> for Admin {
    fn from(word: Override) -> Self {
        match word {
            Override::Auto => Self::Auto,
            Override::Healthy => Self::Healthy,
            Override::Sick => Self::Sick,
        }
    }
}

impl From<Admin> for Override {
    fn from(admin: Admin) -> Self {
        match admin {
            Admin::Auto => Self::Auto,
            Admin::Healthy => Self::Healthy,
            Admin::Sick => Self::Sick,
        }
    }
}

/// What the probes say of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProbeState {
    /// Too few results so far.
    Warming,
    /// Enough good results.
    Healthy,
    /// Too few good results.
    Sick,
    /// No result that says anything for too long.
    Unknown,
}

impl ProbeState {
    /// Every state, each at its own number.
    pub const ALL: [Self; 4] = [Self::Warming, Self::Healthy, Self::Sick, Self::Unknown];

    /// The state's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Warming => "warming",
            Self::Healthy => "healthy",
            Self::Sick => "sick",
            Self::Unknown => "unknown",
        }
    }

    /// From the board's `state` byte; `None` when it is none of its values.
    #[must_use]
    pub const fn from_board(state: u8) -> Option<Self> {
        match state {
            abi::STATE_WARMING => Some(Self::Warming),
            abi::STATE_HEALTHY => Some(Self::Healthy),
            abi::STATE_SICK => Some(Self::Sick),
            abi::STATE_UNKNOWN => Some(Self::Unknown),
            _ => None,
        }
    }
}

impl From<Verdict> for ProbeState {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Warming => Self::Warming,
            Verdict::Healthy => Self::Healthy,
            Verdict::Sick => Self::Sick,
        }
    }
}

/// The entries of one address family's flows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEntriesView {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// Of flows that have begun, void ones among them.
    pub flows: u64,
    /// Of SYNs whose flow has sent nothing else yet, and still may.
    pub embryonic: u64,
    /// How many flows that have begun there is room for.
    pub room: u64,
}

/// A service: what is configured, how its pool is, what the kernel did with its packets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// The VIP, or a prefix of them: `192.0.2.0/24`.
    pub address: String,
    /// Destination ports: `80`, `80,8000-8099` or `any`.
    pub ports: String,
    /// `tcp`, `udp`, `any`, or another by name or number.
    pub protocol: String,
    /// The name of its pool.
    pub pool: String,
    /// The name of its backup pool.
    pub backup: Option<String>,
    /// `observe` or `dsr`.
    pub mode: String,
    /// `open`, `drop` or `reset`: what new flows get when no backend takes any.
    pub all_sick: String,
    /// Backends of the pool that take new flows.
    pub healthy: u32,
    /// Backends of the pool.
    pub total: u32,
    /// Whether the pool panics: too few of it take new flows.
    pub panics: bool,
    /// Backends of the backup pool that take new flows.
    pub backup_healthy: u32,
    /// Backends of the backup pool.
    pub backup_total: u32,
    /// Slots of its table.
    pub slots: u32,
    /// Where its packets are met.
    pub attached: Vec<AttachedView>,
    /// What happened to its packets; `None` when nothing is attached.
    pub counters: Option<ServiceCountersView>,
}

/// A program on an interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedView {
    /// The interface's name.
    pub interface: String,
    /// `xdp` or `tc`.
    pub program: String,
    /// How it is run: `native` or `generic` (XDP), `tcx` or `clsact` (TC).
    pub mode: String,
}

/// The agent itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StatusView {
    /// Instance name.
    pub instance: String,
    /// Process id.
    pub pid: u32,
    /// Version of the agent.
    pub version: String,
    /// Since its start, in seconds.
    pub uptime_s: f64,
    /// Generation of the board: which agent's word it holds.
    pub generation: u64,
    /// Its probing threads.
    pub shards: Vec<ShardView>,
    /// Programs on interfaces; empty until steering attaches.
    pub attached: Vec<AttachedView>,
    /// Backends without a first verdict.
    pub warming_count: u32,
    /// Backends that take new flows.
    pub healthy_count: u32,
    /// All backends.
    pub backend_count: u32,
    /// Transitions that were not logged because the journal's queue was full.
    pub transitions_dropped: u64,
    /// From a result's end to the verdict's store into kernel memory, in ns; `None` = not measured.
    #[serde(default)]
    pub verdict_to_kernel_ns: Option<PercentilesView>,
    /// How late probes start against their schedule, in µs; `None` = not measured.
    #[serde(default)]
    pub lateness_us: Option<PercentilesView>,
    /// Packets that belong to no service; `None` when nothing is attached.
    #[serde(default)]
    pub packets: Option<GlobalCountersView>,
    /// The entries of IPv4's flows and of IPv6's, as they were within the last second; empty when
    /// nothing is attached.
    #[serde(default)]
    pub flow_entries: Vec<FlowEntriesView>,
    /// What its process holds; `None` when the kernel does not tell.
    #[serde(default)]
    pub privilege: Option<PrivilegeView>,
    /// What pools follow.
    #[serde(default)]
    pub sources: Vec<SourceView>,
}

/// What a pool follows besides its configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceView {
    /// The pool's name.
    pub pool: String,
    /// `file PATH` or `name NAME`.
    pub source: String,
    /// Backends in its last good answer; `None` = it has given none.
    pub backends: Option<u64>,
    /// When it gave that answer, or said it again; `None` = an agent before this one had it, or the
    /// configuration was read with it.
    pub answered_unix_ms: Option<u64>,
    /// What is wrong with it now; the last good answer holds.
    pub fault: Option<String>,
    /// Since when.
    pub fault_unix_ms: Option<u64>,
}

/// One probing thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardView {
    /// Its number.
    pub shard: u32,
    /// Since its last heartbeat, in ms; `None` = none yet.
    pub heartbeat_age_ms: Option<u64>,
    /// Targets it probes.
    pub targets: u32,
    /// Probes in flight.
    pub in_flight: u32,
    /// Probes finished since the start.
    pub probes: u64,
    /// Whether its ring refuses every operation that no probe needs.
    #[serde(default)]
    pub ring_restricted: bool,
}

/// A distribution, in the unit that the field's name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub struct PercentilesView {
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
    pub count: u64,
}

/// A u64 as a decimal string.
pub(crate) mod decimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn serialize<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(number)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}
