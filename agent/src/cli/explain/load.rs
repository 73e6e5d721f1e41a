//! What probing costs: the busiest backend of a probe, and this host.

use crate::address;
use crate::config::{in_flight_worst, rate, rate_worst, rates, rounded};
use crate::fleet::Fleet;
use crate::shard::shard_count;

/// Bytes that a target takes, about: its place in the prober with timer and judge (200), its
/// address as the kernel wants it and its place in the tables of names (180), its two lines in the
/// map of registers (128).
const TARGET_BYTES: u64 = 512;
/// Bytes that a place in flight takes, about: the buffer of a receive (2,048), its entries in the
/// ring (6 of 64), its place in the prober and two reports (560).
const SLOT_BYTES: u64 = 3072;

/// Of a probe's backends, the address that gets the most probes from all pools together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Busiest {
    pub(super) address: address::Host,
    /// While all is well.
    pub(super) probes_per_second: f64,
    /// While every probe is at its quickest pace.
    pub(super) probes_per_second_worst: f64,
    pub(super) request_bytes_per_second: f64,
    pub(super) request_bytes_per_second_worst: f64,
}

impl Busiest {
    /// `None` when no pool uses the probe.
    pub(super) fn of(fleet: &Fleet, probe: usize) -> Option<Self> {
        let rates = rates(fleet);
        let judged = fleet.backends.iter().flat_map(|backend| &backend.judged);
        judged
            .filter(|judged| judged.probe == probe)
            .map(|judged| fleet.targets[judged.target].address.host())
            .filter_map(|address| rates.get_key_value(&address))
            // The lowest of equal ones, so that the answer is always the same.
            .max_by(|(a, x), (b, y)| x.rate.total_cmp(&y.rate).then(b.cmp(a)))
            .map(|(address, load)| Self {
                address: address.clone(),
                probes_per_second: rounded(load.rate),
                probes_per_second_worst: rounded(load.rate_worst),
                request_bytes_per_second: rounded(load.request_bytes_per_second),
                request_bytes_per_second_worst: rounded(load.request_bytes_per_second_worst),
            })
    }
}

/// What the whole configuration costs this host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Host {
    pub(super) shards: u64,
    /// While all is well.
    pub(super) probes_per_second: f64,
    /// While every probe is at its quickest pace.
    pub(super) probes_per_second_worst: f64,
    /// Sockets open at once when every probe times out at its quickest pace, were there room.
    pub(super) sockets_worst: u64,
    /// Sockets that there is room for.
    pub(super) sockets_room: u64,
    /// Backends without a probe.
    pub(super) unprobed: usize,
    /// Memory of the probing side, about; the tables of steering are apart.
    pub(super) memory_bytes: u64,
}

impl Host {
    pub(super) fn of(fleet: &Fleet) -> Self {
        let shards = shard_count(fleet) as u64;
        let sockets_room = shards * u64::from(fleet.in_flight);
        let requests: u64 = fleet.targets.iter().map(|target| target.request.len() as u64).sum();
        let targets = fleet.targets.len() as u64;
        Self {
            shards,
            probes_per_second: rounded(rate(fleet)),
            probes_per_second_worst: rounded(rate_worst(fleet)),
            sockets_worst: in_flight_worst(fleet).ceil() as u64,
            sockets_room,
            unprobed: fleet.backends.iter().filter(|each| each.judged.is_empty()).count(),
            memory_bytes: targets * TARGET_BYTES + 2 * requests + sockets_room * SLOT_BYTES,
        }
    }
}
