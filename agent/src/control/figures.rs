//! What the agent does, in numbers: plain data, gathered by the [`Host`](super::host::Host) and
//! written out by [`super::metrics`].

use super::distribution::Distribution;
use super::view::{
    AttachedView, BackendCountersView, GlobalCountersView, ProbeState, ServiceCountersView,
};

/// The agent's figures at one moment. Counters count from its start, those of packets from when its
/// maps were made.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// Its version.
    pub version: String,
    /// Version of the maps' layout.
    pub abi: String,
    /// Its instance name.
    pub instance: String,
    /// Generation of the board.
    pub generation: u64,
    /// Backends without a first verdict.
    pub warming: u32,
    /// Its probing threads.
    pub shards: Vec<ShardFigures>,
    /// Its pools.
    pub pools: Vec<PoolFigures>,
    /// Its services.
    pub services: Vec<ServiceFigures>,
    /// Its backends, when they were asked for.
    pub backends: Vec<BackendFigures>,
    /// Programs on interfaces.
    pub attached: Vec<AttachedView>,
    /// Packets that belong to no service; `None` when nothing is attached.
    pub packets: Option<GlobalCountersView>,
}

/// A probing thread.
#[derive(Clone, Debug, Default)]
pub struct ShardFigures {
    /// Its number.
    pub shard: usize,
    /// Since its last heartbeat, in seconds; `None` = none yet.
    pub heartbeat_age_s: Option<f64>,
    /// Whether that is so long ago that it gives no sign of life.
    pub silent: bool,
    /// Targets it probes.
    pub targets: u32,
    /// Probes in flight.
    pub in_flight: u32,
    /// Probes that may be.
    pub in_flight_max: u32,
    /// Probes by what they say and why, in the order of
    /// [`OutcomeKind`](crate::engine::OutcomeKind).
    pub outcomes: Vec<(&'static str, &'static str, u64)>,
    /// Probes that started late.
    pub late: u64,
    /// Submissions that came before their turn because the ring was full.
    pub ring_full: u64,
    /// System calls made to submit and to wait.
    pub enters: u64,
    /// Completions that belonged to nobody.
    pub stray: u64,
    /// Times of its probes and their lateness; `None` when it did not tell in time.
    pub times: Option<(Distribution, Distribution)>,
}

/// A pool.
#[derive(Clone, Debug, Default)]
pub struct PoolFigures {
    /// Its name.
    pub name: String,
    /// Backends by what their probes say, in the order of [`ProbeState::ALL`].
    pub states: [u32; ProbeState::ALL.len()],
    /// Backends that take new flows.
    pub takes_new: u64,
    /// Backends that an operator drains, or that have left and keep their flows.
    pub draining: u32,
    /// Backends over whose probes an operator's word stands.
    pub overridden: u32,
    /// Whether too few take new flows.
    pub panics: bool,
    /// Whether the guard holds its last verdicts.
    pub held: bool,
    /// Since the last determinate probe of the target for which that is longest ago, in seconds;
    /// `None` before all first ones.
    pub last_probe_age_s: Option<f64>,
}

/// A service.
#[derive(Clone, Debug, Default)]
pub struct ServiceFigures {
    /// Its name.
    pub name: String,
    /// The name of its pool.
    pub pool: String,
    /// What happened to its packets; `None` when nothing is attached.
    pub counters: Option<ServiceCountersView>,
}

/// A backend.
#[derive(Clone, Debug)]
pub struct BackendFigures {
    /// The name of its pool.
    pub pool: String,
    /// Its name within it.
    pub name: String,
    /// What its probes say.
    pub state: ProbeState,
    /// Whether the kernel gives it new flows.
    pub takes_new: bool,
    /// Good results among those that the rule looks at.
    pub good: u8,
    /// Since its last determinate probe, in seconds; `None` = none yet, or no probe.
    pub last_probe_age_s: Option<f64>,
    /// Moving average over good probes, in seconds.
    pub average_s: f64,
    /// What the kernel did with it; `None` when nothing is attached.
    pub counters: Option<BackendCountersView>,
}
